//! SQL entry points: reads the arguments of the extension's SQL functions and returns their
//! results.
//!
//! Every function is declared in `sql/api`; [`sql_function!`] makes the C symbol behind it. Null
//! arguments are checked here, so that a null where a value is needed is an error that names the
//! argument.

use crate::error::{Error, Result};
use crate::server::clock::{Timestamp, has_mixed_signs, interval_micros};
use crate::server::quote::literal;
use crate::server::spi::value::{array_length, value_bytes};
use pgrx::datum::{FromDatum, Interval, IntoDatum};
use pgrx::pg_sys;

/// The longest name of a task, group, manifest, worker or key, in bytes.
pub(crate) const NAME_BYTES: usize = 255;
/// The longest free text, in bytes.
const TEXT_BYTES: usize = 64 * 1024;
/// The most elements of an array of names, and of jobs or tokens.
const NAMES_AT_MOST: usize = 10_000;
const JOBS_AT_MOST: usize = 65_536;
/// The longest interval that a call may pass.
pub(crate) const LONGEST_MICROS: i64 = 10 * 366 * 24 * 60 * 60 * 1_000_000;
/// `MAT_SRF_USE_EXPECTED_DESC`: rows in the shape that the query expects.
const USE_EXPECTED_DESC: u32 = 1;

/// A type whose values have a fixed length: other arguments are measured before they are copied.
pub(crate) trait Fixed: FromDatum {}

impl Fixed for bool {}
impl Fixed for i32 {}
impl Fixed for i64 {}
impl Fixed for f64 {}
impl Fixed for pg_sys::Oid {}
impl Fixed for pgrx::Uuid {}
impl Fixed for Interval {}
impl Fixed for Timestamp {}

/// Makes the C symbol `$symbol` and its finfo record; `$body` is `fn(&Call) -> Result<Datum>`. The
/// function refuses the SQL of another version, unless declared `of any version`.
macro_rules! sql_function {
    ($symbol:ident, $finfo:ident, $body:expr) => {
        $crate::server::call::sql_function!(of any version $symbol, $finfo, |call| {
            $crate::server::version::require();
            let body: fn(
                &$crate::server::call::Call,
            ) -> $crate::error::Result<::pgrx::pg_sys::Datum> = $body;
            body(call)
        });
    };
    (of any version $symbol:ident, $finfo:ident, $body:expr) => {
        #[doc(hidden)]
        #[unsafe(no_mangle)]
        pub(crate) extern "C-unwind" fn $finfo() -> &'static ::pgrx::pg_sys::Pg_finfo_record {
            const RECORD: ::pgrx::pg_sys::Pg_finfo_record =
                ::pgrx::pg_sys::Pg_finfo_record { api_version: 1 };
            &RECORD
        }

        #[doc(hidden)]
        #[unsafe(no_mangle)]
        #[::pgrx::pg_guard]
        pub(crate) extern "C-unwind" fn $symbol(
            fcinfo: ::pgrx::pg_sys::FunctionCallInfo,
        ) -> ::pgrx::pg_sys::Datum {
            let body: fn(
                &$crate::server::call::Call,
            ) -> $crate::error::Result<::pgrx::pg_sys::Datum> = $body;
            match body(&$crate::server::call::Call::new(fcinfo)) {
                Ok(datum) => datum,
                Err(error) => error.raise(),
            }
        }
    };
}
pub(crate) use sql_function;

/// A call of a SQL function.
pub(crate) struct Call {
    fcinfo: pg_sys::FunctionCallInfo,
}

impl Call {
    pub(crate) fn new(fcinfo: pg_sys::FunctionCallInfo) -> Self {
        Self { fcinfo }
    }

