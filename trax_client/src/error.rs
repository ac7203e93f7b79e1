//! The errors of calls, classified by SQLSTATE.

use std::time::Duration;
use std::{fmt, io};

use tokio_postgres::error::{DbError, SqlState};

use crate::hint::in_rust;
use crate::level;
use crate::not_completed::NotCompleted;
use crate::tls_refusal::explain;

/// An error of the server: the message, and DETAIL and HINT if present.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Report {
    /// The five-character SQLSTATE.
    pub sqlstate: String,
    /// A single line in lower case.
    pub message: String,
    /// Full sentences about the cause.
    pub detail: Option<String>,
    /// The action to take, often a command.
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

/// The reason for a failed call. `Display` writes the message, the SQLSTATE, the detail and the
/// hint, whose arguments are methods of this crate; [`Error::report`] returns the server's words. A
/// race that occurs in normal operation is a result, not an error.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// 42704: no manifest, group, rate, dead letter, job or role has this name.
    UnknownName(Report),
    /// 22004, 22023 and the rest of class 22: an argument is missing or out of range.
    InvalidArgument(Report),
    /// Class 54: the input or output is over a size limit, or nested too deeply.
    TooLarge(Report),
    /// 55000, 25001: the call is not possible in the present state of the server.
    WrongState(Report),
    /// 40001, 40P01, 23505: a conflict with a concurrent transaction; a retry may succeed.
    Conflict(Report),
    /// 57014, 55P03 and the classes 53 and 58: out of time or resources, or a lock was not
    /// available; a retry may succeed.
    Busy(Report),
    /// 42501: the role lacks the right; `trax.grant_access` grants it. The hint has the level.
    NotPermitted(Report),
    /// 42883, 3F000, 42P01: the extension, or this function or table of it, does not exist in this
    /// database. The hint has the command that creates it.
    NotInstalled(Report),
    /// 0A000: a feature that this version of the extension does not have.
    Unsupported(Report),
    /// Any other error of the server.
    Database(Report),
    /// The server cannot be reached, or the connection broke; whether the call succeeded is
    /// unknown.
    Connection(Box<dyn std::error::Error + Send + Sync>),
    /// The address of the database is invalid; the text has the reason.
    Address(String),
    /// The server offers no TLS, its certificate is not trusted, or a certificate of the client
    /// cannot be read.
    Tls(String),
    /// The worker is misconfigured; the text has the remedy.
    Setup(String),
    /// The job whose output was asked for has not completed, or its output was left out.
    NotCompleted(NotCompleted),
    /// A value cannot be converted to or from JSON or its SQL type.
    Conversion(Box<dyn std::error::Error + Send + Sync>),
}

/// The result of every call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<NotCompleted> for Error {
    fn from(error: NotCompleted) -> Self {
        Error::NotCompleted(error)
    }
}

