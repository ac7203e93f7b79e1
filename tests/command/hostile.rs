//! Hostile text in every field that other roles can fill, in every command's output: no part of it
//! begins a line or controls the terminal.

use super::contract::every_command;
use super::trax;
use harness::process::{Scratch, run};
use harness::session::{Session, session};
use trax_client::testkit::Database;

/// Ends lines, forges a trax line, moves the cursor, changes colours, and reverses the reading
/// order.
const EVIL: &str = "x\ntrax: job 99 completed by root\r\u{1b}[2J\u{9b}31m\u{202e}\u{2028}\u{8}y";

/// The text as a SQL literal.
fn evil() -> String {
    format!("'{EVIL}'")
}

/// Makes a job of each kind, with the text in every field that its maker may fill.
async fn fill(s: &Session) {
    let evil = evil();
    let all = [
        format!("select trax.configure_group({evil}, max_active_jobs => 100)"),
        format!("select trax.configure_task({evil}, max_retries => 2)"),
        format!(
            "select trax.enqueue({evil}, to_jsonb({evil}::text), group_name => {evil}, unique_key => {evil},
                concurrency_key => {evil}, max_retries => 0)"
        ),
        format!("select count(*) from trax.claim_next(worker => {evil})"),
        format!(
            "select trax.report_progress(job_id, token, to_jsonb({evil}::text)) from trax.lease"
        ),
        format!(
            "select trax.fail(job_id, token, {evil}, jsonb_build_object({evil}, {evil})) from trax.lease"
        ),
        format!("select trax.enqueue({evil}, group_name => {evil}, max_retries => 0)"),
        format!("select count(*) from trax.claim_next(worker => {evil})"),
        "select trax.fail(job_id, token, 'dead') from trax.lease".to_owned(),
        format!("select trax.acknowledge_dead_letter(max(id), {evil}) from trax.dead_letter"),
        format!("select trax.enqueue({evil}, group_name => {evil})"),
        format!("select count(*) from trax.claim_next(worker => {evil})"),
        format!(
            "select trax.complete(job_id, token, jsonb_build_object({evil}, {evil})) from trax.lease"
        ),
        format!("select trax.enqueue({evil}, group_name => {evil})"),
        format!("select count(*) from trax.claim_next(worker => {evil})"),
        "select trax.report_progress(job_id, token, '{\"done\": 1}') from trax.lease".to_owned(),
        format!("select trax.enqueue({evil}, to_jsonb({evil}::text), group_name => {evil})"),
        format!(
            "select trax.schedule({evil}, task => {evil}, cron => '0 3 * * *', group_name => {evil})"
        ),
        format!(
            "select trax.schedule({evil} || 2, task => {evil}, depends_on => array[{evil}])"
        ),
        format!("select trax.trigger({evil})"),
        format!("select slot from trax.acquire_token({evil}, {evil}, 1, '1 hour')"),
        "create schema cron".to_owned(),
        "create table cron.job (jobid bigint, schedule text, command text, database text, username text, active boolean,
            jobname text, nodename text default 'localhost', nodeport int default current_setting('port')::int)"
            .to_owned(),
        format!("insert into cron.job values (1, '0 3 * * *', {evil}, {evil}, {evil}, true, {evil})"),
        format!("insert into cron.job values (2, {evil}, {evil}, {evil}, {evil}, true, {evil})"),
        format!("insert into cron.job values (3, '0 3 * * *', {evil}, {evil}, {evil}, true, {evil}, {evil})"),
        format!(
            "select trax.report_worker({evil}, '1 h', 'running', jsonb_build_object('host', {evil}, 'version', {evil}))"
        ),
        format!("select trax.pause({evil})"),
    ];
    for statement in all {
        s.get(&statement).await;
    }
}

fn steers(c: char) -> bool {
    c.is_control() && c != '\n' && c != '\t'
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}')
}

/// Fails if the output controls the terminal or has a line that begins with the text.
fn assert_harmless(arguments: &[&str], printed: &str) {
    assert!(
        !printed.chars().any(steers),
        "{arguments:?} steers the terminal: {printed:?}"
    );
    assert!(
        !printed.lines().any(|line| line.starts_with("trax: job 99")),
        "{arguments:?} has a forged line: {printed}"
    );
}

