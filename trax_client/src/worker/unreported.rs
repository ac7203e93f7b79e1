//! One outcome, from the end of its attempt to the answer of the server.
//!
//! What the server refuses for the content of the outcome it refuses each time
//! (`Error::is_of_the_values`): at the first refusal something else is reported *in its place*. A
//! completion that counts without its output is completed without it, and its detail says what was
//! left out; any other outcome becomes a failure for good, so that finished work does not run
//! again. A failure loses its detail, and then its delay.

use serde_json::json;
use tokio_postgres::GenericClient;

use super::event::{Event, Events, brief};
use super::outcome::{Completion, TIMED_OUT, Verdict};
use crate::client::Client;
use crate::error::Result;
use crate::id::{JobId, Token};
use crate::job::{Failed, Failure};
use crate::json::Json;

/// How many outcomes are reported at most, each in the place of the one before.
const PLACES: usize = 4;

/// An ended attempt that the server does not know of yet.
#[derive(Debug)]
pub(crate) struct UnreportedOutcome {
    pub(crate) job_id: JobId,
    pub(crate) token: Token,
    pub(crate) verdict: Verdict,
    /// Was sent before without success, and is now sent by itself, with a short lock timeout.
    pub(super) again: bool,
    /// How often in a row the connection broke while it was sent by itself, and it may be why.
    pub(super) breaks: u32,
    /// How often in a row no answer came to it alone, and its size may be why.
    pub(super) unanswered: u32,
}

impl UnreportedOutcome {
    pub(crate) fn new(job_id: JobId, token: Token, verdict: Verdict) -> Self {
        UnreportedOutcome {
            job_id,
            token,
            verdict,
            again: false,
            breaks: 0,
            unanswered: 0,
        }
    }

    pub(super) fn is_single(&self) -> bool {
        match &self.verdict {
            Verdict::Complete(completion) => self.again || completion.detail.is_some(),
            _ => true,
        }
    }

    /// Returns the bytes of text that it sends.
    pub(super) fn size(&self) -> usize {
        size(&self.verdict)
    }

    /// Puts something short in its place, for this reason.
    pub(super) fn give_up(&mut self, why: &str) {
        self.verdict = match &self.verdict {
            Verdict::Fail(failure) => Verdict::Fail(Failure {
                error: format!("{}; {why}", brief(&failure.error)),
                detail: None,
                ..failure.clone()
            }),
            other => instead(other, why),
        };
    }
}

/// How the server answered a reported outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Answer {
    Completed,
    Retrying,
    Dead,
    TimedOut,
    Cancelled,
    Released,
    Lost,
    Unreported,
}

/// Reports one outcome. A refusal becomes another outcome, so that the job does not hang.
pub(crate) async fn report<C: GenericClient + Sync>(
    client: &Client<'_, C>,
    events: &Events,
    outcome: &UnreportedOutcome,
) -> Result<Answer> {
    let (job_id, token) = (outcome.job_id, outcome.token);
    let mut in_its_place = None;
    for _ in 0..PLACES {
        let verdict = in_its_place.as_ref().unwrap_or(&outcome.verdict);
        let why = match send(client, job_id, token, verdict).await {
            Err(error) if error.is_of_the_values() => error.to_string(),
            answer => return answer,
        };
        let next = instead(verdict, &why);
        events.emit(Event::Refused { job_id, error: why });
        in_its_place = Some(next);
    }
    Ok(Answer::Unreported)
}

/// Returns what to record in the place of an outcome that is refused.
fn instead(verdict: &Verdict, why: &str) -> Verdict {
    match verdict {
        Verdict::Complete(completion)
            if completion.counts_without && completion.detail.is_none() =>
        {
            Verdict::Complete(Completion::without_output(left_out(verdict, why)))
        }
        // Whether and when to retry stays as the handler asked; if that too is refused, the delay
        // is at fault.
        Verdict::Fail(failure) => {
            let (kept, detail) = match failure.detail {
                Some(_) => (
                    failure.retry_in,
                    Some(json!({ "detail": left_out(verdict, why) })),
                ),
                None => (None, None),
            };
            Verdict::Fail(Failure {
                error: failure.error.replace('\0', "\u{fffd}"),
                detail: detail.map(Json::from),
                retry_in: kept,
                permanent: failure.permanent,
            })
        }
        _ => Verdict::Fail(Failure::new(format!("the outcome was refused: {why}")).permanent()),
    }
}

fn left_out(verdict: &Verdict, why: &str) -> String {
    format!("left out, {} bytes: {}", size(verdict), brief(why))
}

fn size(verdict: &Verdict) -> usize {
    let of = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.text().len());
    match verdict {
        Verdict::Complete(completion) => of(&completion.output) + of(&completion.detail),
        Verdict::Fail(failure) => failure.error.len() + of(&failure.detail),
        Verdict::CancelOwn(reason) => reason.len(),
        Verdict::Recorded
        | Verdict::Release(_)
        | Verdict::AcknowledgeCancel
        | Verdict::TimedOut => 0,
    }
}

async fn send<C: GenericClient + Sync>(
    client: &Client<'_, C>,
    job_id: JobId,
    token: Token,
    verdict: &Verdict,
) -> Result<Answer> {
    let (held, answer) = match verdict {
        Verdict::Complete(Completion { output, detail, .. }) => (
            client.record(job_id, token, output, detail).await?,
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
        Verdict::TimedOut if client.acknowledge_cancel(job_id, token).await? => {
            (true, Answer::TimedOut)
        }
        // By the clock of the server its timeout is not over, or its lease is lost.
        Verdict::TimedOut => {
            let failure = Failure::new(TIMED_OUT);
            return Ok(match client.fail(job_id, token, &failure).await? {
                Failed::Lost => Answer::Lost,
                Failed::Retrying | Failed::Dead => Answer::TimedOut,
            });
        }
        Verdict::CancelOwn(reason) => {
            let reason = reason.replace('\0', "\u{fffd}");
            (
                client.cancel_own(job_id, token, Some(&reason)).await?,
                Answer::Cancelled,
            )
        }
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
