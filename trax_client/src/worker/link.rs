//! The claim connection: outcomes go out, jobs come in.
//!
//! One *exchange* tells the server the gathered outcomes and then claims; completions and the claim
//! are one call. The connection also listens for work while it is idle. Enters: settled leases and
//! how many jobs are wanted. Leaves: an answer for every outcome that was told, those that were not,
//! and claimed jobs. An outcome is told until it is recorded or refused for what it says: when the
//! connection broke, when the server had no time or room for it, when nobody answered. One that had
//! arrived before answers "lost" then, and changes nothing. What stands in the way of one outcome is
//! found by telling ever fewer at once, apart from those that came later.

use std::collections::{HashSet, VecDeque};
use std::future::Future;
use std::time::{Duration, Instant};

use tokio_postgres::GenericClient;

use super::connection::{Backoff, Connection, Notices, answered, open_listening};
use super::event::{Event, Events};
use super::health::{Health, Part};
use super::outcome::Verdict;
use super::shutdown::Shutdown;
use super::turns::{Ask, Turns};
use crate::address::Address;
use crate::client::Client;
use crate::error::{Blame, Error, Result};
use crate::id::{JobId, Token};
use crate::job::{ClaimOptions, Claimed, Failed, Failure};
use crate::json::Json;
use crate::manifest::Manifest;

/// The most jobs of one claim, and completions of one call.
pub(crate) const BATCH: usize = 1000;
/// The most text of the completions of one call: a slow network takes it in time.
const BATCH_BYTES: usize = 4 << 20;
/// After so many outcomes, or batches of them, that the server had no time for, an exchange tells no more.
const ENOUGH: usize = 2;
/// The longest pause before an outcome is told again.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

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
    /// Told again by the next exchange.
    pub(crate) untold: Vec<Settled>,
    /// Told again after that time, in an exchange of their own.
    pub(crate) later: Vec<Settled>,
    pub(crate) later_in: Duration,
    pub(crate) claimed: Vec<Claimed>,
    /// Whether more may wait than the claim brought.
    pub(crate) more: bool,
    /// When the claim was sent: leases count from before it.
    pub(crate) sent: Option<Instant>,
    /// The server cannot be reached: nothing is to be sent for so long.
    pub(crate) silent_for: Option<Duration>,
    /// The claim failed: none is to be sent for so long.
    pub(crate) no_claim_for: Option<Duration>,
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

/// The least time that a call may be unanswered.
const LEAST_LIMIT: Duration = Duration::from_secs(2);

pub(crate) struct Link {
    pub(crate) address: Address,
    pub(crate) options: ClaimOptions,
    pub(crate) turns: Option<Turns>,
    pub(crate) events: Events,
    pub(crate) shutdown: Shutdown,
    pub(crate) health: Health,
    /// How long a call may be unanswered.
    pub(crate) limit: Duration,
    pub(crate) state: State,
    /// What is done once, before the first claim.
    pub(crate) first: Option<First>,
}

/// What one exchange leaves for the next.
pub(crate) struct State {
    connection: Option<Connection>,
    /// False until the first claim succeeded: till then a refusal ends the run.
    proven: bool,
    /// The last exchange, or the last outcomes told apart, failed.
    troubled: bool,
    hindered: bool,
    backoff: Backoff,
    /// Before the next try of outcomes that the server had no time for.
    pause: Duration,
    /// How many completions go into one call, and jobs into one claim: fewer after a call that did not come through.
    batch: usize,
    claims: usize,
}

impl State {
    pub(crate) fn new() -> Self {
        State {
            connection: None,
            proven: false,
            troubled: false,
            hindered: false,
            backoff: Backoff::new(Duration::MAX),
            pause: Duration::ZERO,
            batch: BATCH,
            claims: BATCH,
        }
    }
}

/// What a worker does once, when it first reaches the server.
pub(crate) struct First {
    pub(crate) schedules: Vec<Manifest>,
}