impl Error {
    /// Returns the error of the server, if the server reported one.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Error::UnknownName(report)
            | Error::InvalidArgument(report)
            | Error::TooLarge(report)
            | Error::WrongState(report)
            | Error::Conflict(report)
            | Error::Busy(report)
            | Error::NotPermitted(report)
            | Error::NotInstalled(report)
            | Error::Unsupported(report)
            | Error::Database(report) => Some(report),
            // From a router whose shard is unavailable.
            Error::Connection(cause) => {
                cause.downcast_ref::<ServerReport>().map(|server| &server.0)
            }
            Error::Address(_)
            | Error::Tls(_)
            | Error::Setup(_)
            | Error::NotCompleted(_)
            | Error::Conversion(_) => None,
        }
    }

    /// Returns whether a retry may succeed without any change.
    pub fn is_transient(&self) -> bool {
        self.blame() != Blame::Call
    }

    pub(crate) fn blame(&self) -> Blame {
        match self {
            Error::Connection(_) => Blame::Connection,
            other => other
                .report()
                .map_or(Blame::Call, |report| blame(&report.sqlstate)),
        }
    }

    /// Returns the error for a server that did not answer in time.
    pub(crate) fn unanswered(limit: Duration) -> Self {
        Error::Connection(Box::new(Unanswered(limit)))
    }

    /// Returns whether the server would refuse these values again: an output that is too large or
    /// nested too deeply, a number that cannot be stored, or a value that a constraint or trigger
    /// rejects. The conformance table `sqlstates.txt` is the same for all clients.
    pub(crate) fn is_of_the_values(&self) -> bool {
        match self {
            Error::InvalidArgument(_) | Error::TooLarge(_) | Error::Conversion(_) => true,
            Error::Database(report) => matches!(report.sqlstate.get(..2), Some("23" | "P0")),
            _ => false,
        }
    }

    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Error::Connection(cause) if cause.is::<Unanswered>())
    }

    /// Returns whether the message sent may have ended the connection: the connection closed
    /// without an error, or the server could not read the message. An error of the server about
    /// itself does not count.
    pub(crate) fn may_be_of_the_message(&self) -> bool {
        matches!(self, Error::Connection(cause)
            if cause.is::<tokio_postgres::Error>() || cause.is::<Unreadable>())
    }

    /// Returns whether a server answered that may accept calls soon: a starting server or a
    /// standby.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self, Error::Connection(cause) if cause.is::<Starting>()
            || cause.downcast_ref::<Unreached>().is_some_and(|hosts| hosts.is_starting))
    }

    /// Returns the same error with the name of the unreachable host.
    pub(crate) fn of_host(self, name: &str) -> Self {
        let is_starting = self.is_starting();
        match self {
            Error::Connection(cause) => Error::Connection(Box::new(Unreached {
                reasons: format!("{name}: {}", chain(cause.as_ref())),
                is_starting,
                cause,
            })),
            other => other,
        }
    }

    /// Adds the reason for another unreachable host. Returns `other` if either error has a
    /// different cause.
    pub(crate) fn add_host(&mut self, other: Self) -> Option<Self> {
        if let (Error::Connection(one), Error::Connection(two)) = (&mut *self, &other)
            && let Some(one) = one.downcast_mut::<Unreached>()
            && let Some(two) = two.downcast_ref::<Unreached>()
        {
            one.reasons = format!("{}; {}", one.reasons, two.reasons);
            one.is_starting |= two.is_starting;
            return None;
        }
        Some(other)
    }

    /// Returns a copy of the error, for another caller that waits for the same result.
    pub(crate) fn again(&self) -> Self {
        match self.report() {
            Some(report) => {
                Error::from_report(&SqlState::from_code(&report.sqlstate), report.clone())
            }
            None => Error::Setup(self.to_string()),
        }
    }

    /// Returns the error of a call of a function. If the right to call it is missing, the hint
    /// names the level that has it.
    pub(crate) fn of_call(self, function: &str) -> Self {
        self.without_level(level::of(function))
    }

    /// Returns the error of a statement that reads tables, as all readers may.
    pub(crate) fn of_read(self) -> Self {
        self.without_level("reader")
    }

    fn without_level(self, level: &str) -> Self {
        match self {
            Error::NotPermitted(mut report) if report.hint.is_none() => {
                // An admin has every level.
                let keeps = if level == "admin" {
                    ""
                } else {
                    level::KEEPS_BOTH
                };
                report.hint = Some(format!(
                    "As an admin of trax, type: select trax.grant_access('ROLE', '{level}'){keeps}"
                ));
                Error::NotPermitted(report)
            }
            other => other,
        }
    }

    pub(crate) fn from_report(code: &SqlState, mut report: Report) -> Self {
        let names_ours = names_ours(&report.message);
        if code.code() == "3F000" || names_ours && matches!(code.code(), "42883" | "42P01") {
            report.hint = Some(CREATE.to_owned());
        }
        // The server's own refusal of a text names its bytes or its escape alone.
        let is_of_nul = match code.code() {
            "22021" => report.message.ends_with(" 0x00"),
            "22P05" => true,
            _ => false,
        };
        if is_of_nul && report.hint.is_none() {
            report.hint = Some(NUL.to_owned());
        }
        match code.code() {
            "42704" => Error::UnknownName(report),
            "55000" | "25001" => Error::WrongState(report),
            "40001" | "40P01" | "23505" => Error::Conflict(report),
            "42501" => Error::NotPermitted(report),
            "42883" | "3F000" => Error::NotInstalled(report),
            // Only tables in the schema `trax`, not those of a handler's own statement. The quotes
            // around the name depend on the server's language.
            "42P01" if names_ours => Error::NotInstalled(report),
            "0A000" => Error::Unsupported(report),
            "57P03" | "25006" => Error::Connection(Box::new(Starting(report.message))),
            "08P01" => Error::Connection(Box::new(Unreadable(report.message))),
            code if code.starts_with("22") => Error::InvalidArgument(report),
            code if code.starts_with("54") => Error::TooLarge(report),
            code => match blame(code) {
                Blame::Connection => Error::Connection(Box::new(ServerReport(report))),
                Blame::Moment if code.starts_with("40") => Error::Conflict(report),
                Blame::Moment => Error::Busy(report),
                Blame::Call => Error::Database(report),
            },
        }
    }
}

