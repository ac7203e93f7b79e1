//! The viewers of a database, and the message that all of them get.
//!
//! Invariant: the numbers are asked for only while there are viewers, and never concurrently.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Sender};

use crate::numbers::News;
use crate::trouble::Trouble;

const PERIOD: Duration = Duration::from_secs(2);
/// How long a viewer's permission is cached.
pub(crate) const RECHECK: Duration = Duration::from_secs(4);
/// The maximum number of concurrent viewers.
const VIEWERS: usize = 1_000;

/// The viewers of a database.
pub(crate) struct Viewers(Arc<Channel>);

struct Channel {
    sender: Sender<Arc<str>>,
    asks: AtomicBool,
}

impl Viewers {
    pub(crate) fn new() -> Self {
        Viewers(Arc::new(Channel {
            sender: broadcast::channel(4).0,
            asks: AtomicBool::new(false),
        }))
    }

    /// Refuses another viewer if there are too many.
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        if self.0.sender.receiver_count() < VIEWERS {
            return Ok(());
        }
        Err(Trouble::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{VIEWERS} people look already"),
        ))
    }

    /// Returns a stream of the values of `ask`, which is called once for all viewers, until
    /// `may_look` returns false.
    pub(crate) fn stream<A, F, M, G>(&self, ask: A, may_look: M) -> Response
    where
        A: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = Option<News>> + Send,
        M: Fn() -> G + Send + Sync + 'static,
        G: Future<Output = bool> + Send,
    {
        let receiver = self.0.sender.subscribe();
        if !self.0.asks.swap(true, Ordering::AcqRel) {
            let channel = Arc::clone(&self.0);
            tokio::spawn(async move { ask_while_somebody_looks(&channel, ask).await });
        }
        let begin = (receiver, may_look, Instant::now());
        let events = stream::unfold(begin, |(mut receiver, may_look, mut asked)| async move {
            loop {
                match receiver.recv().await {
                    Ok(text) => {
                        if asked.elapsed() >= RECHECK {
                            if !may_look().await {
                                return None;
                            }
                            asked = Instant::now();
                        }
                        let event = Event::default().data(text.as_ref());
                        let next = (receiver, may_look, asked);
                        return Some((Ok::<_, Infallible>(event), next));
                    }
                    // A slow reader gets the newest value.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        });
        let beat = KeepAlive::new().interval(Duration::from_secs(10));
        Sse::new(events).keep_alive(beat).into_response()
    }
}

async fn ask_while_somebody_looks<F: Future<Output = Option<News>>>(
    channel: &Channel,
    ask: impl Fn() -> F,
) {
    loop {
        while channel.sender.receiver_count() > 0 {
            let text = match ask().await {
                Some(news) => news.json(),
                None => "{\"unknown\":true}".to_owned(),
            };
            // Sending fails if no viewer is left, which is not an error.
            drop(channel.sender.send(Arc::from(text)));
            tokio::time::sleep(PERIOD).await;
        }
        channel.asks.store(false, Ordering::Release);
        // A viewer that arrived meanwhile saw the flag still set.
        let nobody = channel.sender.receiver_count() == 0;
        if nobody || channel.asks.swap(true, Ordering::AcqRel) {
            return;
        }
    }
}