impl Link {
    /// How long a call may be unanswered: what comes later than half a lease is not worth much.
    pub(crate) fn limit(lease: Duration) -> Duration {
        (lease / 2).clamp(LEAST_LIMIT, Duration::from_secs(30))
    }

    /// Tells the outbox and claims up to `want` jobs, of which `places` begin at once. With
    /// `apart` these are outcomes that are told again. With nothing to do it only mends a broken connection.
    ///
    /// # Errors
    /// Only before the first claim that succeeded: what the server refuses.
    pub(crate) async fn exchange(
        &mut self,
        outbox: Vec<Settled>,
        want: usize,
        places: usize,
        apart: bool,
    ) -> Result<Reply> {
        self.options = self.options.clone().places(number(places.min(BATCH)));
        let mut reply = Reply {
            untold: outbox,
            ..Reply::default()
        };
        if reply.untold.is_empty() && want == 0 {
            if !self.is_broken() {
                return Ok(reply);
            }
            // No call would notice.
            self.state.connection = None;
        }
        self.health.asking(Part::Claim);
        let mut hindrance = None;
        match self
            .try_exchange(want, apart, &mut reply, &mut hindrance)
            .await
        {
            Ok(()) => {
                self.health.reached(Part::Claim);
                self.state.backoff.reset();
                if std::mem::take(&mut self.state.troubled) {
                    self.events.tell(Event::Recovered { during: "claim" });
                }
            }
            Err(error) if !self.state.proven && !error.is_transient() => return Err(error),
            Err(error) => {
                let retry_in = self.state.backoff.after(&error);
                let unopened = self.state.connection.is_none();
                if error.blame() != Blame::Moment {
                    self.state.connection = None;
                }
                match error.blame() {
                    Blame::Connection => reply.silent_for = Some(retry_in),
                    // Nothing can be told either: a password, a certificate or the database is wrong.
                    _ if unopened => reply.silent_for = Some(retry_in),
                    Blame::Moment | Blame::Call => reply.no_claim_for = Some(retry_in),
                }
                self.state.troubled = true;
                self.health.troubled(Part::Claim, &error.to_string());
                self.trouble("claim", &error, retry_in);
            }
        }
        self.put_off(&mut reply, hindrance, apart);
        if apart {
            // Not among what is new, which one of them would hold up again; the one that was tried goes last.
            let untried = std::mem::take(&mut reply.untold);
            reply.later.splice(0..0, untried);
        }
        Ok(reply)
    }

    /// Says when outcomes are told again that the server had no time for.
    fn put_off(&mut self, reply: &mut Reply, hindrance: Option<Error>, apart: bool) {
        // Nobody answered: what it waits for, such as a lock, may last.
        let unanswered = hindrance.is_none() && !reply.later.is_empty();
        if hindrance.is_some() || unanswered {
            self.state.hindered = true;
            let longer = (self.state.pause * 2).max(Duration::from_millis(100));
            self.state.pause = match reply.answers.is_empty() {
                true => longer.min(LONGEST_PAUSE),
                false => Duration::from_millis(100),
            };
            if let Some(error) = hindrance {
                self.trouble("outcome", &error, self.state.pause);
            }
        } else if apart && !reply.answers.is_empty() && std::mem::take(&mut self.state.hindered) {
            self.state.pause = Duration::ZERO;
            self.events.tell(Event::Recovered { during: "outcome" });
        }
        reply.later_in = self.state.pause;
    }

    fn trouble(&self, during: &'static str, error: &Error, retry_in: Duration) {
        self.events.tell(Event::Trouble {
            during,
            error: error.to_string(),
            retry_in,
        });
    }

    /// Whether there is no connection, or one that is closed.
    fn is_broken(&self) -> bool {
        let connection = self.state.connection.as_ref();
        connection.is_none_or(|connection| connection.is_closed())
    }

