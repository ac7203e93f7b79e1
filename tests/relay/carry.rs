//! Rows become jobs: in order, once, late ones too; refusals, results and rights.

use super::{Relay, outbox_on, pair, play, trax_relay, url};
use harness::process::{run, trax_binary};
use harness::scheduler::new_name;
use harness::session::Session;
use harness::{PATIENCE, shared_server};
use std::process::Command;

#[tokio::test]
async fn rows_become_jobs_with_all_that_they_say_in_their_order() {
    let (source, target) = pair().await;
    source
        .get(
            "select trax_outbox.enqueue('t ' || n, jsonb_build_object('n', n)) from generate_series(1, 1200) n;
             select trax_outbox.enqueue('all', 'null', '2100-01-01 01:02:03.456789+00', 'g', 7, 3, '1 month 2 days 3.5 s',
                 'unique', 'key', '{\"traceparent\": \"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\"}',
                 '1.5 s', '1 hour')",
        )
        .await;
    trax_relay(&source, &target).once();
    assert_eq!(
        source.get("select count(*) from trax_outbox.entry").await,
        "0"
    );
    let order = "select count(*), bool_and(task = 't ' || n and input = jsonb_build_object('n', n))
        from (select *, row_number() over (order by job_id) as n from trax.work_queue) q where n <= 1200";
    assert_eq!(target.get(order).await, "1200|t");
    let all = "select input, run_at at time zone 'utc', group_name, priority, max_retries, timeout, concurrency_key,
            trace->>'traceparent', retry_delay from trax.work_queue where task = 'all'";
    assert_eq!(
        target.get(all).await,
        "null|2100-01-01 01:02:03.456789|g|7|3|1 mon 2 days 00:00:03.5|key|00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01|00:00:01.5"
    );
    assert_eq!(
        target
            .get("select count(*) from trax.unique_key where key = 'unique'")
            .await,
        "1"
    );
    target.assert_healthy().await;
}

#[tokio::test]
async fn a_row_with_a_lower_id_that_commits_later_is_carried() {
    let (source, target) = pair().await;
    let late = Session::of(source.database()).await;
    late.get("begin; select trax_outbox.enqueue('late')").await;
    source.get("select trax_outbox.enqueue('early')").await;
    trax_relay(&source, &target).once();
    let tasks = "select string_agg(task, ' ' order by job_id) from trax.work_queue";
    assert_eq!(target.get(tasks).await, "early");
    late.get("commit").await;
    trax_relay(&source, &target).once();
    assert_eq!(target.get(tasks).await, "early late");
}

#[tokio::test]
async fn a_sleeping_relay_is_woken_by_the_commit() {
    let (source, target) = pair().await;
    // The relay's next poll is an hour away.
    let relay = trax_relay(&source, &target)
        .arguments(&["--poll", "1h"])
        .start();
    relay.says("carries", PATIENCE).await;
    for task in ["first", "second"] {
        source
            .becomes("select asleep from trax_outbox.target", "t")
            .await;
        source
            .get(&format!("select trax_outbox.enqueue('{task}')"))
            .await;
        target
            .becomes(
                &format!("select count(*) from trax.work_queue where task = '{task}'"),
                "1",
            )
            .await;
    }
}

