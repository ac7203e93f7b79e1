//! Several targets of one outbox, and several outboxes of one relay.

use super::{Relay, Side, WAITING, a_target, outbox_on, pair, trax_relay};
use harness::process::{Process, run};
use harness::scheduler::new_name;
use harness::{PATIENCE, eventually, shared_server};

const IDENTITY: &str = "select target from trax_relay.target";

/// An outbox, and the targets a, b and c.
async fn three() -> (Side, [Side; 3]) {
    let (source, a) = pair().await;
    (source, [a, a_target().await, a_target().await])
}

fn to_all(source: &Side, targets: &[Side; 3]) -> Relay {
    trax_relay(source, &targets[0])
        .and_to(&targets[1])
        .and_to(&targets[2])
}

/// Enqueues a row for each of 30 groups, `rounds` times; the task is the group and a growing
/// number.
async fn enqueue(source: &Side, rounds: usize) {
    source
        .get(&format!(
            "select count(trax_outbox.enqueue('g' || n % 30 || ' ' || nextval('numbers'), group_name => 'g' || n % 30))
            from generate_series(1, 30 * {rounds}) n"
        ))
        .await;
}

/// Checks that each job exists once, in the order of its group, and each group in one target;
/// returns their number.
async fn jobs(targets: &[Side; 3]) -> i64 {
    let mut count = 0;
    let mut groups: Vec<String> = Vec::new();
    for target in targets {
        let all = "select count(*), count(distinct task) from trax.work_queue";
        let (jobs, tasks) = {
            let seen = target.get(all).await;
            let (jobs, tasks) = seen.split_once('|').expect("two numbers");
            (jobs.to_owned(), tasks.to_owned())
        };
        assert_eq!(jobs, tasks, "a row became two jobs");
        count += jobs.parse::<i64>().expect("a number");
        let late = "select count(*) from (
                select split_part(task, ' ', 2)::int as n,
                    lag(split_part(task, ' ', 2)::int) over (partition by group_name order by job_id) as before
                from trax.work_queue
            ) q where n < before";
        assert_eq!(target.number(late).await, 0, "order is kept");
        let here = "select distinct group_name from trax.work_queue order by group_name";
        groups.extend(target.get(here).await.lines().map(str::to_owned));
    }
    let number = groups.len();
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), number, "a group is in one target: {groups:?}");
    count
}

async fn reach(targets: &[Side; 3], relay: &Process, wanted: i64) {
    eventually(&format!("{wanted} jobs"), PATIENCE, async || {
        let found = jobs(targets).await;
        (found == wanted)
            .then_some(())
            .ok_or_else(|| format!("{found}; the relay said: {}", relay.output()))
    })
    .await;
}

/// Refuses connections to the database of a side and ends its sessions, or allows them again.
async fn allow(side: &Side, admin: &Side, may: bool) {
    let name = side.database.name();
    admin
        .get(&format!(
            "alter database \"{name}\" allow_connections {may}; select count(pg_terminate_backend(pid))
            from pg_stat_activity where datname = '{name}' and application_name = 'trax relay' and not {may}"
        ))
        .await;
}

