//! The measured machine, and conditions that make the figures unreliable.

use std::fs;

use serde::Serialize;

use super::server::BenchServer;
use trax_terminal::Failure;

/// More runnable processes per core than this before the bench are noise.
const QUIET: f64 = 0.25;

/// The machine of this program, and the server.
#[derive(Serialize)]
pub(crate) struct Machine {
    model: String,
    cores: usize,
    memory_bytes: u64,
    load_average: f64,
    server: String,
    trax: String,
    settings: Vec<(String, String)>,
    warnings: Vec<String>,
}

/// The settings that determine speed.
const SETTINGS: &str = "select s.name::text, pg_catalog.current_setting(s.name)
    from pg_catalog.pg_settings s
    where s.name in (
        'fsync', 'synchronous_commit', 'full_page_writes', 'wal_level', 'wal_compression', 'shared_buffers',
        'max_wal_size', 'jit', 'track_commit_timestamp', 'data_checksums'
    )
    order by 1";

impl Machine {
    pub(crate) async fn look(bench: &BenchServer) -> Result<Self, Failure> {
        let connection = bench.outside().await?;
        let sql = "select pg_catalog.version(),
            (select default_version::text from pg_catalog.pg_available_extensions where name = 'trax'),
            (select count(*) from pg_catalog.pg_stat_activity
                where backend_type = 'client backend' and state = 'active' and pid <> pg_catalog.pg_backend_pid())";
        let row = connection.query_typed_one(sql, &[]).await?;
        let server: String = row.try_get(0)?;
        let mut machine = Machine {
            model: processor(),
            cores: std::thread::available_parallelism()?.get(),
            memory_bytes: memory(),
            load_average: load_average(),
            server: server.split(" on ").next().unwrap_or(&server).to_owned(),
            trax: row.try_get(1)?,
            settings: Vec::new(),
            warnings: Vec::new(),
        };
        for row in connection.query_typed(SETTINGS, &[]).await? {
            machine.settings.push((row.try_get(0)?, row.try_get(1)?));
        }
        machine.warn(bench, row.try_get(2)?).await?;
        Ok(machine)
    }

    async fn warn(&mut self, server: &BenchServer, active: i64) -> Result<(), Failure> {
        if !server.is_preloaded() {
            self.warnings.push(
                "the library is not preloaded (shared_preload_libraries): nothing is woken, waiters poll every half a second"
                    .to_owned(),
            );
        }
        if self.load_average > QUIET * self.cores as f64 {
            self.warnings.push(format!(
                "the load average is {:.2}: other work on this machine blurs what follows",
                self.load_average
            ));
        }
        if active > 0 {
            self.warnings.push(format!(
                "{active} other sessions are active on this server: their CPU time and WAL are counted too"
            ));
        }
        let off = |name| {
            self.settings
                .iter()
                .any(|(n, value)| n == name && value == "off")
        };
        for name in ["fsync", "synchronous_commit", "full_page_writes"] {
            if off(name) {
                self.warnings
                    .push(format!("{name} is off: nothing here is durable"));
            }
        }
        if cfg!(debug_assertions) {
            self.warnings
                .push("this program was built without optimization".to_owned());
        }
        for name in server.left_over().await? {
            self.warnings.push(format!(
                "an earlier benchmark left a database: drop database {name}"
            ));
        }
        Ok(())
    }

    /// Returns lines for a person.
    pub(crate) fn lines(&self) -> Vec<String> {
        let gib = self.memory_bytes as f64 / f64::from(1 << 30);
        let settings: Vec<String> = self
            .settings
            .iter()
            .map(|(n, value)| format!("{n} {value}"))
            .collect();
        let mut lines = vec![
            format!("{}, {} cores, {gib:.0} GiB", self.model, self.cores),
            format!("{}, trax {}", self.server, self.trax),
            settings.join(", "),
        ];
        lines.extend(
            self.warnings
                .iter()
                .map(|warning| format!("warning: {warning}")),
        );
        lines
    }
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    named(&text, "model name")
        .unwrap_or("unknown processor")
        .to_owned()
}

fn memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib =
        named(&text, "MemTotal").and_then(|value| value.split(' ').next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|one| one.parse().ok())
        .unwrap_or(0.0)
}

/// Returns the value of the first line `name : value`.
fn named<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
}
