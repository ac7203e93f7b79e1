//! The partitions of history that cycles make and drop.

use harness::session::{Session, session};

#[tokio::test]
async fn a_cycle_makes_partitions_ahead_and_drops_old_ones() {
    let (db, s) = session().await;
    s.get(
        "select trax.make_run_partitions(now() - interval '10 days', 0), trax.make_run_partitions(now() - interval '6 days', 0);
         do $$ begin
             execute 'drop table trax.run_' || to_char((now() at time zone 'UTC')::date + 2, 'YYYYMMDD');
         end $$",
    )
    .await;
    let acted =
        "select string_agg(step || ' ' || affected, ',') from trax.tick() where affected > 0";
    assert_eq!(
        Session::of(&db).await.get(acted).await,
        "make_partitions 1,drop_partitions 1"
    );
    let days = "select string_agg((to_date(right(c.relname, 8), 'YYYYMMDD') - (now() at time zone 'UTC')::date)::text, ','
                    order by c.relname)
                from pg_inherits i join pg_class c on c.oid = i.inhrelid
                where i.inhparent = 'trax.run'::regclass and c.relname <> 'run_default'";
    assert_eq!(s.get(days).await, "-6,0,1,2,3");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_reader_of_history_does_not_hold_a_cycle_up() {
    let (db, reader) = session().await;
    let s = Session::of(&db).await;
    s.get("select trax.make_run_partitions(now() - interval '10 days', 0); select trax.schedule('m', 'a', every => '1 h')").await;
    reader.get("begin; select count(*) from trax.run").await;
    let ticker = Session::of(&db).await;
    ticker.get("set statement_timeout = '10 s'").await;
    assert_eq!(ticker.tick("queue_due").await, 1);
    reader.get("commit").await;
    assert_eq!(
        Session::of(&db).await.tick("drop_partitions").await,
        1,
        "left for a later cycle"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_run_without_a_partition_of_its_day_is_not_lost() {
    let (db, s) = session().await;
    s.get("do $$ begin execute 'drop table trax.run_' || to_char(now() at time zone 'UTC', 'YYYYMMDD'); end $$").await;
    s.enqueue("'a'").await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    assert_eq!(s.number("select count(*) from trax.run_default").await, 1);
    assert_ne!(
        Session::of(&db)
            .await
            .get("select * from trax.tick()")
            .await,
        "",
        "the cycle goes on"
    );
    s.assert_healthy().await;
}
