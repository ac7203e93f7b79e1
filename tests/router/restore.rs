//! A shard that is restored from a backup which is older than the move of a group.

use super::cluster::servers;
use super::{Cluster, has_plproxy};
use harness::session::Session;

/// Runs a program of the shard's server on a file; panics if it fails.
fn run(program: &str, file: &std::path::Path, arguments: &[&str]) {
    let mut command = servers()[0].command(program);
    command.args(arguments).arg(file);
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {said}");
}

#[tokio::test]
async fn jobs_that_have_moved_since_the_backup_of_a_restored_shard_run_once() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let (moved, stays) = (cluster.group_on(1).await, cluster.group_on(1).await);
    let stays = format!("{stays}_stays");
    let s = &cluster.router;
    s.get(&format!("select trax_router.place_group('{stays}', 1)"))
        .await;
    s.get(&format!(
        "select trax.enqueue('t', jsonb_build_object('n', n), group_name => '{moved}', unique_key => 'u' || n) from generate_series(1, 6) n"
    ))
    .await;
    s.get(&format!(
        "select trax.enqueue('t', group_name => '{stays}', unique_key => 'stays')"
    ))
    .await;
    let (database, first) = &cluster.shards[0];
    let file = servers()[0].socket_dir().join("moved.dump");
    let name = database.name();
    run("pg_dump", &file, &["-Fc", name, "--file"]);
    let call = super::move_group::call(&moved, 2);
    s.get(&call).await;

    // At its home two jobs complete, a third one runs and a fourth fails for good.
    let second = cluster.shard(2);
    let done = second.claim("max_jobs => 2").await;
    for job in &done {
        second
            .get(&format!("select trax.complete({})", job.key()))
            .await;
    }
    let running = second.claim_one("").await;
    let failed = second.claim_one("").await;
    second
        .get(&format!(
            "select trax.fail({}, 'no', permanent => true)",
            failed.key()
        ))
        .await;

    let restore = [
        "--clean",
        "--if-exists",
        "--single-transaction",
        "--dbname",
        name,
    ];
    run("pg_restore", &file, &restore);
    let refusal = first.refusal("select trax.adopt()").await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert!(
        refusal.hint.contains("trax_router.adopt_shard(1)"),
        "{refusal}"
    );
    assert_eq!(
        first.refusal("select * from trax.claim_next()").await.code,
        "55000"
    );
    let twice = "select count(*) from trax.check() where rule = 'every job is on one shard'";
    assert_eq!(s.get(twice).await, "3", "two that wait and one that runs");
    let cause = "select count(*) from trax.diagnose() where cause = 'job_on_two_shards'";
    assert_eq!(s.get(cause).await, "1");

    let adopted = s.get("select * from trax_router.adopt_shard(1)").await;
    assert_eq!(adopted, format!("{moved}|2"));
    let first = Session::of(database).await;
    let claimed = first.claim("max_jobs => 10").await;
    assert_eq!(claimed.len(), 1, "only the group whose home this is");

    s.get(&call).await;
    assert_eq!(s.get(twice).await, "0");
    assert_eq!(s.get(cause).await, "0");
    let of_group = format!("select count(*) from trax.work_queue where group_name = '{moved}'");
    assert_eq!(first.number(&of_group).await, 0);
    let mut rest = second.claim_ids("max_jobs => 10").await;
    rest.extend(done.iter().map(|job| job.id));
    rest.extend([running.id, failed.id]);
    rest.sort_unstable();
    rest.dedup();
    assert_eq!(rest.len(), 6, "each ran once: {rest:?}");
    assert_eq!(second.claim("max_jobs => 10").await.len(), 0);
    let letters = "select count(*) from trax.dead_letter where status = 'awaiting_intervention'";
    assert_eq!(second.number(letters).await, 1);
    s.get(&format!(
        "select trax.enqueue('t', group_name => '{moved}', unique_key => 'u1')"
    ))
    .await;
    second.assert_healthy().await;
    first.assert_healthy().await;
}
