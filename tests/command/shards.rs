//! Commands and lists at a router.

use serde_json::Value;

use super::{json, trax};
use crate::router::{Cluster, has_plproxy};
use harness::process::run;

struct Operator {
    cluster: Cluster,
}

impl Operator {
    /// Runs the command at the router; returns its exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        run(&mut trax(&self.cluster.database, arguments))
    }

    /// Runs a command that succeeds; returns its standard output.
    fn done(&self, arguments: &[&str]) -> String {
        let (code, output, errors) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {output}{errors}");
        output
    }

    fn list(&self, arguments: &[&str]) -> Vec<Value> {
        let json_list = [arguments, &["--json"]].concat();
        let listed = json(&self.done(&json_list));
        listed.as_array().expect("an array").clone()
    }
}

/// Returns a member of each object.
fn all<'a>(rows: &'a [Value], member: &str) -> Vec<&'a Value> {
    rows.iter().map(|row| &row[member]).collect()
}

/// A cluster of two shards with a group on each that has a job, a dead letter and a manifest.
async fn operator() -> (Operator, [String; 2]) {
    let cluster = Cluster::of(2).await;
    let groups = [cluster.group_on(1).await, cluster.group_on(2).await];
    for (group, shard) in groups.iter().zip([1, 2]) {
        let sql = format!(
            "select trax.enqueue('dies', group_name => '{group}', max_retries => 0);
            select trax.schedule('m-{shard}', 't', group_name => '{group}')"
        );
        cluster.router.get(&sql).await;
        let dies =
            "select count(trax.fail(c.job_id, c.token, 'broken')) from trax.claim_next('w') c";
        cluster.shard(shard).get(dies).await;
        let sql = format!("select trax.enqueue('waits', group_name => '{group}')");
        cluster.router.get(&sql).await;
    }
    (Operator { cluster }, groups)
}

#[tokio::test]
async fn lists_at_a_router_have_the_rows_of_all_shards_in_one_order() {
    if !has_plproxy() {
        return;
    }
    let (operator, groups) = operator().await;
    let jobs = operator.list(&["jobs", "list"]);
    assert_eq!(all(&jobs, "shard"), [2, 2, 1, 1], "the newest first");
    assert_eq!(all(&jobs, "task"), ["waits", "dies", "waits", "dies"]);
    let newest = operator.list(&["jobs", "list", "--limit", "1"]);
    assert_eq!(all(&newest, "shard"), [2]);
    let failed = operator.list(&["jobs", "list", "--state", "failed", "--group", &groups[0]]);
    assert_eq!(all(&failed, "shard"), [1]);
    let table = operator.done(&["jobs", "list"]);
    assert!(table.starts_with("SHARD"), "{table}");

    let letters = operator.list(&["dead", "list"]);
    assert_eq!(all(&letters, "shard"), [2, 1]);
    let manifests = operator.list(&["manifest", "list"]);
    assert_eq!(all(&manifests, "name"), ["m-1", "m-2"]);
    assert_eq!(all(&manifests, "shard"), [1, 2]);
    let mut expected: Vec<_> = groups.iter().zip([1, 2]).collect();
    expected.sort();
    let listed = operator.list(&["group", "list"]);
    let listed: Vec<(&str, i64)> = listed
        .iter()
        .map(|row| {
            (
                row["name"].as_str().expect("a name"),
                row["shard"].as_i64().expect("a shard"),
            )
        })
        .filter(|(name, _)| groups.iter().any(|group| group == name))
        .collect();
    let expected: Vec<(&str, i64)> = expected.iter().map(|(g, s)| (g.as_str(), *s)).collect();
    assert_eq!(listed, expected);

    operator
        .cluster
        .router
        .get("select trax.acquire_token('lock', 'me', 1, '1 min')")
        .await;
    let holders = operator.list(&["tokens"]);
    assert_eq!(all(&holders, "holder"), ["me"]);
    let claim = "select count(*) from trax.claim_next('one')";
    operator.cluster.shard(2).get(claim).await;
    let workers = operator.list(&["workers"]);
    let working = |row: &Value| row["name"] == "one" && row["shard"] == 2;
    assert!(workers.iter().any(working), "{workers:?}");
    let acts = operator.list(&["audit", "--action", "schedule"]);
    assert_eq!(all(&acts, "name"), ["m-2", "m-1"], "the newest first");
}

