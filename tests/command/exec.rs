//! `trax worker --exec`: any program is a worker.

use super::{bare, json, text, trax};
use harness::process::{Scratch, run};
use harness::scheduler::{connect, execute, new_name, value, violations};
use harness::{database, shared_server};
use std::process::Command;

/// Writes an executable program.
pub(super) fn program(files: &Scratch, name: &str, body: &str) -> String {
    let path = files.path().join(name);
    std::fs::write(&path, body).expect("a program can be written");
    format!("exec sh {}", path.display())
}

#[tokio::test]
async fn a_program_gets_and_gives_json_as_it_is() {
    let database = database().await;
    let client = connect(&database).await;
    let sql = "select trax.enqueue_many('t', array[
        '{\"id\": 12345678901234567890123}', '1e400', repeat('7', 1000), repeat('[', 200) || repeat(']', 200)
    ]::jsonb[])";
    execute(&client, sql).await;
    let (code, _, errors) = run(&mut trax(
        &database,
        &["worker", "--until-empty", "--all-tasks", "--exec", "cat"],
    ));
    assert_eq!(code, Some(0), "{errors}");
    let same =
        "select count(*) from trax.run where state = 'completed' and output::text = input::text";
    assert_eq!(value::<i64>(&client, same).await, 4, "{errors}");
}

/// Ends in the way that its task names.
const MANY_ENDS: &str = r#"
input=$(cat)
case $TRAX_TASK in
    good) printf '{"input": %s, "job": %s, "attempt": %s, "of": %s, "deadline": %s}' \
        "$input" "$TRAX_JOB_ID" "$TRAX_ATTEMPT" "$TRAX_MAX_ATTEMPTS" "$((TRAX_DEADLINE > TRAX_QUEUED_AT && TRAX_QUEUED_AT > 1700000000))" ;;
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
        &["worker", "--until-empty", "--all-tasks", "--exec", &exec],
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
        (&output["attempt"], &output["of"], &output["deadline"]),
        (&1.into(), &2.into(), &1.into())
    );
    let plain = "select output #>> '{}' from trax.run where task = 'plain'";
    assert_eq!(text(&client, plain).await, "not JSON");
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
    assert!(error("never").await.contains("what is {\"n\": 1}"));
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
    let (code, _, errors) = run(&mut as_role(&[
        "worker",
        "--until-empty",
        "--all-tasks",
        "--exec",
        "true",
    ]));
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(
        text(&client, "select state from trax.job").await,
        "completed"
    );
    let (code, _, errors) = run(&mut as_role(&["status"]));
    assert_eq!(code, Some(1));
    assert!(errors.contains("type: trax grant ROLE reader"), "{errors}");
}

const PYTHON: &str = r#"
import json, os, sys
job = json.load(sys.stdin)
if job.get("bad"):
    print("no such customer", file=sys.stderr)
    sys.exit(65)
if int(os.environ["TRAX_ATTEMPT"]) == 1:
    print(json.dumps({"retry_in": 7200, "reason": "rate limit"}))
    sys.exit(75)
json.dump({"sum": sum(job["numbers"]), "task": os.environ["TRAX_TASK"], "group": os.environ["TRAX_GROUP"]}, sys.stdout)
"#;

#[tokio::test]
async fn a_python_program_says_when_it_is_retried_and_then_completes() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("python");
    let path = files.path().join("job.py");
    std::fs::write(&path, PYTHON).expect("a program can be written");
    let exec = format!("python3 {}", path.display());
    execute(
        &client,
        "select trax.enqueue('sum', '{\"numbers\": [1, 2, 39]}', group_name => 'g'), trax.enqueue('sum', '{\"bad\": true}')",
    )
    .await;
    let work = || {
        let (code, _, errors) = run(&mut trax(
            &database,
            &["worker", "--until-empty", "--all-tasks", "--exec", &exec],
        ));
        assert_eq!(code, Some(0), "{errors}");
    };
    work();
    let waits = "select waits_for || ' ' || (run_at - now() between '119 min' and '120 min') from trax.work_queue";
    assert_eq!(text(&client, waits).await, "time true");
    let detail = "select detail ->> 'reason' || ' ' || error from trax.run where not final";
    assert_eq!(text(&client, detail).await, "rate limit temporary failure");
    assert_eq!(
        text(&client, "select last_error from trax.dead_letter").await,
        "bad input: no such customer"
    );
    execute(
        &client,
        "update trax.work_queue set run_at = now() - interval '1 s'; select trax.tick()",
    )
    .await;
    work();
    let output = json(
        &text(
            &client,
            "select output::text from trax.run where state = 'completed'",
        )
        .await,
    );
    assert_eq!(
        output,
        serde_json::json!({"sum": 42, "task": "sum", "group": "g"})
    );
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

