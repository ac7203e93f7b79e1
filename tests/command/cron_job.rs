//! `trax import pg_cron` from a table `cron.job` without the extension, with any text in it and any
//! database name.

use super::{json, trax};
use harness::database;
use harness::process::run;
use harness::scheduler::{connect, execute, value};
use harness::shared_server;
use std::path::Path;

/// The table of pg_cron 1.6, with its columns and types.
const PG_CRON: &str = "create schema cron;
    create table cron.job (jobid bigint primary key, schedule text not null, command text not null,
        nodename text not null default 'localhost', nodeport int not null default current_setting('port')::int,
        database text not null default current_database(), username text not null default current_user,
        active boolean not null default true, jobname name);
    insert into cron.job (jobid, schedule, command, jobname, active) values
        (1, '0 3 * * *', 'vacuum', 'nightly vacuum', true),
        (2, '30 seconds', 'select beat()', null, true),
        (3, '0 12 $ * *', 'select ''month''', null, false),
        (4, 'whenever', 'select 1', null, true)";

#[tokio::test]
async fn the_jobs_of_pg_cron_become_manifests_also_from_another_database() {
    let database = database().await;
    let elsewhere = harness::scheduler::new_name("elsewhere");
    let other = shared_server()
        .plain_database(&elsewhere)
        .await
        .expect("a database is made");
    execute(&connect(&other).await, PG_CRON).await;
    let client = connect(&database).await;
    let from = format!(
        "host={} port={} user=postgres dbname={elsewhere}",
        shared_server().socket_dir().display(),
        shared_server().port()
    );
    let arguments = ["import", "pg_cron", "--from", &from, "--group", "old"];
    let (code, output, errors) = run(&mut trax(&database, &arguments));
    assert_eq!(code, Some(0), "{errors}");
    assert!(output.contains("cron.job:4"), "{output}");
    assert!(
        output.contains("left out: it has fewer than five fields of time"),
        "{output}"
    );
    assert!(output.contains("switched off"), "{output}");
    let (code, _, errors) = run(trax(&database, &arguments).args(["--apply", "--yes"]));
    assert_eq!(code, Some(0), "{errors}");
    let made = "select string_agg(concat_ws(' ', name, coalesce(cron, every::text), timezone, group_name, enabled, on_dead_letter), '; '
        order by name) from trax.manifest";
    assert_eq!(
        value::<String>(&client, made).await,
        "pg_cron:nightly-vacuum 0 3 * * * GMT old t continue; \
         pg_cron:select-beat 00:00:30 UTC old t continue; \
         pg_cron:select-month 0 12 L * * GMT old f continue"
    );
    let input = "select input::text from trax.manifest where name like '%vacuum'";
    assert_eq!(
        json(&value::<String>(&client, input).await),
        serde_json::json!({
            "command": format!(
                "printf '%s\\n' '\\getenv s STATEMENT' \"select :'s' \\gexec\" | \
                 psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 --host='{}' --port={} --username='postgres'",
                shared_server().socket_dir().display(),
                shared_server().port()
            ),
            "environment": {"PGDATABASE": elsewhere, "STATEMENT": "vacuum"},
        })
    );
}

