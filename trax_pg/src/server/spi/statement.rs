//! Statements of `sql/query`, with named parameters: `$job_id`.

use super::isolated::caught_error;
use super::row::{Expected, Row, difference, found};
use crate::error::Error;
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgSqlErrorCode, PgTryBuilder, pg_sys};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A statement, planned on first use in each backend.
pub(crate) struct Statement {
    file: &'static str,
    sql: &'static str,
    /// The replacements of `{name}` in a file that several statements share: each has its own
    /// literals, which a plan needs for the predicates of partial indexes.
    texts: &'static [(&'static str, &'static str)],
    /// In the order of their numbers.
    parameters: &'static [Parameter],
    columns: fn() -> Option<Vec<Expected>>,
    plan: AtomicPtr<pg_sys::_SPI_plan>,
}

/// The name of a parameter and its type.
pub(crate) type Parameter = (&'static str, pg_sys::Oid);

impl Statement {
    pub(crate) const fn new(
        file: &'static str,
        sql: &'static str,
        parameters: &'static [Parameter],
        columns: fn() -> Option<Vec<Expected>>,
    ) -> Self {
        Self {
            file,
            sql,
            texts: &[],
            parameters,
            columns,
            plan: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Returns the statement with these replacements.
    pub(crate) const fn with_texts(
        mut self,
        texts: &'static [(&'static str, &'static str)],
    ) -> Self {
        self.texts = texts;
        self
    }

    pub(super) fn parameters(&self) -> usize {
        self.parameters.len()
    }

    pub(super) fn file(&self) -> &'static str {
        self.file
    }

    /// Returns its plan. SPI is connected.
    pub(super) fn plan(&self) -> pg_sys::SPIPlanPtr {
        let kept = self.plan.load(Ordering::Relaxed);
        if !kept.is_null() {
            return kept;
        }
        let plan = PgTryBuilder::new(AssertUnwindSafe(|| self.prepared()))
            .catch_when(PgSqlErrorCode::ERRCODE_UNDEFINED_TABLE, of_another_version)
            .catch_when(PgSqlErrorCode::ERRCODE_UNDEFINED_COLUMN, of_another_version)
            .catch_when(
                PgSqlErrorCode::ERRCODE_UNDEFINED_FUNCTION,
                of_another_version,
            )
            .execute();
        self.plan.store(plan, Ordering::Relaxed);
        plan
    }

    fn prepared(&self) -> pg_sys::SPIPlanPtr {
        let names: Vec<&str> = self.parameters.iter().map(|&(name, _)| name).collect();
        let sql = self
            .texts
            .iter()
            .fold(self.sql.to_owned(), |sql, (name, text)| {
                sql.replace(&format!("{{{name}}}"), text)
            });
        let sql = numbered(&sql, &names).unwrap_or_else(|found| self.refuse(&found));
        let sql = CString::new(sql).expect("a statement of ours has no zero byte");
        let mut types: Vec<pg_sys::Oid> = self.parameters.iter().map(|&(_, oid)| oid).collect();
        // SAFETY: SPI is connected (only `Spi` calls this); the text and types outlive the call,
        // and a kept plan outlives the connection. A plan has one source, that of its statement.
        unsafe {
            let plan = pg_sys::SPI_prepare_cursor(
                sql.as_ptr(),
                types.len() as i32,
                types.as_mut_ptr(),
                pg_sys::CURSOR_OPT_GENERIC_PLAN as i32,
            );
            assert!(!plan.is_null(), "{} prepares", self.file);
            if let Some(expected) = (self.columns)() {
                let sources = pg_sys::SPI_plan_get_plan_sources(plan);
                let source: *mut pg_sys::CachedPlanSource = pg_sys::list_nth(sources, 0).cast();
                if let Some(difference) = difference(&expected, &found((*source).resultDesc)) {
                    self.refuse(&difference);
                }
            }
            pg_sys::SPI_keepplan(plan);
            plan
        }
    }

    /// Raises 55000 when a rule has left nothing of the statement, and drops that plan: a plan
    /// without a table would never be invalidated.
    pub(super) fn refuse_if_nothing_is_left(&self) {
        let plan = self.plan.load(Ordering::Relaxed);
        // SAFETY: a kept plan has one source, that of its statement.
        let is_empty = unsafe {
            let sources = pg_sys::SPI_plan_get_plan_sources(plan);
            let source: *mut pg_sys::CachedPlanSource = pg_sys::list_nth(sources, 0).cast();
            (*source).query_list.is_null()
        };
        if is_empty {
            self.plan.store(std::ptr::null_mut(), Ordering::Relaxed);
            // SAFETY: saved by this library, and not used any more.
            unsafe { pg_sys::SPI_freeplan(plan) };
            Error::wrong_state("a rule discards what trax writes")
                .detail(format!("The rule replaces the statement {} with nothing.", self.file))
                .hint("List the rules: select tablename, rulename from pg_rules where schemaname = 'trax'; and drop them.")
                .raise()
        }
    }

    /// Plans the statement, unless its plan is up to date.
    pub(super) fn plan_anew(&self) {
        // SAFETY: SPI is connected; the plan is released by the resource owner that has counted it.
        unsafe {
            let plan = pg_sys::SPI_plan_get_cached_plan(self.plan());
            pg_sys::ReleaseCachedPlan(plan, pg_sys::CurrentResourceOwner);
        }
    }

    /// Returns the statement with its arguments by number.
    pub(crate) fn with<'arguments>(
        &'static self,
        arguments: &'arguments [Option<pg_sys::Datum>],
    ) -> Numbered<'arguments> {
        Numbered {
            statement: self,
            arguments,
        }
    }

    /// Raises an internal error: the statement does not match its declaration.
    fn refuse(&self, found: &str) -> ! {
        panic!("the statement {} {found}", self.file)
    }
}

