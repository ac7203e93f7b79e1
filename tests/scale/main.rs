//! What a cycle costs with many manifests, against a throw-away server: prints a small table, and exits 1 when a promise
//! of the design is not kept.
//!
//! `cargo run --release --package trax_tests --bin scale [manifests]` (default 1,000,000; takes a few minutes).

use harness::manifest::many;
use harness::session::Session;
use std::time::Instant;
use trax_client::testkit::{Database, Server};

/// Idle cycles that are measured one by one.
const IDLE_CYCLES: usize = 200;
/// What is due at one second.
const DUE: i64 = 100_000;

/// A line of the table.
struct Line {
    what: String,
    seen: String,
    /// What is promised, and whether it holds; `None` when nothing is.
    promise: Option<(&'static str, bool)>,
}

fn line(what: impl Into<String>, seen: impl Into<String>) -> Line {
    Line {
        what: what.into(),
        seen: seen.into(),
        promise: None,
    }
}

impl Line {
    fn promised(mut self, promise: &'static str, holds: bool) -> Self {
        self.promise = Some((promise, holds));
        self
    }

    fn print(&self) {
        let promise = match self.promise {
            Some((promise, true)) => format!("{promise}: yes"),
            Some((promise, false)) => format!("{promise}: NO"),
            None => String::new(),
        };
        println!("{:<58} {:>24}   {promise}", self.what, self.seen);
    }
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let manifests = std::env::args().nth(1).map_or(1_000_000, |text| {
        text.parse().expect("the argument is a number of manifests")
    });
    let server = Server::options()
        .fast()
        .setting("trax.databases", "no_database_has_this_name")
        .setting("shared_buffers", "512MB")
        .setting("max_wal_size", "8GB")
        .start()
        .expect("a server starts");
    let mut lines = Vec::new();
    lines.extend(idle(&server, manifests, 1, false).await);
    lines.extend(idle(&server, manifests, 10_000, true).await);
    lines.extend(due(&server, manifests).await);
    lines.extend(fair(&server).await);
    println!();
    for line in &lines {
        line.print();
    }
    let kept = lines
        .iter()
        .all(|line| line.promise.is_none_or(|(_, holds)| holds));
    if kept {
        std::process::ExitCode::SUCCESS
    } else {
        std::process::ExitCode::FAILURE
    }
}

async fn database(server: &Server, name: &str) -> (Database, Session) {
    let database = server.database(name).await.expect("a database is made");
    let session = Session::of(&database).await;
    (database, session)
}

async fn vacuum(s: &Session) {
    for table in ["manifest", "manifest_state"] {
        s.get(&format!("vacuum (analyze) trax.{table}")).await;
    }
}

/// Execution time in milliseconds and shared buffers touched by one statement.
async fn cost(s: &Session, sql: &str) -> (f64, i64) {
    let plan = s
        .get(&format!("explain (analyze, buffers, format json) {sql}"))
        .await;
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("explain gives JSON");
    let time = plan[0]["Execution Time"].as_f64().expect("it has a time");
    let buffers = |key: &str| plan[0]["Plan"][key].as_i64().expect("it has buffers");
    (
        time,
        buffers("Shared Hit Blocks") + buffers("Shared Read Blocks"),
    )
}

/// Median time and most buffers of idle cycles, after one that warms the backend up.
async fn idle_cost(s: &Session) -> (f64, i64) {
    s.get("select trax.tick()").await;
    let mut times = Vec::new();
    let mut most = 0;
    for _ in 0..IDLE_CYCLES {
        let (time, buffers) = cost(s, "select * from trax.tick()").await;
        times.push(time);
        most = most.max(buffers);
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], most)
}

/// Many manifests in so many groups, none due; then one due.
async fn idle(server: &Server, manifests: i64, groups: i64, analyze: bool) -> Vec<Line> {
    eprintln!("loading {manifests} manifests in {groups} groups ...");
    let (db, s) = database(server, &format!("idle_{groups}")).await;
    s.get(&many(
        "m",
        "g",
        manifests,
        "now() + interval '1 day' + interval '1 s' * n",
    ))
    .await;
    if groups > 1 {
        s.get(&format!(
            "update trax.manifest set group_name = 'g' || manifest_id % {groups};
             update trax.manifest_state set group_name = 'g' || manifest_id % {groups}"
        ))
        .await;
    }
    if analyze {
        vacuum(&s).await;
    }
    let fresh = Session::of(&db).await;
    let (time, buffers) = idle_cost(&fresh).await;
    let known = if analyze { "" } else { ", never analyzed" };
    let what = format!("{manifests} manifests, {groups} groups{known}: idle cycle");
    let idle = line(what, format!("{time:.3} ms, {buffers} buffers"))
        .promised("< 1 ms and < 50 buffers", time < 1.0 && buffers < 50);
    s.get("update trax.manifest_state set next_run_at = now() where manifest_id = (select max(manifest_id) from trax.manifest_state)")
        .await;
    let (time, buffers) = cost(&fresh, "select * from trax.tick()").await;
    vec![
        idle,
        line(
            "  and one due: a cycle",
            format!("{time:.1} ms, {buffers} buffers"),
        )
        .promised("< 10 ms", time < 10.0),
    ]
}

/// Many manifests, of which 100,000 are due at one second, with no limit.
async fn due(server: &Server, manifests: i64) -> Vec<Line> {
    eprintln!("loading {manifests} manifests, {DUE} of them due ...");
    let (_db, s) = database(server, "due").await;
    s.get(&many(
        "late",
        "g",
        manifests - DUE,
        "now() + interval '1 day'",
    ))
    .await;
    s.get(&many("due", "h", DUE, "now() - interval '1 s'"))
        .await;
    vacuum(&s).await;
    s.get("set trax.max_entries_per_cycle = 0").await;
    let started = Instant::now();
    let queued = s.tick("queue_due").await;
    let rate = queued as f64 / started.elapsed().as_secs_f64();
    let all = line(
        format!("{DUE} due at once, no limit: queued"),
        format!("{queued} at {rate:.0}/s"),
    )
    .promised(">= 20,000/s, all", rate >= 20_000.0 && queued == DUE);
    s.get("truncate trax.work_queue; update trax.manifest_state set next_run_at = now() where group_name = 'h'; reset trax.max_entries_per_cycle")
        .await;
    vacuum(&s).await;
    let started = Instant::now();
    let mut queued = 0;
    for _ in 0..100 {
        queued += s.tick("queue_due").await;
    }
    let took = started.elapsed().as_secs_f64();
    let by_200 = line(
        "the same, 200 a cycle, 100 cycles",
        format!(
            "{:.1} ms a cycle, {:.0}/s",
            took * 10.0,
            queued as f64 / took
        ),
    );
    vec![all, by_200]
}

/// Groups of 5,000 and 15 due, with 200 a cycle.
async fn fair(server: &Server) -> Vec<Line> {
    let (_db, s) = database(server, "fair").await;
    s.get(&many("large", "large", 5000, "now() - interval '1 h'"))
        .await;
    s.get(&many("small", "small", 15, "now() - interval '1 s'"))
        .await;
    s.tick("queue_due").await;
    let small = s
        .number("select count(*) from trax.work_queue where group_name = 'small'")
        .await;
    let all = s.number("select count(*) from trax.work_queue").await;
    vec![
        line(
            "5,000 and 15 due, 200 a cycle: the first cycle",
            format!("{small} of 15, {all} in all"),
        )
        .promised("all 15", small == 15),
    ]
}
