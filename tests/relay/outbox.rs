//! `outbox.sql` by itself: the signature and refusals of `trax.enqueue`, transactions, rights,
//! and a second install.

use super::{outbox_on, play};
use harness::scheduler::new_name;
use harness::session::{Session, session};
use harness::shared_server;
use std::future::poll_fn;
use tokio_postgres::{AsyncMessage, NoTls};

const ENQUEUE: &str = "select p.proname, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid), p.provolatile
    from pg_proc p where p.proname = 'enqueue'";

#[tokio::test]
async fn the_arguments_of_enqueue_are_those_of_the_extension() {
    let (_target_database, target) = session().await;
    let (_source_database, source) = outbox_on(shared_server()).await;
    let wanted = target.get(ENQUEUE).await;
    assert!(wanted.contains("cost integer DEFAULT 1"), "{wanted}");
    assert_eq!(source.get(ENQUEUE).await, wanted);
    assert_eq!(
        source
            .get("select count(*) from pg_extension where extname like 'trax%'")
            .await,
        "0"
    );
    let columns = "select string_agg(attname, ', ' order by attnum) from pg_attribute
        where attrelid = 'trax_outbox.entry'::regclass and attnum > 3 and attname <> 'target'";
    let names = "select array_to_string(proargnames, ', ') from pg_proc where oid = 'trax_outbox.enqueue'::regproc";
    assert_eq!(source.get(columns).await, source.get(names).await);
}

#[tokio::test]
async fn what_the_extension_refuses_the_outbox_refuses_with_the_same_words() {
    let (_target_database, target) = session().await;
    let (_source_database, source) = outbox_on(shared_server()).await;
    for arguments in [
        "null",
        "''",
        "repeat('x', 256)",
        "repeat('é', 128)",
        "' mail'",
        "E'mail\\n'",
        "' '",
        "'sql'",
        "'t', run_at => 'infinity'",
        "'t', run_at => '-infinity'",
        "'t', run_at => '200000-01-01 00:00Z'",
        "'t', group_name => ''",
        "'t', group_name => repeat('x', 256)",
        "'t', group_name => 'it''s '",
        "'t', priority => -1",
        "'t', priority => 32",
        "'t', max_retries => -1",
        "'t', max_retries => 2147483647",
        "'t', timeout => '0 s'",
        "'t', timeout => '-1.5 s'",
        "'t', timeout => '11 years'",
        "'t', timeout => '1 month -1 day'",
        "'t', timeout => '-1 day -1 hour'",
        "'t', timeout => '1 day -25 hours'",
        "'t', retry_delay => '-1 s'",
        "'t', unique_key => ''",
        "'t', unique_key => repeat('x', 256)",
        "'t', unique_for => '1 hour'",
        "'t', unique_key => 'k', unique_for => '0 s'",
        "'t', concurrency_key => ''",
        "'t', version => ''",
        "'t', version => ' v1'",
        "'t', rate => ''",
        "'t', rate_key => 'k'",
        "'t', cost => 2",
        "'t', rate => 'r', cost => 0",
    ] {
        let wanted = target
            .refusal(&format!("select trax.enqueue({arguments})"))
            .await;
        let found = source
            .refusal(&format!("select trax_outbox.enqueue({arguments})"))
            .await;
        assert_eq!(found, wanted, "{arguments}");
    }
    assert_eq!(
        source
            .number("select count(*) from trax_outbox.entry")
            .await,
        0
    );
}

