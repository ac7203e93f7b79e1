//! The data of `trax top`: a snapshot of the database, and the rates between two snapshots.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use serde::Serialize;
use serde_json::Value;
use tokio_postgres::Row;
use trax_client::Json;

use crate::session::Session;
use crate::shards::Shards;
use trax_terminal::Failure;

/// The number of snapshots in the curve of completions.
const HISTORY: usize = 400;
/// The maximum number of rows read for each list.
const ROWS: usize = 100;

/// A group and its jobs.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) enabled: bool,
    pub(super) ready: f64,
    pub(super) delayed: f64,
    pub(super) blocked: f64,
    pub(super) running: f64,
    pub(super) limit: Option<f64>,
    #[serde(rename = "oldest_seconds")]
    pub(super) oldest: Option<f64>,
}

/// The counters of a task since the server started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) claims: f64,
    pub(super) completions: f64,
    pub(super) failures: f64,
    pub(super) run_count: f64,
    pub(super) run_seconds: f64,
    pub(super) wait_count: f64,
    pub(super) wait_seconds: f64,
}

/// An attempt in progress.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Job {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shard: Option<i32>,
    pub(super) job_id: i64,
    pub(super) task: String,
    #[serde(rename = "group_name")]
    pub(super) group: String,
    pub(super) worker: String,
    pub(super) attempt: i32,
    pub(super) seconds: f64,
    pub(super) stopping: bool,
    pub(super) progress: Option<Json>,
}

/// A worker that claims jobs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Worker {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shard: Option<i32>,
    pub(super) name: String,
    pub(super) state: String,
    pub(super) running: i64,
    pub(super) seen_seconds: f64,
}

/// An open dead letter.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Dead {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) shard: Option<i32>,
    pub(super) id: i64,
    pub(super) task: String,
    /// The manifest whose schedule it stops.
    pub(super) stops: Option<String>,
    pub(super) seconds: f64,
    pub(super) attempts: i32,
    pub(super) error: String,
}

/// A snapshot; for a router, of all its shards together.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    at: Instant,
    /// The errors of unavailable shards.
    pub(super) away: Vec<String>,
    pub(super) database: String,
    pub(super) version: String,
    pub(super) scheduler: bool,
    pub(super) paused: bool,
    pub(super) lag: f64,
    pub(super) dead_letters: f64,
    /// The number of schedules stopped by a dead letter.
    pub(super) stopped: f64,
    pub(super) enqueued: f64,
    /// Whether events are counted, which requires the library to be preloaded.
    pub(super) counted: bool,
    pub(super) groups: Vec<Group>,
    pub(super) tasks: BTreeMap<String, Counts>,
    pub(super) running: Vec<Job>,
    pub(super) workers: Vec<Worker>,
    pub(super) dead: Vec<Dead>,
}

const RUNNING: &str = "select l.job_id, l.task, l.group_name, l.worker, l.attempt, \
    extract(epoch from pg_catalog.clock_timestamp() - l.started_at)::float8, l.cancel_requested, p.progress \
    from trax.lease l left join trax.progress p on p.job_id = l.job_id and p.reported_at >= l.started_at order by l.started_at, l.job_id limit 100";
const WORKERS: &str = "select s.name, s.running, \
    coalesce(extract(epoch from pg_catalog.clock_timestamp() - s.last_seen_at)::float8, 0), s.state \
    from trax.worker_state s order by s.state = 'gone', s.running desc, s.name limit 100";
const DEAD: &str = "select d.id, d.task, extract(epoch from pg_catalog.clock_timestamp() - d.created_at)::float8, \
    d.attempts, coalesce(d.last_error, d.reason), t.manifest \
    from trax.dead_letter d left join trax.stopped_schedule t on t.dead_letter_id = d.id \
    where d.status = 'awaiting_intervention' order by t.manifest is null, d.id desc limit 100";

impl Snapshot {
    pub(super) async fn read(session: &Session) -> Result<Self, Failure> {
        let samples = "select m.name, m.labels, m.value from trax.metrics() m \
                       where m.name not like '%\\_bucket'";
        let samples = session.rows(samples, &[]).await?;
        let shards = session.shards_now().await?;
        let shards = shards.as_ref();
        let away = shards.map_or(&[][..], Shards::away).iter();
        let mut snapshot = Snapshot {
            at: Instant::now(),
            away: away.map(ToString::to_string).collect(),
            database: session
                .value("select pg_catalog.current_database()::text", &[])
                .await?,
            version: String::new(),
            scheduler: true,
            paused: false,
            lag: 0.0,
            dead_letters: 0.0,
            stopped: 0.0,
            enqueued: 0.0,
            counted: false,
            groups: Vec::new(),
            tasks: BTreeMap::new(),
            running: all(session, shards, RUNNING, Job::read).await?,
            workers: all(session, shards, WORKERS, Worker::read).await?,
            dead: all(session, shards, DEAD, Dead::read).await?,
        };
        if shards.is_some() {
            snapshot.merge();
        }
        for row in &samples {
            snapshot.take(row.try_get(0)?, &row.try_get(1)?, row.try_get(2)?);
        }
        // Groups with work come first.
        let waits = |group: &Group| group.running + group.ready + group.blocked + group.delayed;
        snapshot.groups.sort_by(|a, b| {
            waits(b)
                .total_cmp(&waits(a))
                .then_with(|| a.name.cmp(&b.name))
        });
        Ok(snapshot)
    }