    async fn try_exchange(
        &mut self,
        want: usize,
        apart: bool,
        reply: &mut Reply,
        hindrance: &mut Option<Error>,
    ) -> Result<()> {
        if self.state.connection.is_none() {
            let (connection, notices) = open_listening(&self.address, self.limit).await?;
            reply.notices = Some(notices);
            self.state.connection = Some(connection);
        }
        // What is told again takes the line from what is new only so long as it has waited itself.
        let limit = match apart {
            true => (self.state.pause * 2).max(LEAST_LIMIT).min(self.limit),
            false => self.limit,
        };
        let State {
            connection,
            proven,
            batch,
            claims,
            ..
        } = &mut self.state;
        let Some(connection) = connection else {
            return Ok(());
        };
        let call = Calling { connection, limit };
        if let Some(first) = &self.first {
            call.bounded(begin(&call.client(), first, &self.options, &self.events))
                .await?;
            self.first = None;
        }
        let mut telling = Telling {
            call,
            events: &self.events,
            batch,
            reply,
            hindrance,
            failures: 0,
        };
        if apart {
            return telling.in_order().await;
        }
        telling.others().await?;
        if want == 0 {
            return telling.completions().await;
        }
        let (ask, options) = next_claim(&self.options, self.turns.as_ref(), want.min(*claims));
        if let Some((sent, claimed)) = telling.completions_and_claim(&options).await? {
            let more = behind(&mut self.turns, &ask, claimed.len());
            telling.reply.take(sent, claimed, more);
            *proven = true;
            return Ok(());
        }
        telling.completions().await?;
        let sent = Instant::now();
        let claimed = call.bounded(call.client().claim(&options)).await;
        *claims = match &claimed {
            Ok(_) => (*claims * 2).min(BATCH),
            Err(error) if error.is_unanswered() => (ask.jobs / 2).max(1),
            Err(_) => *claims,
        };
        let claimed = claimed?;
        let more = behind(&mut self.turns, &ask, claimed.len());
        reply.take(sent, claimed, more);
        *proven = true;
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
    let max_jobs = number(ask.jobs);
    let options = options.clone().max_jobs(max_jobs);
    match &ask.task {
        Some(task) => {
            let options = options.tasks([task]);
            (ask, options)
        }
        None => (ask, options),
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Whether more may wait behind what a claim brought.
fn behind(turns: &mut Option<Turns>, ask: &Ask, got: usize) -> bool {
    match turns {
        Some(turns) => turns.took(ask, got),
        // A claim may bring less than there is.
        None => got > 0,
    }
}

type Db<'a> = Client<'a, tokio_postgres::Client>;

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

/// Calls over the connection, each of which may take so long.
#[derive(Clone, Copy)]
struct Calling<'a> {
    connection: &'a Connection,
    limit: Duration,
}

impl<'a> Calling<'a> {
    fn client(&self) -> Db<'a> {
        Client::new(self.connection)
    }

    async fn bounded<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        answered(self.limit, call).await
    }
}

/// Telling the outcomes of one exchange: those of `reply.untold` become answers, or come `later`. An error is one of the
/// connection.
struct Telling<'a> {
    call: Calling<'a>,
    events: &'a Events,
    batch: &'a mut usize,
    reply: &'a mut Reply,
    hindrance: &'a mut Option<Error>,
    failures: usize,
}

