//! Faults of the machine, through the shim: the clock is set, the disk is full, the zone data is
//! updated.

use crate::fact::Crash;
use crate::shim::ZONE;
use crate::strike::{Campaigner, Result, Wound, text_of};
use crate::testbed::{PATIENCE, now};
use std::time::{Duration, Instant};
use tokio::task::block_in_place;
use trax_client::testkit::Server;

/// The range of a clock step above its minimum, in microseconds.
const FARTHEST: i64 = 14_000_000;

fn panics_in(server: &Server) -> usize {
    let log = std::fs::read(server.log_file()).unwrap_or_default();
    String::from_utf8_lossy(&log).matches("PANIC").count()
}

impl Campaigner<'_> {
    /// Sets the clock forwards or backwards from the true time.
    pub(crate) fn set_clock(&mut self, pick: u64) -> (String, Option<Wound>) {
        let far = 1_000_000 + (pick / 2 % FARTHEST.unsigned_abs()) as i64;
        let by = if pick.is_multiple_of(2) { far } else { -far };
        self.step_clock(by);
        (format!("{} ms", by / 1000), Some(Wound::Clock))
    }

    /// Sets the clock to an offset from the true time, in microseconds.
    pub(crate) fn step_clock(&mut self, offset: i64) {
        self.damage.steps.push(self.shim.step_to(offset));
    }

    /// Fills the primary's disk. Half of the time WAL cannot grow either, which ends the server.
    pub(crate) async fn fill_disk(&mut self, pick: u64) -> Result<(String, Option<Wound>)> {
        let client = self.testbed.address.connect().await.map_err(text_of)?;
        let (since, panics) = (now(), panics_in(&self.testbed.primary));
        self.shim.fill(&self.testbed.primary.data_dir());
        let words = if pick.is_multiple_of(2) {
            // Each switch takes a preallocated segment; the one after the last cannot be created.
            let next = "select pg_logical_emit_message(false, 'chaos', ''), pg_switch_wal()";
            for _ in 0..20 {
                if client.simple_query(next).await.is_err() {
                    break;
                }
            }
            "tables and log"
        } else {
            "tables"
        };
        Ok((words.to_owned(), Some(Wound::Disk(since, panics))))
    }

    /// Frees the disk, and starts a server that ended because of it.
    pub(crate) async fn free_disk(&mut self, since: i64, panics: usize) -> Result<()> {
        self.shim.free();
        let begun = Instant::now();
        // The server may be about to end: recovery on a full disk does.
        while let Err(error) = self.testbed.address.connect().await {
            let server = &mut self.testbed.primary;
            if !server.is_running() {
                block_in_place(|| server.start()).map_err(text_of)?;
            } else if begun.elapsed() > PATIENCE {
                return Err(format!("the server takes no session: {error}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        if panics_in(&self.testbed.primary) > panics {
            self.damage.crashes.push(Crash::at(since));
        }
        Ok(())
    }

    /// Changes the server's zone data.
    pub(crate) fn update_zone_data(&mut self) -> Result<(String, Option<Wound>)> {
        let data = self.shim.change_zone().map_err(text_of)?;
        Ok((format!("{ZONE} gets that of {data}"), None))
    }
}
