//! The claim connection: outcomes go out, jobs come in.
//!
//! One *exchange* tells the server the gathered outcomes and then claims; completions and the claim
//! are one call. The connection also listens for work while it is idle. Enters: settled leases and
//! how many jobs are wanted. Leaves: an answer for every outcome, and claimed jobs. An outcome that
//! could not be told because the connection broke is told again after reconnecting: an outcome that
//! had arrived before answers "lost" then, and changes nothing.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tokio_postgres::{Client as Connection, GenericClient};

use super::connection::{Backoff, Notices, open_listening};
use super::event::{Event, Events};
use super::health::{Health, Part};
use super::outcome::Verdict;
use super::shutdown::{Phase, Shutdown};
use super::turns::{Ask, Turns};
use crate::address::Address;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::id::{JobId, Token};
use crate::job::{ClaimOptions, Claimed, Failed, Failure};
use crate::json::Json;
use crate::manifest::Manifest;

/// The most jobs of one claim, and completions of one call.
pub(crate) const BATCH: usize = 1000;
const RECONNECT_CAP: Duration = Duration::from_secs(10);

/// An ended attempt that the server does not know of yet.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) job_id: JobId,
    pub(crate) token: Token,
    pub(crate) verdict: Verdict,
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

/// What an exchange brought.
#[derive(Default)]
pub(crate) struct Reply {
    pub(crate) answers: Vec<(JobId, Token, Answer)>,
    pub(crate) claimed: Vec<Claimed>,
    /// Whether more may wait than the claim brought.
    pub(crate) more: bool,
    /// When the claim was sent: leases count from before it.
    pub(crate) sent: Option<Instant>,
    /// What a connection hears that was opened meanwhile.
    pub(crate) notices: Option<Notices>,
}

impl Reply {
    fn take(&mut self, sent: Instant, claimed: Vec<Claimed>, more: bool) {
        self.sent = Some(sent);
        self.claimed = claimed;
        self.more = more;
    }
}

pub(crate) struct Link {
    pub(crate) address: Address,
    pub(crate) options: ClaimOptions,
    pub(crate) turns: Option<Turns>,
    pub(crate) events: Events,
    pub(crate) shutdown: Shutdown,
    pub(crate) health: Health,
    pub(crate) connection: Option<Connection>,
    /// False until the first claim succeeded: till then a refusal ends the run.
    pub(crate) proven: bool,
    /// What is done once, before the first claim.
    pub(crate) first: Option<First>,
}

/// What a worker does once, when it first reaches the server.
pub(crate) struct First {
    pub(crate) schedules: Vec<Manifest>,
}

impl Link {
    /// Tells all of `outbox` and claims up to `want` jobs; keeps trying until both are done, or
    /// until a stop makes the claim pointless. With nothing to do it only mends a broken connection.
    pub(crate) async fn exchange(
        &mut self,
        mut outbox: Vec<Settled>,
        want: usize,
    ) -> Result<Reply> {
        let mut reply = Reply::default();
        let mut backoff = Backoff::new(RECONNECT_CAP);
        let mut troubled = false;
        loop {
            let running = self.shutdown.phase() == Phase::Running;
            let want = if running { want } else { 0 };
            if outbox.is_empty() && want == 0 {
                if !running || !self.is_broken() {
                    return Ok(reply);
                }
                // No call would notice.
                self.connection = None;
            }
            self.health.asking(Part::Claim);
            match self.try_exchange(&mut outbox, want, &mut reply).await {
                Ok(()) => {
                    self.health.reached(Part::Claim);
                    if troubled {
                        self.events.tell(Event::Recovered { during: "claim" });
                    }
                    return Ok(reply);
                }
                Err(error) if !self.proven && !error.is_transient() => return Err(error),
                Err(error) => {
                    troubled = true;
                    if !matches!(error, Error::Conflict(_)) {
                        self.connection = None;
                    }
                    self.pause(&error, backoff.next()).await;
                }
            }
        }
    }

