//! `trax import pg_cron`: jobs of the database that has trax become SQL jobs; jobs of other
//! databases are run by a worker with psql.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::json;
use tokio_postgres::config::Host;
use tokio_postgres::{Config, Row};

use super::apply::{Import, preview_and_apply};
use super::pg_cron_schedule::{When, read};
use super::proposal::{Former, ImportOptions, Proposal, UniqueNames, manifest, statement};
use super::run::Input;
use crate::session::Session;
use trax_client::Neighbor;
use trax_terminal::Failure;
use trax_terminal::address;
use trax_terminal::quote;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The database with the table cron.job, if it is not that of trax
    #[arg(long, value_name = "URL")]
    from: Option<String>,
    #[command(flatten)]
    how: ImportOptions,
}

/// The statement is untrusted and may contain a secret, so it must not appear in an argument list.
/// \gexec sends it as SQL, so psql never interprets it as a meta-command. PGDATABASE is only a
/// database name, whereas --dbname may be a connection string.
const PSQL: &str = r#"printf '%s\n' '\getenv s STATEMENT' "select :'s' \gexec" | psql --no-psqlrc --quiet --set=ON_ERROR_STOP=1"#;

/// Columns of later pg_cron versions are read through JSON. The zone is spelled as the server lists
/// it.
const JOBS: &str = "select j.jobid::int8 as id, j.schedule::text as schedule, j.command::text as command, \
    j.database::text as database, j.username::text as username, j.active as active, \
    pg_catalog.to_jsonb(j) ->> 'jobname' as name, \
    coalesce((select z.name from pg_catalog.pg_timezone_names z \
        where pg_catalog.lower(z.name) = pg_catalog.lower(s.zone) order by z.name = s.zone desc, z.name limit 1), \
        s.zone) as zone, \
    s.both_days, j.nodename::text as host, j.nodeport::int4 as port, \
    j.nodeport = pg_catalog.current_setting('port')::int4 \
        and (j.nodename in ('', 'localhost', '127.0.0.1', '::1', coalesce(pg_catalog.current_setting('cron.host', true), '')) \
            or j.nodename like '/%') as is_local \
    from cron.job j \
    cross join (select \
        coalesce(nullif(pg_catalog.current_setting('cron.timezone', true), ''), 'GMT') as zone, \
        coalesce(pg_catalog.current_setting('cron.match_dom_and_dow', true), '') = 'on' as both_days) s \
    order by j.jobid";

/// Identifies the server and the database.
const HERE: &str = "select c.system_identifier::int8 as server, pg_catalog.current_database()::text as database \
    from pg_catalog.pg_control_system() c";

struct Job {
    id: i64,
    schedule: String,
    command: String,
    database: String,
    username: String,
    active: bool,
    name: Option<String>,
    zone: String,
    /// The setting cron.match_dom_and_dow.
    both_days: bool,
    host: String,
    port: i32,
    /// Whether the job runs on pg_cron's own server.
    is_local: bool,
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
            both_days: row.try_get("both_days")?,
            host: row.try_get("host")?,
            port: row.try_get("port")?,
            is_local: row.try_get("is_local")?,
        })
    }
}

pub(super) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let session = Session::open(url.as_deref(), &arguments.how.output).await?;
    let from = arguments.from.as_deref().or(url.as_deref());
    let address = address::from_environment(from)?;
    let source = address::connect(&address).await?;
    if !Neighbor::PgCron.is_in(&*source).await? {
        return Err(Failure::new("this database has no table cron.job")
            .hint("name the one of pg_cron: --from postgres://host/database"));
    }
    let rows = source.query_typed(JOBS, &[]).await?;
    let jobs: Vec<Job> = rows.iter().map(Job::read).collect::<Result<_, _>>()?;
    let here = session.connection.query_typed(HERE, &[]).await?;
    let there = source.query_typed(HERE, &[]).await?;
    let server: i64 = there[0].try_get("server")?;
    let same_server = here[0].try_get::<_, i64>("server")? == server;
    let database: String = here[0].try_get("database")?;
    let mut names = UniqueNames::default();
    let proposal = |job: Job| {
        let place = match same_server && job.is_local && job.database == database {
            true => Place::Here,
            false => Place::Elsewhere(&address),
        };
        proposal(&arguments.how, &mut names, place, job)
    };
    let import = Import {
        source: match same_server {
            true => "pg_cron".to_owned(),
            false => format!("pg_cron of server {server}"),
        },
        proposals: jobs.into_iter().map(proposal).collect(),
    };
    preview_and_apply(&session, &arguments.how, vec![import]).await
}

/// The place where a job's statements run.
enum Place<'a> {
    /// In the database that has trax.
    Here,
    /// Another database. On pg_cron's own server it is reached at this address.
    Elsewhere(&'a Config),
}

fn proposal(how: &ImportOptions, names: &mut UniqueNames, place: Place<'_>, job: Job) -> Proposal {
    let source = format!("cron.job:{}", job.id);
    let line = format!("{} {}", job.schedule, job.command);
    let name = names.of("pg_cron", job.name.as_deref().unwrap_or(&job.command));
    let (when, ignored) = match read(&job.schedule, job.both_days) {
        Ok(read) => read,
        Err(reason) => return Proposal::left_out(source, line, reason, Former::Named(name)),
    };
    let (mut manifest, note) = match place {
        Place::Here => {
            let note = format!("the server runs it by itself as \"{}\"", job.username);
            (statement(how, &name, &job.command, &job.username), note)
        }
        Place::Elsewhere(server) => {
            let of = match job.is_local {
                true => String::new(),
                false => format!(" of {}, port {},", job.host, job.port),
            };
            let note = format!(
                "psql runs it in \"{0}\"{of} as \"{1}\" on the worker's machine, with the worker's .pgpass or, with \
                 --pass-env PGPASSWORD, its password; without a worker: create extension trax in \"{0}\", and import \
                 it there with --from",
                job.database, job.username
            );
            (manifest(how, &name, json!(by_psql(server, &job))), note)
        }
    };
    let mut notes = vec![note];
    notes.extend(ignored);
    match when {
        When::Every(seconds) => {
            manifest["every"] = json!(format!("{seconds} s"));
            notes.push("the seconds count from the end of a run to the next".to_owned());
        }
        When::Cron(times) => {
            notes.extend(times.set_in(&mut manifest));
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

/// Returns the input for a worker that runs a job with psql.
fn by_psql(server: &Config, job: &Job) -> Input {
    Input {
        command: format!(
            "{PSQL} {} --username={}",
            address_of(server, job),
            quote::shell(&job.username)
        ),
        environment: BTreeMap::from([
            ("PGDATABASE".to_owned(), job.database.clone()),
            ("STATEMENT".to_owned(), job.command.clone()),
        ]),
        ..Input::default()
    }
}

/// Returns the address of a job's server, as psql options.
fn address_of(server: &Config, job: &Job) -> String {
    if !job.is_local {
        return format!("--host={} --port={}", quote::shell(&job.host), job.port);
    }
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
