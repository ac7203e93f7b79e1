//! Restores over an existing database, whole or in part.

use super::*;

/// A database on the live server that is filled while its scheduler is off, and polled often from
/// then on.
async fn filled_live() -> (Database, String) {
    let name = new_name("over");
    let database = live_server()
        .plain_database(&name)
        .await
        .expect("a database is made");
    let admin = connect(&live_server().existing("postgres")).await;
    execute(
        &admin,
        &format!("alter database {name} set trax.enabled = off"),
    )
    .await;
    let client = connect(&database).await;
    execute(&client, "create extension trax").await;
    fill(&client).await;
    let contents = value(&client, CONTENTS).await;
    (database, contents)
}

/// Starts the scheduler of a database, with a short poll interval.
async fn let_run(database: &Database) {
    let name = database.name();
    let admin = connect(&live_server().existing("postgres")).await;
    execute(
        &admin,
        &format!(
            "alter database {name} set trax.tick_interval = '50 ms';
            alter database {name} reset trax.enabled"
        ),
    )
    .await;
    let client = connect(database).await;
    eventually("the due manifest's job", PATIENCE, async || {
        let sql = "select count(*) from trax.work_queue where manifest = 'due'";
        match value::<i64>(&client, sql).await {
            1 => Ok(()),
            seen => Err(format!("{seen} jobs")),
        }
    })
    .await;
}

fn dump(server: &Server, database: &str, path: &Path, options: &[&str]) {
    run_quietly(
        server
            .command("pg_dump")
            .args(options)
            .arg("-f")
            .arg(path)
            .arg(database),
    );
}

