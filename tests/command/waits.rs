//! Each reason why a job waits has its own words everywhere: in SQL, in the commands and in the
//! test kit.

use super::said;
use harness::session::{Session, session};
use trax_client::Task;
use trax_client::testkit::{Database, assert_not_enqueued};

struct Nothing;

impl Task for Nothing {
    const NAME: &str = "t";
}

/// The texts for a job that waits for this reason.
struct Words {
    waits_for: &'static str,
    metrics: &'static str,
    status: &'static str,
    explained: &'static str,
    action: &'static str,
    listed: &'static str,
    shown: &'static str,
    kit: &'static str,
    /// The answer of `trax.run_now()`; called last, since it changes jobs that wait for their time.
    run_now: &'static str,
}

const WORDS: [Words; 6] = [
    Words {
        waits_for: "",
        metrics: "ready",
        status: "waiting, ready",
        explained: "waits for a worker of task \"t\".",
        action: "Run a worker that takes task \"t\".",
        listed: "ago",
        shown: "for a worker",
        kit: ", ready",
        run_now: "ready",
    },
    Words {
        waits_for: "time",
        metrics: "delayed",
        status: "waiting, delayed",
        explained: "is due at ",
        action: "Nothing: wait.",
        listed: "due in ",
        shown: "until ",
        kit: ", due in ",
        run_now: "ready",
    },
    Words {
        waits_for: "key",
        metrics: "blocked",
        status: "waiting, behind a key",
        explained: "waits until a job with its concurrency key \"k\" ends: 1 may run at once.",
        action: "Nothing: wait.",
        listed: "for its key",
        shown: "until a job with its concurrency key ends",
        kit: ", waiting for its key",
        run_now: "blocked",
    },
    Words {
        waits_for: "manifest",
        metrics: "behind_manifest",
        status: "waiting, behind a manifest",
        explained: "waits until another job of this manifest ends: 1 may run at once.",
        action: "Nothing: wait.",
        listed: "for its manifest",
        shown: "until another job of its manifest ends",
        kit: ", waiting for its manifest",
        run_now: "blocked",
    },
    Words {
        waits_for: "signal",
        metrics: "suspended",
        status: "waiting, suspended",
        explained: "waits for a signal",
        action: "Nothing: wait. To send it: select trax.send_signal(",
        listed: "for a signal",
        shown: "for a signal",
        kit: ", waiting for a signal",
        run_now: "blocked",
    },
    Words {
        waits_for: "jobs",
        metrics: "suspended",
        status: "waiting, suspended",
        explained: "waits for the end of 0 jobs",
        action: "Nothing: wait. See why each waits: ",
        listed: "for other jobs",
        shown: "until other jobs end",
        kit: ", waiting for other jobs",
        run_now: "blocked",
    },
];

/// The values that the check constraint allows for `waits_for`.
const ALLOWED: &str = "select string_agg(v[1], ' ')
    from pg_constraint c, regexp_matches(pg_get_constraintdef(c.oid), '''(\\w+)''', 'g') v
    where c.conname = 'work_queue_waits_for_known'";

async fn waiting_for(waits_for: &str) -> (Database, Session, i64) {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 't')").await;
    let id = s.number("select trax.trigger('m')").await;
    s.get(&format!(
        "update trax.work_queue
         set waits_for = nullif('{waits_for}', ''), concurrency_key = 'k',
             run_at = now() + case '{waits_for}' when 'time' then 1 else -1 end * interval '1 h'"
    ))
    .await;
    (db, s, id)
}

/// The description of a waiting job in a failed assertion of the test kit.
async fn kit_says(db: &Database) -> String {
    let s = Session::of(db).await;
    let refused = tokio::spawn(async move {
        assert_not_enqueued::<Nothing>(s.client()).await;
    });
    let panic = refused.await.expect_err("it waits").into_panic();
    *panic.downcast::<String>().expect("a message")
}

#[tokio::test]
async fn every_reader_has_words_of_its_own_for_everything_that_a_job_may_wait_for() {
    let (_db, s) = session().await;
    let known: Vec<&str> = WORDS[1..].iter().map(|words| words.waits_for).collect();
    assert_eq!(s.get(ALLOWED).await, known.join(" "));
    for words in WORDS {
        let (db, s, id) = waiting_for(words.waits_for).await;
        let depth = "select string_agg(labels ->> 'state', ' ') from trax.metrics() where name = 'trax_queue_depth' and value > 0";
        assert_eq!(s.get(depth).await, words.metrics);
        let status = "select string_agg(item, ' ') from trax.status() where item like 'waiting%' and value <> '0'";
        assert_eq!(s.get(status).await, words.status);
        let explained = s
            .get("select detail || '|' || action from trax.explain_manifest('m') where reason = 'queued'")
            .await;
        let (detail, action) = explained.split_once('|').expect("two columns");
        assert!(detail.contains(words.explained), "{detail}");
        assert!(action.starts_with(words.action), "{detail}: {action}");
        let list = said(&db, &["jobs", "list"]);
        assert!(list.contains(words.listed), "{}: {list}", words.listed);
        let show = said(&db, &["jobs", "show", &id.to_string()]);
        assert!(show.contains(words.shown), "{}: {show}", words.shown);
        let kit = kit_says(&db).await;
        assert!(kit.contains(words.kit), "{}: {kit}", words.kit);
        let claimable = words.waits_for.is_empty();
        let tasks = s.get("select count(*) from trax.waiting_tasks()").await;
        assert_eq!(tasks == "1", claimable, "{:?}", words.waits_for);
        assert_eq!(
            s.get(&format!("select trax.run_now({id})")).await,
            words.run_now
        );
    }
}
