//! Every command: its help, wrong arguments, and no database.

use super::bare;
use harness::process::{Scratch, run};
use std::process::Command;

/// Every command that asks a database, with arguments that are right.
const ASKING: [&[&str]; 31] = [
    &["status"],
    &["check"],
    &["enqueue", "t"],
    &["worker", "--exec", "true"],
    &["jobs", "list"],
    &["jobs", "show", "1"],
    &["jobs", "cancel", "1"],
    &["jobs", "retry", "1"],
    &["jobs", "watch", "1"],
    &["dead", "list"],
    &["dead", "show", "1"],
    &["dead", "requeue", "1"],
    &["dead", "ack", "1"],
    &["manifest", "list"],
    &["manifest", "show", "m"],
    &["manifest", "enable", "m"],
    &["manifest", "disable", "m"],
    &["manifest", "trigger", "m"],
    &["manifest", "preview", "m"],
    &["manifest", "why", "m"],
    &["manifest", "delete", "m", "--yes"],
    &["group", "list"],
    &["group", "set", "g", "--priority", "1"],
    &["group", "pause", "g"],
    &["group", "resume", "g"],
    &["workers"],
    &["pause"],
    &["resume"],
    &["cron", "explain", "* * * * *"],
    &["grant", "r", "reader"],
    &["enqueue", "t", "--file", "/dev/null"],
];

/// Commands that ask none, and those that need a file.
const OTHERS: [&[&str]; 13] = [
    &[],
    &["demo"],
    &["bench"],
    &["lock"],
    &["jobs"],
    &["dead"],
    &["manifest"],
    &["manifest", "apply"],
    &["manifest", "diff"],
    &["group"],
    &["cron"],
    &["completions"],
    &["man"],
];

fn at_80_columns(arguments: &[&str]) -> Command {
    let mut command = bare();
    command.env("COLUMNS", "80").args(arguments);
    command
}

/// A command without its arguments.
fn words<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let groups = ["jobs", "dead", "manifest", "group", "cron"];
    let length = match arguments.first() {
        Some(first) if groups.contains(first) => 2,
        _ => 1,
    };
    arguments.iter().take(length).copied().collect()
}

#[test]
fn every_command_has_help_that_fits_80_columns() {
    for arguments in ASKING.iter().chain(&OTHERS) {
        let mut words = words(arguments);
        words.push("--help");
        let (code, output, errors) = run(&mut at_80_columns(&words));
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{words:?}");
        assert!(output.contains("Usage: trax"), "{words:?}: {output}");
        for line in output.lines() {
            assert!(line.chars().count() <= 80, "{words:?}: {line}");
        }
    }
}

#[test]
fn the_exit_codes_are_in_the_help() {
    let (_, output, _) = run(&mut at_80_columns(&["--help"]));
    for code in [
        "0   done",
        "1   failed",
        "2   unhealthy",
        "3   out of time",
        "64  wrong usage",
    ] {
        assert!(output.contains(code), "{output}");
    }
    let (_, output, _) = run(&mut at_80_columns(&["worker", "--help"]));
    assert!(
        output.contains("EX_DATAERR") && output.contains("EX_TEMPFAIL"),
        "{output}"
    );
}

#[test]
fn every_command_that_asks_prints_json_quietly_or_verbosely() {
    for arguments in ASKING.iter().filter(|arguments| arguments[0] != "worker") {
        let mut words = words(arguments);
        words.push("--help");
        let (_, output, _) = run(&mut at_80_columns(&words));
        for option in ["--json", "-q, --quiet", "-v, --verbose"] {
            assert!(
                output.contains(option),
                "{words:?} has no {option}: {output}"
            );
        }
    }
}

