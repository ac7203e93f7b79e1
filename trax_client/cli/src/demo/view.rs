//! The view while the demo runs: a bar on a terminal, one line per second elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio_postgres::Client as Connection;

use crate::output::Options;
use trax_terminal::Failure;

/// The jobs by state, and the attempts by result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    waiting: i64,
    running: i64,
    succeeded: i64,
    failed: i64,
    dead: i64,
}

impl Counts {
    /// Returns the number of jobs that have not ended.
    pub(crate) fn left(&self) -> i64 {
        self.waiting + self.running
    }

    pub(crate) async fn read(connection: &Connection) -> Result<Self, Failure> {
        let sql = "select
            (select count(*) from trax.work_queue),
            (select count(*) from trax.lease),
            (select count(*) from trax.run where state = 'completed'),
            (select count(*) from trax.run where state = 'failed'),
            (select count(*) from trax.dead_letter where status = 'awaiting_intervention')";
        let rows = connection.query_typed(sql, &[]).await?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::new("counting returned no row"))?;
        Ok(Counts {
            waiting: row.try_get(0)?,
            running: row.try_get(1)?,
            succeeded: row.try_get(2)?,
            failed: row.try_get(3)?,
            dead: row.try_get(4)?,
        })
    }

    fn line(&self) -> String {
        format!(
            "waiting {:>5}  running {:>3}  succeeded {:>5}  failures {:>3}  dead {}",
            self.waiting, self.running, self.succeeded, self.failed, self.dead
        )
    }
}

pub(crate) struct View {
    bar: Option<ProgressBar>,
    begun: Instant,
    last: Option<Instant>,
    output: Options,
}

impl View {
    pub(crate) fn new(total: i64, output: Options) -> Self {
        let shown = std::io::stderr().is_terminal() && !output.quiet;
        let bar = shown.then(|| {
            let bar = ProgressBar::new(total.unsigned_abs());
            if let Ok(style) =
                ProgressStyle::with_template("  {elapsed:>6}  [{bar:65}]\n          {msg}")
            {
                bar.set_style(style.progress_chars("=> "));
            }
            bar
        });
        View {
            bar,
            begun: Instant::now(),
            last: None,
            output,
        }
    }

    pub(crate) fn show(&mut self, counts: &Counts) -> Result<(), Failure> {
        if let Some(bar) = &self.bar {
            let ended = (counts.succeeded + counts.dead).unsigned_abs();
            bar.set_length(bar.length().unwrap_or(0).max(ended));
            // Setting the position redraws at a limited rate; the message would redraw once more.
            bar.set_message(counts.line());
            bar.set_position(ended);
        } else if self
            .last
            .is_none_or(|last| last.elapsed() >= Duration::from_secs(1))
        {
            self.last = Some(Instant::now());
            return self.print(counts);
        }
        Ok(())
    }

    pub(crate) fn end(&mut self, counts: &Counts) -> Result<(), Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.print(counts)
    }

    fn print(&self, counts: &Counts) -> Result<(), Failure> {
        let seconds = self.begun.elapsed().as_secs_f64();
        let line = counts.line();
        self.output.print(&format!("  {seconds:>4.1} s  {line}"))
    }
}
