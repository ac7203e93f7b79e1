use serde::Deserialize;
use trax_client::tokio_postgres::Config;
use trax_client::{HandlerResult, Task, Worker};

#[derive(Deserialize)]
struct SendMail {}

impl Task for SendMail {
    const NAME: &str = "mail.send";
}

struct Sent;

async fn no_result(_: SendMail) -> String {
    String::new()
}

async fn no_output(_: SendMail) -> HandlerResult<Sent> {
    Ok(Sent)
}

fn main() {
    let _ = Worker::new(Config::new()).task(no_result);
    let _ = Worker::new(Config::new()).task(no_output);
}
