//! Preview: future runs, with notes about unusual ones.

use harness::manifest::due_since;
use harness::session::{Session, session};

async fn preview(s: &Session, cron: &str, after: &str, count: i32) -> String {
    s.get(&format!(
        "select trax.schedule('m', 'm', cron => '{cron}', timezone => 'Europe/Berlin')"
    ))
    .await;
    s.get(&format!(
        "select to_char(run_at at time zone 'UTC', 'MM-DD HH24:MI'), local_time, note
         from trax.preview('m', '{after}', {count})"
    ))
    .await
}

/// Checks that the rows are the expected ones and that each note contains the words.
async fn assert_runs(seen: &str, expected: &[(&str, &str, &str)]) {
    let rows: Vec<Vec<&str>> = seen
        .lines()
        .map(|line| line.splitn(3, '|').collect())
        .collect();
    assert_eq!(rows.len(), expected.len(), "{seen}");
    for (row, (utc, local, note)) in rows.iter().zip(expected) {
        assert_eq!((row[0], row[1]), (*utc, *local), "{seen}");
        assert!(
            row[2].contains(note) && row[2].is_empty() == note.is_empty(),
            "{seen}"
        );
    }
}

#[tokio::test]
async fn a_fixed_time_in_the_hour_that_is_skipped_runs_at_its_end() {
    let (_db, s) = session().await;
    let seen = preview(&s, "30 2 * * *", "2026-03-28 00:00+01", 3).await;
    assert_runs(
        &seen,
        &[
            ("03-28 01:30", "2026-03-28 02:30:00 +01:00", ""),
            ("03-29 01:00", "2026-03-29 03:00:00 +02:00", "skips"),
            ("03-30 00:30", "2026-03-30 02:30:00 +02:00", ""),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_time_that_is_excluded_stays_so_where_the_clock_skips_it() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('m', 'm', exclusions => '{\"time_windows\":
             [{\"from\": \"02:00\", \"to\": \"03:00\", \"days_of_week\": [\"SUN\"]}]}')",
    )
    .await;
    let seen = preview(&s, "30 2 * * *", "2026-03-28 00:00+01", 2).await;
    assert_runs(
        &seen,
        &[
            ("03-28 01:30", "2026-03-28 02:30:00 +01:00", ""),
            (
                "03-30 00:30",
                "2026-03-30 02:30:00 +02:00",
                "after 1 excluded",
            ),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_fixed_time_in_the_hour_that_comes_twice_runs_at_its_first_pass() {
    let (_db, s) = session().await;
    let seen = preview(&s, "30 2 * * *", "2026-10-24 00:00+02", 3).await;
    assert_runs(
        &seen,
        &[
            ("10-24 00:30", "2026-10-24 02:30:00 +02:00", ""),
            ("10-25 00:30", "2026-10-25 02:30:00 +02:00", "twice"),
            ("10-26 01:30", "2026-10-26 02:30:00 +01:00", ""),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_step_runs_in_both_passes_and_not_in_the_skipped_hour() {
    let (_db, s) = session().await;
    let seen = preview(&s, "*/30 * * * *", "2026-10-25 01:45+02", 5).await;
    assert_runs(
        &seen,
        &[
            ("10-25 00:00", "2026-10-25 02:00:00 +02:00", "first pass"),
            ("10-25 00:30", "2026-10-25 02:30:00 +02:00", "first pass"),
            ("10-25 01:00", "2026-10-25 02:00:00 +01:00", "second pass"),
            ("10-25 01:30", "2026-10-25 02:30:00 +01:00", "second pass"),
            ("10-25 02:00", "2026-10-25 03:00:00 +01:00", ""),
        ],
    )
    .await;
    let seen = preview(&s, "*/30 * * * *", "2026-03-29 01:15+01", 3).await;
    assert_runs(
        &seen,
        &[
            ("03-29 00:30", "2026-03-29 01:30:00 +01:00", ""),
            ("03-29 01:00", "2026-03-29 03:00:00 +02:00", ""),
            ("03-29 01:30", "2026-03-29 03:30:00 +02:00", ""),
        ],
    )
    .await;
}

#[tokio::test]
async fn the_first_run_of_the_preview_is_the_next_run_that_is_stored() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('a', 'a', cron => '17 3 * * 2', timezone => 'Australia/Lord_Howe');
         select trax.schedule('b', 'b', every => '3 h'); select trax.schedule('c', 'c', run_at => now() + interval '1 day')",
    )
    .await;
    s.get(
        "update trax.manifest_state set next_run_at = now() + interval '10 min', next_scheduled_for = now() + interval '10 min'
         where next_run_at <= now()",
    )
    .await;
    let differing = "select m.name, p.run_at, s.next_run_at from trax.manifest m join trax.manifest_state s using (manifest_id)
        left join lateral trax.preview(m.name, count => 1) p on true where p.run_at is distinct from s.next_run_at";
    assert_eq!(s.get(differing).await, "");
}

#[tokio::test]
async fn a_schedule_shows_no_run_before_its_start_and_none_from_its_end_on() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('m', 'm', cron => '0 0 * * *', starts_at => '2040-01-10', ends_at => '2040-01-13');
         select trax.schedule('e', 'e', every => '1 day', starts_at => '2040-01-10', ends_at => '2040-01-13')",
    )
    .await;
    for name in ["m", "e"] {
        let runs = format!(
            "select string_agg(to_char(run_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI'), ', ' order by run_at)
             from trax.preview('{name}')"
        );
        assert_eq!(
            s.get(&runs).await,
            "2040-01-10 00:00, 2040-01-11 00:00, 2040-01-12 00:00",
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_run_that_waits_for_its_start_is_not_later_by_its_variance() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('once', 'a', run_at => '2040-01-01', starts_at => '2040-02-01');
         select trax.schedule('varied', 'a', run_at => '2040-01-01', starts_at => '2040-02-01', variance => '1 h');
         select trax.schedule('put off', 'a', cron => '0 0 * * *', timezone => 'UTC');
         select trax.schedule('off', 'a', every => '1 h', starts_at => '2040-02-01', enabled => false);
         update trax.manifest_state set next_run_at = next_run_at + interval '1 minute'
         where manifest_id = (select manifest_id from trax.manifest where name = 'put off')",
    )
    .await;
    let note = |name: &str| format!("select note from trax.preview('{name}', count => 1)");
    assert_eq!(s.get(&note("once")).await, "put off to its start");
    assert_eq!(
        s.get(&note("put off")).await,
        "60.000 s later than scheduled"
    );
    let varied = s.get(&note("varied")).await;
    assert!(
        varied.starts_with("put off to its start; ")
            && varied.ends_with(" s later by its variance"),
        "{varied}"
    );
    assert_eq!(
        s.get("select run_at = '2040-02-01' from trax.preview('off', count => 1)")
            .await,
        "t"
    );
}

#[tokio::test]
async fn every_and_run_at_show_what_is_known_and_others_nothing() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('e', 'e', every => '1 h'); select trax.schedule('r', 'r', run_at => now() + interval '5 h');
         select trax.schedule('n', 'n'); select trax.schedule('d', 'd', depends_on => '{n}')",
    )
    .await;
    due_since(&s, "e", "now() + interval '30 min'").await;
    let apart = "select count(*), max(run_at) - min(run_at), count(note) from trax.preview('e', count => 4)";
    assert_eq!(
        s.get(apart).await,
        "4|03:00:00|3",
        "those after the next are guesses and say so"
    );
    assert_eq!(s.get("select count(*) from trax.preview('r')").await, "1");
    for name in ["n", "d"] {
        assert_eq!(
            s.get(&format!("select count(*) from trax.preview('{name}')"))
                .await,
            "0"
        );
    }
}

#[tokio::test]
async fn questions_that_have_no_answer_are_refused() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', cron => '* * * * *')")
        .await;
    let cases = [
        ("'nobody'", "42704"),
        ("null", "22004"),
        ("'m', 'infinity'", "22023"),
        ("'m', '-infinity'", "22023"),
        ("'m', count => 0", "22023"),
        ("'m', count => 1001", "22023"),
    ];
    for (arguments, code) in cases {
        let refusal = s
            .refusal(&format!("select trax.preview({arguments})"))
            .await;
        assert_eq!(refusal.code, code, "{arguments}: {refusal}");
        assert!(
            !refusal.detail.is_empty() && !refusal.hint.is_empty(),
            "{refusal}"
        );
    }
    for after in ["4713-01-01 BC", "0001-01-01", "294276-12-31", "9999-12-31"] {
        let sql = format!(
            "set statement_timeout = '2 s'; select count(*) <= 5 from trax.preview('m', '{after}')"
        );
        assert_eq!(s.get(&sql).await, "t", "{after}");
    }
    assert_eq!(
        s.get("select count(*) from trax.preview('m', count => 1000)")
            .await,
        "1000"
    );
}

#[tokio::test]
async fn a_preview_changes_nothing() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'm', cron => '* * * * *', variance => '5 s'); select trax.schedule('e', 'e', every => '1 h')")
        .await;
    let before = s.everything().await;
    s.get("begin transaction read only; select trax.preview('m'), trax.preview('e'); commit")
        .await;
    assert_eq!(s.everything().await, before);
}
