//! The judgement of a cycle on needs, without a statement, which took 20 us a need.
//!
//! Enters: recorded events. Leaves: met needs are deleted; each job that has needed a job that has
//! ended is returned, with the verdict on it. Holds: a cycle judges at most [`NEEDS_AT_MOST`] needs
//! for ended jobs, and half as many of the jobs that begin to wait, and returns the events for
//! which it has no room. Those jobs share the room, so that a locked job that keeps its needs
//! leaves room for others. Needs that may stay because of a dead letter take no room.

use super::{Condition, Need, table};
use crate::columns::{Leased, Waiting};
use crate::server::clock::Timestamp;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::{Index, Key, Scan, Table, View, Walk};
use pgrx::itemptr::item_pointer_to_u64;
use pgrx::pg_sys;
use std::collections::HashMap;

/// The most needs that one cycle judges; the next cycle follows at once.
const NEEDS_AT_MOST: usize = 10_000;
/// A job that ended less than this long ago has ended lately.
const RECENT_MICROS: i64 = 24 * 3600 * 1_000_000;

row! {
    /// How a needed job has ended; one without a run was deleted by hand.
    struct NeededEnd {
        job_id: i64,
        state: Option<String>,
        /// Its dead letter waits for a person.
        may_be_requeued: bool,
    }
}
statement!(
    NeedsEnds, "job_needs/ends.sql",
    { job_ids: INT8ARRAYOID, recent: TIMESTAMPTZOID } -> NeededEnd
);

/// A recorded event.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) job_id: i64,
    /// The job begins to wait for others.
    pub(super) waits: bool,
}

/// The verdict of a single need on its job; the other needs do not matter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The job waits no longer.
    Enough,
    /// The job cannot run any more, because of this one.
    DoomedBy(i64),
}

impl Verdict {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Enough => "enough",
            Self::DoomedBy(_) => "doomed",
        }
    }

    /// Returns the one that counts of two: of doomed needs that for the first job.
    fn of_both(self, other: Self) -> Self {
        match (self, other) {
            (Self::DoomedBy(one), Self::DoomedBy(other)) => Self::DoomedBy(one.min(other)),
            _ => Self::Enough,
        }
    }
}

/// A job of which at least one need was judged.
#[derive(Default)]
pub(super) struct Judged {
    pub(super) verdict: Option<Verdict>,
    /// Another transaction has locked a need that is met.
    pub(super) is_busy: bool,
}

/// The result of a judgement.
#[derive(Default)]
pub(super) struct Judgement {
    /// By job.
    pub(super) judged: HashMap<i64, Judged>,
    /// The jobs of the events that wait for others.
    pub(super) waiting: Vec<i64>,
    /// Events for which no room was left.
    pub(super) left: Vec<Taken>,
}

/// A need for a job that has ended.
struct Candidate {
    place: pg_sys::ItemPointerData,
    needed_job_id: i64,
    job_id: i64,
    one_is_enough: bool,
    awaits_requeue: bool,
    condition: Condition,
}

impl Candidate {
    fn of(need: &Scan) -> Self {
        let name = need.text(Need::Condition).unwrap_or_default();
        let known = Condition::ALL.into_iter();
        let condition = known.clone().find(|condition| condition.name() == name);
        Self {
            place: need.tid(),
            needed_job_id: need.number(Need::NeededJobId),
            job_id: need.number(Need::JobId),
            one_is_enough: need.get(Need::OneIsEnough).unwrap_or_default(),
            awaits_requeue: need.get(Need::AwaitsRequeue).unwrap_or_default(),
            condition: condition.unwrap_or(Condition::Ended),
        }
    }
}

/// Where a job is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    WaitsForJobs,
    Lives,
    Ended,
}

/// Looks jobs up, each once.
struct Lives<'index> {
    queue: &'index Index,
    leases: &'index Index,
    view: &'index View,
    known: HashMap<i64, Life>,
}

