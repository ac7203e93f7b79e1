//! The document of a graph: its jobs, and which they need.

use crate::columns::{DEFAULT_GROUP, HIGHEST_PRIORITY, SQL_TASK};
use crate::document::{Object, nearest};
use crate::error::{Error, Result};
use crate::job_needs::Condition;
use crate::rate;
use crate::server::clock::Timestamp;
use crate::server::rights::Caller;
use crate::server::spi::{Spi, arg};
use crate::sql_job;
use crate::work_queue;
use crate::work_queue::{NewJob, check_size};
use pgrx::{PgSqlErrorCode, pg_sys};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The most jobs of a document, and the most needs of all of them.
const JOBS_AT_MOST: usize = 100_000;
const NEEDS_AT_MOST: usize = 1_000_000;
/// The most names of a circle that an error shows.
const SHOWN_AT_MOST: usize = 20;

const KEYS: [&str; 20] = [
    "name",
    "task",
    "sql",
    "run_as",
    "input",
    "needs",
    "when",
    "run_at",
    "group_name",
    "priority",
    "max_retries",
    "timeout",
    "concurrency_key",
    "trace",
    "retry_delay",
    "version",
    "batch",
    "rate",
    "rate_key",
    "cost",
];

/// A graph that can be queued.
pub(super) struct Document {
    pub(super) nodes: Vec<Node>,
    /// A job waits while the dead letter of one that it needs waits for a person.
    pub(super) awaits_requeue: bool,
}

/// A job of the document.
pub(super) struct Node {
    pub(super) name: String,
    pub(super) job: NewJob,
    pub(super) input: pg_sys::Datum,
    /// The positions of the jobs that it needs.
    pub(super) needs: Vec<usize>,
    pub(super) condition: Condition,
}

