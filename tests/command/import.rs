//! `trax import crontab`: crontabs from Debian's packages, a page of difficult ones, and a worker
//! that runs the imported jobs.

use super::{bare, json, trax};
use harness::database;
use harness::process::run;
use harness::scheduler::{connect, execute, value};
use harness::shared_server;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tokio_postgres::{Client, NoTls};
use trax_client::testkit::Database;

/// Crontabs that `scripts/setup` has unpacked.
fn debian() -> Vec<PathBuf> {
    let etc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/crontabs/etc");
    let directory = std::fs::read_dir(etc.join("cron.d")).expect("scripts/setup has run");
    let mut files: Vec<PathBuf> = directory
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.file_name().is_some_and(|name| name != ".placeholder"))
        .collect();
    files.push(etc.join("crontab"));
    files.sort();
    files
}

/// Writes a file for this test.
fn file(name: &str, text: &str) -> String {
    let path = shared_server().socket_dir().join(name);
    std::fs::write(&path, text).expect("it can be written");
    path.display().to_string()
}

/// The values of a field, parsed here independently and as simply as possible.
fn values(field: &str, low: u32, high: u32, names: &str) -> String {
    let number = |text: &str| -> u32 {
        let named = names
            .split(' ')
            .position(|name| name.eq_ignore_ascii_case(text));
        named.map_or_else(
            || text.parse().expect("a number"),
            |place| low + place as u32,
        )
    };
    let mut all = BTreeSet::new();
    for item in field.split(',') {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let (from, to) = match range.split_once('-') {
            Some((from, to)) => (number(from), number(to)),
            None if range == "*" => (low, high),
            None => (number(range), number(range)),
        };
        all.extend((from..=to).step_by(number(step) as usize));
    }
    let all: Vec<String> = all.iter().map(u32::to_string).collect();
    all.join(",")
}

/// The first minutes in UTC at which a crontab line runs, checked minute by minute against the rule
/// of the manual page.
async fn by_the_manual(client: &Client, schedule: &str, count: i32) -> String {
    let schedule = match schedule {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        fields => fields,
    };
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    let months = "jan feb mar apr may jun jul aug sep oct nov dec";
    let days = "sun mon tue wed thu fri sat";
    let both = if fields[2].starts_with('*') || fields[4].starts_with('*') {
        "and"
    } else {
        "or"
    };
    let sql = format!(
        "select coalesce(string_agg(to_char(m.at, 'YYYY-MM-DD HH24:MI'), ', ' order by m.at), '') from (
            select m.at from minute m
            where m.minute in ({minute}) and m.hour in ({hour}) and m.month in ({month})
                and (m.day in ({day}) {both} (m.dow in ({dow}) or m.dow + 7 in ({dow})))
            order by m.at limit {count}) m",
        minute = values(fields[0], 0, 59, ""),
        hour = values(fields[1], 0, 23, ""),
        day = values(fields[2], 1, 31, ""),
        month = values(fields[3], 1, 12, months),
        dow = values(fields[4], 0, 7, days),
    );
    value(client, &sql).await
}

/// The minutes of the next 400 days.
async fn minutes(client: &Client) {
    execute(
        client,
        "set timezone = 'UTC';
        create temp table minute as
        select t at time zone 'UTC' as at, extract(minute from t)::int as minute, extract(hour from t)::int as hour,
            extract(day from t)::int as day, extract(month from t)::int as month, extract(dow from t)::int as dow
        from generate_series(date_trunc('minute', now()) + interval '1 min', now() + interval '400 days', interval '1 min') t;
        analyze minute",
    )
    .await;
}

/// Checks that each proposal's next runs match the manual; returns the number of proposals checked.
async fn assert_next_runs(client: &Client, proposals: &[Value]) -> usize {
    let mut looked = 0;
    for proposal in proposals {
        let line = proposal["line"].as_str().expect("a line");
        if !proposal["left_out"].is_null() {
            continue;
        }
        let schedule = if line.starts_with('@') {
            line.split_whitespace().take(1).collect::<Vec<_>>()
        } else {
            line.split_whitespace().take(5).collect()
        };
        let mut told: Vec<String> = proposal["next_runs"]
            .as_array()
            .expect("times")
            .iter()
            .map(|at| at.as_str().expect("a time")[..16].replace('T', " "))
            .collect();
        assert_eq!(told.len(), 5, "{line}");
        // The minute may have changed between the two calls.
        let mut expected: Vec<String> = by_the_manual(client, &schedule.join(" "), 6)
            .await
            .split(", ")
            .map(str::to_owned)
            .collect();
        if told[0] != expected[0] {
            expected.remove(0);
        }
        expected.truncate(expected.len().min(5));
        told.truncate(expected.len());
        assert_eq!(told, expected, "{line}");
        looked += 1;
    }
    looked
}

