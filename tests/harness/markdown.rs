//! The SQL and the commands of a document, and the output that it shows.
//!
//! The rule for executed documents:
//! - psql runs a fenced block whose info string is exactly `sql`, and bash one with `sh`, stopping
//!   at the first command that fails. `sql ignore`, any other info string and indented code are not
//!   run. A line `<!-- run pg_cron.sql -->` stands for a block that the page needs but does not
//!   show; the file is in `tests/whole/readme/before`.
//! - A block in another language (`python`, `toml`) is written to a file if its first line is a
//!   comment with only the name of that file.
//! - A fenced block `text` directly after a block is the expected standard output (`psql -X -q`, so
//!   no `CREATE EXTENSION`), ignoring blanks at line ends and empty lines at the end. A line `...`
//!   stands for any number of lines.
//! - The blocks run in order, each in a new session, as superuser, in one database that is new and
//!   empty at first. The database has no scheduler: a document requests a cycle with
//!   `select * from trax.tick()`.
//! - Commands run in one directory that is empty at first, with `trax` in the path and that
//!   database in `PGDATABASE`.

use crate::process::{Scratch, run};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The language of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Sql,
    Shell,
    /// A file, which is not run; later blocks find it in their directory.
    File,
}

/// A piece of SQL, commands, or a file in a document.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// The line of its opening fence, from 1.
    pub line: usize,
    pub language: Language,
    pub code: String,
    /// The expected output.
    pub expected: Option<String>,
}

impl Block {
    /// Whether the block is run.
    pub fn runs(&self) -> bool {
        self.language != Language::File
    }
}

/// Returns the executed blocks of a document and their files, in order.
pub fn blocks(text: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut follows_code = false;
    let mut found = fences(text);
    found.extend(files_to_run(text));
    found.sort_by_key(|(line, ..)| *line);
    for (line, info, body) in found {
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

/// The files that the document has run, as blocks: line, language, body.
fn files_to_run(text: &str) -> impl Iterator<Item = (usize, &str, String)> {
    text.lines().enumerate().filter_map(|(number, line)| {
        let name = line.strip_prefix("<!-- run ")?.strip_suffix(" -->")?;
        let (_, language) = name.rsplit_once('.')?;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("whole/readme/before");
        let body = std::fs::read_to_string(path.join(name))
            .unwrap_or_else(|error| panic!("line {}: {name}: {error}", number + 1));
        Some((number + 1, language, body))
    })
}

/// Returns the file name of a block that is a file.
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
/// the first block that fails or prints other output than the document shows.
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

/// Each statement of the file is a separate transaction, as when a person types it.
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

/// Whether the output matches the expected one.
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
