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
    /// variable, a quote or a bracket.
    pub(crate) fn of(command: &str) -> Option<Self> {
        for word in command.split([' ', '\t']).filter(|word| !word.is_empty()) {
            if is_assignment(word) || word == "exec" {
                continue;
            }
            let word = word.trim_end_matches([';', '\n']);
            return is_plain(word).then(|| Executable(word.to_owned()));
        }
        None
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

/// Returns whether a word sets a variable for the command to a plain value: `A=b`.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, value)| {
        let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name && !name.is_empty() && (value.is_empty() || is_plain(value))
    })
}

/// Returns whether the shell takes a word as it is.
fn is_plain(word: &str) -> bool {
    !word.is_empty()
        && word
            .chars()
            .all(|c| c.is_alphanumeric() || "_./+:@%,-".contains(c))
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
            ("case $TRAX_TASK in a) b ;; esac", "case"),
        ] {
            assert_eq!(of(command).as_deref(), Some(name), "{command}");
        }
        for command in [
            "$HOME/x",
            "'a b' c",
            "(a; b)",
            "~/x",
            "A=b",
            "A=$(date +%s) date",
            "A='b c' date",
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
