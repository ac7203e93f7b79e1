use serde::Deserialize;
use trax_client::tokio_postgres::Config;
use trax_client::{HandlerResult, Worker};

#[derive(Deserialize)]
struct SendMail {}

async fn send_mail(_: SendMail) -> HandlerResult<()> {
    Ok(())
}

fn main() {
    let _ = Worker::new(Config::new()).task(send_mail);
}
