//! The `tracing` log of a worker and its handlers.
//!
//! A single test, since a thread without a subscriber affects threads with their own.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;
use trax_client::testkit::Server;
use trax_client::{Client, Context, HandlerResult, JobError, NewJob, Next, Worker};

/// Collects the lines of a log.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(text)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Paper {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl Paper {
    /// Returns the only line that contains all these parts.
    #[track_caller]
    fn line(&self, parts: &[&str]) -> String {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&text);
        let mut found = text
            .lines()
            .filter(|line| parts.iter().all(|part| line.contains(part)));
        match (found.next(), found.next()) {
            (Some(line), None) => line.to_owned(),
            _ => panic!("{parts:?} is not on one line of:\n{text}"),
        }
    }
}

#[tokio::test]
async fn what_handlers_log_and_how_they_end_shows_job_attempt_and_task()
-> Result<(), Box<dyn std::error::Error>> {
    let paper = Paper::default();
    let log = tracing_subscriber::fmt()
        .with_writer(paper.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .without_time()
        .finish();
    // This runtime has no other thread.
    let _logging = tracing::subscriber::set_default(log);
    let server = Server::options().not_preloaded().fast().start()?;
    let database = server.database("log").await?;
    let db = database.connect().await?;
    let client = Client::new(&db);
    let one = client.enqueue(&NewJob::new("pack", 1)).await?;
    let two = client.enqueue(&NewJob::new("pack", 2)).await?;
    let meeting = Arc::new(tokio::sync::Barrier::new(2));
    let pack = move |parcel: u32, _: Context| {
        let meeting = Arc::clone(&meeting);
        tracing::info!("parcel {parcel} is taken");
        async move {
            // Both run at once, each in its own span.
            meeting.wait().await;
            tracing::info!("parcel {parcel} is packed");
            if parcel == 2 {
                return Err(JobError::new("it does not fit"));
            }
            HandlerResult::Ok(())
        }
    };
    let looked_at = |_: Context, next: Next| {
        tracing::info!("parcel {} is looked at", next.input());
        next.run()
    };
    let summary = Worker::new(database.config())
        .without_signals()
        .until_empty()
        .middleware(looked_at)
        .handle("pack", pack)
        .run()
        .await?;
    assert_eq!((summary.completed, summary.retrying), (1, 1), "{summary}");

    for (parcel, job) in [(1, one), (2, two)] {
        let span = format!("job{{job_id={job} attempt=1 task=\"pack\" group=\"default\"");
        for done in ["taken", "packed", "looked at"] {
            paper.line(&[&span, &format!("parcel {parcel} is {done}")]);
        }
    }
    paper.line(&["DEBUG", &format!("job_id={one} "), "trax: completed"]);
    let failed = paper.line(&["WARN", "trax: job failed"]);
    for part in [
        &format!("job_id={two} "),
        "attempt=1 ",
        "task=\"pack\" ",
        "error=\"it does not fit\"",
    ] {
        assert!(failed.contains(part), "{failed}");
    }
    Ok(())
}