    /// Whether there is no connection, or one that is closed.
    fn is_broken(&self) -> bool {
        self.connection.as_ref().is_none_or(Connection::is_closed)
    }

    /// Waits before the next try; a stop ends the wait.
    async fn pause(&self, error: &Error, retry_in: Duration) {
        let error = error.to_string();
        self.health.troubled(Part::Claim, &error);
        self.events.tell(Event::Trouble {
            during: "claim",
            error,
            retry_in,
        });
        let mut phase = self.shutdown.subscribe();
        tokio::select! {
            () = tokio::time::sleep(retry_in) => {}
            _ = phase.changed() => {}
        }
    }

    async fn try_exchange(
        &mut self,
        outbox: &mut Vec<Settled>,
        want: usize,
        reply: &mut Reply,
    ) -> Result<()> {
        let connection = match self.connection.take() {
            Some(connection) => self.connection.insert(connection),
            None => {
                let (connection, notices) = open_listening(&self.address).await?;
                reply.notices = Some(notices);
                self.connection.insert(connection)
            }
        };
        let client = Client::new(connection);
        if let Some(first) = &self.first {
            begin(&client, first, &self.options, &self.events).await?;
            self.first = None;
        }
        tell_others(&client, &self.events, outbox, reply).await?;
        if want == 0 {
            return tell_completions(&client, &self.events, outbox, reply).await;
        }
        let (ask, options) = next_claim(&self.options, self.turns.as_ref(), want);
        if !outbox.is_empty() && outbox.len() <= BATCH {
            let (leases, outputs) = completions(outbox);
            let sent = Instant::now();
            match client.complete_and_claim(&leases, outputs, &options).await {
                Ok((recorded, claimed)) => {
                    answer_completions(outbox, &leases, recorded, reply);
                    let more = behind(&mut self.turns, &ask, claimed.len());
                    reply.take(sent, claimed, more);
                    self.proven = true;
                    return Ok(());
                }
                // Something in it was refused: one by one they say what.
                Err(error) if !error.is_transient() => {}
                Err(error) => return Err(error),
            }
        }
        tell_completions(&client, &self.events, outbox, reply).await?;
        let sent = Instant::now();
        let claimed = client.claim(&options).await?;
        let more = behind(&mut self.turns, &ask, claimed.len());
        reply.take(sent, claimed, more);
        self.proven = true;
        Ok(())
    }
}

/// What the next claim asks for, and its options.
fn next_claim(options: &ClaimOptions, turns: Option<&Turns>, want: usize) -> (Ask, ClaimOptions) {
    let want = want.min(BATCH);
    let ask = match turns {
        Some(turns) => turns.ask(want),
        None => Ask {
            jobs: want,
            task: None,
        },
    };
    let max_jobs = i32::try_from(ask.jobs).unwrap_or(i32::MAX);
    let options = options.clone().max_jobs(max_jobs);
    match &ask.task {
        Some(task) => {
            let options = options.tasks([task]);
            (ask, options)
        }
        None => (ask, options),
    }
}

/// Whether more may wait behind what a claim brought.
fn behind(turns: &mut Option<Turns>, ask: &Ask, got: usize) -> bool {
    match turns {
        Some(turns) => turns.took(ask, got),
        None => got >= ask.jobs,
    }
}

type Db<'a> = Client<'a, Connection>;

/// Stores the schedules, and tells which tasks wait that nobody here handles.
async fn begin(
    client: &Db<'_>,
    first: &First,
    options: &ClaimOptions,
    events: &Events,
) -> Result<()> {
    for manifest in &first.schedules {
        client.schedule(manifest).await.map_err(|error| {
            if error.is_transient() {
                return error;
            }
            let hint = error.report().and_then(|report| report.hint.as_deref());
            Error::Setup(format!(
                "the schedule \"{}\" was refused: {error}{}",
                manifest.name(),
                hint.map_or(String::new(), |hint| format!("; {hint}"))
            ))
        })?;
    }
    let Some(handled) = &options.tasks else {
        return Ok(());
    };
    match client.waiting_tasks(options.groups.as_deref()).await {
        Ok(mut tasks) => {
            tasks.retain(|task| !handled.contains(task));
            if !tasks.is_empty() {
                events.tell(Event::Unhandled { tasks });
            }
            Ok(())
        }
        Err(error) if error.is_transient() => Err(error),
        // It is only advice: the claim says what is really wrong.
        Err(_) => Ok(()),
    }
}

