//! The demo's workload and its size.

use std::time::Duration;

use serde_json::json;
use tokio_postgres::Client as Connection;
use trax_client::{Client, JobOptions, Manifest, NewJob, NewJobs};

use super::database::Files;
use super::input::{ChainInput, Parcel};
use super::sign_up::{self, CLOSE, SIGN_UP};
use trax_terminal::Failure;

pub(crate) const WEIGH: &str = "parcel.weigh";
pub(crate) const STEP: &str = "order.step";
pub(crate) const FLAKY: &str = "mail.send";
pub(crate) const DOOMED: &str = "report.doomed";
pub(crate) const PULSE: &str = "pulse.beat";
pub(crate) const CLOCK: &str = "clock.strike";
pub(crate) const DIGEST: &str = "file.digest";
pub(crate) const LOAD: &str = "sales.load";
pub(crate) const MAIL: &str = "sales.mail";
/// The number of rows in one load.
pub(crate) const SALES: i64 = 1000;

/// The number of jobs of each kind.
pub(crate) struct Plan {
    pub(crate) bulk: i64,
    pub(crate) chains: i64,
    pub(crate) steps: i64,
    pub(crate) flaky: i64,
    pub(crate) files: i64,
    /// The minimum for the manifest that runs every second.
    pub(crate) pulses: i64,
    /// The minimum for the cron entry that fires every two seconds.
    pub(crate) strikes: i64,
    /// Runs of a graph with a SQL job; 0 if no scheduler starts executors.
    pub(crate) reports: i64,
    /// Customers who sign up and answer, a multiple of four: a quarter withdraws, a quarter fails.
    pub(crate) customers: i64,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            bulk: 5000,
            chains: 20,
            steps: 5,
            flaky: 3,
            files: 40,
            pulses: 5,
            strikes: 3,
            reports: 1,
            customers: 12,
        }
    }
}

impl Plan {
    /// Returns the number of jobs that end, including dead ones. Four sign-ups have four answers,
    /// six children and three jobs that undo steps.
    pub(crate) fn jobs(&self) -> i64 {
        self.bulk
            + self.chains * self.steps
            + self.flaky
            + self.files
            + self.pulses
            + self.strikes
            + self.reports * 3
            + self.customers * 17 / 4
            + 1
    }
}

pub(crate) async fn make_tables(connection: &Connection) -> Result<(), Failure> {
    let sql = "create schema demo;
        create table demo.parcel (job_id bigint primary key, parcel bigint not null, grams int not null);
        create table demo.step (chain bigint, step bigint, job_id bigint not null, primary key (chain, step));
        create table demo.beat (job_id bigint primary key, manifest text not null, at timestamptz not null);
        create table demo.sale (product int not null, cents int not null);
        create table demo.report (product int primary key, sales bigint not null, cents bigint not null);
        create table demo.letter (job_id bigint primary key, sales bigint not null);";
    connection.batch_execute(sql).await?;
    sign_up::make_tables(connection).await
}

pub(crate) async fn begin(
    connection: &Connection,
    plan: &Plan,
    files: &Files,
) -> Result<(), Failure> {
    let client = Client::new(connection);
    client
        .schedule(&Manifest::new("pulse", PULSE).every(Duration::from_secs(1)))
        .await?;
    client
        .schedule(&Manifest::new("clock", CLOCK).cron("*/2 * * * * *"))
        .await?;
    let doomed = Manifest::new("doomed", DOOMED)
        .max_retries(2)
        .retry_delay(Duration::from_millis(300));
    client.schedule(&doomed).await?;
    client.trigger("doomed", None).await?;

    sign_up::begin(&client, plan.customers).await?;
    if plan.reports > 0 {
        report(&client).await?;
    }
    for number in 0..plan.flaky {
        client
            .enqueue(&NewJob::new(FLAKY, json!({ "to": number })))
            .await?;
    }
    for chain in 0..plan.chains {
        client
            .enqueue(&NewJob::new(
                STEP,
                ChainInput {
                    chain,
                    step: 1,
                    steps: plan.steps,
                },
            ))
            .await?;
    }
    let paths: Vec<_> = files
        .paths()
        .iter()
        .map(|path| json!({ "path": path }))
        .collect();
    client
        .enqueue_many(&NewJobs::new(DIGEST, &paths).with(JobOptions::new().group("files")))
        .await?;
    let parcels: Vec<Parcel> = (0..plan.bulk).map(|parcel| Parcel { parcel }).collect();
    for batch in parcels.chunks(1000) {
        client
            .enqueue_many(&NewJobs::new(WEIGH, batch).with(JobOptions::new().group("bulk")))
            .await?;
    }
    Ok(())
}

/// Starts a graph of three jobs: a worker's, a SQL job, and a worker's again.
async fn report(client: &Client<'_, Connection>) -> Result<(), Failure> {
    let rollup = "insert into demo.report select product, count(*), sum(cents) from demo.sale group by product";
    let rollup = Manifest::sql("rollup", rollup).depends_on(["load"]);
    let mail = Manifest::new("mail", MAIL).depends_on(["rollup"]);
    client.schedule(&Manifest::new("load", LOAD)).await?;
    client.schedule(&rollup).await?;
    client.schedule(&mail).await?;
    client.trigger("load", None).await?;
    Ok(())
}

/// Returns whether all jobs of the plan have ended.
pub(crate) async fn is_done(connection: &Connection, plan: &Plan) -> Result<bool, Failure> {
    let sql = "select task, count(*) from trax.run where final group by task";
    let rows = connection.query_typed(sql, &[]).await?;
    let ended = |task: &str| {
        rows.iter()
            .find(|row| row.get::<_, &str>(0) == task)
            .map_or(0, |row| row.get::<_, i64>(1))
    };
    Ok(ended(WEIGH) >= plan.bulk
        && ended(STEP) >= plan.chains * plan.steps
        && ended(FLAKY) >= plan.flaky
        && ended(DIGEST) >= plan.files
        && ended(DOOMED) >= 1
        && ended(PULSE) >= plan.pulses
        && ended(CLOCK) >= plan.strikes
        && ended(MAIL) >= plan.reports
        && ended(SIGN_UP) >= plan.customers
        && ended(CLOSE) >= plan.customers / 2
        && sign_up::waiting(connection).await?.is_some())
}

/// Ends the schedules, so that counts no longer change.
pub(crate) async fn end_schedules(connection: &Connection) -> Result<(), Failure> {
    let client = Client::new(connection);
    for (name, task) in [("pulse", PULSE), ("clock", CLOCK)] {
        client
            .schedule(&Manifest::new(name, task).enabled(false))
            .await?;
    }
    Ok(())
}
