//! Statements for the rows of a table that requires them, because of a trigger, a rule, row
//! security or an added column: one for all rows of a call.
//!
//! A statement adds 4 µs to each of 100 rows that it inserts, and 3 to each that it deletes: a job
//! that is queued, claimed and completed in batches of 100 costs 18 µs, and 35 when all five writes
//! of its life are statements. A statement for each row cost 50 more.

use super::Table;
use crate::error::Error;
use crate::server::spi;
use crate::server::spi::{array_arg, attribute, value_bytes};
use pgrx::pg_sys;

/// The most bytes of values in one statement: an array has at most 1 GB.
const BYTES_AT_MOST: usize = 64 << 20;

type Values = Vec<Option<pg_sys::Datum>>;

/// Adds rows, with a value for each of the table's known columns.
pub(super) fn insert(table: &Table, rows: &[Values]) {
    let name = table.name.to_string_lossy();
    let columns: Vec<_> = (table.columns.iter())
        .map(|column| column.to_string_lossy())
        .collect();
    let sql = format!(
        "insert into trax.{name} ({}) overriding system value select * from unnest({})",
        columns.join(", "),
        placeholders(columns.len()),
    );
    let types: Vec<_> = (0..columns.len())
        .map(|column| table.type_of(column))
        .collect();
    for rows in parts(rows, &types) {
        let added = run(&sql, &types, rows);
        if added != rows.len() {
            suppressed("inserted into", &name)
        }
    }
}

/// Sets the columns with these numbers, from 0, of locked rows; each element of `rows` has the
/// ctid of a row, then its values.
pub(super) fn update(table: &Table, columns: &[usize], rows: &[Values]) {
    let name = table.name.to_string_lossy();
    let mut types = vec![pg_sys::TIDOID];
    let mut changes = Vec::new();
    let mut names = vec!["row_id".to_owned()];
    for (number, &column) in columns.iter().enumerate() {
        types.push(table.type_of(column));
        names.push(format!("value_{number}"));
        let column = table.columns[column].to_string_lossy();
        changes.push(format!("{column} = v.value_{number}"));
    }
    let sql = format!(
        "update only trax.{name} o set {} from unnest({}) v ({}) where o.ctid operator(pg_catalog.=) v.row_id",
        changes.join(", "),
        placeholders(types.len()),
        names.join(", "),
    );
    for rows in parts(rows, &types) {
        if run(&sql, &types, rows) != rows.len() {
            suppressed("updated in", &name)
        }
    }
}

/// Deletes locked rows.
pub(super) fn delete(table: &Table, ctids: &[pg_sys::ItemPointerData]) {
    let name = table.name.to_string_lossy();
    let sql =
        format!("delete from only trax.{name} o where o.ctid operator(pg_catalog.=) any ($1)");
    let rows: Vec<Values> = ctids.iter().map(|ctid| vec![ctid_of(ctid)]).collect();
    if run(&sql, &[pg_sys::TIDOID], &rows) != rows.len() {
        suppressed("deleted from", &name)
    }
}

/// Returns the ctid of a row as a value, which lives as long as the ctid.
pub(crate) fn ctid_of(ctid: &pg_sys::ItemPointerData) -> Option<pg_sys::Datum> {
    Some(pg_sys::Datum::from(&raw const *ctid))
}

fn placeholders(count: usize) -> String {
    let numbers: Vec<_> = (1..=count).map(|n| format!("${n}")).collect();
    numbers.join(", ")
}

/// Runs a statement with an array of each column of `rows`; returns how many rows it wrote.
fn run(sql: &str, types: &[pg_sys::Oid], rows: &[Values]) -> usize {
    let written = spi::connected(|spi| {
        let arrays: Values = (types.iter().enumerate())
            .map(|(column, &element)| {
                let values: Values = rows.iter().map(|row| row[column]).collect();
                array_arg(element, &values)
            })
            .collect();
        let array_types: Vec<_> = (types.iter())
            // SAFETY: a lookup of a type of the server.
            .map(|&element| unsafe { pg_sys::get_array_type(element) })
            .collect();
        let statement = spi::kept(sql, &array_types);
        Ok(spi.change_latest(statement.with(&arrays)).len())
    });
    written.unwrap_or_else(|error| error.raise())
}

/// Returns the rows in parts whose values fit in one statement.
fn parts<'rows>(rows: &'rows [Values], types: &[pg_sys::Oid]) -> Vec<&'rows [Values]> {
    // SAFETY: a lookup of a type of the server.
    let is_long = |&element: &pg_sys::Oid| unsafe { pg_sys::get_typlen(element) } == -1;
    let long: Vec<bool> = types.iter().map(is_long).collect();
    let bytes = |row: &Values| -> usize {
        let values = row.iter().zip(&long).filter(|(_, long)| **long);
        values.filter_map(|(value, _)| value.map(value_bytes)).sum()
    };
    let (mut parts, mut first, mut size) = (Vec::new(), 0, 0);
    for (index, row) in rows.iter().enumerate() {
        let more = bytes(row);
        if size + more > BYTES_AT_MOST && index > first {
            parts.push(&rows[first..index]);
            (first, size) = (index, 0);
        }
        size += more;
    }
    parts.push(&rows[first..]);
    parts
}

/// Raises 55000: a row was not written as requested.
fn suppressed(verb: &str, table: &str) -> ! {
    Error::wrong_state(format!("a row was not {verb} trax.{table}"))
        .detail("A trigger or a rule that was added to the table suppressed it, and a job would be lost or run twice.")
        .hint(format!(
            "List what was added: select tgname from pg_trigger where tgrelid = 'trax.{table}'::regclass; and drop it."
        ))
        .raise()
}

impl Table {
    fn type_of(&self, column: usize) -> pg_sys::Oid {
        // SAFETY: the open relation has at least the known columns.
        unsafe { (*attribute((*self.relation).rd_att, column)).atttypid }
    }
}
