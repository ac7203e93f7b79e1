//! Jobs through the router.

use super::{Cluster, has_plproxy};
use std::collections::HashSet;

/// Returns the number of waiting jobs on each of three shards.
async fn waiting(cluster: &Cluster) -> Vec<i64> {
    let mut counts = Vec::new();
    for (_, shard) in &cluster.shards {
        counts.push(shard.number("select count(*) from trax.work_queue").await);
    }
    counts
}

#[tokio::test]
async fn jobs_of_a_group_are_on_one_shard_and_of_the_default_group_on_all() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    let sql = "select count(distinct trax.shard_of(id)) from (
        select trax.enqueue('a', group_name => 'reports') as id from generate_series(1, 20)) e";
    assert_eq!(s.get(sql).await, "1");
    let sql = "select count(distinct trax.shard_of(id)) from (
        select trax.enqueue('a') as id from generate_series(1, 100)) e";
    assert_eq!(s.get(sql).await, "3");
    let sql = "select trax.shard_of(trax.enqueue('a', concurrency_key => 'ada')),
        trax.shard_of(trax.enqueue('b', concurrency_key => 'ada', unique_key => 'x')),
        trax.shard_of(trax.enqueue('b', unique_key => 'ada'))";
    let by_key = s.get(sql).await;
    let shards: HashSet<&str> = by_key.split('|').collect();
    assert_eq!(shards.len(), 1, "{by_key}");
    let unique =
        "select trax.enqueue('b', unique_key => 'one') - trax.enqueue('b', unique_key => 'one')";
    assert_eq!(s.get(unique).await, "0");
    let all: i64 = waiting(&cluster).await.iter().sum();
    assert_eq!(all, 124);
}

#[tokio::test]
async fn every_argument_arrives() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(2).await;
    let s = &cluster.router;
    let id = s
        .number(&format!(
            "select trax.enqueue('t', '{{\"a\": [1.50]}}', '2100-01-02 03:04+05', '{group}', 7, 3, '90 s', 'u', 'c',
                '{{\"traceparent\": \"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\"}}', '5 s', '1 day')"
        ))
        .await;
    let row = "select task, input, run_at at time zone 'UTC', group_name, priority, max_retries, timeout, unique_key,
        concurrency_key, retry_delay, trace is not null from trax.work_queue";
    assert_eq!(
        cluster.shard(2).get(row).await,
        format!("t|{{\"a\": [1.50]}}|2100-01-01 22:04:00|{group}|7|3|00:01:30|u|c|00:00:05|t")
    );
    let get =
        format!("select job_id, state, task, group_name, priority from trax.get_jobs(array[{id}])");
    assert_eq!(s.get(&get).await, format!("{id}|queued|t|{group}|7"));
    assert_eq!(s.get(&format!("select trax.run_now({id})")).await, "ready");
    let change = format!("select trax.change_job({id}, '5', priority => 9)");
    assert_eq!(s.get(&change).await, "changed");
    let limit = format!("select trax.limit_queue_time({id}, '1 h')");
    assert_eq!(s.get(&limit).await, "t");
    assert_eq!(
        s.get(&format!("select trax.cancel({id})")).await,
        "cancelled"
    );
    assert_eq!(
        s.get(&format!("select trax.cancel({id})")).await,
        "finished"
    );

    let sql = s
        .number("select trax.enqueue_sql('select 1', group_name => 'statements', run_at => '2100-01-01')")
        .await;
    let state = format!("select state, task from trax.get_jobs('{{{sql}}}')");
    assert_eq!(s.get(&state).await, "queued|sql");
}

#[tokio::test]
async fn many_are_divided_and_their_ids_are_in_the_order_of_the_inputs() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    let inputs = "(select array_agg(to_jsonb(n) order by n) from generate_series(1, 1000) n)";
    let sql = format!("select array_agg(i) from trax.enqueue_many('m', {inputs}) i");
    let ids = s.get(&sql).await;
    let ids: Vec<i64> = ids
        .trim_matches(['{', '}'])
        .split(',')
        .map(|id| id.parse().expect("a number"))
        .collect();
    assert_eq!(ids.len(), 1000);
    let counts = waiting(&cluster).await;
    assert!(counts.iter().all(|n| (330..=345).contains(n)), "{counts:?}");
    for (at, id) in ids.iter().enumerate().step_by(111) {
        let shard = usize::try_from(id >> 43).expect("a small number");
        let input = format!("select input from trax.work_queue where job_id = {id}");
        assert_eq!(cluster.shard(shard).get(&input).await, (at + 1).to_string());
    }
    // All jobs of a group or a key are on one shard.
    for more in ["group_name => 'reports'", "concurrency_key => 'k'"] {
        let sql = format!(
            "select count(distinct trax.shard_of(i)), count(*) from trax.enqueue_many('m', {inputs}, {more}) i"
        );
        assert_eq!(s.get(&sql).await, "1|1000");
    }
    assert_eq!(s.get("select trax.enqueue_many('m', '{}')").await, "");
    let one = "select count(*) from trax.enqueue_many('m', '{1}'::jsonb[])";
    assert_eq!(s.get(one).await, "1");
}

#[tokio::test]
async fn rows_and_copy_become_jobs() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    s.get("insert into trax.new_job (task, input, group_name) select 't', to_jsonb(n), 'g' from generate_series(1, 30) n")
        .await;
    s.get(r"copy trax.new_job (task, priority) from program 'printf ''c\t3\nd\t\\N\n'''")
        .await;
    let all: i64 = waiting(&cluster).await.iter().sum();
    assert_eq!(all, 32);
    let refusal = s
        .refusal("insert into trax.new_job (input) values ('1')")
        .await;
    assert_eq!(refusal.code, "22004", "{refusal}");
    assert_eq!(s.get("select * from trax.new_job").await, "");
}

