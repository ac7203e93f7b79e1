//! A pair of a source and a target: polls, carries, settles, reports and sleeps over one connection
//! to each side, until one of them breaks.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use trax_client::{Address, Report};

use crate::held::Held;
use crate::row::{Entry, Lag};
use crate::seat::Seat;
use crate::source::Source;
use crate::target::{LOCK_PATIENCE, Outcome, SHORT_LOCK_PATIENCE, Target};
use crate::{Options, Result, Trouble, step};

/// The maximum pause between checks whether the previous relay has ended.
const LOCK_PERIOD: Duration = Duration::from_secs(1);
/// The maximum pause between checks whether all targets were tried.
const SEAT_PERIOD: Duration = Duration::from_millis(100);
/// How long a relay with `once` waits for another relay to end.
const LOCK_PATIENCE_ONCE: Duration = Duration::from_secs(5);
/// How often old keys and results are removed, and progress is reported without a change.
const ROUND: Duration = Duration::from_secs(60);
/// How often progress is reported after a change.
const REPORT_PERIOD: Duration = Duration::from_secs(10);
/// How often results are read while rows are carried.
const RESULT_PERIOD: Duration = Duration::from_millis(200);
/// After this time, in addition to the patience for a step, the rest of a halved batch is left for
/// the next poll, so that the source's session does not appear to hang.
const LOOK_PATIENCE: Duration = Duration::from_secs(10);

/// The source's errors for a row that can never become text: it is longer than a value may be, or
/// contains an invalid UTF-8 character. Out of memory, in contrast, is temporary.
const NEVER_TEXT: [&str; 3] = ["54000", "XX000", "22P05"];

/// The last report: the lag, the number of held rows, and the reason for waiting.
type Reported = (Lag, usize, Option<String>);

struct Pair<'a, L> {
    source: Source,
    target: Target,
    seat: &'a Seat,
    options: &'a Options,
    log: &'a L,
    held: Held,
    /// The maximum number of rows in a poll. Reduced after a poll that took too long, until all is
    /// well again.
    batch: i64,
    numbers: Numbers,
    trouble: Option<String>,
    reported: Option<Reported>,
    next_report: Instant,
    next_round: Instant,
    next_results: Instant,
    /// Whether a round of cleaning is in progress.
    is_cleaning: bool,
}

/// Carries rows until a connection breaks; with `once`, until no row waits. `last` is the reason
/// why the previous run ended.
pub(crate) async fn serve<L: Fn(&str)>(
    (source, target): (&Address, &Address),
    seat: &Seat,
    options: &Options,
    log: &L,
    last: Option<Trouble>,
) -> Result<()> {
    let patience = options.patience;
    let mut target = step(patience, Target::open(target, patience)).await?;
    seat.reached(target.id());
    let source = step(patience, Source::open(source, target.id(), patience)).await?;
    step(patience, source.register(target.name())).await?;
    take_place(&source, options, log).await?;
    let identity = step(patience, source.identity()).await?;
    step(patience, target.begin(identity)).await?;
    log(&format!(
        "carries, as relay number {} of this outbox",
        target.epoch()
    ));
    let now = Instant::now();
    let mut pair = Pair {
        source,
        target,
        seat,
        options,
        log,
        held: Held::default(),
        batch: options.batch,
        numbers: Numbers::default(),
        trouble: last.map(|trouble| trouble.to_string()),
        reported: None,
        next_report: now,
        next_round: now + ROUND,
        next_results: now,
        is_cleaning: false,
    };
    // Reported before the first row, so that the target shows any reason that prevents carrying.
    pair.report(true).await?;
    step(patience, pair.target.ready()).await?;
    while !pair.look().await? {}
    match pair.held.reason() {
        Some(reason) => Err(Trouble::new(reason)),
        None => Ok(()),
    }
}

/// Waits until this is the only relay of its outbox and target; with `once`, only for a short time.
async fn take_place(source: &Source, options: &Options, log: &impl Fn(&str)) -> Result<()> {
    let begin = Instant::now();
    let mut is_told = false;
    while !step(options.patience, source.take_place()).await? {
        if options.once && begin.elapsed() > LOCK_PATIENCE_ONCE {
            return Err(
                Trouble::new("another relay carries the rows of this outbox")
                    .hint("let that relay continue, or stop it first"),
            );
        }
        if !is_told {
            log("another relay carries the rows of this outbox; this one waits until it ends");
            is_told = true;
        }
        sleep(options.poll.min(LOCK_PERIOD)).await;
    }
    Ok(())
}

