//! Durations in options: one format for all.

use super::bare;
use harness::process::run;

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
        for value in ["soon", "", "-1s", "1h30", "1e3", "5 apples"] {
            let (code, said) = with(command, value);
            assert_eq!(code, Some(64), "{command:?} {value}: {said}");
            assert!(
                said.contains("type a length of time, such as 500ms, 30s, 5m, 1h30m"),
                "{command:?} {value}: {said}"
            );
        }
    }
}
