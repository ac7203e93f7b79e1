//! The directory of a server, and its owner.
//!
//! The owner holds a lock beside the directory as long as it lives. The next process that makes a
//! directory removes those without a held lock: their owners were killed, or ended with a server in
//! a static variable.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Error;
use super::install::Install;

/// A directory that only the server's account can use. Removed on drop.
pub(crate) struct Directory {
    path: PathBuf,
    _owner: File,
}

impl Directory {
    /// Makes a new directory under `home`.
    pub(crate) fn make(install: &Install, home: &Path) -> Result<Self, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static SWEEP: Once = Once::new();
        // In parallel with the server's start: removing a thousand databases takes a minute.
        let to_sweep = home.to_owned();
        SWEEP.call_once(|| drop(std::thread::spawn(move || sweep(&to_sweep))));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = home.join(format!("server-{}-{number}", std::process::id()));
        let lock = owner_file(&path);
        // Locked before the directory exists, so that no process finds a directory without an
        // owner.
        let owner = File::create(&lock).map_err(Error::of(lock.display()))?;
        owner.lock().map_err(Error::of(lock.display()))?;
        install.make_dir(&path)?;
        Ok(Directory {
            path,
            _owner: owner,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Returns the path of the lock beside a server's directory.
fn owner_file(dir: &Path) -> PathBuf {
    dir.with_extension("owner")
}

fn remove(dir: &Path) {
    let removed = fs::remove_dir_all(dir).and_then(|()| fs::remove_file(owner_file(dir)));
    if let Err(error) = removed {
        eprintln!("trax testkit: {}: {error}", dir.display());
    }
}

/// Removes the directories that killed owners left behind: those whose lock is free.
fn sweep(home: &Path) {
    let Ok(entries) = fs::read_dir(home) else {
        return;
    };
    for lock in entries.flatten().map(|entry| entry.path()) {
        if lock
            .extension()
            .is_none_or(|extension| extension != "owner")
        {
            continue;
        }
        let dir = lock.with_extension("");
        let Ok(file) = File::open(&lock) else {
            continue;
        };
        if file.try_lock().is_ok() && dir.exists() {
            remove(&dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_owner_left_is_removed_and_what_a_living_one_has_stays() {
        let home = std::env::temp_dir().join(format!("trax-sweep-{}", std::process::id()));
        let (dead, living) = (home.join("server-1-0"), home.join("server-1-1"));
        for dir in [&dead, &living] {
            fs::create_dir_all(dir.join("data")).expect("it can be made");
        }
        File::create(owner_file(&dead)).expect("it can be made");
        let owner = File::create(owner_file(&living)).expect("it can be made");
        owner.lock().expect("nobody else has it");
        sweep(&home);
        assert!(!dead.exists() && !owner_file(&dead).exists());
        assert!(living.exists() && owner_file(&living).exists());
        fs::remove_dir_all(&home).expect("it can be removed");
    }
}
