//! Runs `trax bench` from a shell at tiny sizes: checks its output, and that nothing is left
//! behind.

use std::error::Error;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio_postgres::Client;
use trax_client::testkit::Server;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const DEADLINE: Duration = Duration::from_secs(180);
const SCENARIOS: &[&str] = &[
    "floor",
    "drain",
    "sql_drain",
    "single",
    "enqueue",
    "copy",
    "latency",
    "sql",
    "await",
    "wake",
    "held_snapshot",
    "depth",
    "blocked",
    "limits",
    "rates",
    "manifests",
    "firing",
    "prune",
    "scrape",
    "shards",
    "steps",
    "suspended",
    "graphs",
];
const TINY: &str = "--rounds 1 --jobs 2000 --seconds 100ms --hold 200ms --deep 3000 --blocked 500 --groups 20 --manifests 300 \
     --due 300 --finished 1000 --history 2000 --waiting 500 --callers 300 --samples 10";

fn bench(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trax"));
    command
        .env_remove("DATABASE_URL")
        .env("PGHOST", server.socket_dir())
        .env("PGPORT", server.port().to_string())
        .env("PGUSER", "postgres")
        .env("PGDATABASE", "postgres");
    command.arg("bench").args(arguments).stdin(Stdio::null());
    command
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    (output.status.code(), out, err)
}

async fn outside(server: &Server) -> Result<Client> {
    let (client, connection) = server
        .config("postgres")
        .connect(tokio_postgres::NoTls)
        .await?;
    tokio::spawn(async move { connection.await.is_ok() });
    Ok(client)
}

