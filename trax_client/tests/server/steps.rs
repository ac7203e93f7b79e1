use std::time::Duration;
use trax_client::testkit::{Ended, Server, pass_time};
use trax_client::{Children, Client, Context, HandlerResult, NewJob, Worker};

const DAY: Duration = Duration::from_secs(86_400);

/// The handler under test: greets, sleeps for a week, waits for a click, and has a child charge.
async fn sign_up(customer: String, ctx: Context) -> HandlerResult<String> {
    let greeting: String = ctx
        .step("welcome", || async {
            HandlerResult::Ok(format!("Hello {customer}"))
        })
        .await?;
    ctx.sleep("trial", 7 * DAY).await?;
    let click: Option<bool> = ctx.signal("click", Some(3 * DAY)).await?;
    if click.is_none() {
        return Ok(format!("{greeting}, no charge"));
    }
    ctx.spawn("charge", &NewJob::new("charge", 20)).await?;
    let charges = ctx.children(Children::All).await?;
    Ok(format!(
        "{greeting}, charged {}",
        charges[0].output::<u32>()?
    ))
}

#[tokio::test]
async fn a_sign_up_is_charged_after_a_click() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::options().fast().start()?; // gone at the end of the test
    let database = server.database("shop").await?;
    let db = database.connect().await?;
    let client = Client::new(&db);
    let worker = Worker::new(database.config())
        .handle("sign_up", sign_up)
        .handle("charge", |amount: u32, _: Context| async move {
            HandlerResult::Ok(amount)
        });

    let ada = client.enqueue(&NewJob::new("sign_up", "Ada")).await?;
    let ran = worker.run_through(&db, ada).await?; // the week is skipped
    assert_eq!(ran.ended, Ended::Suspended, "{ran}");
    client.send_signal(ada, "click", &true, None).await?;
    let ran = worker.run_through(&db, ada).await?; // the child runs too
    assert_eq!(ran.output::<String>()?, "Hello Ada, charged 20");

    let bob = client.enqueue(&NewJob::new("sign_up", "Bob")).await?;
    worker.run_through(&db, bob).await?;
    pass_time(&db, 3 * DAY).await?; // no click
    let ran = worker.run_through(&db, bob).await?;
    assert_eq!(ran.output::<String>()?, "Hello Bob, no charge");
    Ok(())
}
