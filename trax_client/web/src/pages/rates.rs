//! The numbers of attempts and their durations in the last hour to week, from history.

use maud::{Markup, html};

use super::chart::{Line, bars, lines};
use crate::glance::{Answer, Question};
use crate::moment::{Moment, length};
use crate::trouble::Trouble;
use crate::visit::Visit;

const RATES: &str = include_str!("../query/rates.sql");

/// The windows: the name in the URL, in words, and the question. At most twice 300 blocks of
/// history are read: about 40,000 attempts. The result is accurate to about five percent.
const WINDOWS: [(&str, &str, Question); 4] = [
    ("1h", "hour", question(&[300, 3_600])),
    ("6h", "6 hours", question(&[300, 21_600])),
    ("1d", "day", question(&[300, 86_400])),
    ("7d", "7 days", question(&[300, 604_800])),
];

const fn question(numbers: &'static [i64]) -> Question {
    Question {
        sql: RATES,
        numbers,
    }
}

/// The number of equal parts of a window.
const PARTS: usize = 60;

/// Returns the question about the window that the visit names.
pub(super) fn asked(visit: &Visit) -> Result<Question, Trouble> {
    let name = visit.query.get("charts").unwrap_or(WINDOWS[0].0);
    let found = WINDOWS.iter().find(|(known, ..)| *known == name);
    found.map(|(.., question)| *question).ok_or_else(|| {
        let known: Vec<&str> = WINDOWS.iter().map(|(name, ..)| *name).collect();
        Trouble::invalid(format!("charts is one of: {}", known.join(", ")))
    })
}

/// The numbers of attempts in each part of a window, oldest first.
#[derive(Default)]
pub(super) struct Rates {
    counts: [Vec<f64>; NAMES.len()],
    /// The durations of completed attempts in each part, and last in the whole window; none for
    /// several databases, whose durations cannot be combined.
    durations: Option<[Vec<Option<f64>>; QUANTILES.len()]>,
    /// The begin and the end of the window.
    window: Option<(Moment, Moment)>,
    is_estimated: bool,
}

const NAMES: [&str; 4] = ["claimed", "completed", "failed", "retried"];
/// The columns of the durations.
const QUANTILES: [&str; 3] = ["p50", "p95", "p99"];

impl Rates {
    /// Reads the answer to a question of [`asked`].
    pub(super) fn of(answer: &Answer) -> Result<Self, Trouble> {
        let mut rates = Rates::default();
        let durations = rates.durations.get_or_insert_default();
        for (place, row) in answer.rows.iter().enumerate() {
            rates.is_estimated |= row.try_get::<_, bool>("estimated")?;
            rates.window = Some((row.try_get("since")?, row.try_get("now")?));
            for (name, all) in QUANTILES.iter().zip(durations.iter_mut()) {
                all.push(row.try_get(*name)?);
            }
            // The last row is the whole window.
            for (name, counts) in NAMES.iter().zip(&mut rates.counts) {
                if place < PARTS {
                    counts.push(row.try_get(*name)?);
                }
            }
        }
        Ok(rates)
    }

    /// Returns the durations in the whole window: p50, p95 and p99.
    pub(super) fn in_all(&self) -> [Markup; QUANTILES.len()] {
        let whole = |all: &Vec<Option<f64>>| all.get(PARTS).copied().flatten();
        let whole = self.durations.as_ref().map(|all| all.each_ref().map(whole));
        whole.unwrap_or_default().map(|seconds| {
            html! { (seconds.map_or("none".to_owned(), length)) }
        })
    }

    /// Adds the rates of another database.
    pub(super) fn add(&mut self, other: &Rates) {
        self.is_estimated |= other.is_estimated;
        self.window = self.window.or(other.window);
        for (counts, more) in self.counts.iter_mut().zip(&other.counts) {
            counts.resize(counts.len().max(more.len()), 0.0);
            for (count, more) in counts.iter_mut().zip(more) {
                *count += more;
            }
        }
    }
}

