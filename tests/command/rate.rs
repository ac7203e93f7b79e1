//! `trax rate`.

use super::{objects, refused, said};
use harness::session::session;
use serde_json::json;

#[tokio::test]
async fn a_rate_is_set_listed_closed_opened_and_dropped() {
    let (db, s) = session().await;
    let set = [
        "rate",
        "set",
        "api",
        "--allowed",
        "1",
        "--per",
        "1h",
        "--burst",
        "2",
    ];
    assert_eq!(
        objects(&db, &set),
        [json!({"name": "api", "action": "set"})]
    );
    said(
        &db,
        &[
            "enqueue",
            "t",
            "--rate",
            "api",
            "--rate-key",
            "k",
            "--cost",
            "2",
        ],
    );
    said(&db, &["group", "set", "g", "--rate", "api"]);
    assert_eq!(s.get("select rate from trax.manifest_group").await, "api");
    let stored = "select rate, rate_key, cost from trax.work_queue";
    assert_eq!(s.get(stored).await, "api|k|2");
    let listed = &objects(&db, &["rate", "list"])[0];
    let seen = [
        "allowed",
        "period",
        "burst",
        "available",
        "free_at",
        "closed_until",
        "waiting",
    ];
    let seen = seen.map(|name| listed[name].clone());
    let wanted = json!([1, "01:00:00", 2, 2, null, null, 1]);
    assert_eq!(json!(seen), wanted);
    said(&db, &["rate", "close", "api", "--for", "1h"]);
    let listed = &objects(&db, &["rate", "list"])[0];
    assert!(listed["closed_until"].is_string(), "{listed}");
    said(&db, &["rate", "open", "api"]);
    assert_eq!(s.get("select count(*) from trax.rate_closure").await, "0");
    let used = refused(&db, 1, &["rate", "drop", "api"]);
    assert!(used.contains("rate \"api\" is in use"), "{used}");
    let unknown = refused(&db, 1, &["rate", "close", "appi", "--until", "tomorrow"]);
    assert!(unknown.contains("There is a rate \"api\"."), "{unknown}");
    said(&db, &["group", "set", "g", "--rate", ""]);
    s.get("select trax.cancel(1)").await;
    said(&db, &["rate", "drop", "api"]);
    assert!(objects(&db, &["rate", "list"]).is_empty());
}
