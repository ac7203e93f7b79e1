//! `trax jobs`.

use super::{json, names, objects, refused, said, trax};
use harness::process::{Process, run};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use serde_json::{Value, json};
use std::time::SystemTime;
use tokio_postgres::types::{ToSql, Type};

/// Makes a job in every state; returns their ids: queued, in progress, completed, failed,
/// cancelled.
async fn in_every_state(s: &Session) -> [i64; 5] {
    let completed = s.enqueue("'done', '{\"n\": 1}'").await;
    let claimed = s.claim_one("worker => 'w1'").await;
    s.get(&format!(
        "select trax.complete({}, '{{\"sum\": 3}}')",
        claimed.key()
    ))
    .await;
    let failed = s
        .enqueue("'broken', group_name => 'etl', concurrency_key => 'file 7'")
        .await;
    let claimed = s.claim_one("worker => 'w2'").await;
    s.get(&format!(
        "select trax.fail({}, E'no such file\\nat line 2', '{{\"line\": 2}}', permanent => true)",
        claimed.key()
    ))
    .await;
    let cancelled = s.enqueue("'unwanted'").await;
    s.get(&format!("select trax.cancel({cancelled})")).await;
    let running = s.enqueue("'slow'").await;
    s.claim_one("worker => 'w1'").await;
    let queued = s.enqueue("'later', run_at => now() + interval '1 h'").await;
    [queued, running, completed, failed, cancelled]
}

fn ids(jobs: &[Value]) -> Vec<i64> {
    jobs.iter()
        .map(|job| job["job_id"].as_i64().expect("an id"))
        .collect()
}

#[tokio::test]
async fn list_shows_the_newest_first_and_its_filters_all_count() {
    let (db, s) = session().await;
    let [queued, running, completed, failed, cancelled] = in_every_state(&s).await;
    let list = |filters: &[&str]| {
        let mut arguments = vec!["jobs", "list"];
        arguments.extend(filters);
        ids(&objects(&db, &arguments))
    };
    assert_eq!(list(&[]), [queued, running, cancelled, failed, completed]);
    assert_eq!(list(&["--state", "queued"]), [queued]);
    assert_eq!(list(&["--state", "in_progress"]), [running]);
    assert_eq!(
        list(&["--state", "completed", "--state", "failed"]),
        [failed, completed]
    );
    assert_eq!(
        list(&["--task", "slow", "--task", "done"]),
        [running, completed]
    );
    assert_eq!(list(&["--group", "etl"]), [failed]);
    assert_eq!(list(&["--worker", "w1"]), [running, completed]);
    assert_eq!(
        list(&["--worker", "w1", "--state", "completed"]),
        [completed]
    );
    assert_eq!(list(&["--limit", "2"]), [queued, running]);
    assert_eq!(list(&["--manifest", "none"]), [0; 0]);
    s.get("update trax.run set finished_at = finished_at - interval '3 h', queued_at = queued_at - interval '3 h'
        where task = 'done'")
        .await;
    assert_eq!(
        list(&["--since", "1 h"]),
        [queued, running, cancelled, failed]
    );
    assert_eq!(list(&["--since", "1 h ago"]).len(), 4);
    assert_eq!(list(&["--since", "2000-01-01"]).len(), 5);
}

#[tokio::test]
async fn list_finds_the_jobs_of_a_manifest_also_when_it_is_gone() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a'), trax.schedule('other', 'a')")
        .await;
    let job = s.number("select trax.trigger('m')").await;
    s.get("select trax.trigger('other')").await;
    assert_eq!(
        ids(&objects(&db, &["jobs", "list", "--manifest", "m"])),
        [job]
    );
    s.get("select trax.unschedule('m')").await;
    assert_eq!(
        ids(&objects(&db, &["jobs", "list", "--manifest", "m"])),
        [job]
    );
}

