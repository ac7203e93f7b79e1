//! The command line as it is typed: its parsing, and the arguments that hints may name.

use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, FromArgMatches};

use crate::Arguments;
use trax_terminal::{Typed, print, quote};

/// Parses the arguments of this process.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    let mut command = with_negative_numbers(Arguments::command());
    let mut matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let (below, of_it) = leaf(&command, &matches);
    typed(below).runs();
    note_lists(below, of_it);
    Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
}

/// Lets a negative number be a value, so that the error is that it is out of range.
fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| match arg.get_action().takes_values() {
            true => arg.allow_negative_numbers(true),
            false => arg,
        })
        .mut_subcommands(with_negative_numbers)
}

/// Returns the command that the words select, and its part of the line.
fn leaf<'c>(
    mut command: &'c Command,
    mut matches: &'c ArgMatches,
) -> (&'c Command, &'c ArgMatches) {
    while let Some((name, below)) = matches.subcommand()
        && let Some(found) = command.find_subcommand(name)
    {
        (command, matches) = (found, below);
    }
    (command, matches)
}

/// Notes options that take one name each and were given a list: `--task a,b`. The list may be a
/// name, so it is not refused.
fn note_lists(command: &Command, matches: &ArgMatches) {
    for arg in command.get_arguments().filter(|arg| takes_a_name(arg)) {
        let option = arg.get_long().unwrap_or_default();
        for value in matches.get_raw(arg.get_id().as_str()).into_iter().flatten() {
            let value = value.to_string_lossy();
            let names: Vec<&str> = value.split(',').map(str::trim).collect();
            if names.len() > 1 && names.iter().all(|name| !name.is_empty()) {
                let each = |name: &str| format!("--{option} {}", quote::word(name));
                let all: Vec<String> = names.into_iter().map(each).collect();
                let text = format!(
                    "{} is one name; for several, type: {}",
                    each(&value),
                    all.join(" ")
                );
                print::log("trax", &text);
            }
        }
    }
}

/// Returns whether an option is given once for each name.
fn takes_a_name(arg: &Arg) -> bool {
    let of_names = |name| matches!(name, "TASK" | "GROUP" | "VERSION" | "NAME");
    let names = arg.get_value_names().unwrap_or_default();
    matches!(arg.get_action(), ArgAction::Append)
        && arg.get_long().is_some()
        && names.iter().any(|name| of_names(name.as_str()))
}

/// Returns the arguments of a command.
fn typed(command: &Command) -> Typed {
    let alone = command.get_positionals();
    Typed {
        options: command
            .get_arguments()
            .filter_map(|arg| arg.get_long().map(|long| format!("--{long}")))
            .collect(),
        alone: alone.map(|arg| arg.get_id().to_string()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Every command without commands of its own, with its words.
    fn leaves(words: &str, command: &Command, found: &mut Vec<(String, Command)>) {
        for below in command.get_subcommands() {
            let words = format!("{words} {}", below.get_name());
            match below.has_subcommands() {
                true => leaves(&words, below, found),
                false => found.push((words, below.clone())),
            }
        }
    }

    fn every_command() -> Vec<(String, Command)> {
        let mut found = Vec::new();
        leaves("trax", &Arguments::command(), &mut found);
        found
    }

    /// Adds the lines of the server's code with arguments or calls to type.
    fn hints(place: &Path, found: &mut Vec<String>) {
        if place.is_dir() {
            let entries = std::fs::read_dir(place).expect("a directory");
            entries.for_each(|entry| hints(&entry.expect("an entry").path(), found));
            return;
        }
        let is_code = place
            .extension()
            .is_some_and(|end| end == "rs" || end == "sql");
        let text = std::fs::read_to_string(place).unwrap_or_default();
        let lines = text.lines().filter(|_| is_code);
        let typed = lines.filter(|line| line.contains(" => ") || line.contains("select trax."));
        found.extend(typed.map(|line| line.trim().replace("''", "'")));
    }

    #[test]
    fn every_option_in_a_hint_is_one_of_its_command() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut lines = Vec::new();
        for place in [
            "trax_pg/src",
            "trax_pg/schedule/src",
            "sql/api",
            "sql/relay",
            "sql/router",
        ] {
            hints(&root.join(place), &mut lines);
        }
        assert!(lines.len() > 100, "{}", lines.len());
        let commands = every_command();
        for (words, command) in &commands {
            let typed = typed(command);
            for line in &lines {
                let said = typed.rewritten(line);
                for option in said.split("--").skip(1) {
                    let end = option.find(|c: char| !c.is_ascii_lowercase() && c != '-');
                    let option = format!("--{}", &option[..end.unwrap_or(option.len())]);
                    let is_of_another = commands.iter().any(|(other, command)| {
                        said.contains(other.as_str()) && typed_of(command).contains(&option)
                    });
                    assert!(
                        line.contains(&option) || typed.options.contains(&option) || is_of_another,
                        "{words} has no {option}: {said}"
                    );
                }
            }
        }
    }

    fn typed_of(command: &Command) -> Vec<String> {
        typed(command).options
    }

    #[test]
    fn a_negative_number_is_a_value() {
        let command = with_negative_numbers(Arguments::command());
        command.debug_assert();
    }
}
