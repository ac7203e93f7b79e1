use std::rc::Rc;

use serde::Deserialize;
use trax_client::tokio_postgres::Config;
use trax_client::{HandlerResult, Task, Worker};

#[derive(Deserialize)]
struct SendMail {}

impl Task for SendMail {
    const NAME: &str = "mail.send";
}

async fn send_mail(_: SendMail) -> HandlerResult<i32> {
    let number = Rc::new(7);
    std::future::ready(()).await;
    Ok(*number)
}

fn main() {
    let _ = Worker::new(Config::new()).task(send_mail);
}
