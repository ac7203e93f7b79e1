//! Tables, colours and prompts on a terminal.

use super::{bare, said, trax};
use harness::process::{Scratch, run, trax_binary};
use harness::session::{Session, session};
use harness::shared_server;
use std::io::Write;
use std::process::{Command, Stdio};
use trax_client::testkit::Database;

const TABLES: [&[&str]; 13] = [
    &["status"],
    &["doctor"],
    &["jobs", "list"],
    &["jobs", "list", "-v"],
    &["jobs", "show", "1"],
    &["dead", "list"],
    &["dead", "list", "-v"],
    &["manifest", "list"],
    &[
        "manifest",
        "preview",
        "a-manifest-with-a-name-that-is-longer-than-any-column-should-ever-be",
    ],
    &["group", "list"],
    &["workers"],
    &["workers", "-v"],
    &[
        "cron",
        "explain",
        "*/15 9-17 * * MON-FRI",
        "-z",
        "America/Argentina/Buenos_Aires",
    ],
];

/// Long names, long errors, wide characters and control characters.
async fn furnish(s: &Session) {
    let long = "a-manifest-with-a-name-that-is-longer-than-any-column-should-ever-be";
    s.get(&format!(
        "select trax.schedule('{long}', 'a.task.with.a.rather.long.name', cron => '0 4 * * *',
            timezone => 'America/Argentina/Buenos_Aires', group_name => 'a-group-with-a-name-as-long-as-the-others',
            variance => '5 min')"
    ))
    .await;
    s.get(&format!("select trax.trigger('{long}')")).await;
    let claimed = s
        .claim_one("worker => 'host.example.org:12345:abcdef01'")
        .await;
    s.get(&format!(
        "select trax.fail({}, repeat(E'日本語のエラー \\x1b[2J and a tab\\t, ', 30) || E'\\nthe second line', permanent => true)",
        claimed.key()
    ))
    .await;
    s.get("select trax.enqueue('slow')").await;
    s.claim_one("worker => 'another-host.example.org:12345:abcdef01'")
        .await;
}

