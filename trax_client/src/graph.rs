//! Graphs: jobs that are queued together, of which some need others.

use std::collections::HashMap;
use std::ops::Index;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Result;
use crate::id::JobId;
use crate::job::NewJob;
use crate::job_options::JobOptions;
use crate::json::Json;
use crate::manifest::utc;
use crate::sql::Interval;
use crate::sql_job::SqlJob;

/// When a job of a graph runs: how the jobs must end that it needs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// All of them complete; otherwise it is cancelled.
    #[default]
    Completed,
    /// All of them end, whatever they become.
    Ended,
    /// One of them fails for good or is cancelled; otherwise it is cancelled.
    Failed,
}

/// A job that was added to a [`Graph`].
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Node(Arc<str>);

impl Node {
    /// Returns the name of the job in its graph.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// A job of a graph: its work, and the jobs that it needs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GraphJob {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sql: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_as: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    needs: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<When>,
    #[serde(flatten)]
    options: HashMap<&'static str, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<Json>,
}

impl GraphJob {
    /// Returns a job of workers with a name of its own in the graph.
    ///
    /// # Errors
    /// If the input cannot be represented as JSON.
    pub fn new<T: Serialize>(name: impl Into<String>, job: &NewJob<T>) -> Result<Self> {
        Ok(GraphJob {
            task: Some(job.task.clone()),
            input: Some(Json::of(&job.input)?),
            ..GraphJob::with_options(name.into(), &job.options)
        })
    }

    /// Returns a statement that the server runs.
    pub fn sql(name: impl Into<String>, job: &SqlJob) -> Self {
        GraphJob {
            sql: Some(job.command.clone()),
            run_as: job.run_as.clone(),
            trace: None,
            ..GraphJob::with_options(name.into(), &job.options)
        }
    }

    fn with_options(name: String, options: &JobOptions) -> Self {
        let mut members = HashMap::new();
        let mut set = |name, value: Option<Value>| {
            if let Some(value) = value {
                members.insert(name, value);
            }
        };
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let number = |number: &Option<i32>| number.map(Value::from);
        let length = |length: &Option<Interval>| length.map(|length| length.text().into());
        // Without "..", so that no option is left out.
        let JobOptions {
            run_at,
            group_name,
            priority,
            max_retries,
            timeout,
            unique_key,
            concurrency_key,
            trace,
            retry_delay,
            unique_for,
            version,
            batch,
            rate,
            rate_key,
            cost,
            on_duplicate,
        } = options;
        set("run_at", run_at.map(|at| utc(at.0).into()));
        set("group_name", text(group_name));
        set("priority", number(priority));
        set("max_retries", number(max_retries));
        set("timeout", length(timeout));
        set("unique_key", text(unique_key));
        set("unique_for", length(unique_for));
        set("concurrency_key", text(concurrency_key));
        set("retry_delay", length(retry_delay));
        set("version", text(version));
        set("batch", batch.map(Value::from));
        set("rate", text(rate));
        set("rate_key", text(rate_key));
        set("cost", number(cost));
        set(
            "on_duplicate",
            on_duplicate.map(|choice| choice.name().into()),
        );
        GraphJob {
            name,
            options: members,
            trace: trace.clone(),
            ..GraphJob::default()
        }
    }

    /// Adds jobs that this one needs: it runs after them.
    pub fn needs<'node>(mut self, nodes: impl IntoIterator<Item = &'node Node>) -> Self {
        let names = nodes.into_iter().map(|node| node.0.to_string());
        self.needs.extend(names);
        self
    }

    /// Sets how the jobs must end that it needs.
    pub fn when(mut self, when: When) -> Self {
        self.when = Some(when);
        self
    }
}

