//! Texts that the other side cannot store or would read differently.

use super::{Relay, Side, a_target, pair, play, trax_relay};
use harness::scheduler::new_name;
use harness::session::Session;
use harness::shared_server;

/// An outbox in a database with this encoding, and a target.
async fn pair_with(encoding: &str) -> (Side, Side) {
    let admin = Session::with(shared_server().config("postgres")).await;
    let name = new_name("outbox");
    admin
        .get(&format!(
            "create database {name} encoding '{encoding}' locale 'C' template template0"
        ))
        .await;
    let database = shared_server().existing(&name);
    play(shared_server(), &database, "outbox.sql");
    let session = Session::of(&database).await;
    (Relay::side(database, session), a_target().await)
}

/// Ends the jobs `good` and `bad` with these texts.
async fn end_both(target: &Side, output: &str, error: &str) {
    let good = target.claim_one("tasks => '{good}'").await;
    target
        .get(&format!(
            "select trax.complete({}, '{{\"t\": \"{output}\"}}')",
            good.key()
        ))
        .await;
    let bad = target.claim_one("tasks => '{bad}'").await;
    target
        .get(&format!("select trax.fail({}, '{error}')", bad.key()))
        .await;
}

#[tokio::test]
async fn a_refusal_that_the_encoding_of_the_outbox_cannot_hold_is_stored_as_far_as_it_can() {
    let (source, target) = pair_with("LATIN1").await;
    target
        .get(
            "create function refuse_one() returns trigger language plpgsql as $$
            begin
                raise exception 'é, isn’t wanted' using hint = '→ é', detail = 'plain';
            end
            $$;
            create trigger refuse_one before insert on trax_relay.carried
            for each row when (new.id = 2) execute function refuse_one()",
        )
        .await;
    source
        .get("select trax_outbox.enqueue(n::text) from generate_series(1, 3) n")
        .await;
    trax_relay(&source, &target).once();
    let tasks = "select string_agg(task, ' ' order by job_id) from trax.work_queue";
    assert_eq!(target.get(tasks).await, "1 3");
    let refused = "select sqlstate, error, detail, hint, entry->>'task' from trax_outbox.refused";
    assert_eq!(
        source.get(refused).await,
        "P0001|é, isn?t wanted|plain|? é|2"
    );
}

#[tokio::test]
async fn a_row_that_cannot_leave_the_outbox_is_refused_and_stops_no_other() {
    let (source, target) = pair_with("WIN1252").await;
    source
        .get(
            "select trax_outbox.enqueue('1', unique_key => 'k');
             select trax_outbox.enqueue('2', to_jsonb(chr(129)));
             select trax_outbox.enqueue('3', unique_key => chr(129)), trax_outbox.enqueue('4', to_jsonb('’é'::text))",
        )
        .await;
    trax_relay(&source, &target).once();
    let seen = "select task, input from trax.work_queue order by job_id";
    assert_eq!(target.get(seen).await, "1|{}\n4|\"’é\"");
    let refused = "select sqlstate, id from trax_outbox.refused order by id";
    assert_eq!(source.get(refused).await, "22P05|2\n22P05|3");
}

#[tokio::test]
async fn a_result_that_the_encoding_of_the_outbox_cannot_hold_is_stored_as_far_as_it_can() {
    let (source, target) = pair_with("LATIN1").await;
    source
        .get("select trax_outbox.enqueue('good'), trax_outbox.enqueue('bad', max_retries => 0)")
        .await;
    let relay = trax_relay(&source, &target).arguments(&["--results"]);
    relay.once();
    end_both(&target, "é’€", "it’s é").await;
    relay.once();
    let seen = "select task, state, output, error from trax_outbox.result order by id";
    assert_eq!(
        source.get(seen).await,
        "good|completed|{\"t\": \"é??\"}|\nbad|failed||it?s é"
    );
}

