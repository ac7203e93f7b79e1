//! The client of trax, the job scheduler that lives inside PostgreSQL.
//!
//! The client is thin: all decisions are made in the database. [`Client`] calls the functions of
//! trax on any connection or transaction, [`Worker`] runs handlers, and the package `trax_cli`
//! provides the command `trax`.
//!
//! A complete example, in a database with trax:
//!
//! ```no_run
#![doc = include_str!("../examples/hello.rs")]
//! ```
//!
//! # Logs
//!
//! Log events of handlers through [`tracing`](https://docs.rs/tracing) show job, attempt, task and
//! group. The worker itself logs failures, connection problems and recoveries under the target
//! `trax`. To see all of them:
//!
//! ```text
//! cargo add tracing-subscriber --features env-filter
//! tracing_subscriber::fmt::init();             // the first line of main
//! RUST_LOG=info,trax=debug ./my-worker         // with debug also each job that went well
//! ```
//!
//! Without a subscriber the worker's own messages go to standard error. [`Worker::on_event`] sends
//! them elsewhere, and `default-features = false` omits `tracing`.
//!
//! # Traces
//!
//! The W3C trace context of a job's producer is available in every attempt:
//! [`JobOptions::trace_context`] sets it, [`Context::trace_context`] returns it, and in other
//! languages it is in the column `trace` as `{"traceparent": "..", "tracestate": ".."}`. With the
//! feature `opentelemetry` the default is the current span, enqueueing and execution are spans that
//! follow OpenTelemetry's conventions for messaging, and the execution is linked to the enqueueing:
//!
#![cfg_attr(feature = "opentelemetry", doc = "```no_run")]
#![cfg_attr(not(feature = "opentelemetry"), doc = "```ignore")]
//! use opentelemetry::trace::TracerProvider;
//! use tracing_subscriber::layer::SubscriberExt;
//! use tracing_subscriber::util::SubscriberInitExt;
//!
//! # // In a real program: that of opentelemetry-otlp.
//! # let exporter = opentelemetry_sdk::trace::InMemorySpanExporter::default();
//! let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder()
//!     .with_batch_exporter(exporter)
//!     .build();
//! tracing_subscriber::registry()
//!     .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("my-worker")))
//!     .with(tracing_subscriber::fmt::layer())
//!     .init();
//! ```
//!
//! # Middleware and tests of handlers
//!
//! [`Worker::middleware`] runs a function around every execution. The feature `testkit` adds
//! `Worker::run_one`, which runs one job inline, and the module `testkit` with further support for
//! tests of handlers and an example.
//!
//! # Delivery guarantee
//!
//! A job is executed at least once. A handler whose writes must happen exactly once commits them in
//! the transaction that calls [`Client::complete`], and returns [`Outcome::Recorded`].

mod access;
mod address;
mod client;
mod clock;
mod connect;
mod copy_in;
mod environment;
mod error;
mod graph;
mod health;
mod hint;
#[doc(hidden)]
pub mod http;
mod id;
mod job;
mod job_change;
mod job_options;
mod job_result;
mod job_waiter;
mod json;
mod level;
mod libpq;
mod manifest;
mod names;
mod neighbor;
mod not_completed;
mod note;
mod open;
mod operate;
mod parameter;
mod password_file;
mod producer;
mod queue;
mod rate;
mod reached;
mod sql;
#[doc(hidden)]
pub mod sql_hint;
mod sql_job;
#[cfg(feature = "sqlx")]
pub mod sqlx;
mod storable;
mod task;
mod task_defaults;
mod telemetry;
#[cfg(feature = "testkit")]
pub mod testkit;
mod tls;
mod tls_parameter;
mod tls_refusal;
mod token;
mod trace;
mod worker;
mod workflow;

pub use access::Access;
pub use address::{Address, SslMode};
pub use client::Client;
pub use copy_in::CopyIn;
pub use error::{Error, Report, Result};
pub use graph::{Graph, GraphIds, GraphJob, Member, Needed, Node, When};
pub use health::{DeadLetter, SchedulerStart, StatusLine, Step, Violation};
pub use id::{JobId, Token};
pub use job::{Beat, Cancelled, ClaimOptions, Claimed, Failed, Failure, NewJob, NewJobs, RunNow};
pub use job_change::{Changed, JobChange};
pub use job_options::{JobOptions, OnDuplicate};
pub use job_result::{Job, JobResult, JobState};
pub use job_waiter::JobWaiter;
pub use json::Json;
pub use manifest::{Group, Manifest};
pub use neighbor::{Neighbor, is_router};
pub use not_completed::NotCompleted;
pub use operate::{AppliedChange, DeadLetters, Explanation, Upcoming};
pub use producer::Producer;
pub use queue::{Attempt, QueueDepth};
pub use rate::{Closed, Consumed, Rate};
pub use sql_job::SqlJob;
pub use task::Task;
pub use task_defaults::TaskDefaults;
pub use token::{Grant, TokenGuard, TokenRequest};
pub use tokio_postgres;
pub use trace::{MalformedTrace, TraceContext};
pub use worker::{
    Cancellation, Context, Counts, Decide, Decided, Event, FromContext, FromState, HandlerOutput,
    HandlerResult, Health, IntoOutcome, JobError, Many, ManyOutput, Next, Outcome, Reason,
    Shutdown, State, Stopped, Summary, TaskHandler, Worker,
};
pub use workflow::{Child, Children, Recorded, RecordedStep, Sent, Undo, Waited};