/// Returns a small chart for each rate, and one of the durations.
pub(super) fn show(visit: &Visit, rates: &Rates) -> Markup {
    let Some((since, now)) = rates.window else {
        return html! {};
    };
    let name = visit.query.get("charts").unwrap_or(WINDOWS[0].0);
    let words = WINDOWS.iter().find(|(known, ..)| *known == name);
    let words = words.map_or("hour", |(_, words, _)| words);
    let ended = |state: &str| {
        let (from, to) = (since.exact(), now.exact());
        let filters = [
            ("state", state),
            ("from", from.as_str()),
            ("to", to.as_str()),
        ];
        visit.link_with("jobs", &filters)
    };
    let [claimed, completed, failed, retried] = &rates.counts;
    let chart = |name: &str, link: Option<String>, counts: &[f64]| {
        rate_chart(name, link, counts, words, (since, now))
    };
    html! {
        h2 { "The last " (words) @if rates.is_estimated { ", about: a part of its history was read" } }
        p .filters {
            @for (known, words, _) in WINDOWS {
                a href=(visit.link_with("", &[("charts", known)]))
                    aria-current=[(known == name).then_some("true")] { (words) }
            }
        }
        section .charts aria-label={ "The last " (words) } {
            (chart("claimed", None, claimed))
            (chart("completed", Some(ended("completed")), completed))
            (chart("failed", Some(ended("failed")), failed))
            (chart("retried", None, retried))
            @match &rates.durations {
                Some(durations) => (duration_chart(durations, words, (since, now))),
                // Those of several databases cannot be combined.
                None => {}
            }
        }
    }
}

fn rate_chart(
    name: &str,
    link: Option<String>,
    counts: &[f64],
    words: &str,
    (since, now): (Moment, Moment),
) -> Markup {
    let all: f64 = counts.iter().sum();
    let seconds = now.seconds_since(since).unwrap_or(0.0).max(1.0);
    let step = seconds / 60.0;
    let mean = rate(all / seconds);
    let values: Vec<String> = counts
        .iter()
        .map(|n| format!("{} {name}, {} a second", count(*n), rate(*n / step)))
        .collect();
    let rates: Vec<f64> = counts.iter().map(|n| n / step).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    let label = format!(
        "{} {name} within the {words}: {mean} a second, at most {}",
        count(all),
        rate(most)
    );
    html! {
        figure .chart {
            figcaption {
                @if let Some(link) = link { a href=(link) { (name) } } @else { (name) }
                " " b { (mean) } " a second, " (count(all)) " in all"
            }
            (bars(name, &label, &rates, &values, since, step, |n| format!("{n}/s")))
            p .axis { span { (since.shown(now)) } span { "at most " (rate(most)) } span { "now" } }
        }
    }
}

fn duration_chart(
    durations: &[Vec<Option<f64>>; QUANTILES.len()],
    words: &str,
    (since, now): (Moment, Moment),
) -> Markup {
    let step = now.seconds_since(since).unwrap_or(0.0).max(1.0) / 60.0;
    let shown = |seconds: Option<f64>| seconds.map_or("none".to_owned(), length);
    let whole: Vec<String> = QUANTILES
        .iter()
        .zip(durations)
        .map(|(name, all)| format!("{name} {}", shown(all.get(PARTS).copied().flatten())))
        .collect();
    let values: Vec<String> = (0..PARTS)
        .map(|place| {
            let at = |all: &Vec<Option<f64>>| shown(all.get(place).copied().flatten());
            let names = QUANTILES.iter().zip(durations);
            let parts: Vec<String> = names
                .map(|(name, all)| format!("{name} {}", at(all)))
                .collect();
            parts.join(", ")
        })
        .collect();
    let drawn: Vec<Line<'_>> = QUANTILES
        .iter()
        .zip(durations)
        .map(|(name, all)| Line {
            class: name,
            points: &all[..all.len().min(PARTS)],
        })
        .collect();
    let label = format!(
        "Durations of completed attempts within the {words}: {}",
        whole.join(", ")
    );
    html! {
        figure .chart {
            figcaption {
                "duration "
                @for (name, text) in QUANTILES.iter().zip(&whole) { b .(name) { (text) } " " }
            }
            (lines(&label, &drawn, &values, since, step, |n| format!("{n} s")))
            p .axis { span { (since.shown(now)) } span { "of completed attempts" } span { "now" } }
        }
    }
}

/// Returns a rate per second: "12", "0.5", "0.02".
fn rate(second: f64) -> String {
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
        for (second, text) in [
            (0.0, "0"),
            (0.001, "below 0.01"),
            (0.016, "0.02"),
            (1.0, "1.0"),
            (1_500.0, "1,500"),
        ] {
            assert_eq!(rate(second), text);
        }
    }
}
