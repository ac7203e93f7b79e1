//! Calls that are refused, and what they leave.

use std::time::Duration;

use trax_client::testkit::Server;
use trax_client::{
    Client, Closed, Error as TraxError, Graph, GraphJob, JobOptions, Manifest, NewJob, Rate, SqlJob,
};

use super::{Fixture, Result, run};

/// The driver gives the calls after a COPY that fails at its start the answers of each other.
#[tokio::test]
async fn after_a_refused_copy_each_call_gets_its_own_answer() -> Result {
    let fixture = Fixture::new("refused").await?;
    let setup =
        "create role refused_reader login; select trax.grant_access('refused_reader', 'reader')";
    fixture.connection.batch_execute(setup).await?;
    let mut address = fixture.database.config();
    address.user("refused_reader");
    let connection = trax_client::Address::from(address).connect().await?;
    let client = Client::new(&connection);
    for _ in 0..20 {
        let refused = client.enqueue_all([NewJob::new("a", 1)]).await;
        assert!(
            matches!(refused, Err(TraxError::NotPermitted(_))),
            "{refused:?}"
        );
        client.status().await?;
        let refused = client.pause(None).await;
        assert!(
            matches!(refused, Err(TraxError::NotPermitted(_))),
            "{refused:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn no_option_of_a_job_is_lost() -> Result {
    let server = Server::options().fast().start()?;
    let connection = server.database("options").await?.connect().await?;
    let client = Client::new(&connection);
    client
        .configure_rate("api", &Rate::new(1, Duration::from_secs(3600)))
        .await?;
    let options = || JobOptions::new().rate("api").rate_key("k").cost(1);
    let mut graph = Graph::new();
    graph.add(GraphJob::new("a", &NewJob::new("t", 1).with(options()))?);
    client.enqueue_graph(&graph).await?;
    let stored = "select concat_ws(' ', rate, rate_key, cost) from trax.work_queue";
    let stored: String = connection.query_one(stored, &[]).await?.get(0);
    assert_eq!(stored, "api k 1");

    for (options, words) in [
        (JobOptions::new().version("v1"), "a SQL job has no version"),
        (options(), "a SQL job has no rate"),
    ] {
        let refused = client
            .enqueue_sql(&SqlJob::new("select 1").with(options))
            .await;
        let refused = refused.expect_err("it is refused").to_string();
        assert!(
            refused.contains(words) && refused.contains("Leave out ."),
            "{refused}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_count_of_rows_is_not_negative_and_a_rate_is_closed_for_ten_years_at_most() -> Result {
    let server = Server::options().fast().start()?;
    let connection = server.database("extremes").await?.connect().await?;
    let client = Client::new(&connection);
    for (refused, fix) in [
        (client.dead_letters(-1).await.map(drop), "dead_letters(100)"),
        (client.queue_depths(-1).await.map(drop), "queue_depths(100)"),
    ] {
        let words = refused.expect_err("it is refused").to_string();
        assert!(
            words.contains("was called with -1; write") && words.ends_with(fix),
            "{words}"
        );
    }
    assert!(client.dead_letters(0).await?.is_empty());
    let rate = Rate::new(1, Duration::from_secs(3600));
    client.configure_rate("api", &rate).await?;
    let longest = Closed::For(Duration::MAX);
    client.close_rate("api", None, longest).await?;
    let days = "select extract(day from closed_until - now())::int from trax.rate_state";
    let days: i32 = connection.query_one(days, &[]).await?.get(0);
    assert_eq!(days, 3649);
    Ok(())
}

#[tokio::test]
async fn a_nul_is_refused_with_its_place() -> Result {
    let fixture = Fixture::new("nul").await?;
    let client = Client::new(&fixture.connection);
    let input = ["all \\u0000 well", "a\0b"];
    let refused = client.enqueue(&NewJob::new("t", input)).await;
    let refused = refused.expect_err("it is refused").to_string();
    assert!(
        refused.contains("NUL after `[\"all \\\\u0000 well\",\"a` cannot be stored"),
        "{refused}"
    );
    client.enqueue(&NewJob::new("t", input[0])).await?;
    Ok(())
}

#[tokio::test]
async fn a_worker_declares_statements_without_a_handler_for_them() -> Result {
    let fixture = Fixture::new("statements").await?;
    let nothing = async |_: trax_client::Json, _: trax_client::Context| Ok(());
    let hourly = Manifest::sql("hourly", "select 1").every(Duration::from_secs(3600));
    let worker = fixture.worker().handle("t", nothing);
    run(worker.manifests("service", [hourly])).await?;
    let stored = "select name from trax.manifest";
    let stored: String = fixture.connection.query_one(stored, &[]).await?.get(0);
    assert_eq!(stored, "hourly");
    Ok(())
}
