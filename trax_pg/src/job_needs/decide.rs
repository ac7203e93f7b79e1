//! The decision of a cycle on the jobs whose wait for others is over.
//!
//! Taken events leave dead rows until a vacuum, all those of a long load while a snapshot is held.
//! After a read of all pages that was slow, and found events on the last ones only, a session reads
//! only these for a second, or longer if all pages take long. An event that a transaction added to
//! an earlier page and committed late is found by the next read of all pages.

use super::judge::{Judgement, Taken, Verdict, judge};
use super::{Event, forget, keep_events};
use crate::changes;
use crate::changes::Claimable;
use crate::server::clock::Timestamp;
use crate::server::spi::{Spi, arg, array_arg, row, statement};
use crate::server::table::{Table, ctid_of};
use pgrx::pg_sys;
use std::cell::Cell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most events that one cycle takes; the next cycle follows at once.
pub(crate) const EVENTS_AT_MOST: i64 = 10_000;
/// A read of all pages that takes longer is slow.
const SLOW: Duration = Duration::from_millis(10);
/// Shortest pause between two slow reads of all pages, and the inverse of the share of time that
/// they may take.
const FROM_BEGINNING: Duration = Duration::from_secs(1);
const FROM_BEGINNING_SHARE: u32 = 20;
/// How many pages count as the last ones: concurrent sessions add events to different pages.
const LAST_PAGES: u32 = 32;

thread_local! {
    /// The page at which this session begins to read events, and until when.
    static READ_FROM: Cell<Option<(u32, Instant)>> = const { Cell::new(None) };
}

row! {
    struct TakenEvent {
        job_id: i64,
        waits: bool,
        is_last: bool,
    }
}
row! {
    struct Decision {
        job_id: i64,
        decision: String,
    }
}
row! {
    /// A needed job that has not ended as it should.
    struct Needed {
        job_id: i64,
        state: Option<String>,
        name: Option<String>,
    }
}
statement!(
    EventsTake, "job_needs/events_take.sql",
    { from: TIDOID, last: TIDOID, at_most: INT8OID } -> TakenEvent
);
statement!(
    NeedyDecide, "job_needs/decide.sql",
    { job_ids: INT8ARRAYOID, verdicts: TEXTARRAYOID } -> Decision
);
statement!(NeedsDoomed, "job_needs/doomed.sql", { job_ids: INT8ARRAYOID } -> Needed);
statement!(
    NeedyWake, "job_needs/wake.sql",
    { job_ids: INT8ARRAYOID, one_was_enough: BOOLARRAYOID, now: TIMESTAMPTZOID } -> Claimable
);

/// The events that a read took.
#[derive(Default)]
struct Events {
    taken: Vec<Taken>,
    /// The first pages were not read.
    reads_again: bool,
}

/// The result of a look at the recorded events.
#[derive(Default)]
pub(crate) struct Decided {
    pub(crate) woken: usize,
    /// Jobs that cannot run any more, and why; they are locked.
    pub(crate) to_cancel: Vec<(i64, String)>,
    /// More events are left.
    pub(crate) more: bool,
    /// Another transaction has locked a job or a need: its event is kept.
    pub(crate) is_held: bool,
    /// The first pages of the events were not read: another cycle must follow soon.
    pub(crate) reads_again: bool,
}

/// Decides what happens to the jobs whose wait for others is over, and makes those claimable that
/// run now.
pub(crate) fn decide(spi: &Spi, now: Timestamp) -> Decided {
    let Events { taken, reads_again } = take_events(spi);
    if taken.is_empty() {
        return Decided {
            reads_again,
            ..Decided::default()
        };
    }
    let judgement = judge(spi, &taken, now);
    for waits in [false, true] {
        let again = judgement.left.iter().filter(|event| event.waits == waits);
        keep_events(&again.map(|event| event.job_id).collect::<Vec<_>>(), waits);
    }
    let waiting = judgement.waiting.iter().copied();
    let mut verdicts: HashMap<i64, Option<&str>> = waiting.map(|job_id| (job_id, None)).collect();
    verdicts.extend(
        judgement
            .judged
            .iter()
            .map(|(&job_id, job)| (job_id, job.verdict.map(Verdict::name))),
    );
    let (job_ids, verdicts): (Vec<i64>, Vec<Option<&str>>) = verdicts.into_iter().unzip();
    let verdicts: Vec<_> = verdicts
        .into_iter()
        .map(|verdict| verdict.and_then(arg))
        .collect();
    let decisions: Vec<Decision> = spi
        .query(NeedyDecide {
            job_ids: arg(job_ids),
            verdicts: array_arg(pg_sys::TEXTOID, &verdicts),
        })
        .iter()
        .collect();
    let of = |kind: &str| {
        let jobs = decisions.iter().filter(|job| job.decision == kind);
        jobs.map(|job| job.job_id).collect::<Vec<i64>>()
    };
    let is_held = keep_busy(&of("busy"), &judgement);
    let mut to_cancel = doomed(spi, &judgement, of("cancel"));
    let skipped = of("skip").into_iter();
    to_cancel
        .extend(skipped.map(|job_id| (job_id, "none of the jobs that it needs failed".to_owned())));
    Decided {
        woken: wake(spi, of("wake"), &judgement, now),
        to_cancel,
        more: !judgement.left.is_empty() || taken.len() as i64 == EVENTS_AT_MOST,
        is_held,
        reads_again,
    }
}

