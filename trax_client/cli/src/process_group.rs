//! Programs that run here, each in its own process group, so that what a program starts goes
//! with it. None outlives this process, however it ends: see `guard`.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::process::Command;
use tokio::signal::unix;
use tokio::signal::unix::SignalKind;

use crate::guard::Guard;
use crate::signal::{is_running, is_there, signal};
use trax_terminal::print;

/// How often a group whose leader has ended is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The process groups of the programs that run.
pub(crate) struct Groups(Mutex<Running>);

struct Running {
    groups: HashSet<i32>,
    guard: Option<Guard>,
}

impl Running {
    /// Removes it; returns whether it was there.
    fn remove(&mut self, group: i32) -> bool {
        if let Some(guard) = &mut self.guard {
            guard.gone(group);
        }
        self.groups.remove(&group)
    }
}

impl Groups {
    /// Returns an empty set. What of them still runs when this process is gone may continue for the
    /// grace.
    pub(crate) fn new(grace: Duration) -> Self {
        let groups = HashSet::new();
        let guard = Guard::start(grace, &groups);
        let guard = guard.map_err(|error| {
            let text = format!("programs will keep running if this process is killed: {error}");
            print::log("trax", &text);
        });
        Groups(Mutex::new(Running {
            groups,
            guard: guard.ok(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        // No code panics under the lock; the set is whole even if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a guard for as long as it is polled, also when somebody ends it or stops it. Never
    /// returns.
    pub(crate) async fn keep_guard(&self) -> Infallible {
        // Of every child: without it the next program sees to a guard.
        let Ok(mut changes) = unix::signal(SignalKind::child()) else {
            return std::future::pending().await;
        };
        loop {
            changes.recv().await;
            let Running { groups, guard } = &mut *self.lock();
            if let Some(guard) = guard {
                guard.renew(groups);
            }
        }
    }

    /// Puts a program that is about to be started into its own group.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.process_group(0);
        let Running { groups, guard } = &mut *self.lock();
        if let Some(guard) = guard {
            guard.renew(groups);
            // SAFETY: what it does is allowed between fork and exec.
            unsafe { command.pre_exec(guard.announcement()) };
        }
    }

    /// Returns the group of a program that was just started; its leader's process id is its name.
    pub(crate) fn enter(&self, leader: Option<u32>) -> Group<'_> {
        let id = leader.and_then(|pid| i32::try_from(pid).ok());
        if let Some(id) = id {
            let Running { groups, guard } = &mut *self.lock();
            groups.insert(id);
            if let Some(guard) = guard {
                guard.begins(id);
            }
        }
        Group { id, all: self }
    }

    /// Kills every program that still runs.
    pub(crate) fn kill_all(&self) {
        let mut running = self.lock();
        for group in std::mem::take(&mut running.groups) {
            signal(group, libc::SIGKILL);
            running.remove(group);
        }
    }
}

/// One of them; killed when the handler is dropped before the program's end.
pub(crate) struct Group<'a> {
    id: Option<i32>,
    all: &'a Groups,
}

impl Group<'_> {
    /// Returns its name, unless the program had ended before.
    pub(crate) fn id(&self) -> Option<i32> {
        self.id
    }

    pub(crate) fn signal(&self, number: i32) {
        if let Some(id) = self.id {
            signal(id, number);
        }
    }

    /// Returns when nothing of it runs. There is no notification, so it polls.
    pub(crate) async fn gone(&self) {
        while let Some(id) = self.id.filter(|&id| is_there(id) && is_running(id)) {
            reap(id);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends what is left of the group after the program has ended.
    pub(crate) fn leave(mut self) {
        self.signal(libc::SIGKILL);
        if let Some(id) = self.id.take() {
            self.all.lock().remove(id);
        }
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id
            && self.all.lock().remove(id)
        {
            signal(id, libc::SIGKILL);
        }
    }
}

/// Takes note of the ends of what became this process's child because its parent had ended: as the
/// first process of a container. The program itself, whose end is waited for elsewhere, has ended.
fn reap(group: i32) {
    // SAFETY: it waits for nothing, and writes no status.
    while unsafe { libc::waitpid(-group, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}
