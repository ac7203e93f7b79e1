//! Exit codes, completions and manual pages.

use super::bare;
use super::contract::every_command;
use harness::process::{Scratch, run};
use std::process::Command;

fn at_80_columns(arguments: &[&str]) -> Command {
    let mut command = bare();
    command.env("COLUMNS", "80").args(arguments);
    command
}

#[test]
fn the_exit_codes_are_in_the_help() {
    let (_, output, _) = run(&mut at_80_columns(&["--help"]));
    for code in [
        "0   done",
        "1   failed",
        "2   unhealthy",
        "3   timeout",
        "64  usage error",
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
fn the_page_of_the_command_has_the_exit_codes_of_every_command() {
    let page = include_str!("../../docs/command.md");
    for (words, codes) in [
        (&["jobs", "watch"][..], &["4"][..]),
        (&["lock"], &["64", "74", "75", "126", "127"]),
        (&["step"], &["3", "64", "65", "74", "75", "126", "127"]),
    ] {
        let (_, output, _) = run(at_80_columns(words).arg("--help"));
        let (_, told) = output.split_once("Exit codes:").expect("its exit codes");
        for code in codes {
            let is_there = |text: &str| {
                let mut words = text.split(|c: char| !c.is_alphanumeric());
                words.any(|word| word == *code)
            };
            assert!(is_there(told), "{code}: {told}");
            let lists = page.split_once("Exit codes:").expect("a list").1;
            assert!(
                is_there(lists.split("## ").next().unwrap_or_default()),
                "{code}"
            );
        }
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
    // Asks bash for its completions of a second word that begins with "ma".
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
    for words in every_command() {
        let page = dir.join(format!("trax-{}.1", words.join("-")));
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
