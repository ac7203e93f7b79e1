//! Tasks as types: the input of a job, which its handler takes.

use crate::job_options::JobOptions;

/// The input type of a task, with the task's name and the default options of its jobs.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use trax_client::{JobOptions, NewJob, Task};
///
/// #[derive(Deserialize, Serialize)]
/// struct SendMail { to: String }
///
/// impl Task for SendMail {
///     const NAME: &str = "mail.send";
///
///     fn options() -> JobOptions {
///         JobOptions::new().group("mail").max_retries(5)
///     }
/// }
///
/// let job = NewJob::of(SendMail { to: "a@example.org".into() });
/// assert_eq!(job.task, "mail.send");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the input of a task",
    note = "tie it to one: `impl Task for {Self} {{ const NAME: &str = \"mail.send\"; }}`"
)]
pub trait Task {
    /// The name of the task in the database.
    const NAME: &'static str;

    /// Returns the options of the task's jobs unless the producer overrides them: group, priority,
    /// retries, timeout.
    fn options() -> JobOptions {
        JobOptions::new()
    }
}
