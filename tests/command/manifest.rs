//! `trax manifest`.

use super::{json, names, objects, refused, said, trax};
use harness::process::{Scratch, run};
use harness::session::session;
use serde_json::json;

const TOML: &str = r#"
[[groups]]
name = "etl"
max_active_jobs = 2

[[manifests]]
name = "extract"
task = "etl.extract"
cron = "0 4 * * *"
timezone = "Europe/Berlin"
group_name = "etl"
input = { days = 1, tables = ["a", "b"] }
starts_at = 2026-01-01T00:00:00Z

[[manifests]]
name = "load"
task = "etl.load"
depends_on = ["extract"]
"#;

/// The same document as JSON.
const JSON: &str = r#"{"groups": [{"name": "etl", "max_active_jobs": 2}], "manifests": [
    {"name": "extract", "task": "etl.extract", "cron": "0 4 * * *", "timezone": "Europe/Berlin",
     "group_name": "etl", "input": {"days": 1, "tables": ["a", "b"]}, "starts_at": "2026-01-01T00:00:00Z"},
    {"name": "load", "task": "etl.load", "depends_on": ["extract"]}]}"#;

fn file(files: &Scratch, name: &str, text: &str) -> String {
    let path = files.path().join(name);
    std::fs::write(&path, text).expect("a file can be written");
    path.display().to_string()
}

#[tokio::test]
async fn apply_makes_the_file_so_and_then_finds_no_difference_in_either_form() {
    let (db, s) = session().await;
    let files = Scratch::new("apply");
    let toml = file(&files, "jobs.toml", TOML);
    let as_json = file(&files, "jobs.json", JSON);
    // Without a terminal no confirmation is possible, so nothing changes.
    let (code, output, errors) = run(&mut trax(&db, &["manifest", "apply", &toml]));
    assert_eq!(code, Some(64), "{output}{errors}");
    assert!(
        output.contains("+ manifest extract") && errors.contains("Apply 3 changes?"),
        "{output}{errors}"
    );
    assert_eq!(s.number("select count(*) from trax.manifest").await, 0);
    let output = said(&db, &["manifest", "apply", &toml, "--yes"]);
    assert!(
        output.contains("+ group etl") && output.contains("3 created"),
        "{output}"
    );
    let stored = "select input::text || starts_at::text || applied from trax.manifest where name = 'extract'";
    assert_eq!(
        s.get(stored).await,
        "{\"days\": 1, \"tables\": [\"a\", \"b\"]}2026-01-01 00:00:00+00true"
    );
    // No change to confirm, so `--yes` is not needed.
    for path in [&toml, &as_json] {
        assert_eq!(said(&db, &["manifest", "apply", path]), "3 unchanged\n");
        said(&db, &["manifest", "diff", path, "--exit-code"]);
    }
}

#[tokio::test]
async fn diff_reports_each_value_and_changes_nothing() {
    let (db, s) = session().await;
    let files = Scratch::new("diff");
    said(
        &db,
        &["manifest", "apply", &file(&files, "a.toml", TOML), "--yes"],
    );
    let changed = TOML.replace("0 4", "0 5").replace("days = 1", "days = 2");
    let path = file(&files, "b.toml", &changed);
    let text = said(&db, &["manifest", "diff", &path]);
    assert!(text.contains("~ manifest extract"), "{text}");
    assert!(
        text.contains("cron: \"0 4 * * *\" -> \"0 5 * * *\""),
        "{text}"
    );
    let (code, _, _) = run(&mut trax(&db, &["manifest", "diff", &path, "--exit-code"]));
    assert_eq!(code, Some(2));
    let actions = objects(&db, &["manifest", "diff", &path]);
    let extract = actions
        .iter()
        .find(|action| action["name"] == "extract")
        .expect("it is told");
    assert_eq!(
        (&extract["action"], &extract["kind"]),
        (&json!("changed"), &json!("manifest"))
    );
    let changes = extract["changes"].as_array().expect("a list");
    assert!(
        changes.contains(&json!({"key": "cron", "before": "0 4 * * *", "after": "0 5 * * *"})),
        "{changes:?}"
    );
    assert_eq!(
        s.get("select cron from trax.manifest where name = 'extract'")
            .await,
        "0 4 * * *"
    );
}