#[tokio::test]
async fn the_crontabs_of_debian_packages_run_when_their_manual_says() {
    let database = database().await;
    let client = connect(&database).await;
    minutes(&client).await;
    let mut command = trax(&database, &["import", "crontab", "--json", "--count", "5"]);
    command.args(["--timezone", "UTC"]).args(debian());
    let (code, output, errors) = run(&mut command);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    let proposals = json(&output);
    let proposals = proposals.as_array().expect("an array");
    let looked = assert_next_runs(&client, proposals).await;
    assert!(looked >= 12, "{looked} lines were looked at");
    let left_out: Vec<&str> = proposals
        .iter()
        .filter(|proposal| !proposal["left_out"].is_null())
        .filter_map(|proposal| proposal["line"].as_str())
        .collect();
    assert!(
        left_out.iter().all(|line| line.starts_with("@reboot")),
        "{left_out:?}"
    );
    let users = proposals
        .iter()
        .filter(|p| p["manifest"]["input"]["user"] == "root");
    assert!(users.count() >= 8, "lines of the system name their user");
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.manifest").await,
        0,
        "nothing is made without --apply"
    );
}

const HARD: &str = r#"# A page of hard ones.
SHELL = /bin/bash
MAILTO="ops@example.org"
	*/5 8-18/2 * * mon-fri	 one
1-59/7,3,58 */6 1-7,20-31/3 * * two
0 0 */2 * 1 three
0 0 13 * 5 four
15 10 1,15 jan,MAR,may-jul 1-5 five
59 23 31 12 * six
0 0 29 2 * leap
07 03 * * 7 seven
0 12 * * sun,3 eight
*/20 * */10 */3 */2 nine
0 4 1-31 * 2 ten
0 4 * * 0-7 eleven
@hourly twelve
@midnight thirteen
@annually fourteen
0 5 8-14 * */6 fifteen
"#;

#[tokio::test]
async fn a_page_of_hard_ones_runs_when_the_manual_says() {
    let database = database().await;
    let client = connect(&database).await;
    minutes(&client).await;
    let page = file("hard", HARD);
    let mut command = trax(&database, &["import", "crontab", "--json", "--count", "5"]);
    let (code, output, errors) = run(command.args(["--timezone", "UTC", &page]));
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    let proposals = json(&output);
    let proposals = proposals.as_array().expect("an array");
    let (leap, others): (Vec<Value>, Vec<Value>) = proposals.iter().cloned().partition(|p| {
        p["line"]
            .as_str()
            .is_some_and(|line| line.ends_with("leap"))
    });
    assert_eq!(assert_next_runs(&client, &others).await, 15);
    let leap = leap[0]["next_runs"][0].as_str().expect("a time");
    assert!(leap.contains("-02-29T00:00:00"), "{leap}");
}

#[tokio::test]
async fn what_cannot_be_carried_over_is_said_and_the_rest_is_made() {
    let database = database().await;
    let client = connect(&database).await;
    let page = file(
        "mixed",
        "@reboot start\n5/15 * * * * odd\n0 0 30 2 * never\nCRON_TZ=Asia/Tokyo\nMAILTO=me\n0 3 * * * backup --all\n0 4 * * * backup --all\n",
    );
    let (code, output, errors) = run(&mut trax(&database, &["import", "crontab", &page]));
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        errors.contains("2 of 5 lines can become manifests"),
        "{errors}"
    );
    for said in [
        "mixed:1  @reboot start",
        "left out: the start of a machine",
        "write 5 or 5-59/15",
        "the schedule never fires",
        "cron 0 3 * * * in Asia/Tokyo, task shell",
        "03:00:00 +09:00",
        "note: no mail is sent",
    ] {
        assert!(output.contains(said), "{said}: {output}");
    }
    let make = ["import", "crontab", &page, "--apply"];
    let (code, _, errors) = run(&mut trax(&database, &make));
    assert_eq!(code, Some(64), "cannot ask for confirmation: {errors}");
    let (code, _, errors) = run(trax(&database, &make).arg("--yes"));
    assert_eq!(code, Some(0), "{errors}");
    let made = "select string_agg(concat_ws(' ', name, cron, timezone, misfire, on_dead_letter, max_retries, timeout), '; ' order by name)
        from trax.manifest";
    assert_eq!(
        value::<String>(&client, made).await,
        "mixed:backup-all 0 3 * * * Asia/Tokyo skip continue 0 24:00:00; mixed:backup-all-2 0 4 * * * Asia/Tokyo skip continue 0 24:00:00"
    );
    let (code, output, _) = run(trax(&database, &make).args(["--yes", "--quiet"]));
    assert_eq!(
        (code, output.as_str()),
        (Some(0), "mixed:backup-all\nmixed:backup-all-2\n"),
        "once more changes nothing"
    );
    let count = value::<i64>(&client, "select count(*) from trax.manifest").await;
    assert_eq!(count, 2);
}

