//! A cluster on this server: what the router adds to a call, and what a job costs a fleet of
//! several databases.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_postgres::Client as Connection;
use tokio_postgres::config::Host;
use trax_client::{Address, HandlerResult, Worker};
use trax_terminal::{Failure, address};

use super::bench_database::{BenchDatabase, TASK, expect, payload};
use super::latency::Spread;
use super::report::{Figure, Round, Sample, Unit};

/// How many databases the fleet works.
const FLEETS: [usize; 3] = [1, 2, 4];
/// How many handlers of the worker run at once, and how many jobs wait in it, with any number of
/// databases.
const CONCURRENCY: usize = 400;
const PREFETCH: usize = 300;
const LOAD_BATCH: i64 = 1_000;

const HAS_ROUTER: &str = "select count(*)
    from pg_catalog.pg_available_extensions
    where name in ('plproxy', 'trax_router')";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let mut shards = Vec::new();
    for number in 1..=FLEETS[2] {
        shards.push(Shard::make(bench, number).await?);
    }
    let mut figures = Vec::new();
    if bench.number(HAS_ROUTER).await? == 2 {
        figures.extend(routed(bench, &shards[0]).await?);
    }
    figures.extend(fleets(bench, &shards).await?);
    Ok(figures)
}

/// One database of the cluster.
struct Shard {
    address: Address,
    hand: Connection,
}

impl Shard {
    async fn make(bench: &BenchDatabase, number: usize) -> Result<Self, Failure> {
        let address = bench.another(&format!("shard_{number}")).await?;
        let hand = address::connect(&address).await?;
        let sql = format!("create extension trax; select trax.set_shard({number})");
        hand.batch_execute(&sql).await?;
        Ok(Shard { address, hand })
    }

    /// Where it is, as PL/Proxy of the same server reads it.
    fn words(&self) -> Result<String, Failure> {
        let host = match self.address.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            Some(Host::Unix(directory)) => directory.display().to_string(),
            None => return Err(Failure::new("the address names no host")),
        };
        let port = self.address.get_ports().first().copied().unwrap_or(5432);
        let database = self.address.get_dbname().unwrap_or_default();
        Ok(format!("host={host} port={port} dbname={database}"))
    }

    /// Removes all jobs, then queues so many.
    async fn fill(&self, jobs: i64) -> Result<(), Failure> {
        for table in ["trax.work_queue", "trax.lease", "trax.run"] {
            self.hand
                .batch_execute(&format!("truncate {table}"))
                .await?;
        }
        let sql = format!(
            "select trax.enqueue_many('{TASK}', array_fill('{}'::jsonb, array[least({LOAD_BATCH}, {jobs} - n)::int]))
            from generate_series(0, {jobs} - 1, {LOAD_BATCH}) n",
            payload(1)
        );
        self.hand.batch_execute(&sql).await?;
        Ok(self
            .hand
            .batch_execute("vacuum (analyze) trax.work_queue")
            .await?)
    }

    async fn number(&self, sql: &str) -> Result<i64, Failure> {
        Ok(self.hand.query_typed_one(sql, &[]).await?.try_get(0)?)
    }
}