/// Reads its input, and ends as its first byte says: normally, by a signal, or never.
const RUST: &str = r#"
use std::io::Read;
fn main() {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).unwrap();
    match input.trim() {
        "1" => println!("{{\"length\": {}}}", input.len()),
        "2" => std::process::abort(),
        _ => std::process::exit(3),
    }
}
"#;

#[tokio::test]
async fn a_compiled_program_completes_fails_and_ends_by_a_signal() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("compiled");
    let source = files.path().join("job.rs");
    let binary = files.path().join("job");
    std::fs::write(&source, RUST).expect("a program can be written");
    let (code, _, errors) = run(Command::new("rustc").arg("-o").arg(&binary).arg(&source));
    assert_eq!(code, Some(0), "{errors}");
    execute(
        &client,
        "select trax.enqueue_many('t', array['1', '2', '3']::jsonb[])",
    )
    .await;
    let exec = format!("ulimit -c 0; exec {}", binary.display());
    let (code, _, errors) = run(&mut trax(
        &database,
        &["worker", "--until-empty", "--all-tasks", "--exec", &exec],
    ));
    assert_eq!(code, Some(0), "{errors}");
    let runs = "select string_agg(concat_ws(' ', input, state, error, output), ', ' order by job_id) from trax.run";
    assert_eq!(
        text(&client, runs).await,
        "1 completed {\"length\": 1}, 2 failed killed by signal 6, 3 failed exit code 3"
    );
}

#[tokio::test]
async fn a_snooze_spends_no_attempt_a_cancel_ends_it_and_a_temporary_failure_takes_the_workers_delay()
 {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue('later'), trax.enqueue('busy'), trax.enqueue('no')",
    )
    .await;
    let exec = "case $TRAX_TASK in later) echo '{\"snooze\": 3600}';; no) echo '{\"cancel\": \"too late\"}';; esac; exit 75";
    let arguments = [
        "worker",
        "--until-empty",
        "--retry-delay",
        "7200",
        "--name",
        "zoe",
        "--all-tasks",
        "--exec",
        exec,
    ];
    let (code, _, errors) = run(&mut trax(&database, &arguments));
    assert_eq!(code, Some(0), "{errors}");
    let waits = "select string_agg(concat_ws(' ', task, attempts, round(extract(epoch from run_at - now()) / 3600)), \
                 ', ' order by task) from trax.work_queue";
    assert_eq!(text(&client, waits).await, "busy 1 2, later 0 1");
    let runs = "select string_agg(concat_ws(' ', worker, task, state, error), ', ' order by task) from trax.run";
    assert_eq!(
        text(&client, runs).await,
        "zoe busy failed temporary failure, zoe no cancelled too late"
    );
}

#[tokio::test]
async fn a_job_of_a_manifest_knows_it_and_an_inner_worker_inherits_nothing() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.schedule('m', 'env', cron => '* * * * *', group_name => 'g');
         update trax.manifest_state set next_run_at = now(), next_scheduled_for = '2026-01-01 00:00Z';
         select trax.tick(); select trax.enqueue('env')",
    )
    .await;
    let exec = r#"printf '"%s %s %s"' "$TRAX_GROUP" "$TRAX_MANIFEST" "$TRAX_SCHEDULED_FOR""#;
    let mut command = trax(
        &database,
        &["worker", "--until-empty", "--all-tasks", "--exec", exec],
    );
    command
        .env("TRAX_MANIFEST", "outer")
        .env("TRAX_SCHEDULED_FOR", "1");
    let (code, _, errors) = run(&mut command);
    assert_eq!(code, Some(0), "{errors}");
    let outputs =
        "select string_agg(output #>> '{}', ',' order by manifest nulls last) from trax.run";
    assert_eq!(text(&client, outputs).await, "g m 1767225600,default  ");
}

