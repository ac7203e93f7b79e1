//! A clock that can be stepped, a disk that can be full and zone data that can change, for every
//! process of a campaign: `shim.c`, preloaded into this program and so into all its children.

use crate::testbed::now;
use std::ffi::CString;
use std::fs::File;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Names the directory of the page and the zone data to `shim.c`.
const PLACE: &str = "CHAOS_SHIM";
/// The offsets of the fields in the page, and its length.
const OFFSET: u64 = 0;
const FULL: u64 = 8;
const PATH: u64 = 16;
const LENGTH: u64 = 4096;

/// The zone whose data changes, and the zones whose data it gets in turn: two hours apart in
/// winter, one in summer.
pub(crate) const ZONE: &str = "Europe/Berlin";
const DATA: [&str; 2] = ["Europe/Berlin", "Europe/Moscow"];
const ORIGINAL: &str = "/usr/share/zoneinfo";

/// The page and the files beside it; removed on drop.
pub(crate) struct Shim {
    place: PathBuf,
    page: File,
    offset: i64,
    /// The index of the zone's current data.
    data: usize,
}

impl Shim {
    /// Returns the page of this process. Without a page, restarts the program with one.
    ///
    /// # Panics
    /// If the shim cannot be built.
    pub(crate) fn enter() -> Self {
        let Some(place) = std::env::var_os(PLACE) else {
            Self::begin_again();
        };
        let place = PathBuf::from(place);
        let page = File::options().write(true).open(place.join("control"));
        Shim {
            page: page.expect("the page is there"),
            place,
            offset: 0,
            data: 0,
        }
    }

    /// Does not return: executes this program again in the same process, with the shim preloaded.
    fn begin_again() -> ! {
        let place = std::env::temp_dir().join(format!("trax-chaos-{}", std::process::id()));
        std::fs::create_dir(&place).expect("a new directory can be made");
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&place, open).expect("its maker may change it");
        let page = File::create(place.join("control")).expect("a file can be made");
        page.set_len(LENGTH).expect("it can be made longer");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("chaos/shim.c");
        let library = place.join("shim.so");
        let built = Command::new("cc")
            .args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"])
            .arg(&library)
            .arg(source)
            .status();
        assert!(built.is_ok_and(|status| status.success()), "cc builds it");
        let copied = Command::new("cp")
            .args(["-a", ORIGINAL])
            .arg(place.join("zones"))
            .status();
        assert!(copied.is_ok_and(|status| status.success()), "cp copies");
        let this = std::env::current_exe().expect("a process knows its program");
        let error = Command::new(this)
            .args(std::env::args_os().skip(1))
            .env("LD_PRELOAD", library)
            .env(PLACE, &place)
            .exec();
        panic!("this program cannot be run again: {error}");
    }

    /// Sets the clock to an offset from the true time, in microseconds; returns the times shown
    /// just before and just after.
    pub(crate) fn step_to(&mut self, offset: i64) -> (i64, i64) {
        let (before, begun) = (now(), Instant::now());
        self.write(OFFSET, &offset.to_ne_bytes());
        let after = now();
        let took = i64::try_from(begun.elapsed().as_micros()).unwrap_or(i64::MAX) + 1_000;
        let forward = offset >= std::mem::replace(&mut self.offset, offset);
        if forward {
            (before, after)
        } else {
            (before + took, after - took)
        }
    }

    /// Files under the directory cannot grow any more.
    pub(crate) fn fill(&self, directory: &Path) {
        let path = CString::new(directory.as_os_str().as_encoded_bytes()).expect("a path");
        self.write(PATH, path.as_bytes_with_nul());
        self.write(FULL, &1_i32.to_ne_bytes());
    }

    /// Files can grow again.
    pub(crate) fn free(&self) {
        self.write(FULL, &0_i32.to_ne_bytes());
    }

    /// Replaces the data of the zone as a package manager does: a new file in place of the old one,
    /// and a changed directory.
    pub(crate) fn change_zone(&mut self) -> std::io::Result<&'static str> {
        self.data = (self.data + 1) % DATA.len();
        let data = DATA[self.data];
        let zones = self.place.join("zones");
        let new = zones.join("new");
        std::fs::copy(Path::new(ORIGINAL).join(data), &new)?;
        std::fs::rename(&new, zones.join(ZONE))?;
        // The directory shows the change even if file times are coarse.
        symlink(data, &new)?;
        std::fs::remove_file(&new)?;
        Ok(data)
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        self.page
            .write_all_at(bytes, at)
            .expect("the page can be written");
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.place) {
            eprintln!("{}: {error}", self.place.display());
        }
    }
}
