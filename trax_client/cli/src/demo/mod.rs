//! `trax demo`: runs a small real workload to its end and checks it in the database.
//!
//! Uses a throw-away server (or a new database on a given one), manifests, chains, failures, bulk,
//! a graph with a statement that the server runs, sign-ups of several steps, and a real program.
//! Shows a live view, and at the end a table of expected and actual values.

mod database;
mod handlers;
mod input;
mod pool;
mod sign_up;
mod verdict;
mod view;
mod workload;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_postgres::Client as Connection;
use trax_client::{Address, Client, Shutdown, Summary, Worker};

use self::database::{DemoDatabase, Files};
use self::handlers::handlers;
use self::pool::Pool;
use self::view::{Counts, View};
use self::workload::Plan;
use crate::output::{Options, say};
use trax_terminal::address;
use trax_terminal::print;
use trax_terminal::{FAILED, Failure};

/// The workload takes about ten seconds. If no job ends for this long, it has failed.
const DEADLINE: Duration = Duration::from_secs(90);
const CONCURRENCY: usize = 16;
const LOOK: Duration = Duration::from_millis(250);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Keep the server until Enter or Ctrl-C, to look around, even without a terminal
    #[arg(long)]
    keep: bool,
    /// Serve the pages of trax web at the end, until Enter or Ctrl-C
    #[arg(long)]
    web: bool,
    /// How many jobs the bulk part enqueues
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    jobs: u32,
    #[command(flatten)]
    output: Options,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let output = arguments.output;
    let place = DemoDatabase::make(url.as_deref(), output).await?;
    let outcome = tokio::select! {
        outcome = play(&place, &arguments, begun) => outcome,
        _ = tokio::signal::ctrl_c() => Err(Failure::new("interrupted")),
    };
    let watched = is_watched() && !output.json && !output.quiet;
    let keep = arguments.keep || (place.is_own() && watched);
    let looked = match outcome {
        Ok(_) => look_around(&place, keep, arguments.web, output).await,
        Err(_) => Ok(()),
    };
    // The database is removed even if the output has no reader.
    place.remove(keep).await?;
    looked.and(outcome)
}

