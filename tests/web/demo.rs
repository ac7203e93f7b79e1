//! The demo, with its pages at the end.

use super::client::Web;
use harness::PATIENCE;
use harness::process::{Process, send_signal, trax_binary};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

#[tokio::test]
async fn the_demo_ends_in_a_browser() {
    let mut command = Command::new(trax_binary());
    command.env_remove("DATABASE_URL").stdin(Stdio::null());
    command.args(["demo", "--web", "--jobs", "100"]);
    let mut demo = Process::start(command);
    let said = demo.says(" in a browser", 3 * PATIENCE).await;
    let port = said
        .split("http://127.0.0.1:")
        .nth(1)
        .and_then(|rest| rest.split('/').next()?.parse().ok());
    // The server accepts connections without a password, so only its own user may reach it.
    let word = |name: &str| {
        let rest = said
            .split_once(name)
            .expect("the demo says how to connect")
            .1;
        rest.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let server: u16 = word("--port=").parse().expect("a port");
    assert!(std::net::TcpStream::connect(("127.0.0.1", server)).is_err());
    let socket = std::fs::metadata(word("--host=")).expect("the directory of its socket");
    assert_eq!(socket.permissions().mode() & 0o077, 0, "{socket:?}");
    let web = Web::at(port.unwrap_or_else(|| panic!("a port: {said}")));
    let page = web.page("/jobs?state=completed").await;
    assert!(page.contains("completed"), "{page}");
    for state in ["completed", "cancelled", "failed", "queued"] {
        let page = web
            .page(&format!("/jobs?task=account.sign_up&state={state}"))
            .await;
        assert!(page.contains("href=\"/jobs/"), "{state}: {page}");
    }
    let page = web.page("/").await;
    assert!(page.contains("completed within the hour"), "{page}");
    send_signal("TERM", demo.id());
    assert!(demo.ends(PATIENCE).await.success(), "{}", demo.output());
}
