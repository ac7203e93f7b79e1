//! The list of locks in `docs/dba.md`: those that each call holds until its transaction ends, as
//! `pg_locks` shows them. This test compares the list, and writes it with `TRAX_WRITE_PAGES=1`.

use super::reference::is_written;
use super::{root, text};
use harness::scheduler::new_name;
use harness::session::Session;
use harness::{PATIENCE, database, eventually, shared_server};
use tokio::task::JoinHandle;

/// Each call, with the statements that prepare it; `j` has the job and the token of a claimed job.
const CALLS: [(&str, &str, &str); 16] = [
    ("enqueue", "", "select trax.enqueue('a')"),
    (
        "enqueue(unique_key => ...)",
        "",
        "select trax.enqueue('a', unique_key => 'k')",
    ),
    (
        "enqueue_many, or rows of new_job",
        "",
        "select trax.enqueue_many('a', '{1,2}')",
    ),
    (
        "claim_next",
        "select trax.enqueue('a')",
        "select from trax.claim_next()",
    ),
    (
        "claim_next, of a group with a limit",
        "select trax.configure_group('g', max_active_jobs => 1);
         select trax.enqueue('a', group_name => 'g')",
        "select from trax.claim_next(groups => '{g}')",
    ),
    (
        "claim_next, with a concurrency key",
        "select trax.enqueue('keyed', concurrency_key => 'k')",
        "select from trax.claim_next(tasks => '{keyed}')",
    ),
    (
        "heartbeat",
        CLAIMED,
        "select from j, trax.heartbeat(array[j.job_id], array[j.token])",
    ),
    (
        "complete",
        CLAIMED,
        "select trax.complete(job_id, token) from j",
    ),
    (
        "complete_and_claim",
        CLAIMED,
        "select from j, trax.complete_and_claim(array[j.job_id], array[j.token])",
    ),
    (
        "fail, to be retried",
        CLAIMED,
        "select trax.fail(job_id, token, 'why') from j",
    ),
    (
        "fail, for good",
        CLAIMED,
        "select trax.fail(job_id, token, 'why', permanent => true) from j",
    ),
    (
        "release",
        CLAIMED,
        "select trax.release(job_id, token) from j",
    ),
    (
        "cancel, of a waiting job",
        "create temp table w as select trax.enqueue('a') as job_id",
        "select trax.cancel(job_id) from w",
    ),
    (
        "cancel, of a job in progress",
        CLAIMED,
        "select trax.cancel(job_id) from j",
    ),
    ("await_job, wait_for_work: while they wait", "", ""),
    ("tick", "", "select from trax.tick()"),
];
/// Other calls, which are checked, too: none takes a stronger lock.
const OTHERS: [(&str, &str, &str); 11] = [
    (
        "schedule, of a new manifest",
        "",
        "select trax.schedule('new', task => 'a', cron => '0 3 * * *')",
    ),
    (
        "schedule, of one with parents",
        "select trax.schedule('parent', task => 'a')",
        "select trax.schedule('child', task => 'a', depends_on => '{parent}')",
    ),
    (
        "trigger",
        "select trax.schedule('triggered', task => 'a')",
        "select trax.trigger('triggered')",
    ),
    (
        "unschedule",
        "select trax.schedule('gone', task => 'a')",
        "select trax.unschedule('gone')",
    ),
    (
        "configure_group",
        "select trax.enqueue('a', group_name => 'c')",
        "select trax.configure_group('c', max_active_jobs => 5)",
    ),
    (
        "acquire_token",
        "",
        "select from trax.acquire_token('t', 'me', 1, '1 min')",
    ),
    (
        "consume_rate",
        "select trax.configure_rate('r', 5, '1 s')",
        "select from trax.consume_rate('r')",
    ),
    (
        "configure_rate",
        "",
        "select trax.configure_rate('r', 6, '1 s')",
    ),
    ("pause", "", "select trax.pause()"),
    ("select from trax.job", "", "select count(*) from trax.job"),
    ("metrics", "", "select count(*) from trax.metrics()"),
];
const CLAIMED: &str = "select trax.enqueue('held', max_retries => 3);
    create temp table j as select job_id, token from trax.claim_next(tasks => '{held}', lease => '1 h')";

/// The list stands between these two lines of the page.
const BEGIN: &str = "<!-- written from pg_locks -->\n";
const END: &str = "<!-- end -->\n";

