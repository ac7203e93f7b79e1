//! The trace context of a job, from its enqueueing to every attempt.

use super::{run, runs, worker};
use harness::database;
use harness::scheduler::{connect, execute, value};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trax_client::{
    ClaimOptions, Client as Trax, Context, Event, Failure, HandlerResult, JobError, JobOptions,
    NewJob, TraceContext,
};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn caller() -> TraceContext {
    let parent = PARENT.parse::<TraceContext>();
    parent
        .and_then(|parent| parent.with_state("vendor=value"))
        .expect("it is well-formed")
}

/// Reports its attempt and trace context; every attempt before the third fails.
async fn tell(_: Value, ctx: Context) -> HandlerResult<()> {
    let trace = ctx.trace_context().map(|trace| {
        let state = trace.tracestate().unwrap_or_default();
        format!("{} {state}", trace.traceparent())
    });
    let seen = trace.unwrap_or_else(|| "nothing".to_owned());
    if ctx.attempt() == 3 {
        return Err(JobError::permanent(seen));
    }
    Err(JobError::new(seen).retry_in(Duration::ZERO))
}

#[tokio::test]
async fn every_attempt_has_the_trace_context_of_the_enqueueing_a_requeued_one_too() {
    let database = database().await;
    let client = connect(&database).await;
    let trax = Trax::new(&client);
    let options = JobOptions::new().trace_context(&caller());
    let job = trax
        .enqueue(&NewJob::new("t", 1).with(options))
        .await
        .expect("it is enqueued");
    // The first attempt is lost with its worker, and the second fails.
    trax.claim(&ClaimOptions::new())
        .await
        .expect("it is claimed");
    let lost =
        "update trax.lease set lease_expires_at = now(), reap_at = now(); select trax.tick()";
    execute(&client, lost).await;
    let at_once = "update trax.work_queue set run_at = now(); select trax.tick()";
    execute(&client, at_once).await;
    run(worker(&database).handle("t", tell)).await;
    let seen = format!("failed error {PARENT} vendor=value");
    let ended = runs(&client, job).await;
    assert_eq!(ended[1..], [seen.clone(), seen], "{ended:?}");

    let letter = value::<i64>(&client, "select id from trax.dead_letter").await;
    trax.requeue_dead_letter(letter, None)
        .await
        .expect("it is requeued");
    let claimed = trax
        .claim(&ClaimOptions::new())
        .await
        .expect("it is claimed");
    let trace = claimed[0].trace.as_ref().expect("it has one");
    assert_eq!(
        trace.read::<Value>().ok(),
        Some(json!({"traceparent": PARENT, "tracestate": "vendor=value"}))
    );
    trax.fail(claimed[0].job_id, claimed[0].token, &Failure::new("enough"))
        .await
        .expect("it ends");
}

#[tokio::test]
async fn a_malformed_trace_context_is_a_warning_and_harms_no_job() {
    let database = database().await;
    let client = connect(&database).await;
    for trace in [
        json!({"traceparent": "00-nonsense"}),
        json!({"traceparent": PARENT, "tracestate": "no state"}),
        json!({"request": 7}),
    ] {
        let options = JobOptions::new().trace(trace);
        Trax::new(&client)
            .enqueue(&NewJob::new("t", 1).with(options))
            .await
            .expect("it is enqueued");
    }
    let warnings = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&warnings);
    let known = |_: Value, ctx: Context| async move {
        HandlerResult::Ok(ctx.trace_context().map(|trace| trace.traceparent()))
    };
    let worker = worker(&database)
        .concurrency(1)
        .on_event(move |event| {
            if let Event::TraceDropped { .. } = event {
                heard
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(event.to_string());
            }
        })
        .handle("t", known);
    assert_eq!(run(worker).await.completed, 3);
    let sql = "select string_agg(coalesce(output #>> '{}', 'nothing'), ' ' order by job_id) from trax.job";
    assert_eq!(
        value::<String>(&client, sql).await,
        format!("nothing {PARENT} nothing")
    );
    let warnings = warnings.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].contains("trace context is malformed: traceparent: ")
            && warnings[1].contains("malformed: tracestate: "),
        "{warnings:?}"
    );
}
