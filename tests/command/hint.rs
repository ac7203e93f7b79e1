//! Hints: the options and commands that the user of the command is told to type.

use super::{bare, on, refused, said, text, trax};
use harness::process::{Scratch, run};
use harness::scheduler::new_name;
use harness::session::session;
use harness::{database, shared_server};
use std::process::Command;

#[tokio::test]
async fn a_hint_names_what_its_command_takes() {
    let (db, s) = session().await;
    s.get("select trax.configure_rate('slow', 1, '1 hour'); select trax.configure_group('full', max_waiting => 1)")
        .await;
    s.get("select trax.enqueue('t', group_name => 'full')")
        .await;
    for (arguments, hint) in [
        (&["enqueue", ""][..], "bytes: report.build\n"),
        (
            &["group", "set", "", "--priority", "1"],
            "bytes: report.build\n",
        ),
        (&["manifest", "disable", ""], "bytes: report.build\n"),
        (&["signal", "1", ""], "bytes: report.build\n"),
        (
            &["rate", "set", "r", "--allowed", "1", "--per", "0"],
            "--per '30 s'",
        ),
        (&["enqueue", "t", "--priority", "-1"], "--priority 0"),
        (&["cron", "explain", "@every 5m"], "every = \"5 min\""),
        (&["cron", "explain", "H * * * *"], "variance = \"10 min\""),
        (
            &["enqueue", "t", "--rate", "none"],
            "trax rate list; or type: trax rate set none --allowed 100 --per '1 min'",
        ),
        (
            &["rate", "drop", "slov"],
            "trax rate set slov --allowed 100",
        ),
        (
            &["enqueue", "t", "--group", "full"],
            "trax group set full --max-waiting 2",
        ),
        (
            &["enqueue", "t", "--batch", "12345"],
            "--batch ...; or open one: trax enqueue ... --open-batch",
        ),
        (
            &["graph", "seal", "12345"],
            "BATCH; or open one: trax enqueue ... --open-batch",
        ),
    ] {
        let errors = refused(&db, 1, arguments);
        assert!(
            errors.contains("\nhint: ") && errors.contains(hint),
            "{arguments:?}: {errors}"
        );
    }
    for (arguments, tip) in [
        (&["staus"][..], "'status'"),
        (
            &[
                "worker",
                "--task",
                "t",
                "--exec",
                "true",
                "--pass-env",
                "HOME",
            ],
            "a program gets every other variable",
        ),
        (
            &["lock", "l", "--pass-env", "PGSSLKEY", "--", "true"],
            "the environment does not have it",
        ),
        (&["manifests", "list"], "'manifest'"),
        (
            &["cron", "explain", "0", "2", "1", "1", "1"],
            "quote it for the shell: trax cron explain '0 2 * * *'",
        ),
        (
            &["enqueue", "t", "--timeout", "-5"],
            "type a length of time",
        ),
    ] {
        let errors = refused(&db, 64, arguments);
        assert!(errors.contains(tip), "{arguments:?}: {errors}");
    }
    s.get("select trax.close_rate('slow', 'k', until => now() + interval '1 hour')")
        .await;
    let held = s
        .get("select trax.enqueue('t', rate => 'slow', rate_key => 'k')")
        .await;
    let why = said(&db, &["jobs", "why", &held]);
    assert!(why.contains("trax rate open slow --key k"), "{why}");
    let later = s
        .get("select trax.enqueue('t', run_at => now() + interval '1 hour')")
        .await;
    let why = said(&db, &["jobs", "why", &later]);
    let now = format!("trax jobs retry --scheduled {later}");
    assert!(why.contains(&now), "{why}");
    said(&db, &["jobs", "retry", "--scheduled", &later]);
    s.get(&format!("select trax.cancel({later})")).await;
    let errors = refused(&db, 1, &["jobs", "fork", &later, "--from", "none"]);
    assert!(
        errors.contains(&format!("trax jobs show {later}")),
        "{errors}"
    );
}

