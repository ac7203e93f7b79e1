//! Concurrent transactions of all kinds: several calls in each, savepoints, REPEATABLE READ,
//! prepared transactions and cancelled statements, beside an administrator's DDL and terminated
//! sessions. Limits always hold, and no job is stuck at the end.

use super::beside::{Held, Over, call, claim, hold, is_over, last, set_up};
use harness::dice::Dice;
use harness::scheduler::scheduling;
use harness::session::Session;
use harness::{PATIENCE, eventually};
use std::time::Duration;
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;
use trax_client::testkit::Database;

const SESSIONS: u64 = 7;
const TIME: Duration = Duration::from_secs(5);
const SEED: u64 = 23;

/// A session that reconnects after it was terminated.
struct Client {
    db: Database,
    s: Session,
    dice: Dice,
    held: Held,
    /// Forbidden errors.
    wrong: Vec<String>,
}

impl Client {
    async fn of(db: &Database, seed: u64) -> Self {
        Self {
            s: begun(db).await,
            db: db.clone(),
            dice: Dice::of(seed),
            held: Held::new(),
            wrong: Vec::new(),
        }
    }

    /// Runs a statement; returns its rows, or `None` if it failed.
    async fn gets(&mut self, sql: &str) -> Option<String> {
        let error = match self.s.client().simple_query(sql).await {
            Ok(messages) => return Some(rows(&messages)),
            Err(error) => error,
        };
        let code = error.code().map_or("", SqlState::code);
        if code.is_empty() || code == "57P01" {
            self.s = begun(&self.db).await;
        } else if code.starts_with("XX") && !error_of_postgresql(&error) {
            self.wrong.push(format!("{sql}: {error:?}"));
        }
        None
    }

    async fn runs(&mut self, sql: &str) -> bool {
        self.gets(sql).await.is_some()
    }

    async fn calls(&mut self) -> bool {
        if self.dice.roll(3) > 0 {
            let call = call(&mut self.dice, &mut self.held);
            return self.runs(&call).await;
        }
        let claim = claim(&mut self.dice);
        let claimed = self.gets(&claim).await;
        hold(&mut self.held, claimed.as_deref().unwrap_or(""));
        claimed.is_some()
    }

    /// Makes a call that may be rolled back or cancelled.
    async fn calls_in_savepoint(&mut self) {
        let timeout = match self.dice.roll(3) {
            0 => 1 + self.dice.roll(4),
            _ => 0,
        };
        let begin = format!("savepoint s; set local statement_timeout = {timeout}");
        if self.runs(&begin).await && self.calls().await && self.dice.roll(2) == 0 {
            self.runs("release savepoint s").await;
        } else {
            self.runs("rollback to savepoint s").await;
        }
        self.runs("set local statement_timeout = 0").await;
    }

    async fn transaction(&mut self, name: &str) {
        let level = ["read committed", "repeatable read"][self.dice.roll(2) as usize];
        if !self.runs(&format!("begin isolation level {level}")).await {
            return;
        }
        for _ in 0..=self.dice.roll(3) {
            if self.dice.roll(3) == 0 {
                self.calls_in_savepoint().await;
            } else if !self.calls().await {
                break;
            }
        }
        let how = ["commit", "rollback"][usize::from(self.dice.roll(4) == 0)];
        if self.dice.roll(5) > 0 {
            self.runs(how).await;
        } else if self.runs(&format!("prepare transaction '{name}'")).await {
            // The call may wait for the prepared transaction.
            self.runs("set statement_timeout = 30").await;
            self.calls().await;
            self.runs("set statement_timeout = 0").await;
            self.runs(&format!("{how} prepared '{name}'")).await;
        }
    }

    async fn goes_on(mut self, seed: u64, over: Over) -> Vec<String> {
        let mut round = 0;
        while !is_over(&over) {
            round += 1;
            if self.dice.roll(10) < 6 {
                self.calls().await;
            } else {
                self.transaction(&format!("{seed} {round}")).await;
            }
        }
        self.wrong
    }
}

