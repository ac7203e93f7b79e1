//! Removes the scheduler for statements that need a database without connections.
//!
//! `drop database`, `create database ... template`, `alter database ... rename` and `... set
//! tablespace` fail while any session is connected, including the scheduler. Before such a
//! statement runs, its database is *closed*: the scheduler is ended and none is started until the
//! transaction ends, whether it commits or not. A database closed by a process that is gone counts
//! as open.
//!
//! A statement that the server refuses anyway closes nothing, because the jobs that the scheduler's
//! executors run would end with it: while a client is connected, or when the database is that of
//! the session.

use crate::server::backend::{my_database, my_pid};
use crate::server::latch;
use crate::server::transaction;
use crate::server::wait_event::WaitEvent;
use crate::{memory, prepared};
use pgrx::prelude::*;
use std::ffi::{CStr, c_char};
use std::time::{Duration, Instant};

/// How long a statement waits for the scheduler to end. After that it runs, and reports the error
/// itself.
const WAIT_LIMIT: Duration = Duration::from_secs(10);

/// How long a statement waits for clients that are about to leave.
const CLIENT_LIMIT: Duration = Duration::from_secs(2);

static mut PREVIOUS: pg_sys::ProcessUtility_hook_type = None;

// Declared without pgrx's guard: a statement's error must pass through this library unchanged. A
// guard would drop its SQLSTATE, context and constraint name, for every utility statement of the
// server.
unsafe extern "C-unwind" {
    fn standard_ProcessUtility(
        statement: *mut pg_sys::PlannedStmt,
        text: *const c_char,
        read_only_tree: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        parameters: pg_sys::ParamListInfo,
        environment: *mut pg_sys::QueryEnvironment,
        destination: *mut pg_sys::DestReceiver,
        completion: *mut pg_sys::QueryCompletion,
    );
}

/// Installs the hook; for `_PG_init` while preloading.
pub(crate) fn install() {
    // SAFETY: the postmaster is alone with these variables while it loads libraries.
    unsafe {
        PREVIOUS = pg_sys::ProcessUtility_hook;
        pg_sys::ProcessUtility_hook = Some(process_utility);
    }
}

/// Runs a utility statement. Nothing in this frame needs dropping: a statement's error jumps over
/// it.
#[allow(clippy::too_many_arguments)]
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    text: *const c_char,
    read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    parameters: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    destination: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the arguments are the server's, passed on unchanged; a statement's node begins with
    // its tag; `install` set PREVIOUS before any process could get here.
    unsafe {
        let node = (*statement).utilityStmt;
        let tag = (*node).type_;
        if is_about_a_database(tag) {
            prepare(node);
        }
        let ends_prepared = tag == pg_sys::NodeTag::T_TransactionStmt && prepared::before(node);
        PREVIOUS.unwrap_or(standard_ProcessUtility)(
            statement,
            text,
            read_only_tree,
            context,
            parameters,
            environment,
            destination,
            completion,
        );
        if ends_prepared {
            prepared::ended();
        }
    }
}

fn is_about_a_database(tag: pg_sys::NodeTag) -> bool {
    use pg_sys::NodeTag::{T_AlterDatabaseStmt, T_CreatedbStmt, T_DropdbStmt, T_RenameStmt};
    [
        T_DropdbStmt,
        T_CreatedbStmt,
        T_AlterDatabaseStmt,
        T_RenameStmt,
    ]
    .contains(&tag)
}

/// Runs the extension's part before the statement. Its error becomes the statement's error.
#[pg_guard]
unsafe extern "C-unwind" fn prepare(node: *mut pg_sys::Node) {
    // SAFETY: `node` is a statement of one of the kinds above.
    let Some(subject) = (unsafe { subject(node) }) else {
        return;
    };
    // Even when nothing is closed: the launcher sees a new, renamed or reopened database at once.
    transaction::at_end(release);
    let Some(name) = subject.exclusive else {
        return;
    };
    // SAFETY: a name that the statement holds; looked up as the statement itself will.
    let database = unsafe { pg_sys::get_database_oid(name, true) };
    // A role that may not run the statement must not disturb the scheduler.
    if database != pg_sys::InvalidOid
        && current_user_owns(database)
        && (subject.may_be_own || database != my_database())
        && (subject.ends_clients || is_left_by_clients(database))
    {
        close(database);
    }
}