#[tokio::test]
async fn a_time_that_is_over_does_not_close_a_rate() {
    let (db, s) = session().await;
    s.get("select trax.configure_rate('r', 1, '1 hour')").await;
    for end in [["--until", "yesterday"], ["--for", "0"]] {
        let errors = refused(&db, 64, &["rate", "close", "r", end[0], end[1]]);
        assert!(
            errors.contains("is over") && errors.contains("trax rate open r"),
            "{errors}"
        );
    }
}

#[tokio::test]
async fn a_time_may_be_a_length_from_now() {
    let (db, s) = session().await;
    said(&db, &["enqueue", "t", "--run-at", "1h30m"]);
    let due = "select date_trunc('minute', run_at - queued_at + interval '1 s') from trax.job";
    assert_eq!(s.get(due).await, "01:30:00");
    let errors = refused(&db, 64, &["enqueue", "t", "--run-at", "5 elephants"]);
    assert!(errors.contains("from now: '5 min'"), "{errors}");
}

#[tokio::test]
async fn nothing_done_is_not_told_as_done() {
    let (db, s) = session().await;
    s.get("select trax.configure_task('report', max_retries => 1)")
        .await;
    for filter in [["--group", "nosuch"], ["--manifest", "nosuch"]] {
        let (_, _, errors) = run(&mut trax(&db, &["jobs", "list", filter[0], filter[1]]));
        assert!(errors.contains("is called \"nosuch\" now"), "{errors}");
    }
    let (code, output, errors) = run(&mut trax(&db, &["task", "reset", "reprot", "report"]));
    assert_eq!(
        (code, output.as_str()),
        (Some(0), "task \"report\" reset\n")
    );
    let note = "task \"reprot\" has no defaults of its own; did you mean \"report\"?";
    assert!(errors.contains(note), "{errors}");
}

#[tokio::test]
async fn a_session_of_the_command_has_a_name() {
    let database = database().await;
    let client = harness::scheduler::connect(&database).await;
    said(&database, &["pause"]);
    let (code, _, errors) = run(trax(&database, &["resume"]).env("PGAPPNAME", "night shift"));
    assert_eq!(code, Some(0), "{errors}");
    let sql = "select string_agg(program, ', ' order by id) from trax.audit";
    assert_eq!(text(&client, sql).await, "trax, night shift");
}

#[tokio::test]
async fn a_role_or_database_that_does_not_exist_is_told_as_that() {
    let server = shared_server();
    let to = |user: &str, database: &str| {
        let (host, port) = (server.socket_dir().display(), server.port());
        format!("host={host} port={port} user={user} dbname={database}")
    };
    for (url, variable) in [
        (to("nobody_here", "postgres"), "PGUSER"),
        (to("postgres", "nowhere"), "PGDATABASE"),
    ] {
        let (code, _, errors) = run(bare().args(["--database-url", &url, "check"]));
        assert_eq!(code, Some(1));
        let hint = errors.lines().find(|line| line.starts_with("hint: "));
        let hint = hint.unwrap_or_default();
        assert!(
            hint.contains(variable) && !hint.contains("--database-url"),
            "{errors}"
        );
    }
}

#[tokio::test]
async fn a_mistake_in_a_graph_has_its_line_and_a_hint_in_toml() {
    let database = database().await;
    let files = Scratch::new("graph");
    let path = files.path().join("g.toml");
    for (member, place, hint) in [
        (
            "needs = [\"fetch\"]\ntask = \"t\"",
            "g.toml:3: needs",
            "Add a job",
        ),
        (
            "priority = 99\ntask = \"t\"",
            "g.toml:3: priority",
            "leave out priority",
        ),
        (
            "version = \"1\"",
            "g.toml:1",
            "task = \"etl.load\", or sql = ",
        ),
        (
            "unique_key = \"k\"\ntask = \"t\"",
            "g.toml:3: unique_key",
            "--unique-key night",
        ),
        (
            "group = \"etl\"\ntask = \"t\"",
            "g.toml:3: group",
            "Write \"group_name\".",
        ),
    ] {
        let graph = format!("[[jobs]]\nname = \"load\"\n{member}\n");
        std::fs::write(&path, graph).expect("a file can be written");
        let (code, _, errors) = run(trax(&database, &["graph", "apply"]).arg(&path));
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains(place) && errors.contains(hint), "{errors}");
    }
}

