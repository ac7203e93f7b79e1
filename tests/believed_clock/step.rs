//! A server whose clock is set, with the library that `tests/chaos` also uses.

use harness::PATIENCE;
use harness::process::{Process, Scratch, run_quietly};
use harness::session::Session;
use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use trax_client::testkit::{Database, Server, Stop};

const DAY: i64 = 86_400_000_000;

/// A server with a scheduler, and the page that holds the offset of its clock.
struct Machine {
    database: Database,
    page: File,
    _running: Process,
    _server: Server,
    _scratch: Scratch,
}

impl Machine {
    async fn begin() -> Self {
        let scratch = Scratch::new("stepped-clock");
        let place = scratch.path();
        let page = File::create(place.join("control")).expect("a file can be made");
        page.set_len(4096).expect("it can be made longer");
        symlink("/usr/share/zoneinfo", place.join("zones")).expect("a link can be made");
        let library = place.join("shim.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("chaos/shim.c");
        run_quietly(
            Command::new("cc")
                .args(["-O2", "-shared", "-fPIC", "-o"])
                .arg(&library)
                .arg(source),
        );
        run_quietly(Command::new("chmod").args(["-R", "a+rX"]).arg(place));
        let mut server = harness::options().fast().start().expect("a server starts");
        let database = server.database("app").await.expect("a database is made");
        server.stop(Stop::Fast).expect("the server stops");
        let mut command = server.command("postgres");
        command.arg("-D").arg(server.data_dir());
        command
            .env("LD_PRELOAD", library)
            .env("CHAOS_SHIM", scratch.path());
        let running = Process::start(command);
        let ready = "database system is ready to accept connections";
        running.says(ready, PATIENCE).await;
        Machine {
            database,
            page,
            _running: running,
            _server: server,
            _scratch: scratch,
        }
    }

    /// Sets the clock to an offset from the true time, in microseconds.
    fn set_clock(&self, offset: i64) {
        let written = self.page.write_all_at(&offset.to_ne_bytes(), 0);
        written.expect("the page can be written");
    }
}

/// Waits until a cycle that began after this call has ended.
async fn a_cycle_passes(s: &Session) {
    let last = "select value from trax.metrics() where name = 'trax_cycle_duration_seconds_count'";
    let before = s.number(last).await;
    s.becomes(&format!("select value > {before} + 1 from ({last}) m"), "t")
        .await;
}

#[tokio::test]
async fn seconds_of_a_clock_that_is_wrong_take_nothing_away() {
    let machine = Machine::begin().await;
    let s = Session::of(&machine.database).await;
    a_cycle_passes(&s).await;
    s.get(
        "select count(trax.enqueue('h')) from generate_series(1, 20);
           select count(trax.complete(job_id, token)) from trax.claim_next('w', 20, array['h']);
           select trax.enqueue('once', unique_key => 'invoice', unique_for => '2 days');
           select count(trax.complete(job_id, token)) from trax.claim_next('w', 1, array['once']);
           select trax.enqueue('later', run_at => now() + interval '5 days');
           select trax.enqueue('slow', timeout => '2 hours', max_retries => 0);
           select trax.limit_queue_time(trax.enqueue('waits'), '1 day')",
    )
    .await;
    let key = s.get("select job_id from trax.unique_key").await;
    let slow = s
        .claim_one("tasks => array['slow'], lease => '5 min'")
        .await;
    let token = s
        .get("select token from trax.acquire_token('sem', 'first', 1, '1 h')")
        .await;
    for offset in [9 * DAY, -9 * DAY] {
        machine.set_clock(offset);
        let t = Session::of(&machine.database).await;
        a_cycle_passes(&t).await;
        assert_eq!(
            t.get("select count(*) from trax.acquire_token('sem', 'other', 1, '1 h')")
                .await,
            "0",
            "{offset}"
        );
        let again = "select trax.enqueue('once', unique_key => 'invoice', unique_for => '2 days')";
        assert_eq!(t.get(again).await, key, "{offset}");
        let beat = format!(
            "select held, cancel_requested from trax.heartbeat(array[{}], array['{}'::uuid], '5 min')",
            slow.id, slow.token
        );
        assert_eq!(t.get(&beat).await, "t|f", "{offset}");
        machine.set_clock(0);
        a_cycle_passes(&s).await;
        assert_eq!(t.get(&beat).await, "t|f", "{offset}");
        assert_eq!(t.get(again).await, key, "{offset}");
        let later =
            "select count(*) from trax.work_queue where task = 'later' and waits_for = 'time'";
        s.becomes(later, "1").await;
        assert_eq!(
            s.claim_ids("tasks => array['later']").await,
            Vec::<i64>::new()
        );
        assert_eq!(
            s.number("select count(*) from trax.run").await,
            21,
            "{offset}"
        );
        assert_eq!(
            s.get(&format!(
                "select trax.extend_token('sem', '{token}', '1 h')"
            ))
            .await,
            "t",
            "{offset}"
        );
        let lease = "select cancel_requested, timed_out, lease_expires_at < now() + interval '1 h' from trax.lease";
        s.becomes(lease, "f|f|t").await;
        let said = "select value from trax.status() where item = 'clock'";
        s.becomes(said, "believed").await;
    }
    assert_eq!(
        s.get(&format!("select trax.complete({})", slow.key()))
            .await,
        "t"
    );
    s.assert_healthy().await;
    // A paused scheduler also checks the clock.
    s.get("select trax.pause()").await;
    machine.set_clock(9 * DAY);
    let jumped = "select shown_at > believed_at + interval '8 days' from trax.believed_clock";
    s.becomes(jumped, "t").await;
    assert_eq!(s.get("select trax.believe_clock()").await, "t");
    assert_eq!(s.get(jumped).await, "f");
}
