//! An outcome, from the end of its attempt to the server's answer.
//!
//! An outcome that the server refuses for its content would be refused each time
//! (`Error::is_of_the_values`), so at the first refusal a replacement is reported. A completion
//! that counts without its output is recorded without it, and its detail names the missing part.
//! Any other completion becomes a permanent failure, so that finished work does not run again. A
//! failure loses its detail, and at the second refusal its delay.

use serde_json::json;
use tokio_postgres::GenericClient;

use super::event::{Event, Events, brief};
use super::outcome::{Completion, NOT_RECORDED, NOT_RETURNED, TIMED_OUT, Verdict};
use crate::client::Client;
use crate::error::Result;
use crate::id::{JobId, Token};
use crate::job::{Failed, Failure};
use crate::json::Json;

/// The maximum number of outcomes reported for an attempt, each replacing the previous one.
const PLACES: usize = 4;

/// An ended attempt that the server does not know of yet.
#[derive(Debug)]
pub(crate) struct UnreportedOutcome {
    pub(crate) job_id: JobId,
    pub(crate) token: Token,
    pub(crate) verdict: Verdict,
    /// The outcome was sent before without success, and is now sent alone with a short lock
    /// timeout.
    pub(super) again: bool,
    /// The number of consecutive times that the connection broke, perhaps because of this outcome,
    /// while it was sent alone.
    pub(super) breaks: u32,
    /// The number of consecutive times that no answer arrived, perhaps because of its size, while
    /// it was sent alone.
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
            Verdict::Complete(completion) => {
                self.again || completion.is_noted || !completion.note.is_empty()
            }
            _ => true,
        }
    }

    /// Returns the size of its text in bytes.
    pub(super) fn size(&self) -> usize {
        size(&self.verdict)
    }

    /// Replaces the outcome with a short one that has this reason.
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

/// The server's answer to a reported outcome.
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

/// Reports an outcome. A refused outcome is replaced, so that its job does not hang.
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
            Ok(answer) => {
                let (answer, wrong) = checked(verdict, answer);
                if let Some(error) = wrong.map(str::to_owned) {
                    events.emit(Event::Refused { job_id, error });
                }
                return Ok(answer);
            }
            Err(error) => return Err(error),
        };
        let next = match &in_its_place {
            Some(Verdict::Fail(failure)) => Verdict::Fail(undelayed(failure)),
            _ => instead(verdict, &why),
        };
        events.emit(Event::Refused { job_id, error: why });
        in_its_place = Some(next);
    }
    Ok(Answer::Unreported)
}

/// Returns the answer, and the error of a handler that says wrongly who records the completion.
fn checked(verdict: &Verdict, answer: Answer) -> (Answer, Option<&'static str>) {
    match (verdict, answer) {
        (Verdict::Recorded, Answer::Completed) => (answer, None),
        (Verdict::Recorded, _) => (answer, Some(NOT_RECORDED)),
        (Verdict::Complete(Completion { is_noted: true, .. }), Answer::Lost) => {
            (Answer::Completed, Some(NOT_RETURNED))
        }
        _ => (answer, None),
    }
}

/// Returns the replacement for a refused outcome.
fn instead(verdict: &Verdict, why: &str) -> Verdict {
    match verdict {
        Verdict::Complete(completion)
            if completion.counts_without && completion.note.output.is_none() =>
        {
            Verdict::Complete(Completion::without_output(left_out(verdict, why)))
        }
        // The retry stays as the handler requested.
        Verdict::Fail(failure) => {
            let (kept, closes, detail) = match failure.detail {
                Some(_) => (
                    failure.retry_in,
                    failure.close_rate,
                    Some(json!({ "detail": left_out(verdict, why) })),
                ),
                None => (None, None, None),
            };
            Verdict::Fail(Failure {
                error: failure.error.replace('\0', "\u{fffd}"),
                detail: detail.map(Json::from),
                retry_in: kept,
                permanent: failure.permanent,
                close_rate: closes,
            })
        }
        _ => Verdict::Fail(Failure::new(format!("the outcome was refused: {why}")).permanent()),
    }
}

/// Returns a replacement whose delay, the cause if it was refused too, is left out.
fn undelayed(failure: &Failure) -> Failure {
    Failure {
        retry_in: None,
        close_rate: None,
        ..failure.clone()
    }
}

fn left_out(verdict: &Verdict, why: &str) -> String {
    format!("left out, {} bytes: {}", size(verdict), brief(why))
}

fn size(verdict: &Verdict) -> usize {
    let of = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.text().len());
    match verdict {
        Verdict::Complete(completion) => of(&completion.output) + of(&completion.note.json()),
        Verdict::Fail(failure) => failure.error.len() + of(&failure.detail),
        Verdict::CancelOwn(reason) => reason.len(),
        Verdict::Recorded
        | Verdict::Suspended
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
        Verdict::Complete(Completion { output, note, .. }) => (
            client.record(job_id, token, output, note).await?,
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
        // By the server's clock the timeout is not over, or the lease is lost.
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
        Verdict::Recorded => {
            let failure = Failure::new(NOT_RECORDED);
            return Ok(match client.fail(job_id, token, &failure).await? {
                Failed::Lost => Answer::Completed,
                failed => answer_to(failed),
            });
        }
        Verdict::Suspended => (true, Answer::Released),
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
