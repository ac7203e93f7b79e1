//! Inputs that Rust types cannot represent, and the other jobs of the same claim.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_postgres::Client as Connection;
use trax_client::{Client, Context, HandlerResult, JobOptions, Json, Manifest, NewJob, NewJobs};

use super::{Fixture, Result, run};

async fn enqueue(connection: &Connection, input: impl Serialize) -> Result {
    Client::new(connection)
        .enqueue(&NewJob::new("t", input))
        .await?;
    Ok(())
}

async fn count(connection: &Connection, sql: &str) -> Result<i64> {
    Ok(connection.query_one(sql, &[]).await?.get(0))
}

/// A number out of range, 200 arrays, 1000 digits, a long id.
const STRANGE: &str = "select trax.enqueue_many('t', array[
    '1e400', repeat('[', 200) || repeat(']', 200), repeat('7', 1000), '{\"id\": 12345678901234567890123}'
]::jsonb[])";

#[tokio::test]
async fn an_input_that_no_type_can_hold_fails_its_own_job_for_good_and_no_other() -> Result {
    let fixture = Fixture::new("json").await?;
    fixture.connection.batch_execute(STRANGE).await?;
    for input in 0..10 {
        enqueue(&fixture.connection, input).await?;
    }
    let any = |_: Value, _: Context| async { HandlerResult::Ok(()) };
    let summary = run(fixture.worker().handle("t", any)).await?;
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
        count(&fixture.connection, said).await?,
        i64::try_from(unfit)?
    );
    Ok(())
}

#[tokio::test]
async fn a_handler_may_take_json_as_it_is_and_give_it_back() -> Result {
    let fixture = Fixture::new("json").await?;
    fixture.connection.batch_execute(STRANGE).await?;
    let same = |input: Json, _: Context| async move { HandlerResult::Ok(input) };
    let summary = run(fixture.worker().handle("t", same)).await?;
    assert_eq!(summary.completed, 4, "{summary}");
    let sql = "select count(*) from trax.run where output::text = input::text";
    assert_eq!(count(&fixture.connection, sql).await?, 4);
    Ok(())
}

#[derive(Deserialize)]
struct Order {
    id: u128,
}

#[tokio::test]
async fn a_type_with_room_for_the_digits_gets_them() -> Result {
    let fixture = Fixture::new("json").await?;
    let sql = "select trax.enqueue('t', '{\"id\": 12345678901234567890123}')";
    fixture.connection.batch_execute(sql).await?;
    let next = |order: Order, _: Context| async move { HandlerResult::Ok(order.id + 1) };
    run(fixture.worker().handle("t", next)).await?;
    let sql = "select output::text from trax.run";
    let output: String = fixture.connection.query_one(sql, &[]).await?.get(0);
    assert_eq!(output, "12345678901234567890124");
    Ok(())
}

/// JSON passed to every call comes back with all its digits.
#[tokio::test]
async fn every_call_of_the_client_keeps_every_digit() -> Result {
    const TEXT: &str = "{\"id\": 12345678901234567890123, \"price\": 1.10}";
    let json = || TEXT.parse::<Json>().expect("it is JSON");
    let fixture = Fixture::new("json").await?;
    let trax = Client::new(&fixture.connection);
    let document =
        format!("{{\"manifests\": [{{\"name\": \"m\", \"task\": \"t\", \"input\": {TEXT}}}]}}");
    let document: Json = document.parse()?;
    trax.apply(&document, false, false).await?;
    let hour = Duration::from_secs(3600);
    trax.trigger("m", None).await?;
    trax.trigger("m", Some(json())).await?;
    let later = trax.trigger_in("m", Some(json()), hour).await?;
    let options = JobOptions::new().trace(json());
    let job = NewJob::new("t", json()).with(options.clone());
    trax.enqueue(&job).await?;
    trax.enqueue_all([job]).await?;
    let inputs = [json()];
    let jobs = NewJobs::new("t", &inputs).with(options);
    trax.enqueue_many(&jobs).await?;
    let same = format!(
        "select count(*) from trax.work_queue
         where input::text = '{TEXT}' and coalesce(trace::text, '{TEXT}') = '{TEXT}'"
    );
    assert_eq!(count(&fixture.connection, &same).await?, 6);
    trax.run_now(later).await?;
    let seen = |input: Json, ctx: Context| async move {
        ctx.progress(&input)?;
        let trace = ctx.trace().cloned().unwrap_or_else(|| input.clone());
        assert_eq!((input.text(), trace.text()), (TEXT, TEXT));
        HandlerResult::Ok(input)
    };
    let worker = fixture.worker().handle("t", seen);
    let ran = worker.run_one(&fixture.connection, "t").await?;
    assert_eq!(ran.progress.as_ref().map(Json::text), Some(TEXT));
    assert_eq!(run(worker).await?.completed, 5);
    let kept = format!("select count(*) from trax.run where output::text = '{TEXT}'");
    assert_eq!(count(&fixture.connection, &kept).await?, 6);
    Ok(())
}

#[tokio::test]
async fn a_time_or_a_lease_of_ages_is_refused_in_words_or_kept() -> Result {
    let fixture = Fixture::new("json").await?;
    let trax = Client::new(&fixture.connection);
    let ages = Duration::from_secs(1 << 60);
    for at in [SystemTime::UNIX_EPOCH + ages, SystemTime::UNIX_EPOCH - ages] {
        let job = NewJob::new("t", &1).with(JobOptions::new().run_at(at));
        let error = trax.enqueue(&job).await.expect_err("no job waits so long");
        assert!(error.to_string().contains("\"run_at\""), "{error}");
        let manifest = Manifest::new("m", "t").run_at(at);
        let error = trax.schedule(&manifest).await.expect_err("nor a manifest");
        assert!(error.to_string().contains("\"run_at\""), "{error}");
    }
    enqueue(&fixture.connection, 1).await?;
    let any = |_: Value, _: Context| async { HandlerResult::Ok(()) };
    let leased = fixture.worker().lease(Duration::MAX).handle("t", any);
    let summary = run(leased).await?;
    assert_eq!(summary.completed, 1, "{summary}");
    Ok(())
}