    /// Merges the lists of several shards into one order, limited to the length of a single list.
    fn merge(&mut self) {
        self.running.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        self.workers
            .sort_by_key(|worker| (worker.state == "gone", Reverse(worker.running)));
        self.dead.sort_by(|a, b| {
            let by_stop = a.stops.is_none().cmp(&b.stops.is_none());
            by_stop.then_with(|| a.seconds.total_cmp(&b.seconds))
        });
        self.running.truncate(ROWS);
        self.workers.truncate(ROWS);
        self.dead.truncate(ROWS);
    }

    /// Adds one sample. Samples of several shards add up.
    fn take(&mut self, name: &str, labels: &Value, value: f64) {
        let label = |name: &str| labels[name].as_str().unwrap_or_default();
        match name {
            "trax_info" => self.version = label("version").to_owned(),
            "trax_scheduler_running" => self.scheduler &= value > 0.0,
            "trax_scheduler_paused" => self.paused |= value > 0.0,
            "trax_scheduler_lag_seconds" => self.lag = self.lag.max(value),
            "trax_dead_letters" => self.dead_letters += value,
            "trax_schedules_stopped" => self.stopped += value,
            "trax_enqueued_total" => self.enqueued += value,
            "trax_cycle_duration_seconds_count" => self.counted = true,
            _ if labels["group"].is_string() => {
                let group = self.group(label("group"));
                match (name, label("state")) {
                    ("trax_queue_depth", "ready") => group.ready += value,
                    ("trax_queue_depth", "delayed" | "suspended") => group.delayed += value,
                    ("trax_queue_depth", "blocked" | "behind_manifest") => group.blocked += value,
                    ("trax_queue_oldest_age_seconds", _) => {
                        group.oldest = Some(group.oldest.unwrap_or(0.0).max(value));
                    }
                    ("trax_leases", _) => group.running += value,
                    ("trax_group_enabled", _) => group.enabled &= value > 0.0,
                    ("trax_group_max_active_jobs", _) => {
                        group.limit = Some(group.limit.unwrap_or(0.0) + value);
                    }
                    _ => {}
                }
            }
            _ if labels["task"].is_string() => {
                let counts = self.tasks.entry(label("task").to_owned()).or_default();
                match name {
                    "trax_claims_total" => counts.claims += value,
                    "trax_completions_total" => counts.completions += value,
                    "trax_failures_total" => counts.failures += value,
                    "trax_run_seconds_count" => counts.run_count += value,
                    "trax_run_seconds_sum" => counts.run_seconds += value,
                    "trax_wait_seconds_count" => counts.wait_count += value,
                    "trax_wait_seconds_sum" => counts.wait_seconds += value,
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn group(&mut self, name: &str) -> &mut Group {
        let place = self.groups.iter().position(|group| group.name == name);
        let place = place.unwrap_or_else(|| {
            self.groups.push(Group {
                name: name.to_owned(),
                enabled: true,
                ..Group::default()
            });
            self.groups.len() - 1
        });
        &mut self.groups[place]
    }

    // Without the addition, the sum of no numbers would be -0.
    fn sum(&self, count: impl Fn(&Counts) -> f64) -> f64 {
        self.tasks.values().map(count).sum::<f64>() + 0.0
    }

    /// Returns the sum over all groups.
    pub(super) fn total(&self, count: impl Fn(&Group) -> f64) -> f64 {
        self.groups.iter().map(count).sum::<f64>() + 0.0
    }
}

async fn all<T>(
    session: &Session,
    shards: Option<&Shards>,
    sql: &str,
    read: impl Fn(Option<i32>, &Row) -> Result<T, tokio_postgres::Error>,
) -> Result<Vec<T>, Failure> {
    let rows = match shards {
        Some(shards) => shards.find(sql, &[]).await?,
        None => {
            let rows = session.rows(sql, &[]).await?;
            rows.into_iter().map(|row| (None, row)).collect()
        }
    };
    let rows: Result<Vec<T>, _> = rows.iter().map(|(shard, row)| read(*shard, row)).collect();
    Ok(rows?)
}

impl Job {
    fn read(shard: Option<i32>, row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Job {
            shard,
            job_id: row.try_get(0)?,
            task: row.try_get(1)?,
            group: row.try_get(2)?,
            worker: row.try_get(3)?,
            attempt: row.try_get(4)?,
            seconds: row.try_get(5)?,
            stopping: row.try_get(6)?,
            progress: row.try_get(7)?,
        })
    }
}

impl Worker {
    fn read(shard: Option<i32>, row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Worker {
            shard,
            name: row.try_get(0)?,
            state: row.try_get(3)?,
            running: row.try_get(1)?,
            seen_seconds: row.try_get(2)?,
        })
    }
}

impl Dead {
    fn read(shard: Option<i32>, row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Dead {
            shard,
            id: row.try_get(0)?,
            task: row.try_get(1)?,
            seconds: row.try_get(2)?,
            attempts: row.try_get(3)?,
            error: row.try_get::<_, Option<String>>(4)?.unwrap_or_default(),
            stops: row.try_get(5)?,
        })
    }
}

/// The rates per second of one task, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    #[serde(rename = "claims_per_second")]
    pub(super) claims: f64,
    #[serde(rename = "completions_per_second")]
    pub(super) completions: f64,
    #[serde(rename = "failures_per_second")]
    pub(super) failures: f64,
    /// The mean duration in seconds of attempts that ended between the snapshots; of all earlier
    /// ones if none did.
    #[serde(rename = "run_seconds")]
    pub(super) run: Option<f64>,
    #[serde(rename = "wait_seconds")]
    pub(super) wait: Option<f64>,
}

