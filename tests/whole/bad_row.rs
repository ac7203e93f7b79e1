//! Rows damaged by plain SQL: other rows are processed, and the status reports the damage.

use harness::manifest::{complete, complete_one, due_since, running, waiting};
use harness::session::{Session, session};

/// Ways in which plain SQL may damage a definition.
const DAMAGES: [&str; 11] = [
    "cron = 'at noon'",
    "cron = ''",
    "cron = '0 0 30 2 *'",
    "timezone = 'Europe/Atlantis'",
    "timezone = ''",
    "exclusions = '[]'",
    "exclusions = '{\"days_of_week\": [0, 1, 2, 3, 4, 5, 6]}'",
    "exclusions = '{\"days_of_week\": [1e400]}'",
    "exclusions = 'null'",
    "exclusions = (repeat('[', 1000) || repeat(']', 1000))::jsonb",
    "exclusions = to_jsonb(repeat('x', 1000000))",
];

/// A damaged manifest and a good one, both due.
async fn damaged(damage: &str) -> Session {
    let (_, s) = session().await;
    s.get("select trax.schedule('bad', 'bad', cron => '0 * * * *'); select trax.schedule('good', 'good', cron => '0 * * * *')")
        .await;
    for name in ["bad", "good"] {
        due_since(&s, name, "now() - interval '2 s'").await;
    }
    s.get(&format!(
        "update trax.manifest set {damage} where name = 'bad'"
    ))
    .await;
    s
}

const STATUS: &str = "select value, healthy, hint is not null from trax.status() where item = 'manifests that cannot be evaluated'";

/// Returns the faults of a cycle with this damage; `None` if it behaves as expected.
async fn trouble(damage: &str) -> Option<String> {
    let s = damaged(damage).await;
    if let Err(refusal) = s.attempt("select count(*) from trax.tick()").await {
        return Some(format!("{damage}: the cycle ends with {refusal}"));
    }
    let refused = s.attempt("select trax.preview('bad')").await.err();
    let seen = [
        waiting(&s, "good").await.to_string(),
        waiting(&s, "bad").await.to_string(),
        s.get(STATUS).await,
        s.get("select count(*) from trax.explain_manifest('bad') where reason = 'evaluation_failed' and detail <> ''")
            .await,
        refused.map_or_else(String::new, |refusal| refusal.code),
        s.tick("queue_due").await.to_string(),
    ]
    .join(" ");
    let wanted = "1 0 1|f|t 1 22023 0";
    (seen != wanted).then(|| format!("{damage}: {seen}, not {wanted}"))
}

#[tokio::test]
async fn a_damaged_definition_does_not_stop_the_others_and_status_shows_it() {
    let mut troubles = Vec::new();
    for damage in DAMAGES {
        troubles.extend(trouble(damage).await);
    }
    assert_eq!(troubles, Vec::<String>::new());
}

#[tokio::test]
async fn an_infinite_or_ancient_due_time_does_not_stop_the_cycle() {
    for kind in ["cron => '* * * * * *'", "every => '1 s'", "run_at => now()"] {
        for at in ["'-infinity'", "'4713-01-01 BC'", "'1970-01-01'"] {
            let (_db, s) = session().await;
            s.get("set statement_timeout = '5 s'").await;
            s.get(&format!(
                "select trax.schedule('bad', 'bad', {kind}, misfire => 'fire_all');
                 select trax.schedule('good', 'good', cron => '0 * * * *')"
            ))
            .await;
            due_since(&s, "bad", at).await;
            due_since(&s, "good", "now() - interval '2 s'").await;
            s.tick("queue_due").await;
            assert_eq!(waiting(&s, "good").await, 1, "{kind} {at}");
            for _ in 0..3 {
                s.tick("queue_due").await;
            }
        }
    }
}

