//! SQL text of another role, run as a session without a client runs it: parsed, planned and
//! executed statement by statement, as the current user.
//!
//! The text goes to the server's parser unchanged; no SQL is built here.

use crate::error::{Error, Result};
use crate::server::sql_log;
use crate::server::sql_result::Collector;
use pgrx::{PgSqlErrorCode, pg_sys};
use std::ffi::CStr;
use std::time::{Duration, Instant};

/// A parsed text; its memory lives until it is dropped.
pub(crate) struct Parsed<'a> {
    text: &'a CStr,
    memory: pg_sys::MemoryContext,
    statements: Vec<*mut pg_sys::RawStmt>,
}

/// The result of a statement.
pub(crate) struct Done {
    pub(crate) tag: String,
    pub(crate) rows: u64,
    pub(crate) planned_in: Duration,
    pub(crate) ran_in: Duration,
}

impl<'a> Parsed<'a> {
    /// Parses a text; a syntax error is an error of the server.
    pub(crate) fn new(text: &'a CStr) -> Self {
        // SAFETY: a context of its own, which `drop` frees; the tree lives there.
        unsafe {
            let memory = pg_sys::AllocSetContextCreateInternal(
                pg_sys::TopMemoryContext,
                c"trax statement".as_ptr(),
                pg_sys::ALLOCSET_DEFAULT_MINSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_INITSIZE as usize,
                pg_sys::ALLOCSET_DEFAULT_MAXSIZE as usize,
            );
            let mut parsed = Self {
                text,
                memory,
                statements: Vec::new(),
            };
            let before = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = memory;
            let list = pg_sys::pg_parse_query(text.as_ptr());
            pg_sys::CurrentMemoryContext = before;
            let list = pgrx::PgList::<pg_sys::RawStmt>::from_pg(list);
            parsed.statements = list.iter_ptr().collect();
            // The list belongs to the context.
            std::mem::forget(list);
            parsed
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.statements.len()
    }

    /// Returns an error for a text that cannot be a job: no statement, one that ends a transaction,
    /// or one that needs a client.
    pub(crate) fn refuse(&self) -> Result<()> {
        if self.statements.is_empty() {
            return Err(Error::invalid("the command has no statement")
                .detail("It is empty, or a comment.")
                .hint("Write a statement, for example: 'vacuum analyze orders'"));
        }
        for index in 0..self.count() {
            self.refuse_statement(index)?;
        }
        Ok(())
    }

    fn refuse_statement(&self, index: usize) -> Result<()> {
        let node = self.node(index);
        // SAFETY: a node begins with its tag, which identifies its structure.
        let (tag, copies_to_client) = unsafe {
            let tag = (*node).type_;
            let copies = tag == pg_sys::NodeTag::T_CopyStmt
                && (*node.cast::<pg_sys::CopyStmt>()).filename.is_null();
            (tag, copies)
        };
        let refused = |what: &str, detail: &str, hint: &str| {
            let code = PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED;
            Err(Error::new(code, what).detail(detail).hint(hint))
        };
        match tag {
            pg_sys::NodeTag::T_TransactionStmt => refused(
                "a SQL job cannot begin or end a transaction",
                "Its statements are one transaction, which ends with the record of its completion.",
                "Leave BEGIN, COMMIT and SAVEPOINT out; a procedure that commits is run with: call ...",
            ),
            pg_sys::NodeTag::T_CopyStmt if copies_to_client => refused(
                "a SQL job cannot copy from or to a client",
                "It runs in the server, and has no client.",
                "Name a file or a program of the server, or use a SELECT or an INSERT.",
            ),
            _ => Ok(()),
        }
    }

    /// Writes the log line of `log_statement`, if that is set. Returns whether it did.
    pub(crate) fn log_statement(&self) -> bool {
        sql_log::statement(self.text, &self.statements)
    }

    fn node(&self, index: usize) -> *mut pg_sys::Node {
        // SAFETY: a statement of this tree, with its node.
        unsafe { (*self.statements[index]).stmt }
    }

    /// Returns whether the text needs a transaction block: it has several statements, or one that
    /// only works in a block.
    pub(crate) fn needs_block(&self) -> bool {
        use pg_sys::NodeTag as Tag;
        // SAFETY: as in `refuse_statement`.
        let tag = |index| unsafe { (*self.node(index)).type_ };
        let of_block = [
            Tag::T_LockStmt,
            Tag::T_DeclareCursorStmt,
            Tag::T_VariableSetStmt,
            Tag::T_ConstraintsSetStmt,
        ];
        self.count() != 1 || of_block.contains(&tag(0))
    }

    /// Runs one statement in the current transaction; its rows go to `collector`.
    pub(crate) fn run(&self, index: usize, collector: &mut Collector) -> Done {
        let raw = self.statements[index];
        let text = self.text.as_ptr();
        let began = Instant::now();
        // SAFETY: the calls that the server makes for a simple query. The plan lives in this text's
        // context, which outlives the transactions that a VACUUM or a procedure begins.
        unsafe {
            // Stays the current context: the current transaction may end meanwhile.
            pg_sys::CurrentMemoryContext = self.memory;
            pg_sys::MessageContext = self.memory;
            let needs_snapshot = pg_sys::analyze_requires_snapshot(raw);
            if needs_snapshot {
                pg_sys::PushActiveSnapshot(pg_sys::GetTransactionSnapshot());
            }
            let tag = pg_sys::CreateCommandTag((*raw).stmt);
            let trees = pg_sys::pg_analyze_and_rewrite_fixedparams(
                raw,
                text,
                std::ptr::null(),
                0,
                std::ptr::null_mut(),
            );
            let plans = pg_sys::pg_plan_queries(
                trees,
                text,
                pg_sys::CURSOR_OPT_PARALLEL_OK as i32,
                std::ptr::null_mut(),
            );
            if needs_snapshot {
                pg_sys::PopActiveSnapshot();
            }
            let planned_in = began.elapsed();
            let portal = pg_sys::CreatePortal(c"".as_ptr(), true, true);
            (*portal).visible = false;
            pg_sys::PortalDefineQuery(
                portal,
                std::ptr::null(),
                text,
                tag,
                plans,
                std::ptr::null_mut(),
            );
            pg_sys::PortalStart(portal, std::ptr::null_mut(), 0, std::ptr::null_mut());
            let mut format: pg_sys::int16 = 0;
            pg_sys::PortalSetResultFormat(portal, 1, &raw mut format);
            let mut completion = pg_sys::QueryCompletion::default();
            let receiver = collector.receiver();
            pg_sys::PortalRun(
                portal,
                std::ffi::c_long::MAX as _,
                true,
                #[cfg(not(feature = "pg18"))]
                true,
                receiver,
                receiver,
                &raw mut completion,
            );
            pg_sys::PortalDrop(portal, false);
            pg_sys::MessageContext = std::ptr::null_mut();
            pg_sys::CurrentMemoryContext = self.memory;
            Done {
                tag: command_tag(&completion),
                rows: completion.nprocessed,
                planned_in,
                ran_in: began.elapsed().saturating_sub(planned_in),
            }
        }
    }
}

impl Drop for Parsed<'_> {
    fn drop(&mut self) {
        // SAFETY: nothing in the context is used any more. After an error it may be the current
        // one.
        unsafe {
            if pg_sys::MessageContext == self.memory {
                pg_sys::MessageContext = std::ptr::null_mut();
            }
            if pg_sys::CurrentMemoryContext == self.memory {
                pg_sys::CurrentMemoryContext = pg_sys::TopMemoryContext;
            }
            pg_sys::MemoryContextDelete(self.memory);
        }
    }
}

/// Returns the command tag of a statement, as psql prints it.
fn command_tag(completion: &pg_sys::QueryCompletion) -> String {
    // SAFETY: a tag of the server, whose name is a constant.
    let (name, counts) = unsafe {
        let tag = completion.commandTag;
        let name = CStr::from_ptr(pg_sys::GetCommandTagName(tag)).to_string_lossy();
        (name, pg_sys::command_tag_display_rowcount(tag))
    };
    match (
        counts,
        completion.commandTag == pg_sys::CommandTag::CMDTAG_INSERT,
    ) {
        (true, true) => format!("{name} 0 {}", completion.nprocessed),
        (true, false) => format!("{name} {}", completion.nprocessed),
        (false, _) => name.into_owned(),
    }
}
