//! `trax dead requeue` and `trax dead ack`.

use std::process::ExitCode;

use serde::Serialize;
use tokio_postgres::types::Type;
use trax_client::Error;

use super::Filters;
use crate::output::{Consent, Options, Progress, confirmed};
use crate::session::Session;
use trax_terminal::print;
use trax_terminal::{FAILED, Failure};

const DEAD_LETTER_OPEN: &str = include_str!("../query/dead_letter_open.sql");
/// The number of dead letters resolved in one transaction.
const BATCH: usize = 100;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The dead letters
    #[arg(value_name = "ID")]
    ids: Vec<i64>,
    /// All open ones that match the filters
    #[arg(long, conflicts_with = "ids")]
    all: bool,
    #[command(flatten)]
    filters: Filters,
    /// A note to store with the decision
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    consent: Consent,
    #[command(flatten)]
    output: Options,
}

#[derive(clap::Args)]
pub(crate) struct RequeueArguments {
    #[command(flatten)]
    of: Arguments,
    /// Begin from the start, without the recorded steps
    #[arg(long)]
    fresh: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Resolution {
    Requeue,
    RequeueFresh,
    Acknowledge,
}

/// The result for one dead letter.
#[derive(Serialize)]
struct ResolvedDeadLetter {
    id: i64,
    result: &'static str,
    requeued_job_id: Option<i64>,
}

pub(crate) async fn requeue(
    url: Option<String>,
    arguments: RequeueArguments,
) -> Result<ExitCode, Failure> {
    let resolution = match arguments.fresh {
        true => Resolution::RequeueFresh,
        false => Resolution::Requeue,
    };
    all(url, arguments.of, resolution).await
}

pub(crate) async fn acknowledge(
    url: Option<String>,
    arguments: Arguments,
) -> Result<ExitCode, Failure> {
    all(url, arguments, Resolution::Acknowledge).await
}

async fn all(
    url: Option<String>,
    arguments: Arguments,
    resolution: Resolution,
) -> Result<ExitCode, Failure> {
    let is_filtered = !arguments.filters.text().is_empty();
    if !arguments.all && (is_filtered || arguments.ids.is_empty()) {
        let wrong = match arguments.ids.is_empty() {
            true => "no dead letter is specified",
            false => "ids and filters cannot be combined",
        };
        return Err(Failure::usage(wrong)
            .hint("type ids, or --all for all open ones, with filters for some of them"));
    }
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let ids = match arguments.all {
        false => arguments.ids.clone(),
        true => match chosen(&session, &arguments, resolution).await? {
            Some(ids) => ids,
            None => return Ok(ExitCode::from(FAILED)),
        },
    };
    let progress = Progress::new(ids.len(), "dead letters");
    let (mut changes, mut refused) = (Vec::new(), false);
    // A router cannot resolve several in one transaction.
    let together = if session.is_router() { 1 } else { BATCH };
    for batch in ids.chunks(together) {
        match resolve(&session, batch, &arguments, resolution).await {
            Ok(done) => changes.extend(done),
            // At least one of them cannot be resolved: try each alone to report which.
            Err(Error::WrongState(_) | Error::UnknownName(_) | Error::Conflict(_)) => {
                for id in batch {
                    match resolve(&session, &[*id], &arguments, resolution).await {
                        Ok(done) => changes.extend(done),
                        Err(error) => {
                            Failure::from(error).report();
                            refused = true;
                        }
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
        progress.add(batch.len());
    }
    progress.end();
    refused |= changes
        .iter()
        .any(|change| change.result == "resolved before");
    print_resolved(&arguments, &changes)?;
    if ids.is_empty() && arguments.all {
        arguments.output.note("no dead letter matches");
    }
    Ok(if refused {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

/// Returns the ids selected by the filters if the user confirms.
async fn chosen(
    session: &Session,
    arguments: &Arguments,
    resolution: Resolution,
) -> Result<Option<Vec<i64>>, Failure> {
    let since = arguments.filters.read(session).await?;
    let filters = arguments.filters.arguments(&since);
    let rows = session.find(DEAD_LETTER_OPEN, &filters).await?;
    let ids: Vec<i64> = rows
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?;
    let verb = match resolution {
        Resolution::Requeue | Resolution::RequeueFresh => "Requeue",
        Resolution::Acknowledge => "Acknowledge",
    };
    let letters = match ids.len() {
        0 => return Ok(Some(ids)),
        1 => "1 dead letter".to_owned(),
        many => format!("{many} dead letters"),
    };
    let question = format!("{verb} {letters}{}?", arguments.filters.text());
    if confirmed(arguments.consent, &question)? {
        Ok(Some(ids))
    } else {
        print::log("trax", "nothing was changed");
        Ok(None)
    }
}

/// Resolves all of them in one transaction, or none.
async fn resolve(
    session: &Session,
    ids: &[i64],
    arguments: &Arguments,
    resolution: Resolution,
) -> Result<Vec<ResolvedDeadLetter>, Error> {
    let sql = match resolution {
        Resolution::Requeue => {
            "select i.id, true, trax.requeue_dead_letter(i.id, $2) \
             from unnest($1::bigint[]) with ordinality i (id, n) order by i.n"
        }
        Resolution::RequeueFresh => {
            "select i.id, true, trax.requeue_dead_letter(i.id, $2, fresh => true) \
             from unnest($1::bigint[]) with ordinality i (id, n) order by i.n"
        }
        Resolution::Acknowledge => {
            "select i.id, trax.acknowledge_dead_letter(i.id, $2), null::bigint \
             from unnest($1::bigint[]) with ordinality i (id, n) order by i.n"
        }
    };
    let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&ids, Type::INT8_ARRAY), (&arguments.note, Type::TEXT)];
    let rows = session.connection.query_typed(sql, &arguments).await?;
    rows.iter()
        .map(|row| {
            let (now, requeued_job_id) = (row.try_get(1)?, row.try_get(2)?);
            let result = match (resolution, now) {
                (Resolution::Requeue | Resolution::RequeueFresh, _) => "requeued",
                (Resolution::Acknowledge, true) => "acknowledged",
                (Resolution::Acknowledge, false) => "resolved before",
            };
            Ok(ResolvedDeadLetter {
                id: row.try_get(0)?,
                result,
                requeued_job_id,
            })
        })
        .collect()
}

fn print_resolved(arguments: &Arguments, changes: &[ResolvedDeadLetter]) -> Result<(), Failure> {
    arguments
        .output
        .changes(changes, |change| match change.requeued_job_id {
            Some(job) => format!("dead letter {} requeued as job {job}", change.id),
            None => format!("dead letter {} {}", change.id, change.result),
        })
}
