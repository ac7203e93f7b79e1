//! `trax import pg_cron` from the real extension.

use super::{json, on};
use harness::process::run;
use harness::scheduler::{connect, execute, value};
use harness::session::Session;
use harness::{PATIENCE, eventually, has_library, shared_server};
use trax_client::testkit::{Database, Server};

/// Whether this PostgreSQL has pg_cron, which Debian packages for one version.
fn installed() -> bool {
    has_library(shared_server(), "pg_cron")
}

/// A server with pg_cron in its database `postgres` and trax in `app`.
async fn server() -> (Server, Database) {
    let server = harness::options()
        .fast()
        .setting("shared_preload_libraries", "trax, pg_cron")
        .setting("trax.databases", "app")
        .setting("cron.database_name", "postgres")
        .start()
        .expect("a server with pg_cron starts; scripts/setup installs it");
    let database = server.database("app").await.expect("a database is made");
    (server, database)
}

/// Jobs made with pg_cron's own functions: with and without a name, in another database, as another
/// role, changed, disabled, removed.
const JOBS: &str = r#"create role ada login;
    create extension pg_cron;
    select cron.schedule('nightly vacuum', '0 3 * * *', 'vacuum');
    select cron.schedule('*/5 6-22 * * 1-5', 'select 1');
    select cron.schedule_in_database('who', '0 9 * * mon', $$insert into ran values (current_user, 'it''s 100%')$$,
        'app', 'ada');
    select cron.schedule_in_database('off', '30 12 1 jan *', 'select 2', 'app', active => false);
    select cron.schedule('gone', '0 0 * * *', 'select 3');
    select cron.unschedule('gone');
    select cron.schedule('changed', '0 0 * * *', 'select 4');
    select cron.schedule('changed', '15 0 * * *', 'select 5');
    select cron.schedule_in_database('far', '0 4 * * *', 'select 6', 'app');
    update cron.job set nodename = 'warehouse.example', nodeport = 5433 where jobname = 'far'"#;

