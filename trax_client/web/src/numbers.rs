//! The numbers of a database, such as how many jobs are ready, and their message to viewers.

use tokio_postgres::Row;

use crate::glance::Question;
use crate::trouble::Trouble;

/// Counting stops at this number, which is then shown with a plus sign.
const COUNTED: i64 = 100_000;

/// The query for the numbers.
pub(crate) const LIVE: Question = Question {
    sql: include_str!("query/live.sql"),
    numbers: &[COUNTED + 1],
};

/// The names of the numbers, which are the names of the columns.
pub(crate) const NAMES: [&str; 8] = [
    "ready",
    "later",
    "blocked",
    "suspended",
    "running",
    "dead",
    "failed",
    "workers",
];

/// The counts, in the order of [`NAMES`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Numbers([i64; NAMES.len()]);

impl Numbers {
    /// Reads the answer to [`LIVE`].
    pub(crate) fn of(rows: &[Row]) -> Result<Self, Trouble> {
        let row = rows
            .first()
            .ok_or_else(|| Trouble::unknown("no row came back"))?;
        let mut numbers = Numbers::default();
        for (name, number) in NAMES.iter().zip(&mut numbers.0) {
            *number = row.try_get(*name)?;
        }
        Ok(numbers)
    }

    pub(crate) fn get(&self, name: &str) -> String {
        let place = NAMES.iter().position(|n| *n == name);
        place.map_or(String::new(), |place| text(self.0[place]))
    }

    /// Adds the numbers of another database. A sum with a count that stopped at the limit stays
    /// above the limit.
    pub(crate) fn add(&mut self, other: Numbers) {
        for (number, more) in self.0.iter_mut().zip(other.0) {
            *number += more;
        }
    }
}

/// The message to viewers.
pub(crate) struct News {
    pub(crate) numbers: Numbers,
    /// Shards whose numbers are missing from the sum.
    pub(crate) away: Vec<i32>,
}

impl News {
    /// Returns the message as JSON. Numbers consist of digits, commas and a plus sign.
    pub(crate) fn json(&self) -> String {
        let pair = |name: &&str| format!("\"{name}\":\"{}\"", self.numbers.get(name));
        let pairs: Vec<String> = NAMES.iter().map(pair).collect();
        format!("{{{},\"away\":{:?}}}", pairs.join(","), self.away)
    }
}

/// Adds up the numbers of the shards; `None` if no shard answered.
pub(crate) fn sum(asked: Vec<(i32, Result<Numbers, Trouble>)>) -> Option<News> {
    let (mut sum, mut away) = (None, Vec::new());
    for (shard, answer) in asked {
        match answer {
            Ok(numbers) => sum.get_or_insert_with(Numbers::default).add(numbers),
            Err(_) => away.push(shard),
        }
    }
    sum.map(|numbers| News { numbers, away })
}

/// Returns "1,234", or "100,000+" if counting stopped.
fn text(number: i64) -> String {
    if number > COUNTED {
        return format!("{}+", grouped(COUNTED));
    }
    grouped(number)
}

pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::from(if number < 0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_end_where_counting_ends() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(-1_234_567), "-1,234,567");
        assert_eq!(text(100_000), "100,000");
        assert_eq!(text(100_001), "100,000+");
    }

    #[test]
    fn a_sum_of_shards_names_those_that_are_not_in_it() {
        let of = |ready| {
            let mut numbers = Numbers::default();
            numbers.0[0] = ready;
            numbers
        };
        let gone = || Err(Trouble::unknown("gone"));
        let asked = vec![(1, Ok(of(60_000))), (2, gone()), (3, Ok(of(50_000)))];
        let json = sum(asked).expect("two answered").json();
        assert!(
            json.starts_with("{\"ready\":\"100,000+\",\"later\":\"0\""),
            "{json}"
        );
        assert!(json.ends_with("\"away\":[2]}"), "{json}");
        assert!(sum(vec![(1, gone())]).is_none());
    }
}
