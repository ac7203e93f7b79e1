//! `trax enqueue`: queues one job, one per line, or a SQL statement.
//!
//! Lines are read and parsed in parallel with the calls that queue them, a batch ahead. All lines
//! form one transaction, whose ids are printed after it commits: if a line is not JSON, nothing is
//! queued. With `--stream` each batch is a separate transaction, and its ids are printed at once.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc;
use trax_client::{JobId, JobOptions, Json, NewJob, NewJobs, OnDuplicate, SqlJob, TraceContext};

use crate::output::{Options, Progress, json as print_json, say};
use crate::session::Session;
use trax_terminal::print;
use trax_terminal::{Failure, duration};

/// The number of lines in one call.
const BATCH: usize = 1000;
/// The number of calls by which reading is ahead.
const AHEAD: usize = 4;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  trax enqueue mail.send '{\"to\": \"ada@example.org\"}'
  trax enqueue image.resize --file inputs.jsonl --group images
  jq -c '.[]' inputs.json | trax enqueue image.resize -
  tail -f requests.jsonl | trax enqueue image.resize - --stream
  trax enqueue --sql 'vacuum analyze orders'
  batch=$(trax enqueue report.send --open-batch)
  trax enqueue mail.send --file inputs.jsonl --batch $batch
  trax graph seal $batch")]
pub(crate) struct Arguments {
    /// The task, e.g. report.build
    #[arg(required_unless_present = "sql")]
    task: Option<String>,
    /// The input as JSON; - reads one JSON value per line from standard input, and queues a job for
    /// each
    #[arg(default_value = "{}", hide_default_value = true)]
    input: String,
    /// Read one JSON value per line from this file, and queue a job for each
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    file: Option<String>,
    /// Queue a statement that the server runs by itself, without a worker
    #[arg(long, value_name = "STATEMENT", conflicts_with_all = ["task", "input", "file", "stream"])]
    sql: Option<String>,
    /// The role that runs the statement; default: yours
    #[arg(long, value_name = "ROLE")]
    run_as: Option<String>,
    /// Queue lines as they arrive; lines before an invalid one stay queued. Without it all lines
    /// are queued after the last one has been read, or none. Required at a router
    #[arg(long)]
    stream: bool,
    /// Not claimable before this time, in PostgreSQL's syntax ('2030-01-01 10:00', 'tomorrow') and
    /// your time zone, or this long from now ('5 min')
    #[arg(long, value_name = "TIME")]
    run_at: Option<String>,
    /// The group
    #[arg(long)]
    group: Option<String>,
    /// 0 to 31, higher first
    #[arg(long)]
    priority: Option<i32>,
    /// Attempts after the first
    #[arg(long, value_name = "N")]
    max_retries: Option<i32>,
    /// The delay before the first retry, such as 30s or 5m; it grows from there
    #[arg(long, value_name = "TIME", value_parser = duration)]
    retry_delay: Option<Duration>,
    /// How long one attempt may run
    #[arg(long, value_name = "TIME", value_parser = duration)]
    timeout: Option<Duration>,
    /// While a job with this key is alive, print its id and queue nothing
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// The key stays alive at least this long, also when its job has ended
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "unique_key")]
    unique_for: Option<Duration>,
    /// The effect on the job that waits with this key: it stays, gets this input and these
    /// options, or is also postponed to --run-at
    #[arg(long, value_name = "keep|replace|postpone", value_parser = on_duplicate, requires = "unique_key")]
    on_duplicate: Option<OnDuplicate>,
    /// Jobs with the same key run one at a time
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
    /// Only workers that take this version, or that name no versions, claim the job
    #[arg(long, value_name = "VERSION", conflicts_with = "sql")]
    version: Option<String>,
    /// The rate under which the job starts (trax rate set)
    #[arg(long, value_name = "RATE", conflicts_with = "sql")]
    rate: Option<String>,
    /// The key of the rate; each key has a rate of its own
    #[arg(long, value_name = "KEY", requires = "rate")]
    rate_key: Option<String>,
    /// How much of the rate the job uses; default 1
    #[arg(long, value_name = "N", requires = "rate")]
    cost: Option<i32>,
    /// Add the job to this batch, whose own job runs after all jobs of it
    #[arg(long, value_name = "ID", conflicts_with = "sql")]
    batch: Option<i64>,
    /// Open a batch: the job runs after the jobs that --batch with its id adds, once the batch is
    /// sealed (trax graph seal)
    #[arg(long, conflicts_with_all = ["sql", "file", "stream"])]
    open_batch: bool,
    #[command(flatten)]
    output: Options,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    if let Some(sql) = &arguments.sql {
        return statement(url, sql, &arguments).await;
    }
    if arguments.run_as.is_some() {
        return Err(
            Failure::usage("--run-as is for --sql: a worker runs as its own role").hint(
                "leave it out, or queue a statement: trax enqueue --sql 'vacuum' --run-as ROLE",
            ),
        );
    }
    // Errors in the JSON or the file name are reported before the server is contacted.
    let source: Option<Box<dyn Read + Send>> = match (&arguments.file, arguments.input.as_str()) {
        (Some(file), _) => {
            Some(Box::new(File::open(file).map_err(|error| {
                Failure::usage(format!("{file} cannot be read: {error}"))
            })?))
        }
        (None, "-") => Some(Box::new(std::io::stdin())),
        (None, _) => None,
    };
    let Some(source) = source else {
        return one(url, arguments).await;
    };
    if arguments.open_batch {
        return Err(
            Failure::usage("--open-batch queues one job, not one for each line")
                .hint("give its input as JSON; then add the lines with --batch ID"),
        );
    }
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    if session.is_router() && !arguments.stream {
        return Err(Failure::usage(
            "a router cannot queue all lines or none: each call commits on a shard",
        )
        .hint("use --stream, or the address of the shard that has the group"));
    }
    let options = options(&session, &arguments).await?;
    let mut printed = EnqueueOutput::new(&arguments.output, arguments.stream)?;
    let queued = match arguments.stream {
        true => lines(&session, &arguments, &options, source, &mut printed).await,
        false => all_or_none(&session, &arguments, &options, source, &mut printed).await,
    };
    let ended = printed.end(queued.is_ok());
    queued.and(ended).map(|()| ExitCode::SUCCESS)
}

