//! The facts about graphs and batches: their jobs as the tables have them.

use crate::fact::Facts;
use tokio_postgres::{Client, Error};

/// A job of a graph or of a batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Member {
    /// The first job of the graph, or the job that runs after the batch.
    pub(crate) graph: i64,
    pub(crate) is_batch: bool,
    pub(crate) job: i64,
    /// Its name in the graph.
    pub(crate) name: String,
    /// How the jobs must end that it needs; empty if it needs none.
    pub(crate) condition: String,
    /// The names of the jobs that it needs.
    pub(crate) needs: Vec<String>,
    /// The error with which it ended.
    pub(crate) error: String,
    /// Whether it was queued in the place of a dead letter; nobody waits for it.
    pub(crate) is_requeued: bool,
}

/// A job whose place in a batch was acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Added {
    pub(crate) at: i64,
    pub(crate) batch: i64,
    pub(crate) job: i64,
}

/// Reads the graphs of a campaign on a single server.
pub(crate) async fn read(client: &Client, facts: &mut Facts) -> Result<(), Error> {
    let members =
        "select g.graph_id, g.is_batch, m.job_id, coalesce(m.name, ''), coalesce(m.condition, ''),
            coalesce(m.needs, '{}'), coalesce(r.error, ''),
            exists (select from trax.graph_job o where o.graph_id = m.graph_id and o.replaced_by = m.job_id)
        from trax.graph g
        join trax.graph_job m on m.graph_id = g.graph_id
        left join trax.run r on r.job_id = m.job_id and r.final
        order by g.graph_id, m.job_id";
    let members = client.query(members, &[]).await?;
    let member = |row: &tokio_postgres::Row| Member {
        graph: row.get(0),
        is_batch: row.get(1),
        job: row.get(2),
        name: row.get(3),
        condition: row.get(4),
        needs: row.get(5),
        error: row.get(6),
        is_requeued: row.get(7),
    };
    facts.members = members.iter().map(member).collect();
    Ok(())
}
