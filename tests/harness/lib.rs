//! What the tests stand on: a shared server with one database a test, and waits that have a
//! deadline.

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

/// How long a wait may take before it fails, on a machine that others load too. Not a promise:
/// where one is tested, what would happen without it takes far longer than this, or `prompt`
/// measures it.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// Returns the options of a server that also listens on 127.0.0.1 and asks nobody for a password:
/// programs of many drivers connect to it, under the names of many roles.
pub fn options() -> Options {
    Server::options()
        .setting("listen_addresses", "127.0.0.1")
        .access("host all all 127.0.0.1/32 trust")
        .access("host replication all 127.0.0.1/32 trust")
}

/// The server that tests share which do not stop, crash or configure one. Its databases have no
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

/// A new database with the extension on the shared server; it is dropped after the test.
pub async fn database() -> Database {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let made = shared_server().database(&name).await;
    made.expect("a database with the extension is made")
}

/// Asks again until `probe` gives a value; panics at the deadline with what was last seen.
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
            // The longer it takes, the less often it is asked: a question costs the server a
            // millisecond, and many tests wait at once.
            Err(_) => {
                let pause = begun.elapsed() / 20;
                let pause = pause.clamp(Duration::from_millis(5), Duration::from_millis(100));
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Returns whether the PostgreSQL of a server has PL/Proxy: Debian has it for one version.
pub fn has_plproxy(server: &Server) -> bool {
    has_library(server, "plproxy")
}

/// Returns whether the PostgreSQL of a server has a library; without it the test is skipped, or the
/// part that needs it.
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

/// Returns whether the tests of faults are to try all of them: `TRAX_FAULTS=whole`.
pub fn whole_faults() -> bool {
    std::env::var("TRAX_FAULTS").is_ok_and(|value| value == "whole")
}
