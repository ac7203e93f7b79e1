//! The handler of workflows, and of the jobs that undo their steps.

use super::programme::{Act, Deed, acts, undo_plan};
use super::{UNDO, WORKFLOW};
use crate::journal::Log;
use crate::testbed::now;
use crate::worker::{Page, word};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::SimpleQueryMessage;
use trax_client::{Address, Children, Context, HandlerResult, JobError, JobOptions, NewJob, Undo};

/// The time limit of the transaction of a step.
const DEADLINE: Duration = Duration::from_secs(10);

type Ctx = Context<Arc<Log>>;

/// Executes the programme of the input. Its output has the result of each step as this attempt got
/// it: recorded now, or kept from an earlier attempt.
pub(crate) async fn execute(input: Value, ctx: Ctx) -> HandlerResult<Value> {
    let mut page = Page::begin(&input, &ctx);
    let text = |name: &str| input.get(name).and_then(Value::as_str).unwrap_or("");
    let flow = Flow {
        nonce: text("nonce"),
        ctx: &ctx,
    };
    let acts = acts(text("plan"));
    let done = async {
        let mut results = Vec::new();
        for act in &acts {
            match act.deed {
                Deed::Slip(attempts) if ctx.attempt() <= attempts => {
                    return Err((JobError::new("as the programme says"), "failed"));
                }
                Deed::Fail => {
                    return Err((JobError::permanent("as the programme says"), "failed"));
                }
                Deed::Slip(_) => {}
                _ => results.push(flow.act(act).await.map_err(|error| (error, "released"))?),
            }
        }
        Ok(Value::from(results))
    };
    tokio::select! {
        done = done => {
            page.word = done.as_ref().err().map_or("ok", |(_, word)| word);
            done.map_err(|(error, _)| error)
        }
        reason = ctx.cancelled() => {
            page.word = word(Some(reason));
            Err(JobError::new("stopped"))
        }
    }
}

struct Flow<'job> {
    nonce: &'job str,
    ctx: &'job Ctx,
}

impl Flow<'_> {
    /// Executes an act that records a step; returns the step's result.
    async fn act(&self, act: &Act) -> HandlerResult<Value> {
        let (ctx, step) = (self.ctx, act.name());
        match &act.deed {
            Deed::Row { undo } => {
                let row = self.row(step, undo.then(|| self.undo_of(step)));
                tokio::time::timeout(DEADLINE, row).await?
            }
            Deed::Note { undo } => {
                let work = move || async move {
                    ctx.state()
                        .work(ctx.job_id().0, ctx.attempt(), self.nonce, step);
                    Ok::<_, JobError>(Value::from(self.unique()))
                };
                if *undo {
                    let undo = Undo::new(UNDO, self.undo_of(step))?;
                    ctx.step_with_undo(step, undo, work).await
                } else {
                    ctx.step(step, work).await
                }
            }
            Deed::Sleep(time) => ctx.sleep(step, *time).await.map(Value::from),
            Deed::Signal(_, within) => {
                let received: Option<Value> = ctx.signal(step, *within).await?;
                Ok(received.unwrap_or(Value::Null))
            }
            Deed::Child(plan) => {
                let input = json!({"nonce": format!("{}/{step}", self.nonce), "plan": plan});
                let group = ctx.group().unwrap_or("default");
                let options = JobOptions::new().group(group).max_retries(30);
                let child = NewJob::new(WORKFLOW, input).with(options);
                Ok(Value::from(ctx.spawn(step, &child).await?.0))
            }
            Deed::Children { any, within } => {
                let mode = if *any { Children::Any } else { Children::All };
                let (ended, children) = ctx.children_within(mode, *within).await?;
                let states: Vec<_> = children.into_iter().map(|child| child.state).collect();
                Ok(json!([ended, states]))
            }
            Deed::Slip(_) | Deed::Fail => Ok(Value::Null),
        }
    }

    /// A result that no other execution has.
    fn unique(&self) -> String {
        format!("{}.{}", self.ctx.attempt(), now())
    }

    fn undo_of(&self, step: &str) -> Value {
        let nonce = format!("undo-{}/{step}", self.nonce);
        json!({"nonce": nonce, "of": step, "plan": undo_plan(step)})
    }

    /// Records a step and writes its row in one transaction, which may stay open or lose its
    /// session.
    async fn row(&self, step: &str, undo: Option<Value>) -> HandlerResult<Value> {
        let ctx = self.ctx;
        let address = match ctx.database() {
            Some(address) => address.clone(),
            None => std::env::var("CHAOS_URL")?.parse::<Address>()?,
        };
        let db = address.connect().await?;
        let (job, attempt, chance) = (ctx.job_id().0, ctx.attempt(), now().unsigned_abs());
        let (output, nonce) = (Value::from(self.unique()), self.nonce);
        let undo = undo.map(|undo| json!({"task": UNDO, "input": undo}));
        let undo = undo.map_or(String::new(), |undo| format!(", undo => '{undo}'"));
        let record = format!(
            "select recorded, output from trax.record_step({job}, '{}', '{step}', '{output}'{undo})",
            ctx.token()
        );
        let row = format!(
            "insert into public.deed (job_id, nonce, step, attempt) select {job}, '{nonce}', '{step}', {attempt}"
        );
        let is_row_first = chance.is_multiple_of(2);
        db.simple_query("begin").await?;
        let messages = match is_row_first {
            true => {
                db.simple_query(&row).await?;
                db.simple_query(&record).await?
            }
            false => {
                let both = format!(
                    "with kept as ({record}), written as ({row} from kept where recorded)
                     select recorded, output from kept"
                );
                db.simple_query(&both).await?
            }
        };
        let kept = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some((row.get(0) == Some("t"), row.get(1)?.to_owned())),
            _ => None,
        });
        let Some((recorded, output)) = kept else {
            return Err(JobError::new("the lease is lost"));
        };
        if chance.is_multiple_of(5) {
            tokio::time::sleep(Duration::from_millis(chance % 1_500)).await;
        }
        if chance.is_multiple_of(17) {
            return Err(JobError::new("its session is gone"));
        }
        let end = if is_row_first && !recorded {
            "rollback"
        } else {
            "commit"
        };
        db.simple_query(end).await?;
        Ok(serde_json::from_str(&output)?)
    }
}
