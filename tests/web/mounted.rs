//! The router of the pages in another axum program, under a path.

use super::client::{Web, between};
use axum::Router;
use axum::routing::get;
use harness::session::session;
use harness::shared_server;

#[tokio::test]
async fn the_router_serves_under_any_path_of_another_program() {
    let (database, s) = session().await;
    let id = s.enqueue("'t'").await;
    let server = shared_server();
    let address = format!(
        "host={} port={} user=postgres dbname={}",
        server.socket_dir().display(),
        server.port(),
        database.name()
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
    let web = Web::at(port);
    assert_eq!(web.page("/").await, "the other program");
    let page = web.page("/ops/trax/jobs").await;
    for rest in page
        .split("href=\"")
        .skip(1)
        .chain(page.split("src=\"").skip(1))
    {
        let link = rest.split('"').next().unwrap_or_default();
        assert!(
            link == "/ops/trax"
                || link.starts_with("/ops/trax/")
                || link.starts_with('#')
                || link.starts_with("data:"),
            "{link}"
        );
    }
    assert!(page.contains("data-live=\"/ops/trax/live\""), "{page}");
    let css = between(&page, "stylesheet\" href=\"", "\"");
    assert!(web.page(css).await.contains("color-scheme"), "{css}");
    let form = web.get(&format!("/ops/trax/act/cancel?job={id}")).await;
    assert!(form.head.contains("Path=/ops/trax;"), "{}", form.head);
    let done = web
        .act(
            &format!("/ops/trax/act/cancel?job={id}"),
            &format!("job={id}"),
            &[],
        )
        .await;
    assert!(done.body.contains("<b>cancelled</b>"), "{}", done.body);
    let home = between(&page, "aria-label=\"Pages\"><a href=\"", "\"");
    assert_eq!(home, "/ops/trax");
    assert!(web.page(home).await.contains("<h1>Overview</h1>"));
    serving.abort();
}