/// Feeds a script to psql; returns its errors.
fn feed(server: &Server, database: &str, script: &str) -> String {
    // Newer versions of pg_dump wrap the script in `\restrict` and `\unrestrict`.
    let plain: Vec<&str> = script
        .lines()
        .filter(|line| !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict"))
        .collect();
    let files = Scratch::new("script");
    let path = files.path().join("script.sql");
    std::fs::write(&path, plain.join("\n")).expect("the script can be written");
    let mut psql = server.command("psql");
    psql.args(["-Xq", "-d", database, "-f"]).arg(&path);
    harness::process::run(&mut psql).2
}

#[tokio::test]
async fn a_slow_restore_over_the_same_database_loses_no_waiting_job() {
    let (database, contents) = filled_live().await;
    let files = Scratch::new("slow-restore");
    let path = files.path().join("dump.sql");
    dump(
        live_server(),
        database.name(),
        &path,
        &["--clean", "--if-exists"],
    );
    let_run(&database).await;
    let script = std::fs::read_to_string(&path).expect("the dump can be read");
    let at = script
        .find("COPY trax.work_queue ")
        .expect("the queue is in the dump");
    assert!(
        script[..at].contains("COPY trax.instance ")
            && script[..at].contains("COPY trax.manifest_state ")
    );

    let said = feed(live_server(), database.name(), &script[..at]);
    assert_eq!(said, "");
    let client = connect(&database).await;
    scheduler_of(&client, database.name(), PATIENCE).await;
    scheduler_wakes(&client, database.name(), 5).await;
    let rest = format!("set row_security = off;\n{}", &script[at..]);
    assert_eq!(feed(live_server(), database.name(), &rest), "");
    assert_eq!(value::<String>(&client, CONTENTS).await, contents);
    a_restore_is_whole(&database, &contents).await;
}

#[tokio::test]
async fn restores_over_the_same_database_lose_nothing_while_its_scheduler_runs() {
    let (database, contents) = filled_live().await;
    let files = Scratch::new("over-itself");
    let path = files.path().join("dump");
    dump(live_server(), database.name(), &path, &["-Fc"]);
    let_run(&database).await;
    for options in [
        &["--clean"][..],
        &["--clean", "--if-exists", "-j", "2"],
        &["--clean", "--single-transaction"],
    ] {
        let client = connect(&database).await;
        scheduler_of(&client, database.name(), PATIENCE).await;
        drop(client);
        let mut restore = live_server().command("pg_restore");
        restore
            .args(options)
            .args(["--exit-on-error", "-d", database.name()])
            .arg(&path);
        run_quietly(&mut restore);
        let client = connect(&database).await;
        scheduler_of(&client, database.name(), PATIENCE).await;
        scheduler_wakes(&client, database.name(), 3).await;
        assert_eq!(value::<String>(&client, CONTENTS).await, contents);
        a_copy_refuses(&client).await;
    }
    a_restore_is_whole(&database, &contents).await;
}

#[tokio::test]
async fn data_alone_restored_into_an_adopted_database_makes_a_copy_of_it() {
    let (database, _) = filled_live().await;
    let files = Scratch::new("data-only");
    let path = files.path().join("dump.sql");
    dump(live_server(), database.name(), &path, &["--data-only"]);
    let_run(&database).await;
    let client = connect(&database).await;
    execute(
        &client,
        "drop extension trax; create extension trax; select trax.make_run_partitions(now() - interval '3 days', 2);
        select trax.make_run_partitions(now() + interval '3 days', 1)",
    )
    .await;
    scheduler_of(&client, database.name(), PATIENCE).await;
    a_cycle_runs(&client, PATIENCE).await;
    // Rows left by that cycle would collide with the dump.
    execute(&client, "truncate trax.run, trax.dead_letter").await;
    let script = std::fs::read_to_string(&path).expect("the dump can be read");
    let said = feed(live_server(), database.name(), &script);
    assert_eq!(said, "");
    scheduler_of(&client, database.name(), PATIENCE).await;
    let before: String = value(&client, CONTENTS).await;
    assert!(before.contains("work_queue ") && before.contains("due"));
    scheduler_wakes(&client, database.name(), 5).await;
    assert_eq!(value::<String>(&client, CONTENTS).await, before);
    a_copy_refuses(&client).await;
    execute(&client, "select trax.adopt()").await;
    a_cycle_runs(&client, PATIENCE).await;
}

#[tokio::test]
async fn a_schema_restored_without_data_works_once_it_is_adopted() {
    let source = database().await;
    let files = Scratch::new("schema-only");
    let path = files.path().join("dump.sql");
    dump(shared_server(), source.name(), &path, &["--schema-only"]);
    let target = empty_target().await;
    let script = std::fs::read_to_string(&path).expect("the dump can be read");
    assert_eq!(feed(live_server(), target.name(), &script), "");
    let client = connect(&target).await;
    scheduler_of(&client, target.name(), PATIENCE).await;
    a_copy_refuses(&client).await;
    execute(&client, "select trax.adopt()").await;
    a_cycle_runs(&client, PATIENCE).await;
}

/// Ways to prepare an adopted database for a load of data only: recreate the extension, or empty
/// the tables.
const BEFORE_DATA: [&str; 2] = [
    "drop extension trax; create extension trax; select trax.make_run_partitions(now() - interval '3 days', 2);
     select trax.make_run_partitions(now() + interval '3 days', 1)",
    "truncate trax.instance, trax.work_queue, trax.lease, trax.progress, trax.run, trax.dead_letter, trax.manifest,
     trax.manifest_state, trax.manifest_dependency, trax.manifest_group, trax.task, trax.admission, trax.unique_key, trax.concurrency_token, trax.rate, trax.rate_closure,
     trax.worker, trax.audit;
     select trax.adopt()",
];

#[tokio::test]
async fn no_way_of_loading_a_dump_leaves_a_database_adopted() {
    let (database, _) = filled_live().await;
    let files = Scratch::new("ways-of-loading");
    let path = files.path().join("dump");
    dump(live_server(), database.name(), &path, &["-Fc"]);
    let_run(&database).await;
    for (before, options) in [
        (BEFORE_DATA[0], &["--data-only", "--disable-triggers"][..]),
        (BEFORE_DATA[1], &["--data-only", "--disable-triggers"]),
        (BEFORE_DATA[0], &["--data-only", "--enable-row-security"]),
        (BEFORE_DATA[1], &["--data-only", "--enable-row-security"]),
        // `-j` loads in several transactions. Until the first commits nothing shows a load, so the
        // scheduler is paused.
        (
            &format!("{}; select trax.pause('a load')", BEFORE_DATA[1]),
            &[
                "--data-only",
                "--disable-triggers",
                "--enable-row-security",
                "-j",
                "2",
            ],
        ),
        (
            BEFORE_DATA[1],
            &[
                "--data-only",
                "--disable-triggers",
                "--enable-row-security",
                "-t",
                "work_queue",
            ],
        ),
        ("select 1", &["--clean", "--enable-row-security"]),
    ] {
        let client = connect(&database).await;
        execute(&client, before).await;
        scheduler_of(&client, database.name(), PATIENCE).await;
        // The session caches that its database is adopted.
        execute(
            &client,
            "select * from trax.claim_next(tasks => '{nothing}')",
        )
        .await;
        let mut restore = live_server().command("pg_restore");
        restore
            .args(options)
            .args(["--exit-on-error", "-d", database.name()])
            .arg(&path);
        run_quietly(&mut restore);
        a_copy_refuses(&client).await;
        let client = connect(&database).await;
        a_copy_refuses(&client).await;
        let loaded: String = value(&client, CONTENTS).await;
        assert!(loaded.contains("work_queue "), "{options:?}: {loaded}");
        scheduler_of(&client, database.name(), PATIENCE).await;
        scheduler_wakes(&client, database.name(), 3).await;
        assert_eq!(
            value::<String>(&client, CONTENTS).await,
            loaded,
            "{options:?}"
        );
        the_scheduler_waits_for_adopt(&client).await;
        execute(&client, "select trax.adopt(); select trax.resume()").await;
        a_cycle_runs(&client, PATIENCE).await;
        status_becomes(&client, "scheduler", "running", PATIENCE).await;
    }
}
