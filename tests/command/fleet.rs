//! A worker of several databases, and the options that allow only one.

use super::{bare, json, trax};
use crate::router::{Cluster, has_plproxy};
use harness::process::{Process, run};
use harness::session::session;
use harness::{PATIENCE, shared_server};
use trax_client::testkit::Database;

fn url(database: &Database) -> String {
    let server = shared_server();
    format!(
        "host={} port={} user=postgres dbname={}",
        server.socket_dir().display(),
        server.port(),
        database.name()
    )
}

const COMPLETED: &str = "select count(*) from trax.run where state = 'completed'";

#[tokio::test]
async fn one_worker_empties_several_databases() {
    let (first, a) = session().await;
    let (second, b) = session().await;
    // Whether the input is the manifest's own is checked in the job's database.
    a.get("select trax.enqueue('t') from generate_series(1, 3)")
        .await;
    b.get("select trax.schedule('m', 't', '{\"n\": 1}'); select trax.trigger('m')")
        .await;
    let also = url(&second);
    let program = "test \"$TRAX_TASK\" = t && printf '\"%s\"' \"$TRAX_INPUT_FROM\"";
    let mut worker = trax(
        &first,
        &[
            "--database-url",
            &also,
            "worker",
            "--all-tasks",
            "--exec",
            program,
            "--until-empty",
            "--json",
        ],
    );
    let (code, output, errors) = run(&mut worker);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(json(&output)[0]["completed"], 4, "{output}");
    assert_eq!(a.get(COMPLETED).await, "3");
    assert_eq!(b.get("select output from trax.run").await, "\"manifest\"");

    let mut status = trax(&first, &["--database-url", &also, "status"]);
    let (code, _, errors) = run(&mut status);
    assert_eq!(code, Some(64), "{errors}");
    assert!(
        errors.contains("only trax worker takes --database-url more than once")
            && errors.contains("the address of a router"),
        "{errors}"
    );
}

#[tokio::test]
async fn a_router_stands_for_its_shards() {
    let router = [
        "worker",
        "--all-tasks",
        "--exec",
        "true",
        "--until-empty",
        "--router",
    ];
    if has_plproxy() {
        let cluster = Cluster::of(2).await;
        let s = &cluster.router;
        s.get("select count(trax.enqueue('t')) from generate_series(1, 40)")
            .await;
        let mut worker = bare();
        worker.args(router).arg(url(&cluster.database));
        let (code, _, errors) = run(&mut worker);
        assert_eq!(code, Some(0), "{errors}");
        assert!(errors.contains("40 completed"), "{errors}");
        let alone = ["worker", "--all-tasks", "--exec", "true"];
        let (code, _, errors) = run(&mut trax(&cluster.database, &alone));
        assert!(
            code == Some(64) && errors.contains("type --router URL"),
            "{errors}"
        );
    }
    let (database, _) = session().await;
    let mut worker = bare();
    worker.args(router).arg(url(&database));
    let (code, _, errors) = run(&mut worker);
    assert_eq!(code, Some(64), "{errors}");
    assert!(errors.contains("this database is no router"), "{errors}");
    let mut both = trax(&database, &router);
    let (code, _, errors) = run(both.arg(url(&database)));
    assert_eq!(code, Some(64), "{errors}");
    assert!(
        errors.contains("takes the place of --database-url"),
        "{errors}"
    );
}

#[tokio::test]
async fn a_router_that_is_away_is_waited_for_by_whom_somebody_watches() {
    let nobody = trax_client::testkit::free_port().expect("a port is free");
    let url = format!("host=127.0.0.1 port={nobody} user=app dbname=router");
    let router = ["worker", "--all-tasks", "--exec", "true", "--router", &url];
    let (code, _, errors) = run(bare().args(router));
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("cannot reach"), "{errors}");
    let mut watched = bare();
    watched.args(router).args(["--health", "127.0.0.1:0"]);
    let worker = Process::start(watched);
    worker.says("router: next try in", PATIENCE).await;
}

#[tokio::test]
async fn at_a_router_what_is_shown_says_of_which_shard_it_is() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let at_router = |arguments: &[&str]| {
        let (code, output, errors) = run(&mut trax(&cluster.database, arguments));
        (code, output + &errors)
    };
    let (code, job) = at_router(&["enqueue", "t", "--group", "g", "--quiet"]);
    assert_eq!(code, Some(0), "{job}");
    let (_, status) = at_router(&["status"]);
    for shard in [1, 2] {
        let version = format!("shard {shard}: version");
        assert!(status.contains(&version), "{status}");
    }
    let (_, status) = at_router(&["status", "--json"]);
    assert_eq!(json(&status)[0]["shard"], 1, "{status}");
    let (code, healthy) = at_router(&["check"]);
    assert_eq!(
        (code, healthy.as_str()),
        (Some(0), "healthy: no invariant is violated\n")
    );
    let (code, cancelled) = at_router(&["jobs", "cancel", job.trim()]);
    assert_eq!(code, Some(0), "{cancelled}");
    let (_, numbers) = at_router(&["metrics"]);
    assert!(
        numbers.contains("trax_shard_up{shard=\"2\"} 1"),
        "{numbers}"
    );
    let group = cluster.group_on(1).await;
    at_router(&["enqueue", "t", "--group", &group]);
    let (code, moved) = at_router(&["group", "move", &group, "--to", "2"]);
    assert_eq!(code, Some(0), "{moved}");
    let said = "is on shard 2; jobs that were waiting and went with it: 1";
    assert!(moved.contains(said), "{moved}");
    let (code, refused) = at_router(&["group", "move", &group, "--to", "7"]);
    assert_eq!(code, Some(1), "{refused}");
    assert!(refused.contains("the router has no shard 7"), "{refused}");
    let close = "select trax_router.close_shard(2, 'new disks')";
    cluster.router.get(close).await;
    let (code, found) = at_router(&["doctor"]);
    assert_eq!(code, Some(2), "{found}");
    assert!(found.contains("Shard 2: shard 2 is closed"), "{found}");
}

#[tokio::test]
async fn a_group_is_moved_at_a_router_only() {
    let (database, _) = session().await;
    let (code, _, errors) = run(&mut trax(&database, &["group", "move", "g", "--to", "2"]));
    assert_eq!(code, Some(1), "{errors}");
    assert!(errors.contains("this database is no router"), "{errors}");
}
