//! The results that a relay writes back, and the ones it deletes.

use super::{pair, trax_relay};
use harness::scheduler::new_name;

const OPEN: &str = "select count(*) from trax_outbox.result where state is null";

#[tokio::test]
async fn a_relay_that_carries_once_writes_back_all_results() {
    let (source, target) = pair().await;
    source
        .get("select count(trax_outbox.enqueue('t', group_name => 'g')) from generate_series(1, 2500)")
        .await;
    let relay = trax_relay(&source, &target).arguments(&["--results"]);
    relay.once();
    assert_eq!(source.get(OPEN).await, "2500");
    target.get("select trax.cancel_group('g')").await;
    // Results are written by statements for many rows, not one each.
    source
        .get(
            "create sequence statements;
            create function count_statement() returns trigger language plpgsql as $$
            begin
                perform nextval('statements');
                return null;
            end
            $$;
            create trigger statements after update on trax_outbox.result execute function count_statement()",
        )
        .await;
    relay.once();
    assert_eq!(source.get(OPEN).await, "0");
    let states = "select state, count(*) from trax_outbox.result group by state";
    assert_eq!(source.get(states).await, "cancelled|2500");
    let statements = source.number("select last_value from statements").await;
    assert!(statements <= 4, "{statements} statements");
}

#[tokio::test]
async fn results_are_kept_for_a_time() {
    let (source, target) = pair().await;
    source
        .get(
            "update trax_outbox.relay set result_retention = '2 days';
            insert into trax_outbox.result (id, job_id, task, state, finished_at)
            select n, n, 't', 'completed', now() - n * interval '1 second' * 4
            from generate_series(1, 86400) n;
            insert into trax_outbox.result (id, job_id, task, carried_at) values (0, 0, 'open', now() - interval '1 year')",
        )
        .await;
    trax_relay(&source, &target).once();
    let left = "select count(*), min(id), max(id) between 43000 and 43200 from trax_outbox.result";
    assert!(
        source.get(left).await.ends_with("|0|t"),
        "{}",
        source.get(left).await
    );
}

#[tokio::test]
async fn a_result_that_the_relay_may_not_see_any_more_stops_nothing() {
    let (source, target) = pair().await;
    let role = new_name("relay");
    target
        .get(&format!(
            "create role {role} login; select trax.grant_access('{role}', 'producer');
            select trax_relay.grant_access('{role}')"
        ))
        .await;
    source
        .get(&format!(
            "select trax_outbox.grant_access('{role}', 'relay')"
        ))
        .await;
    source
        .get("select trax_outbox.enqueue(n::text, group_name => case when n = 5 then 'out' else 'in' end) from generate_series(1, 9) n")
        .await;
    let relay = trax_relay(&source, &target)
        .role(&role)
        .arguments(&["--results"]);
    relay.once();
    target
        .get(&format!(
            "select trax.grant_access('{role}', 'producer', groups => '{{in}}'); select trax.cancel_group('in')"
        ))
        .await;
    relay.once();
    let seen = "select state, count(*), bool_and((error <> '') = (state = 'unknown')) from trax_outbox.result group by state order by state";
    assert_eq!(source.get(seen).await, "cancelled|8|\nunknown|1|t");
    source.get(&format!("drop owned by {role}")).await;
    target
        .get(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

#[tokio::test]
async fn every_old_key_is_forgotten_in_one_round() {
    let (source, target) = pair().await;
    let outbox = source.get("select source from trax_outbox.relay").await;
    target
        .get(&format!(
            "insert into trax_relay.carried (key, source, id, job_id, carried_at)
            select gen_random_uuid(), '{outbox}', n, n, now() - interval '2 h' from generate_series(1, 120000) n"
        ))
        .await;
    source.get("select trax_outbox.enqueue('t')").await;
    trax_relay(&source, &target).once();
    assert_eq!(
        target.get("select count(*) from trax_relay.carried").await,
        "1"
    );
}
