//! The result of a handler, and the verdict that the worker reports for it.
//!
//! Input: a handler's result and the reason for which it was asked to stop. Output: a `Verdict` to
//! report to the server. A stop that the job did not cause never uses up an attempt.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::cancellation::Reason;
use super::deadline::LONGEST;
use super::decided::{self, AnyError, Decision};
use crate::job::Failure;
use crate::json::Json;
use crate::note::Note;
use crate::sql::Interval;

/// The outcome of an attempt that did not fail.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Completed; the output is stored in the run.
    Output(Json),
    /// Completed, even if the server refuses the output: it is then left out, and the detail of the
    /// run has the reason.
    Printed(Json),
    /// Completed: the handler has already called `complete` in its own transaction, which has
    /// committed; else the attempt fails.
    Recorded,
    /// Not now: the job waits for this duration, at most ten years, without using up an attempt.
    Snooze(Duration),
    /// No longer needed, for this reason: the job ends as cancelled. No retry and no dead letter
    /// follows.
    Cancelled(String),
}

/// Turns the return value of a handler into an outcome. Every serializable value is an output.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the output of a handler",
    note = "an output implements `serde::Serialize`; `()` and `Outcome` do as well"
)]
pub trait IntoOutcome {
    /// Returns the outcome, or the error if the output cannot be represented as JSON.
    fn into_outcome(self) -> Result<Outcome, serde_json::Error>;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize> IntoOutcome for T {
    fn into_outcome(self) -> Result<Outcome, serde_json::Error> {
        Json::of(&self).map(Outcome::Output)
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Result<Outcome, serde_json::Error> {
        Ok(self)
    }
}

/// The return type of a handler.
pub type HandlerResult<T> = Result<T, JobError>;

/// The failure of an attempt. `?` converts every error to it and keeps the text of all its causes:
/// a `std::error::Error`, `anyhow::Error`, `eyre::Report`, `Box<dyn Error + Send + Sync>`, a
/// `String`. Therefore it is no `std::error::Error` itself, like `anyhow::Error`.
/// [`Decide`](super::Decide) declares the effect of such an error on the job.
#[derive(Clone, Debug)]
pub struct JobError {
    failure: Failure,
    no_failure: Option<NoFailure>,
}

/// The effect of an error that is not a failure.
#[derive(Clone, Debug)]
enum NoFailure {
    Snooze(Duration),
    Cancel,
    Panic,
    LeaseLost,
}

impl JobError {
    /// Returns a failure. The job is retried after its own delay if attempts remain.
    pub fn new(error: impl Into<String>) -> Self {
        JobError {
            failure: Failure::new(error),
            no_failure: None,
        }
    }

    /// Returns a permanent failure: no attempt follows. A handler that was asked to stop has not
    /// decided: its error counts as the end of the stop, and a timeout is retried.
    pub fn permanent(error: impl Into<String>) -> Self {
        JobError {
            failure: Failure::new(error).permanent(),
            no_failure: None,
        }
    }

    /// Postpones the job by this delay, at most ten years, without using up an attempt.
    pub fn snooze(delay: Duration) -> Self {
        JobError {
            failure: Failure::new("snoozed"),
            no_failure: Some(NoFailure::Snooze(delay)),
        }
    }

    /// Cancels the job as no longer needed, for this reason. No retry and no dead letter follows.
    pub fn cancelled(reason: impl Into<String>) -> Self {
        JobError {
            failure: Failure::new(reason),
            no_failure: Some(NoFailure::Cancel),
        }
    }

    /// Returns the failure of a handler that panicked.
    pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("with a value that is not text");
        JobError {
            no_failure: Some(NoFailure::Panic),
            ..JobError::new(format!("panicked: {text}"))
        }
    }

    /// Returns the error of a call that found the lease lost. The server discards the outcome of
    /// such an attempt.
    pub fn lease_lost() -> Self {
        JobError {
            failure: Failure::new("the lease is lost"),
            no_failure: Some(NoFailure::LeaseLost),
        }
    }

    /// Returns whether a call has found the lease lost.
    pub fn is_lease_lost(&self) -> bool {
        matches!(self.no_failure, Some(NoFailure::LeaseLost))
    }

    /// Returns whether no attempt follows, even if attempts remain.
    pub fn is_permanent(&self) -> bool {
        self.failure.permanent == Some(true)
    }

    /// Returns whether the handler, or a middleware around it, panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.no_failure, Some(NoFailure::Panic))
    }

