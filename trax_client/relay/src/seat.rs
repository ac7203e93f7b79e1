//! Tracks which targets of an outbox its relays have reached, so that new groups are assigned to
//! reached ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone)]
enum Standing {
    Untried,
    Away,
    Reached(String),
}

/// A target among those of an outbox.
pub struct Seat {
    all: Arc<Mutex<Vec<Standing>>>,
    mine: usize,
}

impl Seat {
    /// Returns a seat for each of `count` targets.
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

    /// Records that the target was tried. A target that was reached before keeps its state.
    pub(crate) fn tried(&self) {
        let mut all = self.all();
        if matches!(all[self.mine], Standing::Untried) {
            all[self.mine] = Standing::Away;
        }
    }

    /// Returns the targets that were reached. `None` until every target was tried, as the first one
    /// to answer would otherwise be assigned every group.
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
