use serde::{Deserialize, Serialize};
use trax_client::testkit::{Ended, Server, assert_enqueued};
use trax_client::{Client, JobError, NewJob, State, Task, Worker};

#[derive(Serialize, Deserialize)]
struct Welcome {
    to: String,
}

impl Task for Welcome {
    const NAME: &str = "mail.welcome";
}

/// The handler under test; refuses a text that is not an address.
async fn welcome(mail: Welcome, State(sender): State<&'static str>) -> Result<String, JobError> {
    match mail.to.contains('@') {
        true => Ok(format!("{sender} greets {}", mail.to)),
        false => Err(JobError::permanent("that is no address")),
    }
}

#[tokio::test]
async fn a_welcome_goes_to_an_address() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::options().fast().start()?; // gone at the end of the test
    let database = server.database("mail").await?;
    let db = database.connect().await?;
    let worker = Worker::with_state(database.config(), "trax").task(welcome);

    for to in ["ada@example.org", "ada"] {
        let job = NewJob::of(Welcome { to: to.into() });
        Client::new(&db).enqueue(&job).await?;
    }
    assert_enqueued::<Welcome>(&db, |job| job.input.to == "ada" && job.priority == 0).await;
    let ran = worker.run_one(&db, Welcome::NAME).await?;
    assert_eq!(ran.output::<String>()?, "trax greets ada@example.org");
    let ran = worker.run_one(&db, Welcome::NAME).await?;
    assert_eq!(ran.ended, Ended::Dead, "{ran}");
    assert_eq!(ran.error.as_deref(), Some("that is no address"));
    Ok(())
}