/// Returns whether any table would have given this error: an UPDATE that builds its table's cache
/// entry while a publication is dropped fails in PostgreSQL itself (a plain table beside
/// `create publication` and `drop publication` meets it several times a second).
fn error_of_postgresql(error: &tokio_postgres::Error) -> bool {
    let message = error.as_db_error().map_or("", |error| error.message());
    message.starts_with("cache lookup failed for publication")
}

/// Returns a session that may be terminated from now on.
async fn begun(db: &Database) -> Session {
    loop {
        let s = Session::of(db).await;
        let named = s.client().simple_query("set application_name = 'storm'");
        if named.await.is_ok() {
            return s;
        }
    }
}

fn rows(messages: &[SimpleQueryMessage]) -> String {
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) if row.len() == 2 => Some(format!(
            "{}|{}",
            row.get(0).unwrap_or(""),
            row.get(1).unwrap_or("")
        )),
        _ => None,
    });
    rows.collect::<Vec<_>>().join("\n")
}

/// Checks that keys and manifests never exceed their limits, and ends prepared transactions of
/// terminated sessions.
async fn watches(db: Database, over: Over) -> Vec<String> {
    let s = Session::of(&db).await;
    let mut wrong = Vec::new();
    while !is_over(&over) {
        let found = s
            .get(
                "select concurrency_key, count(*) from trax.lease where concurrency_key is not null
                 group by 1 having count(*) > 2
                 union all
                 select manifest, count(*) from trax.lease where manifest is not null
                 group by 1 having count(*) > 4",
            )
            .await;
        if !found.is_empty() {
            wrong.push(found);
        }
        for name in s
            .get("select gid from pg_prepared_xacts where prepared < clock_timestamp() - interval '0.3 s'")
            .await
            .lines()
        {
            let ended = s.attempt(&format!("rollback prepared '{name}'")).await;
            if let Err(refusal) = ended.as_ref().map_err(|refusal| refusal.code.as_str()) {
                assert_eq!(refusal, "42704", "its session was faster");
            }
        }
    }
    wrong
}

/// Changes of an administrator to the hot tables, each with the statement that reverts it.
const ADMINISTRATION: [[&str; 2]; 14] = [
    ["vacuum full trax.$", "select 1"],
    ["cluster trax.$ using $_pkey", "analyze trax.$"],
    ["reindex table concurrently trax.$", "vacuum trax.$"],
    ["reindex table trax.$", "select count(*) from trax.tick()"],
    [
        "alter table trax.$ add zz int default 3",
        "alter table trax.$ drop zz",
    ],
    [
        "create trigger same before insert or update or delete on trax.$ for each row execute function public.same()",
        "drop trigger if exists same on trax.$",
    ],
    [
        "create trigger cut before truncate on trax.$ execute function public.same()",
        "drop trigger if exists cut on trax.$",
    ],
    [
        "create index concurrently more_$ on trax.$ ((job_id % 7))",
        "drop index if exists trax.more_$",
    ],
    [
        "alter table trax.$ add constraint mm check (job_id > 0) not valid",
        "alter table trax.$ drop constraint if exists mm",
    ],
    [
        "create publication pp for table trax.$",
        "drop publication if exists pp",
    ],
    [
        "alter table trax.$ enable row level security",
        "alter table trax.$ disable row level security",
    ],
    [
        "alter table trax.$ force row level security",
        "alter table trax.$ no force row level security",
    ],
    [
        "alter table trax.$ set (fillfactor = 30)",
        "alter table trax.$ reset (fillfactor)",
    ],
    ["vacuum full trax.run", "vacuum trax.manifest_group"],
];

