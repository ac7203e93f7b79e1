//! The instance: which server and database the tables belong to, and whether their scheduler is
//! paused.
//!
//! Words: the *mark* is the row of `trax.adoption`, which install and `trax.adopt()` write and no
//! dump contains; a *copy* is a set of tables without the mark of this server and database:
//! restored, also over the same database, or cloned. Loading data into an adopted database makes it
//! a copy: the extension's triggers delete the mark, and disabled triggers are detected. A database
//! that was adopted under a `trax.home` is a copy on every server with another one. Holds: in a
//! copy no cycle queues jobs, and nothing is claimed or reaped until it is adopted. Outcomes and
//! heartbeats of earlier claims are accepted: they start nothing.
//!
//! A session reads the mark once, and keeps the result until the relation cache entry of one of the
//! tables below is invalidated, which adopting, restoring, disabling a trigger and dropping do: a
//! claim only makes one comparison.

use crate::audit;
use crate::error::{Error, Result};
use crate::server::backend::my_database;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::foreign_code;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::{setting, wake};
use pgrx::{pg_guard, pg_sys};
use std::cell::{Cell, RefCell};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, Ordering};

statement!(InstanceState, "instance/state.sql" -> bool);
statement!(
    InstanceMark, "instance/mark.sql",
    { system_identifier: INT8OID, database_oid: OIDOID } -> Mark
);
statement!(InstanceDisown, "instance/disown.sql");
statement!(InstanceLock, "instance/lock.sql");
statement!(InstanceEnable, "instance/enable.sql");
statement!(InstanceNumber, "instance/number.sql");
statement!(InstanceLoading, "instance/loading.sql" -> bool);
statement!(InstanceAttach, "instance/attach.sql" -> i32);
statement!(
    InstanceAdopt, "instance/adopt.sql",
    { system_identifier: INT8OID, database_oid: OIDOID, now: TIMESTAMPTZOID, home: TEXTOID }
);
statement!(InstancePause, "instance/pause.sql", { reason: TEXTOID, now: TIMESTAMPTZOID });
statement!(InstanceResume, "instance/resume.sql");

sql_function!(trax_pause, pg_finfo_trax_pause, |call| {
    let reason = call.optional_text(0, "reason")?;
    let paused = spi::connected(|spi| {
        let pause = InstancePause {
            reason: reason.as_deref().and_then(arg),
            now: arg(Timestamp::now()),
        };
        let paused = spi.execute(pause);
        if paused > 0 {
            audit::record_here(spi, "pause", reason.as_deref());
        }
        Ok(paused)
    })?;
    if paused == 0 {
        return Err(Foreign::NotAdopted.error());
    }
    Ok(call.null())
});

sql_function!(trax_resume, pg_finfo_trax_resume, |call| {
    wake::mark(wake::DUE);
    spi::connected(|spi| {
        if spi.execute(InstanceResume) > 0 {
            audit::record_here(spi, "resume", None);
        }
        Ok(())
    })?;
    Ok(call.null())
});

sql_function!(
    trax_adoption_changed,
    pg_finfo_trax_adoption_changed,
    |_call| {
        // The commit notifies every session, this one before its next statement.
        // SAFETY: an entry of the relation cache is invalidated inside a transaction.
        unsafe { pg_sys::CacheInvalidateRelcacheByRelid(relation(c"adoption")) };
        Ok(pg_sys::Datum::from(0))
    }
);

/// Adopts the tables: they belong to this server and this database from now on.
pub(crate) fn adopt(spi: &Spi, now: Timestamp) {
    let (system_identifier, database_oid) = here();
    spi.execute(InstanceLock);
    spi.execute(InstanceEnable);
    spi.execute(InstanceNumber);
    spi.execute(InstanceAttach);
    spi.execute(InstanceAdopt {
        system_identifier,
        database_oid,
        now: arg(now),
        home: setting::home().and_then(arg),
    });
}

/// The state of trax in this database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Paused,
    Foreign,
}

/// Returns the state for the scheduler, and logs once why it does nothing.
pub(crate) fn state(spi: &Spi) -> State {
    static LOGGED: AtomicBool = AtomicBool::new(false);
    let refused = foreign_code::refuse(spi).and_then(|()| require_adopted(spi));
    if let Err(refused) = refused {
        if !LOGGED.swap(true, Ordering::Relaxed) {
            refused.warn();
        }
        return State::Foreign;
    }
    LOGGED.store(false, Ordering::Relaxed);
    if spi.query(InstanceState).one() {
        State::Paused
    } else {
        State::Running
    }
}

