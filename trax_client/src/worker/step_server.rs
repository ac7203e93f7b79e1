//! Serves the calls of handlers that record steps: in a worker over one connection for all its
//! handlers, which is opened at the first call; in a test that runs a job inline, over the test's
//! own connection.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_postgres::GenericClient;

use super::connection::{Connection, open};
use super::steps::{Call, Caller, Request};
use crate::address::Address;
use crate::client::Client;

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

/// Serves the calls of the handlers of a worker, each by itself, until no handler can call any
/// more.
pub(crate) fn serve(address: Address) -> Caller {
    let (caller, mut requests) = mpsc::unbounded_channel::<Request>();
    tokio::spawn(async move {
        let mut connection: Option<Arc<Connection>> = None;
        while let Some(request) = requests.recv().await {
            let is_open = connection.as_ref().is_some_and(|open| !open.is_closed());
            if !is_open {
                connection = open(&address).await.ok().map(Arc::new);
            }
            match &connection {
                Some(connection) => {
                    let connection = Arc::clone(connection);
                    tokio::spawn(async move {
                        answer(&Client::new(&**connection), request).await;
                    });
                }
                // The handler's end of the reply reports it, and calls again.
                None => drop(request),
            }
        }
    });
    caller
}