#[test]
fn every_command_names_the_database_that_it_cannot_reach() {
    for arguments in ASKING {
        let (code, output, errors) = run(bare()
            .args(["--database-url", "postgres://ada:secret@127.0.0.1:1/jobs"])
            .args(arguments));
        assert_eq!(
            (code, output.as_str()),
            (Some(1), ""),
            "{arguments:?}: {errors}"
        );
        for part in ["127.0.0.1:1", "jobs", "ada"] {
            assert!(errors.contains(part), "{arguments:?}: {errors}");
        }
        assert!(!errors.contains("secret"), "{arguments:?}: {errors}");
        let lines: Vec<&str> = errors.lines().collect();
        assert!(
            lines.len() == 2 && lines[0].starts_with("trax: ") && lines[1].starts_with("hint: "),
            "{arguments:?} is not one line and a hint: {errors}"
        );
    }
}

#[test]
fn wrong_arguments_end_with_64_before_any_database_is_asked() {
    let wrong: [&[&str]; 26] = [
        &["jobs"],
        &["jobs", "fly"],
        &["jobs", "list", "--state", "asleep"],
        &["jobs", "list", "--limit", "0"],
        &["jobs", "show"],
        &["jobs", "show", "seven"],
        &["jobs", "cancel"],
        &["jobs", "cancel", "1", "--group", "g"],
        &["jobs", "watch", "1", "--timeout", "-1"],
        &["dead", "requeue"],
        &["dead", "ack", "1", "--all"],
        &["dead", "requeue", "1", "--task", "t"],
        &["dead", "list", "--status", "gone"],
        &["manifest", "apply"],
        &["manifest", "apply", "/no/such/file.toml"],
        &["manifest", "trigger", "m", "--input", "{"],
        &["manifest", "preview", "m", "--count", "0"],
        &["group", "set", "g"],
        &["group", "pause"],
        &["cron", "explain"],
        &["grant", "r", "emperor"],
        &["completions", "tcsh"],
        &["status", "--json", "--quiet"],
        &["enqueue", "t", "{}", "--file", "x"],
        &["enqueue", "t", "--file", "/no/such/file"],
        &["worker", "--exec", "true", "--retry-delay", "soon"],
    ];
    for arguments in wrong {
        // Nobody listens there: whoever asked would end with 1.
        let (code, output, errors) = run(bare()
            .args(["--database-url", "postgres://ada@127.0.0.1:1/jobs"])
            .args(arguments));
        assert_eq!(code, Some(64), "{arguments:?} printed {output}{errors}");
        assert!(!errors.is_empty(), "{arguments:?} says nothing");
    }
}

#[test]
fn completions_know_every_command_and_are_scripts_of_their_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, script, _) = run(bare().args(["completions", shell]));
        assert_eq!(code, Some(0));
        for word in ["manifest", "requeue", "explain", "completions"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
    }
    let files = Scratch::new("completions");
    let path = files.path().join("trax.bash");
    let (_, script, _) = run(bare().args(["completions", "bash"]));
    std::fs::write(&path, script).expect("a file can be written");
    // What bash itself would complete: the second word that begins with "ma".
    let ask = format!(
        "source {} && COMP_WORDS=(trax ma) COMP_CWORD=1 && _trax trax ma trax && echo ${{COMPREPLY[@]}}",
        path.display()
    );
    let (code, offered, errors) = run(Command::new("bash").args(["-c", &ask]));
    assert_eq!(
        (code, offered.trim()),
        (Some(0), "manifest man"),
        "{errors}"
    );
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let files = Scratch::new("man");
    let dir = files.path().join("man1");
    let (code, _, errors) = run(bare().args(["man", "--dir"]).arg(&dir));
    assert_eq!(code, Some(0), "{errors}");
    for arguments in ASKING.iter().chain(&OTHERS[1..]) {
        let page = dir.join(format!("trax-{}.1", words(arguments).join("-")));
        let text = std::fs::read_to_string(&page)
            .unwrap_or_else(|error| panic!("{}: {error}", page.display()));
        assert!(
            text.contains(".TH") && text.contains("OPTIONS"),
            "{}",
            page.display()
        );
    }
    let (code, page, _) = run(bare().arg("man"));
    assert_eq!(code, Some(0));
    assert!(
        page.contains(".TH trax") && page.contains("Exit codes"),
        "{page}"
    );
}