    /// Returns a call that was not made from SQL: its arguments come from elsewhere.
    pub(crate) fn with(values: &[Option<pg_sys::Datum>]) -> Self {
        let size = size_of::<pg_sys::FunctionCallInfoBaseData>()
            + values.len() * size_of::<pg_sys::NullableDatum>();
        // SAFETY: room for the call and its arguments, in the current memory context.
        unsafe {
            let fcinfo: pg_sys::FunctionCallInfo = pg_sys::palloc0(size).cast();
            (*fcinfo).nargs = values.len() as i16;
            let arguments = (*fcinfo).args.as_mut_ptr();
            for (index, value) in values.iter().enumerate() {
                arguments.add(index).write(pg_sys::NullableDatum {
                    value: value.unwrap_or(pg_sys::Datum::from(0)),
                    isnull: value.is_none(),
                });
            }
            Self { fcinfo }
        }
    }

    /// Returns the argument at `index`, from 0; `None` when it is null.
    pub(crate) fn optional<T: Fixed>(&self, index: usize) -> Option<T> {
        self.copied(index)
    }

    /// Returns a copy of a text whose length the caller has checked.
    pub(crate) fn measured_text(&self, index: usize) -> Option<String> {
        self.copied(index)
    }

    /// Returns a copy of the argument at `index`, whose length was checked.
    fn copied<T: FromDatum>(&self, index: usize) -> Option<T> {
        // SAFETY: the declarations in sql/api declare `index` with the SQL type that T reads; the
        // tests call each one.
        unsafe { pgrx::fcinfo::pg_getarg(self.fcinfo, index) }
    }

    /// Returns the argument at `index`, or 22004.
    pub(crate) fn required<T: Fixed>(&self, index: usize, name: &str) -> Result<T> {
        self.optional(index)
            .ok_or_else(|| Error::null_argument(name))
    }

    /// Returns the argument unread, for values that are only passed on.
    pub(crate) fn datum(&self, index: usize) -> Option<pg_sys::Datum> {
        // SAFETY: `index` is an argument of the declaration.
        unsafe { pgrx::fcinfo::pg_getarg_datum(self.fcinfo, index) }
    }

    /// Returns whether the call comes from a trigger, for an INSERT or a COPY.
    pub(crate) fn is_trigger_of_insert(&self) -> bool {
        // SAFETY: the context of a call is null or a node; a trigger's call has its data there.
        unsafe {
            let context = (*self.fcinfo).context;
            !context.is_null()
                && (*context).type_ == pg_sys::NodeTag::T_TriggerData
                && (*context.cast::<pg_sys::TriggerData>()).tg_event & pg_sys::TRIGGER_EVENT_OPMASK
                    == pg_sys::TRIGGER_EVENT_INSERT
        }
    }

    /// Returns the table of the trigger that calls.
    pub(crate) fn trigger_table(&self) -> Option<pg_sys::Oid> {
        // SAFETY: as above; a trigger runs with its table open.
        unsafe {
            let context = (*self.fcinfo).context;
            let is_trigger =
                !context.is_null() && (*context).type_ == pg_sys::NodeTag::T_TriggerData;
            is_trigger.then(|| (*(*context.cast::<pg_sys::TriggerData>()).tg_relation).rd_id)
        }
    }

    /// Returns an error for a text longer than `most` bytes, before it is copied: without memory
    /// for the copy, this process would end, and with it every session.
    fn check_bytes(&self, index: usize, name: &str, most: usize) -> Result<()> {
        let bytes = self.datum(index).map_or(0, value_bytes);
        if bytes <= most {
            return Ok(());
        }
        Err(Error::too_large(format!("argument \"{name}\" is too long"))
            .detail(format!("{name} has {bytes} bytes; the limit is {most}."))
            .hint(match most {
                NAME_BYTES => format!("Specify a name of 1 to {NAME_BYTES} bytes."),
                _ => format!("Specify a shorter {name}."),
            }))
    }

    /// Returns an error for an array with more than `most` elements, by its header.
    fn check_elements(&self, index: usize, name: &str, most: usize) -> Result<()> {
        let elements = self.datum(index).map_or(0, array_length);
        if elements <= most {
            return Ok(());
        }
        Err(Error::too_large(format!("argument \"{name}\" is too long"))
            .detail(format!(
                "{name} has {elements} elements; the limit is {most}."
            ))
            .hint("Specify fewer, in several calls."))
    }

