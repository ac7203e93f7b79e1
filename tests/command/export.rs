//! `trax manifest export`: apply reads its output.

use super::{objects, refused, said};
use harness::process::Scratch;
use harness::session::session;

const SCHEDULES: &str = r#"
select trax.configure_rate('api', 60, '90 s', burst => 2), trax.configure_rate('spare', 1, '1 s');
select trax.configure_group('etl', max_active_jobs => 2, priority => 7, rate => 'api'), trax.configure_group('off', enabled => false);
select trax.schedule('plain', 't'),
    trax.schedule('cron', 't', '{"n": [1, 2.5, true, "x"], "deep": {"a b": "it''s \"so\""}}', cron => '30 2 * * MON-FRI',
        timezone => 'Europe/Berlin', group_name => 'etl', priority => 3, max_retries => 0, retry_delay => '90 s',
        timeout => '10 min', misfire => 'fire_all', misfire_threshold => '5 min', misfire_limit => 2, overlap => 'skip',
        variance => '1 min', exclusions => '{"days_of_week": ["SUN"]}', starts_at => '2026-01-01Z', ends_at => '2090-01-01Z'),
    trax.schedule('every', 't', every => '7 days', max_concurrency => 3),
    trax.schedule('one by one', 't', every => '1 h', max_concurrency => 2, overlap => 'queue'),
    trax.schedule('once', 't', run_at => '2089-01-01 00:00Z', enabled => false),
    trax.schedule('child', 't', depends_on => '{cron,every}', depends_mode => 'any'),
    trax.schedule('asleep', 't', depends_on => '{child}', dormant => true),
    trax.schedule(E'two\nlines \u202e\u001b[2J', 't', '{"script": "a\nb \u202e"}', on_dead_letter => 'continue');
"#;

/// Every property of manifests, groups and rates that users set.
const STORED: &str = "select string_agg(t, E'\n' order by t) from (
    select (to_jsonb(m) - array['manifest_id', 'created_at', 'updated_at', 'applied'])::text || array(
        select p.name from trax.manifest_dependency d join trax.manifest p on p.manifest_id = d.parent_id
        where d.child_id = m.manifest_id order by 1)::text from trax.manifest m
    union all
    select (to_jsonb(g) - array['created_at', 'updated_at', 'applied'])::text from trax.manifest_group g
    union all
    select (to_jsonb(r) - array['created_at', 'changed_at', 'applied'])::text from trax.rate r) s (t)";

#[tokio::test]
async fn what_export_writes_apply_reads_as_the_same() {
    let (db, s) = session().await;
    let (other_db, other) = session().await;
    s.get(SCHEDULES).await;
    let stored = s.get(STORED).await;
    let files = Scratch::new("export");
    for format in ["toml", "json"] {
        let path = files.path().join(format!("jobs.{format}"));
        let text = said(&db, &["manifest", "export", "--format", format]);
        std::fs::write(&path, &text).expect("a file can be written");
        let path = path.display().to_string();
        assert_eq!(
            said(&db, &["manifest", "apply", &path, "--prune"]),
            "12 unchanged\n",
            "{text}"
        );
        said(&other_db, &["manifest", "apply", &path, "--prune", "--yes"]);
        assert_eq!(other.get(STORED).await, stored, "{text}");
        other.get("select trax.apply('{}', prune => true)").await;
    }
    assert_eq!(
        said(&db, &["manifest", "export", "--json"]),
        said(&db, &["manifest", "export", "--format", "json"])
    );
    let chosen = said(&db, &["manifest", "export", "cron"]);
    assert!(
        chosen.contains("name = \"etl\"")
            && !chosen.contains("name = \"off\"")
            && chosen.contains(
                "[[rates]]\nname = \"api\"\nallowed = 60\nperiod = \"00:01:30\"\nburst = 2\n"
            )
            && !chosen.contains("spare"),
        "{chosen}"
    );
    assert_eq!(
        said(&db, &["manifest", "export", "--group", "etl", "-q"]),
        "cron\n"
    );
}

#[tokio::test]
async fn what_toml_cannot_say_is_exported_as_json() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 't', '{\"id\": 12345678901234567890123, \"price\": 1.10, \"none\": null}')")
        .await;
    let errors = refused(&db, 1, &["manifest", "export"]);
    assert!(
        errors.contains("manifest \"m\"") && errors.contains("--format json"),
        "{errors}"
    );
    let files = Scratch::new("export json");
    let path = files.path().join("jobs.json");
    let text = said(&db, &["manifest", "export", "--format", "json"]);
    std::fs::write(&path, text).expect("a file can be written");
    let path = path.display().to_string();
    assert_eq!(said(&db, &["manifest", "apply", &path]), "1 unchanged\n");
}

#[tokio::test]
async fn a_null_input_is_refused_with_its_manifest() {
    let (db, s) = session().await;
    s.get("select trax.schedule('a', 't'), trax.schedule('m', 't', 'null')")
        .await;
    for format in ["toml", "json"] {
        let errors = refused(&db, 1, &["manifest", "export", "--format", format]);
        let words = "manifest \"m\": its input is null";
        assert!(errors.contains(words), "{errors}");
    }
    let one = said(&db, &["manifest", "export", "a"]);
    assert!(one.contains("name = \"a\""), "{one}");
    let names = said(&db, &["manifest", "export", "--quiet"]);
    assert_eq!(names, "a\nm\n");
}

#[tokio::test]
async fn a_change_of_what_another_source_owns_is_shown_with_its_owner() {
    let (db, s) = session().await;
    s.get(
        r#"select trax.apply('{"groups": [{"name": "etl"}], "manifests": [{"name": "m", "task": "a"}]}', source => 'billing')"#,
    )
    .await;
    let files = Scratch::new("owner");
    let path = files.path().join("jobs.json");
    let document = r#"{"groups": [{"name": "etl", "priority": 3}], "manifests": [{"name": "m", "task": "b"}, {"name": "n", "task": "b"}]}"#;
    std::fs::write(&path, document).expect("a file can be written");
    let path = path.display().to_string();
    let plan = said(&db, &["manifest", "diff", &path]);
    for line in [
        "~ group etl, of source billing\n",
        "~ manifest m, of source billing\n",
        "+ manifest n\n",
    ] {
        assert!(format!("{plan}\n").contains(line), "{plan}");
    }
    let found = objects(&db, &["manifest", "diff", &path]);
    assert_eq!(found[0]["source"], "billing", "{found:?}");
    let output = said(&db, &["manifest", "apply", &path, "--yes"]);
    assert!(output.contains("manifest m, of source billing"), "{output}");
    let own = ["manifest", "diff", &path, "--source", "billing"];
    assert!(!said(&db, &own).contains("of source"), "it is its own");
}
