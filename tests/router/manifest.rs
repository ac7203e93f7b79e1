//! Manifests through the router.

use super::{Cluster, has_plproxy};
use harness::session::Session;

#[tokio::test]
async fn a_manifest_lives_with_its_group_and_is_found_by_its_name() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let group = cluster.group_on(3).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.schedule('nightly', 'report', '{{\"a\": 1}}', cron => '0 2 * * *', timezone => 'Europe/Berlin',
            group_name => '{group}', priority => 3, misfire => 'skip')"
    ))
    .await;
    let stored = "select name, task, input, cron, timezone, priority, misfire from trax.manifest";
    assert_eq!(
        cluster.shard(3).get(stored).await,
        "nightly|report|{\"a\": 1}|0 2 * * *|Europe/Berlin|3|skip"
    );
    // Whether or not the router remembers the manifest's shard.
    for forget in ["select 1", "delete from trax_router.manifest"] {
        s.get(forget).await;
        let job = s
            .number("select trax.trigger('nightly', '{\"b\": 2}', '1 h')")
            .await;
        assert_eq!(job >> 43, 3);
        assert_eq!(s.get("select trax.cancel_manifest('nightly')").await, "1");
    }
    s.get("update trax_router.manifest set shard = 1").await;
    s.get("select trax.disable_manifest('nightly')").await;
    assert_eq!(s.get("select shard from trax_router.manifest").await, "3");
    assert_eq!(
        cluster
            .shard(3)
            .get("select enabled from trax.manifest")
            .await,
        "f"
    );
    let reason = "select reason from trax.explain_manifest('nightly')";
    assert!(s.get(reason).await.contains("disabled"));
    s.get("select trax.enable_manifest('nightly')").await;
    let next = "select local_time from trax.preview('nightly', '2026-01-01', 2)";
    assert_eq!(
        s.get(next).await,
        "2026-01-01 02:00:00 +01:00\n2026-01-02 02:00:00 +01:00"
    );
    // A change without a group stays on the manifest's shard.
    s.get("delete from trax_router.manifest; select trax.schedule('nightly', 'report', priority => 4)")
        .await;
    assert_eq!(
        cluster
            .shard(3)
            .get("select priority from trax.manifest")
            .await,
        "4"
    );
    s.get("select trax.unschedule('nightly')").await;
    let refusal = s.refusal("select trax.trigger('nightly')").await;
    assert_eq!(refusal.code, "42704", "{refusal}");
    assert_eq!(refusal.message, "manifest \"nightly\" does not exist");
    assert_eq!(
        s.get("select count(*) from trax_router.manifest").await,
        "0"
    );
}

#[tokio::test]
async fn dependents_go_to_their_parents_and_a_dependency_across_shards_is_refused() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let (here, there) = (cluster.group_on(1).await, cluster.group_on(2).await);
    let s = &cluster.router;
    s.get(&format!(
        "select trax.schedule('load', 't', group_name => '{here}')"
    ))
    .await;
    for n in 0..6 {
        s.get(&format!(
            "select trax.schedule('mail{n}', 't', depends_on => '{{load}}')"
        ))
        .await;
    }
    let on_first = "select count(*) from trax.manifest where name like 'mail%'";
    assert_eq!(
        cluster.shard(1).get(on_first).await,
        "6",
        "in the default group, where the parent is"
    );
    let across = format!(
        "select trax.schedule('far', 't', depends_on => '{{load}}', group_name => '{there}')"
    );
    let refusal = s.refusal(&across).await;
    assert_eq!(refusal.code, "0A000");
    assert_eq!(
        refusal.message,
        "manifest \"far\" cannot depend on manifest \"load\", which is on another shard"
    );
    assert_eq!(
        refusal.detail,
        "\"far\" is on shard 2, \"load\" on shard 1."
    );
    assert!(refusal.hint.contains("one group"), "{refusal}");
    let refusal = s
        .refusal(&format!(
            "select trax.schedule('load', 't', group_name => '{there}')"
        ))
        .await;
    assert_eq!(refusal.code, "0A000");
    assert!(
        refusal.hint.contains("trax.unschedule('load')"),
        "{refusal}"
    );
    let unknown = s
        .refusal("select trax.schedule('x', 't', depends_on => '{nobody}')")
        .await;
    assert_eq!(unknown.message, "manifest \"nobody\" does not exist");
}

