//! `trax enqueue`: queue one job, or one a line.

use std::io::BufRead;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;
use trax_client::{Client, JobOptions, NewJob};

use crate::address;
use crate::failure::Failure;

/// How many lines go into one call.
const BATCH: usize = 1000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The task, e.g. report.build
    task: String,
    /// The input as JSON; - reads one JSON value a line from standard input and queues a job each
    #[arg(default_value = "{}")]
    input: String,
    /// Not claimable before this time, as PostgreSQL reads it ('2030-01-01 10:00', 'tomorrow')
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
    /// How long one attempt may run
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
    /// While a job with this key is alive, its id is given and nothing is queued
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// Jobs with the same key run one at a time
    #[arg(long, value_name = "KEY")]
    concurrency_key: Option<String>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = address::from_environment(url.as_deref())?;
    // A mistake in the JSON is found before the server is asked.
    let one = match arguments.input.as_str() {
        "-" => None,
        text => Some(json(text, "the input")?),
    };
    let connection = address::connect(&config).await?;
    let options = options(&connection, &arguments).await?;
    let client = Client::new(&connection);
    match one {
        Some(input) => {
            let job = NewJob::new(arguments.task, input).with(options);
            println!("{}", client.enqueue(&job).await?);
        }
        None => lines(&client, &arguments.task, &options).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn lines(
    client: &Client<'_, Connection>,
    task: &str,
    options: &JobOptions,
) -> Result<(), Failure> {
    let mut inputs = Vec::with_capacity(BATCH);
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line?;
        if !line.trim().is_empty() {
            inputs.push(json(&line, &format!("line {}", number + 1))?);
        }
        if inputs.len() == BATCH {
            batch(client, task, &mut inputs, options).await?;
        }
    }
    batch(client, task, &mut inputs, options).await
}

async fn batch(
    client: &Client<'_, Connection>,
    task: &str,
    inputs: &mut Vec<Value>,
    options: &JobOptions,
) -> Result<(), Failure> {
    if !inputs.is_empty() {
        for id in client.enqueue_many(task, inputs, options).await? {
            println!("{id}");
        }
        inputs.clear();
    }
    Ok(())
}

fn json(text: &str, what: &str) -> Result<Value, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::usage(format!("{what} is not JSON: {error}"))
            .hint("quote it for the shell: trax enqueue mail.send '{\"to\": \"a@example.org\"}'")
    })
}

async fn options(connection: &Connection, arguments: &Arguments) -> Result<JobOptions, Failure> {
    let mut options = JobOptions::new();
    if let Some(text) = &arguments.run_at {
        // The server reads the time: only its clock and its zone count.
        let sql = "select cast($1 as timestamptz)";
        let row = connection.query_typed(sql, &[(text, Type::TEXT)]).await?;
        let at: Option<SystemTime> = row.first().map(|row| row.try_get(0)).transpose()?;
        if let Some(at) = at {
            options = options.run_at(at);
        }
    }
    if let Some(seconds) = arguments.timeout {
        let timeout = Duration::try_from_secs_f64(seconds)
            .map_err(|error| Failure::usage(format!("--timeout: {error}")))?;
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
    if let Some(key) = &arguments.concurrency_key {
        options = options.concurrency_key(key);
    }
    Ok(options)
}
