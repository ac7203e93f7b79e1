//! Graphs and batches: jobs of which some run after others.
//!
//! Enters: a document of jobs that name the jobs they need (`trax.enqueue_graph`); a batch that is
//! opened and sealed; in the cycle, the events of `job_needs`. Leaves: waiting jobs, with a row of
//! `trax.need` for each need; jobs that run, and cancelled ones that cannot run any more, and so on
//! down. Holds: a graph is queued as a whole or not at all; which job runs next is decided once
//! (`job_needs`); a circle is refused.

mod batch;
mod decide;
mod document;
mod read;

use crate::access_scope;
use crate::access_scope::Scope;
use crate::error::{Error, Result};
use crate::job_graph;
use crate::job_graph::NewMember;
use crate::job_needs;
use crate::job_needs::NewNeed;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::json;
use crate::server::rights::as_owner;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::work_queue;
pub(crate) use decide::decide;
use document::{Document, Node};
use std::collections::HashSet;

row! {
    struct NamedJob {
        name: String,
        job_id: i64,
    }
}
statement!(GraphNames, "graph/names.sql", { graph_id: INT8OID } -> NamedJob);

sql_function!(trax_enqueue_graph, pg_finfo_trax_enqueue_graph, |call| {
    as_owner(call, |caller| {
        spi::require_primary()?;
        let document = call
            .datum(0)
            .ok_or_else(|| Error::null_argument("document"))?;
        let document = json::value(document, "the document")?;
        let key = call.optional_name(1, "unique_key")?;
        let mut rows = call.rows();
        spi::connected(|spi| {
            let document = Document::read(spi, &document, caller, Timestamp::now())?;
            let scope = access_scope::of_caller(spi, caller);
            require_scope(&scope, &document)?;
            for (name, job_id) in enqueue(spi, &scope, document, key.as_deref())? {
                rows.push(&[arg(name), arg(job_id)]);
            }
            Ok(())
        })?;
        Ok(rows.end())
    })
});

fn require_scope(scope: &Scope, document: &Document) -> Result<()> {
    if !scope.is_limited() {
        return Ok(());
    }
    let mut known = HashSet::new();
    for Node { name, job, .. } in &document.nodes {
        if known.insert((&job.task, &job.group)) {
            scope
                .require(&job.task, &job.group)
                .map_err(|error| error.about("job", name))?;
        }
    }
    Ok(())
}

/// Queues the jobs of a document; returns their names and ids. While a graph with this unique key
/// is alive, queues nothing and returns that one.
fn enqueue(
    spi: &Spi,
    scope: &Scope,
    document: Document,
    key: Option<&str>,
) -> Result<Vec<(String, i64)>> {
    let batches = document.nodes.iter().filter_map(|node| node.job.batch);
    let batches = job_graph::keep_all_open(spi, scope, batches)?;
    let nodes = document.nodes;
    let ids = work_queue::next_ids(nodes.len());
    let now = nodes[0].job.now;
    if let Err(graph_id) = job_graph::add(spi, ids[0], false, key, now) {
        work_queue::require_keeper(spi, scope, graph_id)?;
        let names = spi.query_latest(GraphNames {
            graph_id: arg(graph_id),
        });
        return Ok(names.iter().map(|job| (job.name, job.job_id)).collect());
    }
    let inputs: Vec<_> = nodes.iter().map(|node| [Some(node.input)]).collect();
    work_queue::insert_each(
        nodes
            .iter()
            .zip(ids.chunks(1))
            .zip(&inputs)
            .map(|((node, id), input)| (&node.job, id, &input[..])),
        nodes.len(),
    );
    add_needs(&nodes, &ids, document.awaits_requeue);
    job_graph::add_members(nodes.iter().zip(&ids).map(|(node, &job_id)| NewMember {
        job_id,
        graph_id: ids[0],
        condition: (!node.needs.is_empty()).then_some(node.condition),
        name: Some(node.name.as_str()),
        needs: node.needs_by_name(&nodes),
    }));
    for batch in batches {
        let of = nodes
            .iter()
            .zip(&ids)
            .filter(|(node, _)| node.job.batch == Some(batch));
        let added: Vec<i64> = of.map(|(_, &id)| id).collect();
        job_graph::add_to_batch(batch, &added);
    }
    Ok(nodes.into_iter().map(|node| node.name).zip(ids).collect())
}

fn add_needs(nodes: &[Node], ids: &[i64], awaits_requeue: bool) {
    let needs: Vec<NewNeed> = nodes
        .iter()
        .zip(ids)
        .flat_map(|(node, &job_id)| {
            node.needs.iter().map(move |&needed| NewNeed {
                needed_job_id: ids[needed],
                job_id,
                condition: node.condition,
                one_is_enough: false,
                awaits_requeue: awaits_requeue && node.condition == job_needs::Condition::Completed,
            })
        })
        .collect();
    job_needs::add(needs.into_iter());
}
