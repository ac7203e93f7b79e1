//! Handlers that record steps, sleep, wait for signals and have children.

use super::{start, worker};
use harness::scheduler::connect;
use harness::session::Session;
use harness::{PATIENCE, eventually};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use trax_client::{
    Children, Client as Trax, Context, Event, HandlerResult, JobError, NewJob, Outcome, Sent, Undo,
    Worker,
};

/// A database with a scheduler, and a session in it.
async fn scheduled() -> (trax_client::testkit::Database, Session) {
    let db = harness::scheduler::live_database().await;
    let s = Session::of(&db).await;
    (db, s)
}

async fn ends_as(s: &Session, job: i64, state: &str) {
    let sql = format!("select state from trax.job where job_id = {job}");
    eventually("the end of the job", PATIENCE, async || {
        let found = s.get(&sql).await;
        if found == state { Ok(()) } else { Err(found) }
    })
    .await;
}

/// Runs a worker until `work` ends.
async fn beside<T>(worker: Worker, work: impl Future<Output = T>) -> T {
    let running = start(worker);
    let done = work.await;
    running.drain().await;
    done
}

#[tokio::test]
async fn a_step_runs_once_and_a_later_attempt_continues_behind_it() {
    let (db, s) = scheduled().await;
    let (charges, attempts) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (charged, tried) = (Arc::clone(&charges), Arc::clone(&attempts));
    let worker = worker(&db).handle("flow", move |(): (), ctx: Context| {
        let (charges, attempts) = (Arc::clone(&charged), Arc::clone(&tried));
        async move {
            let charge: usize = ctx
                .step("charge", || async {
                    Ok::<_, std::io::Error>(charges.fetch_add(1, Ordering::SeqCst) + 7)
                })
                .await?;
            // The same name again is another step.
            let second: String = ctx
                .step("charge", || async {
                    Ok::<_, std::io::Error>("second".to_owned())
                })
                .await?;
            ctx.sleep("nap", Duration::from_millis(300)).await?;
            if attempts.fetch_add(1, Ordering::SeqCst) == 0 {
                return Err("not yet".into());
            }
            Ok((charge, second))
        }
    });
    let job = s
        .enqueue("'flow', 'null', max_retries => 1, retry_delay => '0 s'")
        .await;
    beside(worker, ends_as(&s, job, "completed")).await;
    assert_eq!(charges.load(Ordering::SeqCst), 1);
    let output = format!("select output, attempt from trax.job where job_id = {job}");
    assert_eq!(
        s.get(&output).await,
        "[7, \"second\"]|2",
        "the sleep used no attempt"
    );
    let steps = format!("select step, kind from trax.read_steps({job})");
    assert_eq!(s.get(&steps).await, "charge|step\ncharge#2|step\nnap|sleep");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_handler_waits_for_a_signal_and_cannot_go_on_while_it_is_suspended() {
    let (db, s) = scheduled().await;
    let swallowed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&swallowed);
    let worker = worker(&db).handle("flow", move |(): (), ctx: Context| {
        let swallowed = Arc::clone(&seen);
        async move {
            let click: Result<Option<u32>, _> = ctx.signal("click", None).await;
            swallowed.fetch_add(1, Ordering::SeqCst);
            let late: Option<u32> = ctx.signal("late", Some(Duration::from_millis(200))).await?;
            HandlerResult::Ok((click?, late))
        }
    });
    let job = s.enqueue("'flow', 'null'").await;
    let client = connect(&db).await;
    beside(worker, async {
        let waits = format!("select waits_for from trax.work_queue where job_id = {job}");
        s.becomes(&waits, "signal").await;
        assert_eq!(swallowed.load(Ordering::SeqCst), 0);
        let trax = Trax::new(&client);
        let id = trax_client::JobId(job);
        let sent = trax.send_signal(id, "click", &5, Some("once")).await;
        assert_eq!(sent.expect("it is sent"), Sent::Sent);
        let sent = trax.send_signal(id, "click", &6, Some("once")).await;
        assert_eq!(sent.expect("it is answered"), Sent::Duplicate);
        ends_as(&s, job, "completed").await;
        let sent = trax.send_signal(id, "click", &7, None).await;
        assert_eq!(sent.expect("it is answered"), Sent::Ended);
    })
    .await;
    let output = format!("select output, attempt from trax.job where job_id = {job}");
    assert_eq!(s.get(&output).await, "[5, null]|1");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_handler_spawns_children_and_gets_their_results() {
    let (db, s) = scheduled().await;
    let worker = worker(&db)
        .handle("flow", |(): (), ctx: Context| async move {
            for n in 1..=3 {
                ctx.spawn("child", &NewJob::new("double", n)).await?;
            }
            let children = ctx.children(Children::All).await?;
            let sum = children.iter().map(|child| child.output::<u32>());
            let sum: trax_client::Result<Vec<u32>> = sum.collect();
            HandlerResult::Ok(sum?.iter().sum::<u32>())
        })
        .handle("double", |n: u32, _: Context| async move {
            HandlerResult::Ok(2 * n)
        });
    let job = s.enqueue("'flow', 'null'").await;
    beside(worker, ends_as(&s, job, "completed")).await;
    let output = format!("select output from trax.job where job_id = {job}");
    assert_eq!(s.get(&output).await, "12");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_output_of_a_child_that_failed_is_its_error() {
    let (db, s) = scheduled().await;
    let worker = worker(&db)
        .handle("flow", |(): (), ctx: Context| async move {
            ctx.spawn("charge", &NewJob::new("charge", ())).await?;
            let children = ctx.children(Children::All).await?;
            let output = children[0].output::<()>();
            HandlerResult::Ok(output.map_err(|error| error.to_string()))
        })
        .handle("charge", |(): (), _: Context| async move {
            HandlerResult::<()>::Err(JobError::permanent("card declined"))
        });
    let job = s.enqueue("'flow', 'null'").await;
    beside(worker, ends_as(&s, job, "completed")).await;
    let output = format!("select output ->> 'Err' from trax.job where job_id = {job}");
    assert_eq!(
        s.get(&output).await,
        "the child of step \"charge\" is failed: card declined"
    );
}

#[tokio::test]
async fn what_a_failed_job_did_is_undone() {
    let (db, s) = scheduled().await;
    let worker = worker(&db)
        .handle("flow", |(): (), ctx: Context| async move {
            let undo = Undo::new("refund", 7)?;
            ctx.step_with_undo("charge", undo, || async { Ok::<_, std::io::Error>(7) })
                .await?;
            HandlerResult::<()>::Err(trax_client::JobError::permanent("no"))
        })
        .handle("refund", |charge: u32, _: Context| async move {
            HandlerResult::Ok(charge)
        });
    let job = s.enqueue("'flow', 'null'").await;
    beside(worker, async {
        ends_as(&s, job, "failed").await;
        s.becomes(
            "select state, output from trax.job where task = 'refund'",
            "completed|7",
        )
        .await;
    })
    .await;
    s.assert_healthy().await;
}

async fn note(s: &Session, job: i64) -> String {
    s.get(&format!("select detail from trax.run where job_id = {job}"))
        .await
}

#[tokio::test]
async fn steps_that_changed_code_does_not_reach_are_an_event() {
    let (db, s) = scheduled().await;
    let events = Arc::new(Mutex::new(Vec::new()));
    let (heard, own) = (Arc::clone(&events), Arc::new(connect(&db).await));
    let worker = worker(&db)
        .on_event(move |event: &Event| {
            if let Event::StepsUnreached { steps, .. } = event {
                heard.lock().expect("no panic").push(steps.clone());
            }
        })
        .handle("flow", move |(): (), ctx: Context| {
            let own = Arc::clone(&own);
            async move {
                ctx.step("new", || async { Ok::<_, std::io::Error>(1) })
                    .await?;
                // Reached by the handler's own client.
                let trax = Trax::new(&*own);
                let (job_id, token) = (ctx.job_id(), ctx.token());
                trax.record_step(job_id, token, "own", &2, None).await?;
                trax.sleep(job_id, token, "nap", Duration::ZERO).await?;
                HandlerResult::Ok(())
            }
        });
    let job = s.enqueue("'flow', 'null'").await;
    let claimed = s.claim_one("").await;
    s.get(&format!(
        "select trax.record_step({0}, 'old', '1'); select trax.record_step({0}, 'own', '2');
        select trax.sleep({0}, 'nap', now()); select trax.release({0})",
        claimed.key()
    ))
    .await;
    beside(worker, ends_as(&s, job, "completed")).await;
    assert_eq!(*events.lock().expect("no panic"), [["old".to_owned()]]);
    assert_eq!(note(&s, job).await, r#"{"unreached_steps": ["old"]}"#);
}

#[tokio::test]
async fn steps_of_which_changed_code_has_none_are_an_event() {
    let (db, s) = scheduled().await;
    let events = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&events);
    let worker = worker(&db)
        .on_event(move |event: &Event| {
            if let Event::StepsUnreached { steps, .. } = event {
                heard.lock().expect("no panic").push(steps.clone());
            }
        })
        .handle("flow", |(): (), _: Context| async { HandlerResult::Ok(()) });
    let job = s.enqueue("'flow', 'null'").await;
    let claimed = s.claim_one("").await;
    s.get(&format!(
        "select trax.record_step({0}, 'old', '1'); select trax.release({0})",
        claimed.key()
    ))
    .await;
    beside(worker, ends_as(&s, job, "completed")).await;
    assert_eq!(*events.lock().expect("no panic"), [["old".to_owned()]]);
    assert_eq!(note(&s, job).await, r#"{"unreached_steps": ["old"]}"#);
}

#[tokio::test]
async fn a_completion_in_the_handlers_transaction_notes_the_steps_that_it_has_not_reached() {
    let (db, s) = scheduled().await;
    let own = Arc::new(connect(&db).await);
    let worker = worker(&db).handle("flow", move |steps: usize, ctx: Context| {
        let own = Arc::clone(&own);
        async move {
            for _ in 0..steps {
                ctx.step("new", || async { Ok::<_, std::io::Error>(1) })
                    .await?;
            }
            let trax = Trax::new(&*own);
            assert!(trax.complete(ctx.job_id(), ctx.token(), &1).await?);
            HandlerResult::Ok(Outcome::Recorded)
        }
    });
    let (mut jobs, mut releases) = (Vec::new(), String::new());
    for steps in 0..2 {
        jobs.push(s.enqueue(&format!("'flow', '{steps}'")).await);
        let key = s.claim_one("").await.key();
        s.get(&format!(
            "select trax.record_step({key}, 'old', '1'); select trax.record_step({key}, 'older', '1')"
        ))
        .await;
        releases.push_str(&format!("select trax.release({key});"));
    }
    s.get(&releases).await;
    let all = async {
        for job in &jobs {
            ends_as(&s, *job, "completed").await;
        }
    };
    beside(worker, all).await;
    for job in jobs {
        assert_eq!(
            note(&s, job).await,
            r#"{"unreached_steps": ["old", "older"]}"#
        );
    }
}

#[tokio::test]
async fn a_note_names_as_many_steps_as_every_server_takes() {
    let (db, s) = scheduled().await;
    let limit = format!(
        "alter database {} set trax.max_input_bytes = '1kB'",
        db.name()
    );
    s.get(&limit).await;
    let worker = worker(&db).handle("flow", |(): (), _: Context| async { HandlerResult::Ok(7) });
    let job = s.enqueue("'flow', 'null'").await;
    let claimed = s.claim_one("").await;
    s.get(&format!(
        "select trax.record_step({0}, n || repeat('s', 200)) from generate_series(1, 6) n;
        select trax.release({0})",
        claimed.key()
    ))
    .await;
    beside(worker, ends_as(&s, job, "completed")).await;
    let kept = format!(
        "select output, jsonb_array_length(detail -> 'unreached_steps') from trax.run where job_id = {job}"
    );
    assert_eq!(s.get(&kept).await, "7|3");
}

#[tokio::test]
async fn steps_run_inline_in_a_test_of_a_handler() {
    let (db, s) = scheduled().await;
    let worker = worker(&db).handle("flow", |(): (), ctx: Context| async move {
        let name: String = ctx
            .step("name", || async {
                Ok::<_, std::io::Error>("tea".to_owned())
            })
            .await?;
        let click: Option<u32> = ctx.signal("click", None).await?;
        HandlerResult::Ok((name, click))
    });
    let job = s.enqueue("'flow', 'null'").await;
    let client = connect(&db).await;
    let ran = worker.run_one(&client, "flow").await.expect("it runs");
    assert_eq!(ran.ended, trax_client::testkit::Ended::Suspended);
    s.get(&format!("select trax.send_signal({job}, 'click', '5')"))
        .await;
    let ran = worker.run_one(&client, "flow").await.expect("it runs");
    assert_eq!(
        ran.output.map(|output| output.text().to_owned()).as_deref(),
        Some("[\"tea\",5]")
    );
}

#[tokio::test]
async fn a_step_that_failed_and_is_tried_again_keeps_its_name() {
    let (db, s) = scheduled().await;
    let charges = Arc::new(AtomicUsize::new(0));
    let charged = Arc::clone(&charges);
    let worker = worker(&db).handle("flow", move |(): (), ctx: Context| {
        let charges = Arc::clone(&charged);
        async move {
            let mut tries = 0;
            let charge: usize = loop {
                tries += 1;
                let work = || async {
                    match tries {
                        1 => Err("the card is busy"),
                        _ => Ok(charges.fetch_add(1, Ordering::SeqCst)),
                    }
                };
                if let Ok(charge) = ctx.step("charge", work).await {
                    break charge;
                }
            };
            if ctx.attempt() == 1 {
                let dropped = ctx.step("late", std::future::pending::<HandlerResult<()>>);
                tokio::select! {
                    biased;
                    late = dropped => late?,
                    () = tokio::task::yield_now() => {}
                }
            }
            ctx.step("late", || async { HandlerResult::Ok(()) }).await?;
            if ctx.attempt() == 1 {
                return Err("once".into());
            }
            Ok(charge)
        }
    });
    // A handler without input takes the empty object.
    let job = s
        .enqueue("'flow', max_retries => 1, retry_delay => '0 s'")
        .await;
    beside(worker, ends_as(&s, job, "completed")).await;
    assert_eq!(charges.load(Ordering::SeqCst), 1);
    let steps = format!("select step, attempt from trax.read_steps({job})");
    assert_eq!(s.get(&steps).await, "charge|1\nlate|1");
}

#[tokio::test]
async fn a_step_that_could_not_be_recorded_is_refused_before_its_work() {
    let (db, s) = scheduled().await;
    let done = Arc::new(AtomicUsize::new(0));
    let work_done = Arc::clone(&done);
    let worker = worker(&db).handle("flow", move |name: String, ctx: Context| {
        let done = Arc::clone(&work_done);
        async move {
            let work = || async {
                done.fetch_add(1, Ordering::SeqCst);
                HandlerResult::Ok(())
            };
            match name.as_str() {
                "undo" => ctx.step_with_undo("a", Undo::new(" ", 1)?, work).await,
                name => ctx.step(name, work).await,
            }
        }
    });
    let mut jobs = Vec::new();
    for name in ["", " a", &"x".repeat(256), "undo"] {
        jobs.push(
            s.enqueue(&format!("'flow', to_jsonb('{name}'::text)"))
                .await,
        );
    }
    beside(worker, async {
        for job in jobs {
            ends_as(&s, job, "failed").await;
        }
    })
    .await;
    assert_eq!(done.load(Ordering::SeqCst), 0);
    let attempts = "select count(*), max(attempt) from trax.run where final";
    assert_eq!(s.get(attempts).await, "4|1");
}

#[tokio::test]
async fn a_step_that_is_done_and_cannot_be_recorded_is_undone() {
    let (db, s) = scheduled().await;
    let worker = worker(&db).handle("flow", |(): (), ctx: Context| async move {
        let undo = Undo::new("refund", 7)?;
        let work = || async { HandlerResult::Ok(f64::NAN) };
        ctx.step_with_undo("charge", undo, work).await?;
        HandlerResult::Ok(())
    });
    let job = s.enqueue("'flow', 'null', max_retries => 3").await;
    beside(worker, ends_as(&s, job, "failed")).await;
    let refund = "select task, input from trax.work_queue";
    assert_eq!(s.get(refund).await, "refund|7");
    let ended = format!("select attempt, error from trax.run where job_id = {job}");
    let ended = s.get(&ended).await;
    assert!(
        ended.starts_with("1|the result of step \"charge\" is not JSON"),
        "{ended}"
    );
}