#[tokio::test]
async fn a_number_that_json_lacks_is_refused_with_its_line() {
    let database = database().await;
    let files = Scratch::new("nan");
    let path = files.path().join("m.toml");
    for (command, list) in [("manifest", "manifests"), ("graph", "jobs")] {
        let text = format!("[[{list}]]\nname = \"a\"\ntask = \"t\"\ninput = {{ n = [1, nan] }}\n");
        std::fs::write(&path, text).expect("a file can be written");
        let (code, _, errors) = run(trax(&database, &[command, "apply"]).arg(&path));
        assert_eq!(code, Some(64), "{errors}");
        let words = "m.toml:4: input.n: nan is no number of JSON";
        assert!(errors.contains(words), "{errors}");
    }
}

#[tokio::test]
async fn a_line_that_is_not_text_is_named() {
    let database = database().await;
    let files = Scratch::new("lines");
    let path = files.path().join("bl");
    std::fs::write(&path, b"{\"n\": 1}\n\xff\n").expect("a file can be written");
    let (code, _, errors) = run(on(shared_server(), &database)
        .args(["enqueue", "t", "--file"])
        .arg(&path));
    assert_eq!(code, Some(64), "{errors}");
    assert!(errors.contains("bl: line 2: not UTF-8"), "{errors}");
    for (line, words) in [
        (r#"{"n": "a\u0000"}"#, "bl: line 3: the character NUL"),
        (r#"{"n": "\ud83d"}"#, "bl: line 3: not JSON"),
    ] {
        std::fs::write(&path, format!("{{\"n\": 1}}\n\n{line}\n")).expect("a file can be written");
        let (code, _, errors) = run(on(shared_server(), &database)
            .args(["enqueue", "t", "--file"])
            .arg(&path));
        assert_eq!(code, Some(64), "{errors}");
        assert!(errors.contains(words), "{errors}");
    }
}

#[tokio::test]
async fn the_sums_of_an_empty_database_have_no_sign() {
    let database = database().await;
    let screen = said(&database, &["top", "--once", "--interval", "0.5"]);
    assert!(!screen.contains("-0"), "{screen}");
}

#[tokio::test]
async fn the_example_for_an_empty_document_can_be_piped_back() {
    let database = database().await;
    let piped = |document: &str| {
        let shell = r#"document=$1; shift; printf '%s\n' "$document" | "$@""#;
        let command = trax(&database, &["graph", "apply", "-"]);
        let mut sh = Command::new("sh");
        sh.args(["-c", shell, "sh", document])
            .arg(command.get_program());
        run(sh.args(command.get_args()))
    };
    for document in ["", "{}"] {
        let (code, _, errors) = piped(document);
        assert_eq!(code, Some(1), "{errors}");
        let example = errors.trim().split_once("For example: ");
        let (_, example) = example.expect("the hint has an example");
        let (code, _, errors) = piped(example);
        assert_eq!(code, Some(0), "{example}: {errors}");
    }
}

#[tokio::test]
async fn a_list_in_an_option_for_one_name_is_pointed_out() {
    let (db, s) = session().await;
    let role = new_name("listed");
    s.get(&format!("create role {role}")).await;
    let worker = ["worker", "--exec", "cat", "--until-empty", "--quiet"];
    for arguments in [
        [&worker[..], &["--task", "mail.send,image.resize"]].concat(),
        vec!["grant", &role, "worker", "--task", "mail.send,image.resize"],
    ] {
        let (_, _, errors) = run(&mut trax(&db, &arguments));
        let words = "type: --task mail.send --task image.resize\n";
        assert!(errors.contains(words), "{arguments:?}: {errors}");
    }
}
