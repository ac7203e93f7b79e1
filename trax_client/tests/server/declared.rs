//! The declarations in a worker's code, and the reports about them.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trax_client::testkit::{Database, Server};
use trax_client::{
    Client, Context, Event, HandlerResult, Json, Manifest, NewJobs, Summary, Worker,
};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const DEADLINE: Duration = Duration::from_secs(60);

async fn started() -> Result<(Server, Database)> {
    let server = Server::options().fast().start()?;
    let database = server.database("work").await?;
    Ok((server, database))
}

async fn nothing(_: Json, _: Context) -> HandlerResult<()> {
    Ok(())
}

/// Runs a worker with these declarations; returns its reports about them.
async fn declare(
    database: &Database,
    source: &str,
    manifests: Vec<Manifest>,
) -> Result<(trax_client::Result<Summary>, Vec<String>)> {
    let reported = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&reported);
    let run = Worker::new(database.config())
        .without_signals()
        .handle("t", nothing)
        .manifests(source, manifests.iter().take(1).cloned())
        .manifests(source, manifests.into_iter().skip(1))
        .until_empty()
        .on_event(move |event| {
            if let (Event::Declared { .. }, Ok(mut reported)) = (event, listener.lock()) {
                reported.push(event.to_string());
            }
        })
        .run();
    let summary = tokio::time::timeout(DEADLINE, run).await?;
    let reported = reported.lock().map_err(|error| error.to_string())?.clone();
    Ok((summary, reported))
}

#[tokio::test]
async fn the_manifests_of_the_code_are_what_is_stored() -> Result {
    let (_server, database) = started().await?;
    let db = database.connect().await?;
    let client = Client::new(&db);
    client.schedule(&Manifest::new("hand", "t")).await?;
    let stored = async || -> Result<String> {
        let sql = "select string_agg(concat_ws(' ', name, source, cron, every, timeout, priority, input), ', ' order by name) \
                   from trax.manifest";
        Ok(db.query_one(sql, &[]).await?.get(0))
    };
    let input: Json = "{\"id\": 12345678901234567890123}".parse()?;
    let a = || Manifest::new("a", "t").cron("0 4 1 1 *");
    let b = Manifest::new("b", "t").every(Duration::from_secs(86_400));
    let first = vec![
        a().priority(7)
            .timeout(Duration::from_millis(1500))
            .input(&input)?,
        b.enabled(false),
    ];
    let (summary, reported) = declare(&database, "app", first.clone()).await?;
    summary?;
    assert_eq!(reported, ["manifests of \"app\": a created, b created"]);
    assert_eq!(
        stored().await?,
        "a app 0 4 1 1 * 00:00:01.5 7 {\"id\": 12345678901234567890123}, b app 24:00:00 0 {}, hand 0 {}"
    );
    let audited = "select count(*) from trax.audit";
    let acts: i64 = db.query_one(audited, &[]).await?.get(0);
    let (summary, reported) = declare(&database, "app", first).await?;
    summary?;
    assert!(reported.is_empty(), "{reported:?}");
    assert_eq!(db.query_one(audited, &[]).await?.get::<_, i64>(0), acts);
    // An omitted option gets its default, and a removed manifest is deleted.
    let (summary, reported) = declare(&database, "app", vec![a()]).await?;
    summary?;
    assert_eq!(reported, ["manifests of \"app\": a changed, b removed"]);
    assert_eq!(stored().await?, "a app 0 4 1 1 * 0 {}, hand 0 {}");
    let (refused, _) = declare(&database, "other", vec![a()]).await?;
    let refused = refused.map_err(|error| error.to_string());
    assert!(
        matches!(&refused, Err(text) if text.contains("belongs to source \"app\"")),
        "{refused:?}"
    );
    let (refused, _) = declare(&database, "app", vec![Manifest::new("x", "unhandled")]).await?;
    let refused = refused.map_err(|error| error.to_string());
    assert!(
        matches!(&refused, Err(text) if text.contains("no handler")),
        "{refused:?}"
    );
    assert!(client.declare("app", &[a()]).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn fifty_replicas_that_start_at_once_make_one_change() -> Result {
    let server = Server::options().fast().setting("max_connections", "400");
    let server = server.start()?;
    let database = server.database("replicas").await?;
    let db = database.connect().await?;
    let manifests = |every| -> Vec<Manifest> {
        let named = |n| Manifest::new(format!("m{n}"), "t").every(Duration::from_secs(every));
        (0..20).map(named).collect()
    };
    // Created, changed in every row and in another order, and unchanged.
    for (every, wanted, acts) in [(86_400, 1, 20), (172_800, 1, 40), (172_800, 0, 40)] {
        let replicas = (0..50).map(|replica| {
            let database = database.clone();
            let mut own = manifests(every);
            own.rotate_left(replica % 20);
            tokio::spawn(async move {
                let (summary, reported) = declare(&database, "app", own).await.map_err(text)?;
                summary.map_err(text)?;
                Ok::<_, String>(reported.len())
            })
        });
        let mut changes = 0;
        for replica in replicas.collect::<Vec<_>>() {
            changes += replica.await??;
        }
        assert_eq!(changes, wanted, "replicas that changed something");
        let audited = "select count(*) from trax.audit";
        assert_eq!(db.query_one(audited, &[]).await?.get::<_, i64>(0), acts);
    }
    let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
    assert_eq!(db.query_one(deadlocks, &[]).await?.get::<_, i64>(0), 0);
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[tokio::test]
async fn a_program_sees_completions_and_the_stop_of_its_worker() -> Result {
    let (_server, database) = started().await?;
    let db = database.connect().await?;
    let jobs = Client::new(&db)
        .enqueue_many(&NewJobs::new("t", &[1, 2, 3]))
        .await?;
    let completed = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&completed);
    let worker = Worker::new(database.config())
        .without_signals()
        .handle("t", nothing)
        .on_event(move |event| {
            if let (Event::Completed { job_id }, Ok(mut completed)) = (event, listener.lock()) {
                completed.push(*job_id);
            }
        });
    let (counts, shutdown) = (worker.counts(), worker.shutdown());
    let (requested, ended) = (shutdown.clone(), shutdown.clone());
    let requested = tokio::spawn(async move { requested.requested().await });
    let ended = tokio::spawn(async move { ended.ended().await });
    let run = tokio::spawn(worker.run());
    let seen = async {
        while counts.now().completed < 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, seen).await?;
    assert!(!requested.is_finished() && !ended.is_finished());
    shutdown.drain();
    tokio::time::timeout(DEADLINE, requested).await??;
    let summary = tokio::time::timeout(DEADLINE, run).await???;
    tokio::time::timeout(DEADLINE, ended).await??;
    assert_eq!(counts.now(), summary);
    let mut completed = completed.lock().map_err(|error| error.to_string())?.clone();
    completed.sort();
    assert_eq!(completed, jobs);
    Ok(())
}
