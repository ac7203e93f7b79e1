//! The basis of the tests: a shared server with one database per test, and waits with a deadline.

pub mod database;
pub mod dice;
pub mod http;
pub mod limit;
pub mod manifest;
pub mod markdown;
pub mod pooler;
pub mod process;
pub mod prompt;
pub mod proxy;
pub mod rights;
pub mod scheduler;
pub mod session;
pub mod standby;
pub mod statement;
pub mod sweep;

use database::Shared;
use process::run_quietly;
use std::future::Future;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use trax_client::testkit::{Database, Options, Server};

/// The time limit of a wait on a loaded machine. Promised times are tested differently: without the
/// promised behavior the wait would take far longer than this, or `prompt` measures the time.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Returns the options of a server that also listens on 127.0.0.1 and trusts every role without a
/// password, since programs of many drivers connect as many roles.
pub fn options() -> Options {
    Server::options()
        .setting("listen_addresses", "127.0.0.1")
        .access("host all all 127.0.0.1/32 trust")
        .access("host replication all 127.0.0.1/32 trust")
}

/// The shared server of the tests that do not stop, crash or configure it. Its databases have no
/// schedulers: the tests call `trax.tick()`.
pub fn shared_server() -> &'static Shared {
    static SERVER: OnceLock<Shared> = OnceLock::new();
    SERVER.get_or_init(|| {
        let options = options()
            .fast()
            .setting("trax.databases", "no_database_has_this_name")
            .setting("max_connections", "400");
        Shared(options.start().expect("a server starts"))
    })
}

/// Returns a new database with the extension on the shared server; it is dropped after the test.
pub async fn database() -> Database {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let made = shared_server().database(&name).await;
    made.expect("a database with the extension is made")
}

/// Repeats `probe` until it succeeds; panics at the deadline with the last error.
pub async fn eventually<T, F, Fut>(what: &str, limit: Duration, mut probe: F) -> T
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, String>>,
{
    let begun = Instant::now();
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(seen) if begun.elapsed() >= limit => {
                panic!("{what} did not happen within {limit:?}; last seen: {seen}")
            }
            // The pause grows with the wait: a probe costs the server a millisecond, and many tests
            // wait at once.
            Err(_) => {
                let pause = begun.elapsed() / 10;
                let pause = pause.clamp(Duration::from_millis(5), Duration::from_millis(100));
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Returns whether a server's PostgreSQL has PL/Proxy, which Debian packages for one version.
pub fn has_plproxy(server: &Server) -> bool {
    has_library(server, "plproxy")
}

/// Returns whether a server's PostgreSQL has a library; otherwise the test, or a part of it, is
/// skipped.
pub fn has_library(server: &Server, name: &str) -> bool {
    let mut pg_config = server.command("pg_config");
    let libraries = run_quietly(pg_config.arg("--pkglibdir"));
    let libraries = libraries.trim();
    let found = Path::new(libraries).join(format!("{name}.so")).exists();
    if !found {
        eprintln!("skipped: {libraries} has no {name}");
    }
    found
}

/// Returns a number of rows that stands for very many: `full` if `TRAX_ROWS` is `whole`, otherwise
/// a tenth, since reading even a tenth costs far more than the tests allow.
pub fn many(full: i64) -> i64 {
    match std::env::var("TRAX_ROWS").is_ok_and(|value| value == "whole") {
        true => full,
        false => full / 10,
    }
}

/// Returns the number in an environment variable, unless that is missing or empty.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")),
    )
}

/// Returns whether the fault tests must try all faults: `TRAX_FAULTS=whole`.
pub fn whole_faults() -> bool {
    std::env::var("TRAX_FAULTS").is_ok_and(|value| value == "whole")
}