/// The last two snapshots.
pub(super) struct Screenful {
    pub(super) now: Snapshot,
    before: Option<Snapshot>,
    /// Completions per second, newest last.
    pub(super) history: VecDeque<u64>,
}

impl Screenful {
    pub(super) fn of(now: Snapshot) -> Self {
        Screenful {
            now,
            before: None,
            history: VecDeque::new(),
        }
    }

    pub(super) fn add(&mut self, next: Snapshot) {
        self.before = Some(std::mem::replace(&mut self.now, next));
        if self.now.counted {
            self.history
                .push_back(self.all().completions.round() as u64);
        }
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
    }

    /// Returns the growth of a counter per second. A counter that was reset counts from zero.
    fn rate(&self, count: impl Fn(&Snapshot) -> f64) -> f64 {
        let Some(before) = &self.before else {
            return 0.0;
        };
        // The counters of a shard that became unavailable or returned are not a rate.
        if before.away != self.now.away {
            return 0.0;
        }
        let seconds = self.now.at.duration_since(before.at).as_secs_f64();
        let (now, before) = (count(&self.now), count(before));
        let grown = if now < before { now } else { now - before };
        if seconds > 0.0 { grown / seconds } else { 0.0 }
    }

    pub(super) fn enqueued(&self) -> f64 {
        self.rate(|snapshot| snapshot.enqueued)
    }

    /// Returns the sums over all tasks.
    pub(super) fn all(&self) -> Rates {
        let of = |count: fn(&Counts) -> f64| self.rate(|snapshot| snapshot.sum(count));
        Rates {
            claims: of(|counts| counts.claims),
            completions: of(|counts| counts.completions),
            failures: of(|counts| counts.failures),
            run: None,
            wait: None,
        }
    }

    /// Returns the tasks, ordered by their share of the workers' time, largest first.
    pub(super) fn tasks(&self) -> Vec<(&str, Rates)> {
        let mut tasks: Vec<(&str, Rates, f64)> = self
            .now
            .tasks
            .iter()
            .map(|(task, counts)| {
                let (rates, load) = self.of_task(task, counts);
                (task.as_str(), rates, load)
            })
            .collect();
        tasks.sort_by(|a, b| {
            let by_load = b.2.total_cmp(&a.2);
            by_load.then_with(|| b.1.run.unwrap_or(0.0).total_cmp(&a.1.run.unwrap_or(0.0)))
        });
        tasks
            .into_iter()
            .map(|(task, rates, _)| (task, rates))
            .collect()
    }

    /// Returns the rates of a task, and the seconds of work that ended per second.
    fn of_task(&self, task: &str, counts: &Counts) -> (Rates, f64) {
        let of = |count: fn(&Counts) -> f64| {
            self.rate(|snapshot| snapshot.tasks.get(task).map_or(0.0, count))
        };
        let mean = |sum: f64, count: f64, sums: f64, counts: f64| {
            if count > 0.0 {
                Some(sum / count)
            } else {
                (counts > 0.0).then(|| sums / counts)
            }
        };
        let load = of(|counts| counts.run_seconds);
        let run = mean(
            load,
            of(|counts| counts.run_count),
            counts.run_seconds,
            counts.run_count,
        );
        let wait = mean(
            of(|counts| counts.wait_seconds),
            of(|counts| counts.wait_count),
            counts.wait_seconds,
            counts.wait_count,
        );
        let rates = Rates {
            claims: of(|counts| counts.claims),
            completions: of(|counts| counts.completions),
            failures: of(|counts| counts.failures),
            run,
            wait,
        };
        (rates, load)
    }
}

#[cfg(test)]
pub(super) mod tests;