    /// Returns the delay by which the job is postponed without using up an attempt, if it is.
    pub fn snoozes_for(&self) -> Option<Duration> {
        match self.no_failure {
            Some(NoFailure::Snooze(delay)) => Some(delay),
            _ => None,
        }
    }

    /// Sets the delay before the next attempt, at most ten years, instead of the job's own.
    pub fn retry_in(mut self, delay: Duration) -> Self {
        self.failure = self.failure.retry_in(delay.min(LONGEST));
        self
    }

    /// Also closes the rate and the key of the job for the delay of [`retry_in`](Self::retry_in),
    /// as an API asks for with `Retry-After`: nothing of them starts before.
    pub fn close_rate(mut self) -> Self {
        self.failure = self.failure.close_rate();
        self
    }

    /// Adds structured detail, which is stored with the run.
    pub fn detail(mut self, detail: impl Into<Json>) -> Self {
        self.failure = self.failure.detail(detail);
        self
    }
}

/// `JobError` is not an `Error` and does not convert into a box: either would conflict with this
/// implementation.
impl<E: Into<AnyError>> From<E> for JobError {
    fn from(error: E) -> Self {
        let error: AnyError = error.into();
        let (text, decision) = decided::read(error.as_ref());
        match decision {
            None => JobError::new(text),
            Some(Decision::Permanent) => JobError::permanent(text),
            Some(Decision::RetryIn(delay)) => JobError::new(text).retry_in(delay),
            Some(Decision::Snooze(delay)) => JobError {
                failure: Failure::new(text),
                ..JobError::snooze(delay)
            },
            Some(Decision::Cancel) => JobError::cancelled(text),
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.failure.error)
    }
}

/// The result to report to the server for one lease.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Complete(Completion),
    /// The handler says that it has recorded the completion.
    Recorded,
    /// Nothing to report: the server has suspended the job.
    Suspended,
    Fail(Failure),
    Release(Option<Interval>),
    AcknowledgeCancel,
    /// The job ran longer than its timeout, by the clock of this worker or of the server.
    TimedOut,
    CancelOwn(String),
}

/// The error of an attempt that exceeded its timeout, with the same text as the server's.
pub(crate) const TIMED_OUT: &str = "it ran longer than its timeout";

/// The error of an attempt whose handler says wrongly that it has recorded the completion.
pub(crate) const NOT_RECORDED: &str = "the handler returned Outcome::Recorded, but has not completed \
    the job: call complete of a Client in a transaction, and commit it";

/// The error of an attempt whose handler does not say that it has recorded the completion.
pub(crate) const NOT_RETURNED: &str =
    "the handler has completed the job itself: return Outcome::Recorded";

/// A completed attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Completion {
    pub(crate) output: Option<Json>,
    pub(crate) note: Note,
    /// Whether the attempt counts as completed even if the server refuses the output.
    pub(crate) counts_without: bool,
    /// Whether the handler has completed the job itself, in a transaction that may have rolled
    /// back.
    pub(crate) is_noted: bool,
}

impl Completion {
    fn of(output: Json) -> Self {
        Completion {
            output: Some(output).filter(|output| !output.is_null()),
            ..Completion::default()
        }
    }

    /// Returns a completion without output, with the reason.
    pub(crate) fn without_output(why: String) -> Self {
        Completion {
            note: Note {
                output: Some(why),
                ..Note::default()
            },
            ..Completion::default()
        }
    }
}

