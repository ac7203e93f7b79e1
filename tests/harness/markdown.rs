//! The SQL of a document, and the output that it shows.
//!
//! The rule for documents whose SQL is run:
//! - A fenced block whose info string is exactly `sql` is run. `sql ignore`, any other word and indented code are not.
//! - A fenced block `text` that is the very next block after it is what psql prints for all of it (`psql -X -q`,
//!   so no `CREATE EXTENSION`), blanks at line ends and empty lines at the end aside. A line `...` stands for any
//!   number of lines.
//! - The blocks run in order, each in a session of its own, as superuser, in one database that is new and empty at
//!   the first. It has no scheduler: what a cycle does must be asked for with `select * from trax.tick()`.

use crate::process::{Scratch, run};
use std::process::Command;

/// A piece of SQL that a document shows.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its opening fence, from 1.
    pub line: usize,
    /// The SQL.
    pub sql: String,
    /// What the document says psql prints.
    pub expected: Option<String>,
}

/// The blocks of a document that are run, in order.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut follows_sql = false;
    for (line, info, body) in fences(text) {
        match info {
            "sql" => blocks.push(Block {
                line,
                sql: body,
                expected: None,
            }),
            "text" if follows_sql => {
                if let Some(block) = blocks.last_mut() {
                    block.expected = Some(body);
                }
            }
            _ => {}
        }
        follows_sql = info == "sql";
    }
    blocks
}

/// All fenced blocks: line of the opening fence, info string, body.
fn fences(text: &str) -> Vec<(usize, &str, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, &str, String)> = None;
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => open = Some((number + 1, info.trim(), String::new())),
            (None, None) => {}
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some((_, _, body)), None) => {
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    assert!(
        open.is_none(),
        "the fence of line {:?} is never closed",
        open.map(|(line, ..)| line)
    );
    found
}

/// Runs a document's blocks; `psql` is the command with its database. Panics at the first that fails or that prints
/// something else than the document says.
pub fn play(document: &str, blocks: &[Block], psql: impl Fn() -> Command) {
    let files = Scratch::new("document");
    for Block {
        line,
        sql,
        expected,
    } in blocks
    {
        // From a file each statement is a transaction of its own, as when a person types it.
        let file = files.path().join(format!("line-{line}.sql"));
        std::fs::write(&file, sql).expect("a file can be written");
        let mut psql = psql();
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-P", "pager=off", "-f"])
            .arg(&file);
        let (code, output, errors) = run(&mut psql);
        assert_eq!(
            code,
            Some(0),
            "{document}:{line}: the SQL fails\n{sql}\n{errors}"
        );
        if let Some(expected) = expected {
            assert!(
                matches(expected, &output),
                "{document}:{line}: psql prints\n{output}\nwhere the document shows\n{expected}"
            );
        }
    }
}

/// Whether what was printed is what was expected.
pub fn matches(expected: &str, printed: &str) -> bool {
    let lines = |text: &str| -> Vec<String> {
        text.trim_end()
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    };
    fit(&lines(expected), &lines(printed))
}

fn fit(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((line, rest)) if line == "..." => {
            (0..=printed.len()).any(|skipped| fit(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed.first() == Some(line) && fit(rest, &printed[1..]),
    }
}
