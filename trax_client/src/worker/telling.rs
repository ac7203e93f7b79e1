//! Telling outcomes to the server, until each is recorded or refused for what it says.
//!
//! Completions go together, everything else and what is told *again* one by one. An outcome is told
//! again when the connection broke, when the server had no time, no lock or no room for it, and
//! when nobody answered; one that had arrived before answers "lost" then, and changes nothing. What
//! stands in the way of one outcome is found by telling one by one what was refused together, and
//! ever fewer at once when the connection broke or nobody answered. One that breaks the connection
//! by itself again and again ends as failed.

use std::collections::{HashSet, VecDeque};

use tokio_postgres::GenericClient;

use super::event::{Event, Events, brief};
use super::link::{BATCH, Calling, Reply};
use super::outcome::Verdict;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Blame, Error, Result};
use crate::id::{JobId, Token};
use crate::job::{ClaimOptions, Claimed, Failed, Failure};
use crate::json::Json;

/// The most text of the completions of one call: a slow network takes it in time.
const BATCH_BYTES: usize = 4 << 20;
/// After so many outcomes in a row of an exchange that the server had no time for, the rest is told
/// later.
const ENOUGH: usize = 2;
/// So often may one outcome alone end the connection, or if it is large be unanswered, before it
/// ends as failed.
const BREAKS_AT_MOST: u32 = 5;

/// An ended attempt that the server does not know of yet.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) job_id: JobId,
    pub(crate) token: Token,
    pub(crate) verdict: Verdict,
    /// It was told in vain: now it is told by itself, and waits for no lock that lasts.
    pub(super) again: bool,
    /// How often the connection ended while it was told by itself.
    breaks: u32,
}

impl Settled {
    pub(crate) fn new(job_id: JobId, token: Token, verdict: Verdict) -> Self {
        Settled {
            job_id,
            token,
            verdict,
            again: false,
            breaks: 0,
        }
    }

    fn is_single(&self) -> bool {
        self.again || !matches!(self.verdict, Verdict::Complete(_))
    }

    /// How much of it is sent.
    fn size(&self) -> usize {
        let of = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.text().len());
        match &self.verdict {
            Verdict::Complete(output) => of(output),
            Verdict::Fail(failure) => failure.error.len() + of(&failure.detail),
            Verdict::CancelOwn(reason) => reason.len(),
            Verdict::Recorded | Verdict::Release(_) | Verdict::AcknowledgeCancel => 0,
        }
    }
}

/// What the server made of an outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Completed,
    Retrying,
    Dead,
    Cancelled,
    Released,
    Lost,
    Untold,
}

/// Telling the outcomes of one exchange: those of `reply.untold` become answers, or come `later`.
/// An error is one of the connection.
pub(crate) struct Telling<'a> {
    pub(super) call: Calling<'a>,
    /// For what is told again.
    pub(super) again: Calling<'a>,
    pub(super) events: &'a Events,
    /// How many completions go into one call.
    pub(super) batch: &'a mut usize,
    pub(super) reply: &'a mut Reply,
    pub(super) hindrance: &'a mut Option<Error>,
}

