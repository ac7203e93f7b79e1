//! Objects of a JSON document: members by name, each of its type.

use crate::error::{Error, Result};
use crate::server::call;
use crate::server::call::checked_name;
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::{Spi, arg, statement};
use pgrx::datum::Interval;
use pgrx::{JsonB, pg_sys};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

statement!(TextInterval, "document/interval.sql", { text: TEXTOID } -> Interval);
statement!(TextTime, "document/time.sql", { text: TEXTOID } -> Timestamp);

const INTERVAL: &str = "an interval such as \"5 min\", or a number of seconds";

/// A JSON object of the document with known member names; a null member counts as omitted.
pub(crate) struct Object<'a>(&'a Map<String, Value>);

impl<'a> Object<'a> {
    pub(crate) fn new(value: &'a Value, what: &str, keys: &[&str]) -> Result<Self> {
        let Value::Object(map) = value else {
            return Err(Error::invalid(format!("{what} must be a JSON object"))
                .detail(format!("It is {value}."))
                .hint(format!("Its members are: {}.", keys.join(", "))));
        };
        match map.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(key) => Err(
                Error::invalid(format!("{what} has an unknown member \"{key}\""))
                    .detail(format!("The object is {value}."))
                    .hint(match nearest(key, keys.iter().copied()) {
                        Some(near) => {
                            format!("Write \"{near}\". The members are: {}.", keys.join(", "))
                        }
                        None => format!("The members are: {}.", keys.join(", ")),
                    }),
            ),
            None => Ok(Self(map)),
        }
    }

    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(crate) fn list(&self, key: &str) -> Result<&'a [Value]> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) => Ok(list),
            Some(other) => Err(wrong_type(key, other, "a list")),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<String>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(wrong_type(key, other, "a text")),
        }
    }

    pub(crate) fn name(&self, key: &str) -> Result<Option<String>> {
        self.text(key)?
            .map(|text| checked_name(text, key))
            .transpose()
    }

    /// Returns the name of a task, manifest or group.
    pub(crate) fn new_name(&self, key: &str) -> Result<Option<String>> {
        self.name(key)?
            .map(|text| call::new_name(text, key))
            .transpose()
    }

    pub(crate) fn names(&self, key: &str) -> Result<Option<Vec<String>>> {
        if self.get(key).is_none() {
            return Ok(None);
        }
        let names = self.list(key)?.iter().map(|value| match value {
            Value::String(text) => checked_name(text.clone(), key),
            other => Err(wrong_type(key, other, "a list of texts")),
        });
        names.collect::<Result<Vec<String>>>().map(Some)
    }

    pub(crate) fn boolean(&self, key: &str) -> Result<Option<bool>> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(wrong_type(key, other, "true or false")),
        }
    }

    pub(crate) fn within(&self, key: &str, low: i32, high: i32) -> Result<Option<i32>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
        match number.filter(|number| (low..=high).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(wrong_type(
                key,
                value,
                &format!("a whole number from {low} to {high}"),
            )),
        }
    }

    pub(super) fn number(&self, key: &str, range: &RangeInclusive<f64>) -> Result<Option<f64>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let number = value.as_f64().filter(|number| range.contains(number));
        let wanted = || format!("a number from {} to {}", range.start(), range.end());
        number
            .map(Some)
            .ok_or_else(|| wrong_type(key, value, &wanted()))
    }

    /// Returns the id of a job.
    pub(crate) fn id(&self, key: &str) -> Result<Option<i64>> {
        match self.get(key) {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(id) => Ok(Some(id)),
                None => Err(wrong_type(key, value, "the id of a job")),
            },
        }
    }

    pub(crate) fn json(&self, key: &str) -> Option<pg_sys::Datum> {
        self.get(key).and_then(|value| arg(JsonB(value.clone())))
    }

    /// Returns an interval: a text as PostgreSQL reads it, or a number of seconds.
    pub(crate) fn interval(
        &self,
        spi: &Spi,
        key: &str,
        shortest: i64,
    ) -> Result<Option<pg_sys::Datum>> {
        let interval = self.interval_and_micros(spi, key, shortest)?;
        Ok(interval.map(|(datum, _)| datum))
    }

    /// Returns an interval, also in microseconds.
    pub(crate) fn interval_and_micros(
        &self,
        spi: &Spi,
        key: &str,
        shortest: i64,
    ) -> Result<Option<(pg_sys::Datum, i64)>> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let refused = |words: &str| wrong_type(key, value, words);
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(seconds) => format!("{seconds} s"),
            _ => return Err(refused(INTERVAL)),
        };
        let (datum, micros) = spi::isolated(|| {
            let interval = spi
                .query(TextInterval {
                    text: arg(text.as_str()),
                })
                .one();
            let micros = crate::server::clock::interval_micros(&interval);
            Ok((arg(interval), micros))
        })
        .map_err(|_| refused(INTERVAL))?;
        if !(shortest..=crate::server::call::LONGEST_MICROS).contains(&micros) {
            return Err(refused("a positive interval, at most 10 years"));
        }
        Ok(datum.map(|datum| (datum, micros)))
    }

    /// Returns a time: one without a zone is in `zone`, as the times of the schedule are.
    pub(crate) fn time(&self, spi: &Spi, key: &str, zone: &str) -> Result<Option<Timestamp>> {
        let Some(text) = self.text(key)? else {
            return Ok(None);
        };
        let read = |text: &str| spi::isolated(|| Ok(spi.query(TextTime { text: arg(text) }).one()));
        // The server refuses a second zone.
        read(&format!("{text} {zone}"))
            .or_else(|_| read(&text))
            .map(Some)
            .map_err(|_| {
                wrong_type(
                    key,
                    &Value::String(text),
                    "a time such as \"2026-12-24 18:00 UTC\"",
                )
            })
    }
}

