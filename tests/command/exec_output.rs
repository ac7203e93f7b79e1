//! The output of a program under `trax worker --exec`: JSON stays as it is, other text is kept up
//! to a bound.

use super::{said, text, trax};
use harness::process::{Scratch, run};
use harness::scheduler::{connect, execute, value};
use harness::{database, shared_server};
use std::process::Command;
use trax_client::testkit::Database;

#[tokio::test]
async fn output_that_is_not_json_is_kept_as_the_end_of_its_text() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue(t, max_retries => 0) from unnest('{text,lines,long,silent,bytes,failed,nothing}'::text[]) t",
    )
    .await;
    let exec = r#"case $TRAX_TASK in
        text) echo done! ;;
        lines) echo '{"a": 1}'; echo '{"a": 2}' ;;
        long) seq 1 10000 ;;
        silent) echo ;;
        bytes) printf 'caf\351 \0' ;;
        failed) echo step 3; echo trouble >&2; exit 1 ;;
        nothing) echo null ;;
    esac"#;
    let worker = ["worker", "--until-empty", "--all-tasks", "--exec", exec];
    let (code, _, errors) = run(&mut trax(&database, &worker));
    assert_eq!(code, Some(0), "{errors}");
    let of = async |task: &str| {
        let sql = format!(
            "select concat_ws('|', state, output #>> '{{}}', error, detail #>> '{{}}') from trax.run where task = '{task}'"
        );
        text(&client, &sql).await
    };
    assert_eq!(of("text").await, "completed|done!");
    assert_eq!(of("lines").await, "completed|{\"a\": 1}\n{\"a\": 2}");
    for (task, shown) in [
        ("text", "output\n  done!\n"),
        ("lines", "output\n  {\"a\": 1}\n  {\"a\": 2}\n"),
        ("failed", "detail of the error\n  step 3\n"),
    ] {
        let sql = format!("select job_id::text from trax.run where task = '{task}'");
        let job = text(&client, &sql).await;
        let job = said(&database, &["jobs", "show", &job]);
        assert!(job.contains(shown), "{job}");
    }
    assert_eq!(of("silent").await, "completed");
    assert_eq!(of("nothing").await, "completed");
    assert_eq!(of("bytes").await, "completed|caf\u{fffd} \u{fffd}");
    assert_eq!(of("failed").await, "failed|exit code 1: trouble|step 3");
    let long = of("long").await;
    assert!(
        long.starts_with("completed|(") && long.ends_with("\n10000"),
        "{long}"
    );
    let (head, kept) = long
        .split_once(" bytes left out)\n")
        .expect("it says what is missing");
    let left_out: usize = head["completed|(".len()..].parse().expect("a number");
    // The text ends with a line break, which is not kept.
    assert_eq!(left_out + kept.len() + 1, 48_894);
    assert!(kept.len() <= 4096);
}

#[tokio::test]
async fn a_character_that_cannot_be_stored_costs_a_program_neither_its_output_nor_its_detail() {
    let database = database().await;
    let client = connect(&database).await;
    execute(&client, "select trax.enqueue('good'), trax.enqueue('bad')").await;
    let exec = r#"printf '{"a": "\\u0000|\\ud800|\\u00e9"}'; test $TRAX_TASK = good"#;
    let (code, _, errors) = run(&mut trax(
        &database,
        &["worker", "--until-empty", "--all-tasks", "--exec", exec],
    ));
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(
        errors.matches("U+FFFD replaces them").count(),
        2,
        "{errors}"
    );
    let sql = "select string_agg(concat_ws(' ', task, state, coalesce(output, detail) ->> 'a'), ', ' order by task) from trax.run";
    assert_eq!(
        text(&client, sql).await,
        "bad failed \u{fffd}|\u{fffd}|é, good completed \u{fffd}|\u{fffd}|é"
    );
}

#[tokio::test]
async fn a_string_of_a_mebibyte_is_an_output_or_its_end_is() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue(n::text) from unnest('{1048566,1048576}'::int[]) n",
    )
    .await;
    let exec = r#"printf '"'; head -c $((TRAX_TASK - 2)) /dev/zero | tr '\0' x; printf '"'"#;
    let (code, _, errors) = run(&mut trax(
        &database,
        &["worker", "--until-empty", "--all-tasks", "--exec", exec],
    ));
    assert_eq!(code, Some(0), "{errors}");
    let kept = "select string_agg(concat_ws(' ', task, length(output #>> '{}'), detail), ', ' order by task) from trax.run";
    let end = 4096 + "(1044480 bytes left out)\n".len();
    assert_eq!(
        text(&client, kept).await,
        format!("1048566 1048564, 1048576 {end}")
    );
}

/// Runs a job once with the program; returns the worker's peak memory in KiB and its output.
async fn work_once(database: &Database, arguments: &[&str]) -> (u64, String) {
    let mut all = vec!["worker", "--until-empty"];
    all.extend(arguments);
    let mut command = Command::new("bash");
    // The shell reports the peak memory of the worker itself, without its children.
    let quoted: Vec<String> = all
        .iter()
        .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
        .collect();
    command.args([
        "-c",
        &format!(
            "\"$0\" --database-url \"$1\" {} & pid=$!; \
             while kill -0 $pid 2>/dev/null; do grep VmHWM /proc/$pid/status 2>/dev/null > \"$2.next\" \
             && mv \"$2.next\" \"$2\"; sleep 0.05; done; wait $pid; code=$?; cat \"$2\"; exit $code",
            quoted.join(" ")
        ),
    ]);
    let files = Scratch::new("peak");
    let url = format!(
        "postgres://postgres@127.0.0.1:{}/{}",
        shared_server().port(),
        database.name()
    );
    command
        .arg(harness::process::trax_binary())
        .arg(url)
        .arg(files.path().join("peak"));
    let (code, output, errors) = run(&mut command);
    assert_eq!(code, Some(0), "{output}{errors}");
    let peak = output
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok());
    (
        peak.unwrap_or_else(|| panic!("no memory in {output:?}")),
        errors,
    )
}

#[tokio::test]
async fn a_program_that_prints_a_gigabyte_costs_the_worker_little_memory() {
    let database = database().await;
    let client = connect(&database).await;
    execute(
        &client,
        "select trax.enqueue('out'), trax.enqueue('err', max_retries => 0)",
    )
    .await;
    let exec = "case $TRAX_TASK in \
        out) head -c 1000000000 /dev/zero;; err) head -c 1000000000 /dev/zero >&2; echo the end >&2; exit 1;; esac";
    let (peak, errors) = work_once(&database, &["--all-tasks", "--exec", exec]).await;
    assert!(peak < 100_000, "{peak} KiB");
    assert!(
        errors.contains("standard output is longer than 1 MiB; its end is kept"),
        "{errors}"
    );
    let runs = "select string_agg(concat_ws(' ', task, state, right(error, 7), split_part(output #>> '{}', E'\\n', 1)), \
                ', ' order by task) from trax.run";
    assert_eq!(
        text(&client, runs).await,
        "err failed the end, out completed (999995904 bytes left out)"
    );
    assert!(
        value::<bool>(
            &client,
            "select max(length(output::text)) < 10000 from trax.run"
        )
        .await
    );
    assert!(value::<bool>(&client, "select max(length(error)) < 10000 from trax.run").await);
}