#[tokio::test]
async fn giant_intervals_do_not_stop_the_cycle() {
    let longest = "'170000000 years'";
    for damage in [
        format!("misfire_threshold = {longest}"),
        format!("timeout = {longest}"),
        format!("retry_delay = {longest}"),
        "priority = 31".to_owned(),
        "max_retries = 2147483647".to_owned(),
        "misfire_limit = 2147483647".to_owned(),
        "max_concurrency = 2147483647, overlap = 'allow'".to_owned(),
    ] {
        let s = damaged("priority = 0").await;
        let update = format!("update trax.manifest set {damage} where name = 'bad'");
        if let Err(refusal) = s.attempt(&update).await {
            assert_eq!(
                refusal.code, "23514",
                "a constraint may refuse it: {refusal}"
            );
            continue;
        }
        s.get("select trax.enqueue('other')").await;
        assert_eq!(s.tick("queue_due").await, 2, "{damage}");
        assert_eq!(s.claim("max_jobs => 5").await.len(), 3, "{damage}");
        s.tick("queue_due").await;
        let failed = "select string_agg(trax.fail(job_id, token, 'no'), ' ') from trax.lease where task = 'bad'";
        assert_eq!(s.get(failed).await, "retrying", "{damage}");
        s.tick("queue_due").await;
    }
}