impl Lives<'_> {
    /// Looks jobs up.
    fn learn(&mut self, job_ids: impl Iterator<Item = i64>) {
        let mut job_ids: Vec<i64> = job_ids
            .filter(|job_id| !self.known.contains_key(job_id))
            .collect();
        job_ids.sort_unstable();
        job_ids.dedup();
        let mut waiting = Walk::begin(self.queue, self.view, Waiting::JobId);
        let mut leased = Walk::begin(self.leases, self.view, Leased::JobId);
        for (place, &job_id) in job_ids.iter().enumerate() {
            let later = || job_ids[place + 1..].iter().copied();
            let life = if waiting.goes_to(job_id, later()) {
                match waiting.scan().text(Waiting::WaitsFor) {
                    Some("jobs") => Life::WaitsForJobs,
                    _ => Life::Lives,
                }
            } else if leased.goes_to(job_id, later()) {
                Life::Lives
            } else {
                Life::Ended
            };
            self.known.insert(job_id, life);
        }
        waiting.end();
        leased.end();
    }

    /// Returns where a job is that was looked up.
    fn of(&self, job_id: i64) -> Life {
        self.known[&job_id]
    }
}

/// Judges the needs for the jobs of events, and those of the jobs that begin to wait.
pub(super) fn judge(spi: &Spi, taken: &[Taken], now: Timestamp) -> Judgement {
    let needs = table();
    let queue = Table::open(Waiting::TABLE, Waiting::ALL);
    let leases = Table::open(Leased::TABLE, Leased::ALL);
    let queued = Index::open(&queue, c"work_queue_pkey");
    let leased = Index::open(&leases, c"lease_pkey");
    let view = View::of_transaction();
    let mut lives = Lives {
        queue: &queued,
        leases: &leased,
        view: &view,
        known: HashMap::new(),
    };
    let mut judgement = Judgement::default();
    let (mut begun, mut ended) = (Vec::new(), Vec::new());
    for event in taken {
        let jobs = if event.waits { &mut begun } else { &mut ended };
        jobs.push(event.job_id);
    }
    for jobs in [&mut begun, &mut ended] {
        jobs.sort_unstable();
        jobs.dedup();
    }
    lives.learn(taken.iter().map(|event| event.job_id));
    let waiting = taken.iter().map(|event| event.job_id);
    let waiting = waiting.filter(|&job_id| lives.of(job_id) == Life::WaitsForJobs);
    judgement.waiting.extend(waiting);
    let mut candidates = begun_waits(&needs, &begun, &mut lives, &mut judgement);
    candidates.extend(of_ended(&needs, ended, &lives, &mut judgement));
    // Events of both jobs of a need find it twice.
    let place = |need: &Candidate| item_pointer_to_u64(need.place);
    candidates.sort_unstable_by_key(place);
    candidates.dedup_by_key(|need| place(need));
    lives.learn(candidates.iter().map(|need| need.job_id));
    let ends = ends(spi, &candidates, now);
    for need in &candidates {
        let waits = lives.of(need.job_id) == Life::WaitsForJobs;
        let job = judgement.judged.entry(need.job_id).or_default();
        match ends.verdict(need, waits) {
            Decides::Nothing => {}
            Decides::Met => job.is_busy |= !needs.delete_if_free(need.place, &view),
            // The ends were read after the view was taken: a requeue may have moved the need.
            Decides::All(Verdict::DoomedBy(_))
                if need.awaits_requeue && !needs.lock_if_free(need.place, &view) =>
            {
                job.is_busy = true;
            }
            Decides::All(verdict) => {
                let both = job.verdict.map(|other| verdict.of_both(other));
                job.verdict = Some(both.unwrap_or(verdict));
            }
        }
    }
    view.end();
    queued.close();
    leased.close();
    for table in [needs, queue, leases] {
        table.close();
    }
    judgement
}

/// Takes room for a need; returns false when none is left.
fn has_room(need: &Candidate, room: &mut usize) -> bool {
    let is_left = *room > 0 || need.awaits_requeue;
    if !need.awaits_requeue {
        *room = room.saturating_sub(1);
    }
    is_left
}

