//! A document of groups and manifests: the changes when it is applied, and everything left
//! unchanged.

mod rates;
mod refusal;
mod source;

use harness::manifest::{complete_one, due_since, waiting};
use harness::session::{Session, session};

const DOCUMENT: &str = r#"{
    "groups": [{"name": "reports", "priority": 5, "max_active_jobs": 4, "max_per_key": 2}],
    "manifests": [
        {"name": "summary", "task": "sum", "depends_on": ["daily", "weekly"], "depends_mode": "any"},
        {"name": "daily", "task": "build", "cron": "0 2 * * *", "timezone": "Europe/Berlin", "group_name": "reports",
         "input": {"kind": "daily", "big": 123456789012345678901234567890, "exact": 1.10}, "priority": 3, "max_retries": 1,
         "retry_delay": "90 s", "timeout": "10 min", "misfire": "skip", "misfire_threshold": "5 min", "misfire_limit": 2,
         "overlap": "skip", "variance": "1 min", "on_dead_letter": "continue", "exclusions": {"days_of_week": ["SUN"]},
         "starts_at": "2020-01-01 00:00+00", "ends_at": "2090-01-01 00:00+00"},
        {"name": "weekly", "task": "build", "every": "7 days", "max_concurrency": 3},
        {"name": "once", "task": "build", "run_at": "2089-01-01 00:00+00", "enabled": false},
        {"name": "asleep", "task": "build", "depends_on": ["daily"], "dormant": true},
        {"name": "by-hand", "task": "build"}
    ]
}"#;

/// Applies a document; returns the action, kind and name of each row.
async fn apply(s: &Session, document: &str, options: &str) -> String {
    s.get(&format!(
        "select action, kind, name from trax.apply($document${document}$document$ {options})"
    ))
    .await
}

async fn manifests(s: &Session, list: &str, options: &str) -> String {
    apply(s, &format!("{{\"manifests\": [{list}]}}"), options).await
}

#[tokio::test]
async fn a_time_without_a_zone_is_in_the_zone_of_its_manifest() {
    let (_db, s) = session().await;
    for zone in ["UTC", "America/New_York", "Asia/Kathmandu"] {
        s.get(&format!("set timezone = '{zone}'; select count(*) from (select trax.unschedule(name) from trax.manifest) u"))
            .await;
        let times = [
            ("2089-06-01 11:00", "2089-06-01 09:00:00"),
            ("2089-01-01T10:00:00", "2089-01-01 09:00:00"),
            ("2089-06-01 11:00 UTC", "2089-06-01 11:00:00"),
            ("2089-06-01T11:00:00Z", "2089-06-01 11:00:00"),
            ("2089-06-01 11:00+05", "2089-06-01 06:00:00"),
            ("2089-06-01 11:00 Asia/Tokyo", "2089-06-01 02:00:00"),
        ];
        for (text, stored) in times {
            let manifest = format!(
                r#"{{"name": "m", "task": "t", "cron": "@daily", "timezone": "Europe/Berlin", "ends_at": "{text}"}}"#
            );
            manifests(&s, &manifest, "").await;
            let seen = s
                .get("select ends_at at time zone 'UTC' from trax.manifest")
                .await;
            assert_eq!(seen, stored, "{text} in {zone}");
        }
    }
}

