//! Errors of pages: the text for the user, and the HTTP status.

use std::time::Duration;

use axum::http::StatusCode;
use tokio_postgres::error::SqlState;
use trax_client::Error;

/// A refusal or a failure.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    pub(crate) detail: Option<String>,
    pub(crate) hint: Option<String>,
    /// The connection is gone; another one may work.
    pub(crate) disconnected: bool,
    /// How long until another try may succeed.
    pub(crate) retry_after: Option<Duration>,
}

impl Trouble {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Trouble {
            status,
            message: message.into(),
            detail: None,
            hint: None,
            disconnected: false,
            retry_after: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the shard that the error is about.
    pub(crate) fn of_shard(mut self, number: i32) -> Self {
        let prefix = format!("shard {number}");
        if !self.message.starts_with(&prefix) {
            self.message = format!("{prefix}: {}", self.message);
        }
        self
    }

    /// Returns the message and its detail.
    pub(crate) fn words(&self) -> String {
        match &self.detail {
            Some(detail) => format!("{}: {detail}", self.message),
            None => self.message.clone(),
        }
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Trouble::new(StatusCode::FORBIDDEN, message)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Trouble::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn missing(message: impl Into<String>) -> Self {
        Trouble::new(StatusCode::NOT_FOUND, message)
    }

    /// Returns the error for an unavailable database: nothing is shown.
    pub(crate) fn unknown(cause: impl std::fmt::Display) -> Self {
        let mut trouble = Trouble::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "the database does not answer",
        );
        trouble.detail = Some(cause.to_string());
        trouble.hint("There is no data to show. Reload this page to try again.")
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::NotPermitted(report) => {
                let mut trouble = Trouble::forbidden(report.message);
                (trouble.detail, trouble.hint) = (report.detail, report.hint);
                trouble
            }
            error => {
                let mut trouble = Trouble::unknown(&error);
                trouble.disconnected = matches!(error, Error::Connection(_));
                trouble
            }
        }
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(report) = error.as_db_error() else {
            let source = std::error::Error::source(&error);
            let is_lost = error.is_closed() || source.is_some_and(|s| s.is::<std::io::Error>());
            if !is_lost {
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                let mut trouble = Trouble::new(status, "the database's answer was not understood");
                trouble.detail = Some(error.to_string());
                return trouble;
            }
            let mut trouble = Trouble::unknown(&error);
            trouble.disconnected = true;
            return trouble;
        };
        let code = report.code();
        if *code == SqlState::QUERY_CANCELED {
            return Trouble::new(
                StatusCode::GATEWAY_TIMEOUT,
                "the database took too long for this page",
            )
            .hint("Narrow the filter, or use the command: trax jobs list");
        }
        if code.code().starts_with("57P") || code.code().starts_with("08") {
            let mut trouble = Trouble::unknown(report.message());
            trouble.disconnected = true;
            return trouble;
        }
        // Among the settings of a page, trax.program is unknown to a library older than 0.2.0.
        if *code == SqlState::INVALID_NAME {
            return Trouble::new(
                StatusCode::CONFLICT,
                "this server has loaded an older library of trax",
            )
            .hint("Restart PostgreSQL, which loads the library that is installed.");
        }
        let status = match code {
            code if *code == SqlState::INSUFFICIENT_PRIVILEGE => StatusCode::FORBIDDEN,
            // An invalid JSON path is reported as a syntax error.
            code if code.code().starts_with("22") || *code == SqlState::SYNTAX_ERROR => {
                StatusCode::BAD_REQUEST
            }
            code if code.code().starts_with("427") => StatusCode::NOT_FOUND,
            _ => StatusCode::CONFLICT,
        };
        let mut trouble = Trouble::new(status, report.message());
        trouble.detail = report.detail().map(str::to_owned);
        trouble.hint = report.hint().map(str::to_owned);
        trouble
    }
}
