//! The failure of a command: one line, a hint, an exit code.

use std::fmt;
use std::process::ExitCode;

use trax_client::{Access, Error, Report};

use crate::{as_commands, print};

pub const FAILED: u8 = 1;
pub const UNHEALTHY: u8 = 2;
pub const TIMEOUT: u8 = 3;
pub const USAGE: u8 = 64;

/// The error shown to the user when a command fails.
#[derive(Debug)]
pub struct Failure {
    message: String,
    hint: Option<String>,
    code: u8,
}

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Failure {
            message: message.into(),
            hint: None,
            code: FAILED,
        }
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Failure {
            message: message.into(),
            hint: None,
            code: USAGE,
        }
    }

    /// Returns a failure without a message: the output has no reader, which is not an error.
    pub fn silent() -> Self {
        Failure {
            message: String::new(),
            hint: None,
            code: 0,
        }
    }

    pub fn is_silent(&self) -> bool {
        self.message.is_empty()
    }

    /// Sets another exit code.
    pub fn code(mut self, code: u8) -> Self {
        self.code = code;
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the hint, if there is one.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Prefixes the message with the location of the error.
    pub fn at(mut self, place: &str) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Prints the failure and returns the exit code.
    pub fn report(&self) -> ExitCode {
        if !self.is_silent() {
            print::log("trax", &self.message);
        }
        if let Some(hint) = &self.hint {
            print::log("hint", hint);
        }
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Returns the failure for an unknown object, with the command that lists such objects in place of
/// the server's SQL.
fn unknown(report: &Report) -> Option<Failure> {
    // After the manifest that it is about: manifest "m": role "r" does not exist.
    let message = match report.message.rsplit_once("\": ") {
        Some((_, message)) => message,
        None => &report.message,
    };
    let command = match message.split(' ').next()? {
        "manifest" => "trax manifest list",
        "dead" => "trax dead list --status any",
        _ => return None,
    };
    Some(Failure::new(&report.message).hint(format!("to see what exists: {command}")))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if let Error::UnknownName(report) = &error
            && let Some(failure) = unknown(report)
        {
            return failure;
        }
        let hint = match &error {
            Error::NotInstalled(_) => {
                let create = "create extension trax; in this database, as a superuser";
                Some(format!(
                    "{create}; where an older one is: alter extension trax update; at a router, ask a shard"
                ))
            }
            other => other
                .report()
                .and_then(|report| report.hint.as_deref())
                .map(as_commands),
        };
        let hint = match &error {
            Error::NotPermitted(report) => hint.or_else(|| {
                let grant = "as an admin of trax, type: trax grant ROLE";
                let keeps = Access::KEEPS_BOTH;
                Some(match Access::lowest_for(&report.message) {
                    Some("admin") => format!("{grant} admin"),
                    Some(level) => format!("{grant} {level}{keeps}"),
                    None => format!(
                        "{grant} LEVEL{keeps}; the levels are reader, producer, worker and admin"
                    ),
                })
            }),
            _ => hint,
        };
        let code = match &error {
            Error::Setup(_) => USAGE,
            _ => FAILED,
        };
        let detail = error.report().and_then(|report| report.detail.clone());
        // Without the hint, which has its own line.
        let message = match (&error, error.report()) {
            (Error::Connection(_), _) | (_, None) => error.to_string(),
            (_, Some(report)) => format!("{report} ({})", report.sqlstate),
        };
        let message = match detail {
            Some(detail) => format!("{message}: {detail}"),
            None => message,
        };
        Failure {
            message,
            hint,
            code,
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<trax_client::testkit::Error> for Failure {
    fn from(error: trax_client::testkit::Error) -> Self {
        Failure::new(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::new(error.to_string())
    }
}
