//! The steps of a job on a time line: each with the time that it took, waited, or that the job it
//! spawned lived, and its result beside it.

use maud::{Markup, html};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::Page;
use crate::layout::{state, table, verbatim};
use crate::moment::{Moment, length};
use crate::numbers::grouped;
use crate::trouble::Trouble;

const STEPS: &str = include_str!("../query/job_steps.sql");

/// The number of steps on a page.
const MOST: usize = 200;
/// The maximum number of characters of a result.
const RESULT: i32 = 2_000;
/// The maximum number of characters of a result that is shown in the line of its step.
const SHORT: usize = 100;

/// The steps on a page.
pub(super) struct Steps {
    shown: Vec<Step>,
    /// The number of steps of the job.
    total: i64,
    /// Whether jobs undo some of them if the job fails.
    pub(super) has_undo: bool,
}

/// A step, or a wait that has not ended.
struct Step {
    place: i64,
    name: String,
    kind: String,
    attempt: i32,
    /// When it began, at the earliest; unknown for the first steps of some attempts.
    since: Option<Moment>,
    until: Option<Moment>,
    recorded_at: Option<Moment>,
    timed_out: bool,
    /// The name of a signal, or the mode of a wait for children.
    waited_for: Option<String>,
    undo: Option<String>,
    has_result: bool,
    result: Option<String>,
    child: Option<Child>,
}

/// The job that a step has spawned.
struct Child {
    job_id: i64,
    /// Unknown when its history was removed.
    state: Option<String>,
    ended: Option<Moment>,
}

