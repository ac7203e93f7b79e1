//! Inputs that Rust types cannot represent, and the other jobs of the same claim.

use super::{Trax, enqueue, run, worker};
use harness::database;
use harness::scheduler::{connect, execute, value};
use serde::Deserialize;
use serde_json::Value;
use std::time::{Duration, SystemTime};
use trax_client::{Context, HandlerResult, JobOptions, Json, Manifest, NewJob, NewJobs};

/// A number out of range, 200 arrays, 1000 digits, a long id.
const STRANGE: &str = "select trax.enqueue_many('t', array[
    '1e400', repeat('[', 200) || repeat(']', 200), repeat('7', 1000), '{\"id\": 12345678901234567890123}'
]::jsonb[])";

#[tokio::test]
async fn an_input_that_no_type_can_hold_fails_its_own_job_for_good_and_no_other() {
    let database = database().await;
    let client = connect(&database).await;
    execute(&client, STRANGE).await;
    for input in 0..10 {
        enqueue(&client, "t", input).await;
    }
    let any = |_: Value, _: Context| async { HandlerResult::Ok(()) };
    let summary = run(worker(&database).handle("t", any)).await;
    // With serde_json's feature arbitrary_precision, which the command enables for everything built
    // with it, only the arrays do not fit.
    let unfit = match serde_json::from_str::<Value>("1e400") {
        Ok(_) => 1,
        Err(_) => 3,
    };
    assert_eq!(
        (summary.completed, summary.dead, summary.lost),
        (14 - unfit, unfit, 0),
        "{summary}"
    );
    let said = "select count(*) from trax.dead_letter where last_error like 'the input cannot be decoded: %'";
    assert_eq!(
        value::<i64>(&client, said).await,
        i64::try_from(unfit).expect("a few")
    );
}

#[tokio::test]
async fn a_handler_may_take_json_as_it_is_and_give_it_back() {
    let database = database().await;
    let client = connect(&database).await;
    execute(&client, STRANGE).await;
    let same = |input: Json, _: Context| async move { HandlerResult::Ok(input) };
    let summary = run(worker(&database).handle("t", same)).await;
    assert_eq!(summary.completed, 4, "{summary}");
    let sql = "select count(*) from trax.run where output::text = input::text";
    assert_eq!(value::<i64>(&client, sql).await, 4);
}

#[derive(Deserialize)]
struct Order {
    id: u128,
}

#[tokio::test]
async fn a_type_with_room_for_the_digits_gets_them() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue('t', '{\"id\": 12345678901234567890123}')",
    )
    .await;
    let next = |order: Order, _: Context| async move { HandlerResult::Ok(order.id + 1) };
    run(worker(&database).handle("t", next)).await;
    let sql = "select output::text from trax.run";
    assert_eq!(
        value::<String>(&client, sql).await,
        "12345678901234567890124"
    );
}

/// JSON passed to every call comes back with all its digits.
#[tokio::test]
async fn every_call_of_the_client_keeps_every_digit() {
    const TEXT: &str = "{\"id\": 12345678901234567890123, \"price\": 1.10}";
    let json = || TEXT.parse::<Json>().expect("it is JSON");
    let database = database().await;
    let client = connect(&database).await;
    let trax = Trax::new(&client);
    let document =
        format!("{{\"manifests\": [{{\"name\": \"m\", \"task\": \"t\", \"input\": {TEXT}}}]}}");
    let document: Json = document.parse().expect("it is JSON");
    trax.apply(&document, false, false)
        .await
        .expect("it is applied");
    let hour = Duration::from_secs(3600);
    trax.trigger("m", None).await.expect("it is queued");
    trax.trigger("m", Some(json())).await.expect("it is queued");
    let later = trax.trigger_in("m", Some(json()), hour).await;
    let options = JobOptions::new().trace(json());
    let job = NewJob::new("t", json()).with(options.clone());
    trax.enqueue(&job).await.expect("it is queued");
    trax.enqueue_all([job]).await.expect("it is queued");
    let inputs = [json()];
    let jobs = NewJobs::new("t", &inputs).with(options);
    let ids = trax.enqueue_many(&jobs).await;
    assert!(later.is_ok() && ids.is_ok());
    let same = "select count(*) from trax.work_queue
        where input::text = $1 and coalesce(trace::text, $1) = $1";
    let count = |sql: &'static str| async {
        client
            .query_one(sql, &[&TEXT])
            .await
            .expect(sql)
            .get::<_, i64>(0)
    };
    assert_eq!(count(same).await, 6);
    trax.run_now(later.expect("it is queued"))
        .await
        .expect("it is due");
    let seen = |input: Json, ctx: Context| async move {
        ctx.progress(&input)?;
        let trace = ctx.trace().cloned().unwrap_or_else(|| input.clone());
        assert_eq!((input.text(), trace.text()), (TEXT, TEXT));
        HandlerResult::Ok(input)
    };
    let worker = worker(&database).handle("t", seen);
    let ran = worker.run_one(&client, "t").await.expect("it ran");
    assert_eq!(ran.progress.as_ref().map(Json::text), Some(TEXT));
    assert_eq!(run(worker).await.completed, 5);
    assert_eq!(
        count("select count(*) from trax.run where output::text = $1").await,
        6
    );
}

#[tokio::test]
async fn a_time_or_a_lease_of_ages_is_refused_in_words_or_kept() {
    let database = database().await;
    let client = connect(&database).await;
    let trax = Trax::new(&client);
    let ages = Duration::from_secs(1 << 60);
    for at in [SystemTime::UNIX_EPOCH + ages, SystemTime::UNIX_EPOCH - ages] {
        let job = NewJob::new("t", &1).with(JobOptions::new().run_at(at));
        let error = trax
            .enqueue(&job)
            .await
            .expect_err("no job can wait so long");
        assert!(error.to_string().contains("\"run_at\""), "{error}");
        let manifest = Manifest::new("m", "t").run_at(at);
        let error = trax.schedule(&manifest).await.expect_err("nor a manifest");
        assert!(error.to_string().contains("\"run_at\""), "{error}");
    }
    enqueue(&client, "t", 1).await;
    let any = |_: Value, _: Context| async { HandlerResult::Ok(()) };
    let leased = worker(&database).lease(Duration::MAX).handle("t", any);
    let summary = run(leased).await;
    assert_eq!(summary.completed, 1, "{summary}");
}