#[tokio::test]
async fn prune_removes_what_the_files_no_longer_have_and_several_files_are_one_document() {
    let (db, s) = session().await;
    let files = Scratch::new("prune");
    said(
        &db,
        &["manifest", "apply", &file(&files, "a.toml", TOML), "--yes"],
    );
    s.get("select trax.schedule('by-hand', 'a')").await;
    let one = file(
        &files,
        "1.toml",
        "[[manifests]]\nname = \"one\"\ntask = \"a\"\n",
    );
    let two = file(
        &files,
        "2.json",
        r#"{"manifests": [{"name": "two", "task": "a", "depends_on": ["one"]}]}"#,
    );
    let text = said(&db, &["manifest", "apply", &one, &two, "--prune", "--yes"]);
    assert!(
        ["- manifest extract", "- group etl", "2 created, 3 removed"]
            .iter()
            .all(|line| text.contains(line)),
        "{text}"
    );
    let left = "select string_agg(name, ' ' order by name) from trax.manifest";
    assert_eq!(s.get(left).await, "by-hand one two");
    // A directory stands for its TOML and JSON files; other files are ignored.
    file(&files, "notes.txt", "not a document");
    std::fs::remove_file(files.path().join("a.toml")).expect("it is there");
    let directory = files.path().display().to_string();
    assert_eq!(
        said(&db, &["manifest", "apply", &directory, "--prune"]),
        "2 unchanged\n"
    );
    let empty = Scratch::new("empty");
    refused(
        &db,
        64,
        &["manifest", "diff", &empty.path().display().to_string()],
    );
}

#[tokio::test]
async fn a_mistake_in_a_file_is_reported_with_its_place_and_nothing_is_applied() {
    let (db, s) = session().await;
    let files = Scratch::new("mistakes");
    for (name, text, code, words) in [
        ("a.toml", "[[manifests]]\nname = \n", 64, "line 2"),
        ("b.json", "{\"manifests\": [}", 64, "line 1"),
        (
            "c.toml",
            "\n[manifests]\nname = \"x\"\n",
            64,
            "c.toml:2: \"manifests\" is not a list\nhint: in TOML each element begins with [[manifests]]",
        ),
        (
            "d.toml",
            "\n[[manifest]]\nname = \"x\"\n",
            64,
            "d.toml:2: the document has an unknown member \"manifest\"\nhint: write \"manifests\"; the members are groups, manifests, rates, tasks",
        ),
        (
            "dd.toml",
            "# top\nscedule = \"@daily\"\n[[manifests]]\nname = \"x\"\n",
            64,
            "dd.toml:2: the document has an unknown member \"scedule\"\nhint: the members are",
        ),
        (
            "ee.toml",
            "[[groups]]\nname = \"g\"\nmax_activ_jobs = 1\n",
            1,
            "ee.toml:3: max_activ_jobs: group \"g\": a group has an unknown member",
        ),
        (
            "ef.toml",
            "[[manifests]]\nname = \"x\"\ntask = \"a\"\ncron = \"@daily\"\n\n[manifests.exclusions]\ndate = [\"12-24\"]\n",
            1,
            "ef.toml:7: exclusions.date: manifest \"x\": ",
        ),
        (
            "e.toml",
            "[[manifests]]\nname = \"x\"\ntask = \"a\"\ncorn = \"* * * * *\"\n",
            1,
            "e.toml:4: corn: ",
        ),
        (
            "eg.toml",
            "[[manifests]]\nname = \"x\"\ntask = \"a\"\nzone = \"UTC\"\n",
            1,
            "eg.toml:4: zone: ",
        ),
        (
            "f.toml",
            "[[manifests]]\nname = \"x\"\ntask = \"a\"\ncron = \"61 * * * *\"\n",
            1,
            "f.toml:4: cron: ",
        ),
        (
            "g.toml",
            "[[manifests]]\nname = \"x\"\ncron = \"@daily\"\nsql = \"selct 1\"\n",
            1,
            "g.toml:4: sql: manifest \"x\": the statement cannot be parsed: syntax error at or near \"selct\"",
        ),
        (
            "h.toml",
            "[[manifests]]\nname = \"x\"\ntask = \"a\"\n\n[[manifests]]\ntask = \"a\"\n",
            64,
            "h.toml:5: a manifest has no name\nhint: add a line",
        ),
        (
            "i.json",
            "{\"manifests\": [\n{\"name\": \"x\", \"sql\": \"selct 1\"}]}",
            1,
            "i.json:2: manifest \"x\": the statement",
        ),
        (
            "j.json",
            "{\"manifests\": [{\"task\": \"a\"}]}",
            1,
            "a manifest of the document has no name",
        ),
        (
            "k.toml",
            "[[manifests]]\nname = \"x\"\ntask = \"a\"\nrun_at = \"0001-01-01\"\n",
            1,
            "run_at = \"tomorrow\"",
        ),
        (
            "l.toml",
            "[[manifests]]\nname = \"x\"\ntask = \" a\"\n",
            1,
            "l.toml:3: task: ",
        ),
        (
            "m.toml",
            "[[manifests]]\nname = \"x\"\nsql = \"select 1\"\nrun_as = \"no_such_role\"\n",
            1,
            "hint: List the roles",
        ),
    ] {
        let path = file(&files, name, text);
        let errors = refused(&db, code, &["manifest", "apply", &path, "--yes"]);
        assert!(
            errors.contains(words) && errors.contains("hint: "),
            "{name}: {errors}"
        );
    }
    assert_eq!(s.number("select count(*) from trax.manifest").await, 0);
}

