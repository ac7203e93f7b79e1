//! Shards: ids assigned by several databases never collide.

use harness::session::{Session, session};

const LIMITS: &str = "select distinct seqmin, seqmax, seqmin >> 43, seqmax >> 43 from pg_sequence
    where seqrelid in ('trax.work_queue_job_id_seq'::regclass, 'trax.dead_letter_id_seq'::regclass)";

#[tokio::test]
async fn every_id_carries_the_number_of_its_shard() {
    let (_db, s) = session().await;
    s.get("select trax.set_shard(1023)").await;
    let job = s.enqueue("'a', max_retries => 0").await;
    assert_eq!(job, (1023 << 43) + 1);
    let many = "select string_agg(trax.shard_of(id) || ':' || (id & 7), ' ' order by id)
        from trax.enqueue_many('b', array['1', '2', '3']::jsonb[]) id";
    assert_eq!(s.get(many).await, "1023:2 1023:3 1023:4");
    s.get("insert into trax.new_job (task) values ('c')").await;
    s.get("select trax.schedule('m', 'd', every => '1 h'); select trax.trigger('m')")
        .await;
    let shards =
        "select string_agg(distinct trax.shard_of(job_id)::text, ' '), count(*) from trax.job";
    assert_eq!(s.get(shards).await, "1023|6");
    let enqueued = "select value from trax.metrics() where name = 'trax_enqueued_total'";
    assert_eq!(s.get(enqueued).await, "6");

    // Calls by id work as with small ids, and the largest id is exact in JSON.
    let claimed = s.claim_one("tasks => '{a}'").await;
    assert_eq!(claimed.id, job);
    s.get(&format!("select trax.fail({}, 'broken')", claimed.key()))
        .await;
    let letter = s.number("select id from trax.dead_letter").await;
    assert_eq!(letter, (1023 << 43) + 1);
    let requeued = s
        .number(&format!("select trax.requeue_dead_letter({letter})"))
        .await;
    assert!(requeued > job && requeued < 1 << 53);
    assert_eq!(
        s.get(&format!("select trax.cancel({requeued})")).await,
        "cancelled"
    );
    s.get("select trax.complete(job_id, token) from trax.claim_next(max_jobs => 9)")
        .await;
    assert_eq!(s.get("select count(*) from trax.work_queue").await, "0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_number_is_set_before_the_first_id_and_not_after_it() {
    let (_db, s) = session().await;
    assert_eq!(s.get(LIMITS).await, format!("1|{}|0|1048575", i64::MAX));
    for number in [5, 3, 3] {
        s.get(&format!("select trax.set_shard({number})")).await;
        let (first, last) = ((number << 43) + 1, ((number + 1) << 43) - 1_i64);
        let wanted = format!("{first}|{last}|{number}|{number}");
        assert_eq!(s.get(LIMITS).await, wanted);
    }
    let acts = "select string_agg(action || ' ' || note, ', ' order by id) from trax.audit";
    let said = "set_shard 5, set_shard 3, set_shard 3";
    assert_eq!(s.get(acts).await, said);
    let job = s.enqueue("'a'").await;
    let refusal = s.refusal("select trax.set_shard(4)").await;
    assert_eq!(refusal.code, "55000");
    assert_eq!(refusal.message, "this database has given ids as shard 3");
    assert!(refusal.detail.contains(&job.to_string()), "{refusal}");
    assert!(refusal.hint.contains("Keep the number 3"), "{refusal}");
    s.get("select trax.set_shard(3)").await;
    assert_eq!(s.enqueue("'a'").await, job + 1);
    assert_eq!(s.get(acts).await, format!("{said}, set_shard 3"));
}

#[tokio::test]
async fn a_database_without_a_number_that_has_given_ids_is_shard_0() {
    let (_db, s) = session().await;
    let job = s.enqueue("'a'").await;
    assert_eq!(s.number(&format!("select trax.shard_of({job})")).await, 0);
    let refusal = s.refusal("select trax.set_shard(1)").await;
    assert_eq!(refusal.code, "55000");
    s.get("select trax.set_shard(0)").await;
    assert_eq!(s.get(LIMITS).await, format!("1|{}|0|0", (1_i64 << 43) - 1));
    assert_eq!(s.enqueue("'a'").await, job + 1);
}

#[tokio::test]
async fn a_number_waits_for_the_transaction_that_has_taken_the_first_id() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get("begin; select trax.enqueue('a')").await;
    let pid = other.pid();
    let setting = other.spawn("select trax.set_shard(9)");
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (_other, set) = setting.await.expect("it does not panic");
    assert_eq!(set.expect_err("an id was given").code, "55000");

    // The reverse case: a session that waits for an id during the change gets one of the new shard.
    let (db, s) = session().await;
    let late = Session::of(&db).await;
    let pid = late.pid();
    s.get("begin; select trax.set_shard(9)").await;
    let enqueueing = late.spawn("select trax.enqueue('a')");
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (_late, job) = enqueueing.await.expect("it does not panic");
    assert_eq!(job, Ok(((9_i64 << 43) + 1).to_string()));
}

#[tokio::test]
async fn the_last_id_of_a_shard_is_not_the_first_of_the_next() {
    let (_db, s) = session().await;
    s.get("select trax.set_shard(2)").await;
    let last = (3_i64 << 43) - 1;
    s.get(&format!(
        "select setval('trax.work_queue_job_id_seq', {})",
        last - 1
    ))
    .await;
    assert_eq!(s.enqueue("'a'").await, last);
    assert_eq!(s.refusal("select trax.enqueue('a')").await.code, "2200H");
    assert_eq!(s.number(&format!("select trax.shard_of({last})")).await, 2);
    assert_eq!(s.claim_ids("").await, [last]);
}

#[tokio::test]
async fn a_number_that_is_none_is_refused_with_words() {
    let (_db, s) = session().await;
    for (number, code) in [("-1", "22023"), ("1024", "22023"), ("null", "22004")] {
        let refusal = s.refusal(&format!("select trax.set_shard({number})")).await;
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.message.contains("argument \"number\""), "{refusal}");
        assert!(refusal.hint.contains("trax.set_shard(1)"), "{refusal}");
    }
}