#[tokio::test]
async fn a_document_is_divided_and_what_is_gone_from_it_is_removed_everywhere() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let (here, there) = (cluster.group_on(1).await, cluster.group_on(2).await);
    let s = &cluster.router;
    // A child before its parent, and one in a spread group; a rate, which each shard has.
    let document = format!(
        "'{{\"rates\": [{{\"name\": \"api\", \"allowed\": 5, \"period\": 1}}],
            \"groups\": [{{\"name\": \"{here}\", \"priority\": 5, \"rate\": \"api\"}}, {{\"name\": \"default\", \"max_active_jobs\": 9}}],
            \"manifests\": [
                {{\"name\": \"child\", \"task\": \"t\", \"depends_on\": [\"parent\"]}},
                {{\"name\": \"parent\", \"task\": \"t\", \"group_name\": \"{there}\", \"every\": \"1 h\"}},
                {{\"name\": \"other\", \"task\": \"t\", \"group_name\": \"{here}\"}}]}}'"
    );
    let done = "select action, kind, name, shard from trax.apply(DOC, source => 'repo', prune => true, dry_run => DRY) order by 4, 2, 3";
    let dry = done.replace("DOC", &document).replace("DRY", "true");
    let real = done.replace("DOC", &document).replace("DRY", "false");
    let expected = format!(
        "created|group|default|1\ncreated|group|{here}|1\ncreated|manifest|other|1\ncreated|rate|api|1\n\
         created|group|default|2\ncreated|manifest|child|2\ncreated|manifest|parent|2\ncreated|rate|api|2"
    );
    assert_eq!(s.get(&dry).await, expected);
    let none = "select count(*) from trax.manifest";
    assert_eq!(cluster.shard(2).get(none).await, "0");
    assert_eq!(s.get(&real).await, expected);
    assert!(!s.get(&real).await.contains("created"));
    let fewer = done
        .replace("DOC", "'{\"manifests\": []}'")
        .replace("DRY", "false");
    let removed = s.get(&fewer).await;
    assert_eq!(removed.matches("removed|manifest").count(), 3, "{removed}");
    assert_eq!(removed.matches("removed|rate").count(), 2, "{removed}");
    assert_eq!(cluster.shard(2).get(none).await, "0");

    // The second shard refuses its part after the first has done its own, and the error says so.
    let broken = format!(
        "select * from trax.apply('{{\"manifests\": [
            {{\"name\": \"good\", \"task\": \"t\", \"group_name\": \"{here}\"}},
            {{\"name\": \"bad\", \"task\": \"t\", \"group_name\": \"{there}\", \"cron\": \"0 99 * * *\"}}]}}')"
    );
    let refusal = s.refusal(&broken).await;
    assert!(
        refusal
            .detail
            .ends_with("Done on the shards 1; their changes stay."),
        "{refusal}"
    );
    assert_eq!(cluster.shard(1).get(none).await, "1");
    for wrong in ["'[]'", "'{\"grops\": []}'", "'{\"manifests\": 7}'", "null"] {
        let call = format!("select * from trax.apply({wrong})");
        let direct = cluster.shard(1).refusal(&call).await;
        let routed = s.refusal(&call).await;
        assert_eq!((routed.code, routed.message), (direct.code, direct.message));
    }
}

#[tokio::test]
async fn one_name_given_twice_at_once_is_one_manifest() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let (here, there) = (cluster.group_on(1).await, cluster.group_on(2).await);
    let first = &cluster.router;
    let second = Session::of(&cluster.database).await;
    first
        .get(&format!(
            "begin; select trax.schedule('twin', 't', group_name => '{here}')"
        ))
        .await;
    let pid = second.pid();
    let late = second.spawn(format!(
        "select trax.schedule('twin', 't', group_name => '{there}')"
    ));
    first.sees_waiting(pid).await;
    // A shard's committed work stays.
    first.get("rollback").await;
    let (_second, late) = late.await.expect("it does not panic");
    assert_eq!(late.expect_err("it is on the other shard").code, "0A000");
}

#[tokio::test]
async fn groups_are_configured_where_they_are() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(2).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.configure_group('{group}', max_active_jobs => 3, enabled => false)"
    ))
    .await;
    s.get("select trax.configure_group('default', max_per_key => 2)")
        .await;
    let settings =
        "select name, max_active_jobs, enabled, max_per_key from trax.manifest_group order by name";
    assert_eq!(cluster.shard(1).get(settings).await, "default||t|2");
    let second = cluster.shard(2).get(settings).await;
    assert_eq!(second, format!("default||t|2\n{group}|3|f|1"));
    s.get(&format!(
        "select trax.schedule('m' || n, 't', group_name => '{group}') from generate_series(1, 3) n;
        select trax.schedule('d' || n, 't') from generate_series(1, 8) n"
    ))
    .await;
    assert_eq!(
        s.get(&format!("select trax.trigger_group('{group}')"))
            .await,
        "3"
    );
    assert_eq!(s.get("select trax.trigger_group('default')").await, "8");
    assert_eq!(
        s.get(&format!("select trax.cancel_group('{group}')")).await,
        "3"
    );
    assert_eq!(s.get("select trax.cancel_group('default')").await, "8");
}

#[tokio::test]
async fn a_dormant_dependent_is_activated_where_it_is() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(2).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.schedule('parent', 't', group_name => '{group}');
        select trax.schedule('child', 'c', group_name => '{group}', depends_on => '{{parent}}', dormant => true)"
    ))
    .await;
    let activate = "select trax.activate('child', '7')";
    let direct = cluster.shard(2).refusal(activate).await;
    assert_eq!(s.refusal(activate).await, direct);
    s.get("select trax.trigger('parent')").await;
    cluster.shard(2).claim_one("'w'").await;
    let child = s.number(activate).await;
    assert_eq!(child >> 43, 2);
}

#[tokio::test]
async fn a_manifest_is_placed_while_somebody_waits_to_divide_the_places() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let (holder, first, second) = (
        Session::of(&cluster.database).await,
        Session::of(&cluster.database).await,
        Session::of(&cluster.database).await,
    );
    // The first of the two calls is halfway.
    holder
        .get("begin; select trax_router.hold_manifests()")
        .await;
    let pid = first.pid();
    let scheduling = first.spawn("select trax.schedule('m', 't', group_name => 'g')");
    cluster.router.sees_waiting(pid).await;
    let pid = second.pid();
    let dividing = second.spawn("select count(*) from trax_router.spread_places()");
    cluster.router.sees_waiting(pid).await;
    holder.get("rollback").await;
    let (_first, scheduled) = scheduling.await.expect("it does not panic");
    assert!(scheduled.is_ok(), "{scheduled:?}");
    let (_second, divided) = dividing.await.expect("it does not panic");
    assert_eq!(divided, Ok("2".to_owned()));
}
