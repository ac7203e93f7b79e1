//! Every command against a real server: its help, table, JSON, `--quiet`, invalid arguments,
//! missing database and exit codes. The contract of each is a line of the table.

mod commands;

use super::{bare, json, names, trax};
use commands::{Contract, Json, Quiet, all, split};
use harness::process::{Scratch, run};
use harness::session::session;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use trax_client::testkit::Database;

/// The words of every command.
pub(super) fn every_command() -> Vec<Vec<String>> {
    all().map(Contract::words).collect()
}

fn at_80_columns(words: &[String]) -> Command {
    let mut command = bare();
    command.env("COLUMNS", "80").args(words);
    command
}

/// The files that arguments name.
fn files() -> Scratch {
    let files = Scratch::new("contract");
    for (name, text) in [
        ("crontab", "0 3 * * * true\n"),
        (
            "graph.toml",
            "[[jobs]]\nname = \"load\"\ntask = \"load\"\n[[jobs]]\nname = \"sum\"\ntask = \"sum\"\nneeds = [\"load\"]\n",
        ),
        (
            "manifest.toml",
            "[[manifests]]\nname = \"m\"\ntask = \"a\"\ncron = \"0 6 * * *\"\ntimezone = \"Europe/Berlin\"\n",
        ),
    ] {
        std::fs::write(files.path().join(name), text).expect("a file can be written");
    }
    files
}