    /// Returns at most the first 64 KiB of a text of any length.
    pub(crate) fn beginning(&self, index: usize) -> Option<String> {
        if self.datum(index).map_or(0, value_bytes) <= TEXT_BYTES {
            return self.copied(index);
        }
        // SAFETY: the argument is a text; the slice is a copy of its first bytes.
        let bytes = unsafe {
            let text = self.datum(index)?.cast_mut_ptr();
            let slice = pg_sys::pg_detoast_datum_slice(text, 0, TEXT_BYTES as i32);
            pgrx::varlena_to_byte_slice(slice)
        };
        let whole = match std::str::from_utf8(bytes) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        Some(String::from_utf8_lossy(&bytes[..whole]).into_owned())
    }

    /// Returns a name of 1 to 255 bytes.
    pub(crate) fn name(&self, index: usize, name: &str) -> Result<String> {
        self.optional_name(index, name)?
            .ok_or_else(|| Error::null_argument(name))
    }

    pub(crate) fn optional_name(&self, index: usize, name: &str) -> Result<Option<String>> {
        self.check_bytes(index, name, NAME_BYTES)?;
        self.copied(index)
            .map(|text| checked_name(text, name))
            .transpose()
    }

    /// Returns the name of a task, manifest or group; see [`new_name`].
    pub(crate) fn new_name(&self, index: usize, name: &str) -> Result<String> {
        self.name(index, name).and_then(|text| new_name(text, name))
    }

    pub(crate) fn optional_new_name(&self, index: usize, name: &str) -> Result<Option<String>> {
        self.optional_name(index, name)?
            .map(|text| new_name(text, name))
            .transpose()
    }

    /// Returns a text of at most 64 KiB; null is 22004.
    pub(crate) fn text(&self, index: usize, name: &str) -> Result<String> {
        self.optional_text(index, name)?
            .ok_or_else(|| Error::null_argument(name))
    }

    /// Returns a text of at most 64 KiB.
    pub(crate) fn optional_text(&self, index: usize, name: &str) -> Result<Option<String>> {
        self.check_bytes(index, name, TEXT_BYTES)?;
        Ok(self.copied(index))
    }

    /// Returns an array of names; a null element is 22004.
    pub(crate) fn optional_names(&self, index: usize, name: &str) -> Result<Option<Vec<String>>> {
        self.check_elements(index, name, NAMES_AT_MOST)?;
        self.copied::<Vec<Option<String>>>(index)
            .map(|names| without_nulls(names, name))
            .transpose()
    }

    /// Returns the names to look for. A list that can match nothing is an error.
    pub(crate) fn filter(&self, index: usize, name: &str) -> Result<Option<Vec<String>>> {
        let Some(names) = self.optional_names(index, name)? else {
            return Ok(None);
        };
        if names.is_empty() || names.iter().any(String::is_empty) {
            return Err(Error::invalid(format!("argument \"{name}\" must not be empty"))
                .detail("With no name, or an empty one, no job matches.")
                .hint(format!(
                    "Name at least one: {name} => array['mail.send']; or leave {name} out for all"
                )));
        }
        names
            .into_iter()
            .map(|text| new_name(text, name))
            .collect::<Result<_>>()
            .map(Some)
    }

    /// Returns an array of jobs or tokens; a null element is 22004.
    pub(crate) fn array<T>(&self, index: usize, name: &str) -> Result<Vec<T>>
    where
        Vec<Option<T>>: FromDatum,
    {
        self.check_elements(index, name, JOBS_AT_MOST)?;
        let elements = self.copied(index);
        without_nulls(elements.ok_or_else(|| Error::null_argument(name))?, name)
    }

    /// Returns an interval above zero, in microseconds.
    pub(crate) fn optional_positive(&self, index: usize, name: &str) -> Result<Option<i64>> {
        self.optional_length(index, name, 1, "longer than zero")
    }

