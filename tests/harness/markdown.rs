//! The SQL and the commands of a document, and the output that it shows.
//!
//! The rule for documents that are run:
//! - A fenced block whose info string is exactly `sql` is run by psql, one with `sh` by bash, which
//!   stops at the first command that fails. `sql ignore`, any other word and indented code are not
//!   run. What a page needs and does not show stands in an HTML comment, fence and all.
//! - A block in another language (`python`, `toml`) whose first line is a comment with the name of
//!   a file and nothing else is that file.
//! - A fenced block `text` that is the very next block after it is what it prints on standard
//!   output (`psql -X -q`, so no `CREATE EXTENSION`), blanks at line ends and empty lines at the
//!   end aside. A line `...` stands for any number of lines.
//! - The blocks run in order, each in a session of its own, as superuser, in one database that is
//!   new and empty at the first. It has no scheduler: what a cycle does must be asked for with
//!   `select * from trax.tick()`.
//! - Commands run in one directory that is empty at the first, with `trax` in the path and that
//!   database in `PGDATABASE`.

use crate::process::{Scratch, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What a block is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Sql,
    Shell,
    /// Not run: a file that later blocks find in their directory.
    File,
}

/// A piece of SQL, or commands, that a document shows.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its opening fence, from 1.
    pub line: usize,
    pub language: Language,
    pub code: String,
    /// What the document says it prints.
    pub expected: Option<String>,
}

impl Block {
    /// Whether it is run.
    pub fn runs(&self) -> bool {
        self.language != Language::File
    }
}

/// The blocks of a document that are run, and the files for them, in order.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut follows_code = false;
    for (line, info, body) in fences(text) {
        let language = match info {
            "sql" => Some(Language::Sql),
            "sh" => Some(Language::Shell),
            "text" => None,
            word if word.contains(' ') => None,
            _ => file_name(&body).map(|_| Language::File),
        };
        if let Some(language) = language {
            blocks.push(Block {
                line,
                language,
                code: body,
                expected: None,
            });
        } else if info == "text"
            && follows_code
            && let Some(block) = blocks.last_mut()
        {
            block.expected = Some(body);
        }
        follows_code = blocks.last().is_some_and(Block::runs) && language.is_some();
    }
    blocks
}

/// The name of the file that a block is.
fn file_name(code: &str) -> Option<&str> {
    let first = code.lines().next()?;
    let name = first.strip_prefix("# ").or(first.strip_prefix("// "))?;
    (name.contains('.') && !name.contains([' ', '/'])).then_some(name)
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

/// Runs a document's blocks; `command` makes a command of a program with its database. Panics at
/// the first that fails or that prints something else than the document says.
pub fn play(document: &str, blocks: &[Block], command: impl Fn(&str) -> Command) {
    let files = Scratch::new("document");
    let home = files.path().join("home");
    std::fs::create_dir(&home).expect("a directory can be made");
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o777))
        .expect("its maker may change it");
    for block in blocks {
        let (line, code) = (block.line, &block.code);
        let mut command = match block.language {
            Language::File => {
                let name = file_name(code).expect("a block that is a file names it");
                std::fs::write(home.join(name), code).expect("a file can be written");
                continue;
            }
            Language::Sql => psql(&files, block, command("psql")),
            Language::Shell => bash(&home, block, command("bash")),
        };
        let (status, output, errors) = run(&mut command);
        assert_eq!(
            status,
            Some(0),
            "{document}:{line}: this fails\n{code}\n{errors}"
        );
        if let Some(expected) = &block.expected {
            assert!(
                matches(expected, &output),
                "{document}:{line}: this prints\n{output}\nwhere the document shows\n{expected}"
            );
        }
    }
}

/// From a file each statement is a transaction of its own, as when a person types it.
fn psql(files: &Scratch, block: &Block, mut psql: Command) -> Command {
    let file = files.path().join(format!("line-{}.sql", block.line));
    std::fs::write(&file, &block.code).expect("a file can be written");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-P", "pager=off", "-f"])
        .arg(&file);
    psql
}

fn bash(home: &Path, block: &Block, mut bash: Command) -> Command {
    bash.args(["-euo", "pipefail", "-c", &block.code])
        .current_dir(home);
    bash
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