#[tokio::test]
async fn one_row_is_found_and_changed_on_its_shard() {
    if !has_plproxy() {
        return;
    }
    let (operator, groups) = operator().await;
    let waiting = operator.list(&["jobs", "list", "--state", "queued"]);
    let ids: Vec<String> = waiting
        .iter()
        .map(|job| job["job_id"].to_string())
        .collect();
    let shown = operator.list(&["jobs", "show", &ids[0], &ids[1]]);
    assert_eq!(all(&shown, "job_id"), all(&waiting, "job_id"));
    let (code, _, errors) = operator.run(&["jobs", "watch", &ids[0], "--timeout", "50ms"]);
    assert_eq!(code, Some(3), "{errors}");
    let (code, _, errors) = operator.run(&["jobs", "show", "123456"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("123456 does not exist"), "{errors}");

    let failed = operator.list(&["jobs", "list", "--state", "failed"]);
    let dead = failed[0]["job_id"].to_string();
    operator.done(&["jobs", "retry", &dead]);
    let (code, _, errors) = operator.run(&["jobs", "retry", &dead]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("already been requeued"), "{errors}");
    operator.done(&["dead", "ack", "--all", "--yes"]);
    assert!(operator.list(&["dead", "list"]).is_empty());
    let all_of_them = ["dead", "list", "--status", "any"];
    let statuses = operator.list(&all_of_them);
    assert_eq!(all(&statuses, "status"), ["requeued", "acknowledged"]);

    assert!(operator.done(&["manifest", "show", "m-2"]).contains("m-2"));
    let document = operator.done(&["manifest", "export"]);
    let (first, second) = (document.find("\"m-1\""), document.find("\"m-2\""));
    assert!(first.is_some() && first < second, "{document}");
    operator.done(&["group", "pause", &groups[1]]);
    let (code, _, errors) = operator.run(&["group", "pause", "nobody"]);
    assert_eq!(code, Some(1));
    assert!(
        errors.contains("group \"nobody\" does not exist"),
        "{errors}"
    );

    let said = operator.done(&["jobs", "cancel", "--task", "waits", "--yes"]);
    assert!(said.contains("2 jobs of task"), "{said}");
}

#[tokio::test]
async fn an_ended_job_is_retried_where_its_group_is_now() {
    if !has_plproxy() {
        return;
    }
    let (operator, groups) = operator().await;
    let options = format!(
        "select trax.enqueue('dies too', '{{\"n\": 12345678901234567890}}', group_name => '{}', priority => 7,
            max_retries => 0, timeout => '1 month 1 h', retry_delay => '90 s', unique_key => 'once',
            concurrency_key => 'k')",
        groups[1]
    );
    let router = &operator.cluster.router;
    let dead = router.get(&options).await;
    let dies = "select count(trax.fail(c.job_id, c.token, 'broken'))
        from trax.claim_next('w', tasks => '{dies too}') c";
    operator.cluster.shard(2).get(dies).await;
    operator.done(&["dead", "ack", "--all", "--yes"]);
    let triggered = router.get("select trax.trigger('m-2', '{\"n\": 1}')").await;
    let waiting = operator.list(&["jobs", "list", "--task", "waits"]);
    let plain = waiting[0]["job_id"].to_string();
    operator.done(&["jobs", "cancel", &triggered, &plain]);
    operator.done(&["group", "move", &groups[1], "--to", "1"]);

    let again = operator.list(&["jobs", "retry", &dead, &triggered, &plain]);
    assert_eq!(all(&again, "via"), ["enqueue", "manifest", "enqueue"]);
    let jobs: Vec<String> = again
        .iter()
        .map(|job| job["new_job_id"].to_string())
        .collect();
    let here = operator.cluster.shard(1);
    let sql = format!(
        "select concat_ws(' ', task, input, priority, max_retries, timeout, retry_delay, unique_key, concurrency_key)
        from trax.work_queue where job_id = {} and group_name = '{}'",
        jobs[0], groups[1]
    );
    assert_eq!(
        here.get(&sql).await,
        "dies too {\"n\": 12345678901234567890} 7 0 1 mon 01:00:00 00:01:30 once k"
    );
    let sql = format!(
        "select concat_ws(' ', manifest, input) from trax.work_queue where job_id = {}",
        jobs[1]
    );
    assert_eq!(here.get(&sql).await, "m-2 {\"n\": 1}");
    // A new manifest with the same name is a different one.
    let anew = format!(
        "select trax.unschedule('m-2'); select trax.schedule('m-2', 't', group_name => '{}')",
        groups[1]
    );
    router.get(&anew).await;
    let again = operator.list(&["jobs", "retry", &triggered]);
    assert_eq!(all(&again, "via"), ["enqueue"]);
}

