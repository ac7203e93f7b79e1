//! Values as parameters of statements.

use crate::error::{Error, Result};
use pgrx::datum::IntoDatum;
use pgrx::pg_sys;

/// Returns a value as a statement's parameter.
pub(crate) fn arg(value: impl IntoDatum) -> Option<pg_sys::Datum> {
    value.into_datum()
}

/// Returns an array parameter of elements that are only passed on, nulls included; `element` is
/// their type.
pub(crate) fn array_arg(
    element: pg_sys::Oid,
    values: &[Option<pg_sys::Datum>],
) -> Option<pg_sys::Datum> {
    let mut nulls: Vec<bool> = values.iter().map(Option::is_none).collect();
    let mut datums: Vec<pg_sys::Datum> = values
        .iter()
        .map(|value| value.unwrap_or(pg_sys::Datum::from(0)))
        .collect();
    let (mut length, mut by_value, mut align) = (0i16, false, 0 as std::ffi::c_char);
    let (mut dimensions, mut lower) = ([values.len() as i32], [1i32]);
    // SAFETY: one flag for each element; the array copies what the elements point to.
    let array = unsafe {
        pg_sys::get_typlenbyvalalign(element, &raw mut length, &raw mut by_value, &raw mut align);
        if values.is_empty() {
            pg_sys::construct_empty_array(element)
        } else {
            pg_sys::construct_md_array(
                datums.as_mut_ptr(),
                nulls.as_mut_ptr(),
                1,
                dimensions.as_mut_ptr(),
                lower.as_mut_ptr(),
                element,
                i32::from(length),
                by_value,
                align,
            )
        }
    };
    Some(pg_sys::Datum::from(array))
}

/// Returns how many elements an array has.
pub(crate) fn array_length(array: pg_sys::Datum) -> usize {
    // SAFETY: the argument is declared as an array; the server allocates its copy.
    unsafe {
        let array: *mut pg_sys::ArrayType = pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast();
        let dimensions = array.byte_add(size_of::<pg_sys::ArrayType>()).cast();
        pg_sys::ArrayGetNItems((*array).ndim, dimensions) as usize
    }
}

/// Returns the elements of an array argument, unread.
///
/// # Errors
/// 53200 when there is no memory for them.
pub(crate) fn array_elements(
    element: pg_sys::Oid,
    array: pg_sys::Datum,
) -> Result<Vec<Option<pg_sys::Datum>>> {
    let mut elements = Vec::new();
    let (mut length, mut by_value, mut align) = (0i16, false, 0 as std::ffi::c_char);
    let (mut values, mut nulls) = (std::ptr::null_mut(), std::ptr::null_mut());
    let mut count = 0i32;
    // SAFETY: the argument is declared as an array of `element`; the server allocates both results.
    unsafe {
        pg_sys::get_typlenbyvalalign(element, &raw mut length, &raw mut by_value, &raw mut align);
        pg_sys::deconstruct_array(
            pg_sys::pg_detoast_datum(array.cast_mut_ptr()).cast(),
            element,
            i32::from(length),
            by_value,
            align,
            &raw mut values,
            &raw mut nulls,
            &raw mut count,
        );
        elements
            .try_reserve_exact(count as usize)
            .map_err(|_| Error::no_memory())?;
        elements.extend(
            (0..count as usize).map(|index| (!*nulls.add(index)).then(|| *values.add(index))),
        );
    }
    Ok(elements)
}

/// Returns a complete copy of a variable-length value that outlives the connection and its
/// snapshot.
pub(crate) fn outlive(datum: pg_sys::Datum) -> pg_sys::Datum {
    // SAFETY: the callers pass text and jsonb only, while SPI is connected.
    unsafe {
        let whole = pg_sys::pg_detoast_datum(datum.cast_mut_ptr());
        pg_sys::SPI_datumTransfer(pg_sys::Datum::from(whole), false, -1)
    }
}

/// Returns the size in bytes of a variable-length value, whether it is stored out of line,
/// compressed or plain.
pub(crate) fn value_bytes(datum: pg_sys::Datum) -> usize {
    // SAFETY: the callers pass text and jsonb only.
    unsafe { pg_sys::toast_raw_datum_size(datum) - pg_sys::VARHDRSZ }
}
