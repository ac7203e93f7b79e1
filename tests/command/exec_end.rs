//! The end of programs under `trax worker --exec` and `trax lock`: cleanly, by force, and with all
//! their descendants.

use super::exec::program;
use super::{on, text, trax};
use harness::process::{Orphan, Process, Scratch, children, is_alive, run, send_signal};
use harness::prompt::takes_less_than;
use harness::scheduler::{connect, execute, live_database, live_server, value, violations};
use harness::{PATIENCE, database, eventually};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

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
        &[
            "worker",
            "--lease",
            "3",
            "--grace",
            "4",
            "--all-tasks",
            "--exec",
            &exec,
        ],
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
    ends(&kind, PATIENCE).await;
    assert!(
        files.path().join("bye").exists(),
        "it was asked before it was killed"
    );
    ends(&stubborn, PATIENCE).await;
    assert!(
        begun.elapsed() >= Duration::from_secs(4),
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
async fn a_cancel_ends_a_program_with_its_child_within_a_second_whatever_the_lease() {
    let database = live_database().await;
    let client = connect(&database).await;
    let files = Scratch::new("cancel-soon");
    // Orphans become children of a process that does not reap them, as in some containers.
    let careless = "import ctypes, subprocess, sys
ctypes.CDLL(None).prctl(36, 1)
sys.exit(subprocess.call(sys.argv[1:]))";
    let exec = "touch $DIR/$TRAX_JOB_ID; sleep 600; true";
    let worker = on(live_server(), &database);
    let mut command = Command::new("python3");
    command.args(["-c", careless]).arg(worker.get_program());
    command.args(worker.get_args());
    command.args(["worker", "--lease", "600", "--all-tasks", "--exec", exec]);
    command.env("DIR", files.path());
    let worker = Process::start(command);
    let cancelling = async || {
        let job_id: i64 = value(&client, "select trax.enqueue('t')").await;
        let begun = files.path().join(job_id.to_string());
        eventually("the program", PATIENCE, async || {
            if begun.exists() {
                Ok(())
            } else {
                Err(worker.output())
            }
        })
        .await;
        let begun = Instant::now();
        execute(&client, &format!("select trax.cancel({job_id})")).await;
        let state = format!("select state from trax.job where job_id = {job_id}");
        eventually("the end of the job", PATIENCE, async || {
            match text(&client, &state).await {
                state if state == "cancelled" => Ok(()),
                state => Err(format!("{state}; {}", worker.output())),
            }
        })
        .await;
        begun.elapsed()
    };
    takes_less_than(Duration::from_secs(1), "a cancel", cancelling).await;
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
    let mut command = trax(
        &database,
        &["worker", "--grace", "1", "--all-tasks", "--exec", &exec],
    );
    command.env("DIR", files.path());
    execute(&client, "select trax.enqueue('t')").await;
    let mut worker = Process::start(command);
    let running = program_in(&files.path().join("pid"), &worker).await;
    send_signal("TERM", worker.id());
    let status = worker.ends(PATIENCE).await;
    assert_eq!(status.code(), Some(0), "{}", worker.output());
    ends(&running, PATIENCE).await;
    let sql = "select attempts || ' ' || (waits_for is null) from trax.work_queue";
    assert_eq!(text(&client, sql).await, "0 true");
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.run").await,
        0
    );
}

#[tokio::test]
async fn what_a_stopped_program_started_is_stopped_with_it() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("group");
    let body = r#"
sh -c 'trap "" TERM; echo $$ > "$DIR/writing"; mv "$DIR/writing" "$DIR/pid"; while true; do sleep 0.1; done' &
wait"#;
    let exec = program(&files, "worker.sh", body);
    let mut command = trax(
        &database,
        &[
            "worker",
            "--lease",
            "5",
            "--grace",
            "1",
            "--all-tasks",
            "--exec",
            &exec,
        ],
    );
    command.env("DIR", files.path());
    execute(&client, "select trax.enqueue('t', timeout => '4 s')").await;
    let worker = Process::start(command);
    let child = program_in(&files.path().join("pid"), &worker).await;
    // No scheduler runs here, so this session runs the cycle that detects the timeout.
    eventually("the timeout", PATIENCE, async || {
        execute(&client, "select trax.tick()").await;
        if is_alive(child.0) {
            Err(worker.output())
        } else {
            Ok(())
        }
    })
    .await;
    eventually("the failed attempt", PATIENCE, async || {
        let seen = text(
            &client,
            "select coalesce(string_agg(failure_kind, ' '), '') from trax.run",
        )
        .await;
        if seen == "timeout" { Ok(()) } else { Err(seen) }
    })
    .await;
}

#[tokio::test]
async fn what_runs_behind_a_shell_has_the_grace_too() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("behind");
    // The shell dies of SIGTERM at once; its child cleans up for longer than the worker waits for
    // pipes.
    let body = r#"
