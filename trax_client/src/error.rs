//! Every failure of a call, sorted by SQLSTATE.

use std::{fmt, io};

use tokio_postgres::error::{DbError, SqlState};

use crate::tls::explain;

/// What the server said: the message, and its DETAIL and HINT when it gave them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The five letters of the SQLSTATE.
    pub sqlstate: String,
    /// One line, lower case.
    pub message: String,
    /// Full sentences about the cause.
    pub detail: Option<String>,
    /// What to type.
    pub hint: Option<String>,
}

impl From<&DbError> for Report {
    fn from(error: &DbError) -> Self {
        Report {
            sqlstate: error.code().code().to_owned(),
            message: error.message().to_owned(),
            detail: error.detail().map(str::to_owned),
            hint: error.hint().map(str::to_owned),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Why a call failed. A race that normal life produces is never here: it is a value of the call.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// 42704: no manifest, group, dead letter or role has this name.
    UnknownManifest(Report),
    /// 22004, 22023 and the rest of class 22: an argument is missing or out of its range.
    InvalidArgument(Report),
    /// 54000: the input or output is over a size limit.
    TooLarge(Report),
    /// 55000, 25001: the call does not fit the state that the server is in.
    WrongState(Report),
    /// 40001, 40P01, 23505: lost against a concurrent transaction; doing it again may succeed.
    Conflict(Report),
    /// 42501: this role may not do that; `trax.grant_access` gives the right.
    NotPermitted(Report),
    /// 42883, 3F000, 42P01: the extension, or this function or table of it, is not in this database.
    NotInstalled(Report),
    /// 0A000: a part of the contract that this version does not have yet.
    Unsupported(Report),
    /// Any other error of the server.
    Database(Report),
    /// The server cannot be reached, or the connection broke; nothing is known about the call.
    Connection(Box<dyn std::error::Error + Send + Sync>),
    /// The address of the database is not one; says what is wrong.
    Address(String),
    /// The server offers no TLS, its certificate is not to be trusted, or a certificate of this side cannot be read.
    Tls(String),
    /// The worker was put together wrong; says what to do.
    Setup(String),
    /// A value could not be written as, or read from, JSON or its SQL type.
    Conversion(Box<dyn std::error::Error + Send + Sync>),
}

/// The result of every call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// What the server said, when it was the server that refused.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Error::UnknownManifest(report)
            | Error::InvalidArgument(report)
            | Error::TooLarge(report)
            | Error::WrongState(report)
            | Error::Conflict(report)
            | Error::NotPermitted(report)
            | Error::NotInstalled(report)
            | Error::Unsupported(report)
            | Error::Database(report) => Some(report),
            Error::Connection(_)
            | Error::Address(_)
            | Error::Tls(_)
            | Error::Setup(_)
            | Error::Conversion(_) => None,
        }
    }

    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::Connection(_) | Error::Conflict(_))
    }

    fn from_report(code: &SqlState, report: Report) -> Self {
        match code.code() {
            "42704" => Error::UnknownManifest(report),
            "54000" => Error::TooLarge(report),
            "55000" | "25001" => Error::WrongState(report),
            "40001" | "40P01" | "23505" => Error::Conflict(report),
            "42501" => Error::NotPermitted(report),
            "42883" | "3F000" => Error::NotInstalled(report),
            // A table of ours, and not one that a handler's own statement asked for.
            "42P01" if report.message.contains("\"trax.") => Error::NotInstalled(report),
            "0A000" => Error::Unsupported(report),
            // The server is going away, starting up, full or a standby: a matter of the connection.
            "57P01" | "57P02" | "57P03" | "53300" | "25006" => {
                Error::Connection(report.message.into())
            }
            code if code.starts_with("08") => Error::Connection(report.message.into()),
            code if code.starts_with("22") => Error::InvalidArgument(report),
            _ => Error::Database(report),
        }
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(db) = error.as_db_error() {
            return Error::from_report(db.code(), Report::from(db));
        }
        // Only these two kinds of the driver are not about the connection, and it names them in text.
        let text = error.to_string();
        if text.contains("serializing parameter") || text.contains("deserializing column") {
            return Error::Conversion(error.into());
        }
        if text.contains("TLS handshake") {
            return from_handshake(error);
        }
        Error::Connection(error.into())
    }
}

/// A handshake that broke off says nothing; one that was refused will be refused again.
fn from_handshake(error: tokio_postgres::Error) -> Error {
    use std::error::Error as _;
    match error
        .source()
        .map(|cause| cause.downcast_ref::<io::Error>())
    {
        Some(Some(cause)) if cause.kind() == io::ErrorKind::InvalidData => {
            Error::Tls(explain(cause))
        }
        Some(None) if chain(&error).contains("does not support TLS") => {
            Error::Tls("the server offers no TLS, which sslmode asks for".to_owned())
        }
        _ => Error::Connection(error.into()),
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error::Conversion(error.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Connection(error) => write!(f, "connection: {}", chain(error.as_ref())),
            Error::Address(mistake) => write!(f, "address of the database: {mistake}"),
            Error::Tls(cause) => write!(f, "TLS: {cause}"),
            Error::Setup(mistake) => f.write_str(mistake),
            Error::Conversion(error) => write!(f, "conversion: {}", chain(error.as_ref())),
            other => match other.report() {
                Some(report) => write!(f, "{report} ({})", report.sqlstate),
                None => Ok(()),
            },
        }
    }
}

impl std::error::Error for Error {}

/// An error and its causes on one line; a cause that its parent already told is left out.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(code: &str) -> Error {
        let report = Report {
            sqlstate: code.to_owned(),
            message: "m".to_owned(),
            detail: None,
            hint: None,
        };
        Error::from_report(&SqlState::from_code(code), report)
    }

    #[test]
    fn a_sqlstate_has_one_kind() {
        assert!(matches!(sorted("42704"), Error::UnknownManifest(_)));
        assert!(matches!(sorted("22023"), Error::InvalidArgument(_)));
        assert!(matches!(sorted("22004"), Error::InvalidArgument(_)));
        assert!(matches!(sorted("40001"), Error::Conflict(_)));
        assert!(matches!(sorted("08006"), Error::Connection(_)));
        assert!(matches!(sorted("57P01"), Error::Connection(_)));
        assert!(matches!(sorted("XX000"), Error::Database(_)));
    }

    #[test]
    fn only_connection_and_conflict_are_worth_another_try() {
        assert!(sorted("57P03").is_transient());
        assert!(sorted("40P01").is_transient());
        assert!(!sorted("22023").is_transient());
    }
}
