//! `trax grant`: sets the access level of a role.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use serde::Serialize;
use tokio_postgres::types::Type;
use trax_client::{Access, Error};

use crate::output::Options;
use crate::session::{Argument, Session};
use crate::similar::{Kind, similar_to};
use trax_terminal::Failure;
use trax_terminal::quote::{identifier, word};

const ROLE_LEVEL: &str = include_str!("query/role_level.sql");
const ROLE_LIMITS: &str = include_str!("query/role_limits.sql");

const LEVELS: [(&str, Access); 5] = [
    ("none", Access::Nothing),
    ("reader", Access::Reader),
    ("producer", Access::Producer),
    ("worker", Access::Worker),
    ("admin", Access::Admin),
];

#[derive(clap::Args)]
#[command(after_help = "\
Sets the level, which may be higher or lower than before. For two levels, grant
one of them to a role that the other is a member of.

none      nothing: the role can be dropped
reader    tables without tokens, status, check, previews
producer  enqueue, trigger, cancel
worker    claims and outcomes, enqueue
admin     everything")]
pub(crate) struct Arguments {
    /// The role, spelled as in pg_roles
    role: String,
    /// The level of access
    #[arg(value_parser = PossibleValuesParser::new(LEVELS.map(|(name, _)| name)))]
    level: String,
    /// A producer or worker of this task only; may be repeated
    #[arg(long = "task", value_name = "TASK")]
    tasks: Vec<String>,
    /// A producer or worker in this group only; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    groups: Vec<String>,
    #[command(flatten)]
    output: Options,
}

#[derive(Serialize)]
struct GrantedAccess {
    role: String,
    level: String,
    /// The level that it had before, if it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaces: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<String>>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let level = LEVELS
        .iter()
        .find(|(name, _)| *name == arguments.level)
        .map(|(_, level)| *level)
        .ok_or_else(|| Failure::usage(format!("no level \"{}\"", arguments.level)))?;
    let session = Session::open(url.as_deref(), &arguments.output).await?;
    let had = level_of(&session, &arguments.role).await?;
    let replaces = had.filter(|had| *had != arguments.level);
    let limits = match &replaces {
        Some(had) => limits_of(&session, &arguments.role, had).await,
        None => String::new(),
    };
    let only = |names: &Vec<String>| (!names.is_empty()).then(|| names.clone());
    let (tasks, groups) = (only(&arguments.tasks), only(&arguments.groups));
    let granted = session
        .client()
        .grant_limited_access(&arguments.role, level, tasks.as_deref(), groups.as_deref())
        .await;
    match granted {
        Ok(()) => {}
        // The server looks the name up before any function of trax runs and could add a hint.
        Err(error @ Error::UnknownName(_)) => {
            let meant = similar_to(&session, Kind::Role, &arguments.role).await;
            let meant = meant.map_or(String::new(), |meant| format!("did you mean \"{meant}\"? "));
            let role = identifier(&arguments.role);
            return Err(Failure::from(error).hint(format!(
                "{meant}see the roles with \\du in psql, or: create role {role} login"
            )));
        }
        Err(error) => return Err(error.into()),
    }
    let change = GrantedAccess {
        role: arguments.role,
        level: arguments.level,
        replaces,
        tasks,
        groups,
    };
    arguments
        .output
        .changes(std::slice::from_ref(&change), |change| {
            let only = |what: &str, names: &Option<Vec<String>>| match names {
                Some(names) => format!(", {what} {}", names.join(", ")),
                None => String::new(),
            };
            format!(
                "role \"{}\" has the level {}{}{}",
                change.role,
                change.level,
                only("tasks", &change.tasks),
                only("groups", &change.groups)
            )
        })?;
    change.say_what_is_lost(&limits, &arguments.output);
    Ok(ExitCode::SUCCESS)
}

/// Returns the level that was granted to a role, which need not exist.
async fn level_of(session: &Session, role: &str) -> Result<Option<String>, Failure> {
    let rows = session
        .connection
        .query_typed(ROLE_LEVEL, &[(&role, Type::TEXT)])
        .await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}

/// Returns the limits of a role at a level as options of `trax grant`. They are only advice: a role
/// that may not read them still gets the rest.
async fn limits_of(session: &Session, role: &str, level: &str) -> String {
    let arguments: [Argument<'_>; 2] = [(&role, Type::TEXT), (&level, Type::TEXT)];
    let rows = session.find(ROLE_LIMITS, &arguments).await;
    let rows = rows.unwrap_or_default();
    let mut options = String::new();
    for (column, option) in [(0, "--task"), (1, "--group")] {
        let names: Option<Vec<String>> = rows.first().and_then(|row| row.try_get(column).ok()?);
        for name in names.unwrap_or_default() {
            options.push_str(&format!(" {option} {}", word(&name)));
        }
    }
    options
}

impl GrantedAccess {
    /// Notes the level that the new one has replaced, and how the role gets both. It had `limits`.
    fn say_what_is_lost(&self, limits: &str, output: &Options) {
        let Some(had) = self.replaces.as_deref() else {
            return;
        };
        if matches!(self.level.as_str(), "none" | "admin") {
            return;
        }
        let (role, level) = (word(&self.role), &self.level);
        let again = match had {
            "admin" => {
                format!("an admin has every level; to grant it again: trax grant {role} admin")
            }
            had => format!(
                "to keep both, grant {level} to a role that this one is a member of; then: trax grant {role} {had}{limits}"
            ),
        };
        output.note(&format!("it no longer has the level {had}: {again}"));
    }
}
