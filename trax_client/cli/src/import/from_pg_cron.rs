//! `trax import pg_cron`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::{Value, json};
use tokio_postgres::config::Host;
use tokio_postgres::{Config, Row};

use super::pg_cron_schedule::{last_day, seconds};
use super::proposal::{ImportOptions, Proposal, UniqueNames, manifest, preview_and_apply};
use super::run::Input;
use crate::quote;
use crate::session::Session;
use trax_terminal::Failure;
use trax_terminal::address;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The database with the table cron.job, if it is not that of trax
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    #[command(flatten)]
    how: ImportOptions,
}

/// The statement is somebody else's, and may hold a secret: it stands in no list of arguments. psql
/// sends what \gexec was given as it is, as SQL: it is never one of its own commands. PGDATABASE is
/// the name of a database, where --dbname may be a whole address.
const PSQL: &str = r#"printf '%s\n' '\getenv s STATEMENT' "select :'s' \gexec" | psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1"#;

/// Columns that came with later versions are asked for as JSON.
const JOBS: &str = "select j.jobid::int8 as id, j.schedule::text as schedule, j.command::text as command, \
    j.database::text as database, j.username::text as username, j.active as active, \
    pg_catalog.to_jsonb(j) ->> 'jobname' as name, \
    coalesce(nullif(pg_catalog.current_setting('cron.timezone', true), ''), 'GMT') as zone \
    from cron.job j order by j.jobid";

struct Job {
    id: i64,
    schedule: String,
    command: String,
    database: String,
    username: String,
    active: bool,
    name: Option<String>,
    zone: String,
}

impl Job {
    fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Job {
            id: row.try_get("id")?,
            schedule: row.try_get("schedule")?,
            command: row.try_get("command")?,
            database: row.try_get("database")?,
            username: row.try_get("username")?,
            active: row.try_get("active")?,
            name: row.try_get("name")?,
            zone: row.try_get("zone")?,
        })
    }
}

pub(super) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.how.output).await?;
    let from = arguments.from.as_deref().or(url.as_deref());
    let address = address::from_environment(from)?;
    let source = address::connect(&address).await?;
    let rows = source.query_typed(JOBS, &[]).await.map_err(|error| {
        let error = trax_client::Error::from(error);
        let missing = error
            .report()
            .is_some_and(|report| matches!(report.sqlstate.as_str(), "42P01" | "3F000"));
        if missing {
            Failure::new("this database has no table cron.job")
                .hint("name the one of pg_cron: --from postgres://host/database")
        } else {
            error.into()
        }
    })?;
    let jobs: Vec<Job> = rows.iter().map(Job::read).collect::<Result<_, _>>()?;
    let mut names = UniqueNames::default();
    let proposals = jobs
        .into_iter()
        .map(|job| proposal(&arguments.how, &mut names, &address, job))
        .collect();
    preview_and_apply(&session, &arguments.how, proposals).await
}

fn proposal(how: &ImportOptions, names: &mut UniqueNames, server: &Config, job: Job) -> Proposal {
    let source = format!("cron.job:{}", job.id);
    let line = format!("{} {}", job.schedule, job.command);
    let name = names.of("pg_cron", job.name.as_deref().unwrap_or(&job.command));
    let input = Input {
        command: format!(
            "{PSQL} {} --username={}",
            place(server),
            quote::shell(&job.username)
        ),
        environment: BTreeMap::from([
            ("PGDATABASE".to_owned(), job.database.clone()),
            ("STATEMENT".to_owned(), job.command.clone()),
        ]),
        ..Input::default()
    };
    let mut manifest = manifest(how, &name, json!(input));
    let mut notes = vec![format!(
        "psql runs it in \"{}\" as \"{}\" on the worker's machine, with the worker's .pgpass or, with --pass-env PGPASSWORD, its password",
        job.database, job.username
    )];
    match seconds(&job.schedule) {
        Some(seconds) => {
            manifest["every"] = json!(format!("{seconds} s"));
            notes.push("the seconds count from the end of a run to the next".to_owned());
        }
        None => {
            manifest["cron"] = Value::String(last_day(&job.schedule));
            manifest["timezone"] = json!(job.zone);
        }
    }
    if !job.active {
        manifest["enabled"] = json!(false);
    }
    let mut proposal = Proposal::of(source, line, manifest);
    proposal.notes = notes;
    proposal
}

/// Returns where the server of pg_cron is reached from here, as psql takes it.
fn place(server: &Config) -> String {
    let hosts = server.get_hosts().iter().map(|host| match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(directory) => directory.display().to_string(),
    });
    let hosts: Vec<String> = hosts.collect();
    let ports: Vec<String> = server.get_ports().iter().map(u16::to_string).collect();
    let host = format!("--host={}", quote::shell(&hosts.join(",")));
    match ports.as_slice() {
        [] => host,
        ports => format!("{host} --port={}", ports.join(",")),
    }
}
