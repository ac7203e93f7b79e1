//! Rows: the results of a statement, each column by its name.
//!
//! A row is a struct whose fields are in the order of the select list. Names and types are compared
//! once, when a session plans the statement, so that columns can be read by position.

use crate::server::clock::Timestamp;
use pgrx::datum::{FromDatum, Interval};
use pgrx::{Uuid, pg_sys};
use std::ffi::CStr;
use std::marker::PhantomData;

/// The value of a column; `Option` where it may be null.
pub(crate) trait Column: Sized {
    fn read(datum: Option<pg_sys::Datum>) -> Self;

    fn is_of(type_oid: pg_sys::Oid) -> bool;
}

macro_rules! columns_of {
    ($($type:ty: $($oid:ident)|+),* $(,)?) => {$(
        impl Column for $type {
            fn read(datum: Option<pg_sys::Datum>) -> Self {
                let datum = datum.expect("a column that is never null");
                // SAFETY: the column has a type of this Rust type, which planning has checked.
                let value = unsafe {
                    Self::from_polymorphic_datum(datum, false, pg_sys::InvalidOid)
                };
                value.expect("a value that is not null")
            }

            fn is_of(type_oid: pg_sys::Oid) -> bool {
                [$(pg_sys::$oid),+].contains(&type_oid)
            }
        }
    )*};
}

columns_of! {
    bool: BOOLOID,
    f64: FLOAT8OID,
    i16: INT2OID,
    i32: INT4OID,
    i64: INT8OID,
    String: TEXTOID | VARCHAROID,
    Interval: INTERVALOID,
    Timestamp: TIMESTAMPTZOID,
    Uuid: UUIDOID,
    pg_sys::Oid: OIDOID,
    Vec<String>: TEXTARRAYOID,
}

/// A value that is passed on unread.
impl Column for pg_sys::Datum {
    fn read(datum: Option<pg_sys::Datum>) -> Self {
        datum.expect("a column that is never null")
    }

    fn is_of(_: pg_sys::Oid) -> bool {
        true
    }
}

impl<T: Column> Column for Option<T> {
    fn read(datum: Option<pg_sys::Datum>) -> Self {
        datum.map(|datum| T::read(Some(datum)))
    }

    fn is_of(type_oid: pg_sys::Oid) -> bool {
        T::is_of(type_oid)
    }
}

/// The expected column at one position.
pub(crate) struct Expected {
    /// A row with one column needs no name.
    name: Option<&'static str>,
    is_of: fn(pg_sys::Oid) -> bool,
}

impl Expected {
    pub(crate) fn named<T: Column>(name: &'static str) -> Self {
        Self {
            name: Some(name),
            is_of: T::is_of,
        }
    }
}

/// A row of a statement.
pub(crate) trait Row: Sized {
    /// Returns `None` if the rows are not read, whatever they are.
    fn columns() -> Option<Vec<Expected>>;

    fn read(values: &mut Values) -> Self;
}

impl Row for () {
    fn columns() -> Option<Vec<Expected>> {
        None
    }

    fn read(_: &mut Values) {}
}

/// The row of a statement with one column is its value.
impl<T: Column> Row for T {
    fn columns() -> Option<Vec<Expected>> {
        Some(vec![Expected {
            name: None,
            is_of: T::is_of,
        }])
    }

    fn read(values: &mut Values) -> Self {
        values.next()
    }
}

/// Two rows, one after the other.
impl<A: Row, B: Row> Row for (A, B) {
    fn columns() -> Option<Vec<Expected>> {
        Some(A::columns()?.into_iter().chain(B::columns()?).collect())
    }

    fn read(values: &mut Values) -> Self {
        (A::read(values), B::read(values))
    }
}