const CREATE: &str = "As a superuser in this database, type: create extension trax; \
    or, where an older version is: alter extension trax update";

const NUL: &str = "Leave out the character NUL (\\0), which PostgreSQL stores in no text, \
    such as the name of a task, and in no JSON";

/// Returns whether a message names an object in the schema `trax`.
fn names_ours(message: &str) -> bool {
    message
        .match_indices("trax.")
        .any(|(at, _)| !message[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// The cause of an error, which decides whether to retry and on which connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Blame {
    /// The connection is gone, or its server accepts no calls: another connection may work.
    Connection,
    /// The circumstances: the server was busy, or another session held a lock. A retry may succeed.
    Moment,
    /// The call itself.
    Call,
}

/// Returns the blame for an SQLSTATE. The only place that lists them.
fn blame(sqlstate: &str) -> Blame {
    match sqlstate {
        // Shutdown, crash, startup, dropped database, idle and transaction timeouts, too many
        // connections, standby.
        "57P01" | "57P02" | "57P03" | "57P04" | "57P05" | "25P03" | "25P04" | "53300" | "25006" => {
            Blame::Connection
        }
        // statement_timeout or a cancel; lock_timeout; a lost race.
        "57014" | "55P03" | "55006" | "23505" => Blame::Moment,
        code => match code.get(..2) {
            Some("08") => Blame::Connection,
            // Rolled back; out of disk, memory or the like; an operating system error.
            Some("40" | "53" | "58") => Blame::Moment,
            _ => Blame::Call,
        },
    }
}

/// A server's report about a connection: its own that is ending, or its connection to a shard.
#[derive(Debug)]
struct ServerReport(Report);

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for ServerReport {}

/// The message of a server that may accept calls soon.
#[derive(Debug)]
struct Starting(String);

impl fmt::Display for Starting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Starting {}

/// Hosts that could not be reached, each with the reason.
#[derive(Debug)]
struct Unreached {
    reasons: String,
    is_starting: bool,
    /// The cause of the first host's failure.
    cause: Box<dyn std::error::Error + Send + Sync>,
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons)
    }
}

impl std::error::Error for Unreached {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.cause.as_ref())
    }
}

/// The message of a server that could not read the client's message.
#[derive(Debug)]
struct Unreadable(String);

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

#[derive(Debug)]
struct Unanswered(Duration);

impl fmt::Display for Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer within {:.1} s", self.0.as_secs_f64())
    }
}

impl std::error::Error for Unanswered {}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(db) = error.as_db_error() {
            return Error::from_report(db.code(), Report::from(db));
        }
        // All other driver errors concern the connection. The driver exposes their kind only in the
        // text.
        let text = error.to_string();
        if text.contains("serializing parameter") || text.contains("deserializing column") {
            return Error::Conversion(error.into());
        }
        if text.contains("TLS handshake") {
            return from_handshake(error);
        }
        // The driver's message for a host that does not satisfy target_session_attrs.
        let standby = chain(&error);
        if standby.contains("database does not allow writes") {
            return Error::Connection(Box::new(Starting(standby)));
        }
        Error::Connection(error.into())
    }
}

/// Returns the error of a failed handshake. An interrupted handshake may be retried; a refused one
/// would be refused again.
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
            Error::Tls("the server does not support TLS, but sslmode requires it".to_owned())
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
            Error::NotCompleted(error) => write!(f, "{error}"),
            Error::Conversion(error) => write!(f, "conversion: {}", chain(error.as_ref())),
            other => {
                let Some(report) = other.report() else {
                    return Ok(());
                };
                write!(f, "{report} ({})", report.sqlstate)?;
                let hint = report.hint.as_deref().map(in_rust);
                match (&report.detail, hint) {
                    (Some(detail), Some(hint)) => write!(f, ": {detail} {hint}"),
                    (Some(detail), None) => write!(f, ": {detail}"),
                    (None, Some(hint)) => write!(f, ". {hint}"),
                    (None, None) => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Connection(cause) | Error::Conversion(cause) => Some(cause.as_ref()),
            _ => None,
        }
    }
}

/// Returns an error and its causes on one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    joined(causes(error))
}

/// Returns an error and its causes, the outermost first.
pub(crate) fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Joins errors on one line, leaving out those already contained in the text before them.
pub(crate) fn joined<'e>(
    errors: impl Iterator<Item = &'e (dyn std::error::Error + 'static)>,
) -> String {
    let mut text = String::new();
    for error in errors {
        let part = error.to_string();
        if text.is_empty() {
            text = part;
        } else if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
    }
    text
}

#[cfg(test)]
mod tests;
