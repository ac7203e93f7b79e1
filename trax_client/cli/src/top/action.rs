//! What the keys of `trax top` do.

use tokio_postgres::types::Type;

use super::data::Picture;
use super::view::View;
use crate::session::Session;

/// Something to do, once the person has said yes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Cancel { job_id: i64 },
    Requeue { dead_letter: i64 },
    Group { name: String, enable: bool },
    Scheduler { pause: bool },
}

impl Action {
    /// Returns what a letter asks for where this row of this list is chosen: nothing, or why not.
    pub(super) fn of(
        letter: char,
        shown: View,
        at: usize,
        picture: &Picture,
    ) -> Result<Option<Action>, String> {
        let wrong = |view: View| Err(format!("choose a row of {} first", view.name()));
        let now = &picture.now;
        match letter {
            'c' => match (shown, now.running.get(at)) {
                (View::Running, Some(job)) => Ok(Some(Action::Cancel { job_id: job.job_id })),
                _ => wrong(View::Running),
            },
            'r' => match (shown, now.dead.get(at)) {
                (View::Dead, Some(dead)) => Ok(Some(Action::Requeue {
                    dead_letter: dead.id,
                })),
                _ => wrong(View::Dead),
            },
            'p' => match (shown, now.groups.get(at)) {
                (View::Groups, Some(group)) => Ok(Some(Action::Group {
                    name: group.name.clone(),
                    enable: !group.enabled,
                })),
                _ => wrong(View::Groups),
            },
            's' => Ok(Some(Action::Scheduler { pause: !now.paused })),
            _ => Ok(None),
        }
    }

    /// For the person who has to say yes.
    pub(super) fn question(&self) -> String {
        match self {
            Action::Cancel { job_id } => format!("Cancel job {job_id}?"),
            Action::Requeue { dead_letter } => format!("Queue dead letter {dead_letter} again?"),
            Action::Group { name, enable: true } => format!("Let jobs of group \"{name}\" run?"),
            Action::Group { name, .. } => format!("Start no more jobs of group \"{name}\"?"),
            Action::Scheduler { pause: true } => "Pause the scheduler?".to_owned(),
            Action::Scheduler { .. } => "Let the scheduler go on?".to_owned(),
        }
    }

    /// Does it; returns what to tell.
    pub(super) async fn take(&self, session: &Session) -> String {
        match self.call(session).await {
            Ok(told) => told,
            Err(error) => format!("it failed: {error}"),
        }
    }

    async fn call(&self, session: &Session) -> Result<String, trax_client::Error> {
        match self {
            Action::Cancel { job_id } => {
                let sql = "select trax.cancel($1)";
                let result: String = session.value(sql, &[(job_id, Type::INT8)]).await?;
                Ok(match result.as_str() {
                    "requested" => format!("job {job_id} is asked to stop"),
                    "cancelled" => format!("job {job_id} is cancelled"),
                    _ => format!("job {job_id} has ended"),
                })
            }
            Action::Requeue { dead_letter } => {
                let sql = "select trax.requeue_dead_letter($1, 'trax top')";
                let job: Option<i64> = session.value(sql, &[(dead_letter, Type::INT8)]).await?;
                Ok(job.map_or_else(
                    || format!("dead letter {dead_letter} is resolved already"),
                    |job| format!("dead letter {dead_letter} is job {job} now"),
                ))
            }
            Action::Group { name, enable } => {
                let sql = "select trax.configure_group($1, enabled => $2)";
                let arguments = [
                    (
                        name as &(dyn tokio_postgres::types::ToSql + Sync),
                        Type::TEXT,
                    ),
                    (enable, Type::BOOL),
                ];
                session.connection.query_typed(sql, &arguments).await?;
                let now = if *enable { "runs" } else { "is paused" };
                Ok(format!("group \"{name}\" {now}"))
            }
            Action::Scheduler { pause } => {
                let (sql, told) = if *pause {
                    ("select trax.pause('trax top')", "the scheduler is paused")
                } else {
                    ("select trax.resume()", "the scheduler goes on")
                };
                session.connection.query_typed(sql, &[]).await?;
                Ok(told.to_owned())
            }
        }
    }
}
