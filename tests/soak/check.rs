//! The database before and after a round: that every job has ended exactly once, and the sizes.

use crate::round::Round;
use crate::{DATABASE, Result};
use harness::PATIENCE;
use std::time::{Duration, Instant};
use tokio_postgres::Client;
use trax_client::testkit::{Database, Server};

/// The extension with a limited group and a schedule, the calls of a round, and the ended rounds.
const SET_UP: &str = "
    create extension trax;
    create schema soak;
    create table soak.call (first bigint primary key);
    create table soak.round (number bigint primary key, seed bigint not null, ended_at timestamptz not null default now());
    select trax.configure_group('g1', max_active_jobs => 300);
    select trax.schedule('beat', 'beat', every => '1 s')";

/// Everything that a round must have: completed and different jobs, the lowest and the highest
/// number, dead letters, occurrences that ran twice.
const ENDED: &str = "
    with ended as (
        select (input #>> '{}')::bigint as number from trax.run where state = 'completed' and task = 'soak'
    )
    select
        (select count(*) from ended), (select count(distinct number) from ended),
        (select min(number) from ended), (select max(number) from ended),
        (select count(*) from trax.dead_letter),
        (select count(scheduled_for) - count(distinct scheduled_for) from trax.run
            where state = 'completed' and task = 'beat')";

const SIZES: &str = "
    select string_agg(what || ' ' || size || ' MB', ', ' order by place) from (
        select 1 as place, 'queue' as what, pg_total_relation_size('trax.work_queue') >> 20 as size
        union all select 2, 'leases', pg_total_relation_size('trax.lease') >> 20
        union all select 3, 'all', pg_database_size(current_database()) >> 20
    ) s";

/// Connects, once a server that starts again after a crash accepts connections.
pub(crate) async fn connect(database: &Database) -> Result<Client> {
    let begun = Instant::now();
    loop {
        match database.connect().await {
            Ok(client) => return Ok(client),
            Err(error) if begun.elapsed() > PATIENCE => return Err(error.to_string()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

pub(crate) fn text_of(error: tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} {}", error.code().code(), error.message()),
        None => error.to_string(),
    }
}

/// Makes the database if it does not exist, or updates its extension; returns the number of rounds
/// that it has had.
pub(crate) async fn prepare(server: &Server) -> Result<u64> {
    let exists = server.existing("postgres").connect().await;
    let exists = exists.map_err(|error| error.to_string())?;
    let exists = exists.query_opt("select from pg_database where datname = $1", &[&DATABASE]);
    if exists.await.map_err(text_of)?.is_some() {
        let client = connect(&server.existing(DATABASE)).await?;
        let update = client.batch_execute("alter extension trax update").await;
        update.map_err(text_of)?;
        let rounds = "select coalesce(max(number), 0) from soak.round";
        let row = client.query_one(rounds, &[]).await.map_err(text_of)?;
        return Ok(row.get::<_, i64>(0).unsigned_abs());
    }
    let made = server.plain_database(DATABASE).await;
    made.map_err(|error| error.to_string())?;
    let client = connect(&server.existing(DATABASE)).await?;
    client.batch_execute(SET_UP).await.map_err(text_of)?;
    Ok(0)
}

/// Checks that all jobs of a round have been completed once, and that the database is sound.
pub(crate) async fn every_job(server: &Server, round: &Round) -> Result<()> {
    let client = connect(&server.existing(DATABASE)).await?;
    let row = client.query_one(ENDED, &[]).await.map_err(text_of)?;
    let [completed, different, dead, twice] =
        [0, 1, 4, 5].map(|at| row.get::<_, i64>(at).unsigned_abs());
    let [first, last] = [2, 3].map(|at| row.get::<_, Option<i64>>(at).map(i64::unsigned_abs));
    let all = round.jobs();
    let mut wrong = Vec::new();
    if (completed, different) != (all, all) {
        wrong.push(format!(
            "{completed} of {all} completed, {different} different"
        ));
    }
    if (first, last) != (Some(round.first()), Some(round.last())) {
        wrong.push(format!("from {first:?} to {last:?}"));
    }
    if dead != 0 || twice != 0 {
        wrong.push(format!(
            "{dead} dead letters, {twice} occurrences ran twice"
        ));
    }
    let check = "select string_agg(c::text, ' ') from trax.check() c";
    let found = client.query_one(check, &[]).await.map_err(text_of)?;
    wrong.extend(found.get::<_, Option<String>>(0));
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(format!("round {}: {}", round.number(), wrong.join("; "))),
    }
}

pub(crate) async fn sizes(server: &Server) -> Result<String> {
    let client = connect(&server.existing(DATABASE)).await?;
    let row = client.query_one(SIZES, &[]).await.map_err(text_of)?;
    Ok(row.get(0))
}

/// Records a round, and removes its history.
pub(crate) async fn forget(server: &Server, number: u64, seed: u64) -> Result<()> {
    let forget = format!(
        "truncate trax.run, soak.call; insert into soak.round (number, seed) values ({number}, {seed})"
    );
    let client = connect(&server.existing(DATABASE)).await?;
    client.batch_execute(&forget).await.map_err(text_of)
}
