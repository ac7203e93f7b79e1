//! The files that define people, and connections without a login.

use super::client::Web;
use harness::process::{Scratch, run, send_signal, trax_binary};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually, shared_server};
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trax_client::testkit::Database;

/// A reader, and a role that connects and may become the reader.
async fn reader_and_door(database: &Database, s: &Session) -> (String, String) {
    let name = database.name();
    let (reader, door) = (format!("r_{name}"), format!("d_{name}"));
    s.get(&format!(
        "create role {reader}; create role {door} login noinherit; grant {reader} to {door};
         select trax.grant_access('{reader}', 'reader'), trax.grant_access('{door}', 'reader')"
    ))
    .await;
    (reader, door)
}

fn trusting(file: &str) -> [&str; 4] {
    ["--trust-header", "X-User", "--roles", file]
}

#[tokio::test]
async fn a_role_that_is_none_is_refused_at_the_start() {
    let (database, _s) = session().await;
    let files = Scratch::new("people");
    let file = files.path().join("roles");
    let server = shared_server();
    let url = format!(
        "host={} port={} user=postgres dbname={}",
        server.socket_dir().display(),
        server.port(),
        database.name()
    );
    for (role, message) in [
        ("none", "line 2: \"none\" is not a role"),
        ("public", "line 2: \"public\" is not a role"),
        ("nobody_has_it", "role \"nobody_has_it\" does not exist"),
    ] {
        std::fs::write(&file, format!("anna postgres\n* {role}\n")).expect("it is written");
        let mut web = Command::new(trax_binary());
        web.args(["--database-url", &url, "web", "--listen", "127.0.0.1:0"]);
        web.args(trusting(file.to_str().expect("a path")));
        let (code, _, errors) = run(&mut web);
        assert_eq!(code, Some(64), "{errors}");
        assert!(errors.contains(message), "{errors}");
    }
}

#[tokio::test]
async fn files_that_change_are_read_again_and_wrong_ones_are_not() {
    let (database, s) = session().await;
    let (reader, door) = reader_and_door(&database, &s).await;
    let files = Scratch::new("people");
    let file = files.path().join("roles");
    let name = file.display().to_string();
    std::fs::write(&file, format!("anna {reader}\n")).expect("it is written");
    let web = Web::as_user(shared_server(), &database, &door, &trusting(&name)).await;
    let status = async |person: &str| {
        let answer = web.ask("GET", "/jobs", &[("X-User", person)], "").await;
        answer.status
    };
    assert_eq!((status("anna").await, status("bert").await), (200, 403));
    std::fs::write(&file, format!("bert {reader}\n")).expect("it is written");
    eventually("the other person", PATIENCE, async || {
        match (status("anna").await, status("bert").await) {
            (403, 200) => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    std::fs::write(&file, "bert none\n").expect("it is written");
    send_signal("HUP", web.id());
    eventually("a word about the file", PATIENCE, async || {
        match web.output() {
            said if said.contains("\"none\" is not a role") => Ok(()),
            said => Err(said),
        }
    })
    .await;
    assert_eq!((status("anna").await, status("bert").await), (403, 200));
}

#[tokio::test]
async fn a_stream_ends_with_the_right_to_look() {
    let (database, s) = session().await;
    let (reader, door) = reader_and_door(&database, &s).await;
    let files = Scratch::new("people");
    let file = files.path().join("roles");
    let name = file.display().to_string();
    let write = || std::fs::write(&file, format!("anna {reader}\n")).expect("it is written");
    write();
    let web = Web::as_user(shared_server(), &database, &door, &trusting(&name)).await;
    for end in ["revoked", "removed"] {
        let mut stream = TcpStream::connect(("127.0.0.1", web.port))
            .await
            .expect("it listens");
        let host = web.host();
        let request = format!(
            "GET /live HTTP/1.1\r\nHost: {host}\r\nX-User: anna\r\nConnection: close\r\n\r\n"
        );
        stream
            .write_all(request.as_bytes())
            .await
            .expect("it reads");
        let mut said = vec![0; 4096];
        let count = stream.read(&mut said).await.expect("it answers");
        let said = String::from_utf8_lossy(&said[..count]).into_owned();
        assert!(said.contains("200 OK"), "{said}");
        if end == "revoked" {
            s.get(&format!("select trax.revoke_access('{reader}')"))
                .await;
        } else {
            s.get(&format!("select trax.grant_access('{reader}', 'reader')"))
                .await;
            std::fs::write(&file, "# nobody\n").expect("it is written");
        }
        let mut rest = Vec::new();
        let ends = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest));
        ends.await.expect("it ends").expect("it can be read");
        s.get(&format!("select trax.grant_access('{reader}', 'reader')"))
            .await;
    }
}

/// Opens a connection and sends some bytes but no full request.
async fn silent(web: &Web, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", web.port))
        .await
        .expect("it listens");
    stream.write_all(bytes).await.expect("it reads");
    stream
}

#[tokio::test]
async fn connections_that_say_nothing_take_no_room_from_others() {
    let (database, _s) = session().await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let mut first = silent(&web, b"\r\n\r\n").await;
    let mut others = Vec::new();
    for _ in 0..40 {
        others.push(silent(&web, b"\r\n\r\n").await);
        others.push(silent(&web, b"GET / HT").await);
    }
    let end = tokio::time::timeout(PATIENCE, first.read(&mut [0; 1])).await;
    // The oldest connection above the limit is closed.
    assert!(matches!(end, Ok(Ok(0) | Err(_))), "{end:?}");
    web.page("/").await;
    // Each connection is closed after some time.
    let last = others.last_mut().expect("there are others");
    let end = tokio::time::timeout(PATIENCE, last.read_to_end(&mut Vec::new())).await;
    assert!(end.is_ok(), "it stays open");
}
