//! The methods of a context that record steps and wait.

use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::context::Context;
use super::outcome::{HandlerResult, JobError};
use super::steps::{Call, check_name};
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
    /// A name that is used twice in an attempt is recorded as `name#2` the second time. Work that
    /// fails, or is dropped, leaves its name to the next use.
    ///
    /// Do not race a wait ([`sleep`](Self::sleep), [`signal`](Self::signal),
    /// [`children`](Self::children)) against work in `select!`, `timeout` or `join!`: a wait that
    /// suspends the job ends the attempt, and the work begins again in the next one.
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
        let step = self.steps.begin(name)?;
        if let Some(undo) = &undo {
            check_name("the task that undoes a step", undo.task())?;
        }
        if let Some(kept) = self.steps.kept(step.step()).await? {
            return read(&step.done(), &kept);
        }
        let result = work().await.map_err(Into::into)?;
        let step = step.done();
        let output = match Json::of(&result) {
            Ok(output) => output,
            Err(error) => {
                let said = format!("the result of step \"{step}\" is not JSON: {error}");
                return Err(self.not_recorded(&step, undo, said).await);
            }
        };
        let recorded = self
            .steps
            .call(|reply| Call::Record(step.clone(), output.clone(), undo.clone(), reply))
            .await;
        match recorded {
            Ok(Some(recorded)) => read(&step, &recorded.output),
            Ok(None) => Err(JobError::lease_lost()),
            // Permanent, as another attempt would do the work again.
            Err(error) if error.is_of_the_values() => {
                let said = format!("the result of step \"{step}\" was refused: {error}");
                Err(self.not_recorded(&step, undo, said).await)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the failure of a step whose work is done and whose result cannot be recorded. With
    /// an undo the job ends here: the step is recorded without a result, so that it is undone.
    async fn not_recorded(&self, step: &str, undo: Option<Undo>, said: String) -> JobError {
        let Some(undo) = undo else {
            return JobError::permanent(said);
        };
        let said = said.replace('\0', "\u{fffd}");
        let fail = |reply| Call::Fail(step.to_owned(), undo.clone(), said.clone(), reply);
        match self.steps.call(fail).await {
            Ok(()) => JobError::permanent(said),
            Err(error) if error.is_of_the_values() => {
                JobError::permanent(format!("{said}; its undo was refused, too: {error}"))
            }
            Err(error) => error.into(),
        }
    }

    /// Suspends the job for a time, at most ten years, by the server's clock: this attempt ends
    /// here without being used up, and the next one continues from its top, behind this call. The
    /// call returns when the time is over.
    ///
    /// # Errors
    /// When the lease is lost, or the server refuses the call.
    pub async fn sleep(&self, name: &str, time: Duration) -> HandlerResult<()> {
        let waited = self.begin_sleep(name, time).await?;
        self.over(waited).await.map(|_| ())
    }

    /// Does the same as [`sleep`](Self::sleep), but returns if the job is suspended: for a handler
    /// that has to end a program, or the like, before it calls [`suspend`](Self::suspend).
    ///
    /// # Errors
    /// When the server refuses the call, or cannot be reached.
    pub async fn begin_sleep(&self, name: &str, time: Duration) -> HandlerResult<Waited<()>> {
        let step = self.steps.begin_wait(name)?.done();
        let waited = self
            .steps
            .call(|reply| Call::Sleep(step.clone(), time, reply));
        Ok(self.begun(waited.await?))
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
        let waited = self.begin_signal(name, name, timeout).await?;
        match self.over(waited).await? {
            (true, payload) => payload.read().map(Some).map_err(|error| {
                JobError::new(format!("the signal \"{name}\" does not fit: {error}"))
            }),
            (false, _) => Ok(None),
        }
    }

    /// Does the same as [`signal`](Self::signal) for a step with a name of its own, but returns if
    /// the job is suspended, as [`begin_sleep`](Self::begin_sleep) does.
    ///
    /// # Errors
    /// When the server refuses the call, or cannot be reached.
    pub async fn begin_signal(
        &self,
        name: &str,
        signal: &str,
        timeout: Option<Duration>,
    ) -> HandlerResult<Waited<Json>> {
        let step = self.steps.begin_wait(name)?.done();
        let waited = self
            .steps
            .call(|reply| Call::Signal(step.clone(), signal.to_owned(), timeout, reply));
        Ok(self.begun(waited.await?))
    }

    /// Ends the handler of a job that [`Waited::Suspended`] reports as suspended. Never returns:
    /// the worker drops the handler.
    pub async fn suspend<T>(&self) -> T {
        self.steps.suspend().await
    }

    /// Returns the same. A suspended job has no lease that a heartbeat could find lost.
    fn begun<T>(&self, waited: Waited<T>) -> Waited<T> {
        if matches!(waited, Waited::Suspended) {
            self.held.remove(self.job_id(), self.token());
        }
        waited
    }

    /// Queues a child of this job, once, and returns its id; a later attempt gets the id of the
    /// same child.
    ///
    /// # Errors
    /// When the lease is lost, or the server refuses the child.
    pub async fn spawn<T: Serialize>(&self, name: &str, child: &NewJob<T>) -> HandlerResult<JobId> {
        let step = self.steps.begin(name)?.done();
        let child = NewJob {
            task: child.task.clone(),
            input: Json::of(&child.input)?,
            options: child.options.clone(),
        };
        let id = self
            .steps
            .call(|reply| Call::Spawn(step.clone(), Box::new(child.clone()), reply))
            .await?;
        id.ok_or_else(JobError::lease_lost)
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
        let waited = self.begin_children("children", children, timeout).await?;
        self.over(waited).await
    }

    /// Does the same for a step with a name of its own, but returns if the job is suspended, as
    /// [`begin_sleep`](Self::begin_sleep) does.
    ///
    /// # Errors
    /// When the server refuses the call, or cannot be reached.
    pub async fn begin_children(
        &self,
        name: &str,
        children: Children,
        timeout: Option<Duration>,
    ) -> HandlerResult<Waited<Vec<Child>>> {
        let step = self.steps.begin_wait(name)?.done();
        let waited = self
            .steps
            .call(|reply| Call::Children(step.clone(), children, timeout, reply));
        Ok(self.begun(waited.await?))
    }

    /// Returns the end of a wait: whether what it waited for has come, and the value.
    async fn over<T>(&self, waited: Waited<T>) -> HandlerResult<(bool, T)> {
        match waited {
            Waited::Over(value) => Ok((true, value)),
            Waited::TimedOut(value) => Ok((false, value)),
            Waited::Suspended => self.suspend().await,
            Waited::Lost => Err(JobError::lease_lost()),
        }
    }
}

/// Converts the result of a step.
fn read<T: DeserializeOwned>(step: &str, output: &Json) -> HandlerResult<T> {
    output.read().map_err(|error| {
        JobError::new(format!(
            "the result of step \"{step}\" does not fit: {error}"
        ))
    })
}