impl Telling<'_> {
    /// One by one, so that each has its turn: one that is not told goes behind the others.
    async fn in_order(&mut self) -> Result<()> {
        while self.failures < ENOUGH && !self.reply.untold.is_empty() {
            let settled = self.reply.untold.remove(0);
            self.one(settled).await?;
        }
        self.leave_the_rest();
        Ok(())
    }

    /// What is no completion, one by one.
    async fn others(&mut self) -> Result<()> {
        let is_other = |settled: &Settled| !matches!(settled.verdict, Verdict::Complete(_));
        while let Some(at) = self.reply.untold.iter().position(is_other) {
            if self.failures >= ENOUGH {
                self.leave_the_rest();
                break;
            }
            let settled = self.reply.untold.remove(at);
            self.one(settled).await?;
        }
        Ok(())
    }

    /// All completions together with the claim, if they fit and nothing stands in the way.
    async fn completions_and_claim(
        &mut self,
        options: &ClaimOptions,
    ) -> Result<Option<(Instant, Vec<Claimed>)>> {
        let chunk = self.chunk();
        if chunk.is_empty() || !self.reply.untold.is_empty() {
            self.reply.untold.splice(0..0, chunk);
            return Ok(None);
        }
        let (leases, outputs) = parts(&chunk);
        let sent = Instant::now();
        let client = self.call.client();
        let call = client.complete_and_claim(&leases, outputs, options);
        match self.call.bounded(call).await {
            Ok((recorded, claimed)) => {
                self.answer(&leases, recorded);
                Ok(Some((sent, claimed)))
            }
            Err(error) if error.blame() == Blame::Connection => {
                self.put_off(chunk, error).map(|()| None)
            }
            // One of them was refused, or the claim: apart they say which.
            Err(_) => {
                self.reply.untold = chunk;
                Ok(None)
            }
        }
    }

    /// Completions in batches.
    async fn completions(&mut self) -> Result<()> {
        while self.failures < ENOUGH {
            let chunk = self.chunk();
            if chunk.is_empty() {
                return Ok(());
            }
            let (leases, outputs) = parts(&chunk);
            let client = self.call.client();
            let told = self
                .call
                .bounded(client.complete_many(&leases, outputs))
                .await;
            match told {
                Ok(recorded) => {
                    self.answer(&leases, recorded);
                    *self.batch = (*self.batch * 2).min(BATCH);
                }
                // One output that the server refuses must not hold up the others.
                Err(error) if error.blame() == Blame::Call => self.each(chunk).await?,
                Err(error) => {
                    *self.batch = (chunk.len() / 2).max(1);
                    self.put_off(chunk, error)?;
                }
            }
        }
        self.leave_the_rest();
        Ok(())
    }

    /// For later; those that were not tried come first then.
    fn leave_the_rest(&mut self) {
        let untried = std::mem::take(&mut self.reply.untold);
        self.reply.later.splice(0..0, untried);
    }

    async fn each(&mut self, chunk: Vec<Settled>) -> Result<()> {
        let mut chunk = VecDeque::from(chunk);
        let mut told = Ok(());
        while let Some(settled) = chunk.pop_front() {
            told = self.one(settled).await;
            if told.is_err() || self.failures >= ENOUGH {
                break;
            }
        }
        self.reply.untold.splice(0..0, chunk);
        told
    }

    async fn one(&mut self, settled: Settled) -> Result<()> {
        let client = self.call.client();
        let told = self
            .call
            .bounded(tell(&client, self.events, &settled))
            .await;
        match told {
            Ok(answer) => {
                let (job_id, token) = (settled.job_id, settled.token);
                self.reply.answers.push((job_id, token, answer));
                Ok(())
            }
            Err(error) => self.put_off(vec![settled], error),
        }
    }

    /// What was not told: later when the server had no time for it, or nobody answered; with the next when the connection
    /// broke.
    fn put_off(&mut self, chunk: Vec<Settled>, error: Error) -> Result<()> {
        if error.blame() == Blame::Connection {
            if error.is_unanswered() {
                *self.batch = (chunk.len() / 2).max(1);
                self.reply.later.extend(chunk);
            } else {
                self.reply.untold.extend(chunk);
            }
            return Err(error);
        }
        self.failures += 1;
        self.reply.later.extend(chunk);
        *self.hindrance = Some(error);
        Ok(())
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

impl Settled {
    /// How much of it is sent.
    fn size(&self) -> usize {
        match &self.verdict {
            Verdict::Complete(Some(output)) => output.text().len(),
            _ => 0,
        }
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
    let failure = match &settled.verdict {
        // What it asked for stays: never again, or when.
        Verdict::Fail(failure) => Failure {
            error: failure.error.replace('\0', "\u{fffd}"),
            detail: None,
            ..failure.clone()
        },
        _ => Failure::new(format!("the outcome was refused: {error}")),
    };
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
