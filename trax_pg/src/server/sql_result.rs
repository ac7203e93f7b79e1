//! The results of a statement without a client: its first rows, as JSON.

use crate::server::spi::attribute;
use pgrx::{pg_guard, pg_sys};
use std::ffi::CStr;

/// The most rows that are kept, and the most bytes of them.
const ROWS: usize = 100;
const BYTES: usize = 64 * 1024;
/// The most bytes of one value.
const VALUE_BYTES: usize = 8 * 1024;

/// Collects the first rows of the last statement that returns any.
#[repr(C)]
pub(crate) struct Collector {
    /// First, because the server passes a pointer to it.
    receiver: pg_sys::DestReceiver,
    columns: Vec<Column>,
    /// The rows, as the inside of a JSON array.
    rows: Vec<u8>,
    kept: usize,
    /// Rows or parts of values are left out.
    is_cut: bool,
}

struct Column {
    name: Vec<u8>,
    /// Its type, as SQL spells it.
    kind: Vec<u8>,
    output: pg_sys::Oid,
    form: JsonForm,
}

/// How a value becomes JSON.
#[derive(Clone, Copy)]
enum JsonForm {
    Boolean,
    Number,
    Json,
    Text,
}

impl Collector {
    pub(crate) fn new() -> Self {
        Self {
            receiver: pg_sys::DestReceiver {
                receiveSlot: Some(receive),
                rStartup: Some(start),
                rShutdown: Some(ignore),
                rDestroy: Some(ignore),
                mydest: pg_sys::CommandDest::DestNone,
            },
            columns: Vec::new(),
            rows: Vec::new(),
            kept: 0,
            is_cut: false,
        }
    }

    pub(super) fn receiver(&mut self) -> *mut pg_sys::DestReceiver {
        (&raw mut *self).cast()
    }

    /// Adds the members `columns`, `types`, `result` and `truncated`, when there is a result.
    pub(crate) fn write(&self, json: &mut Vec<u8>) {
        if self.columns.is_empty() {
            return;
        }
        let names = self.columns.iter().map(|column| &column.name);
        let kinds = self.columns.iter().map(|column| &column.kind);
        write_texts(json, "columns", names);
        write_texts(json, "types", kinds);
        json.extend_from_slice(b",\"result\":[");
        json.extend_from_slice(&self.rows);
        json.extend_from_slice(b"],\"truncated\":");
        json.extend_from_slice(if self.is_cut { b"true" } else { b"false" });
    }

    unsafe fn begin(&mut self, shape: pg_sys::TupleDesc) {
        self.rows.clear();
        self.kept = 0;
        self.is_cut = false;
        // SAFETY: the shape of the rows that follow.
        self.columns = unsafe {
            (0..(*shape).natts as usize)
                .map(|index| {
                    let attribute = &*attribute(shape, index);
                    let (mut output, mut varies) = (pg_sys::Oid::INVALID, false);
                    pg_sys::getTypeOutputInfo(attribute.atttypid, &raw mut output, &raw mut varies);
                    Column {
                        name: CStr::from_ptr(attribute.attname.data.as_ptr())
                            .to_bytes()
                            .to_vec(),
                        kind: CStr::from_ptr(pg_sys::format_type_be(attribute.atttypid))
                            .to_bytes()
                            .to_vec(),
                        output,
                        form: JsonForm::of(attribute.atttypid),
                    }
                })
                .collect()
        };
    }

    unsafe fn add(&mut self, slot: *mut pg_sys::TupleTableSlot) {
        if self.kept >= ROWS || self.rows.len() >= BYTES {
            self.is_cut = true;
            return;
        }
        if self.kept > 0 {
            self.rows.push(b',');
        }
        self.kept += 1;
        self.rows.push(b'[');
        // SAFETY: a filled slot with a value and a flag for each column.
        unsafe {
            let count = self.columns.len();
            if ((*slot).tts_nvalid as usize) < count {
                pg_sys::slot_getsomeattrs_int(slot, count as i32);
            }
            for (index, column) in self.columns.iter().enumerate() {
                if index > 0 {
                    self.rows.push(b',');
                }
                let is_full = self.rows.len() >= 2 * BYTES;
                self.is_cut |= is_full;
                if is_full || *(*slot).tts_isnull.add(index) {
                    self.rows.extend_from_slice(b"null");
                    continue;
                }
                let text =
                    pg_sys::OidOutputFunctionCall(column.output, *(*slot).tts_values.add(index));
                let bytes = CStr::from_ptr(text).to_bytes();
                self.is_cut |= column.form.write(&mut self.rows, bytes);
                pg_sys::pfree(text.cast());
            }
        }
        self.rows.push(b']');
    }
}

