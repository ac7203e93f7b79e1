//! The link, either at rest or in an exchange that goes on while the worker's loop does other
//! things.

use std::future::Future;
use std::pin::Pin;

use super::link::{Link, Reply};
use super::telling::Settled;
use crate::error::Result;

type Exchange = Pin<Box<dyn Future<Output = (Box<Link>, Result<Reply>)> + Send>>;

pub(crate) enum Line {
    Idle(Box<Link>),
    Busy {
        exchange: Exchange,
        telling: u64,
    },
    /// Only while one state is made into another.
    Gone,
}

impl Line {
    pub(crate) fn new(link: Link) -> Self {
        Line::Idle(Box::new(link))
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self, Line::Idle(_))
    }

    /// Begins to tell `outbox` and to claim up to `want` jobs, for so many free places; only on an
    /// idle line.
    pub(crate) fn begin(&mut self, outbox: Vec<Settled>, want: usize, places: usize) {
        if let Line::Idle(mut link) = std::mem::replace(self, Line::Gone) {
            let telling = outbox.len() as u64;
            let exchange = Box::pin(async move {
                let reply = link.exchange(outbox, want, places).await;
                (link, reply)
            });
            *self = Line::Busy { exchange, telling };
        }
    }

    /// The end of the exchange; never when there is none. May be dropped and called again.
    pub(crate) async fn answer(&mut self) -> Result<Reply> {
        let Line::Busy { exchange, .. } = self else {
            return std::future::pending().await;
        };
        let (link, reply) = exchange.await;
        *self = Line::Idle(link);
        reply
    }

    /// How many outcomes are on their way.
    pub(crate) fn telling(&self) -> u64 {
        match self {
            Line::Busy { telling, .. } => *telling,
            Line::Idle(_) | Line::Gone => 0,
        }
    }
}
