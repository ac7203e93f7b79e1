//! Orders: the statement of an act, with its values, and the database in which it runs.

use std::sync::Arc;

use axum::http::StatusCode;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use trax_terminal::{Again, EndedJob};

use super::Target;
use super::list::{AGAIN, Act};
use crate::cluster::Home;
use crate::database::Database;
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::work::{Purpose, Work};

/// An act to perform in a database.
pub(super) struct Order<'d> {
    pub(super) database: &'d Database,
    pub(super) sql: &'static str,
    pub(super) values: Vec<Option<String>>,
    /// The function whose execute privilege the act needs.
    pub(super) function: &'static str,
    /// The job that is queued again without a dead letter, and the database where it ended, which
    /// records the act.
    old: Option<(&'d Database, String)>,
}

impl<'d> Order<'d> {
    pub(super) async fn of(
        target: &Target<'d>,
        visit: &Visit,
        act: &Act,
        given: &[Option<&str>],
    ) -> Result<Self, Trouble> {
        let database: &Database = target.database.clone()?;
        if act.name != AGAIN {
            return Ok(Order {
                database,
                sql: act.sql,
                values: given.iter().map(|value| value.map(str::to_owned)).collect(),
                function: act.function,
                old: None,
            });
        }
        let job = given.first().copied().flatten().unwrap_or_default();
        let ended = ended_job(database, target.home, visit, job).await?;
        let again = ended.again();
        Ok(Order {
            database: target.home.address,
            sql: again.statement(),
            values: ended.into_values(),
            function: again.function(),
            old: (again != Again::DeadLetter).then(|| (database, job.to_owned())),
        })
    }

    /// Returns whether the act can be tried: at a router, a shard commits by itself.
    pub(super) fn can_be_tried(&self) -> bool {
        let old = self.old.as_ref();
        old.is_none_or(|(database, _)| std::ptr::eq(*database, self.database))
    }

    /// Runs the statement, and returns the server's answer.
    pub(super) async fn run(&self, work: &Work<'_>) -> Result<Option<String>, Trouble> {
        let arguments: Vec<_> = self.values.iter().map(|v| (v as _, Type::TEXT)).collect();
        let rows = work.rows(self.sql, &arguments).await?;
        let answer: Option<String> = match rows.first() {
            Some(row) => row.try_get(0)?,
            None => Some("nothing was changed: there is no such row".to_owned()),
        };
        if let (Some((database, job)), Some(new)) = (&self.old, &answer)
            && std::ptr::eq(*database, self.database)
        {
            record(work, job, new).await?;
        }
        Ok(answer.filter(|text| !text.is_empty()))
    }

    /// Records an act that ran at a router on the shard where the job ended.
    pub(super) async fn record_at_shard(
        &self,
        visit: &Visit,
        program: &str,
        answer: Option<&str>,
    ) -> Result<(), Trouble> {
        let (Some((database, job)), Some(new)) = (&self.old, answer) else {
            return Ok(());
        };
        if std::ptr::eq(*database, self.database) {
            return Ok(());
        }
        let purpose = Purpose::Act(program);
        let work = database.pool.begin(&visit.person, purpose).await?;
        record(&work, job, new).await?;
        work.commit().await
    }
}

async fn record(work: &Work<'_>, job: &str, new: &str) -> Result<(), Trouble> {
    let arguments = [(&job as _, Type::TEXT), (&new as _, Type::TEXT)];
    work.rows(EndedJob::RECORD, &arguments).await.map(|_| ())
}

/// Returns an ended job with its options. At a router its manifest may have moved to another shard
/// since.
async fn ended_job(
    database: &Database,
    home: Home<'_>,
    visit: &Visit,
    job: &str,
) -> Result<EndedJob, Trouble> {
    let rows = read(database, visit, EndedJob::READ, &[Some(job)]).await?;
    let row = rows
        .first()
        .ok_or_else(|| Trouble::missing(format!("job {job} has not ended here")))?;
    let mut ended = EndedJob::of(row)?;
    if let Some(new) = ended.requeued_as() {
        let message = format!("job {job} has been requeued as job {new}");
        return Err(Trouble::new(StatusCode::CONFLICT, message)
            .hint("Look at that job: a second one would do the same work again."));
    }
    if let (Some(gone), Some(shards)) = (ended.gone(), home.shards) {
        let gone = gone.map(Some);
        let find = async |database: Arc<Database>| {
            let found = read(&database, visit, EndedJob::FIND_MANIFEST, &gone).await?;
            Ok(!found.is_empty())
        };
        let answers = shards.each(|_, database| find(database)).await;
        if answers
            .iter()
            .any(|(_, is_there)| matches!(is_there, Ok(true)))
        {
            ended.set_found();
        }
    }
    Ok(ended)
}

/// Returns the rows of a statement with text parameters.
async fn read(
    database: &Database,
    visit: &Visit,
    sql: &str,
    values: &[Option<&str>],
) -> Result<Vec<Row>, Trouble> {
    let work = database.pool.begin(&visit.person, Purpose::Read).await?;
    let values: Vec<_> = values.iter().map(|v| (v as _, Type::TEXT)).collect();
    let rows = work.rows(sql, &values).await?;
    work.commit().await?;
    Ok(rows)
}
