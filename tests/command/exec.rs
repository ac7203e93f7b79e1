//! `trax worker --exec`: any program is a worker.

use super::{bare, json, text, trax};
use harness::process::{Orphan, Process, Scratch, is_alive, run, send_signal};
use harness::scheduler::{connect, execute, new_name, value, violations};
use harness::{PATIENCE, database, eventually, shared_server};
use std::path::Path;
use std::time::{Duration, Instant};

/// Writes an executable program.
fn program(files: &Scratch, name: &str, body: &str) -> String {
    let path = files.path().join(name);
    std::fs::write(&path, body).expect("a program can be written");
    format!("exec sh {}", path.display())
}

/// Ends in a way that its task names.
const MANY_ENDS: &str = r#"
input=$(cat)
case $TRAX_TASK in
    good) printf '{"input": %s, "job": %s, "attempt": %s, "deadline": %s}' \
        "$input" "$TRAX_JOB_ID" "$TRAX_ATTEMPT" "$((TRAX_DEADLINE > 1700000000))" ;;
    plain) echo "not JSON" ;;
    later) echo "not now" >&2; exit 75 ;;
    never) echo "what is $input" >&2; exit 65 ;;
    broken) for i in $(seq 3000); do echo "line $i" >&2; done; exit 3 ;;
    killed) kill -9 $$ ;;
esac"#;

#[tokio::test]
async fn the_exit_code_of_the_program_is_the_outcome() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("exit-codes");
    execute(
        &client,
        "select trax.enqueue(t, '{\"n\": 1}', max_retries => 1, timeout => '1 h')
            from unnest('{good,plain,later,never,broken,killed}'::text[]) t",
    )
    .await;
    let exec = program(&files, "worker.sh", MANY_ENDS);
    let (code, _, errors) = run(&mut trax(
        &database,
        &["worker", "--until-empty", "--exec", &exec],
    ));
    assert_eq!(code, Some(0), "{errors}");

    let output = json(
        &text(
            &client,
            "select output::text from trax.run where task = 'good'",
        )
        .await,
    );
    assert_eq!(output["input"], serde_json::json!({"n": 1}));
    assert_eq!(
        (&output["attempt"], &output["deadline"]),
        (&1.into(), &1.into())
    );
    assert!(
        value::<bool>(
            &client,
            "select output is null from trax.run where task = 'plain'"
        )
        .await
    );
    let states =
        "select string_agg(concat_ws(' ', task, state, final), ', ' order by task) from trax.run";
    let expected = "broken failed f, good completed t, killed failed f, later failed f, never failed t, plain completed t";
    assert_eq!(text(&client, states).await, expected);
    let error = async |task: &str| {
        text(
            &client,
            &format!("select error from trax.run where task = '{task}'"),
        )
        .await
    };
    assert!(error("later").await.contains("not now"));
    assert!(error("never").await.contains("what is {\"n\":1}"));
    assert!(error("killed").await.contains("signal 9"));
    let broken = error("broken").await;
    assert!(
        broken.ends_with("line 3000") && !broken.contains("line 1\n"),
        "the end of it is kept"
    );
    assert_eq!(
        text(
            &client,
            "select string_agg(task, ' ') from trax.dead_letter"
        )
        .await,
        "never"
    );
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_claims_only_what_its_filters_name() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue(t, group_name => g) from unnest('{a,b,c}'::text[]) t, unnest('{x,y}'::text[]) g",
    )
    .await;
    let arguments = [
        "worker",
        "--until-empty",
        "--task",
        "a",
        "--task",
        "b",
        "--group",
        "x",
        "--exec",
        "true",
    ];
    let (code, _, errors) = run(&mut trax(&database, &arguments));
    assert_eq!(code, Some(0), "{errors}");
    let done = "select string_agg(task || group_name, ' ' order by task) from trax.run";
    assert_eq!(text(&client, done).await, "ax bx");
}

/// Waits until the program has written its process id.
async fn program_in(file: &Path, worker: &Process) -> Orphan {
    eventually("the program's process id", PATIENCE, async || {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.trim()
            .parse::<i32>()
            .map(Orphan)
            .map_err(|_| format!("{text:?}; {}", worker.output()))
    })
    .await
}