#[tokio::test]
async fn each_job_is_imported_by_itself_and_runs_when_pg_cron_runs_it() {
    let database = database().await;
    let client = connect(&database).await;
    let settings = format!(
        "alter database {0} set cron.timezone = 'europe/berlin';
        alter database {0} set cron.match_dom_and_dow = on",
        database.name()
    );
    execute(&client, &settings).await;
    execute(&client, PG_CRON).await;
    let jobs = "delete from cron.job;
        insert into cron.job (jobid, schedule, command, jobname, username) values
            (1, '0 0 3 * * *', 'select 1', 'six', default),
            (2, '0 3 * * mon#2', 'select 1', 'monday', default),
            (3, '0 3 */2 * 1', 'select 1', 'both', default),
            (4, '0 3 * * *', 'select 1', 'gone', 'nobody_has_this_name'),
            (5, '0 3 * * *', 'selct 1', 'mistyped', default),
            (6, '0 3 * * *', 'begin', 'begins', default),
            (7, '@yearly', 'select 1', 'yearly', default),
            (8, '0 3 1 * mon-fri', 'select 1', 'last', default)";
    execute(&client, jobs).await;
    let arguments = ["import", "pg_cron", "--json", "--apply", "--yes"];
    let (code, output, errors) = run(&mut trax(&database, &arguments));
    assert_eq!(code, Some(0), "{errors}");
    let proposals = json(&output);
    let left_out: Vec<(&str, bool)> = proposals
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|proposal| {
            let words = [
                ("cron.job:4", "nobody_has_this_name"),
                ("cron.job:5", "syntax error"),
                ("cron.job:6", "begin"),
                ("cron.job:7", "0 0 1 1 *"),
            ];
            let source = proposal["source"].as_str()?;
            let reason = proposal["left_out"].as_str()?;
            let word = words.iter().find(|(of, _)| *of == source)?.1;
            Some((source, reason.contains(word)))
        })
        .collect();
    let expected = [4, 5, 6, 7].map(|job| format!("cron.job:{job}"));
    let expected: Vec<(&str, bool)> = expected.iter().map(|job| (job.as_str(), true)).collect();
    assert_eq!(left_out, expected, "{output}");
    assert!(
        output.contains(r##"pg_cron ignores \"#2\" in \"mon#2\""##),
        "{output}"
    );
    let made = "select string_agg(concat_ws(' ', name, cron, exclusions ->> 'days_of_week'), '; ' order by name)
        from trax.manifest
        where timezone = 'Europe/Berlin'";
    assert_eq!(
        value::<String>(&client, made).await,
        "pg_cron:both 0 3 */2 * * [\"SUN\", \"TUE\", \"WED\", \"THU\", \"FRI\", \"SAT\"]; \
         pg_cron:last 0 3 1 * * [\"SUN\", \"SAT\"]; pg_cron:monday 0 3 * * mon; pg_cron:six 0 0 3 * *"
    );
}

#[tokio::test]
async fn a_statement_of_pg_cron_is_sql_and_nothing_else_in_a_database_of_any_name() {
    let database = database().await;
    let client = connect(&database).await;
    let name = format!("host=nowhere {} 'x'", harness::scheduler::new_name("odd"));
    let other = shared_server()
        .plain_database(&name)
        .await
        .expect("a database is made");
    let there = connect(&other).await;
    execute(&there, PG_CRON).await;
    let mark = shared_server().socket_dir().join("meta-command");
    let mark = mark.display();
    let jobs = format!(
        r"delete from cron.job; create table ran (what text);
        insert into cron.job (jobid, schedule, command, jobname) values
            (1, '0 0 1 1 *', $c$\! touch {mark}$c$, 'shell'),
            (2, '0 0 1 1 *', $c$insert into ran values (':USER $HOME `touch {mark}` ' || current_database())$c$, 'sql'),
            (3, '0 0 1 1 *', $c$insert into ran values ('undone');
\! touch {mark}
$c$, 'second'),
            (4, '0 0 1 1 *', $c$select 1 \g | touch {mark}$c$, 'pipe')"
    );
    execute(&there, &jobs).await;
    let from = format!(
        "host={} port={} user=postgres dbname='{}'",
        shared_server().socket_dir().display(),
        shared_server().port(),
        name.replace('\'', "\\'")
    );
    let import = ["import", "pg_cron", "--from", &from, "--apply", "--yes"];
    let (code, _, errors) = run(&mut trax(&database, &import));
    assert_eq!(code, Some(0), "{errors}");
    execute(&client, "select trax.trigger(name) from trax.manifest").await;
    let program = format!("{} import run", harness::process::trax_binary().display());
    let worker = ["worker", "--until-empty", "--all-tasks", "--exec", &program];
    let (code, _, errors) = run(&mut trax(&database, &worker));
    assert_eq!(code, Some(0), "{errors}");
    assert!(!Path::new(&mark.to_string()).exists(), "{errors}");
    assert_eq!(
        value::<String>(&there, "select string_agg(what, ',') from ran").await,
        format!(":USER $HOME `touch {mark}` {name}"),
        "{errors}"
    );
    let states =
        "select string_agg(manifest || ' ' || state, ', ' order by manifest) from trax.run";
    assert_eq!(
        value::<String>(&client, states).await,
        "pg_cron:pipe failed, pg_cron:second failed, pg_cron:shell failed, pg_cron:sql completed"
    );
}
