//! Statements of `sql/query` ([`statement`]).
//!
//! A statement is planned once per backend, as a generic plan, and cached. Columns and parameters
//! go by name: names are compared when the statement is planned.

pub(crate) mod connection;
mod isolated;
pub(crate) mod row;
pub(crate) mod statement;
pub(crate) mod value;

use crate::error::Result;
use crate::server::foreign_code;
pub(crate) use connection::{
    Spi, commit, connected_anyhow, is_ours, keeps_snapshot, require_primary,
};
pub(crate) use isolated::isolated;
pub(crate) use row::{Column, Expected, Row, Rows, Values, attribute, row};
pub(crate) use statement::{Query, Statement, kept, statement};
pub(crate) use value::{arg, array_arg, array_elements, outlive, value_bytes};

/// Opens SPI for `work`. Rows and by-reference values live until it returns. Returns an error where
/// another role's code would run with the owner's rights.
pub(crate) fn connected<T>(work: impl FnOnce(&Spi) -> Result<T>) -> Result<T> {
    connected_anyhow(|spi| {
        foreign_code::refuse(spi)?;
        work(spi)
    })
}