#[tokio::test]
async fn whoever_waits_hears_of_the_end_of_jobs_on_any_shard() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let (first, second) = (cluster.group_on(1).await, cluster.group_on(2).await);
    let one = s
        .number(&format!(
            "select trax.enqueue('a', group_name => '{first}')"
        ))
        .await;
    let two = s
        .number(&format!(
            "select trax.enqueue('a', group_name => '{second}')"
        ))
        .await;
    let both = format!("call trax.await_jobs('{{{one}, {two}}}', '0 s', null)");
    assert_eq!(s.get(&both).await, "{}");
    let timed_out = format!("call trax.await_job({one}, '0.05 s', null, null, null)");
    assert_eq!(s.get(&timed_out).await, "queued||");
    cluster
        .shard(2)
        .get("select trax.complete(job_id, token, '7') from trax.claim_next('w')")
        .await;
    let both = format!("call trax.await_jobs('{{{one}, {two}}}', '60 s', null, true)");
    assert_eq!(s.get(&both).await, format!("{{{two}}}"));
    let ended = format!("call trax.await_job({two}, '60 s', null, null, null)");
    assert_eq!(s.get(&ended).await, "completed|7|");
    let states = format!("select state from trax.get_jobs('{{{one}, {two}}}') order by 1");
    assert_eq!(s.get(&states).await, "completed\nqueued");
    let in_block = s
        .refusal(&format!(
            "begin; call trax.await_job({two}, '1 s', null, null, null)"
        ))
        .await;
    assert_eq!(in_block.code, "2D000", "{in_block}");
    s.get("rollback").await;
    let missing = s
        .refusal(&format!(
            "call trax.await_job({}, '1 s', null, null, null)",
            two + 5
        ))
        .await;
    assert_eq!(missing.code, "42704", "{missing}");
    for (call, code) in [
        ("call trax.await_job(1, null, null, null, null)", "22004"),
        ("call trax.await_job(1, '-1 s', null, null, null)", "22023"),
    ] {
        assert_eq!(s.refusal(call).await.code, code);
    }
}

#[tokio::test]
async fn dead_letters_of_all_shards_are_resolved() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    s.get("select trax.enqueue_many('mail', array_fill('1'::jsonb, array[20]), max_retries => 0)")
        .await;
    for number in [1, 2] {
        let fail = "select count(trax.fail(job_id, token, 'no')) from trax.claim_next('w', 100)";
        assert_eq!(cluster.shard(number).get(fail).await, "10");
    }
    let letter = "select min(id) from trax.dead_letter where status = 'awaiting_intervention'";
    let letter = cluster.shard(2).get(letter).await;
    let requeued = s
        .number(&format!(
            "select trax.requeue_dead_letter({letter}, 'again')"
        ))
        .await;
    assert_eq!(requeued >> 43, 2);
    let letter = cluster
        .shard(1)
        .get("select min(id) from trax.dead_letter")
        .await;
    let acknowledge = format!("select trax.acknowledge_dead_letter({letter})");
    assert_eq!(s.get(&acknowledge).await, "t");
    assert_eq!(s.get(&acknowledge).await, "f");
    let most = "select trax.requeue_dead_letters(task => 'mail', max_count => 12)";
    assert_eq!(s.get(most).await, "12");
    assert_eq!(s.get("select trax.requeue_dead_letters()").await, "6");
    assert_eq!(s.get("select trax.requeue_dead_letters()").await, "0");
}

#[tokio::test]
async fn a_token_has_its_places_once_in_the_cluster() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    let take = "select slot from trax.acquire_token('licence', 'me', 2, '1 min')";
    assert_eq!(s.get(take).await, "1");
    let token = s
        .get("select token from trax.acquire_token('licence', 'me', 2, '1 min')")
        .await;
    assert_eq!(s.get(take).await, "", "both are held");
    let wait = "call trax.await_token('licence', 'me', 2, '1 min', '0.05 s', null, null, null)";
    assert_eq!(s.get(wait).await, "||");
    let extend = format!("select trax.extend_token('licence', '{token}', '1 min')");
    assert_eq!(s.get(&extend).await, "t");
    let release = format!("select trax.release_token('licence', '{token}')");
    assert_eq!(s.get(&release).await, "t");
    let got = s.get(wait).await;
    assert!(got.starts_with("2|"), "{got}");
}

#[tokio::test]
async fn a_job_that_may_run_anywhere_gets_its_shard_from_few_rows_and_each_gets_its_part() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    s.get("begin").await;
    let picked = "select string_agg(format('%s %s', shard, n between 420 and 580), ' ' order by shard)
        from (
            select shard, count(*) n
            from (select trax_router.shard_of_group('default') shard from generate_series(1, 1500)) picks
            group by shard
        ) parts";
    assert_eq!(s.get(picked).await, "1 t 2 t 3 t");
    let read = "select sum(seq_tup_read + idx_tup_fetch) from pg_stat_xact_user_tables
        where schemaname = 'trax_router' and relname in ('place', 'shard')";
    let read = s.number(read).await;
    assert!(read <= 20 * 1500, "{read} rows for 1,500 jobs");
    s.get("commit").await;
    let left = "select concat_ws(' ', trax_router.shard_of_group('default', tried => '{1,3}'),
        trax_router.shard_of_group('default', tried => '{1,2,3}') is null)";
    assert_eq!(s.get(left).await, "2 t");
}
