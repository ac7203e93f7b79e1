//! The targets of one outbox: which of them its relays have reached, so that a new group is given
//! to one of these.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone)]
enum Standing {
    Untried,
    Away,
    Reached(String),
}

/// One target among those of an outbox.
pub struct Seat {
    all: Arc<Mutex<Vec<Standing>>>,
    mine: usize,
}

impl Seat {
    /// Returns one for each of so many targets.
    pub fn of(count: usize) -> Vec<Seat> {
        let all = Arc::new(Mutex::new(vec![Standing::Untried; count]));
        let seat = |mine| Seat {
            all: Arc::clone(&all),
            mine,
        };
        (0..count).map(seat).collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Standing>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn reached(&self, target: &str) {
        self.all()[self.mine] = Standing::Reached(target.to_owned());
    }

    /// Says that the target was tried; one that was reached before stays known.
    pub(crate) fn tried(&self) {
        let mut all = self.all();
        if matches!(all[self.mine], Standing::Untried) {
            all[self.mine] = Standing::Away;
        }
    }

    /// Returns the targets that were reached; none before each of all was tried, because the first
    /// one that answers would be given every group.
    pub(crate) fn candidates(&self) -> Option<Vec<String>> {
        let mut reached = Vec::new();
        for standing in self.all().iter() {
            match standing {
                Standing::Untried => return None,
                Standing::Away => {}
                Standing::Reached(target) => reached.push(target.clone()),
            }
        }
        Some(reached)
    }
}