/// Queues all lines in one transaction.
async fn all_or_none(
    session: &Session,
    arguments: &Arguments,
    options: &JobOptions,
    source: Box<dyn Read + Send>,
    printed: &mut EnqueueOutput,
) -> Result<(), Failure> {
    session.connection.begin().await?;
    // Ending before the commit closes the connection, which rolls back.
    lines(session, arguments, options, source, printed).await?;
    session.connection.commit().await?;
    printed.release()
}

async fn one(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let input: Json = arguments.input.parse().map_err(|error| {
        Failure::usage(format!("the input is not JSON: {error}"))
            .hint("quote it for the shell: trax enqueue mail.send '{\"to\": \"a@example.org\"}'")
    })?;
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let options = options(&session, &arguments).await?;
    let task = arguments.task.unwrap_or_default();
    let job = NewJob::new(task, input).with(options);
    let client = session.client();
    let job_id = match arguments.open_batch {
        true => client.open_batch(&job).await?,
        false => client.enqueue(&job).await?,
    };
    print_id(job_id, &arguments.output)
}

async fn statement(
    url: Option<String>,
    sql: &str,
    arguments: &Arguments,
) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let mut job = SqlJob::new(sql).with(options(&session, arguments).await?);
    job.run_as.clone_from(&arguments.run_as);
    print_id(session.client().enqueue_sql(&job).await?, &arguments.output)
}

