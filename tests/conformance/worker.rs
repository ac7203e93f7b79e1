//! The conformance worker of the Rust client, as README.md describes it.

use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trax_client::{
    Address, Children, Context, HandlerResult, JobError, Many, NewJob, Undo, Worker,
};

#[derive(Deserialize)]
struct Wait {
    ms: u64,
}

#[derive(Deserialize)]
struct Failing {
    error: String,
}

#[derive(Deserialize)]
struct Later {
    seconds: u64,
}

#[derive(Deserialize)]
struct Large {
    bytes: usize,
}

#[derive(Deserialize)]
struct Typed {
    count: i64,
}

/// A job of `conformance.many`.
#[derive(Deserialize)]
struct Gathered {
    key: String,
    #[serde(rename = "do")]
    what: String,
}

/// The jobs of a full call.
const FULL: usize = 3;
/// Longer than any scenario: only a full call begins.
const FOREVER: Duration = Duration::from_secs(600);

/// An act of `conformance.steps`.
#[derive(Deserialize)]
struct Act {
    #[serde(rename = "do")]
    what: String,
    #[serde(default)]
    name: String,
    ms: Option<u64>,
    until_attempt: Option<i32>,
    undo: Option<Undone>,
    #[serde(default)]
    task: String,
    #[serde(default)]
    input: Value,
}

#[derive(Clone, Deserialize)]
struct Undone {
    task: String,
    input: Value,
}

fn setting(name: &str) -> String {
    std::env::var(format!("CONFORMANCE_{name}")).unwrap_or_else(|_| panic!("CONFORMANCE_{name}"))
}

fn number(name: &str) -> u64 {
    let text = setting(name);
    text.parse().unwrap_or_else(|_| panic!("{name}: {text}"))
}

/// Appends one line, in one write.
fn note(kind: &str, ctx: &Context, how: &str) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("after 1970").as_millis();
    let line = format!("{kind} {} {} {now}{how}\n", ctx.job_id(), ctx.attempt());
    let mut options = OpenOptions::new();
    let log = options.create(true).append(true).open(setting("LOG"));
    let written = log.and_then(|mut log| log.write_all(line.as_bytes()));
    written.expect("the log can be written");
}

/// A handler that ends at once.
fn logged<R>(ctx: &Context, end: HandlerResult<R>) -> HandlerResult<R> {
    note("begin", ctx, "");
    note("end", ctx, " done");
    end
}

async fn echo(input: Value, ctx: Context) -> HandlerResult<Value> {
    logged(&ctx, Ok(input))
}

async fn wait(input: Wait, ctx: Context) -> HandlerResult<Value> {
    note("begin", &ctx, "");
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(input.ms)) => {
            note("end", &ctx, " done");
            Ok(json!({ "ms": input.ms }))
        }
        reason = ctx.cancelled() => {
            note("end", &ctx, " stopped");
            Err(JobError::new(format!("stopped: {reason:?}")))
        }
    }
}

async fn fail(input: Failing, ctx: Context) -> HandlerResult<()> {
    logged(&ctx, Err(JobError::new(input.error)))
}

async fn fail_permanently(input: Failing, ctx: Context) -> HandlerResult<()> {
    logged(&ctx, Err(JobError::permanent(input.error)))
}

async fn retry_in(input: Later, ctx: Context) -> HandlerResult<()> {
    let delay = Duration::from_secs(input.seconds);
    logged(&ctx, Err(JobError::new("not now").retry_in(delay)))
}

async fn snooze(input: Later, ctx: Context) -> HandlerResult<()> {
    let delay = Duration::from_secs(input.seconds);
    logged(&ctx, Err(JobError::snooze(delay)))
}

async fn large(input: Large, ctx: Context) -> HandlerResult<String> {
    logged(&ctx, Ok("x".repeat(input.bytes)))
}

