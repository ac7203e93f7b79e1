//! Documents with an error are refused with a hint, and change nothing.

use harness::session::{Session, session};

/// Documents that are invalid as a whole.
const DOCUMENTS: [&str; 19] = [
    "5",
    "null",
    "[]",
    "\"manifests\"",
    r#"{"manifest": []}"#,
    r#"{"manifests": {}}"#,
    r#"{"manifests": [5]}"#,
    r#"{"groups": [[]]}"#,
    r#"{"groups": [{"name": "g", "colour": 1}]}"#,
    r#"{"groups": [{"name": "g", "priority": 32}]}"#,
    r#"{"groups": [{"name": "g", "max_active_jobs": -1}]}"#,
    r#"{"groups": [{"name": "g", "max_per_key": 0}]}"#,
    r#"{"groups": [{"name": "g", "max_waiting": -1}]}"#,
    r#"{"groups": [{"name": "g", "overflow": "drop"}]}"#,
    r#"{"groups": [{"name": "g", "enabled": "yes"}]}"#,
    r#"{"manifests": [{"name": "a", "task": "a"}, {"name": "a", "task": "b"}]}"#,
    r#"{"manifests": [{"name": "a", "task": "a", "depends_on": ["b"]}, {"name": "b", "task": "b", "depends_on": ["a"]}]}"#,
    r#"{"manifests": [{"name": "a", "task": "a", "depends_on": ["a"]}]}"#,
    r#"{"manifests": [{"name": "stored", "task": "a", "depends_on": ["loop"]}]}"#,
];

/// Invalid members of a manifest.
const MEMBERS: [&str; 36] = [
    r#""task": "a", "colour": 1"#,
    r#""task": 5"#,
    r#""task": """#,
    r#""task": "a", "cron": "at noon""#,
    r#""task": "a", "cron": 5"#,
    r#""task": "a", "cron": "0 0 30 2 *""#,
    r#""task": "a", "cron": "* * * * *", "timezone": "Europe/Atlantis""#,
    r#""task": "a", "cron": "* * * * *", "every": "1 h""#,
    r#""task": "a", "cron": "* * * * *", "depends_on": ["good"]"#,
    r#""task": "a", "every": "often""#,
    r#""task": "a", "every": "0""#,
    r#""task": "a", "every": "-1 h""#,
    r#""task": "a", "every": "11 years""#,
    r#""task": "a", "every": true"#,
    r#""task": "a", "run_at": "soon""#,
    r#""task": "a", "run_at": "infinity""#,
    r#""task": "a", "starts_at": "2030-01-02", "ends_at": "2030-01-01""#,
    r#""task": "a", "dormant": true"#,
    r#""task": "a", "depends_mode": "any""#,
    r#""task": "a", "depends_on": ["good"], "depends_mode": "most""#,
    r#""task": "a", "depends_on": "good""#,
    r#""task": "a", "depends_on": [5]"#,
    r#""task": "a", "priority": 32"#,
    r#""task": "a", "priority": 1.5"#,
    r#""task": "a", "priority": 99999999999"#,
    r#""task": "a", "priority": 1e400"#,
    r#""task": "a", "max_retries": -1"#,
    r#""task": "a", "max_concurrency": 0"#,
    r#""task": "a", "misfire": "often""#,
    r#""task": "a", "misfire_limit": 0"#,
    r#""task": "a", "overlap": "often""#,
    r#""task": "a", "on_dead_letter": "wait""#,
    r#""task": "a", "on_dead_letter": true"#,
    r#""task": "a", "variance": "20 years""#,
    r#""task": "a", "cron": "* * * * *", "exclusions": {"holidays": []}"#,
    r#""task": "a", "enabled": 1"#,
];