/// Runs the whole workload and returns the verdict as the exit code.
async fn play(
    place: &DemoDatabase,
    arguments: &Arguments,
    begun: Instant,
) -> Result<ExitCode, Failure> {
    let config = place.config();
    let connection = address::connect(&config).await?;
    let files = Files::make()?;
    workload::make_tables(&connection).await?;
    let output = arguments.output;
    let ticker = ensure_ticking(&connection, &config, output).await?;
    let plan = Plan {
        bulk: arguments.jobs.into(),
        reports: i64::from(ticker.is_none() && runs_statements(&connection).await?),
        ..Plan::default()
    };

    let fleet = Fleet::start(&config, files.script(), output).await?;
    workload::begin(&connection, &plan, &files).await?;
    let ended = watch(&connection, &plan, &fleet, output).await;
    workload::end_schedules(&connection).await?;
    let stopped = fleet.stop().await?;
    if let Some(ticker) = ticker {
        ticker.abort();
    }
    ended?;

    let summary = format!("  worker: {stopped}");
    output.print(&print::folded(&summary, 10))?;
    let right = verdict::judge(&connection, &plan, &files, output).await?;
    if let Some(job_id) = sign_up::waiting(&connection).await? {
        output.print(&format!(
            "\nSign-up {job_id} waits for a customer who has not answered."
        ))?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let what = if right { "Everything" } else { "Something" };
    let not = if right { "" } else { " not" };
    output.print(&format!(
        "\n{what} is{not} as expected, after {seconds:.1} s."
    ))?;
    Ok(if right {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    })
}

/// Runs cycles itself if the server does not preload the library and so has no scheduler.
async fn ensure_ticking(
    connection: &Connection,
    config: &Address,
    output: Options,
) -> Result<Option<JoinHandle<()>>, Failure> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let sql = "select 1 from pg_catalog.pg_stat_activity \
                   where backend_type = 'trax scheduler' and datname = current_database()";
        if !connection.query_typed(sql, &[]).await?.is_empty() {
            output.print("  the scheduler of this database is running")?;
            return Ok(None);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    output
        .print("  no scheduler is running in this database: the demo calls trax.tick() itself")?;
    let ticking = address::connect(config).await?.into_client();
    Ok(Some(tokio::spawn(async move {
        loop {
            if let Err(error) = Client::new(&ticking).tick().await
                && !error.is_transient()
            {
                print::log("trax", &format!("tick: {error}"));
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    })))
}

/// Returns whether the server runs SQL jobs.
async fn runs_statements(connection: &Connection) -> Result<bool, Failure> {
    let sql = "select pg_catalog.current_setting('trax.max_sql_workers')::int > 0
        from trax.status() where item = 'library' and value = 'preloaded'";
    let rows = connection.query_typed(sql, &[]).await?;
    Ok(match rows.first() {
        Some(row) => row.try_get(0)?,
        None => false,
    })
}

/// The demo's two workers: one in this process, one that runs a program in a separate process.
struct Fleet {
    own: JoinHandle<trax_client::Result<Summary>>,
    shutdown: Shutdown,
    program: Child,
}

impl Fleet {
    async fn start(config: &Address, script: &Path, output: Options) -> Result<Self, Failure> {
        let pool = Pool::open(config, CONCURRENCY).await?;
        let worker = Worker::with_state(config.clone(), pool)
            .name("demo")
            .concurrency(CONCURRENCY)
            .poll_interval(Duration::from_millis(100))
            .lease(Duration::from_secs(15))
            .without_signals()
            // Failures are part of the plan.
            .on_event(|_| {});
        let worker = handlers(worker);
        let shutdown = worker.shutdown();
        let own = tokio::spawn(worker.run());
        let exec = format!("sh {}", script.display());
        let task = workload::DIGEST;
        output.print(&format!("  $ trax worker --task {task} --exec '{exec}'"))?;
        let program = exec_worker(config, &exec)?;
        Ok(Fleet {
            own,
            shutdown,
            program,
        })
    }

    async fn stop(mut self) -> Result<String, Failure> {
        self.shutdown.drain();
        let summary = self
            .own
            .await
            .map_err(|error| Failure::new(error.to_string()))??;
        if let Some(pid) = self.program.id().and_then(|pid| i32::try_from(pid).ok()) {
            // SAFETY: kill has no memory preconditions; the child is not reaped yet.
            if unsafe { libc::kill(pid, libc::SIGTERM) } != 0 {
                return Err(std::io::Error::last_os_error().into());
            }
        }
        let status = self.program.wait().await?;
        if !status.success() {
            return Err(Failure::new(format!(
                "trax worker --exec ended with {status}"
            )));
        }
        Ok(summary.to_string())
    }
}

/// Starts `trax worker --exec` as a user would.
fn exec_worker(config: &Address, exec: &str) -> Result<Child, Failure> {
    let program: PathBuf = std::env::current_exe()?;
    let mut command = Command::new(program);
    database::environment(&mut command, config)?;
    command.args(["worker", "--task", workload::DIGEST, "--exec", exec]);
    command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    // SAFETY: between fork and exec there is only one async-signal-safe system call. This is the
    // main thread, which lives as long as the process, so the worker ends when the demo is killed.
    unsafe {
        command.pre_exec(
            || match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        );
    }
    Ok(command.spawn()?)
}

/// The least number of jobs left so far, and when it was reached.
struct Progress {
    least: i64,
    since: Instant,
}

impl Progress {
    fn new(now: Instant) -> Self {
        Progress {
            least: i64::MAX,
            since: now,
        }
    }

    fn stands_still(&mut self, left: i64, now: Instant) -> bool {
        if left < self.least {
            (self.least, self.since) = (left, now);
        }
        now.duration_since(self.since) > DEADLINE
    }
}

/// Shows progress until all required jobs have ended, however slow the machine is.
async fn watch(
    connection: &Connection,
    plan: &Plan,
    fleet: &Fleet,
    output: Options,
) -> Result<(), Failure> {
    let mut progress = Progress::new(Instant::now());
    let mut view = View::new(plan.jobs(), output);
    loop {
        let counts = Counts::read(connection).await?;
        view.show(&counts)?;
        if workload::is_done(connection, plan).await? {
            return view.end(&Counts::read(connection).await?);
        }
        let stands_still = progress.stands_still(counts.left(), Instant::now());
        if stands_still || fleet.own.is_finished() {
            // Not an error here: the worker's own error, or the table, will show the missing jobs.
            return view.end(&counts);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns whether a user at a terminal can press Enter.
fn is_watched() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

async fn look_around(
    place: &DemoDatabase,
    keep: bool,
    web: bool,
    output: Options,
) -> Result<(), Failure> {
    if !keep && !web {
        return output.print(
            "To look around: in a browser trax demo --web, in the database trax demo --keep",
        );
    }
    let psql = place.psql();
    if output.quiet {
        // With --quiet and a kept server, only the command to connect is printed.
        say(&psql)?;
    }
    output.print(&format!(
        "\nLook around:\n    {psql}\n    select * from trax.job limit 10;\n    select * from trax.dead_letter;"
    ))?;
    if web {
        let pages = crate::web::serve(place.config()).await?;
        match output.quiet {
            true => say(&pages)?,
            false => output.print(&format!("    {pages} in a browser"))?,
        }
    } else {
        output.print("    in a browser: trax demo --web")?;
    }
    if !place.is_own() && !web {
        return Ok(());
    }
    let what = match (place.is_own(), keep) {
        (true, _) => "The server is removed",
        (false, false) => "The database is removed",
        (false, true) => "The demo ends",
    };
    output.print(&format!("{what} when you press Enter or Ctrl-C."))?;
    // A separate thread, as a read from a terminal cannot be cancelled.
    let (pressed, enter) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        // Closed standard input does not count as Enter; then only Ctrl-C ends the wait.
        if std::io::stdin()
            .read_line(&mut line)
            .is_ok_and(|length| length > 0)
            && pressed.send(()).is_err()
        {}
    });
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        Ok(()) = enter => {}
        _ = tokio::signal::ctrl_c() => {}
        _ = term.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_goes_on_has_all_the_time_and_work_that_stands_still_has_not() {
        let begun = Instant::now();
        let mut progress = Progress::new(begun);
        let at = |n: u32| begun + DEADLINE * n;
        assert!(!progress.stands_still(100, begun));
        for n in 1..9 {
            assert!(!progress.stands_still(100 - i64::from(n), at(n)));
        }
        assert!(!progress.stands_still(95, at(9)));
        assert!(progress.stands_still(92, at(9) + LOOK));
    }
}
