//! A worker: claims jobs, runs handlers, and reports outcomes.
//!
//! A worker has two connections to each of its databases: one claims and reports outcomes
//! (`claim_connection`), the other extends leases on its own thread (`heartbeat`). With the loop in
//! `dispatch` they form a `branch`. Branches share the `places` for running jobs. A third thread
//! answers probes and notifies systemd if configured (`health_thread`).

mod branch;
mod calls;
mod cancellation;
mod check;
mod claim_connection;
pub(crate) mod connection;
pub(crate) mod context;
pub(crate) mod deadline;
mod decided;
mod dispatch;
mod durable;
mod event;
mod exchange;
mod fair_share;
mod fleet;
mod handler;
mod handlers;
mod health;
mod health_thread;
mod heartbeat;
mod held_leases;
#[cfg(feature = "testkit")]
mod inline;
mod keep_polling;
mod many;
mod middleware;
mod name;
mod outcome;
mod places;
mod polling;
mod prefetch;
mod pulse;
mod registration;
mod reply;
mod report;
mod setup;
mod shutdown;
mod start;
mod startup;
mod step_server;
mod steps;
mod summary;
mod systemd;
mod task;
mod unreported;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

pub use self::cancellation::{Cancellation, Reason};
pub use self::context::Context;
pub use self::decided::{Decide, Decided};
pub use self::event::Event;
pub use self::health::Health;
pub use self::many::{Many, ManyOutput};
pub use self::middleware::Next;
pub use self::outcome::{HandlerResult, IntoOutcome, JobError, Outcome};
pub use self::shutdown::Shutdown;
pub use self::summary::{Counts, Stopped, Summary};
pub use self::task::{FromContext, FromState, HandlerOutput, State, TaskHandler};

use self::branch::Branches;
use self::check::{check, declared_by};
use self::event::Events;
use self::handler::handler;
use self::handlers::Handlers;
use self::health_thread::{HealthOptions, HealthThread};
use self::middleware::layer;
use self::name::default_name;
use self::places::AllPlaces;
use self::setup::Setup;
use self::start::Start;
use self::startup::Startup;
use self::task::task_handler;
use crate::address::Address;
use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::task::Task;

/// Claims jobs and runs handlers until stopped.
///
/// A misbehaving handler does not affect others:
/// - A handler that **panics** fails its attempt with the panic's text, as after any error.
/// - A handler that **blocks its thread** keeps its lease. If every thread is blocked, the whole
///   worker waits, and after the stall limit [`Health`] reports it. Run such code under
///   `tokio::task::block_in_place` or `spawn_blocking`.
/// - A handler that **ignores its cancellation** is dropped at its next await after
///   [`Worker::cancel_patience`]; during a stop, one that cannot be dropped is abandoned.
/// - A handler whose **output the server refuses** (`trax.max_input_bytes`, 1 MB; nesting) fails
///   its job permanently with the SQLSTATE (54000), and delays no other outcome.
///
/// ```no_run
#[doc = include_str!("../../examples/worker.rs")]
/// ```
pub struct Worker<S = ()> {
    address: Address,
    others: Vec<Address>,
    is_router: bool,
    name: String,
    take_turns: bool,
    schedules: Vec<Manifest>,
    declared: BTreeMap<String, Vec<Manifest>>,
    signals: bool,
    events: Events,
    counts: Counts,
    shutdown: Shutdown,
    health: Health,
    health_options: HealthOptions,
    setup: Setup<S>,
}

impl Worker<()> {
    /// Returns a worker without shared state.
    pub fn new(address: impl Into<Address>) -> Self {
        Self::with_state(address, ())
    }
}