async fn ends(program: &Orphan, limit: Duration) {
    eventually("the end of the program", limit, async || {
        if is_alive(program.0) {
            Err(format!("{} is alive", program.0))
        } else {
            Ok(())
        }
    })
    .await;
}

#[tokio::test]
async fn a_cancel_ends_the_program_first_kindly_then_by_force() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("cancel");
    let body = r#"
echo $$ > "$DIR/$TRAX_TASK.writing"
if [ $TRAX_TASK = stubborn ]; then trap '' TERM; else trap 'echo bye > "$DIR/bye"; exit 1' TERM; fi
mv "$DIR/$TRAX_TASK.writing" "$DIR/$TRAX_TASK"
while true; do sleep 0.1; done"#;
    let exec = program(&files, "worker.sh", body);
    let mut command = trax(
        &database,
        &["worker", "--lease", "1", "--grace", "1", "--exec", &exec],
    );
    command.env("DIR", files.path());
    execute(
        &client,
        "select trax.enqueue('kind'), trax.enqueue('stubborn')",
    )
    .await;
    let worker = Process::start(command);
    let kind = program_in(&files.path().join("kind"), &worker).await;
    let stubborn = program_in(&files.path().join("stubborn"), &worker).await;
    let begun = Instant::now();
    execute(&client, "select trax.cancel(job_id) from trax.lease").await;
    ends(&kind, Duration::from_secs(5)).await;
    assert!(
        files.path().join("bye").exists(),
        "it was asked before it was killed"
    );
    ends(&stubborn, Duration::from_secs(5)).await;
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "the grace was not given"
    );
    eventually("two cancelled jobs", PATIENCE, async || {
        let sql = "select coalesce(string_agg(task || ' ' || state, ', ' order by task), '') from trax.job";
        let seen = text(&client, sql).await;
        if seen == "kind cancelled, stubborn cancelled" { Ok(()) } else { Err(seen) }
    })
    .await;
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn sigterm_gives_a_program_its_grace_and_its_job_back_and_leaves_no_process() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("sigterm-exec");
    let body = r#"
trap '' TERM
echo $$ > "$DIR/writing"; mv "$DIR/writing" "$DIR/pid"
while true; do sleep 0.1; done"#;
    let exec = program(&files, "worker.sh", body);
    let mut command = trax(&database, &["worker", "--grace", "1", "--exec", &exec]);
    command.env("DIR", files.path());
    execute(&client, "select trax.enqueue('t')").await;
    let mut worker = Process::start(command);
    let running = program_in(&files.path().join("pid"), &worker).await;
    send_signal("TERM", worker.id());
    let status = worker.ends(Duration::from_secs(10)).await;
    assert_eq!(status.code(), Some(0), "{}", worker.output());
    ends(&running, Duration::from_secs(2)).await;
    let sql = "select attempts || ' ' || (waits_for is null) from trax.work_queue";
    assert_eq!(text(&client, sql).await, "0 true");
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.run").await,
        0
    );
}

#[tokio::test]
async fn a_role_with_the_level_worker_can_run_it_and_no_more() {
    let database = database().await;
    let client = connect(&database).await;
    let role = new_name("hand");
    execute(
        &client,
        &format!("create role {role} login; select trax.grant_access('{role}', 'worker')"),
    )
    .await;
    execute(&client, "select trax.enqueue('t')").await;
    let as_role = |arguments: &[&str]| {
        let mut command = bare();
        command.arg("--database-url").arg(format!(
            "postgres://{role}@127.0.0.1:{}/{}",
            shared_server().port(),
            database.name()
        ));
        command.args(arguments);
        command
    };
    let (code, _, errors) = run(&mut as_role(&["worker", "--until-empty", "--exec", "true"]));
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(
        text(&client, "select state from trax.job").await,
        "completed"
    );
    let (code, _, errors) = run(&mut as_role(&["status"]));
    assert_eq!(code, Some(1));
    assert!(errors.contains("trax.grant_access("), "{errors}");
}
