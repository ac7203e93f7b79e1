//! Tasks as types, extractors, schedules declared with their handlers, progress, and a worker's
//! report at its start.

use super::{run, start, state_becomes, worker, worker_config};
use harness::scheduler::{connect, execute, value};
use harness::{PATIENCE, database, eventually};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::io::{Error as IoError, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use trax_client::{
    Cancellation, Client as Trax, Context, Error, Event, FromState, HandlerResult, JobError, JobId,
    JobOptions, Manifest, NewJob, Outcome, State, Task, Worker,
};

#[derive(Deserialize, Serialize)]
struct Greet {
    name: String,
}

impl Task for Greet {
    const NAME: &str = "greet";

    fn options() -> JobOptions {
        JobOptions::new().group("door").max_retries(0)
    }
}

#[derive(Deserialize, Serialize)]
struct Sweep;

impl Task for Sweep {
    const NAME: &str = "sweep";
}

#[derive(Clone)]
struct App {
    greeting: Greeting,
}

#[derive(Clone)]
struct Greeting(&'static str);

impl FromState<App> for Greeting {
    fn from_state(app: &App) -> Self {
        app.greeting.clone()
    }
}

/// Uses every extractor, and a custom error type.
async fn greet(
    greet: Greet,
    State(greeting): State<Greeting>,
    State(app): State<App>,
    ctx: Context<App>,
    job: JobId,
    stop: Cancellation,
) -> Result<String, IoError> {
    if greet.name.is_empty() {
        return Err(IoError::new(ErrorKind::NotFound, "nobody is there"));
    }
    assert!(job == ctx.job_id() && !stop.is_cancelled() && app.greeting.0 == greeting.0);
    Ok(format!("{} {}", greeting.0, greet.name))
}

async fn sweep(_: Sweep) -> HandlerResult<()> {
    Ok(())
}

#[tokio::test]
async fn a_task_is_tied_to_its_handler_its_name_and_its_options() {
    let database = database().await;
    let client = connect(&database).await;
    let trax = Trax::new(&client);
    for name in ["Ada", ""] {
        let job = NewJob::of(Greet { name: name.into() });
        trax.enqueue(&job).await.expect("a job is enqueued");
    }
    let app = App {
        greeting: Greeting("hello"),
    };
    let worker = Worker::with_state(worker_config(&database), app)
        .without_signals()
        .on_event(|_| ())
        .task(greet)
        .until_empty();
    let summary = worker.run().await.expect("the worker is not refused");
    assert_eq!((summary.completed, summary.dead), (1, 1));
    let sql = "select string_agg(group_name || ' ' || coalesce(output #>> '{}', error), '; ' order by job_id)
               from trax.run";
    assert_eq!(
        value::<String>(&client, sql).await,
        "door hello Ada; door nobody is there"
    );
}

fn mistake(refused: trax_client::Result<impl Sized>) -> String {
    match refused {
        Err(Error::Setup(mistake)) => mistake,
        Err(other) => panic!("it is no mistake of the setup: {other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[tokio::test]
async fn mistakes_of_the_setup_are_reported_before_anything_is_claimed() {
    let database = database().await;
    let said = mistake(worker(&database).run().await);
    assert!(said.contains(".task("), "{said}");
    let twice = worker(&database).task(sweep).task(sweep);
    assert!(mistake(twice.run().await).contains("\"sweep\" has two handlers"));
    for name in ["", " sweep", "sweep\n"] {
        let nobody =
            worker(&database).handle(name, |_: (), _: Context| async { HandlerResult::Ok(()) });
        let said = mistake(nobody.run().await);
        assert!(
            said.contains("is empty, or begins or ends with a space"),
            "{said}"
        );
    }
    let elsewhere = worker(&database)
        .task(sweep)
        .schedule(Manifest::new("nightly", "report").cron("0 2 * * *"));
    let said = mistake(elsewhere.run().await);
    assert!(
        said.contains("\"nightly\"") && said.contains("\"report\""),
        "{said}"
    );
    let wrong = worker(&database)
        .task(sweep)
        .schedule(Manifest::new("nightly", "sweep").cron("0 25 * * *"));
    let said = mistake(wrong.run().await);
    assert!(
        said.contains("\"nightly\" was refused") && said.contains("22023"),
        "{said}"
    );
}

#[tokio::test]
async fn a_schedule_beside_its_handler_is_stored_at_the_start_and_not_touched_by_the_next() {
    let database = database().await;
    let client = connect(&database).await;
    let scheduled = || {
        let nightly = Manifest::of("nightly", &Sweep).expect("the input is JSON");
        worker(&database)
            .task(sweep)
            .schedule(nightly.cron("0 2 * * *").timezone("Europe/Berlin"))
    };
    run(scheduled()).await;
    let stored = "select (to_jsonb(m) - 'updated_at')::text || s::text from trax.manifest m join trax.manifest_state s using (manifest_id)";
    let first = value::<String>(&client, stored).await;
    assert!(
        first.contains("0 2 * * *") && first.contains("sweep"),
        "{first}"
    );
    run(scheduled()).await;
    assert_eq!(value::<String>(&client, stored).await, first);
}

#[tokio::test]
async fn the_tasks_that_wait_without_a_handler_are_reported_at_the_start_and_left_alone() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue('b'), trax.enqueue('a'), trax.enqueue('sweep'), trax.enqueue('c', group_name => 'x'),
             trax.enqueue('later', run_at => now() + interval '1 h');
         create role only_a_worker_of_tasks login;
         select trax.grant_access('only_a_worker_of_tasks', 'worker')",
    )
    .await;
    let told = Arc::new(Mutex::new(Vec::new()));
    let worker = {
        let events = Arc::clone(&told);
        // The level worker gives enough rights.
        let mut config = worker_config(&database);
        config.user("only_a_worker_of_tasks");
        Worker::new(config)
            .without_signals()
            .groups(["default"])
            .on_event(move |event| {
                let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
                if let Event::Unhandled { .. } = event {
                    events.push(event.to_string());
                }
            })
            .handle("sweep", |_: serde_json::Value, _: Context| async {
                Ok::<_, JobError>(())
            })
    };
    assert_eq!(run(worker).await.completed, 1);
    let told = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(
        told,
        ["jobs are waiting for which this worker has no handler: a, b"]
    );
    let sql = "select string_agg(task, ' ' order by task) from trax.work_queue where attempts = 0";
    assert_eq!(value::<String>(&client, sql).await, "a b c later");
}

#[tokio::test]
async fn what_a_handler_says_of_its_progress_is_seen_while_it_runs() {
    let database = database().await;
    let client = connect(&database).await;
    let job = super::enqueue(&client, "long", 1).await;
    let long = |_: u32, ctx: Context| async move {
        for step in 1..=1000 {
            ctx.progress(json!({"done": step, "of": 1000}))?;
        }
        ctx.cancelled().await;
        Ok::<_, JobError>(Outcome::Output(json!("stopped").into()))
    };
    let running = start(
        worker(&database)
            .lease(Duration::from_secs(3))
            .handle("long", long),
    );
    eventually("the last word", PATIENCE, async || {
        let sql = format!("select coalesce(progress::text, '') from trax.job where job_id = {job}");
        match value::<String>(&client, &sql).await {
            seen if seen == "{\"of\": 1000, \"done\": 1000}" => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    let written = "select pg_stat_force_next_flush(), n_tup_ins + n_tup_upd from pg_stat_user_tables where relname = 'progress'";
    eventually("few writes", PATIENCE, async || {
        let row = client.query_one(written, &[]).await;
        match row.map(|row| row.get::<_, i64>(1)) {
            Ok(writes @ 1..=20) => Ok(writes),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    Trax::new(&client).cancel(job).await.expect("it is known");
    state_becomes(&client, job, "completed").await;
    running.drain().await;
}