/// The locks of the calling session on tables of trax, and its advisory locks, as a text.
const LOCKS: &str = "
    with held as (
        select
            case when c.relname ~ '^run_[0-9]' then 'run' else c.relname::text end as name,
            l.mode,
            case l.mode
                when 'AccessShareLock' then 1
                when 'RowShareLock' then 2
                when 'RowExclusiveLock' then 3
                else 4
            end as strength
        from pg_locks l
        join pg_class c on c.oid = l.relation
        where l.pid = pg_backend_pid()
            and l.locktype = 'relation'
            and c.relnamespace = 'trax'::regnamespace
            and c.relkind in ('r', 'p')
    ), strongest as (
        select distinct on (name) name, mode, strength from held order by name, strength desc
    )
    select coalesce(nullif(concat_ws('; ',
        'stronger on ' || (select string_agg(name || ' ' || mode, ', ' order by name) from strongest where strength = 4),
        'writes ' || (select string_agg('`' || name || '`', ', ' order by name) from strongest where strength = 3),
        'locks rows of ' || (select string_agg('`' || name || '`', ', ' order by name) from strongest where strength = 2),
        'reads ' || (select string_agg('`' || name || '`', ', ' order by name) from strongest where strength = 1),
        'advisory ' || (
            select string_agg(distinct replace(lower(mode), 'lock', ''), ', ')
            from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'
        )), ''), 'none')";

/// Returns the page with this list in place of its own.
fn with_locks(page: &str, list: &str) -> String {
    let (before, rest) = page.split_once(BEGIN).expect("the page has a list");
    let (_, after) = rest.split_once(END).expect("the list has an end");
    format!("{before}{BEGIN}{list}{END}{after}")
}

#[tokio::test]
async fn the_page_of_locks_is_what_pg_locks_shows() {
    // A fresh database, whose first cycle stores the version of the time zone data.
    let database = shared_server().fresh_database(&new_name("locks")).await;
    let database = database.expect("a database is made");
    let mut list: Vec<(String, String)> = Vec::new();
    for (index, (label, setup, call)) in CALLS.into_iter().chain(OTHERS).enumerate() {
        let session = Session::of(&database).await;
        session.get(setup).await;
        session.get(&format!("begin; {call}")).await;
        let locks = session.get(LOCKS).await;
        session.get("rollback").await;
        assert!(!locks.contains("stronger"), "{label}: {locks}");
        if index >= CALLS.len() {
            continue;
        }
        match list.last_mut() {
            Some((labels, last)) if *last == locks => labels.push_str(&format!("; {label}")),
            _ => list.push((label.to_owned(), locks)),
        }
    }
    let session = Session::of(&database).await;
    // The planner chooses the tables that a plan opens, and other versions may choose differently.
    let version = session.number("show server_version_num").await / 10_000;
    if version == 15 {
        let page = text(&root().join("docs/dba.md"));
        let lines = list
            .iter()
            .map(|(labels, locks)| format!("- {labels}: {locks}\n"));
        let lines: String = lines.collect();
        is_written("docs/dba.md", &with_locks(&page, &lines));
    }
}

async fn sleeps(watcher: &Session, procedure: &str, pid: i32) {
    eventually(&format!("{procedure} sleeps"), PATIENCE, async || {
        let sql = format!(
            "select coalesce(wait_event_type, state) from pg_stat_activity where pid = {pid}"
        );
        match watcher.get(&sql).await.as_str() {
            "Extension" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_call_that_waits_holds_no_lock_meanwhile() {
    let database = database().await;
    let watcher = Session::of(&database).await;
    let job = watcher.enqueue("'never'").await;
    watcher
        .get("select from trax.acquire_token('t', 'other', 1, '1 h')")
        .await;
    let waits = [
        ("wait_for_work", "call trax.wait_for_work('1 h')".to_owned()),
        (
            "await_job",
            format!("call trax.await_job({job}, '1 h', null, null, null)"),
        ),
        (
            "await_token",
            "call trax.await_token('t', 'me', 1, '1 h', '1 h', null, null, null)".to_owned(),
        ),
    ];
    // No job may be claimable: a session that waits for work would return.
    watcher
        .get("select from trax.claim_next(lease => '1 h')")
        .await;
    for (procedure, call) in waits {
        let waiter = Session::of(&database).await;
        let pid = waiter.pid();
        let waiting: JoinHandle<_> = waiter.spawn(call);
        sleeps(&watcher, procedure, pid).await;
        let held = watcher
            .number(&format!(
                "select count(*) from pg_locks where pid = {pid} and locktype in ('relation', 'advisory')"
            ))
            .await;
        // The lock of its place in the queue, which shows that it still waits.
        let wanted = i64::from(procedure == "await_token");
        assert_eq!(held, wanted, "{procedure}");
        watcher
            .get(&format!("select pg_terminate_backend({pid})"))
            .await;
        waiting
            .await
            .expect("the session ends")
            .1
            .expect_err("it was ended");
    }
}