fn manifest(members: &str) -> String {
    format!(r#"{{"manifests": [{{"name": "good", "task": "a"}}, {{"name": "m", {members}}}]}}"#)
}

#[tokio::test]
async fn every_kind_of_mistake_is_refused_and_nothing_has_changed() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('stored', 'a'); select trax.schedule('loop', 'a', depends_on => '{stored}')")
        .await;
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    let mut documents: Vec<String> = DOCUMENTS.iter().map(|&text| text.to_owned()).collect();
    documents.extend(MEMBERS.iter().map(|members| manifest(members)));
    documents.push(manifest(&format!(r#""task": "a", "exclusions": {deep}"#)));
    let before = s.everything().await;
    let mut troubles = Vec::new();
    for document in documents {
        let shown: String = document.chars().take(120).collect();
        match s
            .attempt(&format!("select trax.apply($d${document}$d$)"))
            .await
        {
            Ok(_) => troubles.push(format!("{shown}: not refused")),
            Err(refusal) => {
                if refusal.code != "22023" || refusal.hint.is_empty() || refusal.detail.is_empty() {
                    troubles.push(format!("{shown}: {refusal}"));
                }
            }
        }
        assert_eq!(s.everything().await, before, "{shown}");
        let dry = format!("select trax.apply($d${document}$d$, dry_run => true)");
        assert!(
            s.attempt(&dry).await.is_err(),
            "{shown}: a dry run refuses it as well"
        );
    }
    assert_eq!(troubles, Vec::<String>::new());
}

#[tokio::test]
async fn null_unknown_and_too_large_have_their_own_codes() {
    let (_db, s) = session().await;
    let before = s.everything().await;
    let large = format!(r#""task": "a", "input": "{}""#, "x".repeat(1_100_000));
    let cases = [
        (
            manifest(r#""task": "a", "depends_on": ["nobody"]"#),
            "42704",
        ),
        (manifest(r#""priority": 1"#), "22004"),
        (r#"{"manifests": [{"task": "a"}]}"#.to_owned(), "22004"),
        (r#"{"groups": [{"priority": 1}]}"#.to_owned(), "22004"),
        (manifest(&large), "54000"),
        (
            manifest(&format!(r#""task": "{}""#, "x".repeat(256))),
            "54000",
        ),
        (
            manifest(&format!(r#""task": "a", "cron": "{}""#, "1,".repeat(200))),
            "54000",
        ),
    ];
    for (document, code) in cases {
        let shown: String = document.chars().take(120).collect();
        let refusal = s
            .refusal(&format!("select trax.apply($d${document}$d$)"))
            .await;
        assert_eq!(refusal.code, code, "{shown}: {refusal}");
        assert!(!refusal.hint.is_empty(), "{shown}: {refusal}");
        assert_eq!(s.everything().await, before, "{shown}");
    }
    let null = s.refusal("select trax.apply(null)").await;
    assert_eq!(null.code, "22004", "{null}");
}

#[tokio::test]
async fn a_mistake_names_the_manifest_it_is_in() {
    let (_db, s) = session().await;
    let refusal = s
        .refusal(&format!(
            "select trax.apply($d${}$d$)",
            manifest(r#""task": "a", "cron": "61 * * * *""#)
        ))
        .await;
    let all = refusal.to_string();
    assert!(all.contains("\"m\"") && all.contains("position"), "{all}");
}

#[tokio::test]
async fn a_circle_inside_a_document_is_refused_with_its_path() {
    let (_db, s) = session().await;
    let document = r#"{"manifests": [{"name": "a", "task": "a", "depends_on": ["c"]}, {"name": "b", "task": "a", "depends_on": ["a"]},
        {"name": "c", "task": "a", "depends_on": ["b"]}]}"#;
    let refusal = s.refusal(&format!("select trax.apply('{document}')")).await;
    assert_eq!(refusal.code, "22023", "{refusal}");
    assert!(refusal.detail.contains("a -> c -> b -> a"), "{refusal}");
}

#[tokio::test]
async fn a_group_that_stands_twice_is_refused() {
    let (_db, s) = session().await;
    let document = r#"{"groups": [{"name": "g", "priority": 1}, {"name": "g", "priority": 2}]}"#;
    let refusal = s.refusal(&format!("select trax.apply('{document}')")).await;
    assert_eq!(refusal.code, "22023", "{refusal}");
}

/// On a separate server, since a stack overflow would end all its databases.
#[tokio::test]
async fn a_chain_of_any_length_ends_no_server() {
    let server = harness::options()
        .fast()
        .setting("trax.databases", "no_database_has_this_name")
        .start()
        .expect("a server starts");
    let db = server.database("chain").await.expect("a database is made");
    let s = Session::of(&db).await;
    s.get("set statement_timeout = '10 s'").await;
    // In the order in which the first manifest leads to all others.
    let sql = "select count(*) from trax.apply(jsonb_build_object('manifests', (
        select jsonb_agg(jsonb_build_object('name', n::text, 'task', 'a', 'depends_on', jsonb_build_array((n + 1)::text)) order by n)
        from generate_series(1, 100000) n)))";
    let refusal = s.refusal(sql).await;
    assert!(
        ["57014", "42704", "54001", "54000"].contains(&refusal.code.as_str()),
        "{refusal}"
    );
    assert_eq!(s.get("select count(*) from trax.manifest").await, "0");
}
