use serde::Deserialize;
use trax_client::tokio_postgres::Config;
use trax_client::{Context, HandlerResult, Task, Worker};

#[derive(Deserialize)]
struct SendMail {}

impl Task for SendMail {
    const NAME: &str = "mail.send";
}

async fn send_mail(_: Context, _: SendMail) -> HandlerResult<()> {
    Ok(())
}

fn main() {
    let _ = Worker::new(Config::new()).task(send_mail);
}
