//! The server's notification queue, which any role that can connect can fill.

use harness::scheduler::{scheduler_of, scheduling};
use harness::session::Session;
use harness::{PATIENCE, eventually};

#[tokio::test]
async fn a_full_queue_of_notifications_stops_no_scheduler() {
    let options = scheduling().setting("trax.tick_interval", "'200 ms'");
    let server = match options.setting("max_notify_queue_pages", "64").start() {
        Ok(server) => server,
        Err(_) => return eprintln!("skipped: before PostgreSQL 17 the queue has 8 GiB"),
    };
    let database = server.database("app").await.expect("a database is made");
    let s = Session::of(&database).await;
    let scheduler = scheduler_of(s.client(), "app", PATIENCE).await;
    s.get("create role nobody_at_all login").await;
    let listener = Session::as_role(&database, "nobody_at_all").await;
    listener.get("listen x").await;
    listener.get("begin; select 1").await;
    let them = Session::as_role(&database, "nobody_at_all").await;
    let fill = "select pg_notify('x', n || repeat('x', 7000)) from generate_series(1, 10) n";
    let refusal = eventually("the queue is full", PATIENCE, async || {
        match them.attempt(fill).await {
            Ok(_) => Err("it has room".to_owned()),
            Err(refusal) => Ok(refusal),
        }
    })
    .await;
    assert_eq!(refusal.code, "54000", "{refusal}");
    for n in 0..5 {
        let ahead = format!("select trax.schedule('m{n}', 'a', run_at => clock_timestamp())");
        s.get(&format!("select trax.enqueue('b'); {ahead}")).await;
        eventually("the cycle goes on", PATIENCE, async || {
            let sql = format!("select count(*) from trax.work_queue where manifest = 'm{n}'");
            match s.number(&sql).await {
                1 => Ok(()),
                count => Err(count.to_string()),
            }
        })
        .await;
    }
    // A transaction may have met the full queue before trax detected it.
    let now = scheduler_of(s.client(), "app", PATIENCE).await;
    s.get("select trax.enqueue('b')").await;
    let told = "select detail, fix from trax.diagnose() where cause = 'notifications_full'";
    let told = s.get(told).await;
    assert!(
        told.contains(&format!("pg_terminate_backend({})", listener.pid())),
        "{told}"
    );
    s.get(&format!("select pg_terminate_backend({})", listener.pid()))
        .await;
    s.get("listen trax_work").await;
    eventually("notifications are sent again", PATIENCE, async || {
        s.get("select trax.enqueue('b')").await;
        match s
            .number("select floor(100 * pg_notification_queue_usage())::bigint")
            .await
        {
            0 => Ok(()),
            usage => Err(usage.to_string()),
        }
    })
    .await;
    let still = scheduler_of(s.client(), "app", PATIENCE).await;
    assert_eq!(still, now, "it began with {scheduler}");
}
