//! Shows the proposals of an import with their next runs, and applies them on request.
//!
//! An *import* is the document of one source: the lines of a crontab, or of `cron.job`. Its
//! manifests belong to that source, so that `trax manifest apply --prune` of other documents keeps
//! them, and the next import finds those whose line is gone.

use std::process::ExitCode;

use serde_json::{Value, json};
use tokio_postgres::types::Type;

use super::proposal::{ImportOptions, Proposal};
use crate::output::{self, confirmed, one_line, say};
use crate::session::{Argument, Session};
use trax_terminal::{Connection, FAILED, Failure};

/// The lines of one source.
pub(super) struct Import {
    pub(super) source: String,
    pub(super) proposals: Vec<Proposal>,
}

impl Import {
    /// Returns the manifests of the lines that can be applied, as a document for `trax.apply`.
    fn document(&self) -> Value {
        let applied = self.proposals.iter().filter(|p| p.left_out.is_none());
        let manifests: Vec<&Value> = applied.map(|proposal| &proposal.manifest).collect();
        json!({ "manifests": manifests })
    }
}

/// Shows the proposals with their next runs, as computed by the server, and applies them on
/// request.
pub(super) async fn preview_and_apply(
    session: &Session,
    how: &ImportOptions,
    mut imports: Vec<Import>,
) -> Result<ExitCode, Failure> {
    if let Some(source) = &how.source {
        let lines = imports.into_iter().flat_map(|import| import.proposals);
        imports = vec![Import {
            source: source.clone(),
            proposals: lines.collect(),
        }];
    }
    // Through a router each call commits on a shard. A trial must be rolled back, so it runs on a
    // shard.
    let databases = session.databases().await?;
    let connection = *databases.first().ok_or_else(|| {
        Failure::new("no shard can be reached to test the lines")
            .hint("to see which shards are unreachable: trax status")
    })?;
    connection.begin().await?;
    let tried = try_out(connection, how.count, &mut imports).await;
    connection.roll_back().await?;
    tried?;
    let mut gone = Vec::new();
    for import in &mut imports {
        gone.extend(compared(&session.connection, import).await?);
    }
    let proposals: Vec<&Proposal> = imports.iter().flat_map(|i| &i.proposals).collect();
    let kept = gone
        .iter()
        .find_map(|gone| Some((gone, proposals.iter().find(|p| p.may_be_of(&gone.name))?)));
    let applied = proposals.iter().filter(|p| p.left_out.is_none());
    let names: Vec<String> = applied.map(|p| p.name().to_owned()).collect();
    let (output, count, of) = (how.output, names.len(), proposals.len());
    if output.json {
        output::json(&proposals)?;
    } else if output.quiet {
        output.keys(names.into_iter())?;
    } else if !proposals.is_empty() {
        let texts: Vec<String> = proposals.iter().map(|proposal| proposal.text()).collect();
        say(&texts.join("\n\n"))?;
    }
    if let (true, Some((Gone { name, .. }, line))) = (how.prune, kept) {
        let reason = line.left_out.as_deref().unwrap_or_default();
        return Err(Failure::new(format!(
            "--prune would remove manifest \"{}\", whose line may be {}, which is left out: {}",
            one_line(name),
            one_line(&line.source),
            one_line(reason)
        ))
        .hint("correct or remove that line, or import without --prune; nothing was changed"));
    }
    for Gone { name, source } in &gone {
        let (name, source) = (one_line(name), one_line(source));
        let fate = match (how.prune, how.apply) {
            (true, true) => "and is removed",
            (true, false) => "and is removed with --apply",
            (false, _) => "and stays: to remove it, add --prune",
        };
        output.note(&format!(
            "manifest \"{name}\" of source \"{source}\" has no line any more, {fate}"
        ));
    }
    if !how.apply {
        output.note(&format!(
            "{count} of {of} lines can become manifests; use --apply to create them"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let removed = if how.prune { gone.len() } else { 0 };
    let question = match removed {
        0 => format!("Create {count} manifests?"),
        removed => format!("Create {count} manifests, and remove {removed}?"),
    };
    if count + removed > 0 && !confirmed(how.consent, &question)? {
        output.note("nothing was changed");
        return Ok(ExitCode::from(FAILED));
    }
    session.connection.begin().await?;
    for import in &imports {
        apply(&session.connection, import, how.prune, false).await?;
    }
    session.connection.commit().await?;
    output.note(&match removed {
        0 => format!("{count} of {of} lines are now manifests"),
        removed => format!("{count} of {of} lines are now manifests; removed: {removed}"),
    });
    Ok(if count == 0 && of > 0 {
        ExitCode::from(FAILED)
    } else {
        ExitCode::SUCCESS
    })
}

/// A manifest that an earlier import of its source created, and that no line has any more.
struct Gone {
    name: String,
    source: String,
}

/// Compares an import with the stored manifests: those that exist stay enabled or disabled. Returns
/// those that no line has any more.
async fn compared(connection: &Connection, import: &mut Import) -> Result<Vec<Gone>, Failure> {
    let rows = apply(connection, import, true, true).await?;
    let exists = |name: &str| {
        rows.iter()
            .any(|(action, of)| action != "created" && of == name)
    };
    for proposal in &mut import.proposals {
        if exists(proposal.name()) {
            proposal.keep_switch();
        }
    }
    let removed = rows.into_iter().filter(|(action, _)| action == "removed");
    let gone = removed.map(|(_, name)| Gone {
        name,
        source: import.source.clone(),
    });
    Ok(gone.collect())
}

/// Creates each manifest in a transaction that is rolled back, and reads its next runs.
async fn try_out(
    connection: &Connection,
    count: i32,
    imports: &mut [Import],
) -> Result<(), Failure> {
    for import in imports {
        // If no line can be applied, the error does not belong to a line.
        let source = import.source.clone();
        send(
            connection,
            &json!({ "manifests": [] }),
            &source,
            false,
            false,
        )
        .await?;
        let lines = import.proposals.iter_mut();
        for proposal in lines.filter(|proposal| proposal.left_out.is_none()) {
            connection.batch_execute("savepoint line").await?;
            let tried = try_one(connection, count, &source, proposal).await;
            connection
                .batch_execute("rollback to savepoint line")
                .await?;
            match tried {
                Ok(()) => {}
                Err(error) if is_of_the_line(&error) => {
                    let failure = Failure::from(error);
                    let hint = failure.advice().map(|hint| format!(". {hint}"));
                    let hint = hint.unwrap_or_default();
                    proposal.leave_out(format!("the server refused it: {failure}{hint}"));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Returns whether the server refused the content of a line: a time, a statement, a role that does
/// not exist, the name of a manifest of another source.
fn is_of_the_line(error: &trax_client::Error) -> bool {
    let class = error.report().and_then(|report| report.sqlstate.get(..2));
    matches!(class, Some("0A" | "22" | "23" | "28" | "42" | "54" | "55"))
}

async fn try_one(
    connection: &Connection,
    count: i32,
    source: &str,
    proposal: &mut Proposal,
) -> Result<(), trax_client::Error> {
    let mut manifest = proposal.manifest.clone();
    // The runs of a disabled manifest are shown too.
    if let Some(members) = manifest.as_object_mut() {
        members.remove("enabled");
    }
    let document = json!({ "manifests": [manifest] });
    send(connection, &document, source, false, false).await?;
    let sql =
        "select p.run_at, p.local_time from trax.preview($1, pg_catalog.clock_timestamp(), $2) p";
    let name = proposal.name().to_owned();
    let rows = connection
        .query_typed(sql, &[(&name, Type::TEXT), (&count, Type::INT4)])
        .await?;
    for row in &rows {
        proposal.next_runs.push(row.try_get(0)?);
        proposal.local_times.push(row.try_get(1)?);
    }
    Ok(())
}

async fn apply(
    connection: &Connection,
    import: &Import,
    prune: bool,
    dry_run: bool,
) -> Result<Vec<(String, String)>, trax_client::Error> {
    send(
        connection,
        &import.document(),
        &import.source,
        prune,
        dry_run,
    )
    .await
}

/// Applies a document, and returns the action and the name of each object.
async fn send(
    connection: &Connection,
    document: &Value,
    source: &str,
    prune: bool,
    dry_run: bool,
) -> Result<Vec<(String, String)>, trax_client::Error> {
    let sql = "select a.action, a.name \
               from trax.apply(document => $1, prune => $2, dry_run => $3, source => $4) a";
    let arguments: [Argument<'_>; 4] = [
        (document, Type::JSONB),
        (&prune, Type::BOOL),
        (&dry_run, Type::BOOL),
        (&source, Type::TEXT),
    ];
    let rows = connection.query_typed(sql, &arguments).await?;
    let pair = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.iter().map(pair).collect()
}
