//! Rates are exact: no window of recorded starts has one too many, with any number of claimers,
//! other programs and kills of the server.

use harness::options;
use harness::session::Session;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use trax_client::testkit::Database;

/// Starts that end a window with more than the burst of 50 and one in each 500 us.
const TOO_MANY: &str = "
    with start as (
        select (extract(epoch from s.started_at) * 1000000)::bigint as at, s.cost
        from (
            select r.started_at, r.cost from trax.run r where r.rate = 'api' and r.started_at is not null
            union all
            select l.started_at, l.cost from trax.lease l where l.rate = 'api'
        ) s
    ), summed as (
        select s.at, s.cost, sum(s.cost) over (order by s.at rows unbounded preceding) as used
        from start s
    ), lowest as (
        select s.at, s.used, min((s.used - s.cost) * 500 - s.at) over (order by s.at, s.used) as before
        from summed s
    )
    select count(*) filter (where l.used * 500 - l.at - l.before > 50 * 500), max(l.used)
    from lowest l";

/// Claims and completes until the deadline, and counts what it has started; the server may be
/// killed meanwhile.
fn claimer(database: &Database, max_jobs: i32, until: Instant) -> JoinHandle<()> {
    let config = database.config();
    tokio::spawn(async move {
        let Ok((client, connection)) = config.connect(tokio_postgres::NoTls).await else {
            return;
        };
        tokio::spawn(connection);
        let work = format!(
            "with claimed as materialized (select * from trax.claim_next(max_jobs => {max_jobs}))
             select count(trax.complete(c.job_id, c.token)) from claimed c"
        );
        while Instant::now() < until && client.simple_query(&work).await.is_ok() {
            if client
                .simple_query("call trax.wait_for_work('50 ms')")
                .await
                .is_err()
            {
                return;
            }
        }
    })
}

/// Consumes until the deadline; returns how much was granted.
fn consumer(database: &Database, until: Instant) -> JoinHandle<i64> {
    let config = database.config();
    tokio::spawn(async move {
        let Ok((client, connection)) = config.connect(tokio_postgres::NoTls).await else {
            return 0;
        };
        tokio::spawn(connection);
        let mut granted = 0;
        while Instant::now() < until {
            let sql = "select granted from trax.consume_rate('api', cost => 2)";
            match client.query_one(sql, &[]).await {
                Ok(row) => granted += 2 * i64::from(row.get::<_, bool>(0)),
                Err(_) => return granted,
            }
        }
        granted
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_window_has_one_too_many_while_claimers_compete_and_the_server_is_killed() {
    let mut server = options().start().expect("a server starts");
    let database = server.database("exact").await.expect("a database is made");
    let s = Session::of(&database).await;
    s.get("select trax.configure_rate('api', 2000, '1 s', 50)")
        .await;
    for (task, cost) in [("one", 1), ("three", 3)] {
        let many = format!(
            "select count(*) from trax.enqueue_many('{task}', array_fill('{{}}'::jsonb, '{{12000}}'), rate => 'api', cost => {cost})"
        );
        s.get(&many).await;
    }
    let began = Instant::now();
    for kills in 0..3 {
        let until = Instant::now() + Duration::from_secs(2);
        let claimers: Vec<_> = [1, 7, 40, 200]
            .map(|jobs| claimer(&database, jobs, until))
            .into();
        let consumer = consumer(&database, until);
        if kills < 2 {
            let enough = 800 * (kills + 1);
            let count = format!("select count(*) >= {enough} from trax.run");
            Session::of(&database).await.becomes(&count, "t").await;
            server.kill().expect("it runs");
        }
        for claimer in claimers {
            claimer.await.expect("it does not panic");
        }
        consumer.await.expect("it does not panic");
        if kills < 2 {
            server.start().expect("it starts again");
        }
    }
    let s = Session::of(&database).await;
    let found = s.get(TOO_MANY).await;
    let (too_many, started) = found.split_once('|').expect("two columns");
    assert_eq!(too_many, "0", "of {started}");
    let started: i64 = started.parse().expect("a number");
    let most = 50 * 3 + 2000 * i64::try_from(began.elapsed().as_millis()).expect("short") / 1000;
    assert!(started <= most, "{started} of {most}");
    assert!(started > 1000, "{started} have started");
    s.assert_healthy().await;
}