#[tokio::test]
async fn every_table_fits_a_terminal_of_80_and_of_160_columns() {
    let (db, s) = session().await;
    furnish(&s).await;
    for arguments in TABLES {
        for columns in [80, 160] {
            let (_, output, errors) = run(trax(&db, arguments).env("COLUMNS", columns.to_string()));
            assert!(!output.is_empty(), "{arguments:?}: {errors}");
            for line in output.lines() {
                // A wide character takes two columns.
                let width: usize = line
                    .chars()
                    .map(|c| if c.len_utf8() > 2 && c != '…' { 2 } else { 1 })
                    .sum();
                assert!(
                    width <= columns || arguments.contains(&"show"),
                    "{arguments:?} at {columns}: {line}"
                );
                assert!(!line.contains('\u{1b}'), "{arguments:?}: {line:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_table_that_no_terminal_shows_is_not_cut() {
    let (db, s) = session().await;
    furnish(&s).await;
    let table = said(&db, &["manifest", "list"]);
    assert!(
        table.contains("should-ever-be") && table.contains("Buenos_Aires"),
        "{table}"
    );
    assert!(!table.contains('…'), "{table}");
}

/// Runs a command on its own terminal with typed input; returns its exit code and the terminal's
/// contents.
fn on_a_terminal(
    db: &Database,
    columns: u16,
    typed: &str,
    arguments: &str,
) -> (Option<i32>, String) {
    let url = format!(
        "postgres://postgres@127.0.0.1:{}/{}",
        shared_server().port(),
        db.name()
    );
    let command = format!(
        "stty rows 24 cols {columns} -echo; {} --database-url {url} {arguments}",
        trax_binary().display()
    );
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env_remove("COLUMNS")
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(typed.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    drop(stdin);
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).replace('\r', ""),
    )
}

#[tokio::test]
async fn colours_are_for_terminals_and_the_width_is_the_terminals() {
    let (db, s) = session().await;
    furnish(&s).await;
    let (code, shown) = on_a_terminal(&db, 60, "", "jobs list");
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("\u{1b}[31mfailed\u{1b}[0m"), "{shown:?}");
    for line in shown.lines() {
        let plain = without_colours(line);
        assert!(plain.chars().count() <= 60, "{plain}");
    }
    let (_, shown) = on_a_terminal(&db, 60, "", "jobs list --json");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    let quiet = format!("export NO_COLOR=1; {}", trax_binary().display());
    let url = format!(
        "postgres://postgres@127.0.0.1:{}/{}",
        shared_server().port(),
        db.name()
    );
    let command = format!("{quiet} --database-url {url} jobs list");
    let (_, shown, _) = run(Command::new("script").args(["-qec", &command, "/dev/null"]));
    assert!(
        shown.contains("failed") && !shown.contains('\u{1b}'),
        "{shown:?}"
    );
}

fn without_colours(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

#[tokio::test]
async fn a_terminal_is_asked_and_only_a_yes_counts() {
    let (db, s) = session().await;
    let files = Scratch::new("ask");
    let path = files.path().join("m.toml");
    std::fs::write(&path, "[[manifests]]\nname = \"m\"\ntask = \"a\"\n")
        .expect("a file can be written");
    let apply = format!("manifest apply {}", path.display());
    for typed in ["n\n", "\n"] {
        let (code, shown) = on_a_terminal(&db, 80, typed, &apply);
        assert_eq!(code, Some(1), "{shown}");
        assert!(
            shown.contains("Apply 1 change? [y/N]") && shown.contains("nothing was changed"),
            "{shown}"
        );
    }
    assert_eq!(s.number("select count(*) from trax.manifest").await, 0);
    let (code, shown) = on_a_terminal(&db, 80, "y\n", &apply);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("1 created"), "{shown}");
    let (code, shown) = on_a_terminal(&db, 80, "yes\n", "manifest delete m");
    assert_eq!(
        (code, s.number("select count(*) from trax.manifest").await),
        (Some(0), 0),
        "{shown}"
    );
}

#[tokio::test]
async fn many_jobs_are_queued_with_a_rate_and_without_a_screen_of_ids() {
    let (db, s) = session().await;
    let files = Scratch::new("rate");
    let path = files.path().join("inputs.jsonl");
    std::fs::write(&path, "1\n".repeat(5_000)).expect("a file can be written");
    let (code, shown) = on_a_terminal(&db, 80, "", &format!("enqueue t --file {}", path.display()));
    assert_eq!(code, Some(0), "{shown}");
    assert!(
        shown.contains("5000 jobs queued, ids 1 to 5000, ") && shown.contains("/s"),
        "{shown}"
    );
    assert!(!shown.contains("\n4999\n"));
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 5000);
}

#[test]
fn help_without_a_command_is_a_mistake_and_says_what_there_is() {
    let (code, _, errors) = run(&mut bare());
    assert_eq!(code, Some(64));
    for command in [
        "jobs",
        "dead",
        "manifest",
        "group",
        "workers",
        "cron",
        "completions",
    ] {
        assert!(errors.contains(command), "{errors}");
    }
}

#[tokio::test]
async fn who_stops_reading_a_bench_gets_no_panic_and_no_database_stays() {
    let (db, s) = session().await;
    let arguments = "bench floor --jobs 1000 --rounds 1 --seconds 1";
    let arguments: Vec<&str> = arguments.split(' ').collect();
    let mut bench = trax(&db, &arguments);
    let bench = bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut bench = bench.expect("the command starts");
    drop(bench.stdout.take());
    let ended = bench.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(!errors.contains("panic"), "{errors}");
    assert_eq!(
        s.number("select count(*) from pg_database where datname ~ '^trax_bench'")
            .await,
        0
    );
}