trap 'sleep 1.6; echo bye > "$DIR/bye"; exit' TERM
echo $$ > "$DIR/writing"; mv "$DIR/writing" "$DIR/pid"
while true; do sleep 0.1; done"#;
    program(&files, "inner.sh", body);
    let exec = format!("sh {}; true", files.path().join("inner.sh").display());
    let mut command = trax(
        &database,
        &[
            "worker",
            "--lease",
            "3",
            "--grace",
            "600",
            "--all-tasks",
            "--exec",
            &exec,
        ],
    );
    command.env("DIR", files.path());
    execute(&client, "select trax.enqueue('t')").await;
    let worker = Process::start(command);
    let inner = program_in(&files.path().join("pid"), &worker).await;
    let begun = Instant::now();
    execute(&client, "select trax.cancel(job_id) from trax.lease").await;
    eventually("the cancelled job", PATIENCE, async || {
        let seen = text(&client, "select state from trax.job").await;
        if seen == "cancelled" {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
    assert!(
        files.path().join("bye").exists(),
        "it was killed while it cleaned up"
    );
    assert!(!is_alive(inner.0), "the job ended before its program");
    assert!(
        begun.elapsed() < 2 * PATIENCE,
        "the whole grace was waited for"
    );
}

/// Starts two processes that ignore SIGTERM, in its own group.
const WITH_CHILD: &str = r#"
sh -c 'trap "" TERM; echo $$ > "$DIR/writing"; mv "$DIR/writing" "$DIR/child"; while true; do sleep 0.1; done' &
echo $$ > "$DIR/own"; mv "$DIR/own" "$DIR/pid""#;

#[tokio::test]
async fn a_worker_that_is_killed_leaves_none_of_its_programs_beside_the_next_attempt() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("killed");
    let body = format!("{WITH_CHILD}\nwhile true; do sleep 0.1; done");
    let exec = program(&files, "worker.sh", &body);
    execute(&client, "select trax.enqueue('t')").await;
    let mut command = trax(
        &database,
        &["worker", "--lease", "6", "--all-tasks", "--exec", &exec],
    );
    command.env("DIR", files.path());
    let mut worker = Process::start(command);
    let program = program_in(&files.path().join("pid"), &worker).await;
    let child = program_in(&files.path().join("child"), &worker).await;
    send_signal("KILL", worker.id());
    let killed = Instant::now();
    worker.ends(PATIENCE).await;
    ends(&program, PATIENCE).await;
    ends(&child, PATIENCE).await;
    let took = killed.elapsed();
    println!("all have ended {took:?} after the worker");
    let left = "select lease_expires_at > clock_timestamp() from trax.lease";
    assert!(
        value::<bool>(&client, left).await,
        "the next attempt may run"
    );
}

#[tokio::test]
async fn what_a_program_leaves_running_in_its_group_ends_with_it() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("left");
    // The program ends once its child has begun and ignores SIGTERM.
    let body = format!("{WITH_CHILD}\nwhile [ ! -e \"$DIR/child\" ]; do sleep 0.05; done\necho 7");
    let exec = program(&files, "worker.sh", &body);
    execute(&client, "select trax.enqueue('t')").await;
    let mut command = trax(
        &database,
        &[
            "worker",
            "--grace",
            "1",
            "--until-empty",
            "--all-tasks",
            "--exec",
            &exec,
        ],
    );
    command.env("DIR", files.path());
    let mut worker = Process::start(command);
    let child = program_in(&files.path().join("child"), &worker).await;
    worker.ends(PATIENCE).await;
    assert!(!is_alive(child.0), "{}", worker.output());
    let run = "select concat_ws(' ', state, output) from trax.run";
    assert_eq!(text(&client, run).await, "completed 7");
}

#[tokio::test]
async fn a_lock_that_is_killed_or_whose_program_ends_leaves_nothing_running() {
    let database = database().await;
    let files = Scratch::new("lock-killed");
    let body = format!("{WITH_CHILD}\nwhile [ ! -e \"$DIR/end\" ]; do sleep 0.1; done");
    program(&files, "locked.sh", &body);
    let script = files.path().join("locked.sh").display().to_string();
    let arguments = [
        "lock", "n", "--ttl", "6s", "--grace", "1s", "--", "sh", &script,
    ];
    for killed in [true, false] {
        let mut command = trax(&database, &arguments);
        command.env("DIR", files.path());
        let mut lock = Process::start(command);
        let program = program_in(&files.path().join("pid"), &lock).await;
        let child = program_in(&files.path().join("child"), &lock).await;
        if killed {
            send_signal("KILL", lock.id());
        } else {
            std::fs::write(files.path().join("end"), "").expect("a file can be written");
        }
        let status = lock.ends(PATIENCE).await;
        assert_eq!(status.success(), !killed, "{}", lock.output());
        if !killed {
            assert!(!is_alive(child.0), "the token was given back before");
        }
        ends(&program, PATIENCE).await;
        ends(&child, PATIENCE).await;
        std::fs::remove_file(files.path().join("pid")).expect("it is there");
        std::fs::remove_file(files.path().join("child")).expect("it is there");
    }
}

