//! `trax audit`.

use super::{objects, said};
use harness::session::session;

#[tokio::test]
async fn acts_are_listed_the_newest_first_and_filtered() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 't')").await;
    s.get("select trax.pause('a test')").await;
    s.get("select trax.resume()").await;
    s.get("select trax.enqueue('t'); select trax.cancel(1)")
        .await;
    let acts = |filters: &[&str]| {
        let mut arguments = vec!["audit"];
        arguments.extend(filters);
        let acts = objects(&db, &arguments);
        let action = |act: &serde_json::Value| act["action"].as_str().map(str::to_owned);
        let actions: Vec<String> = acts.iter().filter_map(action).collect();
        actions.join(" ")
    };
    assert_eq!(acts(&[]), "cancel resume pause schedule");
    assert_eq!(acts(&["--limit", "2"]), "cancel resume");
    assert_eq!(acts(&["--kind", "scheduler"]), "resume pause");
    assert_eq!(
        acts(&["--action", "pause", "--action", "cancel"]),
        "cancel pause"
    );
    assert_eq!(acts(&["--kind", "manifest", "--name", "m"]), "schedule");
    assert_eq!(acts(&["--role", "nobody"]), "");
    assert_eq!(acts(&["--since", "1 h"]), "cancel resume pause schedule");
    assert_eq!(acts(&["--since", "2099-01-01"]), "");
    let table = said(&db, &["audit"]);
    assert!(
        table.contains("pause") && table.contains("a test"),
        "{table}"
    );
}
