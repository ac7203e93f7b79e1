// With a checkout of trax beside the project: cargo add --path ../trax/trax_client &&
// cargo add tokio --features full && cargo add serde --features derive
use serde::{Deserialize, Serialize};
use trax_client::{Address, Client, HandlerResult, NewJob, Task, Worker};

#[derive(Serialize, Deserialize)]
struct Hello {
    name: String,
}

impl Task for Hello {
    const NAME: &str = "hello";
}

async fn hello(input: Hello) -> HandlerResult<String> {
    println!("hello {}", input.name);
    Ok(format!("greeted {}", input.name))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = Address::from_environment()?;

    // A producer: any connection, or the transaction of whatever the job belongs to.
    let db = address.connect().await?;
    let name = "Ada".to_owned();
    Client::new(&db)
        .enqueue(&NewJob::of(Hello { name }))
        .await?;

    // A worker; without until_empty it runs until SIGTERM.
    let summary = Worker::new(address).task(hello).until_empty().run().await?;
    println!("{summary}");
    Ok(())
}
