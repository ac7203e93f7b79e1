//! The names and numbers of rates: the errors for wrong ones, and their hints.

use super::{configure, enqueue_of};
use harness::session::{Refusal, Session, session};

async fn refused(s: &Session, sql: &str) -> String {
    let Refusal {
        code,
        message,
        detail,
        hint,
    } = s.refusal(sql).await;
    assert!(!hint.is_empty(), "{sql}");
    format!("{code} {message} / {detail}")
}

#[tokio::test]
async fn an_unknown_rate_is_refused_with_the_name_that_is_nearly_the_same() {
    let (_db, s) = session().await;
    configure(&s, "mail api", 1).await;
    let wanted = "42704 rate \"mial api\" does not exist / There is a rate \"mail api\".";
    for sql in [
        "select trax.enqueue('t', rate => 'mial api')",
        "insert into trax.new_job (task, rate) values ('t', 'mial api')",
        "select trax.consume_rate('mial api')",
        "select trax.close_rate('mial api', until => 'infinity')",
        "select trax.drop_rate('mial api')",
        "select trax.configure_group('g', rate => 'mial api')",
        "select trax.apply('{\"groups\": [{\"name\": \"g\", \"rate\": \"mial api\"}]}')",
    ] {
        assert!(
            refused(&s, sql)
                .await
                .contains(wanted.trim_start_matches("42704 ")),
            "{sql}"
        );
    }
    let far = refused(&s, "select trax.enqueue('t', rate => 'x')").await;
    assert!(far.ends_with("nor one that is nearly the same."), "{far}");
}

#[tokio::test]
async fn impossible_rates_and_costs_are_refused() {
    let (_db, s) = session().await;
    configure(&s, "api", 3).await;
    for (sql, wanted) in [
        (
            "select trax.configure_rate('r', 0, '1 s')",
            "22023 argument \"allowed\" must be between 1",
        ),
        ("select trax.configure_rate('r', null, '1 s')", "22004 "),
        (
            "select trax.configure_rate('r', 1, '0')",
            "22023 argument \"period\" must be",
        ),
        (
            "select trax.configure_rate('r', 1, '1 s', 0)",
            "22023 argument \"burst\" must be between 1",
        ),
        (
            "select trax.configure_rate('r', 2000000, '1 s')",
            "22023 the rate is too fast",
        ),
        (
            "select trax.configure_rate('r', 1, '1000 days', 100000)",
            "22023 argument \"burst\" is too large",
        ),
        (
            "select trax.enqueue('t', rate => 'api', cost => 4)",
            "22023 cost 4 is more than rate \"api\" ever has",
        ),
        (
            "select trax.enqueue('t', rate => 'api', cost => 0)",
            "22023 argument \"cost\" must be between 1",
        ),
        (
            "select trax.enqueue('t', rate_key => 'k')",
            "22023 argument \"rate_key\" needs a rate",
        ),
        (
            "select trax.enqueue('t', cost => 2)",
            "22023 argument \"cost\" needs a rate",
        ),
        (
            "select trax.consume_rate('api', cost => 4)",
            "22023 cost 4 is more",
        ),
        ("select trax.close_rate('api')", "22004 "),
    ] {
        let refused = refused(&s, sql).await;
        assert!(refused.starts_with(wanted), "{sql}: {refused}");
    }
}

#[tokio::test]
async fn a_rate_that_is_named_is_not_dropped() {
    let (db, s) = session().await;
    configure(&s, "api", 1).await;
    let job = enqueue_of(&s, "api", 1).await[0];
    let drop = "select trax.drop_rate('api')";
    assert!(
        refused(&s, drop)
            .await
            .ends_with(&format!("named by job {job}, which waits."))
    );
    let claimed = s.claim_one("").await;
    assert!(
        refused(&s, drop)
            .await
            .ends_with(&format!("named by job {job}, which runs."))
    );
    s.get(&format!("select trax.complete({})", claimed.key()))
        .await;
    s.get("select trax.configure_group('g', rate => 'api')")
        .await;
    assert!(refused(&s, drop).await.ends_with("named by group \"g\"."));
    s.get("select trax.configure_group('g', rate => '')").await;
    // A drop waits for a transaction that has queued a job of it.
    let producer = Session::of(&db).await;
    producer
        .get("begin; select trax.enqueue('t', rate => 'api')")
        .await;
    let pid = s.pid();
    let dropping = s.spawn(drop);
    producer.sees_waiting(pid).await;
    producer.get("rollback").await;
    let (s, dropped) = dropping.await.expect("it does not panic");
    assert_eq!(dropped.expect("nothing names it"), "");
    assert_eq!(s.get("select count(*) from trax.rate").await, "0");
    let acts = "select string_agg(action || ' ' || name, ', ' order by id) from trax.audit where kind = 'rate'";
    assert_eq!(s.get(acts).await, "configure api, drop api");
}

#[tokio::test]
async fn a_job_of_a_rate_that_is_gone_waits_and_says_why() {
    let (_db, s) = session().await;
    configure(&s, "api", 1).await;
    let job = enqueue_of(&s, "api", 1).await[0];
    s.get("delete from trax.rate").await;
    assert_eq!(s.claim_ids("").await, [0; 0]);
    let why = format!("select detail from trax.explain_job({job}) where reason = 'rate'");
    assert_eq!(
        s.get(&why).await,
        format!("Job {job} needs 1 of rate \"api\", which does not exist.")
    );
    let found = s
        .get("select detail from trax.diagnose() where cause = 'rate_missing'")
        .await;
    assert_eq!(found, "1 jobs wait for rate \"api\", which does not exist.");
    configure(&s, "api", 1).await;
    assert_eq!(s.claim_ids("").await, [job]);
}

#[tokio::test]
async fn explain_job_says_when_a_rate_has_room() {
    let (_db, s) = session().await;
    configure(&s, "api", 1).await;
    let jobs = enqueue_of(&s, "api", 2).await;
    s.get("select trax.claim_next()").await;
    let why = format!(
        "select detail, action from trax.explain_job({}) where reason = 'rate'",
        jobs[1]
    );
    let said = s.get(&why).await;
    let begin = format!(
        "Job {} needs 1 of rate \"api\", of which 0 may start now, and 1 in each 01:00:00; so much may start at ",
        jobs[1]
    );
    assert!(said.starts_with(&begin), "{said}");
    assert!(
        said.ends_with("Nothing: wait; or: select trax.configure_rate('api', 2, '01:00:00')"),
        "{said}"
    );
    s.get("select trax.close_rate('api', until => '2100-01-01 00:00:00+00')")
        .await;
    let said = s.get(&why).await;
    assert!(
        said.contains(", which is closed until 2100-01-01"),
        "{said}"
    );
}

#[tokio::test]
async fn a_change_is_audited_with_what_changed() {
    let (_db, s) = session().await;
    for burst in ["null", "null", "7"] {
        s.get(&format!(
            "select trax.configure_rate('api', 5, '1 min', {burst})"
        ))
        .await;
    }
    s.get("select trax.close_rate('api', 'k', 'infinity'), trax.close_rate('api', 'k', now())")
        .await;
    let acts =
        "select string_agg(concat_ws(' ', action, name, note), ', ' order by id) from trax.audit";
    let wanted =
        "configure api created, configure api burst: null -> 7, close api key k, open api key k";
    assert_eq!(s.get(acts).await, wanted);
}