/// Raises the error for tables of another version: a name in the statement does not exist.
fn of_another_version(caught: CaughtError) -> pg_sys::SPIPlanPtr {
    let found = caught_error(caught);
    let found = format!("asks them for what they do not have: {}", found.message());
    Error::of_another_version(&found).raise()
}

/// A statement with its arguments, each by its name.
pub(crate) trait Query: Sized {
    type Row: Row;

    fn statement(&self) -> &'static Statement;

    /// Calls `run` with the arguments in the order of their numbers.
    fn run<T>(self, run: impl FnOnce(&[Option<pg_sys::Datum>]) -> T) -> T;
}

/// Declares a statement: the struct of its arguments, its file in `sql/query`, the types of its
/// parameters, and the row that it returns, if rows are read. `with` lists the replacements of
/// `{name}` in a file that several statements share.
macro_rules! statement {
    (
        $name:ident, $file:literal
        $(with { $($text_name:ident: $text:literal),* $(,)? })?
        $(, { $($parameter:ident: $type:ident),* $(,)? })?
        $(-> $row:ty)?
    ) => {
        $crate::server::spi::statement!(@arguments $name $({ $($parameter),* })?);

        impl $crate::server::spi::Query for $name {
            type Row = $crate::server::spi::statement!(@row $($row)?);

            fn statement(&self) -> &'static $crate::server::spi::Statement {
                static STATEMENT: $crate::server::spi::Statement =
                    $crate::server::spi::Statement::new(
                        $file,
                        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../sql/query/", $file)),
                        &[$($((stringify!($parameter), ::pgrx::pg_sys::$type)),*)?],
                        <<$name as $crate::server::spi::Query>::Row as $crate::server::spi::Row>::columns,
                    )
                    .with_texts(&[$($((stringify!($text_name), $text)),*)?]);
                &STATEMENT
            }

            fn run<T>(self, run: impl FnOnce(&[Option<::pgrx::pg_sys::Datum>]) -> T) -> T {
                run(&[$($(self.$parameter),*)?])
            }
        }
    };
    (@arguments $name:ident) => {
        struct $name;
    };
    (@arguments $name:ident { $($parameter:ident),* }) => {
        struct $name {
            $($parameter: Option<::pgrx::pg_sys::Datum>),*
        }
    };
    (@row) => { () };
    (@row $row:ty) => { $row };
}
pub(crate) use statement;

