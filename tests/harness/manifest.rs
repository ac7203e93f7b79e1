//! Manifests for tests: schedules whose occurrences are known at any time of day, and the results
//! of their runs.

use crate::session::{Claimed, Session};

/// An hourly cron schedule in UTC whose last occurrence was half an hour ago, so that no test
/// crosses an occurrence.
pub struct Hourly {
    last: String,
}

impl Hourly {
    /// Creates a schedule relative to the server's clock.
    pub async fn of(s: &Session) -> Self {
        let last = s
            .get("select to_char(date_trunc('minute', now() - interval '30 min') at time zone 'UTC', 'YYYY-MM-DD HH24:MI')")
            .await;
        Hourly { last }
    }

    /// Returns the schedule's arguments for `trax.schedule`.
    pub fn cron(&self) -> String {
        let (_, minute) = self.last.rsplit_once(':').expect("hours and minutes");
        format!("cron => '{minute} * * * *'")
    }

    /// Returns the occurrence this many before the last one, as SQL; negative counts are in the
    /// future.
    pub fn ago(&self, count: i32) -> String {
        format!("(timestamptz '{}+00' - interval '{count} h')", self.last)
    }

    /// Returns how many occurrences before the last one a time lies, as SQL of a number.
    pub fn count_of(&self, time: &str) -> String {
        format!(
            "(extract(epoch from {} - {time}) / 3600)::numeric(9, 3)::float",
            self.ago(0)
        )
    }
}

/// Makes the occurrence at this time (SQL) a manifest's next one.
pub async fn due_since(s: &Session, name: &str, at: &str) {
    s.get(&format!(
        "update trax.manifest_state s
         set next_run_at = {at}, next_scheduled_for = {at}, parked_on = null, parked_since = null, parked_due_at = null
         from trax.manifest m where m.manifest_id = s.manifest_id and m.name = '{name}'"
    ))
    .await;
}

/// Claims the only job that matches these arguments, and completes it.
pub async fn complete_one(s: &Session, arguments: &str) -> Claimed {
    let job = s.claim_one(arguments).await;
    complete(s, &job).await;
    job
}

/// Completes a job whose lease is held.
pub async fn complete(s: &Session, job: &Claimed) {
    let done = s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(done, "t", "the lease is held");
}

/// Triggers a manifest and completes the job.
pub async fn succeed(s: &Session, name: &str) {
    let job = running(s, name).await;
    complete(s, &job).await;
}

/// Triggers a manifest whose task has the same name, and claims the job.
pub async fn running(s: &Session, name: &str) -> Claimed {
    s.get(&format!("select trax.trigger('{name}')")).await;
    s.claim_one(&format!("tasks => '{{{name}}}'")).await
}

/// Returns the reason why a manifest is parked, empty if none, and whether it is due now.
pub async fn state(s: &Session, name: &str) -> String {
    s.get(&format!(
        "select s.parked_on, coalesce(s.next_run_at <= clock_timestamp(), false)
         from trax.manifest_state s join trax.manifest m using (manifest_id) where m.name = '{name}'"
    ))
    .await
}

/// Returns the number of waiting jobs of a manifest.
pub async fn waiting(s: &Session, name: &str) -> i64 {
    s.number(&format!(
        "select count(*) from trax.work_queue where manifest = '{name}'"
    ))
    .await
}

/// Returns SQL that stores this many manifests, each with its own state, much faster than one call
/// each. `next_run_at` is SQL that may use `n`.
pub fn many(prefix: &str, group: &str, count: i64, next_run_at: &str) -> String {
    // Half a year away, spread over many days and minutes.
    let month = "1 + (extract(month from now())::int + 5) % 12";
    format!(
        "with made as (
             insert into trax.manifest (name, task, group_name, cron)
             select '{prefix}-' || n, 'many', '{group}', format('%s 0 %s %s *', n % 60, 1 + n % 28, {month})
             from generate_series(1, {count}) n
             returning manifest_id, group_name
         ), numbered as (
             select manifest_id, group_name, row_number() over (order by manifest_id) as n from made
         )
         insert into trax.manifest_state (manifest_id, group_name, next_run_at, next_scheduled_for)
         select manifest_id, group_name, {next_run_at}, {next_run_at} from numbered"
    )
}
