//! A server with `RUST_BACKTRACE` in its environment.

use super::Restarted;
use harness::PATIENCE;
use harness::session::Session;

#[tokio::test]
async fn no_error_has_frames_of_ours_in_its_detail() {
    let restarted = Restarted::by(|server| {
        let mut command = server.command("postgres");
        command.arg("-D").arg(server.data_dir());
        command.env("RUST_BACKTRACE", "full");
        command
    })
    .await;
    let db = &restarted.database;
    let (s, holder) = (Session::of(db).await, Session::of(db).await);
    // An error of trax, and one of the server inside trax code.
    let refusal = s.refusal("select trax.enqueue('')").await;
    assert_eq!(refusal.detail, "task is the empty text.", "{refusal}");
    holder.get("begin; lock table trax.work_queue").await;
    s.get("set lock_timeout = '50 ms'").await;
    let refusal = s.refusal("select trax.enqueue('t')").await;
    assert_eq!(
        (refusal.code.as_str(), refusal.detail.as_str()),
        ("55P03", "")
    );
    let log = restarted
        .running
        .says("canceling statement due to lock timeout", PATIENCE)
        .await;
    assert!(!log.contains("std::"), "{log}");
}