fn harmless(db: &Database, arguments: &[&str]) -> String {
    let (_, output, errors) = run(&mut trax(db, arguments));
    let printed = output + &errors;
    assert_harmless(arguments, &printed);
    printed
}

/// Commands that show the text, run in each output mode; `%` is a directory with files.
const LISTS: [&[&str]; 23] = [
    &["jobs", "list"],
    &["jobs", "show", "1", "2", "3", "4", "5"],
    &["jobs", "watch", "1", "2", "3", "4", "5", "--timeout", "0.1"],
    &["dead", "list", "--status", "any"],
    &["dead", "show", "1", "2"],
    &["manifest", "list"],
    &["manifest", "show", EVIL],
    &["manifest", "why", EVIL],
    &["manifest", "preview", EVIL],
    &["manifest", "diff", "%/manifest.toml"],
    &["import", "pg_cron"],
    &["group", "list"],
    &["rate", "list"],
    &["task", "list"],
    &["workers"],
    &["status"],
    &["check"],
    &["doctor", "--patience", "1 us"],
    &["metrics"],
    &["import", "crontab", "%/crontab"],
    &["manifest", "export"],
    &["audit"],
    &["tokens"],
];

/// Commands that run once, in this order, after the lists.
const ONCE: [&[&str]; 42] = [
    &["top", "--once"],
    &["manifest", "show", "no such\u{1b}[2J\nmanifest"],
    &["manifest", "disable", EVIL],
    &["manifest", "enable", EVIL],
    &["manifest", "trigger", EVIL],
    &["group", "pause", EVIL],
    &["group", "resume", EVIL],
    &["group", "set", EVIL, "--priority", "3"],
    &["task", "set", EVIL, "--max-retries", "3"],
    &["task", "reset", EVIL],
    &["group", "move", EVIL, "--to", "3"],
    &["rate", "set", EVIL, "--allowed", "5", "--per", "1m"],
    &["rate", "close", EVIL, "--for", "5m"],
    &["rate", "open", EVIL],
    &["rate", "drop", EVIL],
    &["jobs", "why", "2"],
    &["signal", "2", EVIL, "5", "--signal-id", EVIL],
    &["graph", "apply", EVIL, "--unique-key", EVIL],
    &["graph", "show", "2"],
    &["graph", "seal", "2"],
    &["jobs", "fork", "1", "--from", EVIL],
    &["jobs", "change", "2", "--group", EVIL],
    &["jobs", "retry", "2"],
    &["jobs", "cancel", "5"],
    &["dead", "requeue", "1", "--note", EVIL],
    &["dead", "ack", "2", "--note", EVIL],
    &["enqueue", EVIL, "{}"],
    &["lock", EVIL, "--no-wait", "--", "true"],
    &["lock", "free", "--verbose", "--holder", EVIL, "--", "true"],
    &["pause", "--reason", EVIL],
    &["resume"],
    &["grant", EVIL, "reader"],
    &["cron", "explain", EVIL],
    &["cron", "explain", "@daily", "--timezone", EVIL],
    &["import", "crontab", EVIL],
    &[
        "import", "pg_cron", "--task", EVIL, "--group", EVIL, "--apply", "--yes",
    ],
    &["manifest", "apply", "%/manifest.toml", "--yes"],
    // The log of a worker whose jobs succeed and fail, with the output of their programs.
    &[
        "worker",
        "--all-tasks",
        "--exec",
        "cat",
        "--until-empty",
        "--verbose",
        "--name",
        EVIL,
    ],
    &[
        "worker",
        "--all-tasks",
        "--exec",
        "cat >&2; exit 1",
        "--until-empty",
        "--verbose",
        "--name",
        EVIL,
    ],
    &[
        "worker",
        "--all-tasks",
        "--exec",
        "printf '\\033[2J\\ntrax: job 99' >&2; exit 65",
        "--until-empty",
        "--verbose",
        "--name",
        EVIL,
    ],
    &[
        "worker",
        "--all-tasks",
        "--exec",
        "cat",
        "--until-empty",
        "--task",
        EVIL,
        "--name",
        EVIL,
    ],
    &["manifest", "delete", EVIL, "--yes"],
];

/// These show no foreign text: they use no database, or create their own. `import run` passes its
/// program's output to the worker, and `step` to its script; the pages of `web` have their own
/// tests, and `relay` prints numbers.
const OTHERS: [&str; 8] = [
    "demo",
    "bench",
    "import run",
    "step",
    "completions",
    "man",
    "web",
    "relay",
];