/// Jobs that are queued together by [`Client::enqueue_graph`](crate::Client::enqueue_graph), all or
/// none. A job needs only jobs that were added before it: no graph is a circle, and no name is
/// missing.
///
/// ```
/// use trax_client::{Graph, GraphJob, NewJob, SqlJob, When};
///
/// let mut night = Graph::new().unique_key("night");
/// let load = night.add(GraphJob::new("load", &NewJob::new("etl.load", "orders"))?);
/// let sum = GraphJob::sql("sum", &SqlJob::new("call rollup()")).needs([&load]);
/// let sum = night.add(sum);
/// let alarm = GraphJob::new("alarm", &NewJob::new("page", "night failed"))?;
/// night.add(alarm.needs([&load, &sum]).when(When::Failed));
/// assert_eq!(night.len(), 3);
/// # Ok::<(), trax_client::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Graph {
    jobs: Vec<GraphJob>,
    unique_key: Option<String>,
    waits_for_a_person: bool,
}

impl Graph {
    /// Returns a graph without jobs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a job.
    pub fn add(&mut self, job: GraphJob) -> Node {
        let node = Node(job.name.as_str().into());
        self.jobs.push(job);
        node
    }

    /// Sets a unique key: while a job of a graph with this key waits or executes, queueing returns
    /// that graph.
    pub fn unique_key(mut self, key: impl Into<String>) -> Self {
        self.unique_key = Some(key.into());
        self
    }

    /// Lets jobs wait while the dead letter of one that they need waits for a person; by default
    /// they are cancelled.
    pub fn waits_for_a_person(mut self) -> Self {
        self.waits_for_a_person = true;
        self
    }

    /// Returns the number of jobs.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Returns whether it has no job.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn key(&self) -> &Option<String> {
        &self.unique_key
    }

    pub(crate) fn document(&self) -> Result<Json> {
        #[derive(Serialize)]
        struct Document<'graph> {
            jobs: &'graph [GraphJob],
            #[serde(skip_serializing_if = "Option::is_none")]
            on_failure: Option<&'static str>,
        }
        Ok(Json::of(&Document {
            jobs: &self.jobs,
            on_failure: self.waits_for_a_person.then_some("wait"),
        })?)
    }
}

/// The ids of the jobs of a graph, by their names.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GraphIds(pub(crate) HashMap<String, JobId>);

impl GraphIds {
    /// Returns the id of a job.
    pub fn get(&self, name: &str) -> Option<JobId> {
        self.0.get(name).copied()
    }

    /// Returns the names and ids, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, JobId)> {
        self.0.iter().map(|(name, &id)| (name.as_str(), id))
    }
}

impl Index<&Node> for GraphIds {
    type Output = JobId;

    /// # Panics
    /// If the node is of another graph.
    fn index(&self, node: &Node) -> &JobId {
        &self.0[node.name()]
    }
}

/// A job that another one of its graph needed.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Needed {
    /// The name of the job in the graph; `None` in a batch.
    pub name: Option<String>,
    /// The job.
    pub job_id: JobId,
    /// `queued`, `in_progress`, `completed`, `failed` or `cancelled`; `None` if its history was
    /// deleted.
    pub state: Option<String>,
    /// The output of a completed job.
    pub output: Option<Json>,
    /// The error of a failed job, or the reason of a cancel.
    pub error: Option<String>,
}

/// A job of a graph, from [`Client::read_graph`](crate::Client::read_graph).
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    /// The name of the job in the graph; `None` in a batch.
    pub name: Option<String>,
    /// The job.
    pub job_id: JobId,
    /// The task; `None` if its history was deleted.
    pub task: Option<String>,
    /// `queued`, `in_progress`, `completed`, `failed` or `cancelled`.
    pub state: Option<String>,
    /// The names of the jobs that it needs.
    pub needs: Vec<String>,
    /// How these must end: `completed`, `ended` or `failed`.
    pub condition: Option<String>,
    /// What a queued job waits for, as in `trax.work_queue`.
    pub waits_for: Option<String>,
    /// How many attempts it had.
    pub attempt: Option<i32>,
    /// When its last attempt began.
    #[serde(skip)]
    pub started_at: Option<SystemTime>,
    /// When it ended.
    #[serde(skip)]
    pub finished_at: Option<SystemTime>,
    /// The error of a failed job, or the reason of a cancel.
    pub error: Option<String>,
}
