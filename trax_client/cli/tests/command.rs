//! Runs the `trax` command as from a shell.

use std::error::Error;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use trax_client::testkit::{Database, Server};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const DEADLINE: Duration = Duration::from_secs(180);

fn trax(server: &Server, database: &Database, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trax"));
    command.env_remove("DATABASE_URL");
    command
        .env("PGHOST", server.socket_dir())
        .env("PGPORT", server.port().to_string());
    command
        .env("PGUSER", "postgres")
        .env("PGDATABASE", database.name());
    command.args(arguments).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[tokio::test]
async fn a_programs_exit_code_is_the_outcome() -> Result {
    let server = Server::options().fast().start()?;
    let database = server.database("command").await?;
    let program = "read -r input; case $TRAX_TASK in \
         fine) echo \"$input\";; bad) echo nonsense >&2; exit 65;; *) exit 75;; esac";
    for task in ["fine", "bad", "later"] {
        let queued = trax(&server, &database, &["enqueue", task, "{\"n\": 1}"]).output()?;
        assert_eq!(said(&queued).0, Some(0), "{queued:?}");
    }
    let worked = trax(
        &server,
        &database,
        &["worker", "--until-empty", "--all-tasks", "--exec", program],
    )
    .output()?;
    assert_eq!(said(&worked).0, Some(0), "{worked:?}");
    let sql = "select task || ' ' || state || ' ' || final || ' ' || \
               coalesce(error, output::text) from trax.run order by task";
    let rows = database.connect().await?.query(sql, &[]).await?;
    let runs: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(
        runs,
        [
            "bad failed true bad input: nonsense",
            "fine completed true {\"n\": 1}",
            "later failed false temporary failure",
        ]
    );
    Ok(())
}

#[tokio::test]
async fn sigterm_gives_the_job_back_and_leaves_no_program_behind() -> Result {
    let server = Server::options().fast().start()?;
    let database = server.database("command").await?;
    trax(&server, &database, &["enqueue", "endless"]).output()?;
    // A duration that identifies this test's program among all processes.
    let sleep = format!("sleep 9{:07}", std::process::id());
    let exec = format!("trap '' TERM; {sleep}");
    let arguments = ["worker", "--grace", "0", "--all-tasks", "--exec", &exec];
    let mut worker = trax(&server, &database, &arguments)
        .stderr(Stdio::null())
        .spawn()?;
    let connection = database.connect().await?;
    let begun = Instant::now();
    while connection
        .query("select 1 from trax.lease", &[])
        .await?
        .is_empty()
    {
        assert!(begun.elapsed() < DEADLINE, "nothing was claimed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let killed = Command::new("kill").arg(worker.id().to_string()).status()?;
    assert!(killed.success());
    while worker.try_wait()?.is_none() {
        assert!(begun.elapsed() < DEADLINE, "the worker did not stop");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let row = connection
        .query_one("select attempts from trax.work_queue", &[])
        .await?;
    assert_eq!(row.get::<_, i32>(0), 0);
    let left = Command::new("pgrep")
        .args(["-f", &format!("^{sleep}")])
        .output()?;
    assert_eq!(said(&left).1, "");
    Ok(())
}

#[tokio::test]
async fn a_worker_needs_no_more_than_its_level() -> Result {
    let server = Server::options().fast().start()?;
    let database = server.database("command").await?;
    trax(&server, &database, &["enqueue", "t"]).output()?;
    let connection = database.connect().await?;
    connection.batch_execute("create role hand login").await?;
    let work = || {
        let arguments = ["worker", "--until-empty", "--all-tasks", "--exec", "true"];
        trax(&server, &database, &arguments)
            .env("PGUSER", "hand")
            .output()
    };
    let (code, _, error) = said(&work()?);
    assert_eq!(code, Some(1));
    assert!(error.contains("type: trax grant ROLE worker"), "{error}");
    connection
        .batch_execute("select trax.grant_access('hand', 'worker')")
        .await?;
    let worked = work()?;
    assert_eq!(said(&worked).0, Some(0), "{worked:?}");
    let row = connection
        .query_one(
            "select count(*) from trax.run where state = 'completed'",
            &[],
        )
        .await?;
    assert_eq!(row.get::<_, i64>(0), 1);
    Ok(())
}

#[tokio::test]
async fn exit_codes_and_messages_distinguish_mistakes_from_troubles() -> Result {
    let server = Server::options().fast().start()?;
    let database = server.plain_database("command").await?;
    let (code, _, error) = said(&trax(&server, &database, &["enqueue", "t", "{"]).output()?);
    assert_eq!(code, Some(64), "{error}");
    assert_eq!(
        said(&trax(&server, &database, &["nonsense"]).output()?).0,
        Some(64)
    );
    let (code, _, error) = said(&trax(&server, &database, &["status"]).output()?);
    assert_eq!(code, Some(1));
    assert!(error.contains("create extension trax"), "{error}");
    let url = "postgres://me@127.0.0.1:1/x";
    let unreachable = trax(&server, &database, &["--database-url", url, "check"]).output()?;
    let (code, _, error) = said(&unreachable);
    assert_eq!(code, Some(1));
    assert!(error.contains("127.0.0.1:1"), "{error}");
    Ok(())
}
