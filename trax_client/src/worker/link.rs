//! The claim connection: outcomes go out, jobs come in.
//!
//! One *exchange* tells the server the gathered outcomes (`telling`) and then claims; completions
//! and the claim are one call. The connection also listens for work while it is idle. Enters:
//! settled leases and how many jobs are wanted. Leaves: an answer for every outcome that was told,
//! those that were not, and claimed jobs.
//!
//! No call waits long for a lock: the server gives it up and rolls it back. One that was given up
//! here alone would go on waiting there, with the locks of all that it had told before, and its
//! neighbours behind it.

use std::future::Future;
use std::time::Duration;

use super::connection::{Backoff, Connection, Notices, answered, open_listening};
use super::event::{Event, Events};
use super::health::{Health, Part};
use super::shutdown::Shutdown;
use super::telling::{Answer, Settled, Telling};
use super::turns::{Ask, Turns};
use crate::address::Address;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Blame, Error, Result};
use crate::id::{JobId, Token};
use crate::job::{ClaimOptions, Claimed};
use crate::manifest::Manifest;

/// The most jobs of one claim, and completions of one call.
pub(crate) const BATCH: usize = 1000;
/// The shortest and the longest pause before an outcome is told again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What an exchange brought.
#[derive(Default)]
pub(crate) struct Reply {
    pub(crate) answers: Vec<(JobId, Token, Answer)>,
    /// Told again by the next exchange.
    pub(crate) untold: Vec<Settled>,
    /// Told again after that time.
    pub(crate) later: Vec<Settled>,
    pub(crate) later_in: Duration,
    pub(crate) claimed: Vec<Claimed>,
    /// Whether more may wait than the claim brought.
    pub(crate) more: bool,
    /// When the claim was sent: leases count from before it.
    pub(crate) sent: Option<Moment>,
    /// The server cannot be reached: nothing is to be sent for so long.
    pub(crate) silent_for: Option<Duration>,
    /// The claim failed: none is to be sent for so long.
    pub(crate) no_claim_for: Option<Duration>,
    /// What a connection hears that was opened meanwhile.
    pub(crate) notices: Option<Notices>,
}

impl Reply {
    fn take(&mut self, sent: Moment, claimed: Vec<Claimed>, more: bool) {
        self.sent = Some(sent);
        self.claimed = claimed;
        self.more = more;
    }
}

/// The least time that a call may be unanswered.
const LEAST_LIMIT: Duration = Duration::from_secs(2);
/// The least time that an outcome which is told again waits for a lock, and which part of the pause
/// before it and of a call's limit: whatever is locked, the line is free most of the time.
const LEAST_LOCK_TIMEOUT: Duration = Duration::from_millis(100);
const LOCK_TIMEOUT_PART: u32 = 5;

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
    /// The last exchange, or the last outcomes told again, failed.
    troubled: bool,
    hindered: bool,
    backoff: Backoff,
    /// Before the next try of outcomes that the server had no time for.
    pause: Duration,
    /// How many completions go into one call, and jobs into one claim: fewer after a call that did
    /// not come through.
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

    /// Tells the outbox and claims up to `want` jobs, of which `places` begin at once. With nothing
    /// to do it only mends a broken connection.
    ///
    /// # Errors
    /// Only before the first claim that succeeded: what the server refuses.
    pub(crate) async fn exchange(
        &mut self,
        outbox: Vec<Settled>,
        want: usize,
        places: usize,
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
        let again = reply.untold.iter().any(|settled| settled.again);
        let mut hindrance = None;
        match self.try_exchange(want, &mut reply, &mut hindrance).await {
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
                    // Nothing can be told either: a password, a certificate or the database is
                    // wrong.
                    _ if unopened => reply.silent_for = Some(retry_in),
                    Blame::Moment | Blame::Call => reply.no_claim_for = Some(retry_in),
                }
                self.state.troubled = true;
                self.health.troubled(Part::Claim, &error.to_string());
                self.trouble("claim", &error, retry_in);
            }
        }
        self.put_off(&mut reply, hindrance, again);
        Ok(reply)
    }

    /// Says when outcomes are told again that the server had no time for, or did not answer to.
    fn put_off(&mut self, reply: &mut Reply, hindrance: Option<Error>, again: bool) {
        if !reply.later.is_empty() {
            self.state.hindered = true;
            let longer = (self.state.pause * 2).max(SHORTEST_PAUSE);
            self.state.pause = match reply.answers.is_empty() {
                true => longer.min(LONGEST_PAUSE),
                false => SHORTEST_PAUSE,
            };
        } else if again && reply.untold.is_empty() && std::mem::take(&mut self.state.hindered) {
            self.state.pause = Duration::ZERO;
            self.events.tell(Event::Recovered { during: "outcome" });
        }
        if let Some(error) = hindrance {
            self.trouble("outcome", &error, self.state.pause);
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
        reply: &mut Reply,
        hindrance: &mut Option<Error>,
    ) -> Result<()> {
        if self.state.connection.is_none() {
            let (connection, notices) = open_listening(&self.address, self.limit).await?;
            reply.notices = Some(notices);
            self.state.connection = Some(connection);
        }
        let State {
            connection,
            proven,
            pause,
            batch,
            claims,
            ..
        } = &mut self.state;
        let Some(connection) = connection else {
            return Ok(());
        };
        let lock_timeout = self.limit / LOCK_TIMEOUT_PART;
        let call = Calling {
            connection,
            limit: self.limit,
            lock_timeout,
        };
        if let Some(first) = &self.first {
            call.bounded(begin(&call.client(), first, &self.options, &self.events))
                .await?;
            self.first = None;
        }
        let again = (*pause / LOCK_TIMEOUT_PART).max(LEAST_LOCK_TIMEOUT);
        let mut telling = Telling {
            call,
            again: Calling {
                lock_timeout: again.min(lock_timeout),
                ..call
            },
            events: &self.events,
            batch,
            reply,
            hindrance,
        };
        telling.singles().await?;
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
        let sent = Moment::now();
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

pub(crate) type Db<'a> = Client<'a, tokio_postgres::Client>;

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

/// Calls over the connection: how long each may be unanswered, and may wait for a lock.
#[derive(Clone, Copy)]
pub(crate) struct Calling<'a> {
    connection: &'a Connection,
    limit: Duration,
    lock_timeout: Duration,
}

impl<'a> Calling<'a> {
    pub(crate) fn client(&self) -> Db<'a> {
        Client::new(&**self.connection).lock_timeout(self.lock_timeout)
    }

    pub(crate) async fn bounded<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        answered(self.limit, call).await
    }
}
