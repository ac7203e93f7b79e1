//! `trax top`: one screen where there is no terminal, a live one where there is, and keys that change something.

use super::{on, trax};
use harness::process::{run, trax_binary};
use harness::scheduler::{connect, execute, live_database, live_server, status_becomes, value};
use harness::{PATIENCE, database, eventually};
use std::process::Command;

#[tokio::test]
async fn one_screen_shows_what_waits_and_runs() {
    let database = live_database().await;
    let client = connect(&database).await;
    status_becomes(&client, "scheduler", "running", PATIENCE).await;
    execute(
        &client,
        "select trax.configure_group('video', max_active_jobs => 1, enabled => false);
        select trax.enqueue_many('encode', '{1, 2, 3}', group_name => 'video');
        select trax.enqueue_many('mail', '{1, 2}');
        select from trax.claim_next(worker => 'w1', tasks => '{mail}')",
    )
    .await;
    let mut command = on(live_server(), &database);
    command.env("COLUMNS", "80");
    let (code, output, errors) = run(command.args(["top", "--once", "--interval", "0.5"]));
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    assert!(
        output.lines().all(|line| line.chars().count() <= 80),
        "{output}"
    );
    let video = output.lines().find(|line| line.starts_with("video"));
    assert!(
        video.is_some_and(|line| line.contains("paused") && line.contains(" 3 ")),
        "{output}"
    );
    for said in ["scheduler runs", "ready 4", "running 1", "no dead letters"] {
        assert!(output.contains(said), "{said}: {output}");
    }
}

#[tokio::test]
async fn without_a_terminal_it_says_what_to_type() {
    let database = database().await;
    let (code, _, errors) = run(&mut trax(&database, &["top"]));
    assert_eq!(code, Some(64));
    assert!(errors.contains("--once"), "{errors}");
    for interval in ["0", "-1", "soon"] {
        let (code, _, errors) = run(&mut trax(&database, &["top", "--interval", interval]));
        assert_eq!(code, Some(64), "{interval}: {errors}");
    }
}

/// A terminal of 80 columns in which the program runs, driven by the keys that are written to it.
#[tokio::test]
async fn keys_pause_a_group_and_queue_a_dead_letter_again() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue('dies', group_name => 'g', max_retries => 0);
        select trax.fail(job_id, token, 'no') from trax.claim_next()",
    )
    .await;
    let url = format!(
        "host={} port={} user=postgres dbname={}",
        harness::shared_server().socket_dir().display(),
        harness::shared_server().port(),
        database.name()
    );
    // Keys, a breath apart so that each meets a screen; `script` makes the terminal.
    let program = format!(
        "stty rows 24 cols 80; {} --database-url \"{url}\" top --interval 0.5",
        trax_binary().display()
    );
    let typed = "(sleep 2; printf p; sleep 0.5; printf y; sleep 1.5; printf 5; sleep 0.5; printf r; sleep 0.5; printf n; \
                 sleep 0.5; printf r; sleep 0.5; printf y; sleep 1.5; printf q; sleep 1)";
    let shell = format!("{typed} | script -qec '{program}' /dev/null");
    let done = tokio::task::spawn_blocking(move || {
        run(Command::new("bash")
            .args(["-c", &shell])
            .env("TERM", "xterm"))
    });
    eventually("the group is paused", PATIENCE, async || {
        let sql = "select count(*) from trax.manifest_group where name = 'g' and not enabled";
        match value::<i64>(&client, sql).await {
            1 => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
    eventually("the dead letter is a job again", PATIENCE, async || {
        let sql = "select concat_ws(' ', status, resolution_note) from trax.dead_letter";
        match value::<String>(&client, sql).await {
            seen if seen == "requeued trax top" => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    let (code, screen, _) = done.await.expect("the program ends");
    assert_eq!(code, Some(0), "{screen}");
    assert!(
        screen.contains("\u{1b}[?1049h"),
        "it has a screen of its own"
    );
    assert!(
        screen.contains("\u{1b}[?1049l"),
        "and gives the terminal back"
    );
    assert!(screen.contains("Start no more jobs of group"), "{screen}");
}