#[tokio::test]
async fn every_group_has_one_of_three_targets_and_keeps_it() {
    let (source, targets) = three().await;
    source.get("create sequence numbers").await;
    enqueue(&source, 40).await;
    to_all(&source, &targets).once();
    assert_eq!(jobs(&targets).await, 1200);
    for target in &targets {
        assert_ne!(
            target.get("select count(*) from trax.work_queue").await,
            "0"
        );
    }
    // In another order, and without one target: its rows wait, and no group goes to another.
    enqueue(&source, 10).await;
    let [a, b, c] = &targets;
    let (code, _, said) = run(&mut trax_relay(&source, c).and_to(a).command(&["--once"]));
    assert_eq!(code, Some(0), "{said}");
    let b_has = b.get(IDENTITY).await;
    assert!(
        said.contains(&format!(
            "rows wait for the target {} ({b_has})",
            b.database.name()
        )),
        "{said}"
    );
    let for_b = format!(
        "select count(*), count(*) filter (where target = '{b_has}') from trax_outbox.entry"
    );
    let waiting = source.get(&for_b).await;
    let (all, of_b) = waiting.split_once('|').expect("two numbers");
    assert_eq!(all, of_b);
    assert_eq!(
        jobs(&targets).await,
        1500 - all.parse::<i64>().expect("a number")
    );
    trax_relay(&source, b).and_to(c).and_to(a).once();
    assert_eq!(jobs(&targets).await, 1500);
    assert_eq!(source.get(WAITING).await, "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_is_down_holds_up_only_its_own_rows() {
    let (source, targets) = three().await;
    source.get("create sequence numbers").await;
    enqueue(&source, 1).await;
    let relay = to_all(&source, &targets).arguments(&["--batch", "7"]);
    let process = relay.start();
    reach(&targets, &process, 30).await;
    let [_, b, _] = &targets;
    let b_has = b.get(IDENTITY).await;
    allow(b, &source, false).await;
    enqueue(&source, 20).await;
    let others = format!("select count(*) from trax_outbox.entry where target <> '{b_has}'");
    source.reaches(&process, &others, "0").await;
    let for_b = source.number(WAITING).await;
    assert!(for_b > 0, "b has groups");
    assert_eq!(jobs(&targets).await, 30 + 600 - for_b);
    // Killed while the target is down; the next relay starts without it.
    drop(process);
    enqueue(&source, 20).await;
    let process = relay.start();
    source.reaches(&process, &others, "0").await;
    allow(b, &source, true).await;
    reach(&targets, &process, 30 + 1200).await;
    source.reaches(&process, WAITING, "0").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_are_killed_and_know_other_targets_double_nothing() {
    let (source, targets) = three().await;
    source.get("create sequence numbers").await;
    let [a, b, c] = &targets;
    let mut total = 0;
    for round in 0..6 {
        enqueue(&source, 30).await;
        total += 900;
        let relay = match round % 3 {
            0 => trax_relay(&source, a).and_to(b),
            1 => trax_relay(&source, c).and_to(a).and_to(b),
            _ => trax_relay(&source, b).and_to(c),
        };
        let process = relay.arguments(&["--batch", "20"]).start();
        let before = source.number(WAITING).await;
        eventually("some are carried", PATIENCE, async || {
            let now = source.number(WAITING).await;
            (now < before)
                .then_some(())
                .ok_or_else(|| format!("{now}: {}", process.output()))
        })
        .await;
        drop(process);
    }
    to_all(&source, &targets).once();
    assert_eq!(jobs(&targets).await, total);
    assert_eq!(source.get(WAITING).await, "0");
}

#[tokio::test]
async fn a_group_that_moves_moves_with_its_next_rows() {
    let (source, targets) = three().await;
    let [a, b, _] = &targets;
    let enqueue = "select trax_outbox.enqueue('t', group_name => 'g')";
    source.get(enqueue).await;
    trax_relay(&source, a).once();
    trax_relay(&source, a).and_to(b).once();
    source.get(enqueue).await;
    let b_has = b.get(IDENTITY).await;
    source
        .get(&format!("select trax_outbox.place_group('g', '{b_has}')"))
        .await;
    source.get(enqueue).await;
    let relay = trax_relay(&source, a).and_to(b);
    relay.once();
    let count = "select count(*) from trax.work_queue";
    assert_eq!([a.get(count).await, b.get(count).await], ["2", "1"]);
    let refusal = source
        .refusal("select trax_outbox.place_group('g', gen_random_uuid())")
        .await;
    assert_eq!(refusal.code, "42704");
    // The target b is lost for ever.
    source.get(enqueue).await;
    // A row it refused was never carried; the fate of a row it took is unknown.
    source
        .get(&format!(
            "with moved as (
                delete from trax_outbox.entry
                where id = (select max(id) from trax_outbox.entry)
                returning *
            )
            insert into trax_outbox.refused (id, sqlstate, error, entry)
            select m.id, '54000', 'no', to_jsonb(m)
            from moved m;
            insert into trax_outbox.result (id, job_id, task, target) values (-1, 1, 't', '{b_has}')"
        ))
        .await;
    source
        .get(&format!("select trax_outbox.replace_target('{b_has}', (select target from trax_outbox.target where target <> '{b_has}'))"))
        .await;
    let unknown = "select state from trax_outbox.result where id = -1";
    assert_eq!(source.get(unknown).await, "unknown");
    source
        .get("select trax_outbox.retry(id) from trax_outbox.refused")
        .await;
    trax_relay(&source, a).once();
    assert_eq!([a.get(count).await, b.get(count).await], ["3", "1"]);
}

#[tokio::test]
async fn an_outbox_that_fails_stops_no_other_that_is_carried_once() {
    let (source, target) = pair().await;
    let database = shared_server().plain_database(&new_name("empty")).await;
    let without = harness::session::Session::of(database.as_ref().expect("a database")).await;
    let without = Relay::side(database.expect("a database"), without);
    let (database, other) = outbox_on(shared_server()).await;
    let other = Relay::side(database, other);
    for side in [&source, &other] {
        side.get("select count(trax_outbox.enqueue('t')) from generate_series(1, 300)")
            .await;
    }
    let relay = trax_relay(&source, &target).and(&without).and(&other);
    let (code, _, said) = run(&mut relay.command(&["--once", "--batch", "5"]));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--outbox-sql"), "{said}");
    assert_eq!(
        target.get("select count(*) from trax.work_queue").await,
        "600"
    );
}

#[tokio::test]
async fn targets_of_a_cluster_are_told_apart_by_their_numbers() {
    let (source, [a, b, _]) = three().await;
    a.get("select trax.set_shard(7)").await;
    trax_relay(&source, &a).and_to(&b).once();
    let named = "select string_agg(name, ', ' order by length(name) desc) from trax_outbox.target";
    let (first, second) = (a.database.name(), b.database.name());
    assert_eq!(
        source.get(named).await,
        format!("{first} (shard 7), {second}")
    );
}
