//! Statements run by other programs: the same transaction by pgbench, and the same minute by
//! pg_cron.

use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio_postgres::config::Host;

use super::bench_database::{BenchDatabase, expect};
use super::floor;
use super::latency::Spread;
use super::report::{Figure, Round, Sample, Unit};
use trax_terminal::Failure;
use trax_terminal::address;

/// A tiny statement and the record of its completion, in one transaction.
const SCRIPT: &str = "with done as (insert into bench.plain (payload) values ('true') returning id) select 1 from done;";
/// The number of statements due each minute; more would queue in pg_cron, which runs 32 at once.
const EACH_MINUTE: i64 = 30;

/// pgbench, or the replacement that is measured if it is not installed.
pub(crate) struct Pgbench {
    is_there: bool,
}

impl Pgbench {
    pub(crate) async fn find() -> Self {
        let mut version = Command::new("pgbench");
        version
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let is_there = version.status().await.is_ok_and(|status| status.success());
        Pgbench { is_there }
    }

    pub(crate) fn what(&self, clients: i64) -> String {
        match self.is_there {
            true => format!(
                "pgbench -M prepared -c {clients}: one statement a transaction that returns 1 and inserts a row"
            ),
            false => format!(
                "one commit of one inserted row a job, over {clients} connections; pgbench is not on the PATH"
            ),
        }
    }

    /// Runs as many transactions as the commit floor has.
    pub(crate) async fn commit(
        &self,
        bench: &BenchDatabase,
        clients: i64,
    ) -> Result<Sample, Failure> {
        if !self.is_there {
            return floor::commit(bench, clients).await;
        }
        bench.clear().await?;
        let each = (bench.sizes.jobs / 10 / clients).max(1);
        let mut command = pgbench(bench);
        command.args([
            "-n",
            "-M",
            "prepared",
            "-c",
            &clients.to_string(),
            "-t",
            &each.to_string(),
            "-f",
            "-",
        ]);
        let begun = bench.meter.begin().await?;
        let output = output_for(command, SCRIPT).await;
        let cost = bench.meter.end(begun).await?;
        let output =
            output.map_err(|error| Failure::new(format!("pgbench does not start: {error}")))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let tps = said
            .lines()
            .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
        let tps: f64 = tps.filter(|_| output.status.success()).ok_or_else(|| {
            Failure::new(format!(
                "pgbench failed: {}",
                String::from_utf8_lossy(&output.stderr)
            ))
        })?;
        let rows = bench.number("select count(*) from bench.plain").await?;
        expect("rows inserted", rows, each * clients)?;
        Ok(Sample::rate(rows, cost.lasting(rows as f64 / tps)))
    }
}

/// Runs a program to its end, with this text as its standard input.
async fn output_for(mut command: Command, text: &str) -> std::io::Result<Output> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.stderr(Stdio::piped()).spawn()?;
    if let Some(mut input) = program.stdin.take() {
        input.write_all(text.as_bytes()).await?;
    }
    program.wait_with_output().await
}

/// Returns pgbench on the database of the bench.
fn pgbench(bench: &BenchDatabase) -> Command {
    let config = bench.config();
    let mut command = Command::new("pgbench");
    match config.get_hosts().first() {
        Some(Host::Tcp(host)) => command.env("PGHOST", host),
        Some(Host::Unix(path)) => command.env("PGHOST", path),
        None => &mut command,
    };
    if let Some(port) = config.get_ports().first() {
        command.env("PGPORT", port.to_string());
    }
    if let Some(user) = config.get_user() {
        command.env("PGUSER", user);
    }
    if let Some(password) = config.get_password() {
        command.env("PGPASSWORD", String::from_utf8_lossy(password).into_owned());
    }
    command.env("PGDATABASE", bench.name()).stdin(Stdio::null());
    command
}