impl Document {
    pub(super) fn read(spi: &Spi, value: &Value, caller: Caller, now: Timestamp) -> Result<Self> {
        let document = Object::new(value, "the document", &["jobs", "on_failure"])?;
        let awaits_requeue = match document.text("on_failure")?.as_deref() {
            None | Some("cancel") => false,
            Some("wait") => true,
            Some(other) => {
                return Err(one_of("on_failure", other, &["cancel", "wait"]));
            }
        };
        let list = document.list("jobs")?;
        if list.is_empty() {
            return Err(Error::invalid("the document has no jobs")
                .detail("Its list \"jobs\" is empty, or left out.")
                .hint(r#"For example: {"jobs": [{"name": "load", "task": "etl.load"}, {"name": "sum", "task": "etl.sum", "needs": ["load"]}]}"#));
        }
        require_at_most(list.len(), JOBS_AT_MOST, "jobs")?;
        let names = names(list)?;
        let mut nodes = Vec::with_capacity(list.len());
        let mut needs = 0;
        for (index, value) in list.iter().enumerate() {
            pgrx::check_for_interrupts!();
            let node = Node::read(spi, index, value, &names, caller, now)?;
            needs += node.needs.len();
            require_at_most(needs, NEEDS_AT_MOST, "needs")?;
            nodes.push(node);
        }
        refuse_circle(&nodes)?;
        Ok(Self {
            nodes,
            awaits_requeue,
        })
    }
}

fn require_at_most(count: usize, most: usize, what: &str) -> Result<()> {
    if count <= most {
        return Ok(());
    }
    Err(Error::new(
        PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        format!("the document has more than {most} {what}"),
    )
    .detail(format!("A graph has at most {JOBS_AT_MOST} jobs and {NEEDS_AT_MOST} needs."))
    .hint("Add jobs to a batch: select trax.open_batch('...'); or let many jobs need one job that needs many."))
}

/// Returns the positions of the jobs by their names.
fn names(list: &[Value]) -> Result<HashMap<&str, usize>> {
    let mut names = HashMap::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let Some(name) = value.get("name").and_then(Value::as_str) else {
            Object::new(value, &format!("jobs[{index}]"), &KEYS)?.text("name")?;
            return Err(Error::new(
                PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED,
                format!("jobs[{index}] of the document has no name"),
            )
            .detail("Its member \"name\" is missing or null.")
            .hint(r#"Name it: {"name": "load", "task": "etl.load"}"#));
        };
        if let Some(first) = names.insert(name, index) {
            return Err(
                Error::invalid(format!("job \"{name}\" appears twice in the document"))
                    .detail(format!(
                        "Both jobs[{first}] and jobs[{index}] have this name."
                    ))
                    .hint("Give each job of a graph a name of its own."),
            );
        }
    }
    Ok(names)
}

fn one_of(key: &str, found: &str, known: &[&str]) -> Error {
    Error::invalid(format!(
        "member \"{key}\" does not have the value \"{found}\""
    ))
    .detail(format!("The values are: {}.", known.join(", ")))
    .hint(match nearest(found, known.iter().copied()) {
        Some(near) => format!("Write \"{near}\"."),
        None => format!("Specify one of: {}.", known.join(", ")),
    })
}

impl Node {
    fn read(
        spi: &Spi,
        index: usize,
        value: &Value,
        names: &HashMap<&str, usize>,
        caller: Caller,
        now: Timestamp,
    ) -> Result<Self> {
        let name = value
            .get("name")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let read = || {
            refuse_unique_key(value)?;
            let object = Object::new(value, "the job", &KEYS)?;
            let name = object.new_name("name")?.unwrap_or_default();
            let (needs, condition) = needs(index, &object, names)?;
            let (job, input) = job(spi, &object, caller, now)?;
            let waits_for_jobs = !needs.is_empty();
            Ok(Self {
                name,
                job: NewJob {
                    waits_for_jobs,
                    ..job
                },
                input,
                needs,
                condition,
            })
        };
        read().map_err(|error: Error| error.about("job", name))
    }

    /// Returns the names of the jobs that it needs, for a column.
    pub(super) fn needs_by_name(&self, nodes: &[Self]) -> Option<pg_sys::Datum> {
        let names = self.needs.iter().map(|&index| nodes[index].name.clone());
        let names: Vec<String> = names.collect();
        if names.is_empty() { None } else { arg(names) }
    }
}

/// Returns the positions of the jobs that one needs, and how they must end.
fn needs(
    index: usize,
    object: &Object<'_>,
    names: &HashMap<&str, usize>,
) -> Result<(Vec<usize>, Condition)> {
    let wanted = object.names("needs")?.unwrap_or_default();
    let mut known = HashSet::new();
    let mut needs = Vec::with_capacity(wanted.len());
    for (place, name) in wanted.iter().enumerate() {
        let at = || format!("jobs[{index}].needs[{place}] is \"{name}\".");
        let Some(&needed) = names.get(name.as_str()) else {
            let others = names.iter().filter(|(_, at)| **at != index);
            let near = nearest(name, others.map(|(name, _)| *name));
            return Err(
                Error::invalid(format!("needs \"{name}\", which is not in the document"))
                    .detail(at())
                    .hint(match near {
                        Some(near) => {
                            format!("Write \"{near}\", or add a job with the name \"{name}\".")
                        }
                        None => format!("Add a job with the name \"{name}\", or leave it out."),
                    }),
            );
        };
        if !known.insert(needed) {
            return Err(Error::invalid(format!("needs \"{name}\" twice"))
                .detail(at())
                .hint("Leave out one of the two."));
        }
        needs.push(needed);
    }
    let condition = match object.text("when")? {
        None => Condition::Completed,
        Some(_) if needs.is_empty() => {
            return Err(Error::invalid("member \"when\" needs a list of jobs")
                .detail("The job needs no other.")
                .hint(r#"Name them: "needs": ["load"]; or leave out when."#));
        }
        Some(when) => {
            let known = Condition::ALL.map(Condition::name);
            let found = Condition::ALL
                .into_iter()
                .find(|condition| condition.name() == when);
            found.ok_or_else(|| one_of("when", &when, &known))?
        }
    };
    Ok((needs, condition))
}

/// Refuses the options that only a graph as a whole has, and a job of its own.
fn refuse_unique_key(job: &Value) -> Result<()> {
    let known = ["unique_key", "unique_for", "on_duplicate"];
    match known.into_iter().find(|key| job.get(key).is_some()) {
        None => Ok(()),
        Some(key) => Err(Error::invalid(format!("a job of a graph has no {key}"))
            .detail("A unique key makes the whole graph unique.")
            .hint("Give the key to the whole graph: unique_key => 'night'")),
    }
}

/// Returns a job with its options, and its input.
fn job(
    spi: &Spi,
    object: &Object<'_>,
    caller: Caller,
    now: Timestamp,
) -> Result<(NewJob, pg_sys::Datum)> {
    let (task, run_as, input) = work(object, caller)?;
    check_size("input", input)?;
    let version = object.new_name("version")?;
    if run_as.is_some() && version.is_some() {
        return Err(Error::invalid("a statement has no version")
            .detail("A version is one of a worker's program, and the server runs the statement.")
            .hint("Leave out version."));
    }
    let trace = object.json("trace");
    trace.map_or(Ok(()), |trace| check_size("trace", trace))?;
    let group = object.new_name("group_name")?;
    let priority = object.within("priority", 0, HIGHEST_PRIORITY)?;
    let (rate, rate_key) = (object.name("rate")?, object.name("rate_key")?);
    let cost = object.within("cost", 1, i32::MAX)?.unwrap_or(1);
    let job = NewJob {
        priority: priority.unwrap_or(0),
        run_at: object
            .time(spi, "run_at", "UTC")?
            .map_or(now, |at| at.max(now)),
        max_retries: object.within("max_retries", 0, i32::MAX - 1)?,
        timeout: object.interval(spi, "timeout", 1)?,
        retry_delay: object.interval(spi, "retry_delay", 0)?,
        concurrency_key: object.name("concurrency_key")?,
        trace,
        run_as,
        version,
        batch: object.id("batch")?,
        rate: rate::OfJob::checked(rate, rate_key, i64::from(cost))?,
        ..NewJob::plain(task, group.unwrap_or(DEFAULT_GROUP.to_owned()), now)
    };
    job.run_at
        .bounded("member \"run_at\"", r#""run_at": "2026-12-24 18:00 UTC""#)?;
    Ok((job, input))
}

/// Returns the task of a job or that of SQL jobs, the role of its statement, and its input.
fn work(object: &Object<'_>, caller: Caller) -> Result<(String, Option<String>, pg_sys::Datum)> {
    let (task, sql) = (object.new_name("task")?, object.text("sql")?);
    let run_as = object.name("run_as")?;
    let input = object.json("input");
    match (task, sql) {
        (Some(task), None) if run_as.is_none() => {
            work_queue::refuse_sql_task(&task)?;
            Ok((task, None, input.unwrap_or_else(work_queue::empty_object)))
        }
        (None, Some(sql)) if input.is_none() => {
            let role = sql_job::role(caller.user, run_as)?;
            let input = sql_job::input(&sql, &role)?;
            Ok((SQL_TASK.to_owned(), Some(role), input))
        }
        (None, None) => Err(Error::invalid("has neither a task nor a statement")
            .detail("A job is a task of workers, or a statement that the server runs.")
            .hint(r#"Specify one: "task": "etl.load", or "sql": "call rollup()""#)),
        _ => Err(Error::invalid("has a task and a statement")
            .detail("A statement has no task and no input, and a task has no run_as.")
            .hint(r#"Specify "task" with its input, or "sql" with its role."#)),
    }
}

/// Returns 22023 with the path of a circle if there is one.
fn refuse_circle(nodes: &[Node]) -> Result<()> {
    let mut open: Vec<usize> = nodes.iter().map(|node| node.needs.len()).collect();
    let mut needed_by = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        node.needs
            .iter()
            .for_each(|&needed| needed_by[needed].push(index));
    }
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|&index| open[index] == 0).collect();
    let mut count = 0;
    while let Some(index) = ready.pop() {
        count += 1;
        for &next in &needed_by[index] {
            open[next] -= 1;
            if open[next] == 0 {
                ready.push(next);
            }
        }
    }
    if count == nodes.len() {
        return Ok(());
    }
    let circle = circle(nodes, &open);
    let name = nodes[circle[0]].name.as_str();
    let mut shown: Vec<&str> = circle
        .iter()
        .map(|&index| nodes[index].name.as_str())
        .collect();
    if shown.len() > SHOWN_AT_MOST {
        shown.truncate(SHOWN_AT_MOST);
        shown.push("...");
    }
    shown.push(name);
    Err(Error::invalid(format!("job \"{name}\" would need itself"))
        .detail(format!("The circle is {}.", shown.join(" -> ")))
        .hint("Leave out one of these names in needs."))
}

/// Returns a circle among the jobs that still need others: each of them needs one of them.
fn circle(nodes: &[Node], open: &[usize]) -> Vec<usize> {
    let mut places: HashMap<usize, usize> = HashMap::new();
    let mut path = Vec::new();
    let mut next = open.iter().position(|&count| count > 0);
    while let Some(index) = next {
        if let Some(&place) = places.get(&index) {
            return path.split_off(place);
        }
        places.insert(index, path.len());
        path.push(index);
        next = nodes[index]
            .needs
            .iter()
            .copied()
            .find(|&needed| open[needed] > 0);
    }
    path
}
