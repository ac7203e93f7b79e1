//! The executable file that a shell command begins with, and whether it exists.
//!
//! A worker whose program is missing would fail every job that it claims, so it is refused at the
//! start; if the program vanishes later, the worker releases its jobs.

use std::ffi::CString;
use std::path::Path;
use std::process::{Command, Stdio};

/// The executable that a command begins with.
pub(crate) struct Executable(String);

impl Executable {
    /// Returns `None` if only the shell can tell which one it is: what stands before its end has a
    /// variable, an escape or a bracket.
    pub(crate) fn of(command: &str) -> Option<Self> {
        let mut rest = command;
        loop {
            let (word, after) = Word::read(rest.trim_start_matches([' ', '\t']))?;
            match word.assigned() {
                // Where the shell looks for it.
                Some("PATH") => return None,
                None if word.text != "exec" => return Some(Executable(word.text)),
                _ => rest = after,
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }

    /// Returns whether the shell finds it: a file that may be executed, in PATH or at its path, or
    /// a command of the shell itself.
    pub(crate) fn exists(&self) -> bool {
        if self.0.contains('/') {
            return Path::new(&self.0).is_file() && may_execute(&self.0);
        }
        let mut look = Command::new("sh");
        look.args(["-c", "command -v \"$1\"", "sh", &self.0]);
        look.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        look.status().is_ok_and(|status| status.success())
    }
}

/// A word of a shell command that contains nothing to expand, without its quotes.
struct Word {
    text: String,
    /// The length of its part before the first quote.
    bare: usize,
}

impl Word {
    /// Reads the word at the beginning of a text; returns also the rest.
    fn read(text: &str) -> Option<(Self, &str)> {
        let (mut word, mut bare) = (String::new(), None);
        let mut rest = text;
        while let Some(letter) = rest.chars().next() {
            let after = &rest[letter.len_utf8()..];
            match letter {
                ' ' | '\t' => break,
                ';' | '\n' if after.trim_start().is_empty() || after.starts_with([' ', '\t']) => {
                    break;
                }
                '\'' | '"' => {
                    bare.get_or_insert(word.len());
                    let (quoted, behind) = after.split_once(letter)?;
                    if letter == '"' && quoted.contains(['$', '`', '\\']) {
                        return None;
                    }
                    word.push_str(quoted);
                    rest = behind;
                    continue;
                }
                _ if is_plain(letter) || letter == '=' => word.push(letter),
                _ => return None,
            }
            rest = after;
        }
        if word.is_empty() && bare.is_none() {
            return None;
        }
        let bare = bare.unwrap_or(word.len());
        let word = Word { text: word, bare };
        // Otherwise a shell could read it in another way.
        let is_known = word.assigned().is_some() || !word.text[..bare].contains('=');
        is_known.then_some((word, rest))
    }

    /// Returns the variable that it sets for the command: `A=b`.
    fn assigned(&self) -> Option<&str> {
        let (name, _) = self.text[..self.bare].split_once('=')?;
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        (is_name && !name.is_empty()).then_some(name)
    }
}

/// Returns whether the shell takes a character as it is.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "_./+:@%,-".contains(c)
}

fn may_execute(path: &str) -> bool {
    let Ok(path) = CString::new(path) else {
        return false;
    };
    // SAFETY: the path ends with a zero byte and lives through the call.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_the_executable_unless_only_the_shell_can_tell() {
        let of = |command| Executable::of(command).map(|it| it.0);
        for (command, name) in [
            ("./handle-job --fast", "./handle-job"),
            ("  A=b C= exec sh -c 'x y'", "sh"),
            ("true; exit 3", "true"),
            ("'./a b' c", "./a b"),
            ("\"no such\"'.sh'", "no such.sh"),
            ("A='b c' D=\"e\" date +%s", "date"),
            ("'A=b' c", "A=b"),
            ("'' x", ""),
            ("case $TRAX_TASK in a) b ;; esac", "case"),
        ] {
            assert_eq!(of(command).as_deref(), Some(name), "{command}");
        }
        for command in [
            "$HOME/x",
            "'a b c",
            "\"$HOME/x\"",
            "\"a\\b\"",
            "a\\ b",
            "PATH=/opt x",
            "(a; b)",
            "~/x",
            "A=b",
            "A=$(date +%s) date",
            "A=`date +%s` date",
            "echo\ndate",
            "f() { a; }",
        ] {
            assert_eq!(of(command), None, "{command}");
        }
    }

    #[test]
    fn a_missing_file_and_one_that_is_no_program_do_not_exist() {
        let exists = |name: &str| Executable(name.to_owned()).exists();
        assert!(exists("sh") && exists("/bin/sh") && exists("case") && exists("cd"));
        assert!(!exists("no-such-program") && !exists("/no/such/program"));
        assert!(!exists("/etc/passwd") && !exists("/etc"));
    }
}