#[tokio::test]
async fn list_since_a_time_reads_no_day_before_it() {
    let (db, s) = session().await;
    s.get("select trax.make_run_partitions(now() - interval '3 days', 0)")
        .await;
    let old = s
        .get("select 'trax.run_' || to_char((now() - interval '3 days') at time zone 'UTC', 'YYYYMMDD')")
        .await;
    let looks = async || {
        let sql = format!(
            "select seq_scan + idx_scan from pg_stat_all_tables where relid = '{old}'::regclass"
        );
        s.number(&sql).await
    };
    let today = "select sum(seq_scan + idx_scan) from pg_stat_all_tables
        where schemaname = 'trax' and relname ~ '^run_[0-9]' and relname >= to_char(now() at time zone 'UTC', '\"run_\"YYYYMMDD')";
    // This session's earlier scans, such as those for creating indexes, are counted first.
    s.get("select pg_stat_force_next_flush()").await;
    let (before, old_before) = (s.number(today).await, looks().await);
    said(&db, &["jobs", "list", "--task", "none", "--since", "1 min"]);
    eventually("the look is counted", PATIENCE, async || {
        match s.number(today).await {
            seen if seen > before => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
    assert_eq!(looks().await, old_before);
    said(&db, &["jobs", "list", "--task", "none"]);
    eventually("the old day is read", PATIENCE, async || {
        match looks().await {
            seen if seen > old_before => Ok(()),
            seen => Err(format!("{seen}: not counted yet")),
        }
    })
    .await;
}

#[tokio::test]
async fn list_has_stable_names_times_in_rfc_3339_and_ids_when_quiet() {
    let (db, s) = session().await;
    let [queued, running, ..] = in_every_state(&s).await;
    let jobs = objects(&db, &["jobs", "list"]);
    for job in &jobs {
        assert_eq!(
            names(job).join(" "),
            "attempt error finished_at group_name job_id manifest priority queued_at run_at scheduled_for \
             started_at state task waits_for worker"
        );
    }
    let at = jobs[0]["queued_at"].as_str().expect("a text");
    let read = s
        .get(&format!(
            "select abs(extract(epoch from now() - '{at}')) < 60"
        ))
        .await;
    assert!(at.contains('T') && at.ends_with('Z') && read == "t", "{at}");
    assert_eq!(jobs[0]["waits_for"], "time");
    let lines = said(&db, &["jobs", "list", "-q", "--limit", "2"]);
    assert_eq!(lines, format!("{queued}\n{running}\n"));
    let (_, table, errors) = run(&mut trax(&db, &["jobs", "list", "--limit", "2", "-v"]));
    assert!(
        table.contains("due in 59 min") || table.contains("due in 60 min"),
        "{table}"
    );
    assert!(
        errors.contains("there are more") && errors.contains("PostgreSQL"),
        "{errors}"
    );
}

#[tokio::test]
async fn show_gives_everything_of_a_job() {
    let (db, s) = session().await;
    let job = s
        .enqueue("'twice', '{\"n\": 1}', max_retries => 1, unique_key => 'u'")
        .await;
    for error in ["first error", "second error"] {
        s.get("update trax.work_queue set run_at = now() - interval '1 s'; select trax.tick()")
            .await;
        let claimed = s.claim_one("worker => 'w'").await;
        s.get(&format!(
            "select trax.fail({}, '{error}', '{{\"code\": 5}}')",
            claimed.key()
        ))
        .await;
    }
    let id = job.to_string();
    let shown = &objects(&db, &["jobs", "show", &id])[0];
    assert_eq!(
        (&shown["state"], &shown["attempt"]),
        (&json!("failed"), &json!(2))
    );
    assert_eq!(shown["input"], json!({"n": 1}));
    assert_eq!(shown["dead_letter_status"], "awaiting_intervention");
    let attempts = shown["attempts"].as_array().expect("a list");
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[0]["error"], "first error");
    assert_eq!(attempts[1]["detail"], json!({"code": 5}));
    let text = said(&db, &["jobs", "show", &id]);
    for part in [
        "failed",
        "first error",
        "second error",
        "\"n\": 1",
        "\"code\": 5",
        "trax dead requeue",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let errors = refused(&db, 1, &["jobs", "show", "4711"]);
    assert!(
        errors.contains("job 4711 does not exist") && errors.contains("hint: "),
        "{errors}"
    );
}

#[tokio::test]
async fn cancel_reports_what_became_of_each() {
    let (db, s) = session().await;
    let [queued, running, completed, ..] = in_every_state(&s).await;
    let arguments = ["jobs", "cancel", &queued.to_string(), &running.to_string()];
    assert_eq!(
        objects(&db, &arguments),
        [
            json!({"job_id": queued, "result": "cancelled"}),
            json!({"job_id": running, "result": "requested"})
        ]
    );
    for (id, result) in [(completed, "finished"), (4711, "unknown")] {
        let arguments = ["jobs", "cancel", &id.to_string(), "--json"];
        let (code, output, _) = run(&mut trax(&db, &arguments));
        assert_eq!(
            (code, &json(&output)[0]["result"]),
            (Some(1), &json!(result))
        );
    }
}

#[tokio::test]
async fn cancelling_a_whole_group_or_manifest_wants_a_yes() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a')").await;
    s.get("select trax.enqueue_many('t', array['1', '2']::jsonb[], group_name => 'g')")
        .await;
    s.get("select trax.trigger('m')").await;
    let errors = refused(&db, 64, &["jobs", "cancel", "--group", "g"]);
    assert!(errors.contains("--yes"), "{errors}");
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 3);
    let done = objects(&db, &["jobs", "cancel", "--group", "g", "--yes"]);
    assert_eq!(
        done,
        [json!({"kind": "group", "name": "g", "cancelled": 2})]
    );
    said(&db, &["jobs", "cancel", "--manifest", "m", "--yes"]);
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
}

#[tokio::test]
async fn a_failed_job_is_retried_through_its_dead_letter_with_all_its_options() {
    let (db, s) = session().await;
    let [.., failed, _] = in_every_state(&s).await;
    let id = failed.to_string();
    let changes = objects(&db, &["jobs", "retry", &id]);
    assert_eq!(changes[0]["via"], "dead_letter");
    let new = changes[0]["new_job_id"].as_i64().expect("an id");
    let sql = format!(
        "select concurrency_key || ' ' || group_name from trax.work_queue where job_id = {new}"
    );
    assert_eq!(s.get(&sql).await, "file 7 etl");
    assert_eq!(
        s.get("select status from trax.dead_letter").await,
        "requeued"
    );
    let errors = refused(&db, 1, &["jobs", "retry", &id]);
    assert!(
        errors.contains("already been requeued") && errors.contains(&new.to_string()),
        "{errors}"
    );
}

#[tokio::test]
async fn other_ended_jobs_are_queued_anew_and_live_ones_refused() {
    let (db, s) = session().await;
    let [queued, running, completed, failed, cancelled] = in_every_state(&s).await;
    s.get(&format!(
        "update trax.run set version = 'v1' where job_id = {cancelled}"
    ))
    .await;
    let changes = objects(&db, &["jobs", "retry", &cancelled.to_string()]);
    assert_eq!(changes[0]["via"], "enqueue");
    let version = "select version from trax.work_queue where version is not null";
    assert_eq!(s.get(version).await, "v1");
    // An acknowledged dead letter keeps the job's options.
    s.get("select trax.acknowledge_dead_letter(1)").await;
    let again = objects(&db, &["jobs", "retry", &failed.to_string()]);
    let new = again[0]["new_job_id"].as_i64().expect("an id");
    let sql = format!("select concurrency_key from trax.work_queue where job_id = {new}");
    assert_eq!(s.get(&sql).await, "file 7");
    for (id, words) in [
        (queued, "--scheduled"),
        (running, "being executed"),
        (completed, "--completed"),
    ] {
        let errors = refused(&db, 1, &["jobs", "retry", &id.to_string()]);
        assert!(errors.contains(words), "{errors}");
    }
    let again = objects(
        &db,
        &["jobs", "retry", &completed.to_string(), "--completed"],
    );
    let new = again[0]["new_job_id"].as_i64().expect("an id");
    let sql = format!("select task || input from trax.work_queue where job_id = {new}");
    assert_eq!(s.get(&sql).await, "done{\"n\": 1}");
    // A job of a manifest is made from the manifest again.
    s.get("select trax.schedule('m', 'a')").await;
    let job = s
        .number("select trax.trigger('m', '{\"by\": \"hand\"}')")
        .await;
    s.get(&format!("select trax.cancel({job})")).await;
    let again = objects(&db, &["jobs", "retry", &job.to_string()]);
    assert_eq!(again[0]["via"], "manifest");
    let sql = "select manifest || input from trax.work_queue where manifest is not null";
    assert_eq!(s.get(sql).await, "m{\"by\": \"hand\"}");
    // A statement is queued as a statement.
    s.get("insert into trax.run (job_id, queued_at, run_at, finished_at, attempt, priority, final, state, task, group_name, input)
        select 4711, now(), now(), now(), 1, 0, true, 'cancelled', 'sql', 'default', '{\"command\": \"analyze\"}'")
        .await;
    let again = objects(&db, &["jobs", "retry", "4711"]);
    assert_eq!(again[0]["via"], "enqueue");
    let sql = "select input ->> 'command' from trax.work_queue where task = 'sql'";
    assert_eq!(s.get(sql).await, "analyze");
    let acts =
        "select string_agg(name, ' ' order by id) from trax.audit where action = 'queue_again'";
    let acted = format!("{cancelled} {failed} {completed} {job} 4711");
    assert_eq!(s.get(acts).await, acted);
}

#[tokio::test]
async fn a_job_that_waits_for_its_next_attempt_is_retried_now() {
    let (db, s) = session().await;
    let job = s.enqueue("'a', concurrency_key => 'k'").await;
    let claimed = s.claim_one("").await;
    s.get(&format!("select trax.fail({}, 'no')", claimed.key()))
        .await;
    let id = job.to_string();
    let said_so = said(&db, &["jobs", "retry", &id]);
    assert_eq!(said_so, format!("job {job} is now ready\n"));
    let errors = refused(&db, 1, &["jobs", "retry", &id]);
    assert!(errors.contains("is already ready"), "{errors}");
    assert_eq!(s.claim_one("").await.id, job);
    let behind = s.enqueue("'a', concurrency_key => 'k'").await;
    assert_eq!(s.claim_ids("").await, [0; 0]);
    let errors = refused(&db, 1, &["jobs", "retry", &behind.to_string()]);
    assert!(errors.contains("until another job ends"), "{errors}");

    let later = s.enqueue("'b', run_at => now() + interval '1 h'").await;
    let again = objects(&db, &["jobs", "retry", &later.to_string(), "--scheduled"]);
    assert_eq!(
        again,
        [json!({"job_id": later, "new_job_id": later, "via": "run_now"})]
    );
    assert_eq!(s.claim_ids("tasks => '{b}'").await, [later]);
}

#[tokio::test]
async fn watch_follows_a_job_to_its_end_and_its_exit_code_says_how() {
    let (db, s) = session().await;
    let job = s.enqueue("'t'").await;
    let mut watch = Process::start(trax(&db, &["jobs", "watch", &job.to_string()]));
    watch.says("queued", PATIENCE).await;
    let claimed = s.claim_one("worker => 'w7'").await;
    watch
        .says("in_progress, attempt 1, worker w7", PATIENCE)
        .await;
    s.get(&format!("select trax.complete({})", claimed.key()))
        .await;
    let status = watch.ends(PATIENCE).await;
    assert_eq!(status.code(), Some(0), "{}", watch.output());
    assert!(watch.output().contains("completed"));

    let [queued, _, completed, failed, cancelled] =
        in_every_state(&s).await.map(|id| id.to_string());
    let ends = |ids: &[&str]| {
        let mut arguments = vec!["jobs", "watch", "-q", "--timeout", "0.3"];
        arguments.extend(ids);
        run(&mut trax(&db, &arguments)).0
    };
    assert_eq!(ends(&[&completed]), Some(0));
    assert_eq!(ends(&[&cancelled, &completed]), Some(4));
    assert_eq!(ends(&[&cancelled, &failed]), Some(1));
    assert_eq!(ends(&[&queued]), Some(3));
    assert_eq!(ends(&["4711"]), Some(1));
    let (_, output, _) = run(&mut trax(&db, &["jobs", "watch", &failed, "--json"]));
    assert_eq!(json(&output)[0]["state"], "failed");
}

#[tokio::test]
async fn cancel_from_another_terminal_ends_the_program_of_a_worker() {
    let (db, s) = session().await;
    let job = s.enqueue("'endless'").await.to_string();
    let exec = "trap 'echo stopped >&2; exit 9' TERM; while true; do sleep 0.05; done";
    let arguments = [
        "worker",
        "--lease",
        "1",
        "--grace",
        "5",
        "--all-tasks",
        "--exec",
        exec,
    ];
    let _worker = Process::start(trax(&db, &arguments));
    eventually("the attempt", PATIENCE, async || {
        match s.number("select count(*) from trax.lease").await {
            1 => Ok(()),
            other => Err(other.to_string()),
        }
    })
    .await;
    assert!(said(&db, &["jobs", "cancel", &job]).contains("was asked to stop it"));
    let (code, output, _) = run(&mut trax(&db, &["jobs", "watch", &job, "--timeout", "20"]));
    assert_eq!(code, Some(4), "{output}");
}

/// The blocks that a page of the list reads, with these states and this manifest's id.
async fn blocks_of_a_page(
    s: &Session,
    states: Option<Vec<String>>,
    manifest_id: Option<i64>,
) -> u64 {
    let sql = format!(
        "explain (analyze, buffers, format json) {}",
        include_str!("../../trax_client/cli/src/query/job_list.sql")
    );
    let (names, manifest) = (None::<Vec<String>>, manifest_id.map(|_| "m"));
    let (since, limit) = (None::<SystemTime>, 51_i64);
    let arguments: [(&(dyn ToSql + Sync), Type); 8] = [
        (&states, Type::TEXT_ARRAY),
        (&names, Type::TEXT_ARRAY),
        (&names, Type::TEXT_ARRAY),
        (&manifest, Type::TEXT),
        (&manifest_id, Type::INT8),
        (&names, Type::TEXT_ARRAY),
        (&since, Type::TIMESTAMPTZ),
        (&limit, Type::INT8),
    ];
    let rows = s
        .client()
        .query_typed(&sql, &arguments)
        .await
        .expect("it runs");
    let plan: Value = rows[0].get(0);
    let blocks = |kind: &str| plan[0]["Plan"][kind].as_u64().expect("a number");
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

#[tokio::test]
async fn a_page_of_the_list_does_not_read_the_history() {
    let (_db, s) = session().await;
    s.get("select trax.make_run_partitions(now() - interval '4 days', 4)")
        .await;
    // 120,000 runs over five days: at least 3,000 blocks.
    s.get(
        "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, manifest_id, attempt, priority,
            final, state, failure_kind, task, group_name, manifest, worker, input)
        select n, t, t, t, t, case when n % 1000 = 0 then 7 end, 1, 0, true,
            case when n % 500 = 0 then 'failed' else 'completed' end, case when n % 500 = 0 then 'error' end,
            't', 'default', case when n % 1000 = 0 then 'm' end, 'w', to_jsonb(repeat('x', 100))
        from (select n, now() - interval '4 days' + n * interval '2 s' as t from generate_series(1, 120000) n) r",
    )
    .await;
    s.get("select setval('trax.work_queue_job_id_seq', 200000)")
        .await;
    s.get("select count(*) from trax.enqueue_many('t', array_fill('1'::jsonb, array[20000]))")
        .await;
    s.get("analyze").await;
    let all = s.number("select sum(pg_relation_size(inhrelid))::bigint / 8192 from pg_inherits where inhparent = 'trax.run'::regclass").await;
    assert!(all > 3_000, "{all}");
    for (states, manifest) in [
        (None, None),
        (Some("completed"), None),
        (Some("failed"), None),
        (None, Some(7)),
    ] {
        let states = states.map(|state| vec![str::to_owned(state)]);
        let blocks = blocks_of_a_page(&s, states.clone(), manifest).await;
        assert!(blocks < 600, "{states:?} {manifest:?}: {blocks} blocks");
    }
}
