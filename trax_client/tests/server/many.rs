//! Handlers that take many jobs in one call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use trax_client::{
    Client, Context, HandlerResult, JobError, JobId, JobOptions, Many, NewJob, NewJobs, Worker,
};

use super::{DEADLINE, Fixture, Result, run, until};

/// Longer than any test: only a full call begins.
const NEVER: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_millis(50);

/// The inputs of each call, sorted.
type Calls = Arc<Mutex<Vec<Vec<i32>>>>;

/// Jobs, and the calls that they are in.
struct Scene {
    fixture: Fixture,
    calls: Calls,
}

impl Scene {
    async fn new(jobs: i32) -> Result<Self> {
        let fixture = Fixture::new("many").await?;
        let inputs: Vec<i32> = (1..=jobs).collect();
        let jobs = NewJobs::new("t", &inputs).with(JobOptions::new().max_retries(0));
        Client::new(&fixture.connection).enqueue_many(&jobs).await?;
        Ok(Scene {
            fixture,
            calls: Calls::default(),
        })
    }

    fn worker(&self) -> Worker {
        self.fixture.worker().concurrency(20)
    }

    /// A worker whose calls succeed.
    fn counting(&self, many: Many<i32>) -> Worker {
        let calls = Arc::clone(&self.calls);
        self.worker().handle_many("t", many, move |jobs| {
            note(&calls, &jobs);
            async { HandlerResult::Ok(()) }
        })
    }

    async fn until(&self, sql: &str) -> Result {
        until(&self.fixture.connection, sql).await
    }

    fn sizes(&self) -> Vec<usize> {
        let calls = self.calls.lock().expect("no call panicked");
        let mut sizes: Vec<_> = calls.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        sizes
    }

    /// Returns `input error` of the runs, in the order of the jobs.
    async fn errors(&self) -> Result<Vec<String>> {
        let sql = "select concat_ws(' ', input, error) from trax.run where state = 'failed' order by job_id";
        let rows = self.fixture.connection.query(sql, &[]).await?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }
}

fn note(calls: &Calls, jobs: &[(i32, Context)]) {
    let mut inputs: Vec<_> = jobs.iter().map(|(input, _)| *input).collect();
    inputs.sort_unstable();
    calls.lock().expect("no call panicked").push(inputs);
}

#[tokio::test]
async fn a_call_begins_when_it_is_full_and_with_the_rest_when_its_time_is_up() -> Result {
    let scene = Scene::new(8).await?;
    let many = Many::up_to(3).max_wait(SOON);
    assert_eq!(run(scene.counting(many)).await?.completed, 8);
    assert_eq!(scene.sizes(), [2, 3, 3]);

    let scene = Scene::new(6).await?;
    let many = Many::up_to(3).max_wait(NEVER);
    assert_eq!(run(scene.counting(many)).await?.completed, 6);
    assert_eq!(scene.sizes(), [3, 3]);
    Ok(())
}

#[tokio::test]
async fn jobs_of_different_keys_are_in_different_calls() -> Result {
    let scene = Scene::new(10).await?;
    let many = Many::up_to(20).max_wait(SOON).by(|input: &i32| input % 2);
    assert_eq!(run(scene.counting(many)).await?.completed, 10);
    let calls = scene.calls.lock().expect("no call panicked");
    let mixed = calls
        .iter()
        .any(|call| call.iter().any(|n| n % 2 != call[0] % 2));
    assert!(calls.len() >= 2 && !mixed, "{calls:?}");
    Ok(())
}

#[tokio::test]
async fn each_job_has_a_result_of_its_own() -> Result {
    let scene = Scene::new(3).await?;
    let third_fails = |jobs: Vec<(i32, Context)>| async move {
        let result = |(input, ctx): (i32, Context)| match input {
            3 => Err(JobError::permanent(format!("attempt {}", ctx.attempt()))),
            _ => Ok(input * 10),
        };
        HandlerResult::Ok(jobs.into_iter().map(result).collect::<Vec<_>>())
    };
    let many = Many::up_to(3).max_wait(NEVER);
    let summary = run(scene.worker().handle_many("t", many, third_fails)).await?;
    assert_eq!((summary.completed, summary.dead), (2, 1), "{summary}");
    let sql = "select string_agg(output::text, ' ' order by job_id) from trax.run";
    let outputs: String = scene.fixture.connection.query_one(sql, &[]).await?.get(0);
    assert_eq!(outputs, "10 20");
    assert_eq!(scene.errors().await?, ["3 attempt 1"]);
    Ok(())
}

