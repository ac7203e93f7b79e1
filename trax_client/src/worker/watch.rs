//! The thread that answers for the worker: probes by HTTP, and systemd.
//!
//! A thread and runtime of its own: it must be able to say that the others are blocked.

use std::net::TcpListener;
use std::thread::JoinHandle;

use tokio::sync::watch;

use super::event::{Event, Events};
use super::health::Health;
use super::shutdown::Shutdown;
use super::systemd::Systemd;
use crate::error::{Error, Result};
use crate::http::{self, Page};

/// What a worker is watched by.
#[derive(Default)]
pub(crate) struct Watchers {
    pub(crate) address: Option<String>,
    pub(crate) systemd: bool,
}

/// The thread; it ends when this is dropped.
pub(crate) struct Watch {
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// None when nobody watches.
    pub(crate) fn start(
        watchers: Watchers,
        health: &Health,
        shutdown: &Shutdown,
        events: &Events,
    ) -> Result<Option<Self>> {
        let listener = watchers.address.map(|address| {
            let refused = |error| Error::Setup(format!("cannot listen on {address}: {error}"));
            http::listen(&address).map_err(refused)
        });
        let listener = listener.transpose()?;
        let systemd = match watchers.systemd {
            true => Systemd::from_environment(|name| std::env::var(name).ok()),
            false => Ok(None),
        };
        let systemd = systemd.unwrap_or_else(|error| {
            let error = format!("NOTIFY_SOCKET: {error}");
            events.tell(Event::Unwatched { error });
            None
        });
        if listener.is_none() && systemd.is_none() {
            return Ok(None);
        }
        let failed = |error: std::io::Error| Error::Conversion(error.into());
        if let Some(listener) = &listener {
            let address = listener.local_addr().map_err(failed)?;
            events.tell(Event::Serving { address });
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
                () = tell(systemd, &health, &shutdown, &events) => {}
            }
        };
        let thread = std::thread::Builder::new()
            .name("trax-health".to_owned())
            .spawn(move || runtime.block_on(watching))
            .map_err(failed)?;
        Ok(Some(Watch {
            stop,
            thread: Some(thread),
        }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take() {
            // It stops at its next await; a panic there has been printed already.
            if thread.join().is_err() {}
        }
    }
}

/// Serves the probes; never returns.
async fn answer(listener: Option<TcpListener>, health: &Health, events: &Events) {
    if let Some(listener) = listener {
        let unheard = |error: std::io::Error| {
            let error = error.to_string();
            events.tell(Event::Unwatched { error });
        };
        let health = health.clone();
        let page = move |path: String| std::future::ready(page(&health, &path));
        if let Err(error) = http::serve(listener, unheard, page).await {
            unheard(error);
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

/// Tells systemd; never returns.
async fn tell(systemd: Option<Systemd>, health: &Health, shutdown: &Shutdown, events: &Events) {
    if let Some(systemd) = systemd {
        systemd.run(health, shutdown, events).await;
    }
    std::future::pending().await
}
