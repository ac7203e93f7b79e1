//! Manifests and groups, as the client sends them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;
use tokio_postgres::GenericClient;

use crate::error::Result;
use crate::json::Json;
use crate::names;
use crate::sql::{Call, Interval, Time};
use crate::task::Task;

/// A manifest to create or change. Values that are not set keep their current value.
///
/// ```
/// use trax_client::Manifest;
///
/// let nightly = Manifest::new("nightly-report", "report.build")
///     .cron("0 2 * * *")
///     .timezone("Europe/Berlin")
///     .max_retries(2);
/// # assert_eq!(nightly.name(), "nightly-report");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Manifest {
    name: String,
    /// `None` for a manifest with a SQL statement.
    task: Option<String>,
    sql: Option<String>,
    run_as: Option<String>,
    input: Option<Json>,
    cron: Option<String>,
    every: Option<Interval>,
    run_at: Option<Time>,
    depends_on: Option<Vec<String>>,
    depends_mode: Option<String>,
    dormant: Option<bool>,
    timezone: Option<String>,
    group_name: Option<String>,
    priority: Option<i32>,
    max_retries: Option<i32>,
    retry_delay: Option<Interval>,
    timeout: Option<Interval>,
    misfire: Option<String>,
    misfire_threshold: Option<Interval>,
    misfire_limit: Option<i32>,
    overlap: Option<String>,
    max_concurrency: Option<i32>,
    variance: Option<Interval>,
    exclusions: Option<Value>,
    starts_at: Option<Time>,
    ends_at: Option<Time>,
    enabled: Option<bool>,
    on_dead_letter: Option<String>,
}

impl Manifest {
    /// Returns a manifest that runs only when triggered, until a schedule is set.
    pub fn new(name: impl Into<String>, task: impl Into<String>) -> Self {
        Manifest {
            name: name.into(),
            task: Some(task.into()),
            ..Manifest::default()
        }
    }

    /// Returns a manifest that runs a SQL statement, or several in one transaction. An executor
    /// inside the server runs it as the role that stores the manifest or as the role set by
    /// [`run_as`](Self::run_as).
    pub fn sql(name: impl Into<String>, command: impl Into<String>) -> Self {
        Manifest {
            name: name.into(),
            sql: Some(command.into()),
            ..Manifest::default()
        }
    }

    /// Sets the role in whose session a statement runs.
    pub fn run_as(mut self, role: impl Into<String>) -> Self {
        self.run_as = Some(role.into());
        self
    }

    /// Returns the manifest's unique name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a manifest of the task that the input's type belongs to.
    pub fn of<T: Task + Serialize>(name: impl Into<String>, input: &T) -> Result<Self> {
        Manifest::new(name, T::NAME).input(input)
    }

    /// Returns whether the server runs it, which needs no worker.
    pub(crate) fn is_sql(&self) -> bool {
        self.sql.is_some()
    }

    /// Returns the name of the task; `sql` for a statement.
    pub fn task(&self) -> &str {
        self.task.as_deref().unwrap_or("sql")
    }

    /// Sets the input of every run.
    pub fn input<T: Serialize>(mut self, input: &T) -> Result<Self> {
        self.input = Some(Json::of(input)?);
        Ok(self)
    }

    /// Sets a cron expression: five fields, or six with leading seconds.
    pub fn cron(mut self, text: impl Into<String>) -> Self {
        self.cron = Some(text.into());
        self
    }

    /// Sets a fixed delay between the last success and the next run. The first run is immediate.
    pub fn every(mut self, delay: Duration) -> Self {
        self.every = Some(Interval(delay));
        self
    }

    /// Schedules a single run at this time.
    pub fn run_at(mut self, at: SystemTime) -> Self {
        self.run_at = Some(Time(at));
        self
    }

    /// Sets the time zone of `cron`, by its IANA name.
    pub fn timezone(mut self, name: impl Into<String>) -> Self {
        self.timezone = Some(name.into());
        self
    }

    /// Sets the group, whose priority, switch and limit apply to the jobs.
    pub fn group(mut self, name: impl Into<String>) -> Self {
        self.group_name = Some(name.into());
        self
    }

    /// Sets the priority, 0 to 31. A job with a higher priority is claimed first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets the number of attempts that may follow the first (by default the server setting
    /// `trax.default_max_retries`).
    pub fn max_retries(mut self, retries: i32) -> Self {
        self.max_retries = Some(retries);
        self
    }

    /// Sets the delay before the second attempt (by default the server setting `trax.retry_delay`).
    /// Later delays are longer.
    pub fn retry_delay(mut self, delay: Duration) -> Self {
        self.retry_delay = Some(Interval(delay));
        self
    }