/// Adds a member of an object: an array of texts.
fn write_texts<'t>(json: &mut Vec<u8>, name: &str, texts: impl Iterator<Item = &'t Vec<u8>>) {
    json.extend_from_slice(format!(",\"{name}\":[").as_bytes());
    for (index, text) in texts.enumerate() {
        if index > 0 {
            json.push(b',');
        }
        quote(json, text);
    }
    json.push(b']');
}

impl JsonForm {
    fn of(type_of_value: pg_sys::Oid) -> Self {
        match type_of_value {
            pg_sys::BOOLOID => Self::Boolean,
            pg_sys::INT2OID
            | pg_sys::INT4OID
            | pg_sys::INT8OID
            | pg_sys::FLOAT4OID
            | pg_sys::FLOAT8OID
            | pg_sys::NUMERICOID => Self::Number,
            pg_sys::JSONBOID => Self::Json,
            _ => Self::Text,
        }
    }

    /// Writes a value, given as text; returns whether it was cut.
    fn write(self, json: &mut Vec<u8>, text: &[u8]) -> bool {
        if text.len() > VALUE_BYTES {
            quote(json, cut(text, VALUE_BYTES));
            return true;
        }
        self.write_whole(json, text);
        false
    }

    fn write_whole(self, json: &mut Vec<u8>, text: &[u8]) {
        let is_finite = text.last().is_some_and(u8::is_ascii_digit);
        match self {
            Self::Boolean => {
                json.extend_from_slice(if text == b"t" { b"true" } else { b"false" });
            }
            Self::Number if is_finite => json.extend_from_slice(text),
            Self::Json => json.extend_from_slice(text),
            Self::Number | Self::Text => quote(json, text),
        }
    }
}

/// Returns the start of a text in the encoding of the database, whole characters only.
pub(crate) fn cut(text: &[u8], bytes: usize) -> &[u8] {
    if text.len() <= bytes {
        return text;
    }
    // SAFETY: a text of this length in the encoding of the database.
    let length =
        unsafe { pg_sys::pg_mbcliplen(text.as_ptr().cast(), text.len() as i32, bytes as i32) };
    &text[..length as usize]
}

/// Adds a JSON string. The text is in the encoding of the database, in which the characters that
/// JSON escapes are single bytes.
pub(crate) fn quote(json: &mut Vec<u8>, text: &[u8]) {
    json.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' => json.extend_from_slice(&[b'\\', byte]),
            b'\n' => json.extend_from_slice(b"\\n"),
            b'\t' => json.extend_from_slice(b"\\t"),
            0..0x20 => json.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => json.push(byte),
        }
    }
    json.push(b'"');
}

/// Returns a jsonb value; `text` is JSON in the encoding of the database.
pub(crate) fn jsonb(mut text: Vec<u8>) -> pg_sys::Datum {
    text.push(0);
    // SAFETY: takes a C string and returns a value of the current memory context.
    unsafe {
        pgrx::fcinfo::direct_function_call_as_datum(
            pg_sys::jsonb_in,
            &[Some(pg_sys::Datum::from(text.as_ptr()))],
        )
        .expect("JSON that is not null")
    }
}

#[pg_guard]
unsafe extern "C-unwind" fn start(
    collector: *mut pg_sys::DestReceiver,
    _operation: i32,
    shape: pg_sys::TupleDesc,
) {
    // SAFETY: the server passes what `receiver` returned.
    unsafe { (*collector.cast::<Collector>()).begin(shape) }
}

#[pg_guard]
unsafe extern "C-unwind" fn receive(
    slot: *mut pg_sys::TupleTableSlot,
    collector: *mut pg_sys::DestReceiver,
) -> bool {
    // SAFETY: the server passes what `receiver` returned.
    unsafe { (*collector.cast::<Collector>()).add(slot) };
    true
}

unsafe extern "C-unwind" fn ignore(_collector: *mut pg_sys::DestReceiver) {}

#[cfg(test)]
mod tests {
    use super::{JsonForm, quote};

    #[test]
    fn a_number_that_json_does_not_have_is_a_text() {
        let written = |text: &[u8]| {
            let mut json = Vec::new();
            JsonForm::Number.write_whole(&mut json, text);
            String::from_utf8(json).expect("it is text")
        };
        assert_eq!(written(b"-1.5e+20"), "-1.5e+20");
        assert_eq!(written(b"NaN"), "\"NaN\"");
        assert_eq!(written(b"-Infinity"), "\"-Infinity\"");
    }

    #[test]
    fn a_text_is_escaped() {
        let mut json = Vec::new();
        quote(&mut json, "a\"\\\n\u{1}é".as_bytes());
        assert_eq!(
            String::from_utf8(json).expect("text"),
            "\"a\\\"\\\\\\n\\u0001é\""
        );
    }
}