/// The guard of a worker process.
async fn guard_of(worker: &Process) -> i32 {
    eventually("a guard", PATIENCE, async || {
        match children(worker.id(), "trax-guard")[..] {
            [guard] => Ok(guard),
            ref seen => Err(format!("{seen:?}")),
        }
    })
    .await
}

#[tokio::test]
async fn a_guard_that_stands_still_holds_up_no_job_and_is_replaced() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("stopped-guard");
    let body = "read input; [ \"$input\" = 0 ] && exit\necho $$ > \"$DIR/own\"; mv \"$DIR/own\" \"$DIR/pid\"
while true; do sleep 0.1; done";
    let exec = program(&files, "worker.sh", body);
    let mut command = trax(
        &database,
        &["worker", "--lease", "6", "--all-tasks", "--exec", &exec],
    );
    command.env("DIR", files.path());
    let mut worker = Process::start(command);
    let stopped = guard_of(&worker).await;
    send_signal("STOP", stopped);
    let jobs = "select trax.enqueue_many('t', array_fill('0'::jsonb, array[300]))";
    execute(&client, jobs).await;
    eventually("300 completions", PATIENCE, async || {
        match value::<i64>(&client, "select count(*) from trax.run").await {
            300 => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
    execute(&client, "select trax.enqueue('t', '1')").await;
    let program = program_in(&files.path().join("pid"), &worker).await;
    assert_ne!(guard_of(&worker).await, stopped);
    send_signal("KILL", worker.id());
    worker.ends(PATIENCE).await;
    ends(&program, PATIENCE).await;
}

#[tokio::test]
async fn a_guard_that_is_stopped_or_ended_while_a_program_runs_is_replaced_at_once() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("replaced-guard");
    let body = "read input; echo $$ > \"$DIR/own\"; mv \"$DIR/own\" \"$DIR/pid\"
while true; do sleep 0.1; done";
    let exec = program(&files, "worker.sh", body);
    let mut command = trax(
        &database,
        &["worker", "--lease", "6", "--all-tasks", "--exec", &exec],
    );
    command.env("DIR", files.path());
    let mut worker = Process::start(command);
    execute(&client, "select trax.enqueue('t', '1')").await;
    let program = program_in(&files.path().join("pid"), &worker).await;
    for number in ["STOP", "KILL"] {
        let old = guard_of(&worker).await;
        send_signal(number, old);
        eventually("another guard", PATIENCE, async || {
            match children(worker.id(), "trax-guard")[..] {
                [guard] if guard != old => Ok(()),
                ref seen => Err(format!("{number} {seen:?}")),
            }
        })
        .await;
    }
    send_signal("KILL", worker.id());
    worker.ends(PATIENCE).await;
    ends(&program, PATIENCE).await;
}

#[tokio::test]
async fn a_program_whose_output_the_server_refuses_is_completed_without_it_and_runs_once() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue('deep', max_retries => 5), trax.enqueue('flat')",
    )
    .await;
    let exec = "n=200000; [ $TRAX_TASK = deep ] || n=1; \
        head -c $n /dev/zero | tr '\\0' '['; head -c $n /dev/zero | tr '\\0' ']'";
    let mut command = trax(
        &database,
        &["worker", "--until-empty", "--all-tasks", "--exec", exec],
    );
    let (code, _, errors) = run(&mut command);
    assert_eq!(code, Some(0), "{errors}");
    let runs = "select string_agg(concat_ws(' ', task, attempt, state, output, detail ->> 'output'), ', ' \
        order by task) from trax.run";
    assert_eq!(
        text(&client, runs).await,
        "deep 1 completed left out, 400000 bytes: stack depth limit exceeded (54001). Increase the configuration parameter \
         \"max_stack_depth\" (currently 2048kB), after ensuring the platform's stack depth limit is adequate., flat 1 completed []",
        "{errors}"
    );
    let refused = "the outcome was refused: stack depth limit exceeded";
    assert_eq!(errors.matches(refused).count(), 1, "{errors}");
}

#[tokio::test]
async fn a_program_that_runs_longer_than_its_timeout_counts_as_failed() {
    let database = live_database().await;
    let client = connect(&database).await;
    let late = "select trax.enqueue('late', timeout => '1 s', max_retries => 0)";
    execute(&client, late).await;
    let arguments = [
        "worker",
        "--until-empty",
        "--json",
        "--all-tasks",
        "--exec",
        "exec sleep 60",
    ];
    let (code, output, errors) = run(on(live_server(), &database).args(arguments));
    assert_eq!(code, Some(0), "{errors}");
    assert!(output.contains("\"timed_out\":1"), "{output}");
    assert!(output.contains("\"cancelled\":0"), "{output}");
    assert!(
        errors.contains("failed: it ran longer than its timeout"),
        "{errors}"
    );
    assert!(
        errors.contains("0 completed, 1 failed (timeout)"),
        "{errors}"
    );
    let run = "select state || ' ' || failure_kind from trax.run";
    assert_eq!(text(&client, run).await, "failed timeout");
}