impl<S: Send + Sync + 'static> Worker<S> {
    /// Returns a worker whose handlers share `state`.
    pub fn with_state(address: impl Into<Address>, state: S) -> Self {
        let shutdown = Shutdown::new();
        Worker {
            address: address.into(),
            others: Vec::new(),
            is_router: false,
            name: default_name(),
            take_turns: false,
            schedules: Vec::new(),
            declared: BTreeMap::new(),
            signals: true,
            events: Events::to_logs(),
            counts: Counts::default(),
            health: Health::new(shutdown.clone()),
            shutdown,
            health_options: HealthOptions::default(),
            setup: Setup {
                handlers: Handlers::new(),
                state: Arc::new(state),
                groups: None,
                versions: None,
                concurrency: 10,
                prefetch: 100,
                lease: Duration::from_secs(30),
                poll_interval: Duration::from_millis(200),
                grace: Duration::from_secs(30),
                cancel_patience: Duration::from_secs(10),
                stall_limit: Duration::from_secs(30),
                until_empty: false,
            },
        }
    }

    /// Claims from another database too; [`Context::database`] returns the one that a job is from.
    /// All share the places of [`concurrency`](Self::concurrency): two with enough work get half
    /// each. A database that cannot be reached affects only its own jobs. Job ids are unique across
    /// databases if each has a number: `trax.set_shard()`.
    pub fn also(mut self, address: impl Into<Address>) -> Self {
        self.others.push(address.into());
        self
    }

    /// Treats the address as a router, a database with the extension `trax_router`. The worker
    /// claims from its shards, also those added later, with the router's user, password and TLS
    /// settings unless a shard's address sets its own.
    pub fn router(mut self) -> Self {
        self.is_router = true;
        self
    }

    /// Runs `function` for every job of `task`. Only tasks with a handler are claimed.
    ///
    /// The function returns [`HandlerResult`], in which `?` accepts every error. Functions that
    /// return `anyhow::Result` or the like go to [`Worker::task`].
    pub fn handle<T, F, Fut, R>(mut self, task: impl Into<String>, function: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<R>> + Send + 'static,
        R: IntoOutcome + Send + 'static,
    {
        self.setup.handlers.insert(task.into(), handler(function));
        self
    }

    /// Runs `function` for every job of a task that has no handler of its own. The worker then
    /// claims all tasks.
    pub fn handle_any<T, F, Fut, R>(mut self, function: F) -> Self
    where
        T: DeserializeOwned,
        F: Fn(T, Context<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<R>> + Send + 'static,
        R: IntoOutcome + Send + 'static,
    {
        self.setup.handlers.insert_any(handler(function));
        self
    }

    /// Runs an async function for every job of the [`Task`] that is its first argument. Further
    /// arguments are extractors.
    ///
    /// ```no_run
    /// # use serde::Deserialize;
    /// # #[derive(Clone)] struct Mailer;
    /// # impl Mailer { async fn send(&self, _: &str) -> Result<(), std::io::Error> { Ok(()) } }
    /// use trax_client::{Context, Manifest, State, Task, Worker};
    ///
    /// #[derive(Deserialize)]
    /// struct SendMail { to: String }
    ///
    /// impl Task for SendMail {
    ///     const NAME: &str = "mail.send";
    /// }
    ///
    /// type Sent = Result<(), std::io::Error>;
    ///
    /// async fn send_mail(mail: SendMail, State(mailer): State<Mailer>) -> Sent {
    ///     mailer.send(&mail.to).await
    /// }
    ///
    /// # async fn example(address: trax_client::Address) -> trax_client::Result<()> {
    /// Worker::with_state(address, Mailer).task(send_mail).run().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The function returns `Result<R, E>` with any type of error. [`Decide`] declares the effect
    /// of an error on the job where it occurs.
    pub fn task<Arguments, H>(mut self, function: H) -> Self
    where
        H: TaskHandler<Arguments> + Send + Sync + 'static,
        H::Input: Task + DeserializeOwned,
        H::Extractors: FromContext<S>,
        H::Running: Future<Output: HandlerOutput> + Send + 'static,
    {
        let task = <H::Input as Task>::NAME.to_owned();
        self.setup.handlers.insert(task, task_handler(function));
        self
    }

    /// Runs `function` around every execution. The function can inspect the job, run the rest with
    /// [`Next::run`] or refuse to, and replace the outcome. The first one added is the outermost.
    ///
    /// ```no_run
    /// # use trax_client::{Context, HandlerResult, Next, Outcome, Worker};
    /// # async fn ping(_: (), _: Context) -> HandlerResult<()> { Ok(()) }
    /// async fn timed(ctx: Context, next: Next) -> HandlerResult<Outcome> {
    ///     let begun = std::time::Instant::now();
    ///     let outcome = next.run().await;
    ///     println!("{} {} took {:?}", ctx.task(), ctx.job_id(), begun.elapsed());
    ///     outcome
    /// }
    ///
    /// # async fn example(address: trax_client::Address) -> trax_client::Result<()> {
    /// Worker::new(address).middleware(timed).handle("ping", ping).run().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn middleware<F, Fut>(mut self, function: F) -> Self
    where
        F: Fn(Context<S>, Next<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<Outcome>> + Send + 'static,
    {
        self.setup.handlers.add_layer(layer(function));
        self
    }

    /// Runs `function` around executions of one task, inside the [`Worker::middleware`] of all.
    pub fn middleware_for<F, Fut>(mut self, task: impl Into<String>, function: F) -> Self
    where
        F: Fn(Context<S>, Next<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult<Outcome>> + Send + 'static,
    {
        let layer = layer(function);
        self.setup.handlers.add_task_layer(task.into(), layer);
        self
    }

    /// Stores a manifest when the worker starts, to declare a schedule next to its handler. The
    /// task must have a handler here, and the worker's role needs the level `admin`. Storing the
    /// same manifest again does not move its next run.
    pub fn schedule(mut self, manifest: Manifest) -> Self {
        self.schedules.push(manifest);
        self
    }

    /// When the worker starts, makes these the only manifests of `source`; several calls add up.
    /// Manifests that differ are created or changed, and those that an earlier version declared are
    /// removed with their waiting jobs. If nothing differs, nothing is written.
    ///
    /// Tasks need a handler here, and the worker's role the level `admin`. A manifest of another
    /// source is an error. See [`Client::declare`](crate::Client::declare).
    pub fn manifests(
        mut self,
        source: impl Into<String>,
        manifests: impl IntoIterator<Item = Manifest>,
    ) -> Self {
        let declared = self.declared.entry(source.into()).or_default();
        declared.extend(manifests);
        self
    }

    /// Sets the name shown in leases and runs; by default host, process id and a random part.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how many handlers may run at once (default 10).
    pub fn concurrency(mut self, jobs: usize) -> Self {
        self.setup.concurrency = jobs;
        self
    }

    /// Sets how many short jobs may wait here beside the running ones (default 100).
    pub fn prefetch(mut self, jobs: usize) -> Self {
        self.setup.prefetch = jobs;
        self
    }

    /// Limits claims to these groups.
    pub fn groups<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let groups = self.setup.groups.get_or_insert_default();
        groups.extend(crate::names::owned(names));
        self
    }

    /// Limits claims to these [versions](crate::JobOptions::version), and to jobs without one.
    pub fn versions<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        let versions = self.setup.versions.get_or_insert_default();
        versions.extend(crate::names::owned(names));
        self
    }

    /// Lets tasks take turns: while jobs of several wait, each gets an equal share of this worker.
    ///
    /// By default the oldest job of the highest priority is next, whatever its task, so a long
    /// backlog of one task delays younger jobs of all others. With turns, age and priority count
    /// within a task. Has no effect on [`Worker::handle_any`], which has no list of tasks.
    pub fn take_turns(mut self) -> Self {
        self.take_turns = true;
        self
    }

    /// Sets how long a lease lasts without a heartbeat (default 30 s, at least 30 ms, at most ten
    /// years). Heartbeats are sent every third of it.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.setup.lease = lease.min(deadline::LONGEST);
        self
    }

    /// Sets how often to poll an empty queue (default 200 ms): up to five times slower after a long
    /// idle time, and up to 25 times while notifications announce work.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.setup.poll_interval = interval.min(deadline::LONGEST);
        self
    }

    /// Sets how long running handlers may continue after the first signal (default 30 s).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.setup.grace = grace.min(deadline::LONGEST);
        self
    }

    /// Sets how long a handler may continue after its cancellation before it is dropped (default 10
    /// s).
    pub fn cancel_patience(mut self, patience: Duration) -> Self {
        self.setup.cancel_patience = patience.min(deadline::LONGEST);
        self
    }

    /// Serves `/livez` and `/readyz` on an address such as `0.0.0.0:8080`; a port alone binds to
    /// the loopback address. Responds 200, or 503 and the reason. [`Health`] defines both.
    pub fn health_address(mut self, address: impl Into<String>) -> Self {
        self.health_options.address = Some(address.into());
        self
    }

    /// Notifies systemd of readiness, status and stop, and feeds its watchdog while the worker is
    /// live. Has no effect unless systemd requests it (`Type=notify`).
    pub fn notify_systemd(mut self) -> Self {
        self.health_options.systemd = true;
        self
    }

    /// Sets how long a loop may stall, or the database not answer, before [`Health`] reports it
    /// (default 30 s). Must exceed the time for which handlers block their threads.
    pub fn stall_limit(mut self, limit: Duration) -> Self {
        self.setup.stall_limit = limit;
        self
    }

    /// Stops the worker when it holds no job and a claim at each of its databases finds none.
    pub fn until_empty(mut self) -> Self {
        self.setup.until_empty = true;
        self
    }

    /// Leaves SIGTERM and SIGINT to the program, which then stops the worker through
    /// [`Worker::shutdown`].
    pub fn without_signals(mut self) -> Self {
        self.signals = false;
        self
    }

    /// Sends events to a function, by default to `tracing`, or to standard error without a
    /// subscriber.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.events = Events::new(listener);
        self
    }

    /// Returns a handle that stops this worker.
    pub fn shutdown(&self) -> Shutdown {
        self.shutdown.clone()
    }

    /// Returns live counters of the worker's activity.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Returns the live health of the worker, for a program that answers probes itself.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs until a signal, [`Shutdown`] or an empty queue ends it. While the server cannot be
    /// reached, it waits.
    ///
    /// # Errors
    /// Only at startup: [`Setup`](crate::Error::Setup) if the worker is misconfigured or cannot
    /// serve its health, and errors of the server for the manifests and the first claim (a missing
    /// extension or right, an invalid filter). A database that refuses later, or a shard while
    /// others work, is tried again; with [`until_empty`](Self::until_empty) it fails the end.
    pub async fn run(self) -> Result<Summary> {
        let Worker {
            address,
            others,
            is_router,
            name,
            take_turns,
            schedules,
            declared,
            counts,
            signals,
            events,
            shutdown,
            health,
            health_options,
            setup,
        } = self;
        check(&name, &setup, declared_by(&schedules, &declared))?;
        let is_alone = others.is_empty() && !is_router;
        if !is_alone && declared_by(&schedules, &declared).next().is_some() {
            let why = "a worker of several databases stores no manifests: declare them through the router, with Client::declare";
            return Err(Error::Setup(why.to_owned()));
        }
        let _running = shutdown.running();
        let _signals = signals.then(|| shutdown.obey_signals()).transpose()?;
        let running = health.begin(setup.stall_limit);
        let health_thread = HealthThread::start(health_options, &health, &shutdown, &events)?;
        let branches = Branches {
            places: AllPlaces::new(setup.concurrency),
            start: Start::new(setup.until_empty),
            setup: Arc::new(setup),
            name,
            take_turns,
            events,
            shutdown,
            health,
            counts,
        };
        let summary = if is_alone {
            let startup = Startup {
                schedules,
                declared,
            };
            branches.only(address, startup)?.run().await
        } else if is_router {
            fleet::run(branches, Vec::new(), Some(address)).await
        } else {
            let addresses = std::iter::once(address).chain(others).collect();
            fleet::run(branches, addresses, None).await
        };
        drop((health_thread, running));
        summary
    }
}
