use serde::Deserialize;
use trax_client::tokio_postgres::Config;
use trax_client::{Context, HandlerResult, State, Task, Worker};

#[derive(Deserialize)]
struct SendMail {}

impl Task for SendMail {
    const NAME: &str = "mail.send";
}

#[derive(Clone)]
struct Mailer;

async fn by_context(_: SendMail, _: Context<Mailer>) -> HandlerResult<()> {
    Ok(())
}

async fn by_state(_: SendMail, _: State<Mailer>) -> HandlerResult<()> {
    Ok(())
}

fn main() {
    let _ = Worker::new(Config::new()).task(by_context);
    let _ = Worker::new(Config::new()).task(by_state);
}