/// Returns the needs of jobs that begin to wait.
fn begun_waits(
    needs: &Table,
    job_ids: &[i64],
    lives: &mut Lives,
    judgement: &mut Judgement,
) -> Vec<Candidate> {
    let mut found = Vec::new();
    if job_ids.is_empty() {
        return found;
    }
    let share = (NEEDS_AT_MOST / 2 / job_ids.len()).max(1);
    let index = Index::open(needs, c"need_job");
    let scan = index.scan(lives.view, 1);
    for &job_id in job_ids {
        scan.seek([Key::equals(1, job_id)]);
        let mut own = Vec::new();
        while scan.next() {
            own.push(Candidate::of(&scan));
        }
        lives.learn(own.iter().map(|need| need.needed_job_id));
        own.retain(|need| lives.of(need.needed_job_id) == Life::Ended);
        let (all, mut room) = (own.len(), share);
        own.retain(|need| has_room(need, &mut room));
        if own.len() < all {
            judgement.left.push(Taken {
                job_id,
                waits: true,
            });
        }
        found.extend(own);
    }
    scan.end();
    index.close();
    found
}

/// Returns the needs for those of some jobs that have ended.
fn of_ended(
    needs: &Table,
    mut job_ids: Vec<i64>,
    lives: &Lives,
    judgement: &mut Judgement,
) -> Vec<Candidate> {
    job_ids.retain(|&job_id| lives.of(job_id) == Life::Ended);
    let mut found = Vec::new();
    let mut room = NEEDS_AT_MOST;
    let index = Index::open(needs, c"need_pkey");
    let mut walk = Walk::begin(&index, lives.view, Need::NeededJobId);
    for (place, &job_id) in job_ids.iter().enumerate() {
        let mut finds = walk.goes_to(job_id, job_ids[place + 1..].iter().copied());
        let mut is_left = false;
        while finds {
            let need = Candidate::of(walk.scan());
            if has_room(&need, &mut room) {
                found.push(need);
            } else {
                is_left = true;
            }
            finds = walk.goes_on();
        }
        if is_left {
            judgement.left.push(Taken {
                job_id,
                waits: false,
            });
        }
    }
    walk.end();
    index.close();
    found
}

/// The effect of a need.
enum Decides {
    Nothing,
    /// The need is deleted.
    Met,
    All(Verdict),
}

/// How needed jobs have ended, as far as conditions depend on it.
struct Ends(HashMap<i64, NeededEnd>);

fn ends(spi: &Spi, candidates: &[Candidate], now: Timestamp) -> Ends {
    let depends = candidates
        .iter()
        .filter(|need| need.condition != Condition::Ended);
    let mut job_ids: Vec<i64> = depends.map(|need| need.needed_job_id).collect();
    job_ids.sort_unstable();
    job_ids.dedup();
    if job_ids.is_empty() {
        return Ends(HashMap::new());
    }
    let ends = spi.query(NeedsEnds {
        job_ids: arg(job_ids),
        recent: arg(now.plus(-RECENT_MICROS)),
    });
    Ends(ends.iter().map(|end| (end.job_id, end)).collect())
}

impl Ends {
    fn verdict(&self, need: &Candidate, waits: bool) -> Decides {
        let end = self.0.get(&need.needed_job_id);
        let completed = end.is_some_and(|end| end.state.as_deref() == Some("completed"));
        if !waits {
            return Decides::Met;
        }
        if need.one_is_enough {
            return Decides::All(Verdict::Enough);
        }
        match need.condition {
            Condition::Ended => Decides::Met,
            Condition::Completed | Condition::Failed if completed => Decides::Met,
            Condition::Failed => Decides::All(Verdict::Enough),
            Condition::Completed
                if need.awaits_requeue && end.is_some_and(|end| end.may_be_requeued) =>
            {
                Decides::Nothing
            }
            Condition::Completed => Decides::All(Verdict::DoomedBy(need.needed_job_id)),
        }
    }
}
