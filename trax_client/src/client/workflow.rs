//! Steps, waits, signals and children of jobs.

use super::{Client, unknown};
use std::time::Duration;

use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::{ToSql, Type};

use crate::error::Result;
use crate::id::{JobId, Token};
use crate::job::NewJob;
use crate::json::Json;
use crate::reached::reach;
use crate::sql::{Call, Interval};
use crate::workflow::{Child, Children, NewStep, Recorded, RecordedStep, Sent, Undo, Waited};

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Records the result of a step, unless the job has a step of this name, and returns the kept
    /// result. In the transaction of the step's own writes, their effect happens exactly once.
    /// `None` if the lease is lost. A [`Worker`](crate::Worker) of this process takes the step as
    /// reached by the attempt.
    ///
    /// # Errors
    /// If the output cannot be represented as JSON or is too large, or the step is of another kind.
    pub async fn record_step<T: Serialize + ?Sized>(
        &self,
        job_id: JobId,
        token: Token,
        step: &str,
        output: &T,
        undo: Option<&Undo>,
    ) -> Result<Option<Recorded>> {
        reach(token, step);
        let output = Json::of(output)?;
        let undo = undo.map(Undo::document).transpose()?;
        let rows = self
            .work("record_step")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .arg("step", &step)
            .arg("output", &output)
            .option("undo", &undo)
            .rows(self.db, "recorded, output")
            .await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        Ok(Some(Recorded {
            recorded: row.try_get(0)?,
            output: row.try_get::<_, Option<Json>>(1)?.unwrap_or_default(),
        }))
    }

    /// Records steps of any jobs in one transaction; the results are in their order.
    pub(crate) async fn record_steps(
        &self,
        steps: Vec<NewStep<'_>>,
    ) -> Result<Vec<Option<Recorded>>> {
        // Locks of leases are taken in the order of the jobs.
        let sql = "select n.place, s.recorded, s.output \
                   from (select * from unnest($1::bigint[], $2::uuid[], $3::text[], $4::jsonb[], $5::jsonb[]) \
                   with ordinality n (job_id, token, step, output, undo, place) order by n.job_id, n.place offset 0) n \
                   cross join lateral trax.record_step(job_id => n.job_id, token => n.token, step => n.step, \
                   output => n.output, undo => n.undo) s";
        let count = steps.len();
        let mut columns = (vec![], vec![], vec![], vec![], vec![]);
        for step in steps {
            columns.0.push(step.job_id.0);
            columns.1.push(step.token.0);
            columns.2.push(step.step);
            columns.3.push(step.output);
            columns.4.push(step.undo.map(Undo::document).transpose()?);
        }
        let arguments: [(&(dyn ToSql + Sync), Type); 5] = [
            (&columns.0, Type::INT8_ARRAY),
            (&columns.1, Type::UUID_ARRAY),
            (&columns.2, Type::TEXT_ARRAY),
            (&columns.3, Type::JSONB_ARRAY),
            (&columns.4, Type::JSONB_ARRAY),
        ];
        let mut recorded = vec![None; count];
        for row in self.db.query_typed(sql, &arguments).await? {
            let place = row.try_get::<_, i64>(0)? as usize - 1;
            recorded[place] = Some(Recorded {
                recorded: row.try_get(1)?,
                output: row.try_get::<_, Option<Json>>(2)?.unwrap_or_default(),
            });
        }
        Ok(recorded)
    }

    /// Records a step that is done and has no result, and fails its job for good, in one
    /// transaction: no later attempt takes the missing result for one. A lost lease is no error.
    pub(crate) async fn record_and_fail(
        &self,
        job_id: JobId,
        token: Token,
        step: &str,
        undo: &Undo,
        error: &str,
    ) -> Result<()> {
        let sql = "select trax.fail(job_id => $1, token => $2, error => $3, permanent => true) \
                   from trax.record_step(job_id => $1, token => $2, step => $4, undo => $5)";
        let undo = undo.document()?;
        let arguments: [(&(dyn ToSql + Sync), Type); 5] = [
            (&job_id.0, Type::INT8),
            (&token.0, Type::UUID),
            (&error, Type::TEXT),
            (&step, Type::TEXT),
            (&undo, Type::JSONB),
        ];
        self.db.query_typed(sql, &arguments).await?;
        Ok(())
    }

    /// Returns the steps of a job in the order of recording, also of one that has ended.
    pub async fn read_steps(&self, job_id: JobId) -> Result<Vec<RecordedStep>> {
        let rows = Call::new("read_steps")
            .arg("job_id", &job_id.0)
            .rows(
                self.db,
                "step, kind, output, attempt, recorded_at, timed_out",
            )
            .await?;
        rows.iter()
            .map(|row| {
                Ok(RecordedStep {
                    step: row.try_get(0)?,
                    kind: row.try_get(1)?,
                    output: row.try_get(2)?,
                    attempt: row.try_get(3)?,
                    recorded_at: row.try_get(4)?,
                    timed_out: row.try_get(5)?,
                })
            })
            .collect()
    }

    /// Suspends a job for a time, by the server's clock. In a later attempt the same step returns
    /// [`Waited::Over`].
    pub async fn sleep(
        &self,
        job_id: JobId,
        token: Token,
        step: &str,
        time: Duration,
    ) -> Result<Waited<()>> {
        reach(token, step);
        let time = Some(Interval(time));
        let state: String = self
            .work("sleep")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .arg("step", &step)
            .span_from_now("until", &time)
            .value(self.db)
            .await?;
        waited("sleep", &state, ())
    }

    /// Takes the next signal of a name, or suspends the job until one is sent or the time is up. In
    /// a later attempt the same step returns the same answer. A signal without a payload is `null`.
    pub async fn await_signal(
        &self,
        job_id: JobId,
        token: Token,
        step: &str,
        name: &str,
        timeout: Option<Duration>,
    ) -> Result<Waited<Json>> {
        reach(token, step);
        let timeout = timeout.map(Interval);
        let rows = self
            .work("await_signal")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .arg("step", &step)
            .arg("name", &name)
            .span_from_now("until", &timeout)
            .rows(self.db, "state, payload")
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| unknown("await_signal", "nothing"))?;
        let payload = row.try_get::<_, Option<Json>>(1)?.unwrap_or_default();
        waited("await_signal", row.try_get(0)?, payload)
    }

    /// Sends a signal to a job, which keeps it until it takes it. In a transaction, the job has it
    /// when that commits.
    ///
    /// # Errors
    /// If the payload cannot be represented as JSON or is too large.
    pub async fn send_signal<T: Serialize + ?Sized>(
        &self,
        job_id: JobId,
        name: &str,
        payload: &T,
        signal_id: Option<&str>,
    ) -> Result<Sent> {
        let payload = Json::of(payload)?;
        let state: String = Call::new("send_signal")
            .arg("job_id", &job_id.0)
            .arg("name", &name)
            .arg("payload", &payload)
            .option("signal_id", &signal_id)
            .value(self.db)
            .await?;
        match state.as_str() {
            "sent" => Ok(Sent::Sent),
            "duplicate" => Ok(Sent::Duplicate),
            "ended" => Ok(Sent::Ended),
            "unknown" => Ok(Sent::Unknown),
            other => Err(unknown("send_signal", other)),
        }
    }

    /// Queues a child of a job, once for each step, and returns its id; in a later attempt the id
    /// of the same child. `None` if the lease is lost or the job is asked to stop.
    pub async fn spawn<T: Serialize>(
        &self,
        job_id: JobId,
        token: Token,
        step: &str,
        child: &NewJob<T>,
    ) -> Result<Option<JobId>> {
        reach(token, step);
        let input = Json::of(&child.input)?;
        let trace = child.options.trace.clone();
        let call = self
            .work("spawn")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .arg("step", &step)
            .arg("task", &child.task)
            .arg("input", &input);
        let id: Option<i64> = child.options.apply(call, &trace).value(self.db).await?;
        Ok(id.map(JobId))
    }

    /// Suspends a job until the children that it has spawned have ended, or the time is up, and
    /// returns them. In a later attempt the same step returns the same answer.
    pub async fn await_children(
        &self,
        job_id: JobId,
        token: Token,
        step: &str,
        children: Children,
        timeout: Option<Duration>,
    ) -> Result<Waited<Vec<Child>>> {
        reach(token, step);
        let timeout = timeout.map(Interval);
        let mode = children.mode();
        let rows = self
            .work("await_children")
            .arg("job_id", &job_id.0)
            .arg("token", &token.0)
            .arg("step", &step)
            .arg("mode", &mode)
            .span_from_now("until", &timeout)
            .rows(self.db, "state, children")
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| unknown("await_children", "nothing"))?;
        let children: Vec<Child> = match row.try_get::<_, Option<Json>>(1)? {
            Some(children) => children.read()?,
            None => Vec::new(),
        };
        waited("await_children", row.try_get(0)?, children)
    }

    /// Queues a new job like one that has ended, with the steps before `from_step` already
    /// recorded, or all of them, and returns its id.
    ///
    /// # Errors
    /// If the job has not ended, does not exist, or has no such step.
    pub async fn fork(
        &self,
        job_id: JobId,
        from_step: Option<&str>,
        input: Option<Json>,
    ) -> Result<JobId> {
        let id = Call::new("fork")
            .arg("job_id", &job_id.0)
            .option("from_step", &from_step)
            .option("input", &input)
            .value(self.db)
            .await?;
        Ok(JobId(id))
    }
}

fn waited<T>(function: &str, state: &str, value: T) -> Result<Waited<T>> {
    match state {
        "passed" | "received" | "ended" => Ok(Waited::Over(value)),
        "timed_out" => Ok(Waited::TimedOut(value)),
        "suspended" => Ok(Waited::Suspended),
        "lost" => Ok(Waited::Lost),
        other => Err(unknown(function, other)),
    }
}
