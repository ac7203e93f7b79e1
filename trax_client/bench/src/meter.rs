//! The cost of an interval: wall clock, CPU of the server's processes, WAL.

use std::fs;
use std::time::Instant;

use tokio_postgres::Client as Connection;

use trax_terminal::Failure;

/// Reads the counters of one server.
pub(crate) struct Meter {
    connection: Connection,
    /// `None` if the server's processes are not visible from here.
    postmaster: Option<i32>,
    ticks_per_second: f64,
}

/// The counters at the start of an interval.
pub(crate) struct Reading {
    at: Instant,
    cpu: Option<u64>,
    wal: i64,
}

/// The cost of an interval.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) wal_bytes: f64,
}

impl Cost {
    pub(crate) fn nothing() -> Self {
        Cost {
            seconds: 0.0,
            cpu_seconds: Some(0.0),
            wal_bytes: 0.0,
        }
    }

    /// Returns the cost with a duration measured by another clock.
    pub(crate) fn lasting(self, seconds: f64) -> Self {
        Cost { seconds, ..self }
    }
}

impl std::ops::Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost {
            seconds: self.seconds + other.seconds,
            cpu_seconds: self.cpu_seconds.zip(other.cpu_seconds).map(|(a, b)| a + b),
            wal_bytes: self.wal_bytes + other.wal_bytes,
        }
    }
}

impl Meter {
    pub(crate) async fn new(connection: Connection) -> Result<Self, Failure> {
        let sql = "select pg_catalog.pg_backend_pid(), current_database()::text";
        let row = connection.query_typed_one(sql, &[]).await?;
        let (backend, database): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
        // SAFETY: sysconf has no preconditions.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
        Ok(Meter {
            connection,
            postmaster: postmaster_of(backend, &database),
            ticks_per_second: if ticks > 0 { ticks as f64 } else { 100.0 },
        })
    }

    pub(crate) async fn begin(&self) -> Result<Reading, Failure> {
        let wal = self.wal().await?;
        let cpu = self.postmaster.and_then(cpu_ticks);
        Ok(Reading {
            at: Instant::now(),
            cpu,
            wal,
        })
    }

    pub(crate) async fn end(&self, begun: Reading) -> Result<Cost, Failure> {
        let seconds = begun.at.elapsed().as_secs_f64();
        let cpu = self.postmaster.and_then(cpu_ticks);
        let wal = self.wal().await?;
        Ok(Cost {
            seconds,
            cpu_seconds: begun
                .cpu
                .zip(cpu)
                .map(|(a, b)| b.saturating_sub(a) as f64 / self.ticks_per_second),
            wal_bytes: (wal - begun.wal) as f64,
        })
    }

    async fn wal(&self) -> Result<i64, Failure> {
        let sql = "select pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::bigint";
        Ok(self
            .connection
            .query_typed_one(sql, &[])
            .await?
            .try_get(0)?)
    }
}

/// Returns the parent of a backend, if it runs on this machine; its process title must name the
/// database.
fn postmaster_of(backend: i32, database: &str) -> Option<i32> {
    let title = fs::read(format!("/proc/{backend}/cmdline")).ok()?;
    let title = String::from_utf8_lossy(&title);
    if !title.contains(database) {
        return None;
    }
    Some(Process::read(backend)?.parent)
}

/// Returns the CPU time of all processes of a server; ended processes are included in their parent.
fn cpu_ticks(postmaster: i32) -> Option<u64> {
    loop {
        let own = Process::read(postmaster)?;
        let ticks = own.used + own.used_by_ended_children + cpu_ticks_of_children(postmaster)?;
        // A process that ended during the loop would be missing from both sums.
        if Process::read(postmaster)?.used_by_ended_children == own.used_by_ended_children {
            return Some(ticks);
        }
    }
}

fn cpu_ticks_of_children(postmaster: i32) -> Option<u64> {
    let mut ticks = 0;
    for entry in fs::read_dir("/proc").ok()? {
        let pid = entry
            .ok()?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(process) = pid.and_then(Process::read)
            && process.parent == postmaster
        {
            ticks += process.used;
        }
    }
    Some(ticks)
}

/// A line of /proc/PID/stat; times in clock ticks.
#[derive(Debug, Eq, PartialEq)]
struct Process {
    parent: i32,
    used: u64,
    used_by_ended_children: u64,
}

impl Process {
    fn read(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses the file described in proc(5); the name in parentheses may contain any text,
    /// including blanks and parentheses.
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The state is field 3; utime, stime, cutime and cstime are 14 to 17.
        let ticks = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Process {
            parent: fields.get(1)?.parse().ok()?,
            used: ticks(14)? + ticks(15)?,
            used_by_ended_children: ticks(16)? + ticks(17)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_may_have_any_name() {
        let stat = "77 (a) b (c) S 42 77 77 0 -1 4194560 1 2 3 4 50 6 700 80 20 0 1 0 99";
        let expected = Process {
            parent: 42,
            used: 56,
            used_by_ended_children: 780,
        };
        assert_eq!(Process::parse(stat), Some(expected));
        assert_eq!(Process::parse("77 (half"), None);
    }

    #[test]
    fn a_process_elsewhere_is_not_taken_for_the_server() {
        let own = i32::try_from(std::process::id()).expect("a process id");
        assert_eq!(postmaster_of(own, "trax_bench_no_such_database"), None);
    }
}