#[tokio::test]
async fn list_says_when_each_runs_and_how_it_stands() {
    let (db, s) = session().await;
    s.get("select trax.schedule('cron', 'a', cron => '0 4 * * *', timezone => 'Europe/Berlin', group_name => 'g'),
        trax.schedule('every', 'b', every => '30 s', starts_at => now() + interval '90 min'),
        trax.schedule('once', 'a', run_at => '2099-01-01 00:00Z'),
        trax.schedule('child', 'a', depends_on => array['cron', 'every']),
        trax.schedule('plain', 'a'), trax.disable_manifest('plain')")
        .await;
    s.get("select trax.disable_manifest('plain')").await;
    let table = said(&db, &["manifest", "list"]);
    for part in [
        "0 4 * * * Europe/Berlin",
        "every 30 s",
        "once, 2099-01-01",
        "after cron and every",
        "when triggered",
        "in 89 min",
        "disabled",
    ] {
        assert!(table.contains(part), "no {part}: {table}");
    }
    let list = |filters: &[&str]| {
        let mut arguments = vec!["manifest", "list", "-q"];
        arguments.extend(filters);
        said(&db, &arguments)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(list(&[]), "child cron every once plain");
    assert_eq!(list(&["--task", "b"]), "every");
    assert_eq!(list(&["--group", "g"]), "cron");
    assert_eq!(list(&["--disabled"]), "plain");
    assert_eq!(list(&["--enabled", "--limit", "2"]), "child cron");
    assert_eq!(list(&["ver"]), "every");
    let listed = objects(&db, &["manifest", "list", "cron"]);
    assert_eq!(
        names(&listed[0]).join(" "),
        "cron depends_mode depends_on dormant enabled evaluation_error every group_name last_queued_at \
         last_success_at name next_run_at on_dead_letter parked_on run_at stopped_by task timezone"
    );
}

#[tokio::test]
async fn list_begins_with_what_a_dead_letter_stops() {
    let (db, s) = session().await;
    s.get("select trax.schedule('a', 'a', cron => '0 4 * * *'), trax.schedule('z', 'z', cron => '0 4 * * *')")
        .await;
    s.get("select trax.trigger('z')").await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
    let id = s.number("select id from trax.dead_letter").await;
    let text = said(&db, &["manifest", "list"]);
    let first = text.lines().nth(1).expect("a row below the head");
    assert!(
        first.starts_with('z') && first.contains(&format!("stopped by dead letter {id}")),
        "{text}"
    );
    let listed = objects(&db, &["manifest", "list"]);
    assert_eq!(
        (&listed[0]["stopped_by"], &listed[1]["stopped_by"]),
        (&json!(id), &json!(null))
    );
}

#[tokio::test]
async fn show_gives_the_definition_the_state_and_the_next_runs() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', '{\"n\": 1}', cron => '30 2 * * *', timezone => 'Europe/Berlin',
        exclusions => '{\"days_of_week\": [\"SUN\"]}', max_retries => 7), trax.schedule('child', 'a', depends_on => array['m'])")
        .await;
    let shown = &objects(&db, &["manifest", "show", "m"])[0];
    assert_eq!(
        (&shown["cron"], &shown["dependents"]),
        (&json!("30 2 * * *"), &json!(["child"]))
    );
    let text = said(&db, &["manifest", "show", "m", "-v"]);
    for part in [
        "Europe/Berlin",
        "02:30:00 +0",
        "SUN",
        "\"n\": 1",
        "child",
        "max retries",
        "misfire limit",
    ] {
        assert!(text.contains(part), "no {part}: {text}");
    }
    let errors = refused(&db, 1, &["manifest", "show", "nobody"]);
    assert!(
        errors.contains("manifest \"nobody\" does not exist") && errors.contains("hint: "),
        "{errors}"
    );
}

#[tokio::test]
async fn enable_disable_and_delete_take_several_and_go_on_after_a_mistake() {
    let (db, s) = session().await;
    s.get("select trax.schedule('a', 'a'), trax.schedule('b', 'a')")
        .await;
    let errors = refused(&db, 1, &["manifest", "disable", "a", "nobody", "b"]);
    assert!(
        errors.contains("nobody") && errors.contains("trax manifest list"),
        "{errors}"
    );
    let enabled = "select count(*) from trax.manifest where enabled";
    assert_eq!(s.number(enabled).await, 0);
    let changes = objects(&db, &["manifest", "enable", "a", "b"]);
    assert_eq!(changes[0], json!({"name": "a", "action": "enabled"}));
    assert_eq!(s.number(enabled).await, 2);
    let errors = refused(&db, 64, &["manifest", "delete", "a"]);
    assert!(errors.contains("--yes"), "{errors}");
    said(&db, &["manifest", "delete", "a", "b", "--yes"]);
    assert_eq!(s.number("select count(*) from trax.manifest").await, 0);
}

#[tokio::test]
async fn enabling_names_the_dead_letter_that_stops_the_schedule_all_the_same() {
    let (db, s) = session().await;
    s.get(
        "select trax.schedule('m', 'a', cron => '@daily', max_retries => 0), trax.trigger('m');
        select trax.fail(job_id, token, 'it broke') from trax.claim_next();
        select trax.disable_manifest('m')",
    )
    .await;
    let letter = s.get("select id from trax.dead_letter").await;
    let enabled = said(&db, &["manifest", "enable", "m"]);
    assert_eq!(
        enabled.trim(),
        format!(
            "manifest \"m\" enabled, but dead letter {letter} stops its schedule: it broke; \
             type: trax dead requeue {letter}, or trax dead ack {letter}"
        )
    );
    let changes = objects(&db, &["manifest", "enable", "m"]);
    assert_eq!(changes[0]["stopped_by"]["error"], json!("it broke"));
    let why = said(&db, &["manifest", "why", "m"]);
    assert!(why.contains("trax.on_dead_letter"), "{why}");
    said(&db, &["dead", "ack", &letter]);
    let enabled = said(&db, &["manifest", "enable", "m"]);
    assert_eq!(enabled.trim(), "manifest \"m\" enabled");
}

#[tokio::test]
async fn a_time_without_a_zone_is_in_the_zone_of_its_manifest() {
    let (db, s) = session().await;
    let files = Scratch::new("zones");
    let toml = "[[manifests]]\nname = \"m\"\ntask = \"a\"\ntimezone = \"Asia/Tokyo\"\nrun_at = 2089-01-01T09:00:00\n\
                [[manifests]]\nname = \"text\"\ntask = \"a\"\ntimezone = \"Asia/Tokyo\"\nrun_at = \"2089-01-01 09:00\"\n\
                [[manifests]]\nname = \"utc\"\ntask = \"a\"\nrun_at = 2089-01-01T00:00:00\n\
                [[manifests]]\nname = \"own\"\ntask = \"a\"\ntimezone = \"Asia/Tokyo\"\nrun_at = 2089-01-01T02:00:00+02:00\n";
    let document = file(&files, "m.toml", toml);
    for zone in ["UTC", "America/New_York"] {
        let mut command = trax(&db, &["manifest", "apply", &document, "--yes"]);
        let (code, _, errors) = run(command
            .env("PGTZ", zone)
            .env("PGOPTIONS", format!("-c timezone={zone}")));
        assert_eq!(code, Some(0), "{errors}");
        let times = "select string_agg(distinct (run_at at time zone 'UTC')::text, ', '), count(*) from trax.manifest";
        assert_eq!(s.get(times).await, "2089-01-01 00:00:00|4", "{zone}");
    }
}

#[tokio::test]
async fn trigger_prints_the_id_of_the_job() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', '{\"own\": 1}')")
        .await;
    let output = said(&db, &["manifest", "trigger", "m"]);
    let job: i64 = output.trim().parse().expect("an id");
    let arguments = [
        "manifest",
        "trigger",
        "m",
        "--input",
        "{\"n\": 2}",
        "--delay",
        "1 h",
        "--json",
    ];
    let second = json(&said(&db, &arguments));
    assert_eq!(second[0]["name"], "m");
    let jobs = "select string_agg(concat_ws(' ', input, waits_for), ', ' order by job_id) from trax.work_queue";
    assert_eq!(s.get(jobs).await, "{\"own\": 1}, {\"n\": 2} time");
    assert_eq!(
        s.number("select min(job_id) from trax.work_queue").await,
        job
    );
}