#[tokio::test]
async fn an_input_has_the_same_limit_of_bytes_compressed_or_not() {
    let (_target_database, target) = session().await;
    let (_source_database, source) = outbox_on(shared_server()).await;
    // An object with one text: it takes 20 more bytes in the target.
    for (length, is_taken) in [(1024 * 1024 - 32, true), (1024 * 1024 + 1, false)] {
        let input = format!("jsonb_build_object('k', repeat('x', {length}))");
        let wanted = target
            .attempt(&format!("select trax.enqueue('t', {input})"))
            .await;
        let found = source
            .attempt(&format!("select trax_outbox.enqueue('t', {input})"))
            .await;
        assert_eq!(
            (wanted.is_ok(), found.is_ok()),
            (is_taken, is_taken),
            "{length}"
        );
        if let (Err(wanted), Err(found)) = (wanted, found) {
            assert_eq!((found.code, found.message), (wanted.code, wanted.message));
        }
    }
    source
        .get("create table kept as select jsonb_build_object('k', repeat('x', 1048577)) as input")
        .await;
    assert!(
        source
            .number("select pg_column_size(input) from kept")
            .await
            < 100_000,
        "it is compressed"
    );
    for argument in ["input", "trace"] {
        let sql = format!("select trax_outbox.enqueue('t', {argument} => input) from kept");
        let refusal = source.refusal(&sql).await;
        assert_eq!(refusal.code, "54000");
        assert_eq!(refusal.message, format!("the {argument} is too large"));
    }
    // The owner sets the limit; a setting of that name, which any role could make, has no effect.
    source.get("set trax_outbox.max_input_bytes = '2MB'").await;
    let enqueue = "select trax_outbox.enqueue('t', input) from kept";
    assert_eq!(source.refusal(enqueue).await.code, "54000");
    source
        .get("update trax_outbox.relay set max_input_bytes = 2097152")
        .await;
    source.get(enqueue).await;
    let beyond = "update trax_outbox.relay set max_input_bytes = 67108865";
    assert_eq!(source.refusal(beyond).await.code, "23514");
}

#[tokio::test]
async fn a_row_is_there_when_its_transaction_has_committed() {
    let (database, source) = outbox_on(shared_server()).await;
    let other = Session::of(&database).await;
    source
        .get("begin; select trax_outbox.enqueue('undone')")
        .await;
    source.get("rollback; begin").await;
    let id = source
        .get("select trax_outbox.enqueue('kept', null, priority => null)")
        .await;
    assert_eq!(
        other.get("select count(*) from trax_outbox.entry").await,
        "0"
    );
    source.get("commit").await;
    let seen =
        "select id, task, input, priority, queued_at <= clock_timestamp() from trax_outbox.entry";
    assert_eq!(other.get(seen).await, format!("{id}|kept|{{}}||t"));
    assert_eq!(
        other
            .get("select waiting, oldest_age >= '0', refused, unfinished from trax_outbox.lag")
            .await,
        "1|t|0|0"
    );
}

