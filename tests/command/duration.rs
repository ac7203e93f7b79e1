//! Durations in options: one format for all.

use super::{bare, refused, said};
use harness::process::{Scratch, run};
use harness::session::session;

/// Each option that takes a duration, in a command that would then connect.
const OPTIONS: [&[&str]; 13] = [
    &["worker", "--all-tasks", "--exec=true", "--lease"],
    &["worker", "--all-tasks", "--exec=true", "--grace"],
    &["worker", "--all-tasks", "--exec=true", "--retry-delay"],
    &["lock", "name", "--", "true", "--ttl"],
    &["lock", "name", "--", "true", "--wait"],
    &["lock", "name", "--", "true", "--grace"],
    &["enqueue", "t", "--retry-delay"],
    &["enqueue", "t", "--timeout"],
    &["enqueue", "t", "--unique-key=k", "--unique-for"],
    &["top", "--once", "--interval"],
    &["doctor", "--patience"],
    &["jobs", "watch", "1", "--timeout"],
    &["manifest", "trigger", "m", "--delay"],
];

/// Runs a command with this option value, at an address where no server listens.
fn with(command: &[&str], value: &str) -> (Option<i32>, String) {
    let (option, command) = command.split_last().expect("the option is last");
    let mut program = bare();
    program.args(["--database-url", "postgres://u@127.0.0.1:1/d"]);
    let program_of_lock = command.iter().position(|word| *word == "--");
    let (own, others) = command.split_at(program_of_lock.unwrap_or(command.len()));
    program
        .args(own)
        .arg(format!("{option}={value}"))
        .args(others);
    let (code, output, errors) = run(&mut program);
    (code, output + &errors)
}

#[test]
fn every_option_that_takes_a_length_of_time_reads_the_same_forms() {
    for command in OPTIONS {
        for value in ["5", "1s", "1h30m", "1 h 30 min", "2 days", "01:30:00"] {
            let (_, said) = with(command, value);
            assert!(said.contains("127.0.0.1:1"), "{command:?} {value}: {said}");
        }
        let forms = "type a length of time, such as 500ms, 30s, 5m, 1h30m";
        let limits = "not negative, and at most 10 years";
        for (value, words) in [
            ("soon", forms),
            ("", forms),
            ("1h30", forms),
            ("1e3", forms),
            ("5 apples", forms),
            ("-1s", limits),
            ("11 years", limits),
        ] {
            let (code, said) = with(command, value);
            assert_eq!(code, Some(64), "{command:?} {value}: {said}");
            assert!(said.contains(words), "{command:?} {value}: {said}");
        }
    }
}

/// Writes a file with a manifest that has this timeout.
fn with_timeout(files: &Scratch, timeout: &str) -> String {
    let path = files.path().join("timeout.toml");
    let text = format!("[[manifests]]\nname = \"m\"\ntask = \"t\"\ntimeout = {timeout}\n");
    std::fs::write(&path, text).expect("a file can be written");
    path.display().to_string()
}

#[tokio::test]
async fn a_manifest_file_takes_the_lengths_of_time_that_options_take() {
    let (db, s) = session().await;
    let files = Scratch::new("durations");
    for (value, seconds) in [
        ("90", "90"),
        ("\"90\"", "90"),
        ("0.25", "0.25"),
        ("\"500ms\"", "0.5"),
        ("\"2000 microseconds\"", "0.002"),
        ("\"30s\"", "30"),
        ("\"1.5m\"", "90"),
        ("\"5 mins\"", "300"),
        ("\"1h30m\"", "5400"),
        ("\"1 h 30 min\"", "5400"),
        ("\"2 days\"", "172800"),
        ("\"1w\"", "604800"),
        ("\"1 day 02:00:00\"", "93600"),
        ("\"01:30:00\"", "5400"),
        ("\"1:30\"", "5400"),
        // A time of TOML.
        ("01:30:00", "5400"),
    ] {
        let path = with_timeout(&files, value);
        said(&db, &["manifest", "apply", &path, "--yes"]);
        let stored = "select trim_scale(extract(epoch from timeout)) from trax.manifest";
        assert_eq!(s.get(stored).await, seconds, "{value}");
    }
    let before = s.everything().await;
    for value in [
        "-1",
        "0",
        "\"soon\"",
        "\"\"",
        "true",
        "1e300",
        "[90]",
        "\"11 years\"",
    ] {
        let path = with_timeout(&files, value);
        let errors = refused(&db, 1, &["manifest", "apply", &path, "--yes"]);
        let place = "timeout.toml:4: timeout: manifest \"m\": member \"timeout\" must be a";
        assert!(errors.contains(place), "{value}: {errors}");
    }
    for value in ["nan", "inf"] {
        let path = with_timeout(&files, value);
        let errors = refused(&db, 64, &["manifest", "apply", &path, "--yes"]);
        let words = format!("timeout.toml:4: timeout: {value} is no number of JSON");
        assert!(errors.contains(&words), "{errors}");
    }
    assert_eq!(s.everything().await, before);
    s.assert_healthy().await;
}
