//! Reports outcomes to the server until each is recorded or refused for its content.
//!
//! Completions are sent together; other outcomes, and those reported *again*, are sent one by one.
//! An outcome is reported again if the connection broke, if the server had no time, lock or room
//! for it, or if no answer arrived. If it had already been recorded, the answer is "lost" and
//! nothing changes. To find the outcome that fails, a refused batch is sent one by one, and in
//! smaller batches after the connection broke or no answer arrived. An outcome that alone
//! repeatedly breaks the connection without an error, or is too large to be answered in time, is
//! replaced (`unreported`).

use std::collections::{HashSet, VecDeque};

use super::calls::{BATCH, BoundedCalls};
use super::event::{Event, Events};
use super::outcome::Verdict;
use super::reply::Reply;
use super::unreported::{Answer, UnreportedOutcome, report};
use crate::clock::Moment;
use crate::error::{Blame, Error, Result};
use crate::id::{JobId, Token};
use crate::job::{ClaimOptions, Claimed};
use crate::json::Json;

/// The maximum bytes of text in the completions of one call, so that a slow network can send it in
/// time.
const BATCH_BYTES: usize = 4 << 20;
/// Once the server had no time for this many outcomes of an exchange, the others are reported
/// later.
const FAILURES_AT_MOST: usize = 2;
/// The number of consecutive times that an outcome alone may break the connection before it is
/// recorded as failed.
const BREAKS_AT_MOST: u32 = 5;
/// The number of consecutive times that an outcome alone, larger than `LARGE` bytes, may stay
/// unanswered. By the second time its lease has ended, or heartbeats were answered meanwhile, so
/// its size is the cause.
const UNANSWERED_AT_MOST: u32 = 2;
const LARGE: usize = 64 << 10;

/// Reports the outcomes of one exchange: those in `reply.unreported` become answers or move to
/// `reply.retries`. An error always concerns the connection.
pub(crate) struct OutcomeReports<'a> {
    pub(super) calls: BoundedCalls<'a>,
    /// Used for outcomes that are reported again.
    pub(super) retry_calls: BoundedCalls<'a>,
    pub(super) events: &'a Events,
    /// The maximum number of completions in a call.
    pub(super) batch_size: &'a mut usize,
    pub(super) reply: &'a mut Reply,
    pub(super) last_error: &'a mut Option<Error>,
    /// The number of outcomes of this exchange that the server had no time for.
    pub(super) failures: usize,
}