#[test]
fn every_command_has_an_entry() {
    let has_entry = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let runs = LISTS.iter().chain(&ONCE);
        OTHERS.contains(&words.join(" ").as_str())
            || runs.copied().any(|run| run.starts_with(&words))
    };
    let mut missing = every_command();
    missing.retain(|words| !has_entry(words));
    assert_eq!(missing, Vec::<Vec<String>>::new());
}

#[tokio::test]
async fn no_text_of_others_steers_a_terminal_or_begins_a_line() {
    let (db, s) = session().await;
    fill(&s).await;
    let files = Scratch::new("hostile");
    let name = serde_json::to_string(EVIL).expect("a text");
    let manifest = format!(
        "[[manifests]]\nname = {name}\ntask = {name}\ncron = \"0 6 * * *\"\ninput = {{ a = {name} }}\n"
    );
    let line = EVIL.replace('\n', " ");
    for (name, text) in [
        ("manifest.toml", manifest),
        ("crontab", format!("0 3 * * * {line}\n{line}\n")),
    ] {
        std::fs::write(files.path().join(name), text).expect("a file can be written");
    }
    let path = files.path().display().to_string();
    let mut seen = 0;
    for list in LISTS {
        let list: Vec<String> = list.iter().map(|word| word.replace('%', &path)).collect();
        for option in [None, Some("--quiet"), Some("--json"), Some("--verbose")] {
            let arguments: Vec<&str> = list.iter().map(String::as_str).chain(option).collect();
            let printed = harmless(&db, &arguments);
            seen += usize::from(printed.contains("job 99 completed by root"));
        }
    }
    // The text must appear in enough outputs, or the test would prove nothing.
    assert!(seen >= 38, "{seen} outputs show the text");
    for once in ONCE {
        let once: Vec<String> = once.iter().map(|word| word.replace('%', &path)).collect();
        harmless(&db, &once.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn what_a_worker_reports_of_itself_and_its_job_breaks_no_list() {
    let (db, s) = session().await;
    let deep = "(repeat('[', 500) || repeat(']', 500))::jsonb";
    s.get(&format!(
        "select trax.enqueue('a'); select count(*) from trax.claim_next(worker => 'w');
         select trax.report_progress(job_id, token, {deep}) from trax.lease;
         select trax.report_worker('w', '1 h', 'running', {deep}),
                trax.report_worker('v', '1 h', 'running', '{{\"host\": {{\"a\": 1e999}}, \"version\": []}}')"
    ))
    .await;
    for arguments in [
        &["workers", "--json"][..],
        &["workers", "--verbose"],
        &["top", "--once"],
        &["top", "--once", "--json"],
        &["jobs", "show", "1"],
        &["jobs", "list", "--json"],
        &["jobs", "watch", "1", "--timeout", "0.1"],
    ] {
        let (_, output, errors) = run(&mut trax(&db, arguments));
        assert!(
            output.contains('w') && !errors.contains("recursion"),
            "{arguments:?}: {output}{errors}"
        );
    }
}

#[tokio::test]
async fn quiet_lists_have_a_name_a_line_and_with_null_the_names_as_they_are() {
    let (db, s) = session().await;
    for name in [EVIL, "plain"] {
        s.get(&format!(
            "select trax.schedule('{name}', task => 't', cron => '@daily')"
        ))
        .await;
    }
    let quiet = harmless(&db, &["manifest", "list", "--quiet"]);
    assert_eq!(quiet.lines().count(), 2, "{quiet}");
    let (code, output, errors) = run(&mut trax(&db, &["manifest", "list", "--quiet", "--null"]));
    assert_eq!((code, errors.as_str()), (Some(0), ""));
    let mut names: Vec<&str> = output.split_terminator('\0').collect();
    names.sort_unstable();
    assert_eq!(names, ["plain", EVIL]);
    // The printed names can be typed: each finds its manifest again.
    for name in names {
        let (code, _, errors) = run(&mut trax(&db, &["manifest", "show", name]));
        assert_eq!(code, Some(0), "{errors}");
    }
    let (code, _, errors) = run(&mut trax(&db, &["manifest", "list", "--null"]));
    assert_eq!(code, Some(64), "{errors}");
}
