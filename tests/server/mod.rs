//! Requirements of the extension on the server.

mod backtrace;
mod durability;
mod memory;
mod statement;

use std::process::Command;

use harness::PATIENCE;
use harness::process::Process;
use trax_client::testkit::{Database, Server, Stop};

/// A server that was stopped and restarted by a command, and one of its databases.
struct Restarted {
    database: Database,
    running: Process,
    _server: Server,
}

impl Restarted {
    async fn by(command: impl Fn(&Server) -> Command) -> Self {
        let mut server = harness::options()
            .fast()
            .setting("trax.databases", "no_database_has_this_name")
            .start()
            .expect("a server starts");
        let database = server.database("app").await.expect("a database is made");
        server.stop(Stop::Fast).expect("the server stops");
        let running = Process::start(command(&server));
        let ready = "database system is ready to accept connections";
        running.says(ready, PATIENCE).await;
        Restarted {
            database,
            running,
            _server: server,
        }
    }
}