/// Returns an error in a copy, where nothing may start.
pub(crate) fn require_adopted(spi: &Spi) -> Result<()> {
    foreign(spi).map_or(Ok(()), |foreign| Err(foreign.error()))
}

/// Why these tables do not belong to this server and database.
#[derive(Clone, Debug)]
enum Foreign {
    NotAdopted,
    /// They were adopted under this home, and the server has another or none.
    OtherHome(String, Option<String>),
}

row! {
    /// Whether the mark is of this server and database, and its home, as read by this session.
    struct Mark {
        fits: bool,
        home: Option<String>,
    }
}

thread_local! {
    static MARK: RefCell<Mark> = const { RefCell::new(Mark { fits: false, home: None }) };
}

/// The tables that the mark depends on: its own, and those with triggers that a load would have to
/// disable.
const TABLES: [&CStr; 4] = [c"adoption", c"instance", c"manifest_state", c"work_queue"];

thread_local! {
    /// The tables that `MARK` was read from; `None` while it must be read.
    static READ_FROM: Cell<Option<[pg_sys::Oid; TABLES.len()]>> = const { Cell::new(None) };
}

fn foreign(spi: &Spi) -> Option<Foreign> {
    if READ_FROM.get().is_none() {
        read_mark(spi);
    }
    MARK.with_borrow(|mark| {
        let here = setting::home();
        match &mark.home {
            _ if !mark.fits => Some(Foreign::NotAdopted),
            Some(home) if here.as_ref() != Some(home) => {
                Some(Foreign::OtherHome(home.clone(), here))
            }
            _ => None,
        }
    })
}

fn read_mark(spi: &Spi) {
    static REGISTERED: AtomicBool = AtomicBool::new(false);
    if !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: the callback has the right signature and lives as long as the library.
        unsafe {
            pg_sys::CacheRegisterRelcacheCallback(Some(invalidated), pg_sys::Datum::from(0));
        }
    }
    // Before the mark is read: an invalidation meanwhile makes the next caller read again. So does
    // an error.
    READ_FROM.set(Some(TABLES.map(relation)));
    let unread = Unread;
    let (system_identifier, database_oid) = here();
    let query = InstanceMark {
        system_identifier,
        database_oid,
    };
    MARK.set(spi.query_latest(query).one());
    std::mem::forget(unread);
}

/// Makes the next caller read the mark again.
struct Unread;

impl Drop for Unread {
    fn drop(&mut self) {
        READ_FROM.set(None);
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn invalidated(_argument: pg_sys::Datum, relation: pg_sys::Oid) {
    let rests_on = |tables: [pg_sys::Oid; TABLES.len()]| tables.contains(&relation);
    if relation == pg_sys::InvalidOid || READ_FROM.get().is_some_and(rests_on) {
        READ_FROM.set(None);
    }
}

fn relation(name: &CStr) -> pg_sys::Oid {
    // SAFETY: catalog lookups inside a transaction; neither name need exist.
    unsafe {
        let schema = pg_sys::get_namespace_oid(c"trax".as_ptr(), true);
        pg_sys::get_relname_relid(name.as_ptr(), schema)
    }
}

/// Makes this database a copy, although it is adopted, when a restore inserts rows of the queue or
/// of manifests into it.
pub(crate) fn mark_as_copy_if_restoring() -> Result<()> {
    spi::connected_anyhow(|spi| {
        if spi.query(InstanceLoading).one() {
            spi.execute(InstanceDisown);
        }
        Ok(())
    })
}

/// Returns this server's system identifier and this database's oid.
fn here() -> (Option<pg_sys::Datum>, Option<pg_sys::Datum>) {
    // SAFETY: reads constants of the server and of this backend.
    let system = unsafe { pg_sys::GetSystemIdentifier() as i64 };
    (arg(system), arg(my_database()))
}

impl Foreign {
    fn error(&self) -> Error {
        let detail = match self {
            Self::NotAdopted => {
                "The jobs were restored or copied, and have not been adopted since.".to_owned()
            }
            Self::OtherHome(home, None) => {
                format!(
                    "The jobs were adopted under the home \"{home}\", and this server has no trax.home."
                )
            }
            Self::OtherHome(home, Some(here)) => format!(
                "The jobs were adopted under the home \"{home}\", and trax.home of this server is \"{here}\"."
            ),
        };
        Error::wrong_state("the jobs in this database are a copy and do not run here")
            .detail(detail)
            .hint("If they should run here and nowhere else, type: select trax.adopt()")
    }
}
