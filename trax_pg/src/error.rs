//! Errors: one type that carries a standard SQLSTATE, the message, DETAIL and HINT up to the SQL
//! entry point.
//!
//! Enters: an error found by any stage. Leaves: one `ERROR` report. Situations of normal operation
//! (a lost lease, nothing to claim) are values and never pass through here.

use pgrx::pg_sys::panic::ErrorReport;
use pgrx::{PgLogLevel, PgSqlErrorCode};

/// Error text and notes are cut at this length, in bytes.
const TEXT_BYTES: usize = 64 * 1024;

pub(crate) type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub(crate) struct Error {
    code: PgSqlErrorCode,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
}

impl Error {
    pub(crate) fn new(code: PgSqlErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            detail: None,
            hint: None,
        }
    }

    /// Sets the DETAIL: a full sentence with the facts.
    pub(crate) fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Sets the HINT: a full sentence with the text to type.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Returns the same error as one about an object among several, such as a manifest.
    pub(crate) fn about(mut self, kind: &str, name: &str) -> Self {
        self.message = format!("{kind} \"{name}\": {}", self.message);
        self
    }

    /// Returns the error of the parser as one about a statement that was passed as a text.
    pub(crate) fn of_statement(mut self, statement: &str) -> Self {
        const SHOWN: usize = 200;
        let shown: String = statement.chars().take(SHOWN).collect();
        let more = if shown.len() < statement.len() {
            "..."
        } else {
            ""
        };
        self.message = format!("the statement cannot be parsed: {}", self.message);
        self.detail(format!("The statement is \"{shown}{more}\"."))
            .hint("Write SQL as in psql, for example: 'vacuum analyze orders'")
    }

    /// Returns the same error as one about a row among many.
    pub(crate) fn of_row(mut self, row: u64) -> Self {
        self.message = format!("row {row}: {}", self.message);
        self
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether a value or an index is damaged: the data of one row, or of a few.
    pub(crate) fn is_unreadable(&self) -> bool {
        use PgSqlErrorCode as Code;
        [Code::ERRCODE_DATA_CORRUPTED, Code::ERRCODE_INDEX_CORRUPTED].contains(&self.code)
    }

    /// Returns whether the server is the cause (no disk space, no memory, a deadlock, a lock
    /// timeout), which passes or is repaired there, and not the data.
    pub(crate) fn is_of_the_server(&self) -> bool {
        use PgSqlErrorCode as Code;
        const CLASSES: [PgSqlErrorCode; 5] = [
            Code::ERRCODE_TRANSACTION_ROLLBACK,
            Code::ERRCODE_INSUFFICIENT_RESOURCES,
            Code::ERRCODE_OPERATOR_INTERVENTION,
            Code::ERRCODE_SYSTEM_ERROR,
            Code::ERRCODE_INTERNAL_ERROR,
        ];
        // The two characters of the class are the lowest twelve bits.
        let class = |code: Code| code as isize & 0xfff;
        self.code == Code::ERRCODE_LOCK_NOT_AVAILABLE
            || CLASSES.iter().any(|&of| class(of) == class(self.code))
    }

    /// Returns whether it is 40001: the transaction should be repeated.
    pub(crate) fn is_conflict(&self) -> bool {
        self.code == PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE
    }

    /// Returns whether it is 23505: another transaction has added the same key meanwhile.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.code == PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION
    }

    /// Returns 40001: a row in the transaction's snapshot has changed.
    pub(crate) fn changed_since_snapshot() -> Self {
        Self::new(
            PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
            "could not serialize access due to concurrent update",
        )
        .hint("Run the transaction again, or make this call in READ COMMITTED.")
    }

    /// Returns 22004: a null where a value is needed.
    pub(crate) fn null_argument(name: &str) -> Self {
        Self::new(
            PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
            format!("argument \"{name}\" must not be null"),
        )
        .detail(format!(
            "The argument \"{name}\", or an element of it, is null."
        ))
        .hint(format!("Specify a value: {name} => ..."))
    }

    /// Returns 22023: a value outside its range, or text that does not parse.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE, message)
    }

    /// Returns 54000: an input over a size limit.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED, message)
    }

    /// Returns 53200.
    pub(crate) fn no_memory() -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_OUT_OF_MEMORY, "out of memory")
            .detail("The server has no memory for a copy of an argument.")
            .hint("Pass less, in several calls.")
    }

    /// Returns 23505: another job has the unique key.
    pub(crate) fn key_taken(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNIQUE_VIOLATION, message)
    }

    /// Returns 55000: the object is not in a state that allows this.
    pub(crate) fn wrong_state(message: impl Into<String>) -> Self {
        Self::new(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            message,
        )
    }

    /// Returns 55000: the SQL of the extension does not match this library.
    pub(crate) fn of_another_version(found: &str) -> Self {
        const VERSION: &str = env!("CARGO_PKG_VERSION");
        Self::wrong_state("the tables of trax and its library are of different versions")
            .detail(format!("Version {VERSION} of the library {found}."))
            .hint(
                "Type: alter extension trax update; if the library is the older one, restart PostgreSQL; undo what was \
                 changed by hand.",
            )
    }

    /// Returns 42704: a name or id that does not exist.
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self::new(PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT, message)
    }

    pub(crate) fn unknown_manifest(name: &str) -> Self {
        Self::unknown(format!("manifest \"{name}\" does not exist"))
            .detail(format!("No row of trax.manifest has the name \"{name}\"."))
            .hint("List the names with: select name from trax.manifest order by name")
    }

    /// Raises the error; does not return to the caller.
    pub(crate) fn raise(self) -> ! {
        self.report(PgLogLevel::ERROR);
        unreachable!("an ERROR report does not return")
    }

    /// Reports it as a warning and continues.
    pub(crate) fn warn(self) {
        self.report(PgLogLevel::WARNING);
    }

    fn report(self, level: PgLogLevel) {
        let mut report = ErrorReport::new(self.code, self.message, "trax");
        if let Some(detail) = self.detail {
            report = report.set_detail(detail);
        }
        if let Some(hint) = self.hint {
            report = report.set_hint(hint);
        }
        report.report(level);
    }
}