#[tokio::test]
async fn preview_and_why_say_when_it_runs_and_why_not() {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'a', cron => '30 2 * * *', timezone => 'Europe/Berlin')")
        .await;
    let arguments = [
        "manifest",
        "preview",
        "m",
        "--after",
        "2027-03-27 12:00Z",
        "--count",
        "2",
    ];
    let text = said(&db, &arguments);
    assert!(
        text.contains("2027-03-28 03:00:00 +02:00") && text.contains("skips"),
        "{text}"
    );
    let runs = objects(&db, &arguments);
    assert_eq!(
        (
            runs.len(),
            &runs[0]["run_at"],
            names(&runs[0]).join(" ").as_str()
        ),
        (2, &json!("2027-03-28T01:00:00Z"), "local_time note run_at")
    );
    s.get("select trax.disable_manifest('m')").await;
    let reasons = objects(&db, &["manifest", "why", "m"]);
    assert_eq!(
        (&reasons[0]["reason"], names(&reasons[0]).join(" ").as_str()),
        (&json!("disabled"), "action detail reason since")
    );
    let text = said(&db, &["manifest", "why", "m"]);
    assert!(
        text.contains("switched off by hand") && text.contains("trax manifest enable m"),
        "{text}"
    );
    assert!(refused(&db, 1, &["manifest", "why", "nobody"]).contains("trax manifest list"));
}