/// Returns the verdict on a handler that ended by itself.
pub(crate) fn verdict_on(result: HandlerResult<Outcome>, reason: Option<Reason>) -> Verdict {
    match (result, reason) {
        // The handler has completed; the server decides whether the lease is still valid.
        (Ok(Outcome::Output(output)), _) => Verdict::Complete(Completion::of(output)),
        (Ok(Outcome::Printed(output)), _) => Verdict::Complete(Completion {
            counts_without: true,
            ..Completion::of(output)
        }),
        (Ok(Outcome::Recorded), _) => Verdict::Recorded,
        (Ok(Outcome::Snooze(delay)), _) => snoozed(delay),
        (Err(error), _) if error.is_panic() => Verdict::Fail(error.failure),
        (Ok(Outcome::Cancelled(reason)), _) => Verdict::CancelOwn(reason),
        // The handler decided to end the job, so a stop does not change the verdict.
        (
            Err(JobError {
                failure,
                no_failure: Some(NoFailure::Cancel),
            }),
            _,
        ) => Verdict::CancelOwn(failure.error),
        (Err(_), Some(reason)) => verdict_on_stop(reason),
        (
            Err(JobError {
                no_failure: Some(NoFailure::Snooze(delay)),
                ..
            }),
            None,
        ) => snoozed(delay),
        (Err(JobError { failure, .. }), None) => Verdict::Fail(failure),
    }
}

/// The server refuses a longer delay, and the job would end with it.
fn snoozed(delay: Duration) -> Verdict {
    Verdict::Release(Some(Interval(delay.min(LONGEST))))
}