async fn administers(db: Database, over: Over) -> Vec<String> {
    let s = Session::of(&db).await;
    s.get(
        "create function public.same() returns trigger language plpgsql as $$
         begin return case tg_op when 'DELETE' then old else new end; end $$;
         set lock_timeout = '300ms'",
    )
    .await;
    let (mut dice, mut wrong) = (Dice::of(SEED), Vec::new());
    while !is_over(&over) {
        let table = ["work_queue", "lease", "unique_key"][dice.roll(3) as usize];
        let steps = ADMINISTRATION[dice.roll(ADMINISTRATION.len() as u64) as usize];
        for step in steps {
            let step = step.replace('$', table);
            while let Err(refusal) = s.attempt(&step).await {
                match refusal.code.as_str() {
                    // The lock is not available now; a change already made is reverted, however
                    // long that takes.
                    "55P03" | "40P01" if step.contains("drop") || step.contains("disable") => {}
                    "55P03" | "40P01" => break,
                    // The column was not added.
                    "42703" | "42701" => break,
                    _ => {
                        wrong.push(format!("{step}: {refusal}"));
                        break;
                    }
                }
            }
        }
    }
    wrong
}

/// Terminates sessions at random moments.
async fn kills(db: Database, over: Over) -> Vec<String> {
    let s = Session::of(&db).await;
    while !is_over(&over) {
        s.get(
            "select pg_sleep(0.1);
             select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database()
                 and (application_name = 'storm' or backend_type like 'trax%' and random() < 0.1)
             order by random() limit 1",
        )
        .await;
    }
    Vec::new()
}

/// The failed steps of the cycle, and the manifests that failed last.
const FAILED: &str = "select (select string_agg(step || ': ' || error, ' ') from trax.failed_step), (select string_agg(evaluation_error, ' ') from trax.manifest_state)";

/// Checks that all jobs end by claims and completions alone.
async fn drains(s: &Session) {
    for name in s.get("select gid from pg_prepared_xacts").await.lines() {
        s.get(&format!("rollback prepared '{name}'")).await;
    }
    s.get(
        "select trax.configure_group(name, max_active_jobs => 0, enabled => true) from trax.manifest_group;
         select trax.disable_manifest(name) from trax.manifest",
    )
    .await;
    eventually("the end of all jobs", PATIENCE, async || {
        s.get(
            "select count(*) from trax.tick();
             select count(*) from trax.complete_many(
                 (select array_agg(job_id order by job_id) from trax.lease),
                 (select array_agg(token order by job_id) from trax.lease))
             where exists (select from trax.lease)",
        )
        .await;
        s.get("select count(*) from trax.claim_next(max_jobs => 1000)")
            .await;
        let left = s
            .get("select waits_for, concurrency_key, manifest, run_at from trax.work_queue union all select 'lease', null, null, null from trax.lease")
            .await;
        // A cycle may have failed if its transaction was older than a row that it met.
        let failed = s.get(FAILED).await;
        match left.as_str() {
            "" if failed == "|" => Ok(()),
            _ => Err(format!("{failed} {left}")),
        }
    })
    .await;
    s.assert_healthy().await;
}

async fn storm<T: Future<Output = Vec<String>> + Send + 'static>(
    beside: impl FnOnce(Database, Over) -> T,
) {
    let server = scheduling()
        .setting("max_prepared_transactions", "200")
        .start()
        .expect("a server starts");
    let db = server.database("storm").await.expect("it is made");
    let s = Session::of(&db).await;
    set_up(&s).await;
    let over = Over::default();
    let mut tasks = vec![
        tokio::spawn(watches(db.clone(), over.clone())),
        tokio::spawn(beside(db.clone(), over.clone())),
    ];
    for n in 0..SESSIONS {
        let client = Client::of(&db, SEED * 100 + n).await;
        tasks.push(tokio::spawn(client.goes_on(n, over.clone())));
    }
    last(&s, &over, TIME, 30).await;
    for task in tasks {
        let wrong = task.await.expect("a session lives");
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
    drains(&Session::of(&db).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_of_all_kinds_keep_every_limit_and_leave_nothing_stuck() {
    storm(async |_, _| Vec::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_do_beside_the_ddl_of_an_administrator() {
    storm(administers).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_do_while_sessions_are_ended() {
    storm(kills).await;
}
