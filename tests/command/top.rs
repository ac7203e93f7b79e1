//! `trax top`: a single screen without a terminal, a live one with a terminal, and keys that make
//! changes.

use super::{on, trax};
use harness::process::{children, run, send_signal, trax_binary};
use harness::scheduler::{connect, execute, live_database, live_server, status_becomes, value};
use harness::{PATIENCE, database, eventually, shared_server};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use trax_client::testkit::Database;

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

/// The program in its own terminal, made by `script`.
struct Live {
    script: Child,
    keys: ChildStdin,
    seen: PathBuf,
}

impl Live {
    fn start(database: &Database) -> Self {
        let server = shared_server();
        let seen = server
            .socket_dir()
            .join(format!("{}.screen", database.name()));
        let program = format!(
            "stty rows 24 cols 80; exec {} --database-url 'host={} port={} user=postgres dbname={}' top --interval 0.5",
            trax_binary().display(),
            server.socket_dir().display(),
            server.port(),
            database.name()
        );
        let mut script = Command::new("script")
            .args(["-qefc", &program, "/dev/null"])
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(File::create(&seen).expect("a file can be made"))
            .stderr(Stdio::null())
            .spawn()
            .expect("script starts");
        let keys = script.stdin.take().expect("it is piped");
        Live { script, keys, seen }
    }

    fn screen(&self) -> String {
        let bytes = std::fs::read(&self.seen).expect("it can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until `text` has appeared on the screen `times` times; lines with another style are
    /// drawn whole.
    async fn says(&self, text: &str, times: usize) {
        eventually(text, PATIENCE, async || {
            let screen = self.screen();
            if screen.matches(text).count() >= times {
                Ok(())
            } else {
                Err(screen)
            }
        })
        .await;
    }

    fn press(&mut self, key: &str) {
        self.keys.write_all(key.as_bytes()).expect("it reads");
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The process has already ended if the test succeeded.
        if self.script.kill().is_ok() {
            self.script.wait().ok();
        }
    }
}

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
    let mut live = Live::start(&database);
    live.says("p pause or resume the group", 1).await;
    live.press("p");
    live.says("Pause group", 1).await;
    live.press("y");
    live.says("group \"g\" is paused", 1).await;
    let paused = "select not enabled from trax.manifest_group where name = 'g'";
    assert!(value::<bool>(&client, paused).await);
    live.press("5");
    live.says("r queue it again", 1).await;
    live.press("r");
    live.says("Requeue dead letter 1?", 1).await;
    live.press("n");
    live.says("nothing was changed", 1).await;
    let status = "select concat_ws(' ', status, resolution_note) from trax.dead_letter";
    assert_eq!(
        value::<String>(&client, status).await,
        "awaiting_intervention"
    );
    live.press("r");
    live.says("Requeue dead letter 1?", 2).await;
    live.press("y");
    live.says("dead letter 1 is job 2 now", 1).await;
    assert_eq!(value::<String>(&client, status).await, "requeued trax top");
    live.press("q");
    live.says("\u{1b}[?1049l", 1).await;
    let ended = live.script.wait().expect("it has ended");
    assert!(ended.success(), "{ended:?}");
    let screen = live.screen();
    assert!(screen.contains("\u{1b}[?1049h"), "a screen of its own");
}

#[tokio::test]
async fn a_signal_gives_the_terminal_back() {
    let program = trax_binary().display().to_string();
    for name in ["TERM", "HUP", "INT"] {
        let database = database().await;
        let mut live = Live::start(&database);
        live.says("q quit", 1).await;
        let script = i32::try_from(live.script.id()).expect("it is a process");
        match name {
            "INT" => live.press("\u{3}"),
            name => send_signal(name, children(script, &program)[0]),
        }
        live.says("\u{1b}[?1049l", 1).await;
        let ended = live.script.wait().expect("it has ended");
        assert!(ended.success(), "{name}: {ended:?}");
    }
}
