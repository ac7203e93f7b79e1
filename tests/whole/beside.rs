//! Every call runs beside every other, each in its own transaction. None fails with a deadlock or
//! an unexpected error, and all invariants hold at the end.

use harness::dice::Dice;
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trax_client::testkit::Database;

const SESSIONS: u64 = 7;
const TIME: Duration = Duration::from_secs(4);
const SEED: u64 = 11;

/// Four groups and eight manifests: the first four are independent, and each of the others depends
/// on one of these.
pub(super) async fn set_up(s: &Session) {
    let database = s.get("select current_database()").await;
    s.get(&format!(
        "alter database {database} set trax.retry_delay = '10ms';
        alter database {database} set trax.default_max_retries = 1"
    ))
    .await;
    for n in 0..8 {
        let more = match n {
            0..4 if n % 2 == 1 => ", every => '1 s'".to_owned(),
            0..4 => String::new(),
            _ => format!(", depends_on => '{{m{}}}'", n - 4),
        };
        s.get(&format!(
            "select trax.schedule('m{n}', task => 't{}', group_name => 'g{}', max_concurrency => {},
                on_dead_letter => 'continue'{more})",
            n % 3,
            n % 4,
            1 + n % 3
        ))
        .await;
    }
}

/// Leases of a session, each as a job and its token.
pub(super) type Held = Vec<(String, String)>;

/// Returns a random call; a call that ends leases removes them from `held`.
pub(super) fn call(dice: &mut Dice, held: &mut Held) -> String {
    let group = format!("'g{}'", dice.roll(4));
    let any = format!("'m{}'", dice.roll(8));
    let own = format!("'m{}'", dice.roll(4));
    let (limit, key) = (dice.roll(3) * 2, dice.roll(4));
    let live = |state: &str, call: &str| {
        format!(
            "select trax.{call} from (
                select job_id from trax.job where state in ({state}) order by random() limit 1
            ) j"
        )
    };
    let letter = |call: &str| {
        format!(
            "select trax.{call}(id) from (
                select id from trax.dead_letter where status = 'awaiting_intervention' order by random() limit 1
            ) d"
        )
    };
    let mut lease = || match held.is_empty() {
        true => (
            "1".to_owned(),
            "00000000-0000-0000-0000-000000000000".to_owned(),
        ),
        false => held.swap_remove(dice.roll(held.len() as u64) as usize),
    };
    let (job, token) = lease();
    let (other, second) = lease();
    let both = format!("array[{job}, {other}]::bigint[], array['{token}', '{second}']::uuid[]");
    match dice.roll(30) {
        0..3 => format!(
            "select trax.enqueue('t1', group_name => {group}, unique_key => 'u{key}', concurrency_key => 'k{key}')"
        ),
        3 => format!(
            "insert into trax.new_job (task, group_name, unique_key, concurrency_key)
            select 't1', {group}, 'u' || n, 'k' || n % 3 from generate_series(1, 5) n"
        ),
        4..6 => format!("select trax.trigger({any})"),
        6 => format!("select trax.trigger({any}), trax.trigger({own})"),
        7 => format!("select trax.trigger_group({group})"),
        8..11 => format!("select trax.complete({job}, '{token}')"),
        11 => format!("select count(*) from trax.complete_many({both})"),
        12..14 => format!(
            "select trax.fail({job}, '{token}', 'no', permanent => {})",
            key == 0
        ),
        14 => format!("select trax.release({job}, '{token}')"),
        15 => format!("select count(*) from trax.heartbeat({both}, '5 min')"),
        16 => live("'queued', 'in_progress'", "cancel(job_id)"),
        17 => format!("select trax.cancel_group({group})"),
        18 => format!("select trax.cancel_manifest({any})"),
        19 => format!(
            "select trax.schedule({own}, max_concurrency => {}, group_name => {group})",
            1 + key
        ),
        20 => format!(
            "select trax.{}({any})",
            ["enable_manifest", "disable_manifest"][key as usize % 2]
        ),
        21 => format!(
            "select trax.configure_group({group}, max_active_jobs => {limit}, max_per_key => {}, enabled => {})",
            1 + key % 2,
            key != 0
        ),
        22 => format!("select trax.requeue_dead_letters(max_count => {})", 1 + key),
        23 => letter("requeue_dead_letter"),
        24 => letter("acknowledge_dead_letter"),
        25 => "select count(*) from trax.tick()".to_owned(),
        26 => live("'queued'", "limit_queue_time(job_id, '0.2 s')"),
        27 => live("'queued'", "run_now(job_id)"),
        28 => format!(
            "select count(*) from trax.acquire_token('n{}', 'h', 2, '0.1 s')",
            key % 3
        ),
        _ => format!(
            r#"select count(*) from trax.apply('{{"manifests": [{{"name": "m2", "task": "t1", "group_name": "g{key}"}},
                {{"name": "m0", "task": "t1", "group_name": "g{key}"}}]}}')"#
        ),
    }
}

