//! The interface to PostgreSQL: statements, calls, clocks, locks, tables. Most unsafe code is
//! allowed only here.

pub(crate) mod backend;
pub(crate) mod backtrace;
pub(crate) mod bounded_cache;
pub(crate) mod call;
pub(crate) mod catalog;
pub(crate) mod choice;
pub(crate) mod clock;
pub(crate) mod deadlock;
pub(crate) mod durability;
pub(crate) mod foreign_code;
pub(crate) mod hash;
pub(crate) mod json;
pub(crate) mod latch;
pub(crate) mod lock;
mod port;
pub(crate) mod procedure;
pub(crate) mod quote;
pub(crate) mod random;
pub(crate) mod rights;
pub(crate) mod running;
pub(crate) mod session_settings;
pub(crate) mod snapshot;
pub(crate) mod spi;
pub(crate) mod sql_log;
pub(crate) mod sql_report;
pub(crate) mod sql_result;
pub(crate) mod sql_session;
pub(crate) mod sql_text;
pub(crate) mod table;
pub(crate) mod toast;
pub(crate) mod transaction;
pub(crate) mod version;
pub(crate) mod wait_event;
pub(crate) mod watched;
