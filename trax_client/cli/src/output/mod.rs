//! The output of all commands: tables and lines of text, or JSON.
//!
//! A *record* is one of the objects that a command shows: a row of its table and an object of its
//! JSON.
//!
//! Input: records, and the options `--json`, `--quiet` and `--verbose`. Output: standard output.
//! Invariants: JSON is always one array of objects with stable member names and times in RFC 3339;
//! a table fits the terminal; colours are used only on terminals; questions and notes go to
//! standard error.

mod ask;
mod facts;
mod placed;
mod progress;
mod table;
mod time;

pub(crate) use ask::{Consent, confirmed};
pub(crate) use facts::Facts;
pub(crate) use placed::{Listed, Placed};
pub(crate) use progress::Progress;
pub(crate) use table::{Cell, Column, cut, table};
pub(crate) use time::{Moment, elapsed};

use std::io::{IsTerminal, Write};

use serde::Serialize;

pub(crate) use trax_terminal::stdout::say;
use trax_terminal::stdout::written;
use trax_terminal::text::escaped;
pub(crate) use trax_terminal::text::{Tone, one_line, paint, plain, width};
use trax_terminal::{Failure, print};

/// The output options; part of a command's arguments.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Print one JSON array of objects; times are RFC 3339
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
    /// Print only ids or names, one per line; commands that change something print nothing
    #[arg(long, short, conflicts_with = "json", help_heading = "Output")]
    pub(crate) quiet: bool,
    /// With --quiet: print unescaped names, each followed by a zero byte, for xargs -0
    #[arg(long, requires = "quiet", help_heading = "Output")]
    pub(crate) null: bool,
    /// Print more columns, and the database on standard error
    #[arg(long, short, help_heading = "Output")]
    pub(crate) verbose: bool,
}

/// An object that a command shows.
pub(crate) trait Record: Serialize {
    /// The columns of the table, in order.
    const COLUMNS: &'static [Column];

    /// Returns the row, with a cell for each column.
    fn cells(&self, now: Moment) -> Vec<Cell>;

    /// Returns the text that `--quiet` prints: the id or name.
    fn key(&self) -> String;

    /// Returns the shard that the record is from, at a router.
    fn shard(&self) -> Option<i32> {
        None
    }
}

impl Options {
    /// Prints a list, or the text `nothing` if it is empty.
    pub(crate) fn list<R: Record>(
        &self,
        records: &[R],
        now: Moment,
        nothing: &str,
    ) -> Result<(), Failure> {
        if self.json {
            return json(records);
        }
        if self.quiet {
            return self.keys(records.iter().map(Record::key));
        }
        if records.is_empty() {
            print::log("trax", nothing);
            return Ok(());
        }
        let rows = records.iter().map(|record| {
            let shard = Cell::maybe(record.shard());
            std::iter::once(shard).chain(record.cells(now)).collect()
        });
        let rows: Vec<Vec<Cell>> = rows.collect();
        let columns = [&[Column::number("shard")], R::COLUMNS].concat();
        say(&table(&columns, &rows, self.verbose, width()))
    }

    /// Prints ids or names for `--quiet`: escaped and one per line, or with `--null` unescaped.
    pub(crate) fn keys(&self, keys: impl Iterator<Item = String>) -> Result<(), Failure> {
        if self.null {
            zero_ended(keys)
        } else {
            lines(keys)
        }
    }

    /// Prints the changes that a command made: a sentence each, an object each, or nothing.
    pub(crate) fn changes<R: Serialize>(
        &self,
        changes: &[R],
        sentence: impl Fn(&R) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            return json(changes);
        }
        if self.quiet {
            return Ok(());
        }
        lines(changes.iter().map(sentence))
    }

    /// Prints that objects of a kind were changed, by their names.
    pub(crate) fn named_changes(
        &self,
        kind: &str,
        names: Vec<String>,
        action: &'static str,
    ) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Change {
            name: String,
            action: &'static str,
        }
        let change = |name| Change { name, action };
        let changes: Vec<Change> = names.into_iter().map(change).collect();
        self.changes(&changes, |change| {
            format!("{kind} \"{}\" {}", change.name, change.action)
        })
    }

    /// Prints a text that precedes the result to standard output, unless `--json` reserves it for
    /// the array.
    pub(crate) fn print(&self, text: &str) -> Result<(), Failure> {
        if self.quiet {
            return Ok(());
        }
        if !self.json {
            return say(text);
        }
        for line in text.trim().lines() {
            print::log("trax", line);
        }
        Ok(())
    }

    /// Prints a note to standard error.
    pub(crate) fn note(&self, text: &str) {
        if !self.quiet && !self.json {
            print::log("trax", text);
        }
    }
}

/// Prints an array on one line.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<(), Failure> {
    let json = serde_json::to_string(value).map_err(trax_client::Error::from)?;
    say(&escaped(&json))
}

fn lines(lines: impl Iterator<Item = String>) -> Result<(), Failure> {
    let lines: Vec<String> = lines.map(|line| one_line(&line)).collect();
    if lines.is_empty() {
        return Ok(());
    }
    say(&lines.join("\n"))
}

/// Prints unescaped names for programs. Refuses to print to a terminal.
fn zero_ended(names: impl Iterator<Item = String>) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    if stdout.is_terminal() {
        let message = "--null prints names as they are, which may steer a terminal";
        return Err(Failure::usage(message).hint("leave it out, or read it with xargs -0"));
    }
    let text: String = names.flat_map(|name| [name, "\0".to_owned()]).collect();
    written(
        stdout
            .write_all(text.as_bytes())
            .and_then(|()| stdout.flush()),
    )
}
