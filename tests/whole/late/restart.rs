//! The first claim after a crash, a restart and a promotion.

use super::{claim, pass};
use harness::scheduler::{connect, execute, scheduling, value, violations};
use harness::standby::Standby;
use tokio_postgres::Client;
use trax_client::testkit::Stop;
use uuid::Uuid;

/// Jobs that wait behind many claimed ones, oldest first, one of them committed late; and an
/// executing job.
struct Head {
    waiting: Vec<i64>,
    running: (i64, Uuid),
}

impl Head {
    /// `lost` is a transaction that enqueued before all others and stays open.
    async fn make(client: &Client, late: &Client, lost: &Client) -> Head {
        execute(lost, "begin").await;
        execute(lost, "select trax.enqueue('a')").await;
        execute(late, "begin").await;
        let mut waiting = vec![value::<i64>(late, "select trax.enqueue('a')").await];
        let running = "select trax.enqueue('a')";
        let job: i64 = value(client, running).await;
        let sql = "select job_id, token from trax.claim_next(lease => '1 h')";
        let row = client.query_one(sql, &[]).await.expect("one is claimed");
        assert_eq!(row.get::<_, i64>(0), job);
        pass(client).await;
        pass(client).await;
        execute(late, "commit").await;
        for _ in 0..3 {
            waiting.push(value(client, "select trax.enqueue('a')").await);
        }
        Head {
            waiting,
            running: (job, row.get(1)),
        }
    }

    /// The first claim finds the waiting jobs in order, and the executing job can be completed.
    async fn is_found(&self, client: &Client) {
        assert_eq!(claim(client).await, self.waiting);
        let done = client
            .query_one(
                "select trax.complete($1, $2)",
                &[&self.running.0, &self.running.1],
            )
            .await;
        assert!(done.expect("a completion works").get::<_, bool>(0));
        // A new job is found too, and uncommitted jobs do not appear.
        let new: i64 = value(client, "select trax.enqueue('a')").await;
        assert_eq!(claim(client).await, [new]);
        assert_eq!(violations(client).await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_and_after_a_restart_the_first_claim_finds_the_head() {
    for how in [Stop::Immediate, Stop::Fast] {
        let mut server = scheduling()
            .setting("synchronous_commit", "on")
            .start()
            .expect("a server starts");
        let database = server.database("head").await.expect("a database is made");
        let (client, late, lost) = (
            connect(&database).await,
            connect(&database).await,
            connect(&database).await,
        );
        let head = Head::make(&client, &late, &lost).await;
        server.stop(how).expect("the server stops");
        server.start().expect("the server starts again");
        head.is_found(&connect(&database).await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_promotion_the_first_claim_finds_the_head() {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("head").await.expect("a database is made");
    let (client, late, lost) = (
        connect(&database).await,
        connect(&database).await,
        connect(&database).await,
    );
    let standby = Standby::of(&server, &[]).await;
    let other = standby.connect("head").await;
    let head = Head::make(&client, &late, &lost).await;
    let written: String = value(&client, "select pg_current_wal_insert_lsn()::text").await;
    standby.has_replayed(&other, &written).await;
    // A claim refused by the standby leaves no state that misleads later claims.
    let refused = other.query("select * from trax.claim_next()", &[]).await;
    let refused = refused.expect_err("a standby gives no jobs");
    assert_eq!(refused.code().map(|code| code.code()), Some("25006"));
    execute(&other, "select pg_promote(wait => true)").await;
    head.is_found(&other).await;
}