impl Steps {
    pub(super) async fn read(page: &Page<'_>, id: i64) -> Result<Self, Trouble> {
        let before = page.visit.query.number("before")?;
        let limit = i64::try_from(MOST).unwrap_or(i64::MAX);
        let arguments: [crate::work::Argument<'_>; 4] = [
            (&id, Type::INT8),
            (&before, Type::INT8),
            (&limit, Type::INT8),
            (&RESULT, Type::INT4),
        ];
        let rows = page.work.rows(STEPS, &arguments).await?;
        let (mut total, mut has_undo) = (0, false);
        if let Some(row) = rows.first() {
            total = row.try_get("total")?;
            has_undo = row.try_get("has_undo")?;
        }
        let shown = rows.iter().map(Step::read).collect::<Result<_, _>>()?;
        Ok(Steps {
            shown,
            total,
            has_undo,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Returns the table; `fork` makes the link to a fork from a step, if the user may fork the
    /// job.
    pub(super) fn show(
        &self,
        page: &Page<'_>,
        id: i64,
        fork: Option<&dyn Fn(&str) -> String>,
    ) -> Markup {
        if self.is_empty() {
            return html! {};
        }
        let now = page.reader.now;
        let scale = self.scale(now);
        let mut head = vec![
            "step",
            "what",
            "time line",
            "took",
            "recorded",
            "attempt",
            "result",
        ];
        head.extend(fork.map(|_| "again"));
        let rows: Vec<Vec<Markup>> = self
            .shown
            .iter()
            .map(|step| {
                let mut cells = step.cells(page, &scale);
                cells.extend(fork.map(|fork| {
                    html! { a .whole href=(fork(&step.name)) { "Fork from here" } }
                }));
                cells
            })
            .collect();
        let path = format!("jobs/{id}");
        let first = self.shown.first().map_or(1, |step| step.place);
        let last = self.shown.last().map_or(0, |step| step.place);
        html! {
            h2 { "Steps" }
            @if self.total > last - first + 1 {
                p .hint {
                    (grouped(first)) " to " (grouped(last)) " of " (grouped(self.total)) "."
                    @if first > 1 {
                        " " a rel="prev" href=(page.visit.link_with(&path, &[("before", &first.to_string())])) { "Earlier steps" }
                    }
                    @if last < self.total { " " a href=(page.visit.link(&path)) { "The last steps" } }
                }
            }
            @if let (Some(from), Some(to)) = (scale.first, scale.last) {
                p .hint { "The time line is " (length(scale.length)) " long: from " (from.full(now)) " to " (to.full(now)) "." }
            }
            (table("Steps", &head, &rows, ""))
        }
    }

    /// Returns the scale on which all steps of the page lie.
    fn scale(&self, now: Moment) -> Scale {
        let begins = self.shown.iter().filter_map(Step::begin);
        let ends = self.shown.iter().map(|step| step.end(now));
        let (first, last) = (begins.min(), ends.max());
        let length = match (first, last) {
            (Some(first), Some(last)) => last.seconds_since(first).unwrap_or(0.0),
            _ => 0.0,
        };
        Scale {
            first,
            last,
            length,
        }
    }
}

/// The time that the lines of a page show.
struct Scale {
    first: Option<Moment>,
    last: Option<Moment>,
    /// In seconds.
    length: f64,
}

impl Scale {
    /// Returns the beginning and the width of a bar, of 1000 in all. A short one is still seen.
    fn bar(&self, from: Moment, to: Moment) -> (f64, f64) {
        let least = 8.0;
        let at = |time: Moment| {
            let seconds = self.first.and_then(|first| time.seconds_since(first));
            let share = seconds.unwrap_or(0.0) / self.length.max(0.001);
            share.clamp(0.0, 1.0) * (1000.0 - least)
        };
        (at(from), (at(to) - at(from)).max(least))
    }
}

impl Step {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let child: Option<i64> = row.try_get("child")?;
        Ok(Step {
            place: row.try_get("place")?,
            name: row.try_get("step")?,
            kind: row.try_get("kind")?,
            attempt: row.try_get("attempt")?,
            since: row.try_get("since")?,
            until: row.try_get("until")?,
            recorded_at: row.try_get("recorded_at")?,
            timed_out: row.try_get("timed_out")?,
            waited_for: row.try_get("waited_for")?,
            undo: row.try_get("undo")?,
            has_result: row.try_get("has_result")?,
            result: row.try_get("result")?,
            child: match child {
                None => None,
                Some(job_id) => Some(Child {
                    job_id,
                    state: row.try_get("child_state")?,
                    ended: row.try_get("child_ended")?,
                }),
            },
        })
    }

    /// Returns when its bar begins: a child's when it was spawned.
    fn begin(&self) -> Option<Moment> {
        match self.child {
            Some(_) => self.recorded_at,
            None => self.since.or(self.recorded_at),
        }
    }

    /// Returns when its bar ends: a child's with the child.
    fn end(&self, now: Moment) -> Moment {
        match &self.child {
            Some(child) if child.lives() => now,
            Some(child) => child.ended.or(self.recorded_at).unwrap_or(now),
            None => self.recorded_at.unwrap_or(now),
        }
    }

    /// Returns the class of its bar.
    fn class(&self) -> &str {
        match (&self.child, self.recorded_at) {
            (Some(child), _) => child.state.as_deref().unwrap_or("waited"),
            (None, None) => "open",
            (None, Some(_)) if self.timed_out => "retried",
            (None, Some(_)) if self.kind == "step" => "completed",
            (None, Some(_)) => "waited",
        }
    }

    fn cells(&self, page: &Page<'_>, scale: &Scale) -> Vec<Markup> {
        let now = page.reader.now;
        vec![
            html! { span .name { (self.name) } },
            self.what(page),
            self.line(scale, now),
            self.took(now),
            html! { @if let Some(at) = self.recorded_at { (at.shown(now)) } @else { "not yet" } },
            html! { (self.attempt) },
            self.result(),
        ]
    }

    fn what(&self, page: &Page<'_>) -> Markup {
        let waited_for = self.waited_for.as_deref().unwrap_or_default();
        html! {
            @match (self.kind.as_str(), &self.child) {
                (_, Some(child)) => {
                    "spawned " a href=(page.visit.link(&format!("jobs/{}", child.job_id))) { "job " (child.job_id) }
                    @if let Some(is) = &child.state { ", " (state(is)) } @else { ", no longer kept" }
                }
                ("sleep", _) => (if self.recorded_at.is_some() { "slept" } else { "sleeps" }),
                ("signal", _) => { "signal " b { (waited_for) } }
                ("jobs", _) => { @if waited_for == "any" { "the first of its children" } @else { "its children" } }
                (kind, _) => (kind),
            }
            @if let Some(undo) = &self.undo { ", undone by task " (undo) }
        }
    }

    /// Returns the bar. What it shows is said beside it.
    fn line(&self, scale: &Scale, now: Moment) -> Markup {
        let Some(from) = self.begin() else {
            return html! {};
        };
        let (x, width) = scale.bar(from, self.end(now));
        html! {
            svg .span viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true" {
                rect .(self.class()) x=(format!("{x:.1}")) y="1" height="8" width=(format!("{width:.1}")) {}
            }
        }
    }

    fn took(&self, now: Moment) -> Markup {
        let since = match self.child {
            Some(_) => self.recorded_at,
            None => self.since,
        };
        let seconds = since.and_then(|since| self.end(now).seconds_since(since));
        let is_over = match &self.child {
            Some(child) => !child.lives(),
            None => self.recorded_at.is_some(),
        };
        html! {
            @if let Some(seconds) = seconds.filter(|seconds| *seconds >= 0.0) {
                // Its beginning is not recorded, but only what came before it.
                @if is_over && self.kind == "step" { "at most " }
                (length(seconds))
                @if !is_over { " so far" }
            }
            @if let (false, Some(until)) = (is_over, self.until) { ", until " (until.shown(now)) }
        }
    }

    fn result(&self) -> Markup {
        html! {
            @match &self.result {
                _ if self.timed_out => "timed out",
                Some(text) if text.chars().count() <= SHORT && !text.contains('\n') => code { (text) },
                Some(text) => {
                    details { summary { "show" } (verbatim(text)) }
                }
                None if self.has_result => "too long to be shown here",
                None => {}
            }
        }
    }
}

impl Child {
    fn lives(&self) -> bool {
        matches!(self.state.as_deref(), Some("queued" | "in_progress"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_lie_within_the_scale_and_short_ones_are_seen() {
        let at = |text| Moment::of(text).expect("a time");
        let (first, last) = (at("2030-01-01T00:00:00Z"), at("2030-01-01T00:01:40Z"));
        let scale = Scale {
            first: Some(first),
            last: Some(last),
            length: 100.0,
        };
        assert_eq!(scale.bar(first, last), (0.0, 992.0));
        assert_eq!(scale.bar(first, first), (0.0, 8.0));
        assert_eq!(scale.bar(last, last), (992.0, 8.0));
        assert_eq!(scale.bar(at("2030-01-01T00:00:50Z"), last), (496.0, 496.0));
    }
}
