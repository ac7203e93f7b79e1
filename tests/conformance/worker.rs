//! The conformance worker of the Rust client, as README.md describes it.

use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use trax_client::{Address, Context, HandlerResult, JobError, Worker};

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

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: Address = std::env::var("DATABASE_URL")?.parse()?;
    let summary = Worker::new(address)
        .name(setting("NAME"))
        .concurrency(usize::try_from(number("CONCURRENCY"))?)
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
        .run()
        .await?;
    println!("{summary}");
    Ok(())
}
