//! The program of `trax worker --exec`: one that does not exist, or is gone later, costs no job an
//! attempt, and a delay that no job can have costs no outcome.

use super::{refused, text, trax};
use harness::process::{Process, Scratch, run};
use harness::scheduler::{connect, execute};
use harness::{PATIENCE, database};
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_program_that_does_not_exist_is_refused_before_it_costs_a_job_an_attempt() {
    let database = database().await;
    let client = connect(&database).await;
    execute(&client, "select trax.enqueue('t')").await;
    let files = Scratch::new("no-program");
    let plain = files.path().join("plain.sh");
    std::fs::write(&plain, "true").expect("it can be written");
    let plain = plain.display().to_string();
    for exec in [
        "no-such-program --fast",
        "A=b exec ./no-such-program",
        "'./no such program' --fast",
        &plain,
    ] {
        let errors = refused(
            &database,
            64,
            &["worker", "--until-empty", "--task", "t", "--exec", exec],
        );
        assert!(
            errors.contains("does not exist or is not executable") && errors.contains("--exec ./"),
            "{exec}: {errors}"
        );
    }
    assert_eq!(
        text(&client, "select attempt::text from trax.job").await,
        "0"
    );
}

#[tokio::test]
async fn when_the_program_vanishes_jobs_are_released_and_spend_no_attempt() {
    let database = database().await;
    let client = connect(&database).await;
    let files = Scratch::new("vanished");
    let path = files.path().join("program");
    std::fs::write(&path, "#!/bin/sh\nexit 0\n").expect("it can be written");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, mode).expect("it is executable");
    let exec = path.display().to_string();
    let worker = Process::start(trax(
        &database,
        &["worker", "--task", "t", "--task", "own", "--exec", &exec],
    ));
    worker.says("claiming jobs", PATIENCE).await;
    std::fs::remove_file(&path).expect("it is removed");
    execute(&client, "select trax.enqueue('t')").await;
    worker
        .says(
            "is gone or not executable; it is released for 5 s",
            PATIENCE,
        )
        .await;
    let sql =
        "select concat_ws(' ', state, attempt, (select count(*) from trax.run)) from trax.job";
    harness::eventually("the job waits", PATIENCE, async || {
        match text(&client, sql).await {
            seen if seen == "queued 0 0" => Ok(()),
            other => Err(other),
        }
    })
    .await;
}

#[tokio::test]
async fn a_programs_own_exit_code_of_a_missing_program_is_a_failure() {
    let database = database().await;
    let client = connect(&database).await;
    execute(&client, "select trax.enqueue('t', max_retries => 0)").await;
    let worker = [
        "worker",
        "--until-empty",
        "--task",
        "t",
        "--exec",
        "sh -c 'no-such-program'",
    ];
    let (code, _, errors) = run(&mut trax(&database, &worker));
    assert_eq!(code, Some(0), "{errors}");
    let seen = text(&client, "select concat_ws(' ', state, error) from trax.run").await;
    assert!(seen.starts_with("failed exit code 127"), "{seen}");
}

#[tokio::test]
async fn a_delay_that_no_job_can_have_is_named_beside_the_error() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue(t, jsonb_build_object(t, '1'), max_retries => 1) from unnest('{retry_in,snooze}'::text[]) t",
    )
    .await;
    let exec = r#"printf '{"%s": 1e12, "line": 7}' $TRAX_TASK; echo trouble >&2; exit 1"#;
    let worker = ["worker", "--until-empty", "--all-tasks", "--exec", exec];
    let (code, _, errors) = run(&mut trax(&database, &worker));
    assert_eq!(code, Some(0), "{errors}");
    assert!(!errors.contains("refused"), "{errors}");
    for task in ["retry_in", "snooze"] {
        let sql = format!(
            "select concat_ws('|', state, detail ->> 'line', error) from trax.run where task = '{task}'"
        );
        let seen = text(&client, &sql).await;
        assert_eq!(
            seen,
            format!(
                "failed|7|exit code 1: trouble\nits \"{task}\" is 1e+12, \
                 but must be a number of seconds from 0 to 315360000"
            )
        );
    }
}
