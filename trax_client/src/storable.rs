//! Finds what PostgreSQL cannot store as JSON: numbers that are not finite, for which the
//! serializer would write `null`, and the character NUL.

use std::fmt;

use serde::ser::{
    Error as _, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// Refuses a value with a NUL or a number that is not finite. `text` is the value as JSON: without
/// a `null` in it there is no such number.
pub(crate) fn check<T: Serialize + ?Sized>(value: &T, text: &[u8]) -> serde_json::Result<()> {
    if let Some(at) = nul(text) {
        let before = String::from_utf8_lossy(&text[at.saturating_sub(SHOWN)..at]);
        return Err(serde_json::Error::custom(format!(
            "the character NUL after `{before}` cannot be stored by PostgreSQL; leave it out"
        )));
    }
    if !text.windows(4).any(|part| part == b"null") {
        return Ok(());
    }
    value.serialize(Finite).map_err(serde_json::Error::custom)
}

/// The most bytes before a NUL that its error shows.
const SHOWN: usize = 30;

/// Returns where the escape of a NUL begins.
fn nul(text: &[u8]) -> Option<usize> {
    // Most texts have no escape at all; this search is much faster than the next.
    if !text.contains(&b'\\') {
        return None;
    }
    let escape = br"\u0000";
    let is_escaped = |at: usize| {
        let slashes = text[..at].iter().rev().take_while(|byte| **byte == b'\\');
        slashes.count() % 2 == 1
    };
    let mut found = text.windows(escape.len()).enumerate();
    found
        .find(|&(at, part)| part == escape && !is_escaped(at))
        .map(|(at, _)| at)
}

/// A number that is not finite, or the error of the value itself.
#[derive(Debug)]
struct Refusal(String);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refusal {}

impl serde::ser::Error for Refusal {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Refusal(message.to_string())
    }
}

/// A serializer that writes nothing.
#[derive(Clone, Copy)]
struct Finite;

type Checked = Result<(), Refusal>;

macro_rules! skipped {
    ($($method:ident($($type:ty),*);)*) => {
        $(fn $method(self, $(_: $type),*) -> Checked { Ok(()) })*
    };
}

impl Serializer for Finite {
    type Ok = ();
    type Error = Refusal;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    skipped! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_i128(i128);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_u128(u128);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    fn serialize_f32(self, number: f32) -> Checked {
        self.serialize_f64(number.into())
    }

    fn serialize_f64(self, number: f64) -> Checked {
        match number.is_finite() {
            true => Ok(()),
            false => Err(Refusal(format!(
                "the number {number} cannot be JSON; leave it out, or write it as a text"
            ))),
        }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Checked {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Checked {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Checked {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Refusal> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, Refusal> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, Refusal> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Refusal> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Refusal> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Refusal> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Refusal> {
        Ok(self)
    }
}

macro_rules! parts {
    ($($part:ident::$method:ident($($name:ty)?);)*) => {$(
        impl $part for Finite {
            type Ok = ();
            type Error = Refusal;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $name,)? value: &T) -> Checked {
                value.serialize(*self)
            }

            fn end(self) -> Checked {
                Ok(())
            }
        }
    )*};
}

parts! {
    SerializeSeq::serialize_element();
    SerializeTuple::serialize_element();
    SerializeTupleStruct::serialize_field();
    SerializeTupleVariant::serialize_field();
    SerializeStruct::serialize_field(&'static str);
    SerializeStructVariant::serialize_field(&'static str);
}

impl SerializeMap for Finite {
    type Ok = ();
    type Error = Refusal;

    /// A number that is a key becomes a text, or is refused by the serializer.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Checked {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Checked {
        value.serialize(*self)
    }

    fn end(self) -> Checked {
        Ok(())
    }
}
