//! A worker in a process of its own, so that it can be killed and stopped: this program, called as
//! `chaos worker`.

use crate::journal::Log;
use crate::workflow::{UNDO, WORKFLOW, handler};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use trax_client::{Address, Context, HandlerResult, JobError, Reason, Worker};

/// How long its leases last.
pub(crate) const LEASE: Duration = Duration::from_secs(4);
/// The number of jobs executed at once; as many again are prefetched.
pub(crate) const CONCURRENCY: usize = 6;

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by who starts a worker"))
}

/// Runs until SIGTERM.
pub(crate) async fn run() {
    let path = PathBuf::from(variable("CHAOS_LOG"));
    let log = Arc::new(Log::open(&path).expect("the log can be opened"));
    let address: Address = variable("CHAOS_URL").parse().expect("a URL");
    let mut worker = Worker::with_state(address, log)
        .name(variable("CHAOS_NAME"))
        .concurrency(CONCURRENCY)
        .prefetch(CONCURRENCY)
        .lease(LEASE)
        .grace(Duration::from_secs(2))
        .cancel_patience(Duration::from_secs(2))
        .poll_interval(Duration::from_millis(100))
        .handle("work", execute)
        .handle("tick", execute)
        .handle(WORKFLOW, handler::execute)
        .handle(UNDO, handler::execute);
    if std::env::var_os("CHAOS_ROUTER").is_some() {
        worker = worker.router();
    }
    match worker.run().await {
        Ok(summary) => println!("ended: {summary}"),
        Err(error) => panic!("the worker was refused: {error}"),
    }
}

/// Records that a handler was dropped if it did not end otherwise.
pub(crate) struct Page {
    log: Arc<Log>,
    job: i64,
    attempt: i32,
    nonce: String,
    pub(crate) word: &'static str,
}

impl Page {
    /// Records that a handler begins.
    pub(crate) fn begin(input: &Value, ctx: &Context<Arc<Log>>) -> Self {
        let nonce = input.get("nonce").and_then(Value::as_str);
        let page = Page {
            log: Arc::clone(ctx.state()),
            job: ctx.job_id().0,
            attempt: ctx.attempt(),
            nonce: nonce.unwrap_or("-").to_owned(),
            word: "dropped",
        };
        let database = ctx.database().and_then(|address| address.get_dbname());
        let database = database.unwrap_or("-");
        page.log
            .begin(page.job, page.attempt, &page.nonce, database);
        page
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.log.end(self.job, self.attempt, &self.nonce, self.word);
    }
}

/// The log word for an error, by the reason of the handler's cancellation.
pub(crate) fn word(asked_to_stop: Option<Reason>) -> &'static str {
    match asked_to_stop {
        Some(Reason::Shutdown | Reason::LeaseLost) => "released",
        Some(Reason::Cancelled | Reason::Timeout) => "stopped",
        None => "failed",
    }
}

/// Sleeps and ends as the input says.
async fn execute(input: Value, ctx: Context<Arc<Log>>) -> HandlerResult<Value> {
    let text = |name: &str| {
        input
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or("-")
            .to_owned()
    };
    let number = |name: &str| input.get(name).and_then(Value::as_i64).unwrap_or(0);
    let mut page = Page::begin(&input, &ctx);
    let nap = Duration::from_millis(number("nap").try_into().unwrap_or(20));
    let cannot_hear_cancels = text("how") == "deaf";
    tokio::select! {
        () = tokio::time::sleep(nap) => {}
        reason = ctx.cancelled(), if !cannot_hear_cancels => {
            page.word = word(Some(reason));
            return Err(JobError::new("stopped"));
        }
    }
    // A handler that ignores cancellation may also be asked to stop; its error then counts as the
    // reply.
    page.word = word(ctx.cancellation().reason());
    if i64::from(ctx.attempt()) <= number("fails") {
        match &*text("how") {
            "panic" => {
                page.word = "failed";
                panic!("as the input says");
            }
            "permanent" => return Err(JobError::permanent("as the input says")),
            "snooze" => {
                page.word = "released";
                // Snoozes only part of the time, so that the job ends.
                if page.job % 2 == crate::testbed::now() / 1_000_000 % 2 {
                    return Err(JobError::snooze(Duration::from_millis(300)));
                }
            }
            _ => return Err(JobError::new("as the input says")),
        }
    }
    page.word = "ok";
    Ok(Value::from(page.nonce.clone()))
}
