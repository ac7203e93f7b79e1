//! The test kit: jobs run inline, assertions on enqueued jobs, and skipped time.

mod steps;

use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_postgres::Client as Connection;
use trax_client::testkit::{
    Database, Ended, assert_enqueued, assert_not_enqueued, enqueued, pass_time,
};
use trax_client::{
    Client, Context, HandlerResult, JobError, JobOptions, Manifest, NewJob, Next, Outcome, Reason,
    Task, Worker,
};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

#[derive(Debug, Deserialize, Serialize)]
struct Ship {
    item: String,
}

impl Task for Ship {
    const NAME: &str = "ship";

    fn options() -> JobOptions {
        JobOptions::new().max_retries(1)
    }
}

#[derive(Deserialize, Serialize)]
struct Invoice(u32);

impl Task for Invoice {
    const NAME: &str = "invoice";
}

async fn scene() -> Result<(Database, Connection)> {
    let database = harness::database().await;
    let db = database.connect().await?;
    Ok((database, db))
}

fn shipment(item: &str) -> NewJob<Ship> {
    NewJob::of(Ship {
        item: item.to_owned(),
    })
}

fn worker(database: &Database) -> Worker {
    Worker::new(database.config()).on_event(|_| {})
}

/// Ends in the way that the item names.
async fn ship(ship: Ship, ctx: Context) -> HandlerResult<Outcome> {
    ctx.progress(json!({"of": ship.item}))?;
    match ship.item.as_str() {
        "stone" => Err(JobError::new("too heavy")),
        "bomb" => panic!("no"),
        "cake" => Ok(Outcome::Snooze(Duration::from_secs(60))),
        "wait" => {
            let reason = ctx.cancelled().await;
            Err(JobError::new(format!("{reason:?}")))
        }
        "lie" => Ok(Outcome::Recorded),
        item => Ok(Outcome::Output(json!({"sent": item}).into())),
    }
}

