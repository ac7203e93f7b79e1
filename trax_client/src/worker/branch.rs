//! A branch is the part of a worker that works for one database: its claims, its heartbeats and its
//! loop.

use std::sync::Arc;

use super::claim_connection::{ClaimConnection, ExchangeState};
use super::connection::hardened;
use super::dispatch::Dispatch;
use super::event::Events;
use super::fair_share::FairShare;
use super::health::{Health, Running};
use super::heartbeat::Heartbeat;
use super::held_leases::HeldLeases;
use super::places::{AllPlaces, Places};
use super::registration::Registration;
use super::setup::Setup;
use super::shutdown::Shutdown;
use super::start::Start;
use super::startup::Startup;
use super::step_server;
use super::summary::{Counts, Summary};
use crate::address::Address;
use crate::error::Result;
use crate::job::ClaimOptions;

/// The parts that all branches of a worker share.
pub(super) struct Branches<S> {
    pub(super) setup: Arc<Setup<S>>,
    pub(super) places: AllPlaces,
    pub(super) name: String,
    pub(super) take_turns: bool,
    pub(super) events: Events,
    pub(super) shutdown: Shutdown,
    pub(super) health: Health,
    pub(super) counts: Counts,
    pub(super) start: Start,
}

/// A branch, ready to run.
pub(super) struct Branch<S> {
    dispatch: Dispatch<S>,
    heartbeat: Heartbeat,
    /// The branch's own entry in the worker's health, if there are several branches.
    _health: Option<Running>,
}

impl<S: Send + Sync + 'static> Branches<S> {
    /// Makes the only branch of a worker with one database.
    pub(super) fn only(self, address: Address, startup: Startup) -> Result<Branch<S>> {
        let (events, health) = (self.events.clone(), self.health.clone());
        let places = self.places.branch();
        let counts = self.counts.branch();
        let (dispatch, heartbeat) = self.begin(address, places, startup, events, health, counts)?;
        Ok(Branch {
            dispatch,
            heartbeat,
            _health: None,
        })
    }

    /// Makes a branch of a worker with several databases. `name` identifies it in logs.
    pub(super) fn another(
        &self,
        address: Address,
        name: &str,
        counts: Counts,
    ) -> Result<Branch<S>> {
        let health = self.health.branch();
        let running = health.begin(self.setup.stall_limit);
        let events = self.events.at(name);
        let startup = Startup {
            schedules: Vec::new(),
            declared: std::collections::BTreeMap::new(),
        };
        let places = self.places.branch();
        let (dispatch, heartbeat) = self.begin(address, places, startup, events, health, counts)?;
        Ok(Branch {
            dispatch,
            heartbeat,
            _health: Some(running),
        })
    }

    fn begin(
        &self,
        address: Address,
        places: Places,
        startup: Startup,
        events: Events,
        health: Health,
        counts: Counts,
    ) -> Result<(Dispatch<S>, Heartbeat)> {
        let setup = &self.setup;
        let held = Arc::new(HeldLeases::of(address.clone()));
        let address = hardened(address, &self.name, setup.lease);
        let steps = step_server::serve(address.clone());
        // The answer to a claim may be lost, so the heartbeat reports which jobs have begun.
        let mut options = ClaimOptions::new()
            .worker(self.name.clone())
            .lease(setup.lease)
            .places(0);
        options.tasks = setup.handlers.tasks();
        options.groups = setup.groups.clone();
        options.versions = setup.versions.clone();
        let registration = Registration::new(
            self.name.clone(),
            &options,
            setup.lease,
            setup.concurrency,
            self.shutdown.clone(),
        );
        let heartbeat = Heartbeat::start(
            address.clone(),
            Arc::clone(&held),
            setup.lease,
            events.clone(),
            health.clone(),
            registration,
        )?;
        let connection = ClaimConnection {
            address,
            fair_share: FairShare::new(self.take_turns, options.tasks.as_deref()),
            options,
            events,
            shutdown: self.shutdown.clone(),
            health,
            limit: ClaimConnection::limit(setup.lease),
            held: Arc::clone(&held),
            lease: setup.lease,
            state: ExchangeState::new(),
            startup: Some(startup),
            start: self.start.clone(),
        };
        let dispatch = Dispatch::new(Arc::clone(setup), held, connection, places, counts, steps);
        Ok((dispatch, heartbeat))
    }
}

impl<S: Send + Sync + 'static> Branch<S> {
    pub(super) async fn run(self) -> Result<Summary> {
        let summary = self.dispatch.run().await;
        // Leases must be extended until the last outcome is reported.
        self.heartbeat.end().await;
        summary
    }
}

/// Returns the name of a database for logs: the first host, and the database.
pub(super) fn place(address: &Address) -> String {
    use tokio_postgres::config::Host;

    let host = match address.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => match address.get_hostaddrs().first() {
            Some(addr) => addr.to_string(),
            None => "localhost".to_owned(),
        },
    };
    let port = address.get_ports().first().copied().unwrap_or(5432);
    let database = address.get_dbname().or(address.get_user());
    format!("{host}:{port}/{}", database.unwrap_or_default())
}
