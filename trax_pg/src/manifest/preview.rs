//! The next runs of a manifest, or of an expression that is not stored, for people.

use super::definition::{Definition, find};
use crate::error::{Error, Result};
use crate::server::call::{Call, Rows, sql_function};
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::arg;
use crate::timing::{Kind, Occurrence, Plan, Timing};
use trax_schedule::Zone;

const RUNS_AT_MOST: i32 = 1000;

sql_function!(trax_preview, pg_finfo_trax_preview, |call| {
    let (name, after, count) = arguments(call)?;
    let mut rows = call.rows();
    spi::connected(|spi| {
        let definition = find(spi, &name).ok_or_else(|| Error::unknown_manifest(&name))?;
        let plan = definition.timing.plan()?;
        for run in runs(&definition, &plan, after, count) {
            push(&mut rows, &plan, &run);
        }
        Ok(())
    })?;
    Ok(rows.end())
});

sql_function!(trax_preview_cron, pg_finfo_trax_preview_cron, |call| {
    let cron = call.text(0, "expression")?;
    let timezone = call
        .optional_text(1, "timezone")?
        .unwrap_or_else(|| "UTC".to_string());
    let (after, count) = window(call, 2)?;
    let plan = Timing::cron(cron, timezone).plan()?;
    let mut rows = call.rows();
    for run in std::iter::successors(plan.after(after), |last| plan.after(last.at)).take(count) {
        push(&mut rows, &plan, &run);
    }
    Ok(rows.end())
});

fn arguments(call: &Call) -> Result<(String, Timestamp, usize)> {
    let name = call.name(0, "name")?;
    let (after, count) = window(call, 1)?;
    Ok((name, after, count))
}

/// Returns two arguments: the start, and the number of runs.
fn window(call: &Call, index: usize) -> Result<(Timestamp, usize)> {
    let after = call
        .optional::<Timestamp>(index)
        .unwrap_or_else(Timestamp::now);
    if !after.is_finite() {
        return Err(Error::invalid("argument \"after\" must be a finite time")
            .detail("after is infinity or -infinity.")
            .hint("Specify a time, for example: after => now()"));
    }
    let count = call
        .optional_within(index + 1, "count", 1, RUNS_AT_MOST)?
        .unwrap_or(5);
    Ok((after, count as usize))
}

/// Returns the runs after a time. The first may be stored already, with its part of the variance.
fn runs(definition: &Definition, plan: &Plan, after: Timestamp, count: usize) -> Vec<Occurrence> {
    let mut runs = Vec::with_capacity(count);
    let stored = definition.next.filter(|&(at, _)| at > after);
    match plan.kind {
        Kind::Cron(_) => {
            let mut last = plan
                .starts_at()
                .map_or(after, |start| after.max(start.plus(-1)));
            // Its occurrence has come, but its delay has not ended.
            if let Some((at, occurrence)) = stored.filter(|&(_, occurrence)| occurrence <= last) {
                let mut run = Occurrence {
                    at: occurrence,
                    note: None,
                };
                vary(plan, &mut run, at);
                runs.push(run);
            }
            while runs.len() < count {
                let Some(mut next) = plan.after(last) else {
                    break;
                };
                last = next.at;
                match stored {
                    Some((at, occurrence)) if occurrence == last => vary(plan, &mut next, at),
                    _ if plan.has_variance() => add_note(&mut next, "plus a random delay"),
                    _ => {}
                }
                runs.push(next);
            }
        }
        Kind::Every(every) => {
            let mut next = match stored {
                Some((at, occurrence)) => {
                    let mut run = Occurrence {
                        at: occurrence,
                        note: None,
                    };
                    vary(plan, &mut run, at);
                    runs.push(run);
                    every.after(at)
                }
                None => definition
                    .last_success_at
                    .map_or(after, |last| every.after(last))
                    .max(plan.starts_at().map_or(after, |start| start.max(after))),
            };
            while runs.len() < count {
                let mut run = plan.put_off(next);
                if plan.is_over(run.at) {
                    break;
                }
                add_note(&mut run, "if the run before it takes no time");
                next = every.after(run.at);
                runs.push(run);
            }
        }
        Kind::At(at) if at > after && definition.enabled => {
            let mut run = plan.once(at);
            if let Some((at, _)) = stored.filter(|&(_, occurrence)| occurrence == run.at) {
                vary(plan, &mut run, at);
            }
            runs.push(run);
        }
        Kind::At(_) | Kind::Depends | Kind::Never => {}
    }
    runs.truncate(count);
    runs
}

/// Moves a run to its stored time: it was delayed by its variance, or put off by a failure or by
/// hand.
fn vary(plan: &Plan, run: &mut Occurrence, at: Timestamp) {
    let delay = at.0 - run.at.0;
    run.at = at;
    if delay > 0 {
        let why = if plan.varies_by(delay) {
            " by its variance"
        } else {
            " than scheduled"
        };
        add_note(run, &format!("{:.3} s later{why}", delay as f64 / 1e6));
    }
}

fn add_note(run: &mut Occurrence, text: &str) {
    run.note = Some(match run.note.take() {
        Some(note) => format!("{note}; {text}"),
        None => text.to_string(),
    });
}

fn push(rows: &mut Rows, plan: &Plan, run: &Occurrence) {
    let local = local_time(plan, run.at);
    rows.push(&[arg(run.at), arg(local), run.note.as_deref().and_then(arg)]);
}

/// Returns an instant in the manifest's zone, with its distance from UTC:
/// `2026-03-29 03:00:00 +02:00`.
fn local_time(plan: &Plan, at: Timestamp) -> String {
    let micros = at.unix_micros();
    let offset = plan.zone.offset_at(micros.div_euclid(1_000_000));
    let wall = chrono::DateTime::from_timestamp_micros(micros + i64::from(offset) * 1_000_000);
    let wall = wall.map_or("?".to_string(), |wall| {
        wall.format("%Y-%m-%d %H:%M:%S").to_string()
    });
    let sign = if offset < 0 { '-' } else { '+' };
    let minutes = offset.abs() / 60;
    format!("{wall} {sign}{:02}:{:02}", minutes / 60, minutes % 60)
}