#[tokio::test]
async fn a_refused_row_that_is_tried_again_is_the_same_row() {
    let (_database, source) = outbox_on(shared_server()).await;
    source
        .get("set intervalstyle = iso_8601;
              select trax_outbox.enqueue('t''\"\\', 'null', '2030-01-01', 'g', 3, 4, '1 month 2 days 3.5 s', 'k', 'c',
                  '{\"n\": 1.50}', '1 s', '1 h')")
        .await;
    let everything = "select e from trax_outbox.entry e";
    let before = source.get(everything).await;
    source
        .get(
            "insert into trax_outbox.refused (id, sqlstate, error, entry)
              select id, '22023', 'no', to_jsonb(e) from trax_outbox.entry e;
              delete from trax_outbox.entry",
        )
        .await;
    let id = source.number("select id from trax_outbox.refused").await;
    assert_eq!(
        source.get(&format!("select trax_outbox.retry({id})")).await,
        "t"
    );
    assert_eq!(source.get(everything).await, before);
    assert_eq!(
        source.get(&format!("select trax_outbox.retry({id})")).await,
        "f"
    );
    assert_eq!(
        source
            .number("select count(*) from trax_outbox.refused")
            .await,
        0
    );
}

#[tokio::test]
async fn a_level_allows_what_it_says_and_no_more() {
    let (database, source) = outbox_on(shared_server()).await;
    let role = new_name("app");
    source.get(&format!("create role {role} login")).await;
    let app = Session::as_role(&database, &role).await;
    let enqueue = "select trax_outbox.enqueue('t')";
    let rows = "select count(*) from trax_outbox.entry";
    let delete = "delete from trax_outbox.entry";
    for (level, may) in [
        ("none", [false, false, false]),
        ("producer", [true, false, false]),
        ("reader", [false, true, false]),
        ("relay", [false, true, true]),
        ("none", [false, false, false]),
    ] {
        source
            .get(&format!(
                "select trax_outbox.grant_access('{role}', '{level}')"
            ))
            .await;
        for (sql, may) in [enqueue, rows, delete].into_iter().zip(may) {
            let done = app.attempt(sql).await;
            assert_eq!(done.is_ok(), may, "{level}: {sql}: {done:?}");
            if let Err(refusal) = done {
                assert_eq!(refusal.code, "42501");
            }
        }
    }
    let refusal = source
        .refusal(&format!(
            "select trax_outbox.grant_access('{role}', 'everything')"
        ))
        .await;
    assert_eq!(
        refusal.hint,
        "Specify one of: producer, relay, reader, none."
    );
    let refusal = source
        .refusal("select trax_outbox.grant_access(null, 'reader')")
        .await;
    assert_eq!(refusal.code, "22004", "{refusal}");
    source.get("delete from trax_outbox.relay").await;
    let refusal = source.refusal(enqueue).await;
    assert!(refusal.hint.contains("--outbox-sql"), "{refusal}");
    source.get(&format!("drop role {role}")).await;
}

#[tokio::test]
async fn installing_again_keeps_rows_rights_and_the_identity() {
    let (database, source) = outbox_on(shared_server()).await;
    let role = new_name("app");
    source
        .get(&format!(
            "create role {role} login; select trax_outbox.grant_access('{role}', 'producer')"
        ))
        .await;
    let app = Session::as_role(&database, &role).await;
    app.get("select trax_outbox.enqueue('t')").await;
    let everything = "select r.source, e.key, e.id from trax_outbox.relay r, trax_outbox.entry e";
    let before = source.get(everything).await;
    play(shared_server(), &database, "outbox.sql");
    assert_eq!(source.get(everything).await, before);
    app.get("select trax_outbox.enqueue('t')").await;
    let public = "select count(*) from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        where p.pronamespace = 'trax_outbox'::regnamespace and a.grantee = 0";
    assert_eq!(
        source.number(public).await,
        0,
        "nothing is granted to PUBLIC"
    );
    app.get("create temp table entry (id int); set search_path = pg_temp, public")
        .await;
    app.get("select trax_outbox.enqueue('t')").await;
    assert_eq!(
        source
            .number("select count(*) from trax_outbox.entry")
            .await,
        3
    );
    source
        .get(&format!("drop owned by {role}; drop role {role}"))
        .await;
}

#[tokio::test]
async fn only_a_sleeping_relay_is_notified() {
    let (database, source) = outbox_on(shared_server()).await;
    let (client, mut connection) = database.config().connect(NoTls).await.expect("it connects");
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                heard.send(notification.payload().to_owned()).ok();
            }
        }
    });
    client
        .batch_execute("listen trax_outbox")
        .await
        .expect("it listens");
    for sql in [
        "select trax_outbox.enqueue('awake')",
        "notify trax_outbox, 'the relay falls asleep'",
        "insert into trax_outbox.target (target, name, asleep) values (gen_random_uuid(), 'jobs', true)",
        "begin; select trax_outbox.enqueue('a'); select trax_outbox.enqueue('b'); commit",
        "notify trax_outbox, 'end'",
    ] {
        source.get(sql).await;
    }
    for wanted in ["the relay falls asleep", "", "end"] {
        assert_eq!(hears.recv().await.as_deref(), Some(wanted));
    }
}

#[tokio::test]
async fn an_encoding_that_nobody_knows_is_refused() {
    let admin = Session::with(shared_server().config("postgres")).await;
    let name = new_name("ascii");
    admin
        .get(&format!(
            "create database {name} encoding 'SQL_ASCII' locale 'C' template template0"
        ))
        .await;
    let database = shared_server().existing(&name);
    let session = Session::of(&database).await;
    let file = std::fs::read_to_string(super::sql_file("outbox.sql")).expect("it is text");
    let refusal = session.refusal(&file).await;
    assert_eq!(refusal.code, "0A000");
    assert!(refusal.hint.contains("encoding 'UTF8'"), "{refusal}");
}