    /// Sets the time limit of one attempt (by default the server setting `trax.default_timeout`).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(Interval(timeout));
        self
    }

    /// Sets the manifests whose success starts a run: all of them, or any one with `any_parent`.
    pub fn depends_on<N: AsRef<str>>(mut self, parents: impl IntoIterator<Item = N>) -> Self {
        self.depends_on = Some(names::owned(parents));
        self
    }

    /// Makes the success of a single parent sufficient.
    pub fn any_parent(mut self) -> Self {
        self.depends_mode = Some("any".to_owned());
        self
    }

    /// Makes the manifest run only when the run of a parent activates it.
    pub fn dormant(mut self) -> Self {
        self.dormant = Some(true);
        self
    }

    /// Sets the policy for runs that are too late: `fire_once`, `fire_all` or `skip`.
    pub fn misfire(mut self, policy: impl Into<String>) -> Self {
        self.misfire = Some(policy.into());
        self
    }

    /// Sets the delay after which a run counts as too late.
    pub fn misfire_threshold(mut self, late: Duration) -> Self {
        self.misfire_threshold = Some(Interval(late));
        self
    }

    /// Sets the maximum number of missed runs that `fire_all` makes up for.
    pub fn misfire_limit(mut self, runs: i32) -> Self {
        self.misfire_limit = Some(runs);
        self
    }

    /// Sets the policy for a run that is due while another executes: `queue`, `skip` or `allow`.
    pub fn overlap(mut self, policy: impl Into<String>) -> Self {
        self.overlap = Some(policy.into());
        self
    }

    /// Sets how many runs may execute at once.
    pub fn max_concurrency(mut self, runs: i32) -> Self {
        self.max_concurrency = Some(runs);
        self
    }

    /// Sets the maximum random delay of each run.
    pub fn variance(mut self, most: Duration) -> Self {
        self.variance = Some(Interval(most));
        self
    }

    /// Sets the times without runs: days of the week, dates, ranges, windows, in the format of
    /// `trax.schedule`.
    pub fn exclusions(mut self, exclusions: Value) -> Self {
        self.exclusions = Some(exclusions);
        self
    }

    /// Sets the time before which no run is scheduled.
    pub fn starts_at(mut self, at: SystemTime) -> Self {
        self.starts_at = Some(Time(at));
        self
    }

    /// Sets the time after which no run is scheduled.
    pub fn ends_at(mut self, at: SystemTime) -> Self {
        self.ends_at = Some(Time(at));
        self
    }

    /// Enables or disables the manifest.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = Some(enabled);
        self
    }

    /// Sets the effect of an unresolved dead letter on the schedule: `stop` or `continue`.
    pub fn on_dead_letter(mut self, policy: impl Into<String>) -> Self {
        self.on_dead_letter = Some(policy.into());
        self
    }

    /// Returns the manifest as a member of a document for `trax.apply`.
    fn members(&self) -> serde_json::Result<BTreeMap<&'static str, Json>> {
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let number = |number: Option<i32>| number.map(Value::from);
        let truth = |truth: Option<bool>| truth.map(Value::from);
        let time = |at: Option<Time>| at.map(|at| Value::from(utc(at.0)));
        let span = |span: Option<Interval>| span.map(|span| Value::from(span.text()));
        let members = [
            ("name", Some(Value::from(self.name.as_str()))),
            ("task", text(&self.task)),
            ("sql", text(&self.sql)),
            ("run_as", text(&self.run_as)),
            ("cron", text(&self.cron)),
            ("every", span(self.every)),
            ("run_at", time(self.run_at)),
            ("depends_on", self.depends_on.clone().map(Value::from)),
            ("depends_mode", text(&self.depends_mode)),
            ("dormant", truth(self.dormant)),
            ("timezone", text(&self.timezone)),
            ("group_name", text(&self.group_name)),
            ("priority", number(self.priority)),
            ("max_retries", number(self.max_retries)),
            ("retry_delay", span(self.retry_delay)),
            ("timeout", span(self.timeout)),
            ("misfire", text(&self.misfire)),
            ("misfire_threshold", span(self.misfire_threshold)),
            ("misfire_limit", number(self.misfire_limit)),
            ("overlap", text(&self.overlap)),
            ("max_concurrency", number(self.max_concurrency)),
            ("variance", span(self.variance)),
            ("exclusions", self.exclusions.clone()),
            ("starts_at", time(self.starts_at)),
            ("ends_at", time(self.ends_at)),
            ("enabled", truth(self.enabled)),
            ("on_dead_letter", text(&self.on_dead_letter)),
        ];
        let mut all = BTreeMap::new();
        for (key, value) in members {
            if let Some(value) = value {
                all.insert(key, Json::of(&value)?);
            }
        }
        // Kept as text, so that no number loses a digit.
        if let Some(input) = &self.input {
            all.insert("input", input.clone());
        }
        Ok(all)
    }

    pub(crate) async fn store<C: GenericClient + Sync>(&self, db: &C) -> Result<i64> {
        Call::new("schedule")
            .arg("name", &self.name)
            .option("task", &self.task)
            .option("sql", &self.sql)
            .option("run_as", &self.run_as)
            .option("input", &self.input)
            .option("cron", &self.cron)
            .option("every", &self.every)
            .option("run_at", &self.run_at)
            .option("depends_on", &self.depends_on)
            .option("depends_mode", &self.depends_mode)
            .option("dormant", &self.dormant)
            .option("misfire", &self.misfire)
            .option("misfire_threshold", &self.misfire_threshold)
            .option("misfire_limit", &self.misfire_limit)
            .option("overlap", &self.overlap)
            .option("max_concurrency", &self.max_concurrency)
            .option("variance", &self.variance)
            .option("exclusions", &self.exclusions)
            .option("timezone", &self.timezone)
            .option("group_name", &self.group_name)
            .option("priority", &self.priority)
            .option("max_retries", &self.max_retries)
            .option("retry_delay", &self.retry_delay)
            .option("timeout", &self.timeout)
            .option("starts_at", &self.starts_at)
            .option("ends_at", &self.ends_at)
            .option("enabled", &self.enabled)
            .option("on_dead_letter", &self.on_dead_letter)
            .value(db)
            .await
    }
}