/// What is no completion is told one by one; what was told leaves the outbox.
async fn tell_others(
    client: &Db<'_>,
    events: &Events,
    outbox: &mut Vec<Settled>,
    reply: &mut Reply,
) -> Result<()> {
    let is_other = |settled: &Settled| !matches!(settled.verdict, Verdict::Complete(_));
    while let Some(at) = outbox.iter().rposition(is_other) {
        let settled = &outbox[at];
        let answer = tell(client, events, settled).await?;
        reply.answers.push((settled.job_id, settled.token, answer));
        outbox.swap_remove(at);
    }
    Ok(())
}

/// Completions go in batches; what was told leaves the outbox.
async fn tell_completions(
    client: &Db<'_>,
    events: &Events,
    outbox: &mut Vec<Settled>,
    reply: &mut Reply,
) -> Result<()> {
    loop {
        let (leases, outputs) = completions(outbox);
        if leases.is_empty() {
            return Ok(());
        }
        match client.complete_many(&leases, outputs).await {
            Ok(recorded) => answer_completions(outbox, &leases, recorded, reply),
            // One output that the server refuses must not hold up the others.
            Err(error) if !error.is_transient() => {
                let told: HashSet<Token> = leases.iter().map(|(_, token)| *token).collect();
                for settled in outbox.iter().filter(|s| told.contains(&s.token)) {
                    let answer = tell(client, events, settled).await?;
                    reply.answers.push((settled.job_id, settled.token, answer));
                }
                forget(outbox, &leases);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Those of `leases` that are not among the recorded were lost.
fn answer_completions(
    outbox: &mut Vec<Settled>,
    leases: &[(JobId, Token)],
    recorded: Vec<JobId>,
    reply: &mut Reply,
) {
    let recorded: HashSet<JobId> = recorded.into_iter().collect();
    reply.answers.extend(leases.iter().map(|(id, token)| {
        let answer = if recorded.contains(id) {
            Answer::Completed
        } else {
            Answer::Lost
        };
        (*id, *token, answer)
    }));
    forget(outbox, leases);
}

fn completions(outbox: &[Settled]) -> (Vec<(JobId, Token)>, Vec<Option<Json>>) {
    outbox
        .iter()
        .filter_map(|settled| match &settled.verdict {
            Verdict::Complete(output) => Some(((settled.job_id, settled.token), output.clone())),
            _ => None,
        })
        .take(BATCH)
        .unzip()
}

fn forget(outbox: &mut Vec<Settled>, leases: &[(JobId, Token)]) {
    let told: HashSet<Token> = leases.iter().map(|(_, token)| *token).collect();
    outbox.retain(|settled| !told.contains(&settled.token));
}

/// Tells one outcome. A refusal becomes a failed attempt, so that the job does not hang on it.
pub(crate) async fn tell<C: GenericClient + Sync>(
    client: &Client<'_, C>,
    events: &Events,
    settled: &Settled,
) -> Result<Answer> {
    let (job_id, token) = (settled.job_id, settled.token);
    let error = match told(client, settled).await {
        Err(error) if !error.is_transient() => error.to_string(),
        answer => return answer,
    };
    events.tell(Event::Refused {
        job_id,
        error: error.clone(),
    });
    let failure = Failure::new(format!("the outcome was refused: {error}"));
    match client.fail(job_id, token, &failure).await {
        Ok(failed) => Ok(answer_to(failed)),
        Err(error) if error.is_transient() => Err(error),
        Err(_) => Ok(Answer::Untold),
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
