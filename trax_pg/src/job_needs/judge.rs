//! The judgement of a cycle on needs, without a statement: a need of a job of a batch costs a tenth
//! of what it costs in one.
//!
//! Enters: recorded events. Leaves: met needs are deleted; each job that has needed a job that has
//! ended is returned, with the verdict on it. Holds: a cycle judges at most [`NEEDS_AT_MOST`] needs
//! and returns the events that it has no room for. Jobs that begin to wait share one half of the
//! room, so that a locked job that keeps its needs leaves room for others.

use super::{Condition, Need, table};
use crate::columns::{Leased, Waiting};
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::{Index, Key, Scan, Table, View};
use pgrx::itemptr::item_pointer_to_u64;
use pgrx::pg_sys;
use std::collections::HashMap;

/// The most needs that one cycle judges; the next cycle follows at once.
const NEEDS_AT_MOST: usize = 10_000;

row! {
    /// How a needed job has ended; one without a run was deleted by hand.
    struct NeededEnd {
        job_id: i64,
        state: Option<String>,
        /// Its dead letter waits for a person.
        may_be_requeued: bool,
    }
}
statement!(NeedsEnds, "job_needs/ends.sql", { job_ids: INT8ARRAYOID } -> NeededEnd);

/// A recorded event.
#[derive(Clone, Copy)]
pub(super) struct Taken {
    pub(super) job_id: i64,
    /// It begins to wait for others.
    pub(super) waits: bool,
}

/// What one need decides for its job, whatever becomes of the others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It waits no longer.
    Enough,
    /// It cannot run any more, because of this job.
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
struct Lives {
    waiting: Scan,
    leases: Scan,
    known: HashMap<i64, Life>,
}

impl Lives {
    fn of(&mut self, job_id: i64) -> Life {
        if let Some(&life) = self.known.get(&job_id) {
            return life;
        }
        let finds = |scan: &Scan| {
            scan.seek([Key::equals(1, job_id)]);
            scan.next()
        };
        let life = if finds(&self.waiting) {
            match self.waiting.text(Waiting::WaitsFor) {
                Some("jobs") => Life::WaitsForJobs,
                _ => Life::Lives,
            }
        } else if finds(&self.leases) {
            Life::Lives
        } else {
            Life::Ended
        };
        self.known.insert(job_id, life);
        life
    }
}

/// Judges the needs for the jobs of events, and those of the jobs that begin to wait.
pub(super) fn judge(spi: &Spi, taken: &[Taken]) -> Judgement {
    let needs = table();
    let queue = Table::open(Waiting::TABLE, Waiting::ALL);
    let leases = Table::open(Leased::TABLE, Leased::ALL);
    let indexes = [
        Index::open(&needs, c"need_pkey"),
        Index::open(&needs, c"need_job"),
        Index::open(&queue, c"work_queue_pkey"),
        Index::open(&leases, c"lease_pkey"),
    ];
    let view = View::of_transaction();
    let [of_needed, of_job, waiting, leased] = indexes.each_ref().map(|index| index.scan(&view, 1));
    let mut lives = Lives {
        waiting,
        leases: leased,
        known: HashMap::new(),
    };
    let mut judgement = Judgement::default();
    let candidates = candidates(taken, &of_needed, &of_job, &mut lives, &mut judgement);
    let ends = ends(spi, &candidates);
    for need in &candidates {
        let waits = lives.of(need.job_id) == Life::WaitsForJobs;
        let job = judgement.judged.entry(need.job_id).or_default();
        match ends.verdict(need, waits) {
            Decides::Nothing => {}
            Decides::Met => job.is_busy |= !needs.delete_if_free(need.place, &view),
            Decides::All(verdict) => {
                let both = job.verdict.map(|other| verdict.of_both(other));
                job.verdict = Some(both.unwrap_or(verdict));
            }
        }
    }
    for scan in [of_needed, of_job, lives.waiting, lives.leases] {
        scan.end();
    }
    view.end();
    for index in indexes {
        index.close();
    }
    for table in [needs, queue, leases] {
        table.close();
    }
    judgement
}

/// Returns the needs to judge, and records the events that are left.
fn candidates(
    taken: &[Taken],
    of_needed: &Scan,
    of_job: &Scan,
    lives: &mut Lives,
    judgement: &mut Judgement,
) -> Vec<Candidate> {
    let mut found = Vec::new();
    let (begin, end): (Vec<Taken>, Vec<Taken>) = taken.iter().partition(|event| event.waits);
    let share = (NEEDS_AT_MOST / 2 / begin.len().max(1)).max(1);
    for event in begin.iter().chain(&end) {
        let life = lives.of(event.job_id);
        if life == Life::WaitsForJobs {
            judgement.waiting.push(event.job_id);
        }
        let (needs, room) = match event.waits {
            true => (of_job, share),
            false => (of_needed, NEEDS_AT_MOST.saturating_sub(found.len())),
        };
        if !event.waits && life != Life::Ended {
            continue;
        }
        let begun = found.len();
        needs.seek([Key::equals(1, event.job_id)]);
        while needs.next() {
            if event.waits && lives.of(needs.number(Need::NeededJobId)) != Life::Ended {
                continue;
            }
            if found.len() - begun == room {
                judgement.left.push(*event);
                break;
            }
            found.push(Candidate::of(needs));
        }
    }
    // Events of both jobs of a need find it twice.
    let place = |need: &Candidate| item_pointer_to_u64(need.place);
    found.sort_unstable_by_key(place);
    found.dedup_by_key(|need| place(need));
    found
}

/// What a need decides.
enum Decides {
    Nothing,
    /// It is deleted.
    Met,
    All(Verdict),
}

/// How needed jobs have ended, as far as conditions depend on it.
struct Ends(HashMap<i64, NeededEnd>);

fn ends(spi: &Spi, candidates: &[Candidate]) -> Ends {
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
