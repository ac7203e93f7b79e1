//! Programs that run here, each in a process group of its own, so that what a program starts goes with it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::print;

/// How often a group whose leader has ended is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The process groups of the programs that run.
#[derive(Default)]
pub(crate) struct Groups(Mutex<HashSet<i32>>);

impl Groups {
    fn lock(&self) -> MutexGuard<'_, HashSet<i32>> {
        // No code panics under the lock; the set is whole even if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group of a program that was just started; its leader's process id is its name.
    pub(crate) fn enter(&self, leader: Option<u32>) -> Group<'_> {
        let id = leader.and_then(|pid| i32::try_from(pid).ok());
        self.lock().extend(id);
        Group { id, all: self }
    }

    /// Kills every program that still runs.
    pub(crate) fn kill_all(&self) {
        for group in self.lock().drain() {
            signal(group, libc::SIGKILL);
        }
    }
}

/// One of them; killed when the handler is dropped before the program's end.
pub(crate) struct Group<'a> {
    id: Option<i32>,
    all: &'a Groups,
}

impl Group<'_> {
    /// Its name, unless the program had ended before it was asked.
    pub(crate) fn id(&self) -> Option<i32> {
        self.id
    }

    pub(crate) fn signal(&self, number: i32) {
        if let Some(id) = self.id {
            signal(id, number);
        }
    }

    /// Returns when nothing of it is left. Nobody tells, so it is looked at.
    pub(crate) async fn gone(&self) {
        while self.id.is_some_and(|id| send(id, 0).is_ok()) {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The program has ended by itself.
    pub(crate) fn leave(mut self, kill_rest: bool) {
        if kill_rest {
            self.signal(libc::SIGKILL);
        }
        if let Some(id) = self.id.take() {
            self.all.lock().remove(&id);
        }
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id
            && self.all.lock().remove(&id)
        {
            signal(id, libc::SIGKILL);
        }
    }
}

fn signal(group: i32, number: i32) {
    if let Err(error) = send(group, number) {
        // ESRCH: it has just ended.
        if error.raw_os_error() != Some(libc::ESRCH) {
            print::log(
                "trax",
                &format!("signal {number} to process group {group}: {error}"),
            );
        }
    }
}

/// Sends a signal; 0 asks whether anybody is there.
fn send(group: i32, number: i32) -> std::io::Result<()> {
    // SAFETY: kill has no memory preconditions; the group was made for one program alone.
    match unsafe { libc::kill(-group, number) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}
