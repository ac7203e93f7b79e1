//! The graph or batch of a job on its page.

use super::client::{Web, between};
use harness::session::session;
use harness::shared_server;

#[tokio::test]
async fn a_job_shows_its_graph_as_a_picture_with_states() {
    let (database, s) = session().await;
    let ids = crate::graph::queued(&s, "load check:load sum:load,check", "cancel").await;
    crate::graph::complete(&s, "load").await;
    s.get("select * from trax.tick()").await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page(&format!("/jobs/{}", ids["check"])).await;
    let picture = between(&page, "<svg class=\"graph\"", "</svg>");
    assert_eq!(picture.matches("class=\"edge\"").count(), 3, "{picture}");
    for part in [
        "<title>load, completed</title>",
        "class=\"completed\"",
        "class=\"node here\"",
        "<title>check, queued</title>",
    ] {
        assert!(picture.contains(part), "{part}: {picture}");
    }
    let list = between(&page, "aria-label=\"The jobs of the graph\"", "</ul>");
    assert!(list.contains("task sum, after load, check"), "{list}");
    let other = s.enqueue("'alone'").await;
    let page = web.page(&format!("/jobs/{other}")).await;
    assert!(!page.contains("Its graph"), "{page}");
}

#[tokio::test]
async fn a_job_shows_the_first_jobs_of_its_batch() {
    let (database, s) = session().await;
    let batch = s.number("select trax.open_batch('report')").await;
    let many = format!(
        "select count(*) from trax.enqueue_many('mail', array_fill('1'::jsonb, array[150]), batch => {batch})"
    );
    assert_eq!(s.number(&many).await, 150);
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page(&format!("/jobs/{batch}")).await;
    assert!(page.contains("<h2>Its batch</h2>"), "{page}");
    assert!(
        page.contains("The first 100 of 151 jobs are shown."),
        "{page}"
    );
    assert!(page.contains("runs after all jobs of its batch"), "{page}");
}
