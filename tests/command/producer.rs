//! The command for a role of the level producer.

use super::bare;
use harness::process::run;
use harness::scheduler::new_name;
use harness::session::session;
use harness::shared_server;

#[tokio::test]
async fn a_producer_watches_its_job_and_a_refusal_names_what_it_asked_for() {
    let (db, s) = session().await;
    let role = new_name("watching");
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', 'producer')"
    ))
    .await;
    let server = shared_server();
    let (host, port) = (server.socket_dir().display(), server.port());
    let url = format!("host={host} port={port} user={role} dbname={}", db.name());
    let as_producer = |arguments: &[&str]| {
        let mut command = bare();
        run(command.args(["--database-url", &url]).args(arguments))
    };
    let (code, id, errors) = as_producer(&["enqueue", "t"]);
    assert_eq!(code, Some(0), "{errors}");
    s.get("select trax.complete(job_id, token) from trax.claim_next('w')")
        .await;
    let (code, output, errors) = as_producer(&["jobs", "watch", id.trim()]);
    assert_eq!(code, Some(0), "{errors}");
    assert!(output.contains("completed"), "{output}");
    for command in ["status", "check"] {
        let (code, _, errors) = as_producer(&[command]);
        assert_eq!(code, Some(1), "{errors}");
        let refusal = format!("permission denied for function {command}");
        for part in [&refusal, "trax grant ROLE reader"] {
            assert!(errors.contains(part), "{errors}");
        }
    }
}
