//! `trax dead`: jobs that failed permanently and await intervention.

mod list;
mod resolve;
mod show;

use std::time::SystemTime;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::command::commands;
use crate::output::Options;
use crate::session::{Argument, Session};
use crate::similar::{self, Kind};
use trax_terminal::Failure;

commands! {
    /// The dead letters that wait for a person, the newest first
    List(list::Arguments) => list::run,
    /// Everything about a dead letter
    Show(show::Arguments) => show::run,
    /// Queue the work of dead letters again, each as a new job that continues after its steps
    Requeue(resolve::RequeueArguments) => resolve::requeue,
    /// Resolve dead letters without running anything
    Ack(resolve::Arguments) => resolve::acknowledge,
}

/// Returns the current row of a dead letter, given one from each shard that has it: every shard
/// that its group has left has an acknowledged copy.
pub(crate) fn last_of(rows: &[Row]) -> Result<Option<&Row>, tokio_postgres::Error> {
    let mut last = None;
    for row in rows {
        let resolved_at: Option<SystemTime> = row.try_get("resolved_at")?;
        let age = (resolved_at.is_none(), resolved_at);
        if last.as_ref().is_none_or(|(_, oldest)| age > *oldest) {
            last = Some((row, age));
        }
    }
    Ok(last.map(|(row, _)| row))
}

/// The filters for dead letters.
#[derive(clap::Args, Clone, Debug)]
struct Filters {
    /// Only of this task
    #[arg(long, value_name = "TASK")]
    task: Option<String>,
    /// Only of this group
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Only of this manifest
    #[arg(long, value_name = "NAME")]
    manifest: Option<String>,
    /// Only of jobs that died since: a time, or an age ('2 h')
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

impl Filters {
    /// Returns the filters as the statements expect them: $1 task, $2 group, $3 manifest, $4 since.
    async fn read(&self, session: &Session) -> Result<Option<SystemTime>, Failure> {
        session.since(self.since.as_deref()).await
    }

    fn arguments<'a>(&'a self, since: &'a Option<SystemTime>) -> Vec<Argument<'a>> {
        vec![
            (&self.task, Type::TEXT),
            (&self.group, Type::TEXT),
            (&self.manifest, Type::TEXT),
            (since, Type::TIMESTAMPTZ),
        ]
    }

    /// Notes which of the names do not exist.
    async fn note(&self, session: &Session, output: &Options) {
        let one = |name: &Option<String>| name.clone().into_iter().collect::<Vec<_>>();
        let (task, group, manifest) = (one(&self.task), one(&self.group), one(&self.manifest));
        let filters = [
            (Kind::Task, task.as_slice()),
            (Kind::Group, group.as_slice()),
            (Kind::Manifest, manifest.as_slice()),
        ];
        similar::note(session, output, &filters).await;
    }

    /// Returns "of task \"t\" in group \"g\"", for a question.
    fn text(&self) -> String {
        let parts = [
            ("of task", &self.task),
            ("in group", &self.group),
            ("of manifest", &self.manifest),
            ("since", &self.since),
        ];
        parts
            .iter()
            .filter_map(|(what, name)| name.as_ref().map(|name| format!(" {what} \"{name}\"")))
            .collect()
    }
}