async fn typed(input: Typed, ctx: Context) -> HandlerResult<Value> {
    logged(&ctx, Ok(json!({ "count": input.count + 1 })))
}

async fn many(jobs: Vec<(Gathered, Context)>) -> HandlerResult<Vec<HandlerResult<usize>>> {
    let together = jobs.len();
    let end = |(input, ctx): &(Gathered, Context)| {
        let result = match input.what.as_str() {
            "fail" => Err(JobError::new("as the input says")),
            _ => Ok(together),
        };
        logged(ctx, result)
    };
    Ok(jobs.iter().map(end).collect())
}

async fn steps(input: Vec<Act>, ctx: Context) -> HandlerResult<Vec<Value>> {
    let mut results = Vec::new();
    for act in input {
        match perform(act, &ctx).await {
            Ok(result) => results.push(result),
            Err(error) => {
                let lost = error.to_string().contains("the lease is lost");
                note("end", &ctx, if lost { " stopped" } else { " done" });
                return Err(error);
            }
        }
    }
    note("end", &ctx, " done");
    Ok(results)
}

async fn perform(act: Act, ctx: &Context) -> HandlerResult<Value> {
    let is_over = act.until_attempt.is_some_and(|last| ctx.attempt() > last);
    let time = act.ms.map(Duration::from_millis);
    match act.what.as_str() {
        "step" if !is_over => {
            let work = async || {
                note("step", ctx, &format!(" {}", act.name));
                tokio::time::sleep(time.unwrap_or_default()).await;
                std::io::Result::Ok(uuid::Uuid::new_v4().to_string())
            };
            let result = match act.undo.clone() {
                None => ctx.step(&act.name, work).await?,
                Some(undo) => {
                    let undo = Undo::new(undo.task, undo.input)?;
                    ctx.step_with_undo(&act.name, undo, work).await?
                }
            };
            Ok(json!(result))
        }
        "fail" if !is_over => Err(JobError::new("not yet")),
        "sleep" => {
            ctx.sleep(&act.name, time.unwrap_or_default()).await?;
            Ok(Value::Null)
        }
        "signal" => match ctx.signal::<Value>(&act.name, time).await {
            Ok(payload) => Ok(payload.unwrap_or_else(|| json!("timed out"))),
            Err(error) => Ok(json!(format!("caught {error}"))),
        },
        "spawn" => {
            let child = NewJob::new(act.task, act.input);
            Ok(json!(ctx.spawn(&act.name, &child).await?))
        }
        "children" => {
            let children = ctx.children(Children::All).await?;
            let shown = children.iter().map(|child| {
                let output = child.output.clone().unwrap_or_default();
                json!({ "state": child.state, "output": output })
            });
            Ok(shown.collect())
        }
        _ => Ok(Value::Null),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: Address = std::env::var("DATABASE_URL")?.parse()?;
    let concurrency = usize::try_from(number("CONCURRENCY"))?;
    let mut worker = Worker::new(address)
        .name(setting("NAME"))
        .concurrency(concurrency)
        .lease(Duration::from_secs(number("LEASE")))
        .grace(Duration::from_secs(number("GRACE")))
        .handle("conformance.echo", echo)
        .handle("conformance.wait", wait)
        .handle("conformance.fail", fail)
        .handle("conformance.fail_permanently", fail_permanently)
        .handle("conformance.retry_in", retry_in)
        .handle("conformance.snooze", snooze)
        .handle("conformance.large", large)
        .handle("conformance.typed", typed)
        .handle("conformance.steps", steps);
    if concurrency >= FULL {
        let gathering = Many::up_to(FULL).max_wait(FOREVER);
        let gathering = gathering.by(|job: &Gathered| job.key.clone());
        worker = worker.handle_many("conformance.many", gathering, many);
    }
    let version = setting("VERSION");
    if !version.is_empty() {
        worker = worker.versions([version]);
    }
    let summary = worker.run().await?;
    println!("{summary}");
    Ok(())
}