/// Times the same call at the shard and through a router in front of it.
async fn routed(bench: &BenchDatabase, shard: &Shard) -> Result<Vec<Figure>, Failure> {
    let router = address::connect(&bench.another("router").await?).await?;
    let words = shard.words()?;
    let sql = format!(
        "create extension trax_router cascade;
        select trax_router.add_shard(1, '{words}');
        select * from trax_router.spread_places()"
    );
    router.batch_execute(&sql).await?;
    let direct = address::connect(&shard.address).await?;
    // The flush of the shard is in both and is not the question.
    let database = shard.address.get_dbname().unwrap_or_default();
    let sql = format!("alter database {database} set synchronous_commit = off");
    bench.sql(&sql).await?;
    direct.batch_execute("set synchronous_commit = off").await?;
    let mut rounds: Vec<[Spread; 2]> = Vec::new();
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("calls, round {number} of {}", bench.sizes.rounds));
        shard.fill(1).await?;
        let round = [
            call(&direct, bench.sizes.samples).await?,
            call(&router, bench.sizes.samples).await?,
        ];
        if number > 0 {
            rounds.push(round);
        }
    }
    let sql = format!("alter database {database} reset synchronous_commit");
    bench.sql(&sql).await?;
    let figures = Spread::PARTS.iter().enumerate().map(|(part, percentile)| {
        let rounds = rounds.iter().map(|round| Round {
            measured: Sample::bare(round[1].0[part]),
            floor: Some(Sample::bare(round[0].0[part])),
        });
        Figure {
            measure: format!("call {percentile}"),
            unit: Unit::Milliseconds,
            what: format!(
                "trax.enqueue into a group through the router, {} calls one after the other, synchronous_commit off",
                bench.sizes.samples
            ),
            floor: "the same call at the shard".to_owned(),
            rounds: rounds.collect(),
        }
    });
    Ok(figures.collect())
}

async fn call(connection: &Connection, samples: u32) -> Result<Spread, Failure> {
    let sql = format!(
        "select trax.enqueue('{TASK}', '{}', group_name => 'bench')",
        payload(1)
    );
    let statement = connection.prepare(&sql).await?;
    let mut times: Vec<Duration> = Vec::new();
    // The first one makes the connection of the router.
    for number in 0..=samples {
        let begun = Instant::now();
        connection.query_one(&statement, &[]).await?;
        if number > 0 {
            times.push(begun.elapsed());
        }
    }
    Ok(Spread::of(times))
}

/// Drains as many jobs by one worker of one, two and four databases.
async fn fleets(bench: &BenchDatabase, shards: &[Shard]) -> Result<Vec<Figure>, Failure> {
    let mut rounds: Vec<Vec<Sample>> = Vec::new();
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("fleet, round {number} of {}", bench.sizes.rounds));
        let mut round = Vec::new();
        for count in FLEETS {
            round.push(drain(bench, &shards[..count]).await?);
        }
        if number > 0 {
            rounds.push(round);
        }
    }
    let figures = FLEETS.iter().enumerate().skip(1).map(|(at, count)| Figure {
        measure: format!("fleet of {count}"),
        unit: Unit::JobsPerSecond,
        what: format!(
            "{} jobs that do nothing in {count} databases of this server, drained by one worker of the Rust client \
             ({CONCURRENCY} handlers, {PREFETCH} fetched ahead); its start and end are in the time, queueing is not",
            bench.sizes.jobs
        ),
        floor: "the same worker and as many jobs in one database".to_owned(),
        rounds: rounds
            .iter()
            .map(|round| Round {
                measured: round[at],
                floor: Some(round[0]),
            })
            .collect(),
    });
    Ok(figures.collect())
}

async fn drain(bench: &BenchDatabase, shards: &[Shard]) -> Result<Sample, Failure> {
    let (jobs, count) = (bench.sizes.jobs, shards.len() as i64);
    for (at, shard) in (0..).zip(shards) {
        shard.fill((jobs + at) / count).await?;
    }
    bench.sql("checkpoint").await?;
    let mut worker = Worker::new(shards[0].address.clone())
        .concurrency(CONCURRENCY)
        .prefetch(PREFETCH)
        .without_signals()
        .until_empty()
        .handle(TASK, async |_: Value, _| -> HandlerResult<()> { Ok(()) });
    for shard in &shards[1..] {
        worker = worker.also(shard.address.clone());
    }
    let begun = bench.meter.begin().await?;
    worker.run().await?;
    let cost = bench.meter.end(begun).await?;
    let mut completed = 0;
    for shard in shards {
        let sql = "select count(distinct job_id) from trax.run where final and state = 'completed'";
        completed += shard.number(sql).await?;
    }
    expect("jobs completed", completed, jobs)?;
    Ok(Sample::rate(jobs, cost))
}
