//! The instance: which server and database the tables belong to, and whether their scheduler is paused.
//!
//! Holds: a copy of the tables in another place runs nothing by itself until somebody adopts it.

use crate::clock::Timestamp;
use crate::entry::sql_function;
use crate::error::Error;
use crate::spi::{self, Spi, arg, statement};
use crate::wake;
use pgrx::pg_sys;

statement!(INSTANCE_STATE, "instance_state.sql", INT8OID, OIDOID);
statement!(
    INSTANCE_ADOPT,
    "instance_adopt.sql",
    INT8OID,
    OIDOID,
    TIMESTAMPTZOID
);
statement!(
    INSTANCE_PAUSE,
    "instance_pause.sql",
    TEXTOID,
    TIMESTAMPTZOID
);
statement!(INSTANCE_RESUME, "instance_resume.sql");

sql_function!(trax_pause, pg_finfo_trax_pause, |call| {
    let reason = call.optional_text(0, "reason")?;
    let paused = spi::connected(|spi| {
        let arguments = [reason.as_deref().and_then(arg), arg(Timestamp::now())];
        Ok(spi.execute(&INSTANCE_PAUSE, &arguments))
    })?;
    if paused == 0 {
        return Err(not_adopted());
    }
    Ok(call.null())
});

sql_function!(trax_resume, pg_finfo_trax_resume, |call| {
    wake::mark(wake::DUE);
    spi::connected(|spi| Ok(spi.execute(&INSTANCE_RESUME, &[])))?;
    Ok(call.null())
});

sql_function!(trax_adopt, pg_finfo_trax_adopt, |call| {
    wake::mark(wake::DUE);
    spi::connected(|spi| {
        let [system, database] = here();
        Ok(spi.execute(&INSTANCE_ADOPT, &[system, database, arg(Timestamp::now())]))
    })?;
    Ok(call.null())
});

/// Whether the jobs of these tables may be scheduled here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Paused,
    /// The tables came from another server or database.
    Foreign,
}

pub(crate) fn state(spi: &Spi) -> State {
    let [system, database] = here();
    let rows = spi.query(&INSTANCE_STATE, &[system, database]);
    let row = rows.first().expect("an aggregate gives one row");
    match (row.must::<bool>(1), row.must::<bool>(2)) {
        (false, _) => State::Foreign,
        (true, true) => State::Paused,
        (true, false) => State::Running,
    }
}

/// This server's system identifier and this database's oid.
fn here() -> [Option<pg_sys::Datum>; 2] {
    // SAFETY: reads constants of the server and of this backend.
    unsafe {
        [
            arg(pg_sys::GetSystemIdentifier() as i64),
            arg(pg_sys::MyDatabaseId),
        ]
    }
}

pub(crate) const NOT_ADOPTED: &str =
    "this database is a copy whose jobs belong to another server or database";
pub(crate) const ADOPT_HINT: &str = "If the jobs should run here, type: select trax.adopt()";

fn not_adopted() -> Error {
    Error::wrong_state(NOT_ADOPTED)
        .detail("Its scheduler does not run before somebody adopts the jobs.")
        .hint(ADOPT_HINT)
}