#[tokio::test]
async fn a_document_creates_what_it_says() {
    let (_db, s) = session().await;
    let seen = apply(&s, DOCUMENT, "").await;
    assert_eq!(
        seen,
        "created|group|reports\ncreated|manifest|daily\ncreated|manifest|weekly\ncreated|manifest|summary\n\
         created|manifest|once\ncreated|manifest|asleep\ncreated|manifest|by-hand"
    );
    let daily = "select task, cron, timezone, group_name, priority, max_retries, retry_delay, timeout, misfire, misfire_threshold,
        misfire_limit, overlap, variance, on_dead_letter, exclusions, starts_at at time zone 'UTC', ends_at at time zone 'UTC', enabled, applied
        from trax.manifest where name = 'daily'";
    assert_eq!(
        s.get(daily).await,
        "build|0 2 * * *|Europe/Berlin|reports|3|1|00:01:30|00:10:00|skip|00:05:00|2|skip|00:01:00|continue|\
         {\"days_of_week\": [\"SUN\"]}|2020-01-01 00:00:00|2090-01-01 00:00:00|t|t"
    );
    let group = "select priority, max_active_jobs, max_per_key, enabled from trax.manifest_group";
    assert_eq!(s.get(group).await, "5|4|2|t");
    let others = "select name, depends_mode, dormant, overlap, max_concurrency, enabled from trax.manifest where name <> 'daily' order by name";
    assert_eq!(
        s.get(others).await,
        "asleep|all|t|queue|1|t\nby-hand||f|queue|1|t\nonce||f|queue|1|f\nsummary|any|f|queue|1|t\nweekly||f|allow|3|t"
    );
    assert_eq!(
        s.number("select count(*) from trax.manifest_dependency")
            .await,
        3
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_input_is_stored_as_it_was_written() {
    let (_db, s) = session().await;
    apply(&s, DOCUMENT, "").await;
    let input = "select input from trax.manifest where name = 'daily'";
    assert_eq!(
        s.get(input).await,
        "{\"big\": 123456789012345678901234567890, \"kind\": \"daily\", \"exact\": 1.10}"
    );
}

#[tokio::test]
async fn the_same_document_again_changes_nothing() {
    let (_db, s) = session().await;
    apply(&s, DOCUMENT, "").await;
    let before = s.everything().await;
    for options in ["", ", prune => true"] {
        let again = apply(&s, DOCUMENT, options).await;
        assert_eq!(again.lines().count(), 7, "{again}");
        assert!(
            again.lines().all(|line| line.starts_with("unchanged|")),
            "{again}"
        );
    }
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn a_dry_run_says_the_same_and_changes_nothing_at_all() {
    let (_db, s) = session().await;
    let before = s.everything().await;
    let said = apply(&s, DOCUMENT, ", dry_run => true").await;
    assert_eq!(s.everything().await, before);
    assert_eq!(apply(&s, DOCUMENT, "").await, said);
    let changed = DOCUMENT
        .replace("0 2 * * *", "0 3 * * *")
        .replace("\"name\": \"by-hand\"", "\"name\": \"renamed\"");
    let before = s.everything().await;
    let said = apply(&s, &changed, ", prune => true, dry_run => true").await;
    assert!(
        said.contains("changed|manifest|daily") && said.contains("removed|manifest|by-hand"),
        "{said}"
    );
    assert_eq!(s.everything().await, before);
    let locks =
        "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()";
    assert_eq!(s.number(locks).await, 0);
    assert_eq!(apply(&s, &changed, ", prune => true").await, said);
}

#[tokio::test]
async fn a_dry_run_in_a_transaction_leaves_the_rest_of_it_alone() {
    let (_db, s) = session().await;
    s.get("begin; select trax.schedule('before', 'a')").await;
    apply(&s, DOCUMENT, ", dry_run => true").await;
    s.get("select trax.schedule('after', 'a'); commit").await;
    assert_eq!(
        s.get("select string_agg(name, ' ' order by name) from trax.manifest")
            .await,
        "after before"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_change_is_said_with_what_it_was_and_is() {
    let (_db, s) = session().await;
    apply(&s, DOCUMENT, "").await;
    let next = s.get("select next_run_at from trax.manifest_state join trax.manifest using (manifest_id) where name = 'weekly'").await;
    let changed = DOCUMENT
        .replace("\"priority\": 3", "\"priority\": 4")
        .replace("\"priority\": 5", "\"priority\": 6");
    let sql = format!(
        "select action, name, detail from trax.apply($d${changed}$d$) where action <> 'unchanged'"
    );
    assert_eq!(
        s.get(&sql).await,
        "changed|reports|priority: 5 -> 6\nchanged|daily|priority: 3 -> 4"
    );
    let edges = DOCUMENT.replace("[\"daily\", \"weekly\"]", "[\"weekly\"]");
    let seen = apply(&s, &edges, "").await;
    assert!(seen.contains("\nchanged|manifest|summary"), "{seen}");
    let after = s.get("select next_run_at from trax.manifest_state join trax.manifest using (manifest_id) where name = 'weekly'").await;
    assert_eq!(after, next, "what did not change keeps its next run");
}

#[tokio::test]
async fn what_a_document_leaves_out_has_its_default() {
    let (_db, s) = session().await;
    apply(&s, DOCUMENT, "").await;
    manifests(&s, r#"{"name": "daily", "task": "build"}"#, "").await;
    let daily = "select cron, timezone, group_name, priority, max_retries, retry_delay, timeout, misfire, misfire_threshold,
        misfire_limit, overlap, variance, on_dead_letter, exclusions, starts_at, ends_at, input from trax.manifest where name = 'daily'";
    assert_eq!(
        s.get(daily).await,
        "|UTC|default|0||||fire_once|00:01:00|10|queue||stop||||{}"
    );
    manifests(
        &s,
        r#"{"name": "weekly", "task": "build", "every": "7 days"}"#,
        "",
    )
    .await;
    assert_eq!(
        s.get("select overlap, max_concurrency from trax.manifest where name = 'weekly'")
            .await,
        "queue|1"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn only_what_an_earlier_document_created_is_pruned() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('summary-by-hand', 'a'); select trax.schedule('weekly', 'a')")
        .await;
    apply(&s, DOCUMENT, "").await;
    let seen = manifests(&s, r#"{"name": "by-hand", "task": "build"}"#, "").await;
    assert_eq!(
        seen, "unchanged|manifest|by-hand",
        "nothing is removed unasked"
    );
    let seen = manifests(
        &s,
        r#"{"name": "by-hand", "task": "build"}"#,
        ", prune => true",
    )
    .await;
    assert_eq!(
        seen,
        "unchanged|manifest|by-hand\nremoved|manifest|asleep\nremoved|manifest|daily\nremoved|manifest|once\nremoved|manifest|summary\nremoved|group|reports"
    );
    assert_eq!(
        s.get("select string_agg(name, ' ' order by name) from trax.manifest")
            .await,
        "by-hand summary-by-hand weekly"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_pruned_group_holds_nothing_back_any_more() {
    let (_db, s) = session().await;
    s.get("select trax.configure_group('mine', max_active_jobs => 1)")
        .await;
    let groups = r#"{"groups": [{"name": "off", "enabled": false}, {"name": "tight", "max_active_jobs": 1}, {"name": "mine"}],
        "manifests": [{"name": "m", "task": "m", "every": "1 h", "group_name": "off"}]}"#;
    apply(&s, groups, "").await;
    s.get("select trax.enqueue('t', group_name => 'tight') from generate_series(1, 3)")
        .await;
    assert_eq!(s.tick("queue_due").await, 0);
    s.claim_one("").await;
    assert_eq!(s.claim_ids("").await, Vec::<i64>::new());
    let rest =
        r#"{"manifests": [{"name": "m", "task": "m", "every": "1 h", "group_name": "off"}]}"#;
    let before = s.everything().await;
    let gone = "unchanged|manifest|m\nremoved|group|off\nremoved|group|tight";
    assert_eq!(
        apply(&s, rest, ", prune => true, dry_run => true").await,
        gone
    );
    assert_eq!(s.everything().await, before);
    assert_eq!(apply(&s, rest, ", prune => true").await, gone);
    assert_eq!(
        s.get("select name from trax.manifest_group").await,
        "mine",
        "what was configured by hand stays"
    );
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(s.claim_ids("max_jobs => 9").await.len(), 3);
    assert_eq!(
        apply(&s, rest, ", prune => true").await,
        "unchanged|manifest|m"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_others_depend_on_is_not_pruned() {
    let (_db, s) = session().await;
    apply(&s, DOCUMENT, "").await;
    s.get("select trax.schedule('mine', 'a', depends_on => '{daily}')")
        .await;
    let before = s.everything().await;
    let refusal = s
        .refusal("select trax.apply('{\"manifests\": []}', prune => true)")
        .await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert!(refusal.detail.contains("mine"), "{refusal}");
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn what_was_switched_off_by_hand_stays_off_unless_the_document_says_otherwise() {
    let (_db, s) = session().await;
    apply(&s, DOCUMENT, "").await;
    s.get("select trax.disable_manifest('daily'); select trax.configure_group('reports', enabled => false)")
        .await;
    apply(&s, DOCUMENT, "").await;
    apply(&s, &DOCUMENT.replace("0 2 * * *", "0 4 * * *"), "").await;
    let enabled = "select m.enabled, g.enabled from trax.manifest m, trax.manifest_group g where m.name = 'daily'";
    assert_eq!(s.get(enabled).await, "f|f");
    assert_eq!(
        s.get("select parked_on from trax.manifest_state join trax.manifest using (manifest_id) where name = 'daily'").await,
        "disabled"
    );
    let on = DOCUMENT
        .replace(
            "\"max_per_key\": 2",
            "\"max_per_key\": 2, \"enabled\": true",
        )
        .replace(
            "\"overlap\": \"skip\"",
            "\"overlap\": \"skip\", \"enabled\": true",
        );
    apply(&s, &on, "").await;
    assert_eq!(s.get(enabled).await, "t|t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_run_at_that_has_had_its_run_is_not_run_again() {
    let (_db, s) = session().await;
    let once = r#"{"name": "once", "task": "a", "run_at": "2020-01-01 00:00+00"}"#;
    manifests(&s, once, "").await;
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(manifests(&s, once, "").await, "unchanged|manifest|once");
    complete_one(&s, "").await;
    for _ in 0..2 {
        assert_eq!(manifests(&s, once, "").await, "unchanged|manifest|once");
        assert_eq!(s.tick("queue_due").await, 0);
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_edge_may_be_turned_round() {
    let (_db, s) = session().await;
    let one = r#"{"name": "a", "task": "a"}, {"name": "b", "task": "b", "depends_on": ["a"]}, {"name": "c", "task": "c", "depends_on": ["b"]}"#;
    let other = r#"{"name": "a", "task": "a", "depends_on": ["b"]}, {"name": "b", "task": "b", "depends_on": ["c"]}, {"name": "c", "task": "c"}"#;
    for list in [one, other, one] {
        manifests(&s, list, "").await;
        assert_eq!(
            s.number("select count(*) from trax.manifest_dependency")
                .await,
            2
        );
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn pruning_cancels_what_waits() {
    let (_db, s) = session().await;
    manifests(&s, r#"{"name": "m", "task": "m", "cron": "0 0 1 1 *"}"#, "").await;
    due_since(&s, "m", "now()").await;
    s.tick("queue_due").await;
    assert_eq!(waiting(&s, "m").await, 1);
    manifests(&s, "", ", prune => true").await;
    assert_eq!(s.get("select state from trax.run").await, "cancelled");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_large_document_is_applied_in_seconds() {
    let (_db, s) = session().await;
    s.get("set statement_timeout = '20 s'").await;
    let sql = "select count(*) from trax.apply(jsonb_build_object('manifests', (
        select jsonb_agg(jsonb_build_object('name', 'm' || n, 'task', 'a', 'cron', '0 0 1 1 *')) from generate_series(1, 3000) n)))
        where action = 'created'";
    assert_eq!(s.get(sql).await, "3000");
}

#[tokio::test]
async fn two_sessions_that_apply_at_once_do_not_deadlock() {
    let (db, s) = session().await;
    let forth: Vec<String> = (1..=40)
        .map(|n| format!(r#"{{"name": "m{n}", "task": "a"}}"#))
        .collect();
    let mut back = forth.clone();
    back.reverse();
    manifests(&s, &forth.join(","), "").await;
    // Both calls meet a locked manifest in the middle, each from its own end.
    s.get("begin; select from trax.manifest where name = 'm20' for update")
        .await;
    let watcher = Session::of(&db).await;
    let mut tasks = Vec::new();
    for list in [forth, back] {
        let other = Session::of(&db).await;
        let pid = other.pid();
        let document = format!("{{\"manifests\": [{}]}}", list.join(","));
        tasks.push(other.spawn(format!("select count(*) from trax.apply('{document}')")));
        watcher.sees_waiting(pid).await;
    }
    s.get("rollback").await;
    for task in tasks {
        let (_, result) = task.await.expect("the task ends");
        assert_eq!(result.expect("applying at once is no error"), "40");
    }
}
