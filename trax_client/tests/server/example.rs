//! The examples work as described, on a real server.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::json;
use trax_client::testkit::{Database, Server};
use trax_client::{Client, NewJob};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// Returns the command of an example, which cargo has built beside this test, with its database.
fn example(name: &str, server: &Server, database: &Database) -> Result<Command> {
    let test = std::env::current_exe()?;
    let target: PathBuf = test.ancestors().nth(2).ok_or("no target directory")?.into();
    let program = target.join("examples").join(name);
    if !program.exists() {
        let program = program.display();
        return Err(format!("{program} is missing: cargo build -p trax_client --examples").into());
    }
    let mut command = Command::new(program);
    command.env("DATABASE_URL", server.url(database.name()));
    command.env_remove("BREAK_AFTER");
    Ok(command)
}

fn ran(output: Output) -> Result<String> {
    let said = String::from_utf8(output.stdout)?;
    if output.status.success() {
        return Ok(said);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {said}{complaint}", output.status).into())
}

#[tokio::test]
async fn from_nothing_to_a_job_that_ran_takes_less_than_forty_lines() -> Result {
    assert!(include_str!("../../examples/hello.rs").lines().count() < 40);
    let server = Server::options().fast().start()?;
    let database = server.database("hello").await?;
    let said = ran(example("hello", &server, &database)?.output()?)?;
    assert_eq!(
        said,
        "hello Ada\nstopped, the queue is empty: 1 completed\n"
    );
    let db = database.connect().await?;
    let sql = "select state || ' ' || output from trax.job where task = 'hello'";
    let job: String = db.query_one(sql, &[]).await?.get(0);
    assert_eq!(job, "completed \"greeted Ada\"");
    Ok(())
}

#[tokio::test]
async fn a_worker_without_a_subscriber_reports_what_failed_on_standard_error() -> Result {
    let server = Server::options().fast().start()?;
    let database = server.database("month").await?;
    let db = database.connect().await?;
    let job = NewJob::new("report.build", json!({"month": 13}));
    let job = Client::new(&db).enqueue(&job).await?;
    let mut worker = example("worker", &server, &database)?
        .stderr(Stdio::piped())
        .spawn()?;
    let errors = worker.stderr.take().ok_or("it is piped")?;
    let line = tokio::task::spawn_blocking(move || BufReader::new(errors).lines().next());
    let line = tokio::time::timeout(Duration::from_secs(20), line).await;
    worker.kill()?;
    worker.wait()?;
    let line = line??.ok_or("it said nothing")??;
    assert_eq!(
        line,
        format!("trax: job {job} failed: there is no month 13")
    );
    Ok(())
}

#[tokio::test]
async fn a_transfer_happens_once_wherever_its_worker_dies() -> Result {
    let server = Server::options()
        .fast()
        .setting("trax.tick_interval", "100ms")
        .start()?;
    for step in ["debit", "complete"] {
        let database = server.database(step).await?;
        let db = database.connect().await?;
        db.batch_execute(
            "create table account (name text primary key, balance bigint not null);
             insert into account values ('ada', 100), ('bob', 0)",
        )
        .await?;
        let transfer = json!({"from": "ada", "to": "bob", "amount": 30});
        let client = Client::new(&db);
        let job = client
            .enqueue(&NewJob::new("money.transfer", transfer))
            .await?;

        let broken = example("exactly_once", &server, &database)?
            .env("BREAK_AFTER", step)
            .output()?;
        assert!(!broken.status.success(), "it dies after {step}");
        let balances = "select string_agg(name || ' ' || balance, ', ' order by name) from account";
        let seen: String = db.query_one(balances, &[]).await?.get(0);
        assert_eq!(
            seen, "ada 100, bob 0",
            "nothing was kept of the first attempt"
        );

        // The dead worker's lease expires, and the job is retried at once. If the worker died
        // before it could report the start of the job, no attempt was spent.
        let sql = "select count(*) = 1 from trax.work_queue";
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(90);
        while !db.query_one(sql, &[]).await?.get::<_, bool>(0) {
            assert!(
                std::time::Instant::now() < deadline,
                "the lease did not end"
            );
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        db.batch_execute("update trax.work_queue set run_at = now(); select trax.tick()")
            .await?;
        let said = ran(example("exactly_once", &server, &database)?.output()?)?;
        assert!(said.ends_with("1 completed\n"), "{said}");
        let seen: String = db.query_one(balances, &[]).await?.get(0);
        assert_eq!(seen, "ada 70, bob 30");
        let sql = "select string_agg(attempt || ' ' || state || coalesce(' ' || failure_kind, ''), ', ' order by attempt)
                   from trax.run where job_id = $1";
        let runs: String = db.query_one(sql, &[&job.0]).await?.get(0);
        let wanted = [
            "1 failed lease_expired, 2 completed",
            "0 failed lease_expired, 1 completed",
        ];
        assert!(wanted.contains(&runs.as_str()), "{runs}");
        assert!(client.check().await?.is_empty());
    }
    Ok(())
}