impl<L: Fn(&str)> Pair<'_, L> {
    /// Polls once and processes the rows. Returns whether a relay with `once` is done.
    async fn look(&mut self) -> Result<bool> {
        let patience = self.options.patience;
        self.try_again().await?;
        let candidates = self.seat.candidates();
        let look = self.source.look(
            self.batch,
            candidates.as_deref().unwrap_or_default(),
            &self.held,
        );
        let rows = step(patience, look).await?;
        let mut trouble = None;
        if !rows.is_empty() {
            step(patience, self.source.set_asleep(false)).await?;
            trouble = self.carry(&rows, LOCK_PATIENCE).await?;
        }
        if trouble.is_none() {
            self.batch = self.batch.saturating_mul(2).min(self.options.batch);
        }
        // The trouble that stopped carrying has ended, or has changed.
        if self.trouble != trouble {
            self.trouble = trouble;
            self.next_report = Instant::now();
        }
        self.write_results().await?;
        let may_be_over = self.options.once && rows.is_empty();
        self.clean(may_be_over).await?;
        let unplaced = self.report(may_be_over).await?;
        if may_be_over && unplaced == Some(0) {
            return Ok(true);
        }
        if rows.is_empty() && !self.is_cleaning {
            let most = match candidates {
                Some(_) => self.options.poll,
                None => self.options.poll.min(SEAT_PERIOD),
            };
            self.sleep(most).await?;
        }
        Ok(false)
    }

    /// Carries rows and settles them. A batch that fails is halved, its first half first; rows
    /// carried so far are settled. Returns the reason if rows were left for the next poll, which
    /// will read fewer.
    async fn carry(&mut self, rows: &[Entry], lock_patience: Duration) -> Result<Option<String>> {
        let begin = Instant::now();
        let mut reason = None;
        let mut lock_patience = lock_patience;
        let mut parts: Vec<Vec<&Entry>> = vec![self.readable(rows).await?];
        while let Some(mut part) = parts.pop() {
            part.retain(|entry| !self.held.is_before(entry));
            if part.is_empty() {
                continue;
            }
            if begin.elapsed() > LOOK_PATIENCE.min(self.options.patience) {
                self.batch = i64::try_from(part.len()).unwrap_or(i64::MAX);
                return Ok(reason);
            }
            let carrying = self.target.carry(&part, lock_patience);
            match (step(self.options.patience, carrying).await?, &part[..]) {
                (Outcome::Carried(carried), _) => {
                    let settling = self.source.settle(&carried, self.options.results);
                    step(self.options.patience, settling).await?;
                    self.numbers.carried += carried.len();
                    for row in &carried {
                        self.held.release(row.id);
                    }
                }
                (Outcome::Refused(report), [entry]) => self.refuse(entry, &report).await?,
                (Outcome::Held(report), [entry]) => self.hold(entry, &report)?,
                (Outcome::Refused(report) | Outcome::Held(report), _) => {
                    reason = Some(format!("{} ({})", report.message, report.sqlstate));
                    let second = part.split_off(part.len() / 2);
                    parts.extend([second, part]);
                    lock_patience = SHORT_LOCK_PATIENCE;
                }
            }
        }
        Ok(None)
    }

    /// Refuses rows that can never become text, holds those that currently cannot, and returns the
    /// others.
    async fn readable<'r>(&mut self, rows: &'r [Entry]) -> Result<Vec<&'r Entry>> {
        let mut readable = Vec::with_capacity(rows.len());
        for entry in rows {
            match &entry.document {
                Ok(_) => readable.push(entry),
                Err((sqlstate, message)) => {
                    let report = Report {
                        sqlstate: sqlstate.clone(),
                        message: message.clone(),
                        detail: None,
                        hint: None,
                    };
                    match NEVER_TEXT.contains(&sqlstate.as_str()) {
                        true => self.refuse(entry, &report).await?,
                        false => self.hold(entry, &report)?,
                    }
                }
            }
        }
        Ok(readable)
    }

    async fn refuse(&mut self, entry: &Entry, report: &Report) -> Result<()> {
        if !self.source.refuse(entry, report).await? {
            return self.hold(entry, report);
        }
        self.held.release(entry.id);
        self.numbers.refused += 1;
        Ok(())
    }

    fn hold(&mut self, entry: &Entry, report: &Report) -> Result<()> {
        let reason = format!("{} ({})", report.message, report.sqlstate);
        let now = Instant::now();
        // Makes the target show it soon.
        self.next_report = now;
        self.held.hold(entry, reason, now)
    }

    /// Tries held rows again one by one. Rows that are not done wait for the next poll.
    async fn try_again(&mut self) -> Result<()> {
        let due = self.held.due(Instant::now());
        if due.is_empty() {
            return Ok(());
        }
        let looking = self.source.look_again(&due);
        let rows = step(self.options.patience, looking).await?;
        let begin = Instant::now();
        for id in due {
            if begin.elapsed() > LOOK_PATIENCE.min(self.options.patience) {
                break;
            }
            match rows.iter().find(|entry| entry.id == id) {
                Some(entry) => {
                    let one = std::slice::from_ref(entry);
                    self.carry(one, SHORT_LOCK_PATIENCE).await?;
                }
                // The row was removed from the outbox.
                None => self.held.release(id),
            }
        }
        Ok(())
    }

    /// Writes back a page of results; with `once`, all of them.
    async fn write_results(&mut self) -> Result<()> {
        if !self.options.results || Instant::now() < self.next_results {
            return Ok(());
        }
        loop {
            let open = step(self.options.patience, self.source.unfinished()).await?;
            if !open.is_empty() {
                let ended = step(self.options.patience, self.target.ended(&open)).await?;
                self.source.finish(ended).await?;
            }
            if open.is_empty() || !self.options.once {
                break;
            }
        }
        self.next_results = Instant::now() + RESULT_PERIOD;
        Ok(())
    }

    /// Removes old results, and old keys whose rows the source no longer has: one page per poll
    /// until the round is done, or all at once when the relay ends.
    async fn clean(&mut self, is_over: bool) -> Result<()> {
        let now = Instant::now();
        if !is_over && !self.is_cleaning && now < self.next_round {
            return Ok(());
        }
        loop {
            let patience = self.options.patience;
            let pruned = step(patience, self.source.prune()).await?;
            let old = step(patience, self.target.old_keys()).await?;
            self.is_cleaning = pruned > 0 || !old.is_empty();
            if !old.is_empty() {
                let gone = step(patience, self.source.without_row(old)).await?;
                step(patience, self.target.forget(&gone)).await?;
            }
            if !is_over || !self.is_cleaning {
                return Ok(());
            }
        }
    }

    /// Reports progress if a report is due or `must` is set. Returns the number of rows without a
    /// target, if it was read.
    async fn report(&mut self, must: bool) -> Result<Option<i64>> {
        let patience = self.options.patience;
        let now = Instant::now();
        let is_round = must || now >= self.next_round;
        if !is_round && now < self.next_report {
            return Ok(None);
        }
        let lag = step(patience, self.source.lag()).await?;
        let trouble = match &self.trouble {
            Some(trouble) => Some(trouble.clone()),
            None => self.held.reason(),
        };
        let new = (lag, self.held.len(), trouble);
        if is_round || self.reported.as_ref() != Some(&new) {
            let report = self.target.report(&new.0, new.1, new.2.as_deref());
            step(patience, report).await?;
        }
        if is_round {
            self.numbers.report(&new, self.log);
            self.log_stranded().await?;
            self.next_round = now + ROUND;
        }
        self.reported = Some(new);
        self.next_report = now + REPORT_PERIOD;
        Ok(Some(lag.unplaced))
    }

    /// Logs the targets that rows wait for and that are not configured.
    async fn log_stranded(&self) -> Result<()> {
        let Some(candidates) = self.seat.candidates() else {
            return Ok(());
        };
        let looking = self.source.stranded(&candidates);
        for target in step(self.options.patience, looking).await? {
            (self.log)(&format!(
                "rows wait for the target {target}, which this relay has not reached; \
                give its address with --to, or, if it is permanently gone: select trax_outbox.replace_target(lost, target)"
            ));
        }
        Ok(())
    }

    async fn sleep(&mut self, most: Duration) -> Result<()> {
        // A last poll follows after the relay is marked as asleep.
        if step(self.options.patience, self.source.set_asleep(true)).await? {
            return Ok(());
        }
        let is_behind = |(lag, ..): &Reported| lag.waiting > 0;
        let mut until = match self.reported.as_ref().is_some_and(is_behind) {
            true => self.next_report,
            false => self.next_round,
        };
        if let Some(again) = self.held.next() {
            until = until.min(again);
        }
        let time = until.saturating_duration_since(Instant::now());
        self.source.sleep(most.min(time)).await
    }
}

/// Counts since the last report.
#[derive(Default)]
struct Numbers {
    carried: usize,
    refused: usize,
}

impl Numbers {
    fn report(&mut self, (lag, held, trouble): &Reported, log: &impl Fn(&str)) {
        let Numbers { carried, refused } = std::mem::take(self);
        let Lag { waiting, age, .. } = lag;
        if carried + refused > 0 || *waiting > 0 {
            log(&format!(
                "carried {carried}, refused {refused}; {waiting} wait, the oldest for {age:.1} s"
            ));
        }
        if let (1.., Some(trouble)) = (held, trouble) {
            log(trouble);
        }
    }
}
