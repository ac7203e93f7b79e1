//! `trax dead`.

use super::{json, names, objects, refused, said, trax};
use harness::process::run;
use harness::session::{Session, session};
use serde_json::json;

/// Makes a dead letter of each of these tasks; ids count from 1.
async fn died(s: &Session, tasks: &[&str]) {
    for task in tasks {
        s.enqueue(&format!(
            "'{task}', '{{\"n\": 1}}', group_name => 'g_{task}'"
        ))
        .await;
        let claimed = s.claim_one("worker => 'w'").await;
        s.get(&format!(
            "select trax.fail({}, E'broken \\x1b[31m{task}\\nsecond line', permanent => true)",
            claimed.key()
        ))
        .await;
    }
}

#[tokio::test]
async fn list_shows_what_waits_for_a_person_and_its_filters_count() {
    let (db, s) = session().await;
    died(&s, &["a", "b", "a"]).await;
    s.get("select trax.acknowledge_dead_letter(3, 'known')")
        .await;
    let list = |filters: &[&str]| {
        let mut arguments = vec!["dead", "list"];
        arguments.extend(filters);
        let ids = objects(&db, &arguments);
        ids.iter()
            .map(|letter| letter["id"].as_i64().expect("an id"))
            .collect::<Vec<_>>()
    };
    assert_eq!(list(&[]), [2, 1]);
    assert_eq!(list(&["--status", "any"]), [3, 2, 1]);
    assert_eq!(list(&["--status", "acknowledged"]), [3]);
    assert_eq!(list(&["--task", "a"]), [1]);
    assert_eq!(list(&["--group", "g_b"]), [2]);
    assert_eq!(list(&["--manifest", "m"]), [0; 0]);
    assert_eq!(list(&["--limit", "1"]), [2]);
    s.get("update trax.dead_letter set created_at = now() - interval '1 day' where id = 1")
        .await;
    assert_eq!(list(&["--since", "2 hours"]), [2]);
    let letters = objects(&db, &["dead", "list"]);
    assert_eq!(
        names(&letters[0]).join(" "),
        "attempts created_at group_name id job_id last_error manifest reason requeued_job_id resolution_note \
         resolved_at status task"
    );
    assert_eq!(said(&db, &["dead", "list", "--quiet"]), "2\n1\n");
    let table = said(&db, &["dead", "list"]);
    assert!(
        table.contains("second line") && !table.contains('\u{1b}'),
        "{table}"
    );
    assert_eq!(
        table.lines().count(),
        3,
        "an error of two lines is one row: {table}"
    );
}

#[tokio::test]
async fn show_gives_everything_of_a_dead_letter() {
    let (db, s) = session().await;
    died(&s, &["a"]).await;
    let shown = &objects(&db, &["dead", "show", "1"])[0];
    assert_eq!(
        (&shown["input"], &shown["task"]),
        (&json!({"n": 1}), &json!("a"))
    );
    let text = said(&db, &["dead", "show", "1"]);
    for part in [
        "awaiting_intervention",
        "failed permanently",
        "second line",
        "\"n\": 1",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let errors = refused(&db, 1, &["dead", "show", "7"]);
    assert!(errors.contains("dead letter 7 does not exist"), "{errors}");
}

#[tokio::test]
async fn requeue_and_ack_take_ids_and_remember_the_note() {
    let (db, s) = session().await;
    died(&s, &["a", "b"]).await;
    let changes = objects(&db, &["dead", "requeue", "1", "--note", "fixed"]);
    let job = s
        .number("select requeued_job_id from trax.dead_letter where id = 1")
        .await;
    assert_eq!(
        changes,
        [json!({"id": 1, "result": "requeued", "requeued_job_id": job})]
    );
    let changes = objects(&db, &["dead", "ack", "2", "--note", "known"]);
    assert_eq!(changes[0]["result"], "acknowledged");
    let notes = "select string_agg(status || ' ' || resolution_note, ', ' order by id) from trax.dead_letter";
    assert_eq!(s.get(notes).await, "requeued fixed, acknowledged known");
    // The second time, each letter that cannot be requeued is reported, and the others are
    // requeued.
    died(&s, &["c"]).await;
    let (code, output, errors) = run(&mut trax(
        &db,
        &["dead", "requeue", "1", "3", "99", "--json"],
    ));
    assert_eq!(code, Some(1), "{errors}");
    assert_eq!(json(&output)[0]["id"], 3);
    assert_eq!(json(&output).as_array().map(Vec::len), Some(1));
    assert_eq!(
        errors
            .lines()
            .filter(|line| line.starts_with("trax: "))
            .count(),
        2,
        "{errors}"
    );
    let (code, output, _) = run(&mut trax(&db, &["dead", "ack", "2", "--json"]));
    assert_eq!(
        (code, &json(&output)[0]["result"]),
        (Some(1), &json!("resolved before"))
    );
}

#[tokio::test]
async fn all_that_match_are_resolved_after_a_yes() {
    let (db, s) = session().await;
    died(&s, &["a", "b", "a", "a"]).await;
    let errors = refused(&db, 64, &["dead", "requeue", "--all", "--task", "a"]);
    assert!(
        errors.contains("Requeue 3 dead letters of task \"a\"?") && errors.contains("--yes"),
        "{errors}"
    );
    let changes = objects(&db, &["dead", "requeue", "--all", "--task", "a", "--yes"]);
    assert_eq!(changes.len(), 3);
    assert_eq!(
        s.number("select count(*) from trax.work_queue where task = 'a'")
            .await,
        3
    );
    said(&db, &["dead", "ack", "--all", "--yes", "-q"]);
    let open = "select count(*) from trax.dead_letter where status = 'awaiting_intervention'";
    assert_eq!(s.number(open).await, 0);
    let (code, output, errors) = run(&mut trax(&db, &["dead", "ack", "--all"]));
    assert_eq!((code, output.as_str()), (Some(0), ""));
    assert!(errors.contains("no dead letter matches"), "{errors}");
}

#[tokio::test]
async fn many_are_requeued_in_a_short_time() {
    let (db, s) = session().await;
    s.get("select count(*) from trax.enqueue_many('t', array_fill('1'::jsonb, array[1000]))")
        .await;
    s.get("select count(trax.fail(job_id, token, 'no', permanent => true)) from trax.claim_next(max_jobs => 1000)")
        .await;
    let changes = objects(&db, &["dead", "requeue", "--all", "--yes"]);
    assert_eq!(changes.len(), 1000);
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 1000);
}

#[tokio::test]
async fn those_whose_unique_key_another_job_has_are_named_and_stay() {
    let (db, s) = session().await;
    for input in 1..=3 {
        s.get(&format!(
            "select trax.enqueue('pay', '{input}', unique_key => 'k', max_retries => 0);
            select trax.fail(job_id, token, 'no') from trax.claim_next()"
        ))
        .await;
    }
    let (code, output, errors) = run(&mut trax(
        &db,
        &["dead", "requeue", "--all", "--yes", "--json"],
    ));
    assert_eq!(code, Some(1), "{errors}");
    let requeued = json(&output);
    assert_eq!(requeued.as_array().map(Vec::len), Some(1), "{output}");
    let job = &requeued[0]["requeued_job_id"];
    let named = format!("job {job} has the unique key \"k\"");
    assert_eq!(errors.matches(&named).count(), 2, "{errors}");
    let open = "select count(*) from trax.dead_letter where status = 'awaiting_intervention'";
    assert_eq!(s.number(open).await, 2);
}
