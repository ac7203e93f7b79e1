//! Causes that stop the relay, and ones that do not: an unreachable router, missing rights or
//! extension, and a row that is refused, blocked or too large. All of them are reported.

use super::{JOBS, Side, WAITING, pair, trax_relay, url};
use crate::router::{Cluster, has_plproxy};
use harness::PATIENCE;
use harness::process::{run, trax_binary};
use harness::scheduler::new_name;
use harness::session::Session;
use std::process::Command;

const TROUBLE: &str = "select waiting, held, trouble from trax_relay.source";

/// Makes a role with the rights of a relay on both sides.
async fn relay_role(source: &Side, target: &Side) -> String {
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
    role
}

async fn drop_role(source: &Side, target: &Side, role: &str) {
    source.get(&format!("drop owned by {role}")).await;
    target
        .get(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

/// Counts the statements that try to carry rows, in the sequence `attempts`.
const COUNT_ATTEMPTS: &str = "create sequence attempts;
    create function count_attempt() returns trigger language plpgsql as $$
    begin
        perform nextval('attempts');
        return null;
    end
    $$;
    create trigger attempts before insert on trax_relay.carried execute function count_attempt()";

#[tokio::test]
async fn a_router_is_no_target() {
    if !has_plproxy() {
        return;
    }
    let (source, target) = pair().await;
    let cluster = Cluster::of(1).await;
    source.get("select trax_outbox.enqueue('t')").await;
    let mut relay = trax_relay(&source, &target);
    relay.to = cluster.database.config();
    for arguments in [&["--once"][..], &[]] {
        let (code, _, said) = run(&mut relay.command(arguments));
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("is a router") && said.contains("each with its own --to"),
            "{said}"
        );
    }
    assert_eq!(source.get(WAITING).await, "1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_are_revoked_while_rows_are_carried_refuse_none() {
    let (source, target) = pair().await;
    let role = relay_role(&source, &target).await;
    let relay = trax_relay(&source, &target).role(&role).start();
    let mut count = 0;
    for (revoke, grant, words) in [
        (
            format!("revoke usage on schema trax from {role}"),
            format!("select trax.grant_access('{role}', 'producer')"),
            "may not enqueue",
        ),
        (
            format!("revoke insert on trax_relay.carried from {role}"),
            format!("select trax_relay.grant_access('{role}')"),
            "may not use the tables of the relay",
        ),
    ] {
        source
            .reaches(&relay, "select asleep from trax_outbox.target", "t")
            .await;
        target.get(&revoke).await;
        source
            .get("select trax_outbox.enqueue(gen_random_uuid()::text) from generate_series(1, 3)")
            .await;
        count += 3;
        relay.says(words, PATIENCE).await;
        assert_eq!(
            source
                .get("select waiting, refused from trax_outbox.lag")
                .await,
            "3|0"
        );
        if words == "may not enqueue" {
            let seen = format!(
                "select waiting, trouble like '%{words}%grant_access%' from trax_relay.source"
            );
            target.reaches(&relay, &seen, "3|t").await;
        }
        target.get(&grant).await;
        target
            .reaches(&relay, JOBS, &format!("{count} {count}"))
            .await;
    }
    target
        .reaches(&relay, "select trouble is null from trax_relay.source", "t")
        .await;
    drop(relay);
    drop_role(&source, &target, &role).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extension_that_is_dropped_while_rows_are_carried_refuses_none() {
    let (source, target) = pair().await;
    let relay = trax_relay(&source, &target).start();
    source
        .reaches(&relay, "select asleep from trax_outbox.target", "t")
        .await;
    target.get("drop extension trax cascade").await;
    source
        .get("select trax_outbox.enqueue(n::text) from generate_series(1, 3) n")
        .await;
    relay.says("trax is not in this database", PATIENCE).await;
    assert_eq!(
        source
            .get("select waiting, refused from trax_outbox.lag")
            .await,
        "3|0"
    );
    target.get("create extension trax").await;
    target.reaches(&relay, JOBS, "3 3").await;
}

#[tokio::test]
async fn what_stops_a_relay_from_its_start_is_seen_in_the_target() {
    let (source, target) = pair().await;
    let role = relay_role(&source, &target).await;
    target
        .get(&format!("revoke usage on schema trax from {role}"))
        .await;
    source.get("select trax_outbox.enqueue('t')").await;
    let relay = trax_relay(&source, &target).role(&role).start();
    let seen = "select waiting, trouble like '%may not enqueue%' from trax_relay.source";
    target.reaches(&relay, seen, "1|t").await;
    let mut doctor = Command::new(trax_binary());
    doctor.args(["--database-url", &url(&target.database.config()), "doctor"]);
    let (_, said, _) = run(&mut doctor);
    assert!(
        said.contains("relay_stopped") && said.contains("may not enqueue"),
        "{said}"
    );
    drop(relay);
    drop_role(&source, &target, &role).await;
}

#[tokio::test]
async fn a_full_group_holds_up_its_rows_and_a_sealed_batch_refuses_them() {
    let (source, target) = pair().await;
    target
        .get(
            "select trax.configure_group('full', max_waiting => 1);
             select trax.enqueue('first', group_name => 'full')",
        )
        .await;
    let sealed = target.number("select trax.open_batch('report')").await;
    target
        .get(&format!("select trax.seal_batch({sealed})"))
        .await;
    source
        .get(&format!(
            "select trax_outbox.enqueue('late', group_name => 'full'),
                 trax_outbox.enqueue('sealed', batch => {sealed}), trax_outbox.enqueue('other')"
        ))
        .await;
    let relay = trax_relay(&source, &target).start();
    let carried = "select count(*) from trax.job where task = 'other'";
    target.reaches(&relay, carried, "1").await;
    let refused = "select string_agg(concat_ws(' ', entry ->> 'task', sqlstate), ', ') from trax_outbox.refused";
    source.reaches(&relay, refused, "sealed 55000").await;
    target
        .get("select trax.configure_group('full', max_waiting => 0)")
        .await;
    let late = "select count(*) from trax.job where task = 'late'";
    target.reaches(&relay, late, "1").await;
    source.reaches(&relay, WAITING, "0").await;

    // A target that is not lost keeps its rows, and a role has a name.
    let itself = "select trax_outbox.replace_target(t.target, t.target) from trax_outbox.target t";
    assert_eq!(source.session.refusal(itself).await.code, "22023");
    let nobody = "select trax_relay.grant_access(null)";
    assert_eq!(target.session.refusal(nobody).await.code, "22004");
}

#[tokio::test]
async fn one_refused_row_costs_few_attempts() {
    let (source, target) = pair().await;
    target.get(COUNT_ATTEMPTS).await;
    source
        .get(
            "select trax_outbox.enqueue(n::text) from generate_series(1, 250) n;
             insert into trax_outbox.entry (task, input) values (repeat('x', 300), '{}');
             select trax_outbox.enqueue(n::text) from generate_series(251, 499) n",
        )
        .await;
    trax_relay(&source, &target).once();
    let order = "select count(*), bool_and(task = n::text)
        from (select task, row_number() over (order by job_id) as n from trax.work_queue) q";
    assert_eq!(target.get(order).await, "499|t");
    assert_eq!(
        source
            .get("select waiting, refused from trax_outbox.lag")
            .await,
        "0|1"
    );
    let attempts = target.number("select last_value from attempts").await;
    assert!(attempts <= 20, "{attempts} attempts for 500 rows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_whose_unique_key_is_locked_in_the_target_holds_up_no_other() {
    let (source, target) = pair().await;
    let other = Session::of(target.database()).await;
    other
        .get("begin; select trax.enqueue('other', unique_key => 'k')")
        .await;
    source
        .get(
            "select trax_outbox.enqueue(n::text) from generate_series(1, 25) n;
             select trax_outbox.enqueue('first', unique_key => 'k'), trax_outbox.enqueue('second', unique_key => 'k');
             select trax_outbox.enqueue(n::text) from generate_series(26, 50) n",
        )
        .await;
    let relay = trax_relay(&source, &target).start();
    target.reaches(&relay, JOBS, "50 50").await;
    target
        .reaches(
            &relay,
            "select waiting, held, trouble like 'row 26 %(55P03)' from trax_relay.source",
            "2|1|t",
        )
        .await;
    other.get("rollback").await;
    source.reaches(&relay, WAITING, "0").await;
    assert_eq!(target.get(JOBS).await, "51 51");
    assert_eq!(
        target
            .get("select task from trax.work_queue where task !~ '^[0-9]'")
            .await,
        "first"
    );
    target.reaches(&relay, TROUBLE, "0|0|").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_fails_as_no_row_should_holds_up_no_other() {
    let (source, target) = pair().await;
    target
        .get(
            "create function stop_some() returns trigger language plpgsql as $$
            begin
                raise exception 'this one fails' using errcode = case when new.id % 4 = 0 then 'XX000' else '55000' end;
            end
            $$;
            create trigger stop_some before insert on trax_relay.carried
            for each row when (new.id % 2 = 0) execute function stop_some()",
        )
        .await;
    source
        .get("select trax_outbox.enqueue(n::text) from generate_series(1, 20) n")
        .await;
    let (code, _, said) = run(&mut trax_relay(&source, &target).command(&["--once"]));
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("10 rows are held back") && said.contains("this one fails"),
        "{said}"
    );
    assert_eq!(target.get(JOBS).await, "10 10");
    let relay = trax_relay(&source, &target).start();
    let held = "select waiting, held, trouble like '%this one fails%' from trax_relay.source";
    target.reaches(&relay, held, "10|10|t").await;
    target
        .get("drop trigger stop_some on trax_relay.carried")
        .await;
    target.reaches(&relay, JOBS, "20 20").await;
    source.reaches(&relay, WAITING, "0").await;
    assert_eq!(source.get("select refused from trax_outbox.lag").await, "0");
}

#[tokio::test]
async fn a_row_that_cannot_become_text_is_refused_and_stops_no_other() {
    let (source, target) = pair().await;
    // A small row that is more than a gigabyte as text: each number has 131072 digits.
    source
        .get(
            "select trax_outbox.enqueue('before');
             select trax_outbox.enqueue('grows', jsonb_agg('1e131071'::numeric)) from generate_series(1, 10000);
             select trax_outbox.enqueue('after')",
        )
        .await;
    trax_relay(&source, &target).once();
    let tasks = "select string_agg(task, ' ' order by job_id) from trax.work_queue";
    assert_eq!(target.get(tasks).await, "before after");
    let refused = "select sqlstate, entry->>'task' from trax_outbox.refused order by id";
    assert_eq!(source.get(refused).await, "54000|grows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_the_source_has_no_memory_for_is_held_and_not_refused() {
    let (source, target) = pair().await;
    // This function comes first in the search path of the relay's function.
    source
        .get(
            "create schema shortage;
            create function shortage.to_jsonb(entry trax_outbox.entry) returns jsonb language plpgsql as $$
            begin
                if entry.task = '2' then
                    raise out_of_memory using message = 'out of memory';
                end if;
                return pg_catalog.to_jsonb(entry);
            end
            $$;
            alter function trax_outbox.look(uuid, uuid[], bigint, bigint[], text[], bigint[])
            set search_path = shortage, pg_catalog, pg_temp;
            select trax_outbox.enqueue(n::text) from generate_series(1, 3) n",
        )
        .await;
    let relay = trax_relay(&source, &target).start();
    target.reaches(&relay, JOBS, "2 2").await;
    let held =
        "select waiting, refused, held, trouble like 'row 2 %(53200)' from trax_relay.source";
    target.reaches(&relay, held, "1|0|1|t").await;
    source
        .get(
            "alter function trax_outbox.look(uuid, uuid[], bigint, bigint[], text[], bigint[])
            set search_path = pg_catalog, pg_temp",
        )
        .await;
    target.reaches(&relay, JOBS, "3 3").await;
    source.reaches(&relay, WAITING, "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_that_takes_too_long_is_found_although_each_look_ends_before() {
    let (source, target) = pair().await;
    let role = relay_role(&source, &target).await;
    target
        .get(&format!(
            "alter role {role} set statement_timeout = '1500 ms';
            create function stop_one() returns trigger language plpgsql as $$
            begin
                perform pg_sleep(60);
                return null;
            end
            $$;
            create trigger stop_one before insert on trax_relay.carried
            for each row when (new.id = 2) execute function stop_one()"
        ))
        .await;
    source
        .get("select trax_outbox.enqueue(n::text) from generate_series(1, 8) n")
        .await;
    let relay = trax_relay(&source, &target)
        .role(&role)
        .arguments(&["--patience", "2 s"])
        .start();
    target.reaches(&relay, JOBS, "7 7").await;
    let held = "select waiting, held, trouble is not null from trax_relay.source";
    target.reaches(&relay, held, "1|1|t").await;
    drop(relay);
    drop_role(&source, &target, &role).await;
}

#[tokio::test]
async fn a_look_reads_no_more_than_it_can_carry() {
    let (source, target) = pair().await;
    // Each row is small as stored, since it is compressed.
    let enqueue = "select count(trax_outbox.enqueue('t', to_jsonb(repeat('x', 900000)))) from generate_series(1, 30)";
    source.get(enqueue).await;
    let id = target.get("select target from trax_relay.target").await;
    let look = format!(
        "select count(*), sum(octet_length(document)) from trax_outbox.look('{id}', '{{{id}}}', 500, '{{}}', '{{}}', null)"
    );
    let seen = source.get(&look).await;
    assert!(seen.starts_with("10|"), "{seen}");
    trax_relay(&source, &target).once();
    assert_eq!(target.get(JOBS).await, "30 1");
    assert_eq!(source.get(WAITING).await, "0");
}