#[test]
fn the_table_has_every_command_that_there_is() {
    let files = Scratch::new("pages");
    let (code, _, errors) = run(bare().args(["man", "--dir"]).arg(files.path()));
    assert_eq!(code, Some(0), "{errors}");
    let pages = std::fs::read_dir(files.path()).expect("a directory");
    let pages: BTreeSet<String> = pages
        .map(|page| {
            page.expect("a page")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let page = |words: &str| format!("trax-{}.1", words.replace(' ', "-"));
    let known: BTreeSet<String> = all().map(|command| page(command.words)).collect();
    // The page of a command group lists its commands; `help` has separate pages.
    let groups: BTreeSet<String> = all()
        .filter_map(|command| command.words.split_once(' '))
        .map(|(group, _)| page(group))
        .chain(["trax.1".to_owned()])
        .collect();
    let others: Vec<&String> = pages
        .iter()
        .filter(|page| !known.contains(*page) && !groups.contains(*page) && !page.contains("help"))
        .collect();
    assert!(others.is_empty(), "not in the table: {others:?}");
    let missing: Vec<&String> = known.difference(&pages).collect();
    assert!(missing.is_empty(), "no such command: {missing:?}");
}

#[test]
fn every_command_has_help_that_fits_80_columns_and_names_its_options() {
    for command in all() {
        let mut words = command.words();
        words.push("--help".to_owned());
        let (code, output, errors) = run(&mut at_80_columns(&words));
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{words:?}");
        let usage = format!("Usage: trax {}", command.words);
        assert!(output.contains(&usage), "{words:?}: {output}");
        for line in output.lines() {
            assert!(line.chars().count() <= 80, "{words:?}: {line}");
        }
        let has_json = command.runs && !matches!(command.json, Json::Refused);
        let has_quiet = command.runs && !matches!(command.quiet, Quiet::Refused);
        for (option, there) in [
            ("--json", has_json),
            ("-q, --quiet", has_quiet),
            ("-v, --verbose", has_json),
        ] {
            assert!(
                !there || output.contains(option),
                "{words:?} has no {option}: {output}"
            );
        }
    }
}

#[test]
fn every_command_ends_with_64_at_wrong_arguments_before_any_database_is_asked() {
    let files = files();
    let path = files.path().display().to_string();
    for command in all() {
        assert!(!command.wrong.is_empty(), "{}", command.words);
        let unknown = format!(
            "{} --no-such-option",
            command.arguments.replace(" -- true", "")
        );
        for wrong in command.wrong.iter().copied().chain([unknown.as_str()]) {
            let arguments = split(&wrong.replace('$', "1").replace('%', &path));
            // No server listens there, so a command that connects would exit with 1.
            let (code, output, errors) = run(bare()
                .args(["--database-url", "postgres://ada@127.0.0.1:1/jobs"])
                .args(command.words())
                .args(&arguments));
            assert_eq!(
                code,
                Some(64),
                "{} {arguments:?} printed {output}{errors}",
                command.words
            );
            assert!(
                !errors.is_empty(),
                "{} {arguments:?} says nothing",
                command.words
            );
        }
    }
}

#[test]
fn every_command_names_the_database_that_it_cannot_reach() {
    let files = files();
    let path = files.path().display().to_string();
    for command in all().filter(|command| command.asks_a_database) {
        let words = command.words;
        let (code, output, errors) = run(bare()
            .args(["--database-url", "postgres://ada:secret@127.0.0.1:1/jobs"])
            .args(command.words())
            .args(command.arguments("1", &path)));
        // An unreachable database is a finding of `doctor`, not a failure.
        let (said, expected) = match words {
            "doctor" => (&output, Some(2)),
            _ => (&errors, Some(1)),
        };
        assert_eq!(code, expected, "{words}: {output}{errors}");
        for part in ["127.0.0.1:1", "jobs", "ada"] {
            assert!(said.contains(part), "{words}: {said}");
        }
        assert!(!said.contains("secret"), "{words}: {said}");
        if words == "doctor" {
            continue;
        }
        assert_eq!(output, "", "{words}");
        let lines: Vec<&str> = errors.lines().collect();
        assert!(
            lines.len() == 2 && lines[0].starts_with("trax: ") && lines[1].starts_with("hint: "),
            "{words} is not one line and a hint: {errors}"
        );
    }
}

#[tokio::test]
async fn every_command_says_what_to_type_where_the_extension_is_missing() {
    let name = harness::scheduler::new_name("bare");
    let database = harness::shared_server().plain_database(&name).await;
    let database = database.expect("a database is made");
    let files = files();
    let path = files.path().display().to_string();
    let asking = all().filter(|command| command.asks_a_database && command.runs);
    // This command checks for jobs before it creates anything.
    for command in asking.filter(|command| command.words != "import pg_cron") {
        let words = command.words;
        let (code, output, errors) =
            in_mode(&database, command, None, &command.arguments("1", &path));
        let expected = if words == "doctor" { 2 } else { 1 };
        assert_eq!(code, Some(expected), "{words}: {output}{errors}");
        let said = output + &errors;
        assert!(said.contains("create extension trax"), "{words}: {said}");
    }
}

/// Runs a command with an option, or with none.
fn in_mode(
    database: &Database,
    command: &Contract,
    option: Option<&str>,
    arguments: &[String],
) -> (Option<i32>, String, String) {
    let mut process = trax(database, &[]);
    run(process.args(command.words()).args(option).args(arguments))
}

#[tokio::test]
async fn every_command_keeps_its_contract_on_a_server() {
    let (db, s) = session().await;
    let files = files();
    let path = files.path().display().to_string();
    for command in all().filter(|command| command.runs) {
        let words = command.words;
        for option in [None, Some("--json"), Some("--quiet"), Some("--verbose")] {
            let prepared = s.get(command.prepared).await;
            let prepared = prepared
                .lines()
                .last()
                .unwrap_or_default()
                .replace('~', " ");
            let arguments = command.arguments(&prepared, &path);
            let (code, output, errors) = in_mode(&db, command, option, &arguments);
            let told = format!("{words} {option:?} printed {output}{errors}");
            let has_option = match option {
                Some("--json" | "--verbose") => !matches!(command.json, Json::Refused),
                Some("--quiet") => !matches!(command.quiet, Quiet::Refused),
                _ => true,
            };
            if !has_option {
                assert_eq!(code, Some(64), "{told}");
                continue;
            }
            assert_eq!(code, Some(command.code), "{told}");
            match option {
                Some("--json") => assert_json(command, &output, &told),
                Some("--quiet") => assert_quiet(command, &prepared, &output, &errors, &told),
                Some("--verbose") => {
                    let asks = format!("(database \"{}\", user \"postgres\")", db.name());
                    assert!(errors.contains(&asks), "{told}");
                }
                _ => {
                    let all = output.clone() + &errors;
                    assert!(all.contains(command.shows), "{told}");
                    assert!(!output.contains('\u{1b}'), "{told}");
                }
            }
        }
    }
    s.assert_healthy().await;
}

fn assert_json(command: &Contract, output: &str, told: &str) {
    let value = json(output);
    let expected = |members: &'static str| members.split_whitespace().collect::<Vec<_>>();
    if let Json::Document(members) = command.json {
        return assert_eq!(names(&value), expected(members), "{told}");
    }
    let Value::Array(objects) = value else {
        panic!("no array: {told}");
    };
    match command.json {
        Json::Of(members) => {
            let first = objects.first().unwrap_or_else(|| panic!("nothing: {told}"));
            assert_eq!(names(first), expected(members), "{told}");
        }
        Json::Document(_) => unreachable!("it returned above"),
        Json::Empty => assert!(objects.is_empty(), "{told}"),
        Json::Refused => panic!("it has --json: {told}"),
    }
}

fn assert_quiet(command: &Contract, prepared: &str, output: &str, errors: &str, told: &str) {
    assert_eq!(errors, "", "{told}");
    match command.quiet {
        Quiet::Nothing => assert_eq!(output, "", "{told}"),
        Quiet::Lines(lines) => {
            assert_eq!(output.trim_end(), lines.replace('$', prepared), "{told}");
        }
        Quiet::Words => {
            assert!(!output.is_empty(), "{told}");
            let tables = output.lines().any(|line| line.contains("  "));
            assert!(!tables, "{told}");
        }
        Quiet::Refused => panic!("it has --quiet: {told}"),
    }
}