#[tokio::test]
async fn a_result_that_the_outbox_cannot_take_stops_no_other() {
    let (source, target) = pair().await;
    source
        .get(
            "create function refuse_one() returns trigger language plpgsql as $$
            begin
                raise exception 'no such value' using errcode = '22023';
            end
            $$;
            create trigger refuse_one before update on trax_outbox.result
            for each row when (new.output is not null) execute function refuse_one();
            select trax_outbox.enqueue('good'), trax_outbox.enqueue('bad', max_retries => 0)",
        )
        .await;
    let relay = trax_relay(&source, &target).arguments(&["--results"]);
    relay.once();
    end_both(&target, "x", "it broke").await;
    relay.once();
    let seen = "select task, state, output, error, finished_at is not null
        from trax_outbox.result order by id";
    assert_eq!(
        source.get(seen).await,
        "good|completed||the result cannot be stored: no such value|t\nbad|failed||it broke|t"
    );
}

#[tokio::test]
async fn a_result_that_cannot_leave_the_target_stops_no_other() {
    let (source, target) = pair().await;
    source
        .get("select trax_outbox.enqueue('good'), trax_outbox.enqueue('bad', max_retries => 0)")
        .await;
    let relay = trax_relay(&source, &target).arguments(&["--results"]);
    relay.once();
    end_both(&target, "x", "it broke").await;
    target
        .get(
            "alter function trax.get_jobs(bigint[]) rename to all_jobs;
            create function trax.get_jobs(job_ids bigint[])
            returns table (job_id bigint, state text, output jsonb, error text, finished_at timestamptz)
            language plpgsql as $$
            #variable_conflict use_column
            begin
                return query
                select job_id, state, output, error, finished_at
                from trax.all_jobs(job_ids)
                where task <> 'good' or pg_catalog.convert_from('\\xff', 'UTF8') is not null;
            end
            $$",
        )
        .await;
    relay.once();
    let seen = "select task, state, error like '%UTF8%' from trax_outbox.result order by id";
    assert_eq!(source.get(seen).await, "good|unknown|t\nbad|failed|f");
}

#[tokio::test]
async fn times_and_intervals_are_the_same_whatever_style_a_side_has() {
    let (source, target) = pair().await;
    for (side, styles) in [
        (&source, ["German, DMY", "sql_standard", "America/New_York"]),
        (&target, ["SQL, DMY", "iso_8601", "Asia/Kolkata"]),
    ] {
        let settings = ["datestyle", "intervalstyle", "timezone"];
        for (setting, style) in settings.iter().zip(styles) {
            let name = side.database().name();
            side.get(&format!("alter database {name} set {setting} = '{style}'"))
                .await;
        }
    }
    source
        .get(
            "select trax_outbox.enqueue('good', timeout => '1 month 2 days 3.5 s'),
             trax_outbox.enqueue('later', run_at => '2100-02-01 01:02:03.456789+00')",
        )
        .await;
    let relay = trax_relay(&source, &target).arguments(&["--results"]);
    relay.once();
    let queued = "select task, run_at at time zone 'utc', timeout from trax.work_queue
        where task = 'later' or run_at <= now() order by task";
    let seen = target.get(queued).await;
    assert!(
        seen.starts_with("good|") && seen.contains("|1 mon 2 days 00:00:03.5\n"),
        "{seen}"
    );
    assert!(
        seen.ends_with("later|2100-02-01 01:02:03.456789|"),
        "{seen}"
    );
    let good = target.claim_one("tasks => '{good}'").await;
    target
        .get(&format!("select trax.complete({}, '1')", good.key()))
        .await;
    relay.once();
    let at_target = "select extract(epoch from j.finished_at) from trax.get_jobs(array[ID]) j";
    let job = source
        .get("select job_id from trax_outbox.result where task = 'good'")
        .await;
    let at_source =
        "select extract(epoch from finished_at) from trax_outbox.result where task = 'good'";
    assert_eq!(
        source.get(at_source).await,
        target.get(&at_target.replace("ID", &job)).await
    );
}