#[tokio::test]
async fn the_outboxes_of_all_shards_are_shown() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    for shard in [1, 2] {
        let session = cluster.shard(shard);
        session.get(include_str!("../../sql/relay/relay.sql")).await;
        let source = format!(
            "insert into trax_relay.source (source, name, waiting, refused)
            values (gen_random_uuid(), 'shop', {shard}, {shard})"
        );
        session.get(&source).await;
    }
    let at_router = |arguments: &[&str]| run(&mut trax(&cluster.database, arguments));
    let (code, numbers, errors) = at_router(&["metrics"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    for shard in [1, 2] {
        let of_shard = |line: &str| {
            line.starts_with("trax_outbox_waiting{database=\"shop\"")
                && line.ends_with(&format!(",shard=\"{shard}\"}} {shard}"))
        };
        assert!(numbers.lines().any(of_shard), "{numbers}");
    }
    let (_, found, _) = at_router(&["doctor", "--json"]);
    for shard in [1, 2] {
        let detail = format!("Shard {shard}: This database refused {shard} rows");
        assert!(found.contains(&detail), "{found}");
    }
    let close = "select trax_router.close_shard(2, 'new disks')";
    cluster.router.get(close).await;
    let (code, numbers, errors) = at_router(&["metrics"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        numbers.matches("trax_outbox_waiting{").count(),
        1,
        "{numbers}"
    );
    assert!(errors.contains("shard 2: closed: new disks"), "{errors}");
    let (_, found, _) = at_router(&["doctor", "--quiet"]);
    assert!(found.contains("outboxes_unseen"), "{found}");
}

#[tokio::test]
async fn top_adds_up_what_the_shards_count() {
    if !has_plproxy() {
        return;
    }
    let (operator, groups) = operator().await;
    let spread = "select trax_router.spread_group('everywhere');
        select trax.configure_group('everywhere', max_active_jobs => 3);
        select count(trax.enqueue('t', group_name => 'everywhere', concurrency_key => n::text))
        from generate_series(1, 20) n";
    operator.cluster.router.get(spread).await;
    for shard in [1, 2] {
        let claim = "select count(*) from trax.claim_next('one', tasks => '{waits}')";
        operator.cluster.shard(shard).get(claim).await;
    }
    let looked = operator.list(&["top", "--interval", "0.5"]);
    let top = &looked[0];
    assert_eq!(top["dead_letters"], 2.0);
    assert_eq!(top["away"], Value::Null);
    let of_group = |name: &str| {
        let groups = top["groups"].as_array().expect("an array").iter();
        let mut found = groups.filter(|group| group["name"] == name);
        (found.next().cloned().unwrap_or_default(), found.count())
    };
    let (everywhere, others) = of_group("everywhere");
    assert_eq!(
        (&everywhere["ready"], &everywhere["limit"], others),
        (&Value::from(20.0), &Value::from(6.0), 0)
    );
    assert_eq!(of_group(&groups[0]).0["running"], 1.0);
    let running = top["running"].as_array().expect("an array");
    let mut shards: Vec<i64> = running
        .iter()
        .filter_map(|job| job["shard"].as_i64())
        .collect();
    shards.sort_unstable();
    assert_eq!(shards, [1, 2]);
    assert_eq!(top["dead"].as_array().map(Vec::len), Some(2));

    let close = "select trax_router.close_shard(2, 'new disks')";
    operator.cluster.router.get(close).await;
    let screen = operator.done(&["top", "--once", "--interval", "0.5"]);
    assert!(screen.contains("shard 2: closed: new disks"), "{screen}");
    assert!(!screen.contains("2 dead letters"), "{screen}");
}

#[tokio::test]
async fn a_list_without_a_shard_that_is_away_says_so() {
    if !has_plproxy() {
        return;
    }
    let (operator, _) = operator().await;
    let ids = operator.list(&["jobs", "list", "--state", "queued"]);
    let close = "select trax_router.close_shard(2, 'new disks')";
    operator.cluster.router.get(close).await;
    let (code, list, errors) = operator.run(&["jobs", "list", "--json"]);
    assert_eq!(code, Some(1), "{errors}");
    let list = json(&list);
    assert_eq!(all(list.as_array().expect("an array"), "shard"), [1, 1]);
    assert!(errors.contains("shard 2: closed: new disks"), "{errors}");
    // The job may exist on the closed shard.
    let away = ids[0]["job_id"].to_string();
    let (code, _, errors) = operator.run(&["jobs", "show", &away]);
    assert_eq!(code, Some(1));
    let as_far = format!("job {away} does not exist on the shards that answer");
    assert!(errors.contains(&as_far), "{errors}");
    let here = ids[1]["job_id"].to_string();
    operator.done(&["jobs", "show", &here]);
    operator
        .cluster
        .router
        .get("select trax_router.open_shard(2)")
        .await;
    assert_eq!(operator.list(&["jobs", "list"]).len(), 4);
}

#[tokio::test]
async fn what_is_only_tried_at_a_router_stays_nowhere() {
    if !has_plproxy() {
        return;
    }
    let (operator, _) = operator().await;
    let file = std::env::temp_dir().join(format!("{}.cron", operator.cluster.database.name()));
    std::fs::write(&file, "*/5 * * * * /bin/true\n0 4 * * * /bin/echo x\n").expect("it is written");
    let path = file.to_str().expect("it is text");
    let said = operator.done(&["import", "crontab", path]);
    assert!(said.contains("bin-true"), "{said}");
    let names = operator.list(&["manifest", "list"]);
    assert_eq!(all(&names, "name"), ["m-1", "m-2"]);
    operator.done(&["import", "crontab", path, "--apply", "--yes"]);
    assert_eq!(operator.list(&["manifest", "list"]).len(), 4);
    std::fs::remove_file(&file).ok();

    let (code, _, errors) = operator.run(&["enqueue", "bulk", "--file", "/dev/null"]);
    assert_eq!(code, Some(64), "{errors}");
    assert!(errors.contains("--stream"), "{errors}");
}

#[tokio::test]
async fn a_job_whose_dead_letter_has_moved_is_retried_through_it() {
    if !has_plproxy() {
        return;
    }
    let (operator, groups) = operator().await;
    let failed = operator.list(&["jobs", "list", "--state", "failed"]);
    let in_first = |job: &&Value| job["group_name"] == groups[0].as_str();
    let id = &failed.iter().find(in_first).expect("it has failed")["job_id"];
    let job = id.to_string();
    let letters = operator.list(&["dead", "list"]);
    let of_job = |letter: &&Value| letter["job_id"] == *id;
    let letter = letters.iter().find(of_job).expect("it has one")["id"].to_string();
    let (code, _, errors) = operator.run(&["group", "move", &groups[0], "--to", "2"]);
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let (code, _, errors) = operator.run(&["group", "move", "no such", "--to", "2"]);
    assert_eq!(code, Some(1), "{errors}");
    for part in ["\"no such\" does not exist", "place_group('no such', 2)"] {
        assert!(errors.contains(part), "{errors}");
    }
    let placed = "select count(*) from trax_router.group_placement where group_name = 'no such'";
    assert_eq!(operator.cluster.router.get(placed).await, "0");
    let (code, _, errors) = operator.run(&["group", "move", "default", "--to", "2"]);
    assert_eq!(code, Some(1), "{errors}");
    let gather = "trax group move default --to 2 --gather";
    assert!(errors.contains(gather), "{errors}");
    let shown = operator.list(&["dead", "show", &letter]);
    assert_eq!(shown[0]["status"], "awaiting_intervention");
    let again = operator.list(&["jobs", "retry", &job]);
    assert_eq!(again[0]["via"], "dead_letter");
    let shown = operator.list(&["dead", "show", &letter]);
    assert_eq!(shown[0]["status"], "requeued");
    let (code, _, errors) = operator.run(&["jobs", "retry", &job]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("already been requeued"), "{errors}");
}

#[tokio::test]
async fn a_refusal_of_a_shard_that_is_away_says_what_the_others_did() {
    if !has_plproxy() {
        return;
    }
    let (operator, _) = operator().await;
    let away =
        "update trax_router.shard set address = 'host=127.0.0.1 port=1 dbname=x' where number = 2";
    operator.cluster.router.get(away).await;
    let (code, _, errors) = operator.run(&["pause", "--reason", "disks"]);
    assert_eq!(code, Some(1));
    assert!(errors.contains("Done on the shards 1"), "{errors}");
    assert!(errors.contains("close_shard(2"), "{errors}");
}