/// Returns the name that differs least from one that is not among them, if one differs little, or
/// the only one that goes on after it, as `group_name` after `group`.
pub(crate) fn nearest<'name>(
    wanted: &str,
    names: impl Iterator<Item = &'name str> + Clone,
) -> Option<&'name str> {
    let goes_on = |name: &&str| {
        let rest = name.strip_prefix(wanted);
        rest.is_some_and(|rest| rest.starts_with(['_', '-', '.']))
    };
    let mut longer = names.clone().filter(goes_on);
    let longer = longer.next().filter(|_| longer.next().is_none());
    let wanted: Vec<char> = wanted.chars().collect();
    let most = 1 + wanted.len() / 4;
    names
        .filter(|name| name.len().abs_diff(wanted.len()) <= 4 * most)
        .map(|name| (difference(&wanted, name), name))
        .filter(|&(difference, _)| difference <= most)
        .min()
        .map(|(_, name)| name)
        .or(longer)
}

/// Returns how many characters must be added, left out, replaced or swapped with the next.
fn difference(one: &[char], other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for i in 1..=one.len() {
        let mut next = vec![i; other.len() + 1];
        for j in 1..=other.len() {
            let replaced = row[j - 1] + usize::from(one[i - 1] != other[j - 1]);
            next[j] = replaced.min(row[j] + 1).min(next[j - 1] + 1);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                next[j] = next[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

fn wrong_type(key: &str, value: &Value, wanted: &str) -> Error {
    Error::invalid(format!("member \"{key}\" must be {wanted}"))
        .detail(format!("It is {value}."))
        .hint(format!("Specify {wanted}, or leave out {key}."))
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_name_is_found_that_differs_little() {
        let names = ["load", "loads", "transform", "group_name", "max_a", "max_b"];
        let near = |wanted| nearest(wanted, names.into_iter());
        assert_eq!(near("laod"), Some("load"));
        assert_eq!(near("tranform"), Some("transform"));
        assert_eq!(near("group"), Some("group_name"));
        assert_eq!(near("extract"), None);
        assert_eq!(near("max"), None);
    }
}
