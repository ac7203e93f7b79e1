//! Serves the calls of handlers that record steps: in a worker over one connection for all its
//! handlers, which is opened at the first call; in a test that runs a job inline, over the test's
//! own connection.
//!
//! Steps that handlers record while others are being recorded share the next transaction: 100
//! handlers pay for one commit.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_postgres::GenericClient;

use super::connection::{Connection, open};
use super::steps::{Call, Caller, Request};
use crate::address::Address;
use crate::client::Client;

/// The most steps that one transaction records.
const RECORDS_AT_MOST: usize = 100;

/// Answers one call. The handler may be gone.
pub(crate) async fn answer<C: GenericClient + Sync>(client: &Client<'_, C>, request: Request) {
    let Request {
        job_id,
        token,
        call,
    } = request;
    match call {
        Call::Read(reply) => drop(reply.send(client.read_steps(job_id).await)),
        Call::Record(step, output, undo, reply) => {
            let recorded = client.record_step(job_id, token, &step, &output, undo.as_ref());
            drop(reply.send(recorded.await));
        }
        Call::Fail(step, undo, error, reply) => {
            let failed = client.record_and_fail(job_id, token, &step, &undo, &error);
            drop(reply.send(failed.await));
        }
        Call::Sleep(step, time, reply) => {
            drop(reply.send(client.sleep(job_id, token, &step, time).await));
        }
        Call::Signal(step, name, timeout, reply) => {
            let received = client.await_signal(job_id, token, &step, &name, timeout);
            drop(reply.send(received.await));
        }
        Call::Spawn(step, child, reply) => {
            drop(reply.send(client.spawn(job_id, token, &step, &child).await));
        }
        Call::Children(step, children, timeout, reply) => {
            let ended = client.await_children(job_id, token, &step, children, timeout);
            drop(reply.send(ended.await));
        }
    }
}

/// Records steps in one transaction. If one of them fails, each has a transaction of its own.
async fn record<C: GenericClient + Sync>(client: &Client<'_, C>, requests: Vec<Request>) {
    if requests.len() > 1 {
        let steps = requests.iter().filter_map(Request::step).collect();
        if let Ok(recorded) = client.record_steps(steps).await {
            for (request, recorded) in requests.into_iter().zip(recorded) {
                if let Call::Record(.., reply) = request.call {
                    drop(reply.send(Ok(recorded)));
                }
            }
            return;
        }
    }
    for request in requests {
        answer(client, request).await;
    }
}

/// Records the steps that wait, until no handler can record any more.
async fn record_all(mut waiting: mpsc::UnboundedReceiver<(Arc<Connection>, Request)>) {
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, RECORDS_AT_MOST).await > 0 {
        let (connections, requests): (Vec<_>, Vec<_>) = batch.drain(..).unzip();
        if let Some(newest) = connections.last() {
            record(&Client::new(&***newest), requests).await;
        }
    }
}

/// Serves the calls of the handlers of a worker until no handler can call any more.
pub(crate) fn serve(address: Address) -> Caller {
    let (caller, mut requests) = mpsc::unbounded_channel::<Request>();
    tokio::spawn(async move {
        let (recorder, waiting) = mpsc::unbounded_channel();
        tokio::spawn(record_all(waiting));
        let mut connection: Option<Arc<Connection>> = None;
        while let Some(request) = requests.recv().await {
            let is_open = connection.as_ref().is_some_and(|open| !open.is_closed());
            if !is_open {
                connection = open(&address).await.ok().map(Arc::new);
            }
            // Without a connection the handler's end of the reply reports it, and calls again.
            let Some(connection) = connection.clone() else {
                continue;
            };
            if matches!(request.call, Call::Record(..)) {
                drop(recorder.send((connection, request)));
            } else {
                tokio::spawn(async move {
                    answer(&Client::new(&**connection), request).await;
                });
            }
        }
    });
    caller
}