/// Returns the databases made by a bench that still exist.
async fn left(client: &Client) -> Result<Vec<String>> {
    let sql = "select datname::text from pg_database where datname like 'trax\\_bench\\_%'";
    let rows = client.query(sql, &[]).await?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// Waits until this many sessions of the bench are working in its own database.
async fn busy(client: &Client, sessions: i64) -> Result {
    let begun = Instant::now();
    let sql = "select count(*) from pg_stat_activity
         where datname like 'trax\\_bench\\_%' and application_name = 'trax bench'";
    loop {
        let seen: i64 = client.query_one(sql, &[]).await?.get(0);
        if seen >= sessions {
            return Ok(());
        }
        assert!(begun.elapsed() < DEADLINE, "{seen} sessions of {sessions}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for a bench to end by itself.
async fn ended(mut child: Child) -> Result<Output> {
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        assert!(begun.elapsed() < DEADLINE, "the bench goes on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(child.wait_with_output()?)
}

fn results(document: &Value) -> &[Value] {
    document["results"].as_array().map_or(&[], Vec::as_slice)
}

#[tokio::test]
async fn every_scenario_gives_figures_and_leaves_no_database() -> Result {
    let server = Server::options().fast().start()?;
    let mut arguments: Vec<&str> = SCENARIOS.to_vec();
    arguments.extend(TINY.split(' '));
    arguments.push("--json");
    let output = bench(&server, &arguments).output()?;
    let (code, out, err) = said(&output);
    assert_eq!(code, Some(0), "{err}");
    let document: Value = serde_json::from_str(&out)?;
    assert_eq!(left(&outside(&server).await?).await?, Vec::<String>::new());

    for name in SCENARIOS {
        let mine = results(&document).iter().filter(|r| r["scenario"] == *name);
        assert!(mine.count() > 0, "no figure of {name}: {out}");
    }
    for result in results(&document) {
        let value = result["value"].as_f64().unwrap_or(0.0);
        assert!(value > 0.0, "{result}");
        assert_eq!(
            result["rounds"].as_array().map(Vec::len),
            Some(1),
            "{result}"
        );
        // No part of PostgreSQL begins a statement without a client.
        let measure = result["measure"].as_str().unwrap_or_default();
        let begins = ["warm ", "cold "]
            .iter()
            .any(|name| measure.starts_with(name));
        if result["scenario"] != "floor" && !begins {
            assert!(
                result["ratio"].as_f64().is_some_and(|r| r > 0.0),
                "{result}"
            );
            assert!(
                result["floor_is"].as_str().is_some_and(|f| !f.is_empty()),
                "{result}"
            );
        }
    }
    for name in ["drain", "sql_drain", "single", "enqueue"] {
        let result = results(&document).iter().find(|r| r["scenario"] == name);
        let result = result.ok_or(name)?;
        // A lease and a run are larger than the payload; the server's processes are on this
        // machine.
        assert!(
            result["wal_bytes_per_job"]
                .as_f64()
                .is_some_and(|w| w > 100.0),
            "{result}"
        );
        assert!(result["cpu_us_per_job"].is_f64(), "{result}");
    }
    let machine = &document["machine"];
    assert!(
        machine["server"]
            .as_str()
            .is_some_and(|s| s.starts_with("PostgreSQL")),
        "{machine}"
    );
    let warnings = machine["warnings"].to_string();
    assert!(warnings.contains("fsync is off"), "{warnings}");
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_it_and_the_database_goes() -> Result {
    let server = Server::options().fast().start()?;
    let client = outside(&server).await?;
    for signal in ["INT", "TERM"] {
        let child = bench(&server, &["held_snapshot", "--hold", "600"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // The load, in addition to the two sessions of the bench itself.
        busy(&client, 5).await?;
        let killed = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status()?;
        assert!(killed.success());
        let (code, _, err) = said(&ended(child).await?);
        assert_eq!(code, Some(1), "{err}");
        assert!(
            err.contains(&format!("interrupted by SIG{signal}")),
            "{err}"
        );
        assert_eq!(left(&client).await?, Vec::<String>::new());
    }
    Ok(())
}

#[tokio::test]
async fn a_signal_while_the_database_is_made_leaves_none() -> Result {
    let server = Server::options().fast().start()?;
    let client = outside(&server).await?;
    // Copying the template waits for this lock, so that the signal arrives in time.
    let gate = outside(&server).await?;
    gate.batch_execute("begin; alter database template0 rename to nobody_copies_me")
        .await?;
    let child = bench(&server, &["floor"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let making = "select count(*) from pg_stat_activity
         where query like 'create database trax\\_bench%' and state = 'active'";
    let begun = Instant::now();
    while client.query_one(making, &[]).await?.get::<_, i64>(0) == 0 {
        assert!(begun.elapsed() < DEADLINE, "no database is made");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let killed = Command::new("kill")
        .args(["-s", "INT", &child.id().to_string()])
        .status()?;
    assert!(killed.success());
    gate.batch_execute("rollback").await?;
    let (code, _, err) = said(&ended(child).await?);
    assert_eq!(code, Some(1), "{err}");
    assert_eq!(client.query_one(making, &[]).await?.get::<_, i64>(0), 0);
    assert_eq!(left(&client).await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn after_a_failure_the_database_goes_and_the_cause_is_reported() -> Result {
    let server = Server::options().fast().start()?;
    let client = outside(&server).await?;
    let child = bench(&server, &["held_snapshot", "--hold", "600"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    busy(&client, 5).await?;
    let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity
         where datname like 'trax\\_bench\\_%' and backend_type = 'client backend'";
    client.query_one(sql, &[]).await?;
    let (code, _, err) = said(&ended(child).await?);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("trax: "), "{err}");
    assert_eq!(left(&client).await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn a_role_that_may_not_is_reported_what_it_needs() -> Result {
    let server = Server::options().fast().start()?;
    let client = outside(&server).await?;
    client
        .batch_execute("create role reader login; create role maker login createdb")
        .await?;
    for (role, missing) in [
        ("reader", "role \"reader\" may not create databases"),
        ("maker", "role \"maker\" may not create the extension trax"),
    ] {
        let output = bench(&server, &["floor"]).env("PGUSER", role).output()?;
        let (code, out, err) = said(&output);
        assert_eq!((code, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains(missing) && err.contains("hint: "), "{err}");
    }
    assert_eq!(left(&client).await?, Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn beside_databases_of_others_it_asks_first() -> Result {
    let server = Server::options().fast().start()?;
    let client = outside(&server).await?;
    client.batch_execute("create database shop").await?;
    let (code, out, err) = said(&bench(&server, &["single", "--jobs", "100"]).output()?);
    assert_eq!((code, out.as_str()), (Some(64), ""), "{err}");
    assert!(
        err.contains("also has the database \"shop\"") && err.contains("--yes"),
        "{err}"
    );
    assert_eq!(left(&client).await?, Vec::<String>::new());
    let agreed = ["single", "--jobs", "100", "--rounds", "1", "--yes"];
    let (code, out, err) = said(&bench(&server, &agreed).output()?);
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("single"), "{out}");
    Ok(())
}

#[tokio::test]
async fn without_the_preloaded_library_it_warns_and_measures() -> Result {
    let server = Server::options().fast().not_preloaded().start()?;
    let client = outside(&server).await?;
    client
        .batch_execute("create database trax_bench_0123abcd")
        .await?;
    let arguments = ["drain", "--jobs", "500", "--rounds", "1"];
    let (code, out, err) = said(&bench(&server, &arguments).output()?);
    assert_eq!(code, Some(0), "{err}");
    // Lines are folded.
    let words: Vec<&str> = out.split_whitespace().collect();
    let words = words.join(" ");
    for warning in [
        "warning: the library is not preloaded",
        "drop database trax_bench_0123abcd",
    ] {
        assert!(words.contains(warning), "{out}");
    }
    assert!(
        out.lines()
            .any(|line| line.starts_with("drain ") && line.contains(" jobs/s ")),
        "{out}"
    );
    Ok(())
}

#[tokio::test]
async fn wrong_arguments_are_refused_before_anything_is_made() -> Result {
    let server = Server::options().fast().start()?;
    for arguments in [
        ["nonsense", "--json"],
        ["--jobs", "0"],
        ["--rounds", "0"],
        ["--hold", "-1"],
        ["--all", "drain"],
    ] {
        let (code, out, err) = said(&bench(&server, &arguments).output()?);
        assert_eq!((code, out.as_str()), (Some(64), ""), "{arguments:?}: {err}");
    }
    let (_, _, err) = said(&bench(&server, &["nonsense"]).output()?);
    let (_, help, _) = said(&bench(&server, &["--help"]).output()?);
    for name in SCENARIOS {
        assert!(
            err.contains(name) && help.contains(name),
            "{name}: {err}{help}"
        );
    }
    Ok(())
}
