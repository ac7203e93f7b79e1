//! The cache that viewers share: each query runs once, as the same role, and its result is never
//! older than an act.

use super::client::Web;
use harness::process::Scratch;
use harness::session::{Session, session};
use harness::shared_server;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test]
async fn many_who_look_ask_once() {
    let (database, s) = session().await;
    let web = Web::of(shared_server(), &database, &["--connections", "8"]).await;
    web.page("/jobs").await;
    let blocker = Session::of(&database).await;
    blocker.get("begin; lock trax.dead_letter").await;
    // Eight viewers at the same time: one waits for the lock, and the others for its answer. They
    // reload when a page takes too long.
    let is_over = AtomicBool::new(false);
    let look = async || {
        while !is_over.load(Ordering::Relaxed) {
            web.get("/").await;
        }
    };
    let all = async {
        tokio::join!(
            look(),
            look(),
            look(),
            look(),
            look(),
            look(),
            look(),
            look()
        )
    };
    let watch = async {
        let waiting = "select count(*) filter (where wait_event_type = 'Lock'),
                count(*) filter (where state = 'idle in transaction')
            from pg_stat_activity where datname = current_database() and application_name = 'trax web'";
        s.becomes(waiting, "1|7").await;
        is_over.store(true, Ordering::Relaxed);
        blocker.get("commit").await;
    };
    tokio::join!(all, watch);
    let page = web.page("/").await;
    assert!(page.contains("as of "), "its age is shown: {page}");
}

#[tokio::test]
async fn nothing_from_before_an_act_is_shown_after_it() {
    let (database, s) = session().await;
    s.get("select trax.enqueue('t', group_name => 'g')").await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for (act, is_paused) in [("pause", true), ("resume", false), ("pause", true)] {
        let says_so = async || web.page("/").await.contains("state bad\">paused");
        assert_ne!(says_so().await, is_paused, "before {act}");
        let path = format!("/act/{act}-group?group=g");
        let done = web.act(&path, "group=g", &[]).await;
        assert_eq!(done.status, 200, "{}", done.body);
        assert_eq!(says_so().await, is_paused, "after {act}");
    }
}

#[tokio::test]
async fn nobody_gets_what_another_role_was_answered() {
    let (database, s) = session().await;
    let name = database.name();
    let (anna, bert) = (format!("ga_{name}"), format!("gb_{name}"));
    s.get(&format!(
        "create role {anna}; create role {bert};
        select trax.grant_access('{anna}', 'reader'), trax.grant_access('{bert}', 'reader');
        revoke select on all tables in schema trax from {bert}"
    ))
    .await;
    let files = Scratch::new("roles");
    let roles = files.path().join("roles");
    std::fs::write(&roles, format!("anna {anna}\nbert {bert}\n")).expect("it is written");
    let roles = roles.display().to_string();
    let arguments = ["--trust-header", "X-User", "--roles", roles.as_str()];
    let web = Web::of(shared_server(), &database, &arguments).await;
    for _ in 0..2 {
        let seen = web.ask("GET", "/", &[("X-User", "anna")], "").await;
        assert_eq!(seen.status, 200, "{}", seen.body);
        let refused = web.ask("GET", "/", &[("X-User", "bert")], "").await;
        assert_eq!(refused.status, 403, "{}", refused.body);
    }
}