#[tokio::test]
async fn exactly_one_job_runs_with_all_that_is_around_it_and_its_outcome_is_reported() -> Result {
    let (database, db) = scene().await?;
    let client = Client::new(&db);
    for item in ["tea", "stone", "bomb", "cake"] {
        client.enqueue(&shipment(item)).await?;
    }
    client.enqueue(&NewJob::new("other", 1)).await?;
    let labelled = |_: Context, next: Next| async move {
        match next.run().await? {
            Outcome::Output(output) => {
                let mut output: Value = output.read()?;
                output["label"] = json!(true);
                Ok(Outcome::Output(output.into()))
            }
            outcome => Ok(outcome),
        }
    };
    let worker = worker(&database).middleware(labelled).task(ship);

    let tea = worker.run_one(&db, "ship").await?;
    assert_eq!(tea.ended, Ended::Completed, "{tea}");
    assert_eq!(
        tea.output::<Value>()?,
        json!({"sent": "tea", "label": true})
    );
    assert_eq!(tea.progress, Some(json!({"of": "tea"}).into()));
    let counts =
        "select (select count(*) from trax.work_queue) || ' ' || (select count(*) from trax.run)";
    let seen: String = db.query_one(counts, &[]).await?.get(0);
    assert_eq!(seen, "4 1", "one ran, and no other was touched");

    let stone = worker.run_one(&db, "ship").await?;
    let said = stone.to_string();
    assert_eq!(
        said,
        format!("job {}, attempt 1: retrying: too heavy", stone.job_id)
    );
    assert!(
        stone
            .output::<Value>()
            .is_err_and(|error| error.to_string() == said)
    );
    let bomb = worker.run_one(&db, "ship").await?;
    assert_eq!(bomb.error.as_deref(), Some("panicked: no"), "{bomb}");
    let cake = worker.run_one(&db, "ship").await?;
    assert_eq!((cake.ended, cake.error.as_deref()), (Ended::Released, None));

    let none = worker.run_one(&db, "ship").await;
    let said = none
        .map(|ran| ran.to_string())
        .unwrap_or_else(|e| e.to_string());
    assert!(
        said.starts_with("no job of task \"ship\" is ready\nwaiting jobs:\n"),
        "{said}"
    );
    assert!(
        said.contains("ship {\"item\":\"stone\"}, group default, priority 0, due in "),
        "{said}"
    );
    assert!(said.contains("for attempt 2"), "{said}");
    assert!(
        said.contains("other 1, group default, priority 0, ready"),
        "{said}"
    );
    let unknown = worker.run_one(&db, "other").await;
    assert!(
        unknown.is_err_and(|error| error.to_string().contains("no handler for task \"other\""))
    );
    assert!(client.check().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn a_job_can_run_in_a_transaction_that_is_rolled_back() -> Result {
    let (database, mut db) = scene().await?;
    let tx = db.transaction().await?;
    Client::new(&tx).enqueue(&shipment("tea")).await?;
    let ran = worker(&database).task(ship).run_one(&tx, "ship").await?;
    assert_eq!(ran.ended, Ended::Completed, "{ran}");
    tx.rollback().await?;
    let sql = "select count(*) from trax.job";
    assert_eq!(db.query_one(sql, &[]).await?.get::<_, i64>(0), 0);
    Ok(())
}

#[tokio::test]
async fn a_handler_is_asked_to_stop_for_the_reason_that_the_test_gives() -> Result {
    let (database, db) = scene().await?;
    let worker = worker(&database).task(ship);
    for (reason, ended) in [
        (Reason::Shutdown, Ended::Released),
        (Reason::LeaseLost, Ended::Lost),
        (Reason::Cancelled, Ended::Cancelled),
        (Reason::Timeout, Ended::Dead),
    ] {
        let once = shipment("wait").with(JobOptions::new().max_retries(0));
        let job = Client::new(&db).enqueue(&once).await?;
        let stop = async { reason };
        let ran = worker.run_one_until(&db, "ship", stop).await?;
        assert_eq!(ran.ended, ended, "{ran}");
        Client::new(&db).cancel(job).await?;
    }
    Ok(())
}

#[tokio::test]
async fn an_outcome_that_was_not_recorded_is_found_out() -> Result {
    let (database, db) = scene().await?;
    Client::new(&db).enqueue(&shipment("lie")).await?;
    let lie = worker(&database).task(ship).run_one(&db, "ship").await;
    let said = lie
        .map(|ran| ran.to_string())
        .unwrap_or_else(|e| e.to_string());
    assert!(said.contains("no completion is recorded"), "{said}");

    Client::new(&db).enqueue(&NewJob::new("own", 7)).await?;
    let own = |n: i32, ctx: Context<Database>| async move {
        let mut db = ctx.state().connect().await?;
        let tx = db.transaction().await?;
        let client = Client::new(&tx);
        client.complete(ctx.job_id(), ctx.token(), &n).await?;
        tx.commit().await?;
        Ok(Outcome::Recorded)
    };
    let worker = Worker::with_state(database.config(), database.clone()).handle("own", own);
    let ran = worker.run_one(&db, "own").await?;
    assert_eq!(ran.output::<i32>()?, 7);
    Ok(())
}

#[tokio::test]
async fn a_retry_a_lease_and_a_later_job_come_when_time_passes() -> Result {
    let (database, db) = scene().await?;
    let client = Client::new(&db);
    let worker = worker(&database).task(ship).lease(Duration::from_secs(30));
    client.enqueue(&shipment("stone")).await?;
    assert_eq!(worker.run_one(&db, "ship").await?.ended, Ended::Retrying);
    let retry = assert_enqueued::<Ship>(&db, |job| job.attempts == 1).await;
    assert!((200.0..400.0).contains(&retry.due_in), "{retry:?}");
    pass_time(&db, Duration::from_secs(100)).await?;
    assert!(worker.run_one(&db, "ship").await.is_err(), "not yet");
    pass_time(&db, Duration::from_secs(300)).await?;
    let last = worker.run_one(&db, "ship").await?;
    assert_eq!((last.attempt, last.ended), (2, Ended::Dead), "{last}");

    let in_an_hour = SystemTime::now() + Duration::from_secs(3600);
    let later = Ship::options().run_at(in_an_hour);
    client.enqueue(&shipment("tea").with(later)).await?;
    pass_time(&db, Duration::from_secs(3601)).await?;
    let claimed = client.claim(&trax_client::ClaimOptions::new()).await?;
    assert_eq!(claimed.len(), 1);
    pass_time(&db, Duration::from_secs(31)).await?;
    let kind = "select failure_kind from trax.run where job_id = $1";
    let lost: String = db.query_one(kind, &[&claimed[0].job_id.0]).await?.get(0);
    assert_eq!(lost, "lease_expired");
    assert!(client.check().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn the_runs_of_a_schedule_are_reported_for_any_time() -> Result {
    let (_database, db) = scene().await?;
    let client = Client::new(&db);
    let nightly = Manifest::new("nightly", "report")
        .cron("30 2 * * *")
        .timezone("Europe/Berlin");
    client.schedule(&nightly).await?;
    // 2027-03-27 12:00 UTC; the next night has no 02:30.
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_806_148_800);
    let runs = client.preview_after("nightly", noon, 2).await?;
    let times: Vec<&str> = runs
        .iter()
        .filter_map(|run| run.local_time.as_deref())
        .collect();
    assert_eq!(
        times,
        ["2027-03-28 03:00:00 +02:00", "2027-03-29 02:30:00 +02:00"],
        "{runs:?}"
    );
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_sleeps_for_an_hour_takes_no_time_on_a_paused_clock() -> Result {
    let (database, db) = scene().await?;
    Client::new(&db).enqueue(&NewJob::new("nap", 1)).await?;
    let nap = |_: u32, _: Context| async {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        HandlerResult::Ok(())
    };
    let begun = Instant::now();
    let ran = worker(&database)
        .handle("nap", nap)
        .run_one(&db, "nap")
        .await?;
    assert_eq!(ran.ended, Ended::Completed, "{ran}");
    assert!(
        begun.elapsed() < Duration::from_secs(1800),
        "{:?}",
        begun.elapsed()
    );
    Ok(())
}

/// Returns the panic message of `assertion`.
async fn complaint(assertion: impl Future) -> Result<String> {
    let mut assertion = Box::pin(assertion);
    let caught = std::future::poll_fn(|cx| {
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| assertion.as_mut().poll(cx)));
        match polled {
            Ok(poll) => poll.map(|_| None),
            Err(payload) => std::task::Poll::Ready(payload.downcast::<String>().ok()),
        }
    })
    .await;
    caught
        .map(|text| *text)
        .ok_or_else(|| "it did not panic".into())
}

#[tokio::test]
async fn an_assertion_on_the_queue_gives_the_job_or_shows_what_is_there() -> Result {
    let (_database, db) = scene().await?;
    let client = Client::new(&db);
    assert_not_enqueued::<Ship>(&db).await;
    let said = complaint(assert_enqueued::<Ship>(&db, |_| true)).await?;
    assert!(
        said.ends_with("no waiting job of task \"ship\" matches\nno job is waiting"),
        "{said}"
    );

    let urgent = Ship::options().group("post").priority(7).unique_key("u");
    let job = client.enqueue(&shipment("tea").with(urgent)).await?;
    let found = assert_enqueued::<Ship>(&db, |job| job.input.item == "tea").await;
    assert_eq!((found.job_id, found.priority), (job, 7));
    assert_eq!(
        (found.group_name.as_str(), found.unique_key.as_deref()),
        ("post", Some("u"))
    );
    assert_eq!(enqueued::<Invoice>(&db).await?.len(), 0);
    assert_not_enqueued::<Invoice>(&db).await;

    let line = format!(
        "\nwaiting jobs:\n  job {job}: ship {{\"item\":\"tea\"}}, group post, priority 7, ready"
    );
    let said = complaint(assert_enqueued::<Ship>(&db, |job| job.priority == 8)).await?;
    assert!(
        said.ends_with(&line) && said.contains("tests/testkit/mod.rs:"),
        "{said}"
    );
    let said = complaint(assert_not_enqueued::<Ship>(&db)).await?;
    assert!(
        said.ends_with(&format!("a job of task \"ship\" is waiting{line}")),
        "{said}"
    );

    client.enqueue(&NewJob::new("invoice", "seven")).await?;
    let said = complaint(assert_enqueued::<Invoice>(&db, |_| true)).await?;
    assert!(
        said.contains("invoice \"seven\"") && said.contains("its input: invalid type"),
        "{said}"
    );
    Ok(())
}

#[test]
fn the_test_kits_of_all_languages_skip_time_by_the_same_statement() {
    let statement = |path: &str| {
        let path = format!("{}/../trax_client/{path}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let begin = text.find("with waiting as (");
        let text = &text[begin.unwrap_or_else(|| panic!("{path} has no statement"))..];
        let end = text.find(['"', '`']).expect("the statement ends");
        text[..end].split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let rust = statement("src/testkit/time.rs");
    for other in ["python/src/trax/testkit.py", "node/src/testkit.ts"] {
        assert_eq!(statement(other), rust, "{other}");
    }
}
