//! JSON kept as text: no number loses a digit, and the text is parsed only on demand.

use std::error::Error as StdError;
use std::fmt;
use std::str::FromStr;

use bytes::{BufMut, BytesMut};
use serde::de::DeserializeOwned;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::storable;

/// A JSON value as text: the input or output of a job.
///
/// As the input type of a handler it accepts every job unchanged. `serde_json::Value` and other
/// types can lose digits.
///
/// ```
/// use trax_client::Json;
///
/// let order: Json = r#"{"id": 12345678901234567890123}"#.parse()?;
/// assert_eq!(order.text(), r#"{"id": 12345678901234567890123}"#);
///
/// #[derive(serde::Deserialize)]
/// struct Order { id: u128 }
/// assert_eq!(order.read::<Order>()?.id, 12345678901234567890123);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct Json(Box<str>);

impl Json {
    /// Serializes a value.
    ///
    /// # Errors
    /// If the value cannot be represented as JSON, such as a number that is not finite.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Self> {
        let json = to_raw_value(value).map(Json::from)?;
        storable::check(value, json.text().as_bytes())?;
        Ok(json)
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Parses the text as `T`.
    ///
    /// # Errors
    /// If the text does not fit the type.
    pub fn read<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.text())
    }

    /// Returns whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.text() == "null"
    }
}

/// `null`.
impl Default for Json {
    fn default() -> Self {
        RawValue::NULL.to_owned().into()
    }
}

impl From<Box<RawValue>> for Json {
    fn from(value: Box<RawValue>) -> Self {
        Json(value.into())
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Json::from)
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: &RawValue = serde_json::from_str(&self.0).map_err(S::Error::custom)?;
        value.serialize(serializer)
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        // Not checked for NUL: the server refuses it, and this conversion cannot fail.
        let text = serde_json::value::to_raw_value(&value);
        text.expect("a value is JSON").into()
    }
}

impl FromStr for Json {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> serde_json::Result<Self> {
        RawValue::from_string(text.to_owned()).map(Json::from)
    }
}

/// Compares the texts.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Json {}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The version byte that precedes the text of a `jsonb` on the wire.
const VERSION: u8 = 1;

impl ToSql for Json {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        if *ty == Type::JSONB {
            out.put_u8(VERSION);
        }
        out.put_slice(self.text().as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::JSON | Type::JSONB)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Json {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        match raw.split_first() {
            // The server produced the text from parsed JSON, so it is not validated again.
            Some((&VERSION, text)) if *ty == Type::JSONB => {
                Ok(Json(std::str::from_utf8(text)?.into()))
            }
            _ if *ty == Type::JSONB => Err("jsonb of an unknown version".into()),
            _ => Ok(std::str::from_utf8(raw)?.parse::<Json>()?),
        }
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::JSON | Type::JSONB)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_digit_and_every_depth_stays_on_the_way_there_and_back() {
        let digits = "7".repeat(1000);
        let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
        for text in ["1e400", "12345678901234567890123", "1.10", &digits, &deep] {
            let json: Json = text.parse().expect("it is JSON");
            let mut wire = BytesMut::new();
            assert!(json.to_sql(&Type::JSONB, &mut wire).is_ok());
            let back = Json::from_sql(&Type::JSONB, &wire).expect("it was JSON");
            assert_eq!(back.text(), text);
            let within = Json::of(&vec![&json]).expect("it is JSON");
            assert_eq!(within.text(), format!("[{text}]"));
        }
        assert!("1 2".parse::<Json>().is_err() && "".parse::<Json>().is_err());
    }

    #[test]
    fn every_value_of_a_program_can_be_passed_on() {
        let value = serde_json::json!({"a": "b\0"});
        assert_eq!(Json::from(value.clone()).text(), r#"{"a":"b\u0000"}"#);
        assert!(Json::of(&value).is_err(), "PostgreSQL cannot store it");
    }

    #[test]
    fn nothing_is_null() {
        assert!(Json::default().is_null() && Json::from(Value::Null).is_null());
        assert!(!Json::from(Value::from(0)).is_null());
    }

    #[derive(Serialize)]
    enum Part {
        Nothing,
        One(f32),
        Two(Option<f64>, u8),
        Named { of: BTreeMap<u8, f64> },
    }

    #[derive(Serialize)]
    struct Whole(Vec<Part>, (Option<Json>, ()));

    #[test]
    fn a_number_that_is_not_finite_is_refused_wherever_it_is() {
        let named = |number| Part::Named {
            of: BTreeMap::from([(7, number)]),
        };
        let whole = |part| Json::of(&Whole(vec![Part::Nothing, part], (None, ())));
        for part in [
            Part::One(f32::NAN),
            Part::Two(Some(f64::INFINITY), 1),
            named(f64::NEG_INFINITY),
        ] {
            let refusal = whole(part).expect_err("it is refused").to_string();
            assert!(
                refusal.contains("leave it out, or write it as a text"),
                "{refusal}"
            );
        }
        let refusal = Json::of(&f64::NAN).expect_err("it is refused").to_string();
        assert!(
            refusal.starts_with("the number NaN cannot be JSON"),
            "{refusal}"
        );
        for (part, text) in [
            (Part::One(1.5), r#"[["Nothing",{"One":1.5}],[null,null]]"#),
            (
                Part::Two(None, 1),
                r#"[["Nothing",{"Two":[null,1]}],[null,null]]"#,
            ),
            (
                named(2.0),
                r#"[["Nothing",{"Named":{"of":{"7":2.0}}}],[null,null]]"#,
            ),
        ] {
            assert_eq!(whole(part).expect("it is JSON").text(), text);
        }
        let kept: Json = r#"{"a": null, "b": 1e400}"#.parse().expect("it is JSON");
        assert_eq!(Json::of(&kept).expect("it is JSON"), kept);
    }
}