#[tokio::test]
async fn what_a_user_wrote_into_crons_own_directory_runs_as_that_user() {
    let database = database().await;
    let spool = shared_server().socket_dir().join("spool/cron/crontabs");
    std::fs::create_dir_all(&spool).expect("a directory can be made");
    let mallory = file("spool/cron/crontabs/mallory", "* * * * * id\n");
    let users = |arguments: &[&str]| {
        let mut all = vec!["import", "crontab", "--json"];
        all.extend(arguments);
        let (code, output, errors) = run(&mut trax(&database, &all));
        assert_eq!(code, Some(0), "{errors}");
        json(&output)[0]["manifest"]["input"]["user"].clone()
    };
    assert_eq!(users(&[&mallory]), "mallory");
    assert_eq!(users(&["--user", "nobody", &mallory]), "nobody");
    let elsewhere = file("mallory", "* * * * * id\n");
    assert_eq!(users(&[&elsewhere]), Value::Null);
}

#[tokio::test]
async fn wrong_usage_is_said() {
    let database = database().await;
    for (arguments, code, said) in [
        (vec!["import", "crontab"], 64, "FILE"),
        (
            vec!["import", "crontab", "/no/such/file"],
            64,
            "/no/such/file",
        ),
        (vec!["import", "pg_cron"], 1, "cron.job"),
        (vec!["import"], 64, "Usage"),
    ] {
        let (seen, _, errors) = run(&mut trax(&database, &arguments));
        assert_eq!(seen, Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(said), "{arguments:?}: {errors}");
    }
    let page = file("zone", "0 0 * * * x\n");
    let (code, output, _) = run(&mut trax(
        &database,
        &["import", "crontab", "--timezone", "Mars/Base", &page],
    ));
    assert_eq!(code, Some(0));
    assert!(
        output.contains("left out: the server refused it"),
        "{output}"
    );
}

/// The state, output and error of the only ended job.
async fn ended(client: &Client) -> String {
    let sql = "select concat_ws('|', state, output, error) from trax.run order by finished_at desc limit 1";
    value(client, sql).await
}