/// Returns manifests as a document for `trax.apply`.
pub(crate) fn document(manifests: &[Manifest]) -> Result<Json> {
    let manifests = manifests.iter().map(Manifest::members);
    let manifests: Vec<_> = manifests.collect::<serde_json::Result<_>>()?;
    Ok(Json::of(&BTreeMap::from([("manifests", manifests)]))?)
}

/// Returns a time in a form that PostgreSQL reads alike in every session, with the day as a Julian
/// number: `J2440588 10:00:00.000000+00`.
pub(crate) fn utc(at: SystemTime) -> String {
    const DAY: i128 = 86_400_000_000;
    const EPOCH: i128 = 2_440_588;
    let micros = |span: Duration| i128::try_from(span.as_micros()).unwrap_or(i128::MAX);
    let since = match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => micros(after),
        Err(before) => -micros(before.duration()),
    };
    let (day, rest) = (EPOCH + since.div_euclid(DAY), since.rem_euclid(DAY));
    let (seconds, micros) = (rest / 1_000_000, rest % 1_000_000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("J{day} {hour:02}:{minute:02}:{second:02}.{micros:06}+00")
}

/// A change to a group. Values that are not set keep their current value.
#[derive(Clone, Debug, Default)]
pub struct Group {
    pub(crate) max_active_jobs: Option<i32>,
    pub(crate) priority: Option<i32>,
    pub(crate) enabled: Option<bool>,
    pub(crate) max_per_key: Option<i32>,
    pub(crate) rate: Option<String>,
    pub(crate) max_waiting: Option<i32>,
    pub(crate) overflow: Option<String>,
}

impl Group {
    /// Returns a change that sets nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how many jobs of the group may execute at once; 0 means no limit.
    pub fn max_active_jobs(mut self, jobs: i32) -> Self {
        self.max_active_jobs = Some(jobs);
        self
    }

    /// Sets the priority, 0 to 31, which takes precedence over the priority of the jobs, including
    /// those that already wait.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Sets whether jobs of the group may be claimed.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = Some(enabled);
        self
    }

    /// Sets how many jobs with the same concurrency key may execute at once.
    pub fn max_per_key(mut self, jobs: i32) -> Self {
        self.max_per_key = Some(jobs);
        self
    }

    /// Sets the rate under which the jobs of the group start; an empty name is none.
    pub fn rate(mut self, name: impl Into<String>) -> Self {
        self.rate = Some(name.into());
        self
    }

    /// Sets how many jobs that producers queue may wait; 0 means no limit.
    pub fn max_waiting(mut self, jobs: i32) -> Self {
        self.max_waiting = Some(jobs);
        self
    }

    /// Sets what happens to jobs beyond [`max_waiting`](Self::max_waiting): `reject` (the call
    /// fails), `drop_newest` or `drop_oldest` (they end as cancelled).
    pub fn overflow(mut self, what: impl Into<String>) -> Self {
        self.overflow = Some(what.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_in_utc() {
        let at = |seconds: i64, micros: u64| {
            let epoch = SystemTime::UNIX_EPOCH;
            let span = Duration::from_secs(seconds.unsigned_abs());
            let at = if seconds < 0 {
                epoch - span
            } else {
                epoch + span
            };
            utc(at + Duration::from_micros(micros))
        };
        assert_eq!(at(0, 0), "J2440588 00:00:00.000000+00");
        assert_eq!(at(951_827_696, 7), "J2451604 12:34:56.000007+00");
        assert_eq!(at(-1, 500_000), "J2440587 23:59:59.500000+00");
    }

    #[test]
    fn a_document_has_what_was_said_and_nothing_else() {
        let input: Json = "{\"id\": 12345678901234567890123}"
            .parse()
            .expect("it is JSON");
        let manifest = Manifest::new("m", "t")
            .every(Duration::from_millis(1500))
            .input(&input);
        let document = manifest.and_then(|manifest| document(&[manifest]));
        assert_eq!(
            document
                .map(|document| document.to_string())
                .ok()
                .as_deref(),
            Some(
                "{\"manifests\":[{\"every\":\"1500000 us\",\"input\":{\"id\": 12345678901234567890123},\
                 \"name\":\"m\",\"task\":\"t\"}]}"
            )
        );
    }
}