/// A statement of [`kept`] with its arguments.
pub(crate) struct Numbered<'arguments> {
    statement: &'static Statement,
    arguments: &'arguments [Option<pg_sys::Datum>],
}

impl Query for Numbered<'_> {
    type Row = ();

    fn statement(&self) -> &'static Statement {
        self.statement
    }

    fn run<T>(self, run: impl FnOnce(&[Option<pg_sys::Datum>]) -> T) -> T {
        run(self.arguments)
    }
}

thread_local! {
    static KEPT: RefCell<HashMap<String, &'static Statement>> = RefCell::default();
}

/// Returns a statement whose text follows from the columns of a table; there are few, and each is
/// cached.
pub(crate) fn kept(sql: &str, types: &[pg_sys::Oid]) -> &'static Statement {
    if let Some(kept) = KEPT.with_borrow(|kept| kept.get(sql).copied()) {
        return kept;
    }
    let text: &'static str = Box::leak(sql.to_owned().into_boxed_str());
    let parameters: Vec<Parameter> = types.iter().map(|&oid| (BY_NUMBER, oid)).collect();
    let parameters: &'static [Parameter] = Box::leak(parameters.into_boxed_slice());
    let statement: &'static Statement = Box::leak(Box::new(Statement::new(
        text,
        text,
        parameters,
        <() as Row>::columns,
    )));
    KEPT.with_borrow_mut(|kept| kept.insert(sql.to_owned(), statement));
    statement
}

/// The name of a parameter that has only its number.
const BY_NUMBER: &str = "";

/// Returns the text with a number for each name, or an error message. Comments are left out, and
/// quoted text stays as it is.
fn numbered(sql: &str, names: &[&str]) -> Result<String, String> {
    let mut text = String::with_capacity(sql.len());
    let mut met = vec![false; names.len()];
    let mut rest = sql;
    while let Some(at) = rest.find(['$', '\'', '"', '-']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = if rest.starts_with("--") {
            let length = rest.find('\n').unwrap_or(rest.len());
            rest = &rest[length..];
            continue;
        } else if rest.starts_with(['\'', '"']) {
            let quote = &rest[..1];
            rest[1..].find(quote).ok_or("has an open quote")? + 2
        } else if rest.starts_with('$') && !rest[1..].starts_with(|c: char| c.is_ascii_digit()) {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let length = rest[1..].find(|c| !is_part(c)).unwrap_or(rest.len() - 1);
            let name = &rest[1..=length];
            let index = names
                .iter()
                .position(|known| *known == name && name != BY_NUMBER);
            let index = index.ok_or_else(|| format!("has a parameter ${name} without a value"))?;
            met[index] = true;
            text.push_str(&format!("${}", index + 1));
            rest = &rest[1 + length..];
            continue;
        } else {
            1
        };
        text.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    text.push_str(rest);
    match names
        .iter()
        .zip(met)
        .find(|(name, met)| !met && **name != BY_NUMBER)
    {
        Some((name, _)) => Err(format!("has no parameter ${name}")),
        None => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn parameters_get_their_numbers_by_name() {
        let sql = "-- $who's\nselect $b, '$a', \"$a\", 1 - $a::int -- $c\nwhere x = $b";
        let text = numbered(sql, &["a", "b"]).expect("it is whole");
        assert_eq!(
            text,
            "\nselect $2, '$a', \"$a\", 1 - $1::int \nwhere x = $2"
        );
    }

    #[test]
    fn a_parameter_that_one_side_does_not_know_is_refused_by_name() {
        let said = numbered("select $a, $ab", &["a"]);
        assert_eq!(said, Err("has a parameter $ab without a value".to_owned()));
        let said = numbered("select $a", &["a", "ab"]);
        assert_eq!(said, Err("has no parameter $ab".to_owned()));
        assert!(numbered("select '$a", &[]).is_err());
    }

    #[test]
    fn a_text_that_was_made_keeps_its_numbers() {
        assert_eq!(
            numbered("x = $1 - $12", &["", ""]).as_deref(),
            Ok("x = $1 - $12")
        );
    }
}
