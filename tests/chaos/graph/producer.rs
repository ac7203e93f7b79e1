//! Graphs of a few jobs in one call, and batches: opened, filled and sealed by several calls, each
//! of which may fail.

use super::RATE;
use crate::producer::{Producer, ids};
use crate::testbed::now;
use serde_json::{Map, Value, json};
use tokio_postgres::Client;
use trax_client::Result;

/// The most batches that a producer keeps open.
const OPEN_AT_MOST: usize = 3;

impl Producer {
    /// Enqueues a graph. Each of its jobs may need any of those before.
    pub(crate) async fn graph(&mut self, client: &Client) -> Result<()> {
        let size = self.random.between(2, 6);
        let base = self.nonce("graph");
        let mut nonces = Vec::new();
        let mut jobs = Vec::new();
        for number in 0..size {
            let nonce = format!("{base}.{number}of{size}");
            jobs.push(self.node(number, &nonce));
            nonces.push(nonce);
        }
        let document = json!({ "jobs": jobs });
        let sql = format!("select job_id from trax.enqueue_graph('{document}')");
        let queued = ids(client, &sql).await?;
        self.acknowledged_many(nonces, queued);
        Ok(())
    }

    fn node(&mut self, number: u64, nonce: &str) -> Value {
        let group = self.group();
        let random = &mut self.random;
        let mut input = json!({"nonce": nonce, "nap": random.between(0, 200)});
        if random.percent(25) {
            input["fails"] = json!(random.between(1, 2));
            input["how"] = json!(["error", "permanent"][random.below(2) as usize]);
        }
        let mut node = Map::new();
        node.insert("name".to_owned(), json!(number.to_string()));
        node.insert("task".to_owned(), json!("work"));
        node.insert("group_name".to_owned(), json!(group));
        node.insert("max_retries".to_owned(), json!(30));
        node.insert("input".to_owned(), input);
        let needs: Vec<String> = (0..number)
            .filter(|_| random.percent(50))
            .map(|needed| needed.to_string())
            .collect();
        if !needs.is_empty() {
            let condition = ["completed", "completed", "ended", "failed"];
            let condition = condition[random.below(4) as usize];
            node.insert("needs".to_owned(), json!(needs));
            node.insert("when".to_owned(), json!(condition));
        }
        if random.percent(15) {
            node.insert("rate".to_owned(), json!(RATE.name));
        }
        Value::Object(node)
    }

    /// Opens a batch, adds to an open one, or seals it. After an error the batch stays as it is:
    /// the campaign seals it at the end.
    pub(crate) async fn batch(&mut self, client: &Client) -> Result<()> {
        if self.open.is_empty() || (self.open.len() < OPEN_AT_MOST && self.random.percent(20)) {
            let opened = self.one(client, "open_batch", None).await?;
            // With a unique key, the answer may be a job that is no batch.
            if opened.unique.is_none() {
                let batch = opened.job;
                self.open.push(batch);
                self.journal.note(|pages| pages.opened.push(batch));
            }
            self.acknowledged(vec![opened]);
            return Ok(());
        }
        let place = self.random.below(self.open.len() as u64) as usize;
        let batch = self.open.swap_remove(place);
        if self.random.percent(25) {
            let asked = now();
            self.journal.note(|pages| pages.sealed.push((batch, asked)));
            let sealed = format!("select trax.seal_batch({batch})");
            client.simple_query(&sealed).await?;
            return Ok(());
        }
        self.transaction(client, Some(batch)).await?;
        self.open.push(batch);
        Ok(())
    }
}

/// Seals the batches that are still open; returns them with the time before the call.
pub(crate) async fn seal_all(
    client: &Client,
) -> std::result::Result<Vec<(i64, i64)>, tokio_postgres::Error> {
    let asked = now();
    let sealed = "with open as materialized (
             select n.job_id from trax.need n where n.needed_job_id = n.job_id
         )
         select o.job_id, trax.seal_batch(o.job_id) from open o";
    let batches = ids(client, sealed).await?;
    Ok(batches.into_iter().map(|batch| (batch, asked)).collect())
}
