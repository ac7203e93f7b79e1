//! The actions of the keys in `trax top`.

use tokio_postgres::types::Type;

use super::data::Screenful;
use super::view::View;
use crate::session::Session;

/// An action that is performed after confirmation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Cancel { job_id: i64 },
    Requeue { dead_letter: i64 },
    Group { name: String, enable: bool },
    Scheduler { pause: bool },
}

impl Action {
    /// Returns the action of a letter for the selected row of a list; `None`, or an error with the
    /// reason, if there is none.
    pub(super) fn of(
        letter: char,
        shown: View,
        at: usize,
        screenful: &Screenful,
    ) -> Result<Option<Action>, String> {
        let wrong = |view: View| Err(format!("select a row of {} first", view.name()));
        let now = &screenful.now;
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

    /// Returns the question that asks for confirmation.
    pub(super) fn question(&self) -> String {
        match self {
            Action::Cancel { job_id } => format!("Cancel job {job_id}?"),
            Action::Requeue { dead_letter } => format!("Requeue dead letter {dead_letter}?"),
            Action::Group { name, enable: true } => format!("Resume group \"{name}\"?"),
            Action::Group { name, .. } => format!("Pause group \"{name}\"?"),
            Action::Scheduler { pause: true } => "Pause the scheduler?".to_owned(),
            Action::Scheduler { .. } => "Resume the scheduler?".to_owned(),
        }
    }

    /// Performs the action and returns the message to show.
    pub(super) async fn take(&self, session: &Session) -> String {
        match self.call(session).await {
            Ok(message) => message,
            Err(error) => format!("it failed: {error}"),
        }
    }

    async fn call(&self, session: &Session) -> Result<String, trax_client::Error> {
        match self {
            Action::Cancel { job_id } => {
                let sql = "select trax.cancel($1)";
                let result: String = session.value(sql, &[(job_id, Type::INT8)]).await?;
                Ok(match result.as_str() {
                    "requested" => format!("job {job_id}: its worker was asked to stop it"),
                    "cancelled" => format!("job {job_id} is cancelled"),
                    _ => format!("job {job_id} has ended"),
                })
            }
            Action::Requeue { dead_letter } => {
                let sql = "select trax.requeue_dead_letter($1, 'trax top')";
                let job: Option<i64> = session.value(sql, &[(dead_letter, Type::INT8)]).await?;
                Ok(job.map_or_else(
                    || format!("dead letter {dead_letter} is already resolved"),
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
                let (sql, message) = if *pause {
                    ("select trax.pause('trax top')", "the scheduler is paused")
                } else {
                    ("select trax.resume()", "the scheduler is running again")
                };
                session.connection.query_typed(sql, &[]).await?;
                Ok(message.to_owned())
            }
        }
    }
}