impl Telling<'_> {
    /// What is told one by one.
    pub(crate) async fn singles(&mut self) -> Result<()> {
        let untold = std::mem::take(&mut self.reply.untold);
        let (singles, together) = untold.into_iter().partition(Settled::is_single);
        self.reply.untold = together;
        self.each(singles).await.map(|_| ())
    }

    /// All completions together with the claim, if they fit and nothing stands in the way.
    pub(crate) async fn completions_and_claim(
        &mut self,
        options: &ClaimOptions,
    ) -> Result<Option<(Moment, Vec<Claimed>)>> {
        let chunk = self.chunk();
        if chunk.is_empty() || !self.reply.untold.is_empty() {
            self.reply.untold.splice(0..0, chunk);
            return Ok(None);
        }
        let (leases, outputs) = parts(&chunk);
        let sent = Moment::now();
        let client = self.call.client();
        let call = client.complete_and_claim(&leases, outputs, options);
        match self.call.bounded(call).await {
            Ok((recorded, claimed)) => {
                self.answer(&leases, recorded);
                return Ok(Some((sent, claimed)));
            }
            Err(error) => self.apart(chunk, error).await?,
        }
        Ok(None)
    }

    /// Completions in batches.
    pub(crate) async fn completions(&mut self) -> Result<()> {
        loop {
            let chunk = self.chunk();
            if chunk.is_empty() {
                return Ok(());
            }
            let (leases, outputs) = parts(&chunk);
            let client = self.call.client();
            let call = client.complete_many(&leases, outputs);
            match self.call.bounded(call).await {
                Ok(recorded) => {
                    self.answer(&leases, recorded);
                    *self.batch = (*self.batch * 2).min(BATCH);
                }
                Err(error) => self.apart(chunk, error).await?,
            }
        }
    }

    /// After a call that told several in vain: one by one they say which of them it was. When that
    /// is not found soon the rest is told later.
    async fn apart(&mut self, mut chunk: Vec<Settled>, error: Error) -> Result<()> {
        match error.blame() {
            Blame::Connection => return Err(self.broken(chunk, error)),
            Blame::Moment => {
                *self.batch = (chunk.len() / 2).max(1);
                chunk.iter_mut().for_each(|settled| settled.again = true);
            }
            Blame::Call => {}
        }
        if !self.each(chunk).await? {
            let untried = std::mem::take(&mut self.reply.untold);
            self.reply.later.splice(0..0, untried);
        }
        Ok(())
    }

    /// One by one; false when the server had no time for several and the rest comes later, before
    /// those.
    async fn each(&mut self, all: Vec<Settled>) -> Result<bool> {
        let (mut left, mut failures) = (VecDeque::from(all), 0);
        while let Some(settled) = left.pop_front() {
            match self.one(settled, failures > 0).await {
                Ok(true) => {}
                Ok(false) => failures += 1,
                Err(error) => {
                    self.reply.untold.splice(0..0, left);
                    return Err(error);
                }
            }
            if failures == ENOUGH {
                self.reply.later.splice(0..0, left);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// False when the server had no time for it, as it had none for one before if it is `hasty`.
    async fn one(&mut self, mut settled: Settled, hasty: bool) -> Result<bool> {
        let call = match settled.again || hasty {
            true => self.again,
            false => self.call,
        };
        let client = call.client();
        match call.bounded(tell(&client, self.events, &settled)).await {
            Ok(answer) => {
                let (job_id, token) = (settled.job_id, settled.token);
                self.reply.answers.push((job_id, token, answer));
                Ok(true)
            }
            Err(error) if error.blame() == Blame::Connection => {
                Err(self.broken(vec![settled], error))
            }
            Err(error) => {
                settled.again = true;
                self.reply.later.push(settled);
                *self.hindrance = Some(error);
                Ok(false)
            }
        }
    }

    /// The connection ended, or nobody answered, while these were told.
    fn broken(&mut self, mut chunk: Vec<Settled>, error: Error) -> Error {
        *self.batch = (chunk.len() / 2).max(1);
        let unanswered = error.is_unanswered();
        if !unanswered && chunk.len() > 1 {
            self.reply.untold.extend(chunk);
            return error;
        }
        chunk.iter_mut().for_each(|settled| settled.again = true);
        if let [settled] = &mut chunk[..]
            && (!unanswered || settled.size() > BATCH_BYTES)
        {
            settled.breaks += 1;
            if settled.breaks == BREAKS_AT_MOST {
                self.give_up(settled, &error);
            }
        }
        // One for which even the failure in its place could not be told is let go.
        let is_told = |settled: &Settled| settled.breaks < 2 * BREAKS_AT_MOST;
        let (later, gone): (Vec<_>, Vec<_>) = chunk.into_iter().partition(is_told);
        self.reply.later.extend(later);
        let gone = gone.iter().map(|s| (s.job_id, s.token, Answer::Untold));
        self.reply.answers.extend(gone);
        error
    }

    /// Makes it a failure that says why.
    fn give_up(&self, settled: &mut Settled, error: &Error) {
        let why = format!(
            "the {} bytes of the outcome ended the connection {BREAKS_AT_MOST} times: {error}",
            settled.size()
        );
        let failure = refused(&settled.verdict, &why);
        let error = match &settled.verdict {
            Verdict::Fail(_) => format!("{}; {why}", brief(&failure.error)),
            _ => failure.error,
        };
        settled.verdict = Verdict::Fail(Failure { error, ..failure });
        self.events.tell(Event::Refused {
            job_id: settled.job_id,
            error: why,
        });
    }

    /// Takes the completions of one call.
    fn chunk(&mut self) -> Vec<Settled> {
        let mut bytes = 0;
        let fits = |settled: &&Settled| {
            bytes += settled.size();
            bytes <= BATCH_BYTES
        };
        let untold = &mut self.reply.untold;
        let some = untold.iter().take(*self.batch).take_while(fits).count();
        untold.drain(..some.max(1).min(untold.len())).collect()
    }

    /// Those of `leases` that are not among the recorded were lost.
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

/// Of completions alone.
fn parts(chunk: &[Settled]) -> (Vec<(JobId, Token)>, Vec<Option<Json>>) {
    chunk
        .iter()
        .map(|settled| {
            let output = match &settled.verdict {
                Verdict::Complete(output) => output.clone(),
                _ => None,
            };
            ((settled.job_id, settled.token), output)
        })
        .unzip()
}

/// The failure in the place of an outcome that cannot be recorded.
fn refused(verdict: &Verdict, why: &str) -> Failure {
    match verdict {
        // What it asked for stays: never again, or when.
        Verdict::Fail(failure) => Failure {
            error: failure.error.replace('\0', "\u{fffd}"),
            detail: None,
            ..failure.clone()
        },
        _ => Failure::new(format!("the outcome was refused: {why}")),
    }
}

/// Tells one outcome. A refusal becomes a failed attempt, so that the job does not hang on it.
pub(crate) async fn tell<C: GenericClient + Sync>(
    client: &Client<'_, C>,
    events: &Events,
    settled: &Settled,
) -> Result<Answer> {
    let (job_id, token) = (settled.job_id, settled.token);
    let error = match told(client, settled).await {
        Err(error) if error.is_of_the_values() => error.to_string(),
        answer => return answer,
    };
    events.tell(Event::Refused {
        job_id,
        error: error.clone(),
    });
    let failure = refused(&settled.verdict, &error);
    match client.fail(job_id, token, &failure).await {
        Ok(failed) => Ok(answer_to(failed)),
        Err(error) if error.is_of_the_values() => Ok(Answer::Untold),
        Err(error) => Err(error),
    }
}

async fn told<C: GenericClient + Sync>(
    client: &Client<'_, C>,
    settled: &Settled,
) -> Result<Answer> {
    let (job_id, token) = (settled.job_id, settled.token);
    let (held, answer) = match &settled.verdict {
        Verdict::Complete(output) => (
            client.complete(job_id, token, output).await?,
            Answer::Completed,
        ),
        Verdict::Fail(failure) => {
            return Ok(answer_to(client.fail(job_id, token, failure).await?));
        }
        Verdict::Release(delay) => (
            client.release(job_id, token, delay.map(|d| d.0)).await?,
            Answer::Released,
        ),
        Verdict::AcknowledgeCancel => (
            client.acknowledge_cancel(job_id, token).await?,
            Answer::Cancelled,
        ),
        Verdict::CancelOwn(reason) => (
            client.cancel_own(job_id, token, Some(reason)).await?,
            Answer::Cancelled,
        ),
        Verdict::Recorded => (true, Answer::Completed),
    };
    Ok(if held { answer } else { Answer::Lost })
}

fn answer_to(failed: Failed) -> Answer {
    match failed {
        Failed::Retrying => Answer::Retrying,
        Failed::Dead => Answer::Dead,
        Failed::Lost => Answer::Lost,
    }
}
