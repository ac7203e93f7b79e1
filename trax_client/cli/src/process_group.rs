//! Programs in their own process groups, so that the processes a program starts end with it. None
//! outlives this process, however it ends: see `guard`.

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

/// How often to check a group whose leader has ended.
const LOOK: Duration = Duration::from_millis(20);

/// The process groups of running programs.
pub(crate) struct Groups(Mutex<Running>);

struct Running {
    groups: HashSet<i32>,
    guard: Option<Guard>,
}

impl Running {
    /// Removes a group. Returns whether it was present.
    fn remove(&mut self, group: i32) -> bool {
        if let Some(guard) = &mut self.guard {
            guard.gone(group);
        }
        self.groups.remove(&group)
    }
}

impl Groups {
    /// Returns an empty set. Groups that still run when this process ends get the grace period.
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
        // No code panics under the lock, and the set would stay consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a guard running as long as it is polled, replacing one that was killed or stopped.
    /// Never returns.
    pub(crate) async fn keep_guard(&self) -> Infallible {
        // SIGCHLD arrives for every child. Without it, the next program to start renews the guard.
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

    /// Makes a program that is about to start the leader of its own group.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.process_group(0);
        let Running { groups, guard } = &mut *self.lock();
        if let Some(guard) = guard {
            guard.renew(groups);
            // SAFETY: the announcement only makes calls that are allowed between fork and exec.
            unsafe { command.pre_exec(guard.announcement()) };
        }
    }

    /// Returns the group of a program that was just started, identified by its leader's process id.
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

/// The group of one program. Dropping it before the program's end kills the group.
pub(crate) struct Group<'a> {
    id: Option<i32>,
    all: &'a Groups,
}

impl Group<'_> {
    /// Returns the group's id, unless the program had already ended.
    pub(crate) fn id(&self) -> Option<i32> {
        self.id
    }

    pub(crate) fn signal(&self, number: i32) {
        if let Some(id) = self.id {
            signal(id, number);
        }
    }

    /// Completes when no process of the group runs. There is no notification, so it polls.
    pub(crate) async fn gone(&self) {
        while let Some(id) = self.id.filter(|&id| is_there(id) && is_running(id)) {
            reap(id);
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Kills the rest of the group after the program has ended.
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

/// Reaps orphans of the group that were reparented to this process, as happens to the first process
/// of a container. The program itself has ended and is waited for elsewhere.
fn reap(group: i32) {
    // SAFETY: the call does not block, and writes no status.
    while unsafe { libc::waitpid(-group, std::ptr::null_mut(), libc::WNOHANG) } > 0 {}
}
