//! The methods of a context that record steps and wait.

use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Context;
use super::outcome::{HandlerResult, JobError};
use super::steps::Call;
use crate::id::JobId;
use crate::job::NewJob;
use crate::json::Json;
use crate::workflow::{Child, Children, Undo, Waited};

impl<S> Context<S> {
    /// Runs `work` once in the life of the job and records its result under `name`. A later attempt
    /// gets the recorded result, and does not run it.
    ///
    /// The result is recorded after the work, so a worker that dies in between runs it again. Work
    /// that writes to this database is exact if it calls
    /// [`Client::record_step`](crate::Client::record_step) in its own transaction instead.
    ///
    /// A name that is used twice in an attempt is recorded as `name#2` the second time.
    ///
    /// ```no_run
    /// # use trax_client::{Context, HandlerResult};
    /// # async fn charge(card: String) -> HandlerResult<u64> { Ok(7) }
    /// # async fn mail(text: String) -> HandlerResult<()> { Ok(()) }
    /// use std::time::Duration;
    ///
    /// async fn sign_up(card: String, ctx: Context) -> HandlerResult<()> {
    ///     ctx.step("welcome", || mail("Welcome".to_owned())).await?;
    ///     ctx.sleep("trial", Duration::from_secs(3 * 86_400)).await?;
    ///     let charge: u64 = ctx.step("charge", || charge(card)).await?;
    ///     ctx.step("receipt", || mail(format!("Charge {charge}"))).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// Those of the work, which is not recorded then; and when the lease is lost, or the result
    /// cannot be recorded.
    pub async fn step<T, F, Fut, E>(&self, name: &str, work: F) -> HandlerResult<T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<JobError>,
    {
        self.recorded(name, None, work).await
    }

    /// Does the same as [`step`](Self::step), and names the job that undoes the step if this job
    /// fails for good or is cancelled.
    pub async fn step_with_undo<T, F, Fut, E>(
        &self,
        name: &str,
        undo: Undo,
        work: F,
    ) -> HandlerResult<T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<JobError>,
    {
        self.recorded(name, Some(undo), work).await
    }

    async fn recorded<T, F, Fut, E>(
        &self,
        name: &str,
        undo: Option<Undo>,
        work: F,
    ) -> HandlerResult<T>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
        E: Into<JobError>,
    {
        let step = self.steps.name(name);
        if let Some(kept) = self.steps.kept(&step).await? {
            return Ok(kept.read()?);
        }
        let output = Json::of(&work().await.map_err(Into::into)?)?;
        let recorded = self
            .steps
            .call(|reply| Call::Record(step.clone(), output.clone(), undo.clone(), reply))
            .await?;
        match recorded {
            Some(recorded) => Ok(recorded.output.read()?),
            None => Err(lost()),
        }
    }

    /// Suspends the job for a time, by the server's clock: this attempt ends here without being
    /// used up, and the next one continues from its top, behind this call. The call returns when
    /// the time is over.
    ///
    /// # Errors
    /// When the lease is lost, or the server refuses the call.
    pub async fn sleep(&self, name: &str, time: Duration) -> HandlerResult<()> {
        let step = self.steps.name(name);
        let waited = self
            .steps
            .call(|reply| Call::Sleep(step.clone(), time, reply));
        self.over(waited.await?).await.map(|_| ())
    }

    /// Takes the next signal of a name, and suspends the job until there is one. Returns `None`
    /// when the time was up before.
    ///
    /// # Errors
    /// When the lease is lost, the server refuses the call, or the payload does not fit the type.
    pub async fn signal<T: DeserializeOwned>(
        &self,
        name: &str,
        timeout: Option<Duration>,
    ) -> HandlerResult<Option<T>> {
        let step = self.steps.name(name);
        let waited = self
            .steps
            .call(|reply| Call::Signal(step.clone(), name.to_owned(), timeout, reply));
        match self.over(waited.await?).await? {
            (true, payload) => Ok(Some(payload.read()?)),
            (false, _) => Ok(None),
        }
    }

    /// Queues a child of this job, once, and returns its id; a later attempt gets the id of the
    /// same child.
    ///
    /// # Errors
    /// When the lease is lost, or the server refuses the child.
    pub async fn spawn<T: Serialize>(&self, name: &str, child: &NewJob<T>) -> HandlerResult<JobId> {
        let step = self.steps.name(name);
        let child = NewJob {
            task: child.task.clone(),
            input: Json::of(&child.input)?,
            options: child.options.clone(),
        };
        let id = self
            .steps
            .call(|reply| Call::Spawn(step.clone(), child.clone(), reply))
            .await?;
        id.ok_or_else(lost)
    }

    /// Suspends the job until the children that it has spawned have ended, and returns them as they
    /// ended.
    ///
    /// # Errors
    /// When the lease is lost, or the server refuses the call.
    pub async fn children(&self, children: Children) -> HandlerResult<Vec<Child>> {
        let (_, children) = self.children_within(children, None).await?;
        Ok(children)
    }

    /// Does the same for a time at most. Returns whether they have ended, and the children as they
    /// are then.
    ///
    /// # Errors
    /// When the lease is lost, or the server refuses the call.
    pub async fn children_within(
        &self,
        children: Children,
        timeout: Option<Duration>,
    ) -> HandlerResult<(bool, Vec<Child>)> {
        let step = self.steps.name("children");
        let waited = self
            .steps
            .call(|reply| Call::Children(step.clone(), children, timeout, reply));
        self.over(waited.await?).await
    }

    /// Returns the end of a wait: whether what it waited for has come, and the value.
    async fn over<T>(&self, waited: Waited<T>) -> HandlerResult<(bool, T)> {
        match waited {
            Waited::Over(value) => Ok((true, value)),
            Waited::TimedOut(value) => Ok((false, value)),
            Waited::Suspended => self.steps.suspend().await,
            Waited::Lost => Err(lost()),
        }
    }
}

/// The server discards the outcome of such an attempt.
fn lost() -> JobError {
    JobError::new("the lease is lost")
}
