//! The thread that reports the worker's health to HTTP probes and to systemd.
//!
//! The thread has its own runtime, so that it can report when other runtimes are blocked.

use std::net::TcpListener;
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::event::{Event, Events};
use super::health::Health;
use super::shutdown::Shutdown;
use super::systemd::Systemd;
use crate::error::{Error, Result};
use crate::http::{self, Page};

/// Where to report the health of a worker.
#[derive(Default)]
pub(crate) struct HealthOptions {
    pub(crate) address: Option<String>,
    pub(crate) systemd: bool,
}

/// The thread. Dropping this value ends it.
pub(crate) struct HealthThread {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl HealthThread {
    /// Starts the thread; `None` if no reporting is configured.
    pub(crate) fn start(
        options: HealthOptions,
        health: &Health,
        shutdown: &Shutdown,
        events: &Events,
    ) -> Result<Option<Self>> {
        let listener = options.address.map(|address| {
            let refused = |error| Error::Setup(format!("cannot listen on {address}: {error}"));
            http::listen(&address).map_err(refused)
        });
        let listener = listener.transpose()?;
        let systemd = match options.systemd {
            true => Systemd::from_environment(|name| std::env::var(name).ok()),
            false => Ok(None),
        };
        let systemd = systemd.unwrap_or_else(|error| {
            let error = format!("NOTIFY_SOCKET: {error}");
            events.emit(Event::Unwatched { error });
            None
        });
        if listener.is_none() && systemd.is_none() {
            return Ok(None);
        }
        let failed = |error: std::io::Error| Error::Conversion(error.into());
        if let Some(listener) = &listener {
            let address = listener.local_addr().map_err(failed)?;
            events.emit(Event::Serving { address });
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let (stop, mut stopped) = watch::channel(false);
        let (health, shutdown, events) = (health.clone(), shutdown.clone(), events.clone());
        let watching = async move {
            tokio::select! {
                _ = stopped.changed() => {}
                () = answer(listener, &health, &events) => {}
                () = notify(systemd, &health, &shutdown, &events) => {}
            }
        };
        let thread = std::thread::Builder::new()
            .name("trax-health".to_owned())
            .spawn(move || runtime.block_on(watching))
            .map_err(failed)?;
        Ok(Some(HealthThread {
            stop,
            thread: Some(thread),
        }))
    }
}

impl Drop for HealthThread {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // The thread stops at its next await. An error is a panic, which has been printed
            // already.
            thread.join().ok();
        }
    }
}

/// Serves the probes. Never returns.
async fn answer(listener: Option<TcpListener>, health: &Health, events: &Events) {
    if let Some(listener) = listener {
        let failed = |error: std::io::Error| {
            let error = error.to_string();
            events.emit(Event::Unwatched { error });
        };
        let health = health.clone();
        let page = move |path: String| std::future::ready(page(&health, &path));
        if let Err(error) = http::serve(listener, failed, page).await {
            failed(error);
        }
    }
    std::future::pending().await
}

fn page(health: &Health, path: &str) -> Page {
    let answer = match path {
        "/livez" => health.live(),
        "/readyz" => health.ready(),
        _ => return Page::text("404 Not Found", "see /livez and /readyz\n"),
    };
    match answer {
        Ok(()) => Page::text("200 OK", "ok\n"),
        Err(why) => Page::text("503 Service Unavailable", format!("{why}\n")),
    }
}

/// Notifies systemd. Never returns.
async fn notify(systemd: Option<Systemd>, health: &Health, shutdown: &Shutdown, events: &Events) {
    if let Some(systemd) = systemd {
        systemd.run(health, shutdown, events).await;
    }
    std::future::pending().await
}
