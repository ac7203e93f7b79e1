//! A server with `RUST_BACKTRACE` in its environment.

use harness::PATIENCE;
use harness::process::Process;
use harness::session::Session;
use trax_client::testkit::{Server, Stop};

#[tokio::test]
async fn no_error_has_frames_of_ours_in_its_detail() {
    let mut server = Server::options()
        .fast()
        .setting("trax.databases", "no_database_has_this_name")
        .start()
        .expect("a server starts");
    let db = server.database("app").await.expect("a database is made");
    server.stop(Stop::Fast).expect("the server stops");
    let mut with_variable = server.command("postgres");
    with_variable.arg("-D").arg(server.data_dir());
    with_variable.env("RUST_BACKTRACE", "full");
    let running = Process::start(with_variable);
    let ready = "database system is ready to accept connections";
    running.says(ready, PATIENCE).await;
    let (s, holder) = (Session::of(&db).await, Session::of(&db).await);
    // An error of ours, and one of the server inside our code.
    let refusal = s.refusal("select trax.enqueue('')").await;
    assert_eq!(refusal.detail, "task is the empty text.", "{refusal}");
    holder.get("begin; lock table trax.work_queue").await;
    s.get("set lock_timeout = '50 ms'").await;
    let refusal = s.refusal("select trax.enqueue('t')").await;
    assert_eq!(
        (refusal.code.as_str(), refusal.detail.as_str()),
        ("55P03", "")
    );
    let log = running
        .says("canceling statement due to lock timeout", PATIENCE)
        .await;
    assert!(!log.contains("std::"), "{log}");
}