/// Measures the delay of statements after the minute, in trax and in pg_cron one after the other;
/// returns nothing if pg_cron is not installed.
pub(crate) async fn each_minute(bench: &BenchDatabase) -> Result<Vec<Figure>, Failure> {
    let sql = "select current_setting('cron.database_name', true)";
    let place: Option<String> = bench.hand.query_typed_one(sql, &[]).await?.try_get(0)?;
    let Some(place) = place else {
        return Ok(Vec::new());
    };
    let mut config = bench.config();
    config.dbname(&place);
    let cron = address::connect(&config).await?;
    let sql = "select exists (select from pg_catalog.pg_extension e where e.extname = 'pg_cron')";
    if !cron
        .query_typed_one(sql, &[])
        .await?
        .try_get::<_, bool>(0)?
    {
        return Ok(Vec::new());
    }
    bench.step("a minute of trax");
    let ours = our_minute(bench).await?;
    bench.step("a minute of pg_cron");
    let measured = their_minute(bench, &cron).await;
    let undone = cron
        .batch_execute(&format!(
            "select cron.unschedule(jobid) from cron.job where database = '{}';
             delete from cron.job_run_details where database = '{0}'",
            bench.name()
        ))
        .await;
    let theirs = measured?;
    undone?;
    let figures = Spread::PARTS.iter().enumerate();
    let figures = figures.map(|(part, percentile)| Figure {
        measure: format!("minute {percentile}"),
        unit: Unit::Milliseconds,
        what: format!(
            "from the minute to the begin of each of {EACH_MINUTE} statements with cron => '* * * * *'"
        ),
        floor: "the same by pg_cron, as cron.job_run_details says".to_owned(),
        rounds: vec![Round {
            measured: Sample::bare(ours.0[part]),
            floor: Some(Sample::bare(theirs.0[part])),
        }],
    });
    Ok(figures.collect())
}

async fn our_minute(bench: &BenchDatabase) -> Result<Spread, Failure> {
    bench.clear().await?;
    bench
        .sql(&format!(
            "select count(trax.schedule('each ' || n, sql => 'select 1', cron => '* * * * *')) from generate_series(1, {EACH_MINUTE}) n"
        ))
        .await?;
    let left = format!(
        "select greatest({EACH_MINUTE} - count(*), 0) from trax.run where state = 'completed'"
    );
    bench.wait_for_zero(&left).await?;
    bench
        .sql("select count(trax.unschedule(name)) from trax.manifest")
        .await?;
    let sql =
        "select extract(epoch from started_at - scheduled_for)::float8 from trax.run order by 1";
    spread(&bench.hand, sql).await
}

async fn their_minute(
    bench: &BenchDatabase,
    cron: &tokio_postgres::Client,
) -> Result<Spread, Failure> {
    let name = bench.name();
    cron.batch_execute(&format!(
        "select count(cron.schedule_in_database('{name} ' || n, '* * * * *', 'select 1', '{name}')) from generate_series(1, {EACH_MINUTE}) n"
    ))
    .await?;
    let left = format!(
        "select greatest({EACH_MINUTE} - count(*), 0) from cron.job_run_details where database = '{name}' and status = 'succeeded'"
    );
    for _ in 0..1200 {
        if cron
            .query_typed_one(&left, &[])
            .await?
            .try_get::<_, i64>(0)?
            == 0
        {
            let sql = format!(
                "select extract(epoch from start_time - date_trunc('minute', start_time))::float8
                 from cron.job_run_details where database = '{name}' order by runid limit {EACH_MINUTE}"
            );
            return spread(cron, &sql).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Err(Failure::new("pg_cron did not run its statements")
        .hint("see cron.job_run_details: it connects to cron.host, which must let it in"))
}

/// Returns the spread of times in seconds.
async fn spread(connection: &tokio_postgres::Client, sql: &str) -> Result<Spread, Failure> {
    let rows = connection.query_typed(sql, &[]).await?;
    let times = rows
        .iter()
        .map(|row| Ok(Duration::from_secs_f64(row.try_get::<_, f64>(0)?.max(0.0))));
    Ok(Spread::of(times.collect::<Result<_, Failure>>()?))
}
