//! A cluster: the cost that the router adds to a call, on this server; and the cost of a job with a
//! fleet over several servers, which the bench starts.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_postgres::Client as Connection;
use tokio_postgres::config::Host;
use trax_client::testkit::Server;
use trax_client::{Address, HandlerResult, Worker};
use trax_terminal::{Failure, address};

use super::bench_database::{BenchDatabase, TASK, expect, payload};
use super::latency::Spread;
use super::meter::{Cost, Meter};
use super::report::{Figure, Round, Sample, Unit};

/// The numbers of servers that the fleet works for.
const FLEETS: [usize; 3] = [1, 2, 4];
/// The number of concurrent handlers of the worker, and of prefetched jobs, for any number of
/// databases.
const CONCURRENCY: usize = 400;
const PREFETCH: usize = 300;
const LOAD_BATCH: i64 = 1_000;

const HAS_ROUTER: &str = "select count(*)
    from pg_catalog.pg_available_extensions
    where name in ('plproxy', 'trax_router')";

pub(crate) async fn run(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    if bench.number(HAS_ROUTER).await? == 2 {
        let shard = Shard::make(bench.another("shard_1").await?, 1).await?;
        figures.extend(routed(bench, &shard).await?);
    }
    figures.extend(fleets(bench).await?);
    Ok(figures)
}

/// A database of the cluster.
struct Shard {
    address: Address,
    hand: Connection,
}

impl Shard {
    async fn make(address: Address, number: usize) -> Result<Self, Failure> {
        let hand = address::connect(&address).await?.into_client();
        let sql = format!("create extension trax; select trax.set_shard({number})");
        hand.batch_execute(&sql).await?;
        Ok(Shard { address, hand })
    }

    /// Its address, as a PL/Proxy connection string on the same server.
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

    /// Removes all jobs, then queues this many.
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

/// Times the same call directly at the shard and through a router.
async fn routed(bench: &BenchDatabase, shard: &Shard) -> Result<Vec<Figure>, Failure> {
    let router = address::connect(&bench.another("router").await?).await?;
    let words = shard.words()?;
    let sql = format!(
        "create extension trax_router cascade;
        select trax_router.add_shard(1, '{words}');
        select * from trax_router.spread_places()"
    );
    router.batch_execute(&sql).await?;
    let direct = address::connect(&shard.address).await?.into_client();
    // The shard's flush is part of both calls and not of interest.
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
    // The first call opens the router's connection.
    for number in 0..=samples {
        let begun = Instant::now();
        connection.query_one(&statement, &[]).await?;
        if number > 0 {
            times.push(begun.elapsed());
        }
    }
    Ok(Spread::of(times))
}

/// A shard on a separate server, which stops with this value.
struct OwnServer {
    shard: Shard,
    meter: Meter,
    _server: Server,
}

impl OwnServer {
    async fn start(number: usize) -> Result<Self, Failure> {
        let options = Server::options()
            .setting("shared_buffers", "256MB")
            .setting("max_wal_size", "4GB");
        let server = tokio::task::spawn_blocking(|| options.start())
            .await
            .map_err(|error| Failure::new(error.to_string()))?
            .map_err(|error| {
                Failure::from(error).hint(
                    "the fleet has servers of its own, of the PostgreSQL of PG_CONFIG on this machine: make install",
                )
            })?;
        server.plain_database("shard").await?;
        let shard = Shard::make(server.config("shard").into(), number).await?;
        Ok(OwnServer {
            meter: Meter::new(address::connect(&shard.address).await?.into_client()).await?,
            shard,
            _server: server,
        })
    }
}

/// Drains the same number of jobs with one worker for one, two and four servers.
async fn fleets(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let mut servers = Vec::new();
    for number in 1..=FLEETS[2] {
        bench.step(&format!("starting server {number} of {}", FLEETS[2]));
        servers.push(OwnServer::start(number).await?);
    }
    let mut rounds: Vec<Vec<Sample>> = Vec::new();
    for number in 0..=bench.sizes.rounds {
        bench.step(&format!("fleet, round {number} of {}", bench.sizes.rounds));
        let mut round = Vec::new();
        for count in FLEETS {
            round.push(drain(bench, &servers[..count]).await?);
        }
        if number > 0 {
            rounds.push(round);
        }
    }
    let figures = FLEETS.iter().enumerate().skip(1).map(|(at, count)| Figure {
        measure: format!("fleet of {count}"),
        unit: Unit::JobsPerSecond,
        what: format!(
            "{} jobs that do nothing on {count} servers of this machine, drained by one worker of the Rust client \
             ({CONCURRENCY} handlers, {PREFETCH} fetched ahead); its start and end are in the time, queueing is not",
            bench.sizes.jobs
        ),
        floor: "the same worker and as many jobs on one server".to_owned(),
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

async fn drain(bench: &BenchDatabase, servers: &[OwnServer]) -> Result<Sample, Failure> {
    let (jobs, count) = (bench.sizes.jobs, servers.len() as i64);
    for (at, server) in (0..).zip(servers) {
        server.shard.fill((jobs + at) / count).await?;
        server.shard.hand.batch_execute("checkpoint").await?;
    }
    let mut worker = Worker::new(servers[0].shard.address.clone())
        .concurrency(CONCURRENCY)
        .prefetch(PREFETCH)
        .without_signals()
        .until_empty()
        .handle(TASK, async |_: Value, _| -> HandlerResult<()> { Ok(()) });
    for server in &servers[1..] {
        worker = worker.also(server.shard.address.clone());
    }
    let mut readings = Vec::new();
    for server in servers {
        readings.push(server.meter.begin().await?);
    }
    let begun = Instant::now();
    worker.run().await?;
    let seconds = begun.elapsed().as_secs_f64();
    let mut cost = Cost::nothing();
    for (server, reading) in servers.iter().zip(readings) {
        cost = cost + server.meter.end(reading).await?;
    }
    let cost = cost.lasting(seconds);
    let mut completed = 0;
    for server in servers {
        let sql = "select count(distinct job_id) from trax.run where final and state = 'completed'";
        completed += server.shard.number(sql).await?;
    }
    expect("jobs completed", completed, jobs)?;
    Ok(Sample::rate(jobs, cost))
}