/// Returns the place of the first row of a page.
fn start_of(page: u32) -> pg_sys::ItemPointerData {
    let mut place = pg_sys::ItemPointerData::default();
    pgrx::itemptr::item_pointer_set_all(&mut place, page, 1);
    place
}

/// Takes recorded events, at most [`EVENTS_AT_MOST`].
fn take_events(spi: &Spi) -> Events {
    let table = Table::open(Event::TABLE, Event::ALL);
    let pages = table.pages();
    table.close();
    if pages == 0 {
        return Events::default();
    }
    let last = pages.saturating_sub(LAST_PAGES);
    let began = Instant::now();
    let hint = READ_FROM.get().filter(|&(_, until)| began < until);
    let block = hint.map_or(0, |(block, _)| block.min(last));
    let (from, end) = (start_of(block), start_of(last));
    let take = EventsTake {
        from: ctid_of(&from),
        last: ctid_of(&end),
        at_most: arg(EVENTS_AT_MOST),
    };
    let taken: Vec<TakenEvent> = spi.query(take).iter().collect();
    let pause = began.elapsed();
    if taken.len() as i64 == EVENTS_AT_MOST {
        // More may be left on the pages that were read.
    } else if block > 0 {
        READ_FROM.set(hint.map(|(_, until)| (last, until)));
    } else if pause > SLOW && taken.iter().all(|event| event.is_last) {
        let pause = FROM_BEGINNING.max(pause * FROM_BEGINNING_SHARE);
        READ_FROM.set(Some((last, Instant::now() + pause)));
    }
    let taken = taken.iter().map(|event| Taken {
        job_id: event.job_id,
        waits: event.waits,
    });
    Events {
        taken: taken.collect(),
        reads_again: block > 0,
    }
}

/// Keeps an event for each job that another transaction has locked, or one of whose needs; returns
/// whether there is one. Needs that are left are read again: the events of the ends are gone.
fn keep_busy(busy: &[i64], judgement: &Judgement) -> bool {
    let judged = &judgement.judged;
    let mut again: Vec<i64> = judged
        .iter()
        .filter(|(_, job)| job.is_busy)
        .map(|(&job_id, _)| job_id)
        .collect();
    let (verdict, without): (Vec<i64>, Vec<i64>) = busy
        .iter()
        .partition(|&job_id| judged.get(job_id).is_some_and(|job| job.verdict.is_some()));
    again.extend(verdict);
    keep_events(&again, true);
    keep_events(&without, false);
    !again.is_empty() || !without.is_empty()
}

/// Returns the jobs with the reason why they cannot run.
fn doomed(spi: &Spi, judgement: &Judgement, job_ids: Vec<i64>) -> Vec<(i64, String)> {
    let by = |job_id: &i64| match judgement.judged.get(job_id)?.verdict? {
        Verdict::DoomedBy(needed) => Some(needed),
        Verdict::Enough => None,
    };
    let mut needed: Vec<i64> = job_ids.iter().filter_map(by).collect();
    if needed.is_empty() {
        return Vec::new();
    }
    needed.sort_unstable();
    needed.dedup();
    let rows = spi.query(NeedsDoomed {
        job_ids: arg(needed),
    });
    let reasons: HashMap<i64, String> = rows.iter().map(|job| (job.job_id, job.reason())).collect();
    let doomed = job_ids.iter();
    doomed
        .filter_map(|job_id| Some((*job_id, reasons.get(&by(job_id)?)?.clone())))
        .collect()
}

impl Needed {
    fn reason(&self) -> String {
        let name = self.name.as_deref();
        let name = name.map_or(String::new(), |name| format!(" \"{name}\""));
        let what = match self.state.as_deref() {
            Some("cancelled") => "which was cancelled",
            Some(_) => "which failed",
            None => "which is gone",
        };
        format!("needs job {}{name}, {what}", self.job_id)
    }
}

/// Makes locked jobs claimable; returns how many.
fn wake(spi: &Spi, job_ids: Vec<i64>, judgement: &Judgement, now: Timestamp) -> usize {
    if job_ids.is_empty() {
        return 0;
    }
    let has_verdict = |job_id: &i64| {
        let judged = judgement.judged.get(job_id);
        judged.is_some_and(|job| job.verdict.is_some())
    };
    let one_was_enough: Vec<bool> = job_ids.iter().map(has_verdict).collect();
    let enough = job_ids.iter().copied().filter(has_verdict);
    forget(spi, &enough.collect::<Vec<i64>>());
    let woken = NeedyWake {
        job_ids: arg(job_ids),
        one_was_enough: arg(one_was_enough),
        now: arg(now),
    };
    changes::rows_claimable(&spi.change_latest(woken))
}