    /// Returns an interval of zero or more, in microseconds.
    pub(crate) fn optional_not_negative(&self, index: usize, name: &str) -> Result<Option<i64>> {
        self.optional_length(index, name, 0, "zero or longer")
    }

    /// Does the same as [`optional_positive`](Self::optional_positive); null is 22004.
    pub(crate) fn positive(&self, index: usize, name: &str) -> Result<i64> {
        self.optional_positive(index, name)?
            .ok_or_else(|| Error::null_argument(name))
    }

    fn optional_length(
        &self,
        index: usize,
        name: &str,
        shortest: i64,
        words: &str,
    ) -> Result<Option<i64>> {
        let interval = self.optional::<Interval>(index);
        if interval.as_ref().is_some_and(has_mixed_signs) {
            return Err(
                Error::invalid(format!("argument \"{name}\" has no fixed length"))
                    .detail("Its months and the rest of it have different signs.")
                    .hint(format!(
                        "Specify an interval without months, for example: {name} => interval '30 days'"
                    )),
            );
        }
        let micros = interval.map(|interval| interval_micros(&interval));
        match micros {
            Some(micros) if !(shortest..=LONGEST_MICROS).contains(&micros) => Err(Error::invalid(
                format!("argument \"{name}\" must be {words}, at most 10 years"),
            )
            .detail(format!("{name} is {} seconds.", micros as f64 / 1e6))
            .hint(format!(
                "Specify an interval, for example: {name} => interval '30 s'"
            ))),
            other => Ok(other),
        }
    }

    /// Returns a whole number within `low..=high`.
    pub(crate) fn optional_within(
        &self,
        index: usize,
        name: &str,
        low: i32,
        high: i32,
    ) -> Result<Option<i32>> {
        match self.optional::<i32>(index) {
            Some(value) if !(low..=high).contains(&value) => Err(Error::invalid(format!(
                "argument \"{name}\" must be between {low} and {high}"
            ))
            .detail(format!("{name} is {value}."))
            .hint(format!(
                "Specify a number from {low} to {high}: {name} => {low}"
            ))),
            other => Ok(other),
        }
    }

    /// Returns whether the call may not end its transaction: it is not a top-level CALL.
    pub(crate) fn is_atomic(&self) -> bool {
        // SAFETY: the context of a procedure's call is a CallContext node; any other call has
        // another node or null.
        unsafe {
            let context = (*self.fcinfo).context;
            context.is_null()
                || (*context).type_ != pg_sys::NodeTag::T_CallContext
                || (*context.cast::<pg_sys::CallContext>()).atomic
        }
    }

    /// Returns the oid of the called function.
    pub(crate) fn function(&self) -> pg_sys::Oid {
        // SAFETY: a call of a SQL function contains its oid.
        unsafe { (*(*self.fcinfo).flinfo).fn_oid }
    }

    /// Returns one row in the shape of the declared OUT arguments.
    pub(crate) fn record(&self, values: &mut [Option<pg_sys::Datum>]) -> pg_sys::Datum {
        let mut nulls: Vec<bool> = values.iter().map(Option::is_none).collect();
        let mut datums: Vec<pg_sys::Datum> = values
            .iter()
            .map(|value| value.unwrap_or(pg_sys::Datum::from(0)))
            .collect();
        let mut shape: pg_sys::TupleDesc = std::ptr::null_mut();
        // SAFETY: the declaration has OUT arguments; one value and one flag for each, as is
        // checked.
        unsafe {
            pg_sys::get_call_result_type(self.fcinfo, std::ptr::null_mut(), &raw mut shape);
            assert!(
                !shape.is_null() && (*shape).natts as usize == datums.len(),
                "a value for each OUT argument"
            );
            let shape = pg_sys::BlessTupleDesc(shape);
            let tuple = pg_sys::heap_form_tuple(shape, datums.as_mut_ptr(), nulls.as_mut_ptr());
            pg_sys::HeapTupleHeaderGetDatum((*tuple).t_data)
        }
    }