fn is_left_by_clients(database: pg_sys::Oid) -> bool {
    let deadline = Instant::now() + CLIENT_LIMIT;
    while has_clients(database) {
        if Instant::now() >= deadline {
            return false;
        }
        latch::sleep(Duration::from_millis(5), WaitEvent::Scheduler);
    }
    true
}

/// Returns whether a client other than this process is connected to a database.
fn has_clients(database: pg_sys::Oid) -> bool {
    // SAFETY: the slots of all processes are in shared memory and are never freed. A slot that
    // changes meanwhile is seen as it was, or as it becomes.
    unsafe {
        let all = &*pg_sys::ProcGlobal;
        let slots = std::slice::from_raw_parts(all.allProcs, all.allProcCount as usize);
        slots.iter().any(|slot| {
            slot.pid != 0
                && slot.databaseId == database
                && is_of_client(slot)
                && !std::ptr::eq(slot, pg_sys::MyProc)
                // A slot keeps the id of its last process.
                && std::ptr::eq(slot, pg_sys::BackendPidGetProc(slot.pid))
        })
    }
}

fn is_of_client(slot: &pg_sys::PGPROC) -> bool {
    #[cfg(feature = "pg18")]
    return slot.isRegularBackend;
    #[cfg(not(feature = "pg18"))]
    return !slot.isBackgroundWorker
        && u32::from(slot.statusFlags) & pg_sys::PROC_IS_AUTOVACUUM == 0;
}

fn release() {
    memory::reopen_databases(my_pid());
    memory::wake_launcher();
}

fn close(database: pg_sys::Oid) {
    if !memory::close_database(database, my_pid()) {
        return;
    }
    memory::terminate_scheduler(database);
    memory::executor::terminate_all(database);
    let deadline = Instant::now() + WAIT_LIMIT;
    while memory::is_served(database) && Instant::now() < deadline {
        latch::sleep(Duration::from_millis(5), WaitEvent::Scheduler);
    }
}

/// The database of a statement.
struct Subject {
    /// The database that the statement needs without connections, if any.
    exclusive: Option<*const c_char>,
    /// The database may be that of this session.
    may_be_own: bool,
    /// The statement terminates the clients.
    ends_clients: bool,
}

/// Returns `None` for a statement that does not concern a database.
unsafe fn subject(node: *mut pg_sys::Node) -> Option<Subject> {
    let (mut may_be_own, mut ends_clients) = (false, false);
    // SAFETY: the tag identifies the structure of the node.
    let exclusive = unsafe {
        match (*node).type_ {
            pg_sys::NodeTag::T_DropdbStmt => {
                let drop = &*node.cast::<pg_sys::DropdbStmt>();
                ends_clients = option(drop.options, c"force").is_some();
                Some(drop.dbname.cast_const())
            }
            pg_sys::NodeTag::T_CreatedbStmt => {
                may_be_own = true;
                let options = (*node.cast::<pg_sys::CreatedbStmt>()).options;
                Some(match option(options, c"template") {
                    Some(element) if !(*element).arg.is_null() => pg_sys::defGetString(element),
                    _ => c"template1".as_ptr(),
                })
            }
            pg_sys::NodeTag::T_AlterDatabaseStmt => {
                let alter = &*node.cast::<pg_sys::AlterDatabaseStmt>();
                option(alter.options, c"tablespace").map(|_| alter.dbname.cast_const())
            }
            _ => {
                let rename = &*node.cast::<pg_sys::RenameStmt>();
                if rename.renameType != pg_sys::ObjectType::OBJECT_DATABASE {
                    return None;
                }
                Some(rename.subname.cast_const())
            }
        }
    };
    Some(Subject {
        exclusive,
        may_be_own,
        ends_clients,
    })
}

/// Returns the option of a statement with this name.
unsafe fn option(options: *mut pg_sys::List, name: &CStr) -> Option<*mut pg_sys::DefElem> {
    // SAFETY: a list of DefElem nodes, or null for none.
    unsafe {
        let list = pgrx::PgList::<pg_sys::DefElem>::from_pg(options);
        list.iter_ptr()
            .find(|element| CStr::from_ptr((**element).defname) == name)
    }
}

fn current_user_owns(database: pg_sys::Oid) -> bool {
    // SAFETY: a catalog lookup inside the statement's transaction.
    unsafe {
        #[cfg(feature = "pg15")]
        return pg_sys::pg_database_ownercheck(database, pg_sys::GetUserId());
        #[cfg(not(feature = "pg15"))]
        return pg_sys::object_ownercheck(
            pg_sys::DatabaseRelationId,
            database,
            pg_sys::GetUserId(),
        );
    }
}