/// Declares a row: a struct whose fields are the columns of a statement, in their order.
macro_rules! row {
    (
        $(#[$meta:meta])*
        $visible:vis struct $name:ident $(<$generic:ident>)? {
            $($(#[$field_meta:meta])* $field:ident: $type:ty),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $visible struct $name $(<$generic>)? {
            $($(#[$field_meta])* $visible $field: $type),*
        }

        impl $(<$generic: $crate::server::spi::Column>)? $crate::server::spi::Row
            for $name $(<$generic>)?
        {
            fn columns() -> Option<Vec<$crate::server::spi::Expected>> {
                Some(vec![$($crate::server::spi::Expected::named::<$type>(stringify!($field))),*])
            }

            fn read(values: &mut $crate::server::spi::Values) -> Self {
                Self { $($field: values.next()),* }
            }
        }
    };
}
pub(crate) use row;

/// The values of one row, from left to right.
pub(crate) struct Values<'rows> {
    tuple: pg_sys::HeapTuple,
    shape: pg_sys::TupleDesc,
    read: i32,
    lifetime: PhantomData<&'rows ()>,
}

impl Values<'_> {
    /// Returns the next value.
    pub(crate) fn next<T: Column>(&mut self) -> T {
        self.read += 1;
        let mut is_null = false;
        // SAFETY: the row and its shape are alive; the server checks the number.
        let datum =
            unsafe { pg_sys::SPI_getbinval(self.tuple, self.shape, self.read, &raw mut is_null) };
        T::read((!is_null).then_some(datum))
    }
}

/// The rows of a statement. By-reference values live until the connection ends.
pub(crate) struct Rows<'spi, R> {
    table: *mut pg_sys::SPITupleTable,
    count: usize,
    lifetime: PhantomData<(&'spi (), R)>,
}

impl<R: Row> Rows<'_, R> {
    pub(super) fn new(table: *mut pg_sys::SPITupleTable, count: usize) -> Self {
        Self {
            table,
            count,
            lifetime: PhantomData,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = R> {
        (0..self.count).map(|index| self.row(index))
    }

    pub(crate) fn first(&self) -> Option<R> {
        (self.count > 0).then(|| self.row(0))
    }

    /// Returns the row of a statement that always returns one.
    pub(crate) fn one(&self) -> R {
        self.first().expect("a statement that returns one row")
    }

    fn row(&self, index: usize) -> R {
        // SAFETY: `index` is within the rows of a table that lives as long as the connection.
        let mut values = unsafe {
            Values {
                tuple: *(*self.table).vals.add(index),
                shape: (*self.table).tupdesc,
                read: 0,
                lifetime: PhantomData,
            }
        };
        R::read(&mut values)
    }
}

/// Returns the difference between a select list and a row.
pub(super) fn difference(expected: &[Expected], found: &[(String, pg_sys::Oid)]) -> Option<String> {
    if found.len() != expected.len() {
        let (found, expected) = (found.len(), expected.len());
        return Some(format!("has {found} columns and not {expected}"));
    }
    expected
        .iter()
        .zip(found)
        .find_map(|(expected, (name, type_oid))| {
            if let Some(expected) = expected.name.filter(|expected| *expected != name) {
                return Some(format!("has the column \"{name}\" and not \"{expected}\""));
            }
            (!(expected.is_of)(*type_oid))
                .then(|| format!("has the column \"{name}\" with another type: {type_oid:?}"))
        })
}

/// Returns the names and types of a select list.
///
/// # Safety
/// `shape` is that of a plan that is alive, or null.
pub(super) unsafe fn found(shape: pg_sys::TupleDesc) -> Vec<(String, pg_sys::Oid)> {
    if shape.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller says; a name ends with a zero.
    unsafe {
        (0..(*shape).natts as usize)
            .map(|index| {
                let column = &*attribute(shape, index);
                let name = CStr::from_ptr(column.attname.data.as_ptr());
                (name.to_string_lossy().into_owned(), column.atttypid)
            })
            .collect()
    }
}

/// Returns the attribute at `index`, from 0, which the descriptor has.
pub(crate) unsafe fn attribute(
    shape: pg_sys::TupleDesc,
    index: usize,
) -> *const pg_sys::FormData_pg_attribute {
    // SAFETY: as the caller says, the descriptor has this attribute.
    unsafe {
        #[cfg(not(feature = "pg18"))]
        return (*shape).attrs.as_ptr().add(index);
        #[cfg(feature = "pg18")]
        return pg_sys::TupleDescAttr(shape, index as i32);
    }
}

#[cfg(test)]
mod tests {
    use super::{Row, difference};
    use pgrx::pg_sys;

    row! {
        struct Pair {
            id: i64,
            name: Option<String>,
        }
    }

    fn difference_of<R: Row>(found: &[(&str, pg_sys::Oid)]) -> Option<String> {
        let found: Vec<_> = found
            .iter()
            .map(|&(name, type_oid)| (name.to_owned(), type_oid))
            .collect();
        difference(&R::columns().expect("it is read"), &found)
    }

    #[test]
    fn a_select_list_is_taken_whose_names_and_types_are_those_of_the_row() {
        let found = [("id", pg_sys::INT8OID), ("name", pg_sys::TEXTOID)];
        assert_eq!(difference_of::<Pair>(&found), None);
        assert_eq!(difference_of::<i64>(&[("?column?", pg_sys::INT8OID)]), None);
        assert!(<() as Row>::columns().is_none());
        type Two = (Pair, Pair);
        let twice = [found, found].concat();
        assert_eq!(difference_of::<Two>(&twice), None);
    }

    #[test]
    fn a_select_list_with_another_name_number_or_type_is_refused_by_name() {
        let swapped = [("name", pg_sys::TEXTOID), ("id", pg_sys::INT8OID)];
        let said = difference_of::<Pair>(&swapped).expect("refused");
        assert_eq!(said, "has the column \"name\" and not \"id\"");
        let said = difference_of::<Pair>(&swapped[..1]).expect("refused");
        assert_eq!(said, "has 1 columns and not 2");
        let typed = [("id", pg_sys::INT4OID), ("name", pg_sys::TEXTOID)];
        let said = difference_of::<Pair>(&typed).expect("refused");
        assert!(
            said.starts_with("has the column \"id\" with another type"),
            "{said}"
        );
        assert!(difference_of::<i64>(&typed).is_some());
        // Read, so that the fields count as used.
        let pair = Pair { id: 1, name: None };
        assert_eq!((pair.id, pair.name), (1, None));
    }
}
