//! The rates of the last hour by minute, from history.

use maud::{Markup, html};

use crate::glance::{Answer, Question};
use crate::trouble::Trouble;
use crate::visit::Visit;

/// At most 300 blocks of a day's history are read: about 20,000 attempts, 350 per minute. The
/// result is accurate to about five percent, in a third of the time that 1,000 blocks take.
pub(super) const RATES: Question = Question {
    sql: include_str!("../query/rates.sql"),
    limit: Some(300),
};

/// The numbers of claimed, completed and failed attempts in each minute, oldest first.
#[derive(Default)]
pub(super) struct Rates {
    minutes: [Vec<f64>; 3],
    is_estimated: bool,
}

const NAMES: [&str; 3] = ["claimed", "completed", "failed"];

impl Rates {
    /// Reads the answer to [`RATES`].
    pub(super) fn of(answer: &Answer) -> Result<Self, Trouble> {
        let mut rates = Rates::default();
        for row in answer.rows.iter() {
            rates.is_estimated |= row.try_get::<_, bool>("estimated")?;
            for (name, minutes) in NAMES.iter().zip(&mut rates.minutes) {
                minutes.push(row.try_get(*name)?);
            }
        }
        Ok(rates)
    }

    /// Adds the rates of another database.
    pub(super) fn add(&mut self, other: &Rates) {
        self.is_estimated |= other.is_estimated;
        for (minutes, more) in self.minutes.iter_mut().zip(&other.minutes) {
            minutes.resize(minutes.len().max(more.len()), 0.0);
            for (minute, more) in minutes.iter_mut().zip(more) {
                *minute += more;
            }
        }
    }
}

/// Returns a small chart for each rate.
pub(super) fn show(visit: &Visit, rates: &Rates) -> Markup {
    let [claimed, completed, failed] = &rates.minutes;
    let jobs = |state: &str| visit.link_with("jobs", &[("state", state)]);
    html! {
        h2 { "The last hour" @if rates.is_estimated { ", about: a part of its history was read" } }
        section .charts aria-label="The last hour" {
            (chart("claimed", &jobs("in_progress"), claimed))
            (chart("completed", &jobs("completed"), completed))
            (chart("failed", &jobs("failed"), failed))
        }
    }
}

fn chart(name: &str, link: &str, minutes: &[f64]) -> Markup {
    let all: f64 = minutes.iter().sum();
    let most = minutes.iter().copied().fold(0.0, f64::max);
    let scale = 60.0 / most.max(f64::MIN_POSITIVE);
    let mean = rate(all / 60.0);
    let words = format!(
        "{} {name} within the hour: {mean} a second, at most {}",
        count(all),
        rate(most)
    );
    html! {
        figure .chart {
            figcaption { a href=(link) { (name) } " " b { (mean) } " a second, " (count(all)) " in all" }
            svg viewBox="0 0 360 64" role="img" aria-label=(words) preserveAspectRatio="none" {
                line .ground x1="0" x2="360" y1="63" y2="63" {}
                @for (i, minute) in minutes.iter().enumerate() {
                    @if *minute > 0.0 {
                        @let height = (minute * scale).max(1.5);
                        rect .(name) x=(i * 6) y=(format!("{:.1}", 63.0 - height)) width="5"
                            height=(format!("{height:.1}")) {
                            title { (60 - i) " min ago: " (rate(*minute)) " a second" }
                        }
                    }
                }
            }
            p .axis { span { "1 h ago" } span { "at most " (rate(most)) } span { "now" } }
        }
    }
}

/// Converts a count per minute to a rate per second: "12", "0.5", "0.02".
fn rate(minute: f64) -> String {
    let second = minute / 60.0;
    match second {
        0.0 => "0".to_owned(),
        s if s < 0.005 => "below 0.01".to_owned(),
        s if s < 0.1 => format!("{s:.2}"),
        s if s < 10.0 => format!("{s:.1}"),
        s => count(s),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "far below the largest")]
fn count(number: f64) -> String {
    crate::numbers::grouped(number.round() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_has_the_digits_that_mean_something() {
        for (minute, text) in [
            (0.0, "0"),
            (0.1, "below 0.01"),
            (1.0, "0.02"),
            (60.0, "1.0"),
            (90_000.0, "1,500"),
        ] {
            assert_eq!(rate(minute), text);
        }
    }
}