#[tokio::test]
async fn the_jobs_of_a_real_pg_cron_are_imported_as_they_are() {
    if !installed() {
        return;
    }
    let (server, app) = server().await;
    let source = Session::of(&server.existing("postgres")).await;
    source.get(JOBS).await;
    let from = format!(
        "host={} port={} user=postgres dbname=postgres",
        server.socket_dir().display(),
        server.port()
    );
    let import = ["import", "pg_cron", "--from", &from];
    let (code, output, errors) = run(on(&server, &app).args(import).arg("--json"));
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{output}");
    let proposals = json(&output);
    let proposals = proposals.as_array().expect("an array");
    for proposal in proposals {
        assert!(proposal["left_out"].is_null(), "{proposal}");
        let runs = proposal["next_runs"].as_array().map(Vec::len);
        assert_eq!(runs, Some(3), "{proposal}");
    }
    let (code, _, errors) = run(on(&server, &app).args(import).args(["--apply", "--yes"]));
    assert_eq!(code, Some(0), "{errors}");

    // A job that pg_cron no longer has is named.
    source
        .get("select cron.schedule('short-lived', '0 0 * * *', 'select 7')")
        .await;
    let apply = |more: &[&str]| {
        run(on(&server, &app)
            .args(import)
            .args(["--apply", "--yes"])
            .args(more))
    };
    apply(&[]);
    source.get("select cron.unschedule('short-lived')").await;
    let (_, _, errors) = apply(&["--prune"]);
    assert!(
        errors.contains(
            "\"pg_cron:short-lived\" of source \"pg_cron\" has no line any more, and is removed"
        ),
        "{errors}"
    );

    // The expected manifests, from pg_cron's own table: jobs of this database become statements,
    // and those of another database or server run by a worker with psql.
    let wanted = format!(
        "select concat_ws('|', 'pg_cron:' || replace(coalesce(jobname, 'select-1'), ' ', '-'), schedule, 'GMT',
            active, case when database = 'app' and jobname <> 'far' then concat_ws('|', 'sql', username, command) else concat_ws('|', 'shell',
            $$printf '%s\\n' '\\getenv s STATEMENT' \"select :'s' \\gexec\" | $$ ||
            'psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1 ' || case jobname when 'far' then '--host=''warehouse.example'' --port=5433'
                else '--host=''{}'' --port={}' end ||
            ' --username=''' || username || '''', database, command) end)
        from cron.job order by 1",
        server.socket_dir().display(),
        server.port()
    );
    let client = connect(&app).await;
    let seen = "select string_agg(concat_ws('|', name, cron, timezone, enabled, task, run_as, input ->> 'command',
            input #>> '{environment,PGDATABASE}', input #>> '{environment,STATEMENT}'), E'\n' order by name collate \"C\") from trax.manifest";
    let wanted = source.get(&wanted).await;
    assert_eq!(wanted.lines().count(), 6, "{wanted}");
    assert_eq!(value::<String>(&client, seen).await, wanted);

    // A job that was moved is inactive there, and its manifest stays enabled.
    let enabled = "select enabled from trax.manifest where name = 'pg_cron:off'";
    assert!(!value::<bool>(&client, enabled).await);
    execute(&client, "select trax.enable_manifest('pg_cron:off')").await;
    let (_, output, _) = apply(&["--prune"]);
    assert!(
        output.contains("its manifest stays enabled or disabled"),
        "{output}"
    );
    assert!(value::<bool>(&client, enabled).await);

    // An imported job runs as it would in pg_cron, without a worker.
    execute(
        &client,
        "create table ran (who name, what text); grant insert on ran to ada; select trax.trigger('pg_cron:who')",
    )
    .await;
    let ran = "select coalesce(string_agg(who || ' ' || what, ','), 'nothing') from ran";
    eventually("the statement has run", PATIENCE, async || {
        match value::<String>(&client, ran).await {
            ran if ran == "ada it's 100%" => Ok(()),
            other => Err(other),
        }
    })
    .await;

    // A job of another database runs by psql.
    let job = "select trax.trigger('pg_cron:changed')";
    let job = value::<i64>(&client, job).await;
    let program = format!("{} import run", harness::process::trax_binary().display());
    let (code, _, errors) = run(on(&server, &app)
        .args(["worker", "--until-empty", "--task", "shell", "--exec"])
        .arg(&program));
    assert_eq!(code, Some(0), "{errors}");
    let state = format!("select state from trax.job where job_id = {job}");
    assert_eq!(
        value::<String>(&client, &state).await,
        "completed",
        "{errors}"
    );
}

#[tokio::test]
async fn the_import_reads_what_the_real_pg_cron_accepts_and_nothing_that_it_refuses() {
    if !installed() {
        return;
    }
    let (server, app) = server().await;
    let source = Session::of(&server.existing("postgres")).await;
    source.get("create extension pg_cron").await;
    for schedule in [
        "5/15 * * * *",
        "? * * * *",
        "1x * * * *",
        "5- * * * *",
        "1,,2 * * * *",
        "0 0 L * *",
        "0 0 * * monday",
        "0 0 * *",
        "@noon",
    ] {
        let refusal = source
            .refusal(&format!("select cron.schedule('{schedule}', 'select 1')"))
            .await;
        assert!(refusal.message.contains("schedule"), "{refusal}");
    }
    let accepted = [
        ("0 0 3 * * *", "0 0 3 * *"),
        ("0 3 * * mon#2", "0 3 * * mon"),
        ("0 3 15.5 * MON;", "0 3 15 * MON"),
        ("*5 * * * *", "* * * * *"),
        ("0 3 * * 0,*", "0 3 * * 0-7"),
        ("1-9/4,30 2 * * 5-7", "1,5,9,30 2 * * 5-7"),
        ("@weekly now", "@weekly"),
    ];
    for (schedule, _) in accepted {
        source
            .get(&format!("select cron.schedule('{schedule}', 'select 1')"))
            .await;
    }
    let from = format!(
        "host={} port={} user=postgres dbname=postgres",
        server.socket_dir().display(),
        server.port()
    );
    let (code, output, errors) = run(on(&server, &app)
        .args(["import", "pg_cron", "--from", &from])
        .arg("--json"));
    assert_eq!(code, Some(0), "{errors}");
    let proposals = json(&output);
    let read: Vec<&str> = proposals
        .as_array()
        .expect("an array")
        .iter()
        .filter_map(|proposal| proposal["manifest"]["cron"].as_str())
        .collect();
    assert_eq!(read, accepted.map(|(_, cron)| cron), "{output}");
}
