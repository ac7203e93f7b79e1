//! Jobs by COPY and INSERT into `trax.new_job`: the resulting jobs, and the refused rows.

use harness::process::{Scratch, run_quietly};
use harness::session::{Refusal, Session, session};
use harness::shared_server;
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};
use trax_client::testkit::Database;
use trax_client::{Client, JobOptions, NewJob};

/// Every column of a waiting job that a row of `trax.new_job` sets.
const QUEUED: &str =
    "select task, input, run_at - queued_at, waits_for, group_name, priority, max_retries, timeout,
        unique_key, concurrency_key, trace, retry_delay, version, rate, rate_key, cost
    from trax.work_queue
    where task <> 'batch'
    order by job_id";

/// Returns psql's messages for a `\copy` of this text.
fn copy_by_psql(db: &Database, text: &str, table_and_options: (&str, &str)) -> String {
    let files = Scratch::new("new_job");
    let path = files.path().join("rows");
    std::fs::write(&path, text).expect("a file can be written");
    let (table, options) = table_and_options;
    let copy = format!("\\copy {table} from '{}' {options}", path.display());
    let mut psql = shared_server().command("psql");
    run_quietly(psql.args(["-X", "-d", db.name(), "-c", &copy]))
}

#[tokio::test]
async fn a_row_of_text_or_csv_is_the_job_that_enqueue_makes_of_the_same_values() {
    let (db, s) = session().await;
    s.get(
        "select trax.configure_rate('api', 5, '1 min');
         select trax.enqueue('a', '{\"n\": 1}'), trax.enqueue('b'), trax.enqueue('a', '[2]', priority => 31);
         select trax.enqueue('c', '3', null, 'g', 7, 2, '90 s', 'u', 'k', '{\"id\": 5}', '7 s', '1 h', 'v1', null, 'api', 'r', 2, 'keep')",
    )
    .await;
    let enqueued = s.get(QUEUED).await;
    s.get("truncate trax.work_queue, trax.unique_key").await;

    let rows = "task,input,priority\na,\"{\"\"n\"\": 1}\",\nb,,0\na,[2],31\n";
    let table = ("trax.new_job (task, input, priority)", "csv header");
    assert_eq!(copy_by_psql(&db, rows, table), "COPY 3\n");
    let batch = s.number("select trax.open_batch('batch')").await;
    let whole = format!(
        "c\t3\t\\N\tg\t7\t2\t00:01:30\tu\tk\t{{\"id\": 5}}\t00:00:07\t01:00:00\tv1\t{batch}\tapi\tr\t2\tkeep\n"
    );
    let said = copy_by_psql(&db, &whole, ("trax.new_job", ""));
    assert_eq!(said, "COPY 1\n");
    assert_eq!(s.get(QUEUED).await, enqueued);
    let sealed = format!("select trax.seal_batch({batch})");
    assert_eq!(s.number(&sealed).await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_client_copies_every_option_and_a_job_without_any() {
    let (_db, s) = session().await;
    let later = SystemTime::now() + Duration::from_secs(3600);
    let options = JobOptions::new()
        .run_at(later)
        .group("g")
        .priority(7)
        .max_retries(2)
        .timeout(Duration::from_secs(90))
        .unique_key("u")
        .concurrency_key("k")
        .trace(serde_json::json!(5))
        .retry_delay(Duration::from_secs(7))
        .version("v1")
        .rate("api")
        .rate_key("r")
        .cost(2);
    s.get("select trax.configure_rate('api', 5, '1 min')").await;
    let (whole, bare) = (NewJob::new("c", "é"), NewJob::new("a", "é"));
    let copied = Client::new(s.client())
        .enqueue_all([whole.with(options), bare])
        .await;
    assert_eq!(copied.expect("both are good"), 2);
    let sql = QUEUED.replace("run_at - queued_at", "run_at > now() + interval '50 min'");
    assert_eq!(
        s.get(&sql).await,
        "c|\"é\"|t|time|g|7|2|00:01:30|u|k|5|00:00:07|v1|api|r|2\na|\"é\"|f||default|0||||||||||"
    );
}

#[tokio::test]
async fn very_many_jobs_of_one_copy_are_claimed_in_order_and_not_before_its_commit() {
    let (db, mut s) = session().await;
    let other = Session::of(&db).await;
    let transaction = s.transaction().await;
    let all = harness::many(100_000);
    let jobs = (0..all).map(|n| NewJob::new("t", n));
    let copied = Client::new(&transaction).enqueue_all(jobs).await;
    assert_eq!(i64::try_from(copied.expect("all are good")), Ok(all));
    assert_eq!(other.claim("").await, []);
    transaction.commit().await.expect("the COPY is committed");
    let mut inputs: Vec<i64> = Vec::new();
    loop {
        let claimed = other
            .get("select input from trax.claim_next(max_jobs => 1000)")
            .await;
        if claimed.is_empty() {
            break;
        }
        inputs.extend(claimed.lines().map(|n| n.parse::<i64>().expect("a number")));
    }
    assert!(inputs.iter().copied().eq(0..all), "{} jobs", inputs.len());
    other.assert_healthy().await;
}

/// Rows that each differ from the previous one in one column or only in the input: the bits of a
/// Gray code.
const KINDS: &str = "'t' || (g & 1), to_jsonb(n), case when g & 2 > 0 then timestamptz '2099-01-01Z' end,
    'g' || (g >> 2 & 1), g >> 3 & 1, nullif(g >> 4 & 1, 0), case when g & 32 > 0 then interval '90 s' end,
    'k' || (g >> 6 & 1), case when g & 128 > 0 then to_jsonb('x'::text) end,
    case when g & 256 > 0 then interval '7 s' end";

#[tokio::test]
async fn rows_that_differ_in_one_column_keep_their_order_and_their_own_options() {
    let (_db, s) = session().await;
    let columns = "task, input, run_at, group_name, priority, max_retries, timeout, concurrency_key, trace, retry_delay";
    s.get(&format!(
        "insert into trax.new_job ({columns})
         select {KINDS} from (select n, n # (n >> 1) as g from generate_series(0, 2999) n) n"
    ))
    .await;
    let queued = columns.replace("run_at", "nullif(run_at, queued_at)");
    let wrong = format!(
        "select count(*)
         from (select n # (n >> 1) as g, w.*
             from (select row_number() over (order by job_id)::int - 1 as n, * from trax.work_queue) w) w
         where ({queued}) is distinct from ({KINDS})"
    );
    assert_eq!(s.number(&wrong).await, 0);
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 3000);
    let lanes = "select count(distinct lane_id) from trax.work_queue";
    assert_eq!(s.number(lanes).await, 4);
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_is_rolled_back_was_never_there() {
    let (_db, s) = session().await;
    let before = s.everything().await;
    s.get(
        "begin;
         savepoint first;
         insert into trax.new_job (task, unique_key) select 't', n from generate_series(1, 2000) n;
         rollback to first",
    )
    .await;
    assert_eq!(s.claim("").await, []);
    s.get("insert into trax.new_job (task) values ('kept')")
        .await;
    assert_eq!(s.claim("").await.len(), 1, "a claim of its own sees it");
    s.get("rollback").await;
    assert_eq!(s.everything().await, before);
    s.get("begin isolation level repeatable read; select 1; insert into trax.new_job (task) values ('t'); commit")
        .await;
    assert_eq!(s.claim("").await.len(), 1);
}

#[tokio::test]
async fn the_first_row_with_a_unique_key_that_is_not_alive_queues_its_job() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue('runs', unique_key => 'runs'), trax.enqueue('waits', unique_key => 'waits')")
        .await;
    s.claim_one("tasks => '{runs}'").await;
    let sql = "insert into trax.new_job (task, input, unique_key)
        select 't', to_jsonb(n), coalesce((array['runs', 'waits', 'a', 'a', 'b', 'a', null])[n], 'many')
        from generate_series(1, 3000) n";
    s.get(sql).await;
    let queued =
        "select input, unique_key from trax.work_queue where task = 't' order by job_id limit 4";
    assert_eq!(s.get(queued).await, "3|a\n5|b\n7|many");
    let keys = "select count(*) from trax.unique_key";
    assert_eq!(s.number(keys).await, 5);
    s.assert_healthy().await;
}

#[tokio::test]
async fn of_two_copies_with_the_same_keys_the_second_waits_and_queues_what_is_left() {
    for (end, left) in [("commit", 1), ("rollback", 3)] {
        let (db, s) = session().await;
        let second = Session::of(&db).await;
        let pid = second.pid();
        s.get("begin; insert into trax.new_job (task, unique_key) values ('first', 'b'), ('first', 'a')")
            .await;
        let waiting = second.spawn(
            "insert into trax.new_job (task, unique_key) values ('second', 'a'), ('second', 'b'), ('second', 'c')",
        );
        s.sees_waiting(pid).await;
        s.get(end).await;
        let (second, result) = waiting.await.expect("it does not panic");
        result.expect("a key that is alive is no error");
        let sql = "select count(*) from trax.work_queue where task = 'second'";
        assert_eq!(second.number(sql).await, left, "after {end}");
        second.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_key_whose_job_is_being_completed_is_alive_and_nobody_waits() {
    let (db, s) = session().await;
    s.get("select trax.enqueue('t', unique_key => 'k')").await;
    let job = s.claim_one("").await;
    s.get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    let other = Session::of(&db).await;
    other
        .get("set lock_timeout = '10 s'; insert into trax.new_job (task, unique_key) values ('t', 'k')")
        .await;
    s.get("commit").await;
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
    s.assert_healthy().await;
}

/// The values of the last of 1,500 rows, the SQLSTATE, and text that the message contains.
const MISTAKES: [(&str, &str, &str); 15] = [
    ("(task) values (null)", "22004", "task"),
    ("(input) values ('1')", "22004", "task"),
    ("(task) values ('')", "22023", "task"),
    ("(task) values (repeat('x', 256))", "54000", "task"),
    ("(task, priority) values ('t', 32)", "22023", "priority"),
    (
        "(task, max_retries) values ('t', -1)",
        "22023",
        "max_retries",
    ),
    ("(task, timeout) values ('t', '0')", "22023", "timeout"),
    (
        "(task, unique_for) values ('t', '1 h')",
        "22023",
        "unique_for",
    ),
    (
        "(task, unique_key, unique_for) values ('t', 'k', '0')",
        "22023",
        "unique_for",
    ),
    (
        "(task, retry_delay) values ('t', '-1 s')",
        "22023",
        "retry_delay",
    ),
    ("(task, run_at) values ('t', 'infinity')", "22023", "run_at"),
    (
        "(task, run_at) values ('t', '200000-01-01Z')",
        "22023",
        "year",
    ),
    ("(task, unique_key) values ('t', '')", "22023", "unique_key"),
    (
        "(task, input) values ('t', to_jsonb(repeat('x', 2000000)))",
        "54000",
        "input",
    ),
    (
        "(task, trace) values ('t', to_jsonb(repeat('x', 2000000)))",
        "54000",
        "trace",
    ),
];

#[tokio::test]
async fn a_mistake_names_its_row_says_what_to_type_and_leaves_nothing() {
    let (_db, s) = session().await;
    let before = s.everything().await;
    for (values, code, named) in MISTAKES {
        let refusal = s
            .refusal(&format!("insert into trax.new_job {values}"))
            .await;
        assert_eq!(refusal.code, code, "{values}: {refusal}");
        assert!(refusal.message.starts_with("row 1: "), "{refusal}");
        assert!(refusal.message.contains(named), "{refusal}");
        assert!(
            !refusal.detail.is_empty() && !refusal.hint.is_empty(),
            "{refusal}"
        );
    }
    let late = "insert into trax.new_job (task, priority) select 't', n / 1500 * 32 from generate_series(1, 2000) n";
    let refusal = s.refusal(late).await;
    assert!(refusal.message.starts_with("row 1500: "), "{refusal}");
    let jobs = (1..=1500).map(|n| NewJob::new(if n < 1500 { "t" } else { "" }, n));
    let refused = Client::new(s.client()).enqueue_all(jobs).await;
    let refused = refused.expect_err("the last has no task").to_string();
    assert!(refused.starts_with("row 1500: "), "{refused}");
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn a_copy_whose_commit_fails_is_not_acknowledged() {
    let (_db, s) = session().await;
    s.get(
        "create function public.refuses() returns trigger language plpgsql as
             'begin raise exception ''not today''; end';
         create constraint trigger late after insert on trax.work_queue
             deferrable initially deferred for each row execute function public.refuses()",
    )
    .await;
    let client = Client::new(s.client());
    let refused = client.enqueue_all([NewJob::new("t", 1)]).await;
    let refused = refused.expect_err("the commit fails").to_string();
    assert!(refused.contains("not today"), "{refused}");
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
    // In the caller's own transaction the client commits nothing.
    s.get("drop trigger late on trax.work_queue").await;
    s.get("begin").await;
    let queued = client.enqueue_all([NewJob::new("t", 1)]).await;
    assert_eq!(queued.expect("it goes on"), 1);
    s.get("rollback").await;
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
    let queued = client.enqueue_all([NewJob::new("t", 1)]).await;
    assert_eq!(queued.expect("it commits"), 1);
    s.get("rollback").await;
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 1);
}

#[tokio::test]
async fn a_copy_that_is_dropped_queues_nothing() {
    let (_db, s) = session().await;
    let client = Client::new(s.client());
    let mut copy = client.copy_in().await.expect("a COPY begins");
    for n in 0..3000 {
        let added = copy.add(&NewJob::new("t", n)).await;
        added.expect("the server takes it");
    }
    drop(copy);
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
}

#[tokio::test]
async fn what_only_a_table_can_do_is_refused_and_says_what_can_be_typed() {
    let (_db, s) = session().await;
    let before = s.everything().await;
    for (sql, hint) in [
        ("select * from trax.new_job", "trax.job"),
        ("update trax.new_job set task = 'b'", "trax.job"),
        ("delete from trax.new_job", "trax.cancel(job_id)"),
        (
            "insert into trax.new_job (task) values ('t') returning task",
            "trax.enqueue(task, input)",
        ),
        (
            "insert into trax.new_job (task) values ('t') on conflict do nothing",
            "ON CONFLICT",
        ),
    ] {
        let refusal = s.refusal(sql).await;
        assert_eq!(refusal.code, "0A000", "{sql}: {refusal}");
        assert!(refusal.message.contains("trax.new_job"), "{refusal}");
        assert!(refusal.hint.contains(hint), "{refusal}");
    }
    let another = "create foreign table mine (task text, input text) server trax;
        insert into mine values ('t', '1')";
    let refusal: Refusal = s.refusal(another).await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn rows_come_from_functions_other_tables_partitions_and_views() {
    let (_db, s) = session().await;
    let sql = "create table staged as select 'staged' as task, to_jsonb(n) as input from generate_series(1, 1500) n;
        create table event (input jsonb, task text, kind text) partition by list (kind);
        create view jobs as select input, task from trax.new_job;
        with moved as (delete from staged returning *)
        insert into trax.new_job (task, input) select task, input from moved;
        insert into jobs values ('1', 'view');
        create function queue() returns bigint language sql as $$
            insert into trax.new_job (task) values ('function');
            select count(*) from trax.work_queue where task = 'function'
        $$;
        create table parent (like trax.new_job) partition by list (task);
        alter table parent attach partition trax.new_job default;
        insert into parent (input, task) values ('1', 'partition');
        explain (analyze) insert into trax.new_job (task) values ('analyzed');
        explain insert into trax.new_job (task) values ('explained');
        explain insert into parent (task) values ('explained');
        alter table parent detach partition trax.new_job";
    s.get(sql).await;
    let queued = s.get("select queue()").await;
    assert_eq!(queued, "1", "the next statement sees it");
    let tasks: BTreeSet<String> = s
        .get("select task || ' ' || count(*) from trax.work_queue group by task")
        .await
        .lines()
        .map(str::to_owned)
        .collect();
    let expected = [
        "analyzed 1",
        "function 1",
        "partition 1",
        "staged 1500",
        "view 1",
    ];
    assert_eq!(tasks, expected.map(str::to_owned).into());
    assert_eq!(s.get("select count(*) from staged").await, "0");
    s.assert_healthy().await;
}

/// Each row records the session's memory when it arrives; traces are stored out of line.
const LARGE: &str = "create function held() returns numeric language sql volatile as $$
        select sum(total_bytes) from pg_backend_memory_contexts
    $$;
    create table staged (trace jsonb);
    alter table staged alter trace set storage external;
    insert into staged select to_jsonb(repeat('x', 1000000)) from generate_series(1, 60);
    insert into trax.new_job (task, input, trace)
    select 't', jsonb_build_object('text', repeat('x', 1000000), 'held', held()), trace from staged";

#[tokio::test]
async fn rows_of_megabytes_do_not_heap_up_in_memory() {
    let (_db, s) = session().await;
    s.get(LARGE).await;
    let held = "select max((input ->> 'held')::bigint) - min((input ->> 'held')::bigint) from trax.work_queue";
    let held = s.number(held).await;
    assert!((1_000_000..20_000_000).contains(&held), "{held} bytes");
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 60);
}
