//! The rates of a document.

use super::apply;
use harness::session::{Session, session};

const RATES: &str = r#"{
    "groups": [{"name": "mail", "rate": "api"}],
    "rates": [{"name": "api", "allowed": 5, "period": "1 min", "burst": 2}, {"name": "disk", "allowed": 9, "period": 1.5}]
}"#;
const STORED: &str = "select string_agg(concat_ws(' ', name, allowed, period, burst, source), ', ' order by name) from trax.rate";

#[tokio::test]
async fn a_document_creates_changes_and_prunes_rates() {
    let (_db, s) = session().await;
    s.get("select trax.configure_rate('mine', 1, '1 s')").await;
    let created = "created|rate|api\ncreated|rate|disk\ncreated|group|mail";
    let before = s.everything().await;
    assert_eq!(apply(&s, RATES, ", dry_run => true").await, created);
    assert_eq!(s.everything().await, before, "a dry run");
    assert_eq!(apply(&s, RATES, "").await, created);
    let stored = "api 5 00:01:00 2, disk 9 00:00:01.5, mine 1 00:00:01";
    assert_eq!(s.get(STORED).await, stored);
    assert_eq!(
        apply(&s, RATES, ", prune => true").await,
        "unchanged|rate|api\nunchanged|rate|disk\nunchanged|group|mail"
    );
    let one = r#"{"rates": [{"name": "api", "allowed": 6, "period": 60}]}"#;
    let rows = format!("select * from trax.apply($${one}$$, prune => true)");
    assert_eq!(
        s.get(&rows).await,
        "changed|rate|api|allowed: 5 -> 6, burst: 2 -> null\nremoved|group|mail|\nremoved|rate|disk|"
    );
    assert_eq!(s.get(STORED).await, "api 6 00:01:00, mine 1 00:00:01");
    let acts = "select string_agg(concat_ws(' ', action, name), ', ' order by id) from trax.audit where kind = 'rate'";
    assert_eq!(
        s.get(acts).await,
        "configure mine, configure api, configure disk, configure api, drop disk"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_source_takes_a_rate_over_and_leaves_what_has_started() {
    let (_db, s) = session().await;
    s.get("select trax.configure_rate('api', 5, '1 min', burst => 2)")
        .await;
    let changed_at = "select changed_at from trax.rate where name = 'api'";
    let before = s.get(changed_at).await;
    let seen = apply(&s, RATES, ", source => 'repo'").await;
    assert!(seen.starts_with("changed|rate|api\n"), "{seen}");
    assert_eq!(
        s.get(changed_at).await,
        before,
        "its keys do not begin anew"
    );
    let other = format!("select trax.apply($${RATES}$$, source => 'other')");
    let error = s.refusal(&other).await;
    assert!(
        error.message.contains("belongs to source \"repo\""),
        "{error}"
    );
    assert_eq!(
        apply(&s, "{}", ", source => 'other', prune => true").await,
        ""
    );
    assert_eq!(
        apply(&s, "{}", ", source => 'repo', prune => true").await,
        "removed|group|mail\nremoved|rate|api\nremoved|rate|disk"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_mistake_names_its_rate() {
    let (_db, s) = session().await;
    let before = s.everything().await;
    for (members, said) in [
        (r#""period": 1"#, "member \"allowed\" is missing"),
        (r#""allowed": 1"#, "member \"period\" is missing"),
        (r#""allowed": 0, "period": 1"#, "member \"allowed\" must be"),
        (r#""allowed": 1, "period": 0"#, "member \"period\" must be"),
        (
            r#""allowed": 1, "period": "-1 s""#,
            "member \"period\" must be",
        ),
        (
            r#""allowed": 1, "period": 1, "burst": 0"#,
            "member \"burst\" must be",
        ),
        (r#""allowed": 2000000, "period": 1"#, "the rate is too fast"),
        (
            r#""allowed": 1, "period": "1 s", "key": 1"#,
            "unknown member \"key\"",
        ),
    ] {
        let document = format!(r#"{{"rates": [{{"name": "api", {members}}}]}}"#);
        let error = s
            .refusal(&format!("select trax.apply($${document}$$)"))
            .await;
        assert!(error.message.starts_with("rate \"api\": "), "{error}");
        assert!(error.message.contains(said), "{members}: {error}");
    }
    let twice = r#"{"rates": [{"name": "a", "allowed": 1, "period": 1}, {"name": "a", "allowed": 1, "period": 1}]}"#;
    let error = s.refusal(&format!("select trax.apply($${twice}$$)")).await;
    assert!(
        error.message.contains("rate \"a\" appears twice"),
        "{error}"
    );
    assert_eq!(s.everything().await, before);
}

/// A job that another transaction has queued, but not committed, keeps its rate.
#[tokio::test]
async fn a_rate_in_use_is_not_pruned() {
    let (db, s) = session().await;
    apply(&s, RATES, "").await;
    let other = Session::of(&db).await;
    other
        .get("begin; select trax.enqueue('t', rate => 'disk')")
        .await;
    let pruning = Session::of(&db).await;
    let pid = pruning.pid();
    let prune = pruning.spawn("select trax.apply('{}', prune => true)");
    other.sees_waiting(pid).await;
    other.get("commit").await;
    let (_, pruned) = prune.await.expect("the session lives");
    let error = pruned.expect_err("the rate is in use");
    assert!(error.message.contains("rate \"disk\" is in use"), "{error}");
    assert_eq!(s.number("select count(*) from trax.rate").await, 2);
    assert_eq!(
        s.number("select count(*) from trax.manifest_group").await,
        1
    );
    s.get("select trax.cancel(job_id) from trax.work_queue")
        .await;
    assert_eq!(
        apply(&s, "{}", ", prune => true").await,
        "removed|group|mail\nremoved|rate|api\nremoved|rate|disk"
    );
    s.assert_healthy().await;
}