    pub(crate) fn null(&self) -> pg_sys::Datum {
        // SAFETY: marks the result of this call as null.
        unsafe { pgrx::fcinfo::pg_return_null(self.fcinfo) }
    }

    pub(crate) fn value(&self, value: impl IntoDatum) -> pg_sys::Datum {
        value.into_datum().unwrap_or_else(|| self.null())
    }

    /// Begins a result of many rows; the call then returns what [`Rows::end`] returns.
    pub(crate) fn rows(&self) -> Rows {
        // SAFETY: the function is declared `returns table` or `returns setof`; the server refuses a
        // caller that does not accept a set.
        unsafe {
            pg_sys::InitMaterializedSRF(self.fcinfo, USE_EXPECTED_DESC);
            let info = (*self.fcinfo).resultinfo.cast::<pg_sys::ReturnSetInfo>();
            Rows {
                store: (*info).setResult,
                shape: (*info).setDesc,
                datums: Vec::new(),
                nulls: Vec::new(),
            }
        }
    }
}

/// The rows that a call returns.
pub(crate) struct Rows {
    store: *mut pg_sys::Tuplestorestate,
    shape: pg_sys::TupleDesc,
    /// Of the row that was added last.
    datums: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
}

impl Rows {
    /// Adds one row; `values` are in the order of the declared columns.
    pub(crate) fn push(&mut self, values: &[Option<pg_sys::Datum>]) {
        let (datums, nulls) = (&mut self.datums, &mut self.nulls);
        datums.clear();
        datums.extend(
            values
                .iter()
                .map(|value| value.unwrap_or(pg_sys::Datum::from(0))),
        );
        nulls.clear();
        nulls.extend(values.iter().map(Option::is_none));
        // SAFETY: one value and one flag for each column; the store copies what they point to.
        unsafe {
            assert_eq!(
                (*self.shape).natts as usize,
                datums.len(),
                "a value for each column"
            );
            pg_sys::tuplestore_putvalues(
                self.store,
                self.shape,
                datums.as_mut_ptr(),
                nulls.as_mut_ptr(),
            );
        }
    }

    pub(crate) fn end(self) -> pg_sys::Datum {
        pg_sys::Datum::from(0)
    }
}

fn without_nulls<T>(values: Vec<Option<T>>, name: &str) -> Result<Vec<T>> {
    values
        .into_iter()
        .collect::<Option<Vec<T>>>()
        .ok_or_else(|| Error::null_argument(name))
}

/// Returns a name of 1 to 255 bytes.
pub(crate) fn checked_name(text: String, name: &str) -> Result<String> {
    if text.is_empty() {
        return Err(
            Error::invalid(format!("argument \"{name}\" must not be empty"))
                .detail(format!("{name} is the empty text."))
                .hint(format!(
                    "Specify a name of 1 to {NAME_BYTES} bytes: {name} => 'report.build'"
                )),
        );
    }
    if text.len() > NAME_BYTES {
        return Err(Error::too_large(format!("argument \"{name}\" is too long"))
            .detail(format!(
                "{name} has {} bytes; the limit is {NAME_BYTES}.",
                text.len()
            ))
            .hint(format!("Specify a name of 1 to {NAME_BYTES} bytes.")));
    }
    Ok(text)
}

/// Returns the name of a task, manifest or group, without white space at its ends: a list split at
/// its commas leaves it there, and names that look alike would differ.
pub(crate) fn new_name(text: String, name: &str) -> Result<String> {
    let trimmed = text.trim();
    if trimmed.len() == text.len() {
        return Ok(text);
    }
    let wanted = if trimmed.is_empty() {
        "report.build"
    } else {
        trimmed
    };
    Err(Error::invalid(format!(
        "argument \"{name}\" must not begin or end with white space"
    ))
    .detail(format!("{name} is \"{text}\"."))
    .hint(format!("Specify the name alone: {}", literal(wanted))))
}