#[tokio::test]
async fn an_error_a_panic_or_a_wrong_number_of_results_fails_all_of_a_call() -> Result {
    async fn failed(jobs: Vec<(i32, Context)>) -> HandlerResult<Vec<HandlerResult<()>>> {
        match jobs.len() {
            1 => Err(JobError::permanent("refused")),
            2 => panic!("oops"),
            4 => {
                jobs[0].1.sleep("nap", NEVER).await?;
                Ok(Vec::new())
            }
            _ => Ok(vec![Ok(())]),
        }
    }
    for (jobs, said) in [
        (1, "refused"),
        (2, "panicked: oops"),
        (3, "the handler of \"t\" returned 1 result for 3 jobs"),
        (
            4,
            "step \"nap\" cannot suspend a job of a call with others; write a handler for one job",
        ),
    ] {
        let scene = Scene::new(jobs).await?;
        let many = Many::up_to(usize::try_from(jobs)?).max_wait(NEVER);
        let summary = run(scene.worker().handle_many("t", many, failed)).await?;
        assert_eq!(summary.dead, u64::try_from(jobs)?, "{summary}");
        let wanted: Vec<_> = (1..=jobs).map(|input| format!("{input} {said}")).collect();
        assert_eq!(scene.errors().await?, wanted);
    }
    Ok(())
}

#[tokio::test]
async fn a_job_that_is_cancelled_before_its_call_is_in_none() -> Result {
    let scene = Scene::new(2).await?;
    let worker = scene.counting(Many::up_to(3).max_wait(NEVER));
    let stop = worker.shutdown();
    let running = tokio::spawn(worker.lease(Duration::from_millis(300)).run());
    let client = Client::new(&scene.fixture.connection);
    scene.until("select count(*) = 2 from trax.lease").await?;
    client.cancel(JobId(1)).await?;
    scene
        .until("select count(*) = 1 from trax.run where state = 'cancelled'")
        .await?;
    for input in 3..=4 {
        client.enqueue(&NewJob::new("t", input)).await?;
    }
    scene.until("select count(*) = 4 from trax.run").await?;
    stop.drain();
    let summary = tokio::time::timeout(DEADLINE, running).await???;
    assert_eq!(summary.completed, 3, "{summary}");
    let calls = scene.calls.lock().expect("no call panicked");
    assert_eq!(*calls, [[2, 3, 4]]);
    Ok(())
}

#[tokio::test]
async fn a_call_for_which_no_job_waits_any_more_is_dropped() -> Result {
    struct Dropped(Arc<Semaphore>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }
    let scene = Scene::new(2).await?;
    let (begun, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let guards = (Arc::clone(&begun), Arc::clone(&dropped));
    let endless = move |_: Vec<(i32, Context)>| {
        let guard = Dropped(Arc::clone(&guards.1));
        guards.0.add_permits(1);
        async move {
            let _guard = guard;
            std::future::pending::<HandlerResult<()>>().await
        }
    };
    let worker = scene
        .worker()
        .handle_many("t", Many::up_to(2).max_wait(NEVER), endless)
        .grace(Duration::ZERO)
        .cancel_patience(Duration::ZERO);
    let stop = worker.shutdown();
    let running = tokio::spawn(worker.run());
    tokio::time::timeout(DEADLINE, begun.acquire())
        .await??
        .forget();
    stop.release();
    let summary = tokio::time::timeout(DEADLINE, running).await???;
    assert_eq!(summary.released, 2, "{summary}");
    tokio::time::timeout(DEADLINE, dropped.acquire())
        .await??
        .forget();
    Ok(())
}

#[tokio::test]
async fn a_worker_that_cannot_gather_so_many_is_refused() -> Result {
    let scene = Scene::new(1).await?;
    for (many, said) in [
        (
            Many::up_to(21),
            "takes 21 jobs at once, and the worker runs 20: type .concurrency(21), or Many::up_to(20)",
        ),
        (
            Many::up_to(0),
            "takes no job at once; type Many::up_to(100)",
        ),
    ] {
        let refused = scene.counting(many).run().await;
        let error = refused.expect_err("it is refused").to_string();
        assert!(error.contains(said), "{error}");
    }
    Ok(())
}
