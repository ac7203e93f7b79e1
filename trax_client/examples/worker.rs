use serde::{Deserialize, Serialize};
use trax_client::{Address, Context, JobError, Worker};

#[derive(Deserialize)]
struct Report {
    month: u32,
}

#[derive(Serialize)]
struct Built {
    pages: u32,
}

async fn build(report: Report, ctx: Context) -> Result<Built, JobError> {
    if report.month > 12 {
        return Err(JobError::permanent(format!(
            "there is no month {}",
            report.month
        )));
    }
    println!("job {}, attempt {}", ctx.job_id(), ctx.attempt());
    Ok(Built {
        pages: report.month * 2,
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = Address::from_environment()?;
    let summary = Worker::new(address)
        .concurrency(8)
        .handle("report.build", build)
        .run()
        .await?;
    println!("{summary}");
    Ok(())
}