/// Returns the text, cut at a whole character where it is longer than 64 KiB.
pub(crate) fn cut(mut text: String) -> String {
    if text.len() > TEXT_BYTES {
        let end = (0..=TEXT_BYTES)
            .rev()
            .find(|&end| text.is_char_boundary(end))
            .unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Error, TEXT_BYTES, cut};
    use pgrx::PgSqlErrorCode as Code;

    #[test]
    fn only_trouble_of_the_server_says_nothing_of_the_data() {
        let of_the_server = |code| Error::new(code, "no").is_of_the_server();
        for code in [
            Code::ERRCODE_DISK_FULL,
            Code::ERRCODE_OUT_OF_MEMORY,
            Code::ERRCODE_LOCK_NOT_AVAILABLE,
            Code::ERRCODE_T_R_SERIALIZATION_FAILURE,
            Code::ERRCODE_T_R_DEADLOCK_DETECTED,
            Code::ERRCODE_CANNOT_CONNECT_NOW,
            Code::ERRCODE_IO_ERROR,
            Code::ERRCODE_INDEX_CORRUPTED,
        ] {
            assert!(of_the_server(code), "{code}");
        }
        for code in [
            Code::ERRCODE_CHECK_VIOLATION,
            Code::ERRCODE_INVALID_PARAMETER_VALUE,
            Code::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            Code::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            Code::ERRCODE_UNDEFINED_OBJECT,
            Code::ERRCODE_RAISE_EXCEPTION,
        ] {
            assert!(!of_the_server(code), "{code}");
        }
    }

    #[test]
    fn error_text_is_cut_at_a_whole_character() {
        let text = format!("{}é", "x".repeat(TEXT_BYTES - 1));
        assert_eq!(cut(text).len(), TEXT_BYTES - 1);
    }
}