impl OutcomeReports<'_> {
    /// Reports the outcomes that are sent one by one.
    pub(crate) async fn report_singles(&mut self) -> Result<()> {
        self.take_recorded().await?;
        let unreported = std::mem::take(&mut self.reply.unreported);
        let (singles, together) = unreported
            .into_iter()
            .partition(UnreportedOutcome::is_single);
        self.reply.unreported = together;
        self.report_each(singles).await.map(|_| ())
    }

    /// Answers the completions that handlers have recorded: their leases are gone. One call asks
    /// for many; the others are reported one by one.
    async fn take_recorded(&mut self) -> Result<()> {
        let is_recorded =
            |outcome: &&UnreportedOutcome| matches!(outcome.verdict, Verdict::Recorded);
        let recorded = self.reply.unreported.iter().filter(is_recorded);
        let leases = recorded.map(|one| (one.job_id, one.token));
        let leases: Vec<_> = leases.take(BATCH).collect();
        if leases.len() < 2 {
            return Ok(());
        }
        let client = self.calls.client();
        let beats = match self.calls.bounded(client.heartbeat(&leases, None)).await {
            Ok(beats) => beats,
            Err(error) if error.blame() == Blame::Connection => return Err(error),
            Err(_) => return Ok(()),
        };
        let gone = leases.iter().zip(beats).filter(|(_, beat)| !beat.held);
        let gone: HashSet<_> = gone.map(|(lease, _)| *lease).collect();
        self.reply
            .unreported
            .retain(|one| !gone.contains(&(one.job_id, one.token)));
        let answers = gone
            .into_iter()
            .map(|(id, token)| (id, token, Answer::Completed));
        self.reply.answers.extend(answers);
        Ok(())
    }

    /// Reports all completions together with the claim, if they fit into one call.
    pub(crate) async fn report_completions_and_claim(
        &mut self,
        options: &ClaimOptions,
    ) -> Result<Option<(Moment, Vec<Claimed>)>> {
        let batch = self.take_batch();
        if batch.is_empty() || !self.reply.unreported.is_empty() {
            self.reply.unreported.splice(0..0, batch);
            return Ok(None);
        }
        let (leases, outputs) = leases_and_outputs(&batch);
        let sent = Moment::now();
        let client = self.calls.client();
        let call = client.complete_and_claim(&leases, outputs, options);
        match self.calls.bounded(call).await {
            Ok((recorded, claimed)) => {
                self.answer(&leases, recorded);
                return Ok(Some((sent, claimed)));
            }
            Err(error) => self.report_apart(batch, error).await?,
        }
        Ok(None)
    }

    /// Reports completions in batches.
    pub(crate) async fn report_completions(&mut self) -> Result<()> {
        loop {
            let batch = self.take_batch();
            if batch.is_empty() {
                return Ok(());
            }
            let (leases, outputs) = leases_and_outputs(&batch);
            let client = self.calls.client();
            let call = client.complete_many(&leases, outputs);
            match self.calls.bounded(call).await {
                Ok(recorded) => {
                    self.answer(&leases, recorded);
                    *self.batch_size = (*self.batch_size * 2).min(BATCH);
                }
                Err(error) => self.report_apart(batch, error).await?,
            }
        }
    }

    /// After a failed call with several outcomes, sends them one by one to find the cause. If it is
    /// not found soon, the others are reported later.
    async fn report_apart(
        &mut self,
        mut batch: Vec<UnreportedOutcome>,
        error: Error,
    ) -> Result<()> {
        match error.blame() {
            Blame::Connection => return Err(self.connection_broke(batch, error)),
            Blame::Moment => {
                *self.batch_size = (batch.len() / 2).max(1);
                batch.iter_mut().for_each(|outcome| outcome.again = true);
            }
            Blame::Call => {}
        }
        let has_time = match (error.blame(), batch.pop()) {
            // The outcome was alone in the call, so there is nothing to find.
            (Blame::Moment, Some(outcome)) if batch.is_empty() => {
                self.had_no_time(outcome, error);
                self.failures < FAILURES_AT_MOST
            }
            (_, last) => {
                batch.extend(last);
                self.report_each(batch).await?
            }
        };
        if !has_time {
            let untried = std::mem::take(&mut self.reply.unreported);
            self.reply.retries.splice(0..0, untried);
        }
        Ok(())
    }

    /// Reports outcomes one by one. Returns false if the server had no time for several; the others
    /// then go to the front of those reported later.
    async fn report_each(&mut self, all: Vec<UnreportedOutcome>) -> Result<bool> {
        let mut left = VecDeque::from(all);
        while let Some(outcome) = left.pop_front() {
            if let Err(error) = self.report_one(outcome).await {
                self.reply.unreported.splice(0..0, left);
                return Err(error);
            }
            if self.failures >= FAILURES_AT_MOST {
                self.reply.retries.splice(0..0, left);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reports an outcome. After the server had no time for one, the wait for a lock is short.
    async fn report_one(&mut self, outcome: UnreportedOutcome) -> Result<()> {
        let call = match outcome.again || self.failures > 0 {
            true => self.retry_calls,
            false => self.calls,
        };
        let client = call.client();
        match call.bounded(report(&client, self.events, &outcome)).await {
            Ok(answer) => {
                let (job_id, token) = (outcome.job_id, outcome.token);
                self.reply.answers.push((job_id, token, answer));
                Ok(())
            }
            Err(error) if error.blame() == Blame::Connection => {
                Err(self.connection_broke(vec![outcome], error))
            }
            Err(error) => {
                self.had_no_time(outcome, error);
                Ok(())
            }
        }
    }

    fn had_no_time(&mut self, mut outcome: UnreportedOutcome, error: Error) {
        // The server was able to read the outcome.
        (outcome.breaks, outcome.unanswered) = (0, 0);
        outcome.again = true;
        self.reply.retries.push(outcome);
        *self.last_error = Some(error);
        self.failures += 1;
    }

    /// Handles a connection that ended, or did not answer, while these outcomes were reported.
    fn connection_broke(&mut self, mut batch: Vec<UnreportedOutcome>, error: Error) -> Error {
        *self.batch_size = (batch.len() / 2).max(1);
        let unanswered = error.is_unanswered();
        if !unanswered && batch.len() > 1 {
            self.reply.unreported.extend(batch);
            return error;
        }
        batch.iter_mut().for_each(|outcome| outcome.again = true);
        if let [outcome] = &mut batch[..] {
            if unanswered && outcome.size() > LARGE {
                outcome.unanswered += 1;
                if outcome.unanswered == UNANSWERED_AT_MOST {
                    self.give_up(outcome, "had no answer", UNANSWERED_AT_MOST, &error);
                }
            } else if self.calls.may_be_of_the_message(&error) {
                outcome.breaks += 1;
                if outcome.breaks == BREAKS_AT_MOST {
                    self.give_up(outcome, "ended the connection", BREAKS_AT_MOST, &error);
                }
            }
        }
        // If even the replacement could not be reported, the outcome is abandoned.
        let may_be_reported = |outcome: &UnreportedOutcome| outcome.breaks < 2 * BREAKS_AT_MOST;
        let (later, gone): (Vec<_>, Vec<_>) = batch.into_iter().partition(may_be_reported);
        self.reply.retries.extend(later);
        let gone = gone.iter().map(|s| (s.job_id, s.token, Answer::Unreported));
        self.reply.answers.extend(gone);
        error
    }

    /// Replaces the outcome with a short one that has the reason.
    fn give_up(&self, outcome: &mut UnreportedOutcome, what: &str, times: u32, error: &Error) {
        let size = outcome.size();
        let why = format!("the {size} bytes of the outcome {what} {times} times: {error}");
        outcome.give_up(&why);
        self.events.emit(Event::Refused {
            job_id: outcome.job_id,
            error: why,
        });
    }

    /// Takes out the completions of the next call.
    fn take_batch(&mut self) -> Vec<UnreportedOutcome> {
        let mut bytes = 0;
        let fits = |outcome: &&UnreportedOutcome| {
            bytes += outcome.size();
            bytes <= BATCH_BYTES
        };
        let unreported = &mut self.reply.unreported;
        let some = unreported
            .iter()
            .take(*self.batch_size)
            .take_while(fits)
            .count();
        unreported
            .drain(..some.max(1).min(unreported.len()))
            .collect()
    }

    /// Records the answers: leases not in `recorded` were lost.
    fn answer(&mut self, leases: &[(JobId, Token)], recorded: Vec<JobId>) {
        let recorded: HashSet<JobId> = recorded.into_iter().collect();
        let answers = leases.iter().map(|(id, token)| {
            let answer = if recorded.contains(id) {
                Answer::Completed
            } else {
                Answer::Lost
            };
            (*id, *token, answer)
        });
        self.reply.answers.extend(answers);
    }
}

/// Splits completions into the arguments of the call.
fn leases_and_outputs(batch: &[UnreportedOutcome]) -> (Vec<(JobId, Token)>, Vec<Option<Json>>) {
    batch
        .iter()
        .map(|outcome| {
            let output = match &outcome.verdict {
                Verdict::Complete(completion) => completion.output.clone(),
                _ => None,
            };
            ((outcome.job_id, outcome.token), output)
        })
        .unzip()
}