#[tokio::test]
async fn a_refused_row_stops_no_other_and_can_be_tried_again() {
    let (source, target) = pair().await;
    let role = new_name("relay");
    target
        .get(&format!(
            "create role {role} login; select trax.grant_access('{role}', 'producer', groups => '{{allowed}}');
             select trax_relay.grant_access('{role}')"
        ))
        .await;
    source
        .get(&format!(
            "select trax_outbox.grant_access('{role}', 'relay')"
        ))
        .await;
    source
        .get("select trax_outbox.enqueue('a', group_name => 'allowed'), trax_outbox.enqueue('b', group_name => 'other'),
                  trax_outbox.enqueue('c', group_name => 'allowed')")
        .await;
    let relay = trax_relay(&source, &target).role(&role);
    relay.once();
    let tasks = "select string_agg(task, ' ' order by job_id) from trax.work_queue";
    assert_eq!(target.get(tasks).await, "a c");
    let refused = "select sqlstate, error <> '', entry->>'task' from trax_outbox.refused";
    assert_eq!(source.get(refused).await, "42501|t|b");
    assert_eq!(
        source
            .get("select waiting, refused from trax_outbox.lag")
            .await,
        "0|1"
    );
    target
        .get(&format!("select trax.grant_access('{role}', 'producer')"))
        .await;
    source
        .get("select trax_outbox.retry(id) from trax_outbox.refused")
        .await;
    relay.once();
    assert_eq!(target.get(tasks).await, "a c b");
    source.get(&format!("drop owned by {role}")).await;
    target
        .get(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

#[tokio::test]
async fn a_target_that_is_not_ready_stops_only_the_carrying() {
    let (_database, source) = outbox_on(shared_server()).await;
    let database = shared_server()
        .plain_database(&new_name("target"))
        .await
        .expect("a database");
    let target = Session::of(&database).await;
    let role = new_name("relay");
    target.get(&format!("create role {role} login")).await;
    source
        .get(&format!(
            "select trax_outbox.grant_access('{role}', 'relay'); select trax_outbox.enqueue('t')"
        ))
        .await;
    let source = Relay::side(_database, source);
    let target = Relay::side(database, target);
    let relay = trax_relay(&source, &target).role(&role);
    let refused = |hint: &str| {
        let (code, _, said) = run(&mut relay.command(&["--once"]));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(hint), "{hint}: {said}");
    };
    refused("create extension trax");
    target.get("create extension trax").await;
    refused("trax.grant_access");
    target
        .get(&format!("select trax.grant_access('{role}', 'producer')"))
        .await;
    refused("--target-sql");
    play(shared_server(), target.database(), "relay.sql");
    refused("trax_relay.grant_access");
    target
        .get(&format!("select trax_relay.grant_access('{role}')"))
        .await;
    assert_eq!(
        source
            .get("select waiting, refused from trax_outbox.lag")
            .await,
        "1|0"
    );
    relay.once();
    assert_eq!(
        source
            .get("select waiting, refused from trax_outbox.lag")
            .await,
        "0|0"
    );
    assert_eq!(
        target.get("select count(*) from trax.work_queue").await,
        "1"
    );
    source.get(&format!("drop owned by {role}")).await;
    target
        .get(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

#[tokio::test]
async fn what_became_of_the_jobs_is_written_back() {
    let (source, target) = pair().await;
    source
        .get("select trax_outbox.enqueue('good'), trax_outbox.enqueue('bad', max_retries => 0), trax_outbox.enqueue('later')")
        .await;
    let relay = trax_relay(&source, &target).arguments(&["--results"]);
    relay.once();
    let open = "select count(*) from trax_outbox.result where state is null";
    assert_eq!(source.get(open).await, "3");
    let good = target.claim_one("tasks => '{good}'").await;
    target
        .get(&format!(
            "select trax.complete({}, '{{\"n\": 1.50}}')",
            good.key()
        ))
        .await;
    let bad = target.claim_one("tasks => '{bad}'").await;
    target
        .get(&format!("select trax.fail({}, 'it broke')", bad.key()))
        .await;
    relay.once();
    let seen = "select task, state, output, error, finished_at is not null from trax_outbox.result order by id";
    assert_eq!(
        source.get(seen).await,
        "good|completed|{\"n\": 1.50}||t\nbad|failed||it broke|t\nlater||||f"
    );
    let later = target
        .number("select job_id from trax.work_queue where task = 'later'")
        .await;
    assert_eq!(
        source
            .number("select job_id from trax_outbox.result where task = 'later'")
            .await,
        later
    );
}

#[tokio::test]
async fn hostile_text_stays_text() {
    let (source, target) = pair().await;
    let texts = [
        "'; drop table trax.run; --",
        "\\",
        "\"{}\"",
        "$1 $$",
        "\u{1b}[2J\u{7}",
        "é漢\u{1f980}\u{202e}",
        "{\"key\": \"x\"}",
    ];
    for text in texts {
        let sql = "select trax_outbox.enqueue($1::text, jsonb_build_object($1::text, $1::text), unique_key => $1, concurrency_key => $1,
            group_name => $1)";
        source
            .client()
            .query_one(sql, &[&text])
            .await
            .expect("it is enqueued");
    }
    trax_relay(&source, &target).once();
    let sql = "select task, input::text, group_name, concurrency_key from trax.work_queue order by job_id";
    let rows = target
        .client()
        .query(sql, &[])
        .await
        .expect("jobs are read");
    assert_eq!(rows.len(), texts.len());
    for (row, text) in rows.iter().zip(texts) {
        let input = serde_json::json!({ text: text });
        let found: serde_json::Value = serde_json::from_str(row.get(1)).expect("it is JSON");
        assert_eq!((row.get::<_, &str>(0), found), (text, input));
        assert_eq!([row.get::<_, &str>(2), row.get(3)], [text, text]);
    }
}

#[tokio::test]
async fn keys_are_kept_for_an_hour_and_while_the_outbox_has_the_row() {
    let (source, target) = pair().await;
    let relay = trax_relay(&source, &target);
    source.get("select trax_outbox.enqueue('t'); create table forgotten as select * from trax_outbox.entry").await;
    relay.once();
    // A failover of the source that lost its last transactions.
    source
        .get("insert into trax_outbox.entry select * from forgotten")
        .await;
    relay.once();
    assert_eq!(
        target.get("select count(*) from trax.work_queue").await,
        "1"
    );
    assert_eq!(
        source.get("select count(*) from trax_outbox.entry").await,
        "0"
    );
    // Older than an hour, and read again: keys are removed only after asking the source.
    target
        .get("update trax_relay.carried set carried_at = now() - interval '61 min'")
        .await;
    source
        .get("insert into trax_outbox.entry select * from forgotten")
        .await;
    relay.once();
    assert_eq!(
        target.get("select count(*) from trax.work_queue").await,
        "1"
    );
    assert_eq!(
        target.get("select count(*) from trax_relay.carried").await,
        "0"
    );
}

#[tokio::test]
async fn several_outboxes_are_carried_by_one_relay() {
    let (source, target) = pair().await;
    let (database, other) = outbox_on(shared_server()).await;
    let other = Relay::side(database, other);
    source.get("select trax_outbox.enqueue('one')").await;
    other.get("select trax_outbox.enqueue('two')").await;
    trax_relay(&source, &target).and(&other).once();
    let tasks = "select string_agg(task, ' ' order by task) from trax.work_queue";
    assert_eq!(target.get(tasks).await, "one two");
}

#[tokio::test]
async fn metrics_and_doctor_say_how_far_the_relay_is() {
    let (source, target) = pair().await;
    let on_target = |arguments: &[&str]| {
        let mut command = Command::new(trax_binary());
        command.args(["--database-url", &url(&target.database.config())]);
        run(command.args(arguments)).1
    };
    assert!(
        !on_target(&["metrics"]).contains("trax_outbox"),
        "there is none yet"
    );
    source
        .get("select trax_outbox.enqueue('good'); insert into trax_outbox.entry (task, input) values (repeat('x', 300), '{}')")
        .await;
    trax_relay(&source, &target).once();
    let name = source.database.name();
    let labels = format!(
        "database=\"{name}\",outbox=\"{}\"",
        source.get("select source from trax_outbox.relay").await
    );
    let metrics = on_target(&["metrics"]);
    for line in [
        format!("trax_outbox_waiting{{{labels}}} 0\n"),
        format!("trax_outbox_oldest_age_seconds{{{labels}}} 0\n"),
        format!("trax_outbox_refused{{{labels}}} 1\n"),
        format!("trax_outbox_last_report_timestamp_seconds{{{labels}}} 1"),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let causes = || on_target(&["doctor", "--quiet"]);
    assert!(causes().contains("relay_refused"), "{}", causes());
    assert!(!causes().contains("relay_silent"), "{}", causes());
    source.get("delete from trax_outbox.refused").await;
    // A running relay reports this itself, even if rows wait that it cannot carry.
    source
        .get("select trax_outbox.enqueue('late'); update trax_outbox.entry set queued_at = now() - interval '1 h'")
        .await;
    target
        .get("update trax_relay.source set waiting = 1, oldest_seconds = 3600, refused = 0")
        .await;
    assert!(causes().contains("relay_behind"), "{}", causes());
    target
        .get("update trax_relay.source set reported_at = now() - interval '6 min'")
        .await;
    let said = on_target(&["doctor"]);
    assert!(
        said.contains("relay_silent") && said.contains(name),
        "{said}"
    );
    assert!(!said.contains("relay_behind"), "{said}");
    trax_relay(&source, &target).once();
    assert!(!causes().contains("relay_"), "{}", causes());
}

#[tokio::test]
async fn who_may_not_read_what_relays_keep_sees_none_of_it() {
    let (source, target) = pair().await;
    trax_relay(&source, &target).once();
    let role = new_name("monitor");
    target
        .get(&format!(
            "create role {role} login; select trax.grant_access('{role}', 'reader')"
        ))
        .await;
    let mut config = target.database.config();
    config.user(&role);
    let metrics = || {
        let mut command = Command::new(trax_binary());
        let (code, output, errors) =
            run(command.args(["--database-url", &url(&config), "metrics"]));
        assert_eq!(code, Some(0), "{errors}");
        output
    };
    assert!(!metrics().contains("trax_outbox"), "{}", metrics());
    target
        .get(&format!(
            "select trax_relay.grant_access('{role}', 'reader')"
        ))
        .await;
    assert!(metrics().contains("trax_outbox_waiting"), "{}", metrics());
    let session = Session::as_role(&target.database, &role).await;
    for sql in [
        "select from trax_relay.carried",
        "delete from trax_relay.source",
    ] {
        let refused = session.attempt(sql).await.expect_err(sql);
        assert_eq!(refused.code, "42501");
    }
    let refused = target
        .attempt(&format!(
            "select trax_relay.grant_access('{role}', 'producer')"
        ))
        .await
        .expect_err("no such level");
    assert_eq!(refused.code, "22023");
    target
        .get(&format!("select trax_relay.grant_access('{role}', 'none')"))
        .await;
    assert!(!metrics().contains("trax_outbox"), "{}", metrics());
    drop(session);
    target
        .get(&format!("drop owned by {role}; drop role {role}"))
        .await;
}
