//! OpenTelemetry exports about jobs, read from an in-memory exporter.

use std::error::Error;
use std::time::Duration;

use opentelemetry::trace::{SpanKind, Status, TraceContextExt, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use serde_json::{Value, json};
use tracing::Instrument;
use tracing::subscriber::DefaultGuard;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use trax_client::testkit::{Database, Server};
use trax_client::tokio_postgres::Client as Connection;
use trax_client::{
    Client, Context, HandlerResult, JobError, JobOptions, NewJob, NewJobs, Outcome, TraceContext,
    Worker,
};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

/// A server, and a collector of all traces of this thread, which is the only thread of the tests'
/// runtimes.
struct Scene {
    spans: InMemorySpanExporter,
    connection: Connection,
    database: Database,
    _collecting: DefaultGuard,
    _server: Server,
}

impl Scene {
    async fn new() -> Result<Self> {
        let server = Server::options().not_preloaded().fast().start()?;
        let database = server.database("traced").await?;
        let spans = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(spans.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let collector = tracing_subscriber::registry().with(layer);
        Ok(Scene {
            spans,
            connection: database.connect().await?,
            _collecting: tracing::subscriber::set_default(collector),
            _server: server,
            database,
        })
    }

    fn client(&self) -> Client<'_, Connection> {
        Client::new(&self.connection)
    }

    fn worker(&self) -> Worker {
        Worker::new(self.database.config())
            .without_signals()
            .concurrency(1)
            .until_empty()
    }

    /// Returns the ended spans with this name, in the order of their ends.
    fn named(&self, name: &str) -> Result<Vec<SpanData>> {
        let all = self.spans.get_finished_spans()?;
        Ok(all.into_iter().filter(|span| span.name == name).collect())
    }

    fn one(&self, name: &str) -> Result<SpanData> {
        let spans = self.named(name)?;
        assert_eq!(spans.len(), 1, "{name}: {:#?}", self.spans);
        spans.into_iter().next().ok_or_else(|| "counted".into())
    }
}

/// Returns an attribute as text; empty when there is none.
fn said(span: &SpanData, key: &str) -> String {
    let found = span.attributes.iter().find(|one| one.key.as_str() == key);
    found
        .map(|one| one.value.as_str().into_owned())
        .unwrap_or_default()
}

/// Returns `trace span` of a span's links.
fn links(span: &SpanData) -> Vec<String> {
    let links = span.links.iter();
    links.map(|link| name_of(&link.span_context)).collect()
}

fn name_of(context: &opentelemetry::trace::SpanContext) -> String {
    format!("{} {}", context.trace_id(), context.span_id())
}

#[tokio::test]
async fn an_execution_is_linked_to_the_span_that_enqueued_it_and_no_child_of_it() -> Result {
    let scene = Scene::new().await?;
    let checkout = tracing::info_span!("checkout");
    let job = scene
        .client()
        .enqueue(&NewJob::new("ship", 1))
        .instrument(checkout.clone())
        .await?;
    drop(checkout);
    let handler = |_: Value, ctx: Context| async move {
        let known = ctx.trace_context().map(|trace| trace.traceparent());
        async { tokio::task::yield_now().await }
            .instrument(tracing::info_span!("pack"))
            .await;
        HandlerResult::Ok(known)
    };
    scene.worker().handle("ship", handler).run().await?;

    let (checkout, send) = (scene.one("checkout")?, scene.one("send ship")?);
    assert_eq!(send.parent_span_id, checkout.span_context.span_id());
    assert_eq!(send.span_kind, SpanKind::Producer);
    let process = scene.one("process ship")?;
    assert_eq!(process.span_kind, SpanKind::Consumer);
    assert_eq!(links(&process), [name_of(&send.span_context)]);
    assert_eq!(
        process.parent_span_id,
        opentelemetry::trace::SpanId::INVALID
    );
    assert_ne!(
        process.span_context.trace_id(),
        send.span_context.trace_id(),
        "its trace is its own"
    );
    let pack = scene.one("pack")?;
    assert_eq!(
        pack.parent_span_id,
        process.span_context.span_id(),
        "what a handler traces is below its execution"
    );
    for (span, kind, operation) in [(&send, "send", "enqueue"), (&process, "process", "process")] {
        assert_eq!(said(span, "messaging.system"), "trax");
        assert_eq!(said(span, "messaging.destination.name"), "ship");
        assert_eq!(said(span, "messaging.message.id"), job.to_string());
        assert_eq!(said(span, "messaging.operation.type"), kind);
        assert_eq!(said(span, "messaging.operation.name"), operation);
        assert_eq!(span.status, Status::Unset);
    }
    assert_eq!(said(&process, "attempt"), "1");
    assert_eq!(said(&process, "outcome"), "completed");
    let sql = "select output #>> '{}' from trax.run";
    let known: String = scene.connection.query_one(sql, &[]).await?.get(0);
    let trace = known.parse::<TraceContext>()?;
    assert_eq!(
        format!("{:032x} {:016x}", trace.trace_id(), trace.span_id()),
        name_of(&send.span_context)
    );
    assert!(trace.is_sampled());
    Ok(())
}

#[tokio::test]
async fn where_no_span_of_enqueueing_is_recorded_the_callers_own_is_what_travels() -> Result {
    let scene = Scene::new().await?;
    let tracer = SdkTracerProvider::builder().build().tracer("test");
    let collector = tracing_subscriber::registry()
        .with(filter_fn(|span| span.target() != "trax"))
        .with(tracing_opentelemetry::layer().with_tracer(tracer));
    let _deaf = tracing::subscriber::set_default(collector);
    let checkout = tracing::info_span!("checkout");
    let job = NewJob::new("ship", 1);
    scene
        .client()
        .enqueue(&job)
        .instrument(checkout.clone())
        .await?;
    let sql = "select trace ->> 'traceparent' from trax.work_queue";
    let travels: String = scene.connection.query_one(sql, &[]).await?.get(0);
    let travels = travels.parse::<TraceContext>()?;
    let caller = checkout.context().span().span_context().clone();
    assert_eq!(
        format!("{:032x} {:016x}", travels.trace_id(), travels.span_id()),
        name_of(&caller)
    );
    Ok(())
}

#[tokio::test]
async fn a_copy_is_one_span_that_travels_with_jobs_that_bring_none() -> Result {
    let scene = Scene::new().await?;
    let own = NewJob::new("a", 2).with(JobOptions::new().trace(json!("mine")));
    let jobs = [NewJob::new("a", 1), own, NewJob::new("b", 3)];
    assert_eq!(scene.client().enqueue_all(jobs).await?, 3);

    let send = scene.one("send")?;
    assert_eq!(said(&send, "messaging.operation.name"), "copy_in");
    assert_eq!(said(&send, "messaging.destination.name"), "");
    let sql = "select coalesce(trace ->> 'traceparent', trace #>> '{}') from trax.work_queue order by job_id";
    let rows = scene.connection.query(sql, &[]).await?;
    let traces: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(traces[1], "mine");
    for trace in [&traces[0], &traces[2]] {
        let travels = trace.parse::<TraceContext>()?;
        assert_eq!(
            format!("{:032x} {:016x}", travels.trace_id(), travels.span_id()),
            name_of(&send.span_context)
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_status_of_an_execution_says_what_became_of_the_attempt() -> Result {
    let scene = Scene::new().await?;
    let inputs = ["retry", "panic", "snooze", "unfit"];
    scene
        .client()
        .enqueue_many(&NewJobs::new("t", &inputs).with(JobOptions::new().max_retries(1)))
        .await?;
    let handler = |input: String, ctx: Context| async move {
        match input.as_str() {
            "retry" if ctx.attempt() == 1 => Err(JobError::new("not yet").retry_in(Duration::ZERO)),
            "panic" => panic!("oh"),
            "snooze" => Ok(Outcome::Snooze(Duration::from_secs(3600))),
            other => Ok(Outcome::Output(json!(other).into())),
        }
    };
    let pass = |_: Context, next: trax_client::Next| async move {
        if next.input().text() == "\"unfit\"" {
            return Err(JobError::permanent("not here"));
        }
        next.run().await
    };
    let worker = scene.worker().middleware(pass).handle("t", handler);
    worker.run().await?;

    let send = scene.one("send t")?;
    assert_eq!(said(&send, "messaging.operation.name"), "enqueue_many");
    assert_eq!(said(&send, "messaging.batch.message_count"), "4");
    assert_eq!(said(&send, "messaging.message.id"), "");
    let mut seen: Vec<String> = scene
        .named("process t")?
        .iter()
        .map(|span| {
            assert_eq!(links(span), [name_of(&send.span_context)]);
            let status = match &span.status {
                Status::Unset => "unset".to_owned(),
                Status::Ok => "ok".to_owned(),
                Status::Error { description } => format!("error \"{description}\""),
            };
            let (attempt, outcome) = (said(span, "attempt"), said(span, "outcome"));
            let kind = said(span, "error.type");
            format!("{attempt} {outcome} {status} {kind}")
                .trim_end()
                .to_owned()
        })
        .collect();
    // The second attempt runs when it is claimed, among the others.
    seen.sort();
    assert_eq!(
        seen,
        [
            "1 failed error \"not here\" error",
            "1 failed error \"not yet\" error",
            "1 failed error \"panicked: oh\" panic",
            "1 released unset",
            "2 completed unset",
        ]
    );
    Ok(())
}

#[tokio::test]
async fn what_the_caller_gives_counts_and_an_enqueueing_that_is_refused_says_so() -> Result {
    let scene = Scene::new().await?;
    let parent =
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse::<TraceContext>()?;
    let own = JobOptions::new().trace_context(&parent.with_state("vendor=value")?);
    scene
        .client()
        .enqueue(&NewJob::new("t", 1).with(own))
        .await?;
    let broken = JobOptions::new().trace(json!({"traceparent": "broken"}));
    scene
        .client()
        .enqueue(&NewJob::new("t", 2).with(broken))
        .await?;
    let handler = |_: Value, _: Context| async { HandlerResult::Ok(()) };
    scene
        .worker()
        .on_event(|_| {})
        .handle("t", handler)
        .run()
        .await?;
    let [first, second] = &scene.named("process t")?[..] else {
        return Err("two executions".into());
    };
    assert_eq!(
        links(first),
        ["4bf92f3577b34da6a3ce929d0e0e4736 00f067aa0ba902b7"]
    );
    let state = first.links.iter().map(|link| &link.span_context);
    let state: Vec<_> = state.map(|linked| linked.trace_state().header()).collect();
    assert_eq!(state, ["vendor=value"]);
    assert_eq!(links(second), [""; 0], "a malformed one is dropped");

    let refused = scene.client().enqueue(&NewJob::new("", 1)).await;
    assert!(refused.is_err());
    let send = scene.one("send ")?;
    assert!(
        matches!(&send.status, Status::Error { description } if description.contains("22023")),
        "{:?}",
        send.status
    );
    assert_eq!(said(&send, "error.type"), "22023");
    Ok(())
}