#[tokio::test]
async fn an_input_that_the_queue_refuses_does_not_stop_the_others() {
    let (_db, s) = session().await;
    s.get("select count(trax.schedule('m' || n, 'm' || n % 3, input => jsonb_build_object('n', n), cron => '0 * * * *')) from generate_series(1, 9) n;
           alter table trax.work_queue add constraint test_refuses check ((input ->> 'n')::int not in (4, 7))")
        .await;
    s.get("update trax.manifest_state set next_run_at = now(), next_scheduled_for = now()")
        .await;
    assert_eq!(s.tick("queue_due").await, 7);
    assert_eq!(s.get(STATUS).await, "2|f|t");
    let errors =
        "select count(*) from trax.manifest_state where evaluation_error like '%test_refuses%'";
    assert_eq!(s.number(errors).await, 2);
    s.get("alter table trax.work_queue drop constraint test_refuses; update trax.manifest_state set next_run_at = now()")
        .await;
    assert_eq!(s.tick("queue_due").await, 2);
    assert_eq!(s.get(STATUS).await, "0|t|f");
}

const ENABLED: &str = "select enabled from trax.manifest where name = 'bad'";

/// Makes the manifest fail again, with its failures starting that long ago.
async fn fails_again(s: &Session, since: &str) {
    s.get(&format!(
        "update trax.manifest_state set next_run_at = now(),
             evaluation_failed_since = evaluation_failed_since - interval '{since}'
         where evaluation_error is not null"
    ))
    .await;
    s.tick("queue_due").await;
}

#[tokio::test]
async fn a_definition_that_fails_again_and_again_is_switched_off_with_the_reason() {
    let s = damaged("cron = 'at noon'").await;
    s.tick("queue_due").await;
    for _ in 0..20 {
        fails_again(&s, "0 s").await;
    }
    assert_eq!(s.get(ENABLED).await, "t", "it fails since a moment only");
    fails_again(&s, "11 min").await;
    assert_eq!(s.get(ENABLED).await, "f");
    let reason = "select disabled_reason like '%at noon%' from trax.manifest where name = 'bad'";
    assert_eq!(s.get(reason).await, "t");
    assert_eq!(s.get(STATUS).await, "1|f|t");
    let explained = "select detail like '%at noon%' from trax.explain_manifest('bad') where reason = 'disabled'";
    assert_eq!(s.get(explained).await, "t");
    s.get("select trax.schedule('bad', 'bad', cron => '0 * * * *', enabled => true)")
        .await;
    assert_eq!(s.get(STATUS).await, "0|t|f");
    let mended = "select enabled, disabled_reason from trax.manifest where name = 'bad'";
    assert_eq!(s.get(mended).await, "t|");
    due_since(&s, "bad", "now()").await;
    s.tick("queue_due").await;
    assert_eq!(waiting(&s, "bad").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn failures_are_tried_again_after_a_second_and_then_ever_later() {
    let s = damaged("cron = 'at noon'").await;
    s.tick("queue_due").await;
    let rest = "select extract(epoch from next_run_at - clock_timestamp())
        from trax.manifest_state where evaluation_error is not null";
    for (since, low, high) in [
        ("0 s", 0.0, 5.0),
        ("30 s", 20.0, 60.0),
        ("9 min", 30.0, 60.0),
    ] {
        fails_again(&s, since).await;
        let seen: f64 = s.get(rest).await.parse().expect("a number");
        assert!(seen > low && seen <= high, "after {since}: {seen} s");
    }
}

#[tokio::test]
async fn a_zone_whose_data_is_missing_switches_nothing_off_and_goes_on_when_it_is_back() {
    let s = damaged("timezone = 'Europe/Atlantis'").await;
    let occurrence = "select next_scheduled_for from trax.manifest_state s join trax.manifest m using (manifest_id) where m.name = 'bad'";
    let due = s.get(occurrence).await;
    s.tick("queue_due").await;
    for since in ["0 s", "1 h", "1 h", "1 h", "1 h", "1 h", "1 day"] {
        fails_again(&s, since).await;
    }
    assert_eq!(s.get(ENABLED).await, "t");
    assert_eq!(s.get(STATUS).await, "1|f|t");
    assert_eq!(s.get(occurrence).await, due, "it is kept");
    s.get("update trax.manifest set timezone = 'Europe/Berlin' where name = 'bad'")
        .await;
    fails_again(&s, "0 s").await;
    assert_eq!(waiting(&s, "bad").await, 1);
    assert_eq!(s.get(STATUS).await, "0|t|f");
    s.assert_healthy().await;
}

/// Refuses every job of task `bad` with this SQLSTATE.
async fn refuse(s: &Session, code: &str) {
    s.get(&format!(
        "create or replace function test_refuses() returns trigger language plpgsql as $$ begin
             if new.task = 'bad' then raise exception 'refused' using errcode = '{code}'; end if;
             return new;
         end $$;
         create or replace trigger test_refuses before insert on trax.work_queue for each row
             execute function test_refuses()"
    ))
    .await;
}

#[tokio::test]
async fn trouble_of_the_server_delays_a_manifest_and_never_switches_it_off() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('bad', 'bad', cron => '0 * * * *'); select trax.schedule('good', 'good', every => '1 h')")
        .await;
    due_since(&s, "bad", "now() - interval '2 s'").await;
    let occurrence = "select next_scheduled_for from trax.manifest_state s join trax.manifest m using (manifest_id) where m.name = 'bad'";
    let due = s.get(occurrence).await;
    for code in [
        "53100", "53200", "55P03", "40001", "40P01", "57P03", "58030", "XX002",
    ] {
        refuse(&s, code).await;
        due_since(&s, "good", "now()").await;
        for cycle in 0..6 {
            s.get(
                "update trax.manifest_state set next_run_at = now() where next_run_at is not null",
            )
            .await;
            let queued = i64::from(cycle == 0);
            assert_eq!(s.tick("queue_due").await, queued, "{code}: the good one");
        }
        complete_one(&s, "tasks => '{good}'").await;
        let state = "select m.enabled, s.evaluation_failures, s.evaluation_error, s.next_run_at > now()
                     from trax.manifest_state s join trax.manifest m using (manifest_id) where m.name = 'bad'";
        assert_eq!(s.get(state).await, "t|0|refused|t", "{code}");
        assert_eq!(s.get(occurrence).await, due, "{code}: it is kept");
    }
    assert_eq!(s.get(STATUS).await, "1|f|t");
    let action =
        "select action from trax.explain_manifest('bad') where reason = 'evaluation_failed'";
    assert_eq!(
        s.get(action).await,
        "Fix what the server lacks; the next cycles try again."
    );
    s.get("drop trigger test_refuses on trax.work_queue; update trax.manifest_state set next_run_at = now() where next_run_at is not null")
        .await;
    s.tick("queue_due").await;
    let queued = "select scheduled_for from trax.work_queue where task = 'bad'";
    assert_eq!(s.get(queued).await, due);
    assert_eq!(s.get(STATUS).await, "0|t|f");
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_occurrence_that_trouble_of_the_server_made_late_is_missed() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('bad', 'bad', cron => '0 0 1 1 *', misfire => 'skip')")
        .await;
    due_since(&s, "bad", "now()").await;
    refuse(&s, "53100").await;
    assert_eq!(s.tick("queue_due").await, 0);
    s.get("drop trigger test_refuses on trax.work_queue;
           update trax.manifest_state set next_run_at = now(), evaluation_failed_since = now() - interval '61 s'")
        .await;
    assert_eq!(
        s.tick("queue_due").await,
        0,
        "it is later than its threshold"
    );
    let skipped =
        "select skipped, next_run_at > now(), evaluation_failed_since from trax.manifest_state";
    assert_eq!(s.get(skipped).await, "1|t|");
    s.assert_healthy().await;
}

#[tokio::test]
async fn outcomes_and_the_reaper_do_not_ask_a_damaged_definition() {
    for damage in DAMAGES {
        let (_db, s) = session().await;
        s.get("select trax.schedule('bad', 'bad', cron => '0 * * * *', retry_delay => '0'); select trax.schedule('child', 'child', depends_on => '{bad}')")
            .await;
        let first = running(&s, "bad").await;
        s.get(&format!(
            "update trax.manifest set {damage} where name = 'bad'"
        ))
        .await;
        let fail = format!("select trax.fail({}, 'no')", first.key());
        assert_eq!(s.get(&fail).await, "retrying", "{damage}");
        s.tick("queue_due").await;
        s.claim_one("tasks => '{bad}', lease => '1 ms'").await;
        let reaped = "select count(*) from trax.run where failure_kind = 'lease_expired'";
        harness::eventually("the reaper", harness::PATIENCE, || async {
            s.tick("queue_due").await;
            match s.number(reaped).await {
                1 => Ok(()),
                seen => Err(format!("{damage}: {seen}")),
            }
        })
        .await;
        let last = s.claim_one("tasks => '{bad}'").await;
        complete(&s, &last).await;
        s.tick("queue_due").await;
        assert_eq!(waiting(&s, "child").await, 1, "{damage}");
    }
}

#[tokio::test]
async fn states_without_a_manifest_do_not_take_the_share_of_others() {
    let (_db, s) = session().await;
    s.get("select count(trax.schedule('gone' || n, 'm', cron => '0 * * * *')) from generate_series(1, 5) n;
           select trax.schedule('good', 'good', cron => '0 * * * *')")
        .await;
    s.get("update trax.manifest_state set next_run_at = now() - interval '1 h', next_scheduled_for = now() - interval '1 h'")
        .await;
    due_since(&s, "good", "now() - interval '1 s'").await;
    s.get("delete from trax.manifest where name like 'gone%'; set trax.max_entries_per_cycle = 2")
        .await;
    for _ in 0..5 {
        s.tick("queue_due").await;
    }
    assert_eq!(waiting(&s, "good").await, 1);
    let due = "select count(*) from trax.manifest_state where next_run_at <= now()";
    assert_eq!(s.number(due).await, 0, "nothing stays due for ever");
}

#[tokio::test]
async fn an_edge_without_its_manifest_stops_no_completion() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('p', 'p'); select trax.schedule('c', 'c', depends_on => '{p}'); select trax.schedule('d', 'd', depends_on => '{p}')")
        .await;
    let job = running(&s, "p").await;
    s.get("delete from trax.manifest where name = 'c'; delete from trax.manifest_state s where not exists (select from trax.manifest m where m.manifest_id = s.manifest_id)")
        .await;
    complete(&s, &job).await;
    assert_eq!(s.tick("queue_due").await, 1);
    let job = running(&s, "p").await;
    s.get("delete from trax.manifest where name = 'p'").await;
    complete(&s, &job).await;
}

/// Additions to the queue by an administrator that refuse every job, and their removal.
const REFUSALS: [(&str, &str); 3] = [
    (
        "create function test_no() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
         create trigger test_no before insert on trax.work_queue for each row execute function test_no()",
        "drop trigger test_no on trax.work_queue",
    ),
    (
        "create function test_no() returns void language plpgsql as $$ begin raise 'no'; end $$;
         create rule test_no as on insert to trax.work_queue do also select test_no()",
        "drop rule test_no on trax.work_queue",
    ),
    (
        "alter table trax.work_queue add constraint test_no check (run_at < '2000-01-01') not valid",
        "alter table trax.work_queue drop constraint test_no",
    ),
];

#[tokio::test]
async fn what_refuses_every_job_switches_no_manifest_off() {
    for (add, remove) in REFUSALS {
        let (_db, s) = session().await;
        s.get("select count(trax.schedule('bad' || n, 'bad', cron => '0 * * * *')) from generate_series(1, 3) n")
            .await;
        s.get("update trax.manifest_state set next_run_at = now(), next_scheduled_for = now()")
            .await;
        s.get(add).await;
        assert_eq!(s.tick("queue_due").await, 0, "{add}");
        for since in ["0 s", "1 h", "1 h", "1 h", "1 h", "1 h", "1 day"] {
            fails_again(&s, since).await;
        }
        let enabled = "select count(*) from trax.manifest where enabled";
        assert_eq!(s.number(enabled).await, 3, "{add}");
        assert_eq!(s.get(STATUS).await, "3|f|t", "{add}");
        s.get(remove).await;
        s.get("update trax.manifest_state set next_run_at = now()")
            .await;
        assert_eq!(s.tick("queue_due").await, 3, "{add}");
        assert_eq!(s.get(STATUS).await, "0|t|f", "{add}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_manifest_that_cannot_be_queued_while_others_can_is_switched_off() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('bad', 'bad', cron => '0 * * * *'); select trax.schedule('good', 'good', cron => '0 * * * *');
           alter table trax.work_queue add constraint test_no check (task <> 'bad')")
        .await;
    due_since(&s, "bad", "now()").await;
    s.tick("queue_due").await;
    for since in ["0 s", "1 h", "1 h", "1 h", "1 h", "1 h"] {
        fails_again(&s, since).await;
    }
    assert_eq!(s.get(ENABLED).await, "t", "nobody knows whose fault it is");
    due_since(&s, "good", "now()").await;
    s.tick("queue_due").await;
    assert_eq!(waiting(&s, "good").await, 1);
    fails_again(&s, "0 s").await;
    assert_eq!(s.get(ENABLED).await, "f");
    let reason = "select disabled_reason like '%test_no%' from trax.manifest where name = 'bad'";
    assert_eq!(s.get(reason).await, "t");
}

#[tokio::test]
async fn trouble_of_the_server_is_not_met_again_by_each_of_many_manifests() {
    let (_db, s) = session().await;
    s.get("select count(trax.schedule('m' || n, 'm', cron => '0 * * * *')) from generate_series(1, 100) n;
           create sequence public.test_tries;
           create function test_full() returns trigger language plpgsql as $$ begin
               perform nextval('public.test_tries');
               raise exception 'no space left' using errcode = '53100';
           end $$;
           create trigger test_full before insert on trax.work_queue for each row execute function test_full()")
        .await;
    s.get("update trax.manifest_state set next_run_at = now(), next_scheduled_for = now()")
        .await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get(STATUS).await, "100|f|t");
    let tries = s.number("select last_value from public.test_tries").await;
    assert!(tries <= 10, "{tries} tries");
    s.get("drop trigger test_full on trax.work_queue; update trax.manifest_state set next_run_at = now()")
        .await;
    assert_eq!(s.tick("queue_due").await, 100);
    s.assert_healthy().await;
}
