//! `trax tokens`.

use super::{objects, said};
use harness::session::{Session, session};

#[tokio::test]
async fn who_holds_and_who_waits_is_listed_in_the_order_of_service() {
    let (db, s) = session().await;
    s.get("select from trax.acquire_token('printer', 'ada', 1, '1 h'); select from trax.acquire_token('other', 'eve', 2, '1 h')")
        .await;
    let mut waiters = Vec::new();
    for (place, holder) in ["bob", "cyd"].into_iter().enumerate() {
        let waiter = Session::of(&db).await;
        waiters.push(waiter.spawn(format!(
            "call trax.await_token('printer', '{holder}', 1, '1 h', '5 min', null, null, null)"
        )));
        harness::eventually("it waits", harness::PATIENCE, async || {
            match s
                .number("select count(*) from trax.concurrency_waiter")
                .await
            {
                count if count == place as i64 + 1 => Ok(()),
                other => Err(other.to_string()),
            }
        })
        .await;
    }
    let listed = objects(&db, &["tokens", "printer"]);
    let told: Vec<String> = listed
        .iter()
        .map(|row| format!("{} {} {}", row["holder"], row["state"], row["place"]).replace('"', ""))
        .collect();
    assert_eq!(told, ["ada held 1", "bob waiting 1", "cyd waiting 2"]);
    assert!(listed[0]["expires_at"].is_string() && listed[1]["pid"].is_number());
    assert_eq!(objects(&db, &["tokens"]).len(), 4);
    assert!(
        !said(&db, &["tokens"]).contains("token"),
        "no secret is shown"
    );
    for waiter in waiters {
        waiter.abort();
    }
}