fn print_id(job_id: JobId, output: &Options) -> Result<ExitCode, Failure> {
    if output.json {
        print_json(&[object(job_id)])?;
    } else {
        say(&job_id.to_string())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn object(job_id: JobId) -> Value {
    serde_json::json!({ "job_id": job_id })
}

async fn lines(
    session: &Session,
    arguments: &Arguments,
    options: &JobOptions,
    source: Box<dyn Read + Send>,
    printed: &mut EnqueueOutput,
) -> Result<(), Failure> {
    let (batches, mut read) = mpsc::channel(AHEAD);
    let stream = arguments.stream;
    let file = arguments.file.clone();
    std::thread::spawn(move || parse(source, file.as_deref(), stream, &batches));
    while let Some(batch) = read.recv().await {
        let inputs: Vec<Json> = batch?;
        if inputs.is_empty() {
            continue;
        }
        let client = session.client();
        let task = arguments.task.as_deref().unwrap_or_default();
        // COPY returns no ids.
        let jobs = NewJobs::new(task, &inputs).with(options.clone());
        printed.add(client.enqueue_many(&jobs).await?)?;
    }
    Ok(())
}

type Batches = mpsc::Sender<Result<Vec<Json>, Failure>>;

/// Sends batches of parsed lines until the end, an error, or the receiver is gone. Lines already
/// read do not wait for lines that may come later.
fn parse(source: Box<dyn Read + Send>, file: Option<&str>, stream: bool, batches: &Batches) {
    let mut batch = Vec::with_capacity(BATCH);
    let mut reader = BufReader::with_capacity(1 << 20, source);
    for number in 1.. {
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line).map_err(Failure::from);
        let ended = matches!(read, Ok(0));
        let value = read.and_then(|_| value(&line).map_err(|cause| refused(&cause, stream)));
        let place = |failure: Failure| match file {
            Some(file) => failure.at(&format!("{file}: line {number}")),
            None => failure.at(&format!("line {number}")),
        };
        match value.map_err(place) {
            Ok(value) => batch.extend(value),
            Err(failure) => {
                // In a stream, lines before the error are queued, as earlier batches were.
                if send(batches, Ok(batch)) {
                    send(batches, Err(failure));
                }
                return;
            }
        }
        let full = batch.len() == BATCH || reader.buffer().is_empty();
        if full && !batch.is_empty() && !send(batches, Ok(std::mem::take(&mut batch))) || ended {
            return;
        }
    }
}

/// Sends a batch. Returns whether there is a receiver.
fn send(batches: &Batches, batch: Result<Vec<Json>, Failure>) -> bool {
    batches.blocking_send(batch).is_ok()
}

/// Parses a line; `None` for an empty one. The error says why a line is refused.
fn value(line: &[u8]) -> Result<Option<Json>, String> {
    let line = str::from_utf8(line).map_err(|error| format!("not UTF-8: {error}"))?;
    if line.trim().is_empty() {
        return Ok(None);
    }
    let not_json = |error: serde_json::Error| format!("not JSON: {error}");
    let value: Json = line.parse().map_err(not_json)?;
    if line.contains("\\u") {
        // The server would refuse half a character, or a NUL, without naming the line.
        let read: Value = value.read().map_err(not_json)?;
        Json::of(&read).map_err(|error| error.to_string())?;
    }
    Ok(Some(value))
}

fn refused(cause: &str, stream: bool) -> Failure {
    let queued = match stream {
        true => "the jobs of the lines before it were queued",
        false => "no job was queued",
    };
    Failure::usage(cause).hint(format!("each line is the input of one job; {queued}"))
}

/// The output while jobs are queued: their ids, or on a terminal a progress bar and the final
/// count.
struct EnqueueOutput {
    json: bool,
    ids: bool,
    /// The reader of the ids has gone.
    closed: bool,
    /// The ids of jobs not yet committed.
    held: Option<Vec<JobId>>,
    progress: Option<Progress>,
    begun: Instant,
    first: Option<JobId>,
    last: Option<JobId>,
    count: usize,
}

impl EnqueueOutput {
    fn new(output: &Options, stream: bool) -> Result<Self, Failure> {
        // On a terminal, ids would only fill the screen; a file or a program gets all of them.
        let ids = output.quiet || output.json || !stdout().is_terminal();
        if output.json {
            say("[")?;
        }
        Ok(EnqueueOutput {
            json: output.json,
            ids,
            closed: false,
            held: (!stream).then(Vec::new),
            progress: (!output.quiet).then(|| Progress::endless("jobs")),
            begun: Instant::now(),
            first: None,
            last: None,
            count: 0,
        })
    }

    fn add(&mut self, ids: Vec<JobId>) -> Result<(), Failure> {
        if let Some(progress) = &self.progress {
            progress.add(ids.len());
        }
        match &mut self.held {
            Some(held) => {
                held.extend(ids);
                Ok(())
            }
            None => self.show(&ids),
        }
    }

    /// Prints the ids of committed jobs.
    fn release(&mut self) -> Result<(), Failure> {
        let held = self.held.take().unwrap_or_default();
        held.chunks(BATCH).try_for_each(|ids| self.show(ids))
    }

    fn show(&mut self, ids: &[JobId]) -> Result<(), Failure> {
        if self.ids && !self.closed {
            // A reader that stops reading ids still wants the jobs queued.
            self.closed = reader_is_gone(self.print(ids))?;
        }
        self.first = self.first.or(ids.first().copied());
        self.last = ids.last().copied();
        self.count += ids.len();
        Ok(())
    }

    fn print(&self, ids: &[JobId]) -> Result<(), Failure> {
        if !self.json {
            let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
            return say(&texts.join("\n"));
        }
        let texts: Vec<String> = ids.iter().map(|id| object(*id).to_string()).collect();
        let comma = if self.count > 0 { "," } else { "" };
        say(&format!("{comma}{}", texts.join(",\n")))
    }

    /// Ends the JSON array even after an error, so that the output stays valid.
    fn end(&self, whole: bool) -> Result<(), Failure> {
        if let Some(progress) = &self.progress {
            progress.end();
        }
        if self.closed || self.ids && !self.json {
            return Ok(());
        }
        if self.json {
            return say("]");
        }
        match (self.first, self.last) {
            (Some(first), Some(last)) => {
                let rate = self.count as f64 / self.begun.elapsed().as_secs_f64().max(0.001);
                let count = self.count;
                say(&format!(
                    "{count} jobs queued, ids {first} to {last}, {rate:.0}/s"
                ))
            }
            _ if whole => say("0 jobs queued"),
            _ => Ok(()),
        }
    }
}

fn reader_is_gone(printed: Result<(), Failure>) -> Result<bool, Failure> {
    match printed {
        Ok(()) => Ok(false),
        Err(failure) if failure.is_silent() => Ok(true),
        Err(failure) => Err(failure),
    }
}

async fn options(session: &Session, arguments: &Arguments) -> Result<JobOptions, Failure> {
    let mut options = JobOptions::new();
    if let Some(text) = &arguments.run_at {
        options = options.run_at(session.time(text).await?);
    }
    if let Some(delay) = arguments.retry_delay {
        options = options.retry_delay(delay);
    }
    if let Some(timeout) = arguments.timeout {
        options = options.timeout(timeout);
    }
    if let Some(group) = &arguments.group {
        options = options.group(group);
    }
    if let Some(priority) = arguments.priority {
        options = options.priority(priority);
    }
    if let Some(retries) = arguments.max_retries {
        options = options.max_retries(retries);
    }
    if let Some(key) = &arguments.unique_key {
        options = options.unique_key(key);
    }
    if let Some(time) = arguments.unique_for {
        options = options.unique_for(time);
    }
    if let Some(choice) = arguments.on_duplicate {
        options = options.on_duplicate(choice);
    }
    if let Some(key) = &arguments.concurrency_key {
        options = options.concurrency_key(key);
    }
    if let Some(version) = &arguments.version {
        options = options.version(version);
    }
    if let Some(rate) = &arguments.rate {
        options = options.rate(rate);
    }
    if let Some(key) = &arguments.rate_key {
        options = options.rate_key(key);
    }
    if let Some(cost) = arguments.cost {
        options = options.cost(cost);
    }
    if let Some(batch) = arguments.batch {
        options = options.batch(JobId(batch));
    }
    Ok(match caller() {
        Some(trace) => options.trace_context(&trace),
        None => options,
    })
}

fn on_duplicate(text: &str) -> Result<OnDuplicate, String> {
    let all = [
        OnDuplicate::Keep,
        OnDuplicate::Replace,
        OnDuplicate::Postpone,
    ];
    let choice = all.into_iter().find(|choice| choice.name() == text);
    choice.ok_or_else(|| "use keep, replace or postpone".to_owned())
}

/// Returns the span that this command runs in, from OpenTelemetry's environment variables. A
/// malformed span is logged and does not prevent the job.
fn caller() -> Option<TraceContext> {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let malformed = |error| print::log("trax", &format!("ignored, malformed: {error}"));
    let trace = variable("TRACEPARENT")?.parse::<TraceContext>();
    let trace = trace.map_err(malformed).ok()?;
    let state = variable("TRACESTATE").unwrap_or_default();
    let with_state = trace.clone().with_state(&state).map_err(malformed);
    Some(with_state.unwrap_or(trace))
}