#[tokio::test]
async fn a_worker_runs_what_was_imported_as_cron_would() {
    let database = database().await;
    let client = connect(&database).await;
    let page = file(
        "work",
        "GREETING = 'good day'\n0 0 1 1 * read line; read more; printf '\"\\%s \\%s \\%s \\%s\"' \"$GREETING\" \"$line\" \"$more\" \"$PWD\"%first%50\\%\n0 0 2 1 * echo trouble >&2; exit 3\n",
    );
    let (code, _, errors) = run(&mut trax(
        &database,
        &["import", "crontab", &page, "--apply", "--yes"],
    ));
    assert_eq!(code, Some(0), "{errors}");
    let names: Vec<String> = {
        let rows = client
            .query("select name from trax.manifest order by cron", &[])
            .await
            .expect("names");
        rows.iter().map(|row| row.get(0)).collect()
    };
    let worker = |program: &str| {
        let program = format!("{} {program}", harness::process::trax_binary().display());
        let (code, _, errors) = run(&mut trax(
            &database,
            &[
                "worker",
                "--until-empty",
                "--task",
                "shell",
                "--exec",
                &program,
            ],
        ));
        assert_eq!(code, Some(0), "{errors}");
    };
    let trigger = |name: &str| format!("select trax.trigger('{name}')");
    execute(&client, &trigger(&names[0])).await;
    worker("import run");
    let home = value::<String>(&client, "select state || ' ' || output from trax.run").await;
    assert!(
        home.starts_with("completed \"good day first 50% /"),
        "{home}"
    );
    execute(&client, &trigger(&names[1])).await;
    worker("import run --like-cron");
    assert_eq!(
        ended(&client).await,
        "completed|{\"output\": \"trouble\", \"exit_code\": 3}"
    );
    execute(&client, &trigger(&names[1])).await;
    worker("import run");
    let seen = ended(&client).await;
    assert!(
        seen.starts_with("failed|") && seen.contains("trouble"),
        "{seen}"
    );
    let stored = |input: &str| {
        format!(
            "select trax.schedule('other', task => 'shell', input => '{input}', max_retries => 0); select trax.trigger('other')"
        )
    };
    execute(
        &client,
        &stored(r#"{"command": "true", "user": "nobody_of_this_name"}"#),
    )
    .await;
    worker("import run");
    let seen = ended(&client).await;
    assert!(seen.contains("no user \"nobody_of_this_name\""), "{seen}");
    execute(&client, &stored(r#"{"x": 1}"#)).await;
    worker("import run");
    let seen = ended(&client).await;
    assert!(seen.contains("missing field `command`"), "{seen}");
}

/// The addresses of a worker and a producer.
async fn levels(database: &Database, client: &Client) -> [String; 2] {
    let mut addresses = Vec::new();
    for level in ["worker", "producer"] {
        let role = format!("{}_{level}", database.name());
        let sql =
            format!("create role {role} login; select trax.grant_access('{role}', '{level}')");
        execute(client, &sql).await;
        addresses.push(format!(
            "host={} port={} user={role} dbname={}",
            shared_server().socket_dir().display(),
            shared_server().port(),
            database.name()
        ));
    }
    addresses.try_into().expect("two levels")
}

#[tokio::test]
async fn only_what_a_manifest_stores_is_run_whoever_asks() {
    let database = database().await;
    let client = connect(&database).await;
    let [worker, producer] = levels(&database, &client).await;
    let producer = {
        let config: tokio_postgres::Config = producer.parse().expect("an address");
        let (producer, connection) = config.connect(NoTls).await.expect("a producer connects");
        tokio::spawn(connection);
        producer
    };
    let mark = shared_server().socket_dir().join("run-as-root");
    let evil = format!(
        r#"{{"command": "touch {}", "user": "root"}}"#,
        mark.display()
    );
    execute(
        &client,
        r#"select trax.schedule('good', task => 'shell', input => '{"command": "exit 7"}', max_retries => 3);
        select trax.schedule('other', task => 'mail', max_retries => 3);
        select trax.schedule('late', task => 'shell', input => '{"command": "exit 8"}', max_retries => 3)"#,
    )
    .await;
    for sql in [
        format!("select trax.enqueue('shell', '{evil}')"),
        format!("insert into trax.new_job (task, input) values ('shell', '{evil}')"),
        format!("select trax.trigger('good', input => '{evil}')"),
        "select trax.trigger('late')".to_owned(),
        "select trax.trigger('good')".to_owned(),
    ] {
        execute(&producer, &sql).await;
    }
    // A job that waits while its manifest changes no longer has the manifest's input.
    execute(
        &client,
        r#"select trax.schedule('late', task => 'shell', input => '{"command": "exit 9"}')"#,
    )
    .await;
    let program = format!(
        "{} import run --like-cron",
        harness::process::trax_binary().display()
    );
    let (code, _, errors) = run(bare()
        .args(["--database-url", &worker, "worker", "--until-empty"])
        .args(["--task", "shell", "--exec", &program])
        // A nested worker must not trust this variable of its own environment.
        .env("TRAX_INPUT_FROM", "manifest"));
    assert_eq!(code, Some(0), "{errors}");
    assert!(!mark.exists(), "a producer ran a command");
    let ends = "select string_agg(concat_ws(' ', coalesce(manifest, '-'), state, output ->> 'exit_code'), ', ' order by job_id)
        from trax.run";
    assert_eq!(
        value::<String>(&client, ends).await,
        "- failed, - failed, good failed, late failed, good completed 7",
        "{errors}"
    );
    let words = "select count(*) from trax.dead_letter
        where last_error ~ 'no manifest, so its command is not run|is not the one that manifest \"(good|late)\" stores'
            and last_error ~ 'trax.schedule' and attempts = 1";
    assert_eq!(value::<i64>(&client, words).await, 4, "{errors}");
}

#[tokio::test]
async fn by_hand_nothing_is_run() {
    let mut command = bare();
    command
        .args(["import", "run"])
        .env_remove("TRAX_INPUT_FROM");
    let (code, _, errors) = run(&mut command);
    assert_eq!(code, Some(65), "{errors}");
    assert!(errors.contains("trax worker --exec"), "{errors}");
}