#[tokio::test]
async fn the_trace_of_who_enqueues_reaches_the_program_and_a_malformed_one_harms_nothing() {
    let database = database().await;
    let client = connect(&database).await;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (trace, state, said) in [
        (parent, "vendor=value", ""),
        (parent, "=", "ignored, malformed: tracestate: "),
        ("nonsense", "", "ignored, malformed: traceparent: "),
        ("", "", ""),
    ] {
        let mut command = trax(&database, &["enqueue", "env"]);
        command.env("TRACEPARENT", trace).env("TRACESTATE", state);
        let (code, _, errors) = run(&mut command);
        assert_eq!(code, Some(0), "{errors}");
        assert!(
            errors.contains(said) && errors.is_empty() == said.is_empty(),
            "{errors}"
        );
    }
    let exec = r#"printf '"%s %s"' "$TRACEPARENT" "$TRACESTATE""#;
    let mut command = trax(
        &database,
        &["worker", "--until-empty", "--all-tasks", "--exec", exec],
    );
    command.env("TRACEPARENT", "of an outer worker");
    let (code, _, errors) = run(&mut command);
    assert_eq!(code, Some(0), "{errors}");
    let outputs = "select string_agg(output #>> '{}', ',' order by job_id) from trax.run";
    assert_eq!(
        text(&client, outputs).await,
        format!("{parent} vendor=value,{parent} , , ")
    );
}

#[tokio::test]
async fn a_program_gets_no_credentials_unless_they_are_passed() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("credentials");
    let tell = r#"cat >/dev/null; printf '"%s%s %s %s %s"' "${DATABASE_URL-}" "${PGSSLPASSWORD-}" "${PGPASSWORD-}" "${PGPASSFILE-}" "${OTHER-}""#;
    let exec = program(&files, "tell.sh", tell);
    for (passed, told) in [
        (vec![], "   mine"),
        (vec!["--pass-env", "PGPASSWORD"], " secret  mine"),
        (
            vec!["--pass-env", "PGPASSWORD", "--pass-env", "PGPASSFILE"],
            " secret /pass mine",
        ),
    ] {
        execute(&client, "select trax.enqueue('tell')").await;
        let mut worker = trax(
            &database,
            &["worker", "--until-empty", "--all-tasks", "--exec", &exec],
        );
        worker
            .args(passed)
            .env("DATABASE_URL", "postgres://a:secret@b/c");
        worker.envs([
            ("PGPASSWORD", "secret"),
            ("PGPASSFILE", "/pass"),
            ("PGSSLPASSWORD", "secret"),
            ("OTHER", "mine"),
        ]);
        let (code, _, errors) = run(&mut worker);
        assert_eq!(code, Some(0), "{errors}");
        let output = "select output #>> '{}' from trax.run order by job_id desc limit 1";
        assert_eq!(text(&client, output).await, told);
    }
    let mut lock = trax(&database, &["lock", "n", "--", "env"]);
    lock.env("PGPASSWORD", "secret").env("OTHER", "mine");
    let (code, output, errors) = run(&mut lock);
    assert_eq!(code, Some(0), "{errors}");
    assert!(output.contains("OTHER=mine"), "{output}");
    assert!(!output.contains("PGPASSWORD"), "{output}");
}

#[tokio::test]
async fn a_worker_is_refused_unless_it_says_which_tasks_it_handles() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue('of another program', group_name => 'g')",
    )
    .await;
    for tasks in [&[][..], &["--group", "g"], &["--task", "t", "--all-tasks"]] {
        let mut worker = trax(&database, &["worker", "--until-empty", "--exec", "cat"]);
        let (code, _, errors) = run(worker.args(tasks));
        assert_eq!(code, Some(64), "{errors}");
        assert!(
            errors.contains("--task") && errors.contains("--all-tasks"),
            "{errors}"
        );
    }
    for empty in ["", "  "] {
        let words = ["worker", "--until-empty", "--all-tasks", "--exec", empty];
        let (code, _, errors) = run(&mut trax(&database, &words));
        assert_eq!(code, Some(64), "{errors}");
        assert!(
            errors.contains("the command of --exec is empty"),
            "{errors}"
        );
    }
    assert_eq!(text(&client, "select state from trax.job").await, "queued");
}

#[tokio::test]
async fn a_worker_for_the_statements_of_the_server_is_refused_with_words() {
    let database = database().await;
    let (code, _, errors) = run(&mut trax(
        &database,
        &["worker", "--task", "sql", "--exec", "cat"],
    ));
    assert_eq!(code, Some(64), "{errors}");
    assert!(errors.contains("no worker takes task \"sql\""), "{errors}");
    assert!(errors.contains("trax doctor"), "{errors}");
}