/// Returns the verdict on a handler that gave up, or was dropped, because it was asked to stop.
pub(crate) fn verdict_on_stop(reason: Reason) -> Verdict {
    match reason {
        Reason::Cancelled => Verdict::AcknowledgeCancel,
        Reason::Timeout => Verdict::TimedOut,
        // After a loss of contact the lease may only seem lost, so it is released.
        Reason::LeaseLost | Reason::Shutdown => Verdict::Release(None),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::decided::Decide;
    use super::*;

    #[test]
    fn a_stop_that_is_not_the_jobs_fault_spends_no_attempt() {
        for reason in [Reason::LeaseLost, Reason::Shutdown] {
            let verdict = verdict_on(Err(JobError::new("interrupted")), Some(reason));
            assert!(matches!(verdict, Verdict::Release(None)), "{verdict:?}");
        }
    }

    #[test]
    fn a_panic_is_the_jobs_fault_although_it_was_asked_to_stop() {
        let error = JobError::panicked(&"oops");
        assert!(error.is_panic() && !error.is_permanent());
        let verdict = verdict_on(Err(error), Some(Reason::Shutdown));
        assert!(
            matches!(&verdict, Verdict::Fail(failure) if failure.error == "panicked: oops"),
            "{verdict:?}"
        );
    }

    #[test]
    fn a_cancelled_or_late_handler_acknowledges() {
        let on = |reason| verdict_on(Err(JobError::new("stop")), Some(reason));
        let (cancelled, late) = (on(Reason::Cancelled), on(Reason::Timeout));
        assert!(matches!(cancelled, Verdict::AcknowledgeCancel));
        assert!(matches!(late, Verdict::TimedOut));
    }

    #[test]
    fn a_handler_that_cancels_its_job_is_heard_also_during_a_stop() {
        for reason in [None, Some(Reason::Shutdown), Some(Reason::Cancelled)] {
            for said in [
                Err(JobError::cancelled("gone")),
                Ok(Outcome::Cancelled("gone".to_owned())),
            ] {
                let verdict = verdict_on(said, reason);
                assert!(matches!(&verdict, Verdict::CancelOwn(why) if why == "gone"));
            }
        }
    }

    #[test]
    fn an_output_counts_although_a_cancel_was_requested() {
        let verdict = verdict_on(
            Ok(Outcome::Output(Value::from(1).into())),
            Some(Reason::Cancelled),
        );
        assert!(matches!(verdict, Verdict::Complete(done) if done.output.is_some()));
    }

    #[test]
    fn a_delay_without_end_is_ten_years() {
        for snoozed in [
            Err(JobError::snooze(Duration::MAX)),
            Ok(Outcome::Snooze(Duration::MAX)),
        ] {
            let verdict = verdict_on(snoozed, None);
            assert!(
                matches!(verdict, Verdict::Release(Some(delay)) if delay.0 == LONGEST),
                "{verdict:?}"
            );
        }
        let later = Err::<(), _>("later").retry_in(Duration::MAX);
        assert_eq!(said(later.expect_err("it fails")).2, Some(LONGEST));
    }

    fn said(error: impl Into<JobError>) -> (String, bool, Option<Duration>, Option<Duration>) {
        let error: JobError = error.into();
        (
            error.to_string(),
            error.is_permanent(),
            error.failure.retry_in.map(|delay| delay.0),
            error.snoozes_for(),
        )
    }

    #[test]
    fn an_error_of_any_type_carries_its_causes() {
        fn parse() -> HandlerResult<i32> {
            Ok("x".parse::<i32>()?)
        }
        fn boxed() -> Result<i32, AnyError> {
            Ok("x".parse::<i32>()?)
        }
        fn any() -> anyhow::Result<i32> {
            anyhow::Context::context("x".parse::<i32>(), "the month")
        }
        fn report() -> eyre::Result<i32> {
            eyre::WrapErr::wrap_err("x".parse::<i32>(), "the month")
        }
        fn passed_on(by: impl FnOnce() -> anyhow::Result<i32>) -> HandlerResult<i32> {
            Ok(by()?)
        }
        let digit = "invalid digit found in string";
        assert!(parse().is_err_and(|error| error.to_string() == digit));
        assert!(boxed().is_err_and(|error| said(error).0 == digit));
        let month = format!("the month: {digit}");
        assert!(any().is_err_and(|error| said(error).0 == month));
        assert!(report().is_err_and(|error| said(error).0 == month));
        assert!(passed_on(any).is_err_and(|error| error.to_string() == month));
        assert_eq!(said("plain"), ("plain".to_owned(), false, None, None));
        assert_eq!(said(format!("{}", 7)).0, "7");
    }

    #[test]
    fn what_an_error_means_is_found_in_every_type_of_error() {
        let broken = || "x".parse::<i32>();
        let digit = "invalid digit found in string".to_owned();
        let minute = Duration::from_secs(60);
        fn to_any<E>(result: Result<i32, E>) -> anyhow::Error
        where
            anyhow::Error: From<E>,
        {
            result.map_err(anyhow::Error::from).expect_err("it fails")
        }
        let plain = broken().permanent().expect_err("it fails");
        assert_eq!(said(plain), (digit.clone(), true, None, None));
        let any = to_any(broken().permanent());
        assert_eq!(said(any), (digit.clone(), true, None, None));
        let any = to_any(broken().retry_in(minute)).context("the month");
        let text = format!("the month: {digit}");
        assert_eq!(said(any), (text, false, Some(minute), None));
        let report = eyre::Report::from(broken().snooze(minute).expect_err("it fails"));
        assert_eq!(said(report), (digit.clone(), false, None, Some(minute)));
        // The outermost decision applies.
        let twice = broken().permanent().retry_in(minute);
        let twice = twice.expect_err("it fails");
        assert_eq!(twice.to_string(), digit);
        assert_eq!(said(twice), (digit, false, Some(minute), None));
        let gone: Result<(), _> = Err("gone").cancel();
        let verdict = verdict_on(Err(gone.expect_err("it fails").into()), None);
        assert!(matches!(&verdict, Verdict::CancelOwn(why) if why == "gone"));
    }
}
