//! The pages' router nested in another axum program.

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trax_client::testkit::Server;

/// Sends a request with these additional header lines. Returns the head and body of the response.
async fn ask(port: u16, request: &str, lines: &str, body: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("it listens");
    let length = body.len();
    let text = format!(
        "{request} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{lines}Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await.expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("it answers");
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

/// Returns a page, asserting that it exists.
async fn page(port: u16, path: &str) -> String {
    let (head, body) = ask(port, &format!("GET {path}"), "", "").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{path}: {head}\n{body}");
    body
}

/// Returns the text between two other texts.
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let found = text
        .split_once(before)
        .and_then(|(_, rest)| rest.split_once(after));
    found
        .unwrap_or_else(|| panic!("{before}…{after} in {text}"))
        .0
}

#[tokio::test]
async fn the_router_serves_under_any_path_of_another_program() {
    let server = Server::options().fast().start().expect("a server starts");
    let database = server.database("shop").await.expect("a database is made");
    let client = database.connect().await.expect("it takes a connection");
    let row = client.query_one("select trax.enqueue('t')", &[]).await;
    let id: i64 = row.expect("a job is queued").get(0);
    let address = format!(
        "host={} port={} user=postgres dbname=shop",
        server.socket_dir().display(),
        server.port(),
    );
    let options = trax_web::Options {
        read_only: false,
        ..trax_web::Options::default()
    };
    let site = trax_web::Site::new(address.parse().expect("an address"), options);
    let program = Router::new()
        .route("/", get(async || "the other program"))
        .nest("/ops/trax", site.router());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let serving = tokio::spawn(async move { axum::serve(listener, program).await });

    assert_eq!(page(port, "/").await, "the other program");
    let jobs = page(port, "/ops/trax/jobs").await;
    let links = jobs.split("href=\"").skip(1);
    for rest in links.chain(jobs.split("src=\"").skip(1)) {
        let link = rest.split('"').next().unwrap_or_default();
        let is_ours = link == "/ops/trax" || link.starts_with("/ops/trax/");
        assert!(
            is_ours || link.starts_with('#') || link.starts_with("data:"),
            "{link}"
        );
    }
    assert!(jobs.contains("data-live=\"/ops/trax/live\""), "{jobs}");
    let css = between(&jobs, "stylesheet\" href=\"", "\"");
    assert!(page(port, css).await.contains("color-scheme"), "{css}");
    let home = between(&jobs, "aria-label=\"Pages\"><a href=\"", "\"");
    assert_eq!(home, "/ops/trax");
    assert!(page(port, home).await.contains("<h1>Overview</h1>"));

    let act = "/ops/trax/act/cancel";
    let (head, form) = ask(port, &format!("GET {act}?job={id}"), "", "").await;
    assert!(head.contains("Path=/ops/trax;"), "{head}");
    let lines = format!(
        "Origin: http://127.0.0.1:{port}\r\nCookie: trax_session={}\r\nContent-Type: application/x-www-form-urlencoded\r\n",
        between(&head, "trax_session=", ";")
    );
    let token = between(&form, "name=\"token\" value=\"", "\"");
    let fields = format!("token={token}&job={id}");
    let (_, done) = ask(port, &format!("POST {act}"), &lines, &fields).await;
    assert!(done.contains("<b>cancelled</b>"), "{done}");
    serving.abort();
}