/// Returns a claim of some jobs.
pub(super) fn claim(dice: &mut Dice) -> String {
    format!(
        "select job_id, token from trax.claim_next(worker => 'w{}', max_jobs => {}, lease => '{}')",
        dice.roll(4),
        1 + dice.roll(8),
        ["5 min", "0.3 s"][dice.roll(2) as usize]
    )
}

/// Adds the leases that a claim returned.
pub(super) fn hold(held: &mut Held, rows: &str) {
    let leases = rows.lines().filter_map(|row| row.split_once('|'));
    held.extend(leases.map(|(job, token)| (job.to_owned(), token.to_owned())));
}

/// Becomes true when the calls are to end.
pub(super) type Over = Arc<AtomicBool>;

pub(super) fn is_over(over: &Over) -> bool {
    over.load(Ordering::Relaxed)
}

/// Lets calls go on for a time, and on a busy machine until this many jobs have ended.
pub(super) async fn last(s: &Session, over: &Over, time: Duration, runs: i64) {
    tokio::time::sleep(time).await;
    eventually("enough jobs end", PATIENCE, async || {
        match s.number("select count(*) from trax.run").await {
            ended if ended >= runs => Ok(()),
            ended => Err(format!("{ended} runs")),
        }
    })
    .await;
    over.store(true, Ordering::Relaxed);
}

/// Makes calls until the end; returns the calls with a forbidden error.
async fn calls(db: Database, seed: u64, over: Over) -> Vec<String> {
    let s = Session::of(&db).await;
    let (mut dice, mut held) = (Dice::of(seed), Held::new());
    let mut wrong = Vec::new();
    while !is_over(&over) {
        let is_claim = dice.roll(3) == 0;
        let call = match is_claim {
            true => claim(&mut dice),
            false => call(&mut dice, &mut held),
        };
        match s.attempt(&call).await {
            Ok(rows) if is_claim => hold(&mut held, &rows),
            Ok(_) => {}
            Err(refusal) => {
                let code = refusal.code.as_str();
                if code.starts_with("40") || code.starts_with("XX") {
                    wrong.push(format!("{call}: {refusal}"));
                }
            }
        }
    }
    wrong
}

#[tokio::test]
async fn no_call_beside_any_other_is_the_victim_of_a_deadlock() {
    let (db, s) = session().await;
    set_up(&s).await;
    let over = Over::default();
    let sessions: Vec<_> = (0..SESSIONS)
        .map(|n| tokio::spawn(calls(db.clone(), SEED * 100 + n, over.clone())))
        .collect();
    last(&s, &over, TIME, 100).await;
    for session in sessions {
        let wrong = session.await.expect("a session lives");
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
    s.assert_healthy().await;
    let failed = "select (select string_agg(step, ' ') from trax.failed_step), (select string_agg(evaluation_error, ' ') from trax.manifest_state)";
    assert_eq!(s.get(failed).await, "|");
}
