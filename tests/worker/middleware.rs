//! Middleware around an execution: its order, its view of the job, and its refusals.

use super::{careless, enqueue, run, runs, worker};
use harness::database;
use harness::scheduler::{connect, value};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trax_client::{Context, Error, HandlerResult, JobError, Next, Outcome};

/// The events in order.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    fn note(&self, what: impl Into<String>) {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.push(what.into());
    }

    /// Returns the events since the last call.
    fn read(&self) -> Vec<String> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *pages)
    }

    /// A middleware that records its entry and the result of the execution.
    fn around(
        &self,
        name: &'static str,
    ) -> impl Fn(Context, Next) -> Noted + Send + Sync + 'static + use<> {
        let diary = self.clone();
        move |_, next| {
            let diary = diary.clone();
            Box::pin(async move {
                diary.note(format!("{name} {}", next.input()));
                let outcome = next.run().await;
                diary.note(match &outcome {
                    Ok(outcome) => format!("{name}: {outcome:?}"),
                    Err(error) if error.is_panic() => format!("{name}: {error}!"),
                    Err(error) => format!("{name}: {error}"),
                });
                outcome
            })
        }
    }
}

type Noted = std::pin::Pin<Box<dyn Future<Output = HandlerResult<Outcome>> + Send>>;

#[tokio::test]
async fn middleware_of_the_worker_is_around_that_of_the_task_in_the_order_added() {
    let database = database().await;
    let client = connect(&database).await;
    let diary = Diary::default();
    let own = || {
        worker(&database)
            .middleware_for("t", diary.around("task"))
            .middleware(diary.around("outer"))
            .handle("t", careless)
            .middleware(diary.around("inner"))
            .middleware_for("t", diary.around("last"))
            .handle("other", careless)
    };
    enqueue(&client, "t", 7).await;
    run(own()).await;
    assert_eq!(
        diary.read(),
        [
            "outer 7",
            "inner 7",
            "task 7",
            "last 7",
            "last: Output(7)",
            "task: Output(7)",
            "inner: Output(7)",
            "outer: Output(7)",
        ]
    );
    enqueue(&client, "other", 13).await;
    run(own()).await;
    let panicked = "panicked: thirteen brings bad luck!";
    assert_eq!(
        diary.read(),
        [
            "outer 13",
            "inner 13",
            &format!("inner: {panicked}"),
            &format!("outer: {panicked}")
        ],
        "a panic of the handler is an outcome that all around it see"
    );
}

#[tokio::test]
async fn middleware_that_does_not_run_the_rest_refuses_the_job() {
    let database = database().await;
    let client = connect(&database).await;
    let diary = Diary::default();
    let later = enqueue(&client, "t", "later").await;
    let never = enqueue(&client, "t", "never").await;
    let cached = enqueue(&client, "t", "cached").await;
    enqueue(&client, "t", "go").await;
    let guard = |_: Context, next: Next| async move {
        match next.input().read::<String>().ok().as_deref() {
            Some("later") => Ok(Outcome::Snooze(Duration::from_secs(3600))),
            Some("never") => Err(JobError::permanent("not allowed")),
            Some("cached") => Ok(Outcome::Output(json!("of yesterday").into())),
            _ => next.run().await,
        }
    };
    let handled = diary.clone();
    let handler = move |input: Value, _: Context| {
        let handled = handled.clone();
        async move {
            handled.note(input.to_string());
            HandlerResult::Ok(())
        }
    };
    let summary = run(worker(&database).middleware(guard).handle("t", handler)).await;
    assert_eq!(
        (summary.completed, summary.dead, summary.released),
        (2, 1, 1),
        "{summary}"
    );
    assert_eq!(diary.read(), ["\"go\""], "only one reached the handler");
    assert_eq!(runs(&client, never).await, ["failed error not allowed"]);
    let waits = format!("select attempts from trax.work_queue where job_id = {later}");
    assert_eq!(value::<i32>(&client, &waits).await, 0);
    let output = format!("select output #>> '{{}}' from trax.job where job_id = {cached}");
    assert_eq!(value::<String>(&client, &output).await, "of yesterday");
}

#[tokio::test]
async fn a_panic_within_middleware_fails_its_own_attempt_and_no_other() {
    let database = database().await;
    let client = connect(&database).await;
    let before = enqueue(&client, "t", 1).await;
    let after = enqueue(&client, "t", 2).await;
    let at_once = enqueue(&client, "t", 3).await;
    enqueue(&client, "t", 4).await;
    let fragile = |_: Context, next: Next| {
        assert!(next.input().text() != "3", "before anything is awaited");
        async move {
            let input: u32 = next.input().read()?;
            assert!(input != 1, "before the handler");
            let outcome = next.run().await;
            assert!(input != 2, "after the handler");
            outcome
        }
    };
    let summary = run(worker(&database)
        .middleware(fragile)
        .handle("t", careless)
        .concurrency(1))
    .await;
    assert_eq!((summary.completed, summary.retrying), (1, 3), "{summary}");
    for (job, said) in [
        (before, "before the handler"),
        (after, "after the handler"),
        (at_once, "before anything is awaited"),
    ] {
        let panicked = format!("failed error panicked: {said}");
        assert_eq!(runs(&client, job).await, [panicked]);
    }
}

#[tokio::test]
async fn an_outcome_can_be_made_another() {
    let database = database().await;
    let client = connect(&database).await;
    let job = enqueue(&client, "t", 13).await;
    let lenient = |_: Context, next: Next| async move {
        next.run().await.or_else(|error| {
            Ok(Outcome::Output(
                json!({"forgiven": error.to_string()}).into(),
            ))
        })
    };
    let summary = run(worker(&database)
        .middleware_for("t", lenient)
        .handle("t", careless))
    .await;
    assert_eq!(summary.completed, 1, "{summary}");
    assert_eq!(runs(&client, job).await, ["completed"]);
    let sql = "select output ->> 'forgiven' from trax.run";
    assert_eq!(
        value::<String>(&client, sql).await,
        "panicked: thirteen brings bad luck"
    );
}

#[tokio::test]
async fn middleware_for_a_task_that_nobody_handles_is_refused_at_the_start() {
    let database = database().await;
    let pass = |_: Context, next: Next| next.run();
    let refused = worker(&database)
        .middleware_for("mail.sned", pass)
        .handle("mail.send", careless)
        .run()
        .await;
    assert!(
        matches!(&refused, Err(Error::Setup(said)) if said.contains("\"mail.sned\"")),
        "{refused:?}"
    );
}
