//! Names of tasks, manifests and groups: white space at their ends, and filters without a name.

use harness::session::{Refusal, session};

fn assert_says(sql: &str, refusal: &Refusal, parts: [&str; 2]) {
    assert_eq!(refusal.code, "22023", "{sql}\n  {refusal}");
    assert!(refusal.message.ends_with(parts[0]), "{sql}\n  {refusal}");
    assert!(refusal.hint.contains(parts[1]), "{sql}\n  {refusal}");
}

#[tokio::test]
async fn a_name_with_white_space_at_its_ends_is_refused_with_the_name_to_type() {
    let (_db, s) = session().await;
    s.get("create role eaves login").await;
    let before = s.everything().await;
    for sql in [
        "select trax.enqueue(' mail')",
        "select trax.enqueue('t', group_name => E'mail\\n')",
        "select * from trax.enqueue_many(E'\\tmail', array['1']::jsonb[])",
        "select trax.enqueue(U&'mail\\00a0')",
        "select trax.enqueue_sql('select 1', group_name => 'mail ')",
        "insert into trax.new_job (task) values ('mail ')",
        "insert into trax.new_job (task, group_name) values ('t', ' mail')",
        "select trax.schedule(' mail', task => 't')",
        "select trax.schedule('m', task => ' mail')",
        "select trax.schedule('m', task => 't', group_name => 'mail ')",
        "select trax.configure_group(' mail')",
        r#"select * from trax.apply('{"manifests": [{"name": "mail ", "task": "t"}]}')"#,
        r#"select * from trax.apply('{"manifests": [{"name": "m", "task": " mail"}]}')"#,
        r#"select * from trax.apply('{"manifests": [{"name": "m", "task": "t", "group_name": " mail"}]}')"#,
        r#"select * from trax.apply('{"groups": [{"name": " mail"}]}')"#,
        "select * from trax.claim_next(tasks => array['t', ' mail'])",
        "select * from trax.claim_next(groups => array['mail '])",
        "select * from trax.complete_and_claim('{}', '{}', tasks => array[' mail'])",
        "select * from trax.waiting_tasks(groups => array[' mail'])",
        "select trax.grant_access('eaves', 'worker', tasks => array['t', ' mail'])",
        "select trax.grant_access('eaves', 'worker', groups => array['mail '])",
    ] {
        let refusal = s.refusal(sql).await;
        assert_says(
            sql,
            &refusal,
            ["must not begin or end with white space", "alone: 'mail'"],
        );
    }
    let blank = "select trax.enqueue(' ')";
    let words = ["must not begin or end with white space", "'report.build'"];
    assert_says(blank, &s.refusal(blank).await, words);
    assert_eq!(s.everything().await, before);
    // White space inside, and in keys, which are data.
    s.get("select trax.enqueue('send mail', unique_key => ' k', concurrency_key => 'k ')")
        .await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_filter_without_a_name_is_refused() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue('t')").await;
    for filter in ["'{}'", "array['']", "array['t', '']"] {
        for sql in [
            "select * from trax.claim_next(tasks => {})",
            "select * from trax.claim_next(groups => {})",
            "select * from trax.complete_and_claim('{}', '{}', groups => {})",
            "select * from trax.waiting_tasks(groups => {})",
        ] {
            let sql = match sql.rsplit_once("{}") {
                Some((head, tail)) => format!("{head}{filter}{tail}"),
                None => sql.to_owned(),
            };
            assert_says(
                &sql,
                &s.refusal(&sql).await,
                ["must not be empty", "for all"],
            );
        }
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_group_that_has_such_a_name_already_can_be_resumed() {
    let (_db, s) = session().await;
    s.get("insert into trax.manifest_group (name, enabled) values (' old', false)")
        .await;
    s.get("select trax.configure_group(' old', enabled => true)")
        .await;
    s.assert_healthy().await;
}
