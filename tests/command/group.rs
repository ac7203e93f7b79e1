//! `trax group`, `workers`, `pause`, `resume` and `grant`.

use super::{bare, names, objects, refused, said, trax};
use harness::process::run;
use harness::scheduler::new_name;
use harness::session::session;
use harness::shared_server;
use serde_json::json;

#[tokio::test]
async fn groups_show_what_waits_and_runs_and_can_be_set_and_paused() {
    let (db, s) = session().await;
    s.get("select trax.enqueue_many('t', array['1', '2', '3']::jsonb[], group_name => 'g')")
        .await;
    s.claim_one("worker => 'w'").await;
    said(
        &db,
        &[
            "group",
            "set",
            "g",
            "--max-active-jobs",
            "5",
            "--priority",
            "3",
            "--max-per-key",
            "2",
        ],
    );
    let groups = objects(&db, &["group", "list"]);
    assert_eq!(
        groups,
        [
            json!({"name": "g", "enabled": true, "priority": 3, "max_active_jobs": 5, "max_per_key": 2, "rate": null, "max_waiting": null, "overflow": "reject",
            "manifests": 0, "ready": 2, "running": 1})
        ]
    );
    let changes = objects(&db, &["group", "pause", "g"]);
    assert_eq!(changes, [json!({"name": "g", "action": "paused"})]);
    assert_eq!(s.claim("").await, []);
    let table = said(&db, &["group", "list"]);
    assert!(table.contains("paused"), "{table}");
    said(&db, &["group", "resume", "g"]);
    assert_eq!(s.claim("").await.len(), 1);
    let errors = refused(&db, 1, &["group", "pause", "G", "g"]);
    assert!(
        errors.contains("group \"G\" does not exist") && errors.contains("trax group list"),
        "a mistyped name makes no group: {errors}"
    );
    assert_eq!(s.claim("").await, [], "the other one is paused");
    said(&db, &["group", "set", "new", "--priority", "1"]);
    said(&db, &["group", "pause", "new"]);
    assert_eq!(said(&db, &["group", "list", "-q"]), "g\nnew\n");
    // 0 removes the limit; the server refuses a value that is out of range.
    said(&db, &["group", "set", "g", "--max-active-jobs", "0"]);
    assert_eq!(
        objects(&db, &["group", "list"])[0]["max_active_jobs"],
        json!(null)
    );
    assert!(refused(&db, 1, &["group", "set", "g", "--priority", "32"]).contains("22023"));
}

#[tokio::test]
async fn workers_shows_who_executes_what() {
    let (db, s) = session().await;
    s.get("select trax.enqueue_many('t', array['1', '2']::jsonb[])")
        .await;
    s.claim_one("worker => 'ada'").await;
    let workers = objects(&db, &["workers"]);
    assert_eq!(
        names(&workers[0]).join(" "),
        "host info last_seen_at name oldest_started_at running started_at state tasks version"
    );
    assert_eq!(
        (
            &workers[0]["name"],
            &workers[0]["state"],
            &workers[0]["running"],
            &workers[0]["tasks"]
        ),
        (&json!("ada"), &json!("working"), &json!(1), &json!(["t"]))
    );
    assert!(said(&db, &["workers"]).contains("ada"));
    assert_eq!(said(&db, &["workers", "-q"]), "ada\n");
}

#[tokio::test]
async fn the_scheduler_is_paused_with_a_reason_and_resumed() {
    let (db, s) = session().await;
    let changes = objects(&db, &["pause", "--reason", "moving"]);
    assert_eq!(changes, [json!({"scheduler": "paused"})]);
    assert_eq!(
        s.get("select pause_reason from trax.instance").await,
        "moving"
    );
    said(&db, &["resume"]);
    assert_eq!(
        s.get("select paused_at is null from trax.instance").await,
        "t"
    );
}

#[tokio::test]
async fn a_granted_reader_reads_and_changes_nothing() {
    let (db, s) = session().await;
    let role = new_name("reader");
    s.get(&format!("create role {role} login")).await;
    s.get("select trax.schedule('m', 'a', cron => '* * * * *'), trax.enqueue('t')")
        .await;
    let as_role = |arguments: &[&str]| {
        let url = format!(
            "postgres://{role}@127.0.0.1:{}/{}",
            shared_server().port(),
            db.name()
        );
        run(bare().args(["--database-url", &url]).args(arguments))
    };
    let (code, _, errors) = as_role(&["jobs", "list"]);
    assert_eq!(code, Some(1));
    assert!(
        errors.contains("42501") && errors.contains("type: trax grant ROLE LEVEL"),
        "{errors}"
    );
    let changes = objects(&db, &["grant", &role, "reader"]);
    assert_eq!(changes, [json!({"role": role, "level": "reader"})]);
    let reads: [&[&str]; 12] = [
        &["jobs", "list"],
        &["jobs", "show", "1"],
        &["dead", "list"],
        &["manifest", "list"],
        &["manifest", "show", "m"],
        &["manifest", "preview", "m"],
        &["manifest", "why", "m"],
        &["group", "list"],
        &["workers"],
        &["check"],
        &["cron", "explain", "@daily"],
        &["status", "-q"],
    ];
    for arguments in reads {
        let (code, _, errors) = as_role(arguments);
        assert!(
            code == Some(0) || arguments[0] == "status" && code == Some(2),
            "{arguments:?}: {errors}"
        );
    }
    for arguments in [
        &["jobs", "cancel", "1"][..],
        &["pause"],
        &["manifest", "disable", "m"],
    ] {
        let (code, _, errors) = as_role(arguments);
        assert_eq!(code, Some(1), "{arguments:?}");
        assert!(errors.contains("42501"), "{errors}");
    }
    let limited = [
        "grant", &role, "producer", "--task", "mail", "--group", "a", "--group", "b",
    ];
    let changes = objects(&db, &limited);
    assert_eq!(
        changes,
        [
            json!({"role": role, "level": "producer", "replaces": "reader", "tasks": ["mail"], "groups": ["a", "b"]})
        ]
    );
    let (code, _, errors) = as_role(&["enqueue", "mail", "--group", "a"]);
    assert_eq!(code, Some(0), "{errors}");
    for other in [
        ["enqueue", "other", "--group", "a"],
        ["enqueue", "mail", "--group", "c"],
    ] {
        let (code, _, errors) = as_role(&other);
        assert_eq!(code, Some(1), "{other:?}");
        assert!(errors.contains("42501"), "{errors}");
    }
    let (_, _, errors) = run(&mut trax(&db, &["grant", &role, "reader"]));
    assert!(
        errors.contains("no longer has the level producer")
            && errors.contains(&format!(
                "a member of; then: trax grant {role} producer --task mail --group a --group b\n"
            )),
        "{errors}"
    );
    refused(&db, 1, &["grant", &role, "reader", "--task", "mail"]);
    let errors = refused(&db, 1, &["grant", "no_such_role_anywhere", "reader"]);
    assert!(
        errors.contains("no_such_role_anywhere") && errors.contains("hint: "),
        "{errors}"
    );
}
