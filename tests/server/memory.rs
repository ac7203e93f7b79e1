//! Calls with arguments that are too large for the memory: each is refused, and no session ends.

use super::Restarted;
use harness::session::Session;
use std::path::Path;

#[tokio::test]
async fn an_argument_that_is_too_large_is_refused_and_ends_no_session() {
    let restarted = Restarted::by(|server| {
        let mut limited = server.command("/bin/sh");
        let postgres = server.command("postgres");
        let postgres = Path::new(postgres.get_program()).display();
        let data = server.data_dir();
        let data = data.display();
        limited.args([
            "-c",
            &format!("ulimit -v 600000; exec '{postgres}' -D '{data}'"),
        ]);
        limited
    })
    .await;
    let db = &restarted.database;
    let bystander = Session::of(db).await;
    let s = Session::of(db).await;
    let numbers = "array_fill(1::bigint, array[20000000])";
    let names = "array_fill('x'::text, array[7000000])";
    let tokens = "array_fill(gen_random_uuid(), array[10000000])";
    let text = "repeat('x', 70000000)";
    for (call, code) in [
        (
            format!("select count(*) from trax.get_jobs({numbers})"),
            "54000",
        ),
        (
            format!("call trax.await_jobs({numbers}, '1 s', null)"),
            "54000",
        ),
        (
            format!("select * from trax.heartbeat({numbers}, '{{}}')"),
            "54000",
        ),
        (
            format!("select * from trax.heartbeat('{{}}', {tokens})"),
            "54000",
        ),
        (
            format!("select * from trax.heartbeat('{{}}', '{{}}', ahead => {numbers})"),
            "54000",
        ),
        (
            format!("select * from trax.complete_many({numbers}, {tokens})"),
            "54000",
        ),
        (
            format!("select * from trax.claim_next(tasks => {names})"),
            "54000",
        ),
        (
            format!("select * from trax.claim_next(groups => {names})"),
            "54000",
        ),
        (
            format!("select * from trax.claim_next(worker => {text})"),
            "54000",
        ),
        (format!("select trax.enqueue({text})"), "54000"),
        (
            format!("select trax.enqueue('t', group_name => {text})"),
            "54000",
        ),
        (
            format!("select trax.enqueue('t', unique_key => {text})"),
            "54000",
        ),
        (format!("select trax.enqueue_sql({text})"), "54000"),
        (
            format!("select trax.schedule('m', 't', depends_on => {names})"),
            "54000",
        ),
        (format!("select trax.schedule({text}, 't')"), "54000"),
        (format!("select * from trax.preview_cron({text})"), "54000"),
        (
            format!("select trax.report_worker({text}, '10 s')"),
            "54000",
        ),
        (
            format!("select trax.report_worker('w', '10 s', {text})"),
            "54000",
        ),
    ] {
        let refusal = s.refusal(&call).await;
        assert_eq!(refusal.code, code, "{call}: {refusal}");
    }
    // Only the beginning of an error is kept.
    let id = s.enqueue("'t', max_retries => 0").await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.fail({}, {text})", job.key()))
        .await;
    let length = format!("select octet_length(error) from trax.run where job_id = {id}");
    assert_eq!(s.number(&length).await, 65_536);
    assert_eq!(bystander.number("select 1").await, 1);
}
