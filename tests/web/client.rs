//! An HTTP client that sends exactly the given text, and the program under test.

use harness::PATIENCE;
use harness::process::{Process, trax_binary};
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trax_client::testkit::{Database, Server};

/// The answer to a request.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

/// A running `trax web`.
pub(super) struct Web {
    process: Option<Process>,
    pub(super) port: u16,
}

impl Web {
    /// Serves a database, and waits until it listens.
    pub(super) async fn of(server: &Server, database: &Database, arguments: &[&str]) -> Self {
        Self::as_user(server, database, "postgres", arguments).await
    }

    pub(super) async fn as_user(
        server: &Server,
        database: &Database,
        user: &str,
        arguments: &[&str],
    ) -> Self {
        let mut command = Command::new(trax_binary());
        let (socket, port) = (server.socket_dir().display(), server.port());
        command.arg("--database-url").arg(format!(
            "host={socket} port={port} user={user} dbname={}",
            database.name()
        ));
        command.arg("web").args(arguments);
        if !arguments.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let process = Process::start(command);
        let said = process.says(" of ", PATIENCE).await;
        let port = said
            .split_once("http://")
            .and_then(|(_, rest)| rest.split_once('/'))
            .and_then(|(address, _)| address.rsplit_once(':'))
            .and_then(|(_, port)| port.parse().ok());
        let port = port.unwrap_or_else(|| panic!("a port: {said}"));
        Web {
            process: Some(process),
            port,
        }
    }

    /// Pages served by the test itself.
    pub(super) fn at(port: u16) -> Self {
        Web {
            process: None,
            port,
        }
    }

    /// Returns what the program has printed.
    pub(super) fn output(&self) -> String {
        self.process.as_ref().map_or(String::new(), Process::output)
    }

    /// Returns the id of its process.
    pub(super) fn id(&self) -> i32 {
        self.process.as_ref().expect("it is a program").id()
    }

    /// Sends a request with these header lines; the Host header is valid unless they contain one.
    pub(super) async fn ask(
        &self,
        method: &str,
        path: &str,
        lines: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))
            .await
            .expect("it listens");
        let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        let names_host = lines
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"));
        if !names_host {
            text.push_str(&format!("Host: {}\r\n", self.host()));
        }
        for (name, value) in lines {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !body.is_empty() {
            text.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        text.push_str(body);
        stream.write_all(text.as_bytes()).await.expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("it answers");
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Answer {
            status: status.unwrap_or_else(|| panic!("a status: {head}")),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub(super) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    /// Returns a page that must exist.
    pub(super) async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.body
    }

    /// Returns the first event of a stream.
    pub(super) async fn event(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))
            .await
            .expect("it listens");
        let text = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.host());
        stream.write_all(text.as_bytes()).await.expect("it reads");
        let (mut said, mut buffer) = (String::new(), [0; 4096]);
        loop {
            let event = said.split_once("data: ");
            if let Some((event, _)) = event.and_then(|(_, event)| event.split_once('\n')) {
                return event.to_owned();
            }
            let read = tokio::time::timeout(PATIENCE, stream.read(&mut buffer)).await;
            let count = read.unwrap_or_else(|_| panic!("an event: {said}"));
            let count = count.expect("it answers");
            assert!(count > 0, "an event: {said}");
            said.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }

    /// Requests the page of an act and submits its form as a browser would, with additional header
    /// lines.
    pub(super) async fn act(&self, path: &str, fields: &str, lines: &[(&str, &str)]) -> Answer {
        let form = self.ask("GET", path, lines, "").await;
        assert_eq!(form.status, 200, "{path}: {}", form.body);
        let token = between(&form.body, "name=\"token\" value=\"", "\"");
        let cookie = format!("trax_session={}", between(&form.head, "trax_session=", ";"));
        let origin = format!("http://{}", self.host());
        let mut all = vec![
            ("Origin", origin.as_str()),
            ("Cookie", cookie.as_str()),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        all.extend(lines);
        let (act, _) = path.split_once('?').unwrap_or((path, ""));
        self.ask("POST", act, &all, &format!("token={token}&{fields}"))
            .await
    }
}

/// Returns the text between two others.
pub(super) fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let found = text
        .split_once(before)
        .and_then(|(_, rest)| rest.split_once(after));
    found
        .unwrap_or_else(|| panic!("{before}…{after} in {text}"))
        .0
}
