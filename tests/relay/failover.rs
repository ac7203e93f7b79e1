//! Failover of a server while rows are carried.

use super::{outbox_on, play};
use harness::process::Process;
use harness::scheduler::new_name;
use harness::session::Session;
use harness::standby::Standby;
use harness::{PATIENCE, eventually};
use std::process::Command;
use tokio_postgres::Config;
use trax_client::testkit::{Server, Stop};

/// A server with a synchronous standby.
struct Pair {
    // Dropped before its primary, since it lies in the primary's directory.
    standby: Standby,
    primary: Server,
    database: String,
}

impl Pair {
    async fn of(primary: Server, database: &str) -> Self {
        let standby = Standby::of(&primary, &["synchronous_standby_names="]).await;
        let admin = session_on(&primary, primary.port(), "postgres").await;
        admin
            .get("alter system set synchronous_standby_names = '*'")
            .await;
        admin.get("select pg_reload_conf()").await;
        let sync = "select count(*) from pg_stat_replication where sync_state = 'sync'";
        admin.becomes(sync, "1").await;
        Pair {
            standby,
            primary,
            database: database.to_owned(),
        }
    }

    /// Both addresses, as given to a program that must survive a failover.
    fn url(&self) -> String {
        format!(
            "host=127.0.0.1,127.0.0.1 port={},{} user=postgres dbname={} sslmode=disable",
            self.primary.port(),
            self.standby.port(),
            self.database
        )
    }

    /// Stops the primary and promotes the standby; returns a session there.
    async fn fail_over(&mut self) -> Session {
        self.primary.stop(Stop::Immediate).expect("it stops");
        let session = session_on(&self.primary, self.standby.port(), &self.database).await;
        session.get("select pg_promote()").await;
        session
    }
}

/// A session on one of two servers that share a socket directory.
async fn session_on(server: &Server, port: u16, database: &str) -> Session {
    let mut there = Config::new();
    there.host_path(server.socket_dir()).port(port);
    there.user("postgres").dbname(database);
    Session::with(there).await
}

/// Waits until a statement returns at least `least`.
async fn reaches(session: &Session, relay: &Process, sql: &str, least: i64) {
    eventually(sql, PATIENCE, async || match session.number(sql).await {
        n if n >= least => Ok(()),
        n => Err(format!(
            "{n} of {least}; the relay said: {}",
            relay.output()
        )),
    })
    .await;
}

const JOBS: &str = "select count(distinct task) from trax.work_queue";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_sides_fail_over_and_every_row_is_one_job() {
    let durable = || {
        harness::options()
            .fast()
            .setting("synchronous_commit", "on")
    };
    let at_source = durable().start().expect("a server starts");
    let at_target = durable()
        .setting("trax.databases", "none_has_this_name")
        .start()
        .expect("a server starts");
    let (database, source) = outbox_on(&at_source).await;
    let mut sources = Pair::of(at_source, database.name()).await;
    let name = new_name("target");
    let database = at_target.database(&name).await.expect("a database");
    play(&at_target, &database, "relay.sql");
    let target = Session::of(&database).await;
    let mut targets = Pair::of(at_target, &name).await;

    let mut command = Command::new(harness::process::trax_binary());
    command.args(["relay", "--from", &sources.url(), "--to", &targets.url()]);
    command.args(["--batch", "20"]);
    let relay = Process::start(command);
    let rows =
        "select count(trax_outbox.enqueue(gen_random_uuid()::text)) from generate_series(1, 3000)";
    source.get(rows).await;
    reaches(&target, &relay, JOBS, 100).await;
    drop(source);
    let source = sources.fail_over().await;
    reaches(&target, &relay, JOBS, 3_000).await;

    source.get(rows).await;
    reaches(&target, &relay, JOBS, 3_100).await;
    drop(target);
    let target = targets.fail_over().await;
    reaches(&target, &relay, JOBS, 6_000).await;
    source
        .becomes("select count(*) from trax_outbox.entry", "0")
        .await;
    assert_eq!(
        target.get("select count(*) from trax.work_queue").await,
        "6000"
    );
    assert_eq!(
        source.get("select count(*) from trax_outbox.refused").await,
        "0"
    );
    drop(relay);
}
