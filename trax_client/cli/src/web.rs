//! `trax web`: serves pages for a browser.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use tokio::signal::unix::{SignalKind, signal};
use tokio_postgres::types::Type;
use trax_client::Address;
use trax_terminal::{Failure, address, print, quote};
use trax_web::{Identity, Options, Passwords, Roles, Site};

/// The default address.
const USUAL: &str = "127.0.0.1:8740";
/// How often to check the files of users for changes.
const LOOK: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
#[command(after_help = "\
A page can do what its database role can, nothing more, and every act is in trax.audit.

On a loopback address every user of this machine may do what the connecting role may. \
To identify people, put a proxy that authenticates in front and name its header with --trust-header, \
or give people passwords: htpasswd -B -c FILE NAME. On other addresses, without one of them, the pages \
are read-only.

Passwords and pages are not encrypted: beyond one machine put a proxy with TLS in front, and let \
only that proxy reach this address.")]
pub(crate) struct Arguments {
    /// The address to serve
    #[arg(long, value_name = "ADDRESS:PORT", default_value = USUAL)]
    listen: String,
    /// A name under which browsers may request the pages, with its port; may be repeated
    #[arg(long = "host", value_name = "NAME[:PORT]")]
    hosts: Vec<String>,
    /// The path in front of the pages, where a proxy removes it: /trax
    #[arg(long, value_name = "PATH", default_value = "")]
    base: String,
    /// The header in which a proxy names the person
    #[arg(
        long,
        value_name = "NAME",
        requires = "roles",
        conflicts_with = "password_file"
    )]
    trust_header: Option<String>,
    /// A file with a line for each person: a name and a role; the name * stands for all others.
    /// Read again when it changes, and at SIGHUP
    #[arg(long, value_name = "FILE")]
    roles: Option<PathBuf>,
    /// A file of names and passwords as htpasswd -B writes it. Read again like that of --roles
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Show the pages, but allow no actions
    #[arg(long)]
    read_only: bool,
    /// Most connections to the database
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=100))]
    connections: u16,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let config = address::from_environment(url.as_deref())?;
    let cannot = |error: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot listen on {}: {error}", arguments.listen))
            .hint("use a free address of this machine: --listen 127.0.0.1:8740")
    };
    let wanted = arguments
        .listen
        .to_socket_addrs()
        .map_err(|error| cannot(&error))?
        .next()
        .ok_or_else(|| cannot(&"it is not an address"))?;
    let identity = identity(&arguments)?;
    check_roles(&config, &arguments, &identity).await?;
    let mut seen = stamps(&arguments);
    let mut options = Options {
        base: base(&arguments.base)?,
        identity,
        connections: arguments.connections.into(),
        read_only: arguments.read_only,
        ..Options::default()
    };
    let is_open = !wanted.ip().is_loopback() && matches!(options.identity, Identity::Nobody);
    options.read_only |= is_open;
    if wanted.ip().is_unspecified() && arguments.hosts.is_empty() {
        return Err(Failure::usage("on every address, the pages need a name")
            .hint("name what people type into the browser: --host jobs.example.com:8740"));
    }
    let listener = tokio::net::TcpListener::bind(wanted)
        .await
        .map_err(|error| cannot(&error))?;
    let bound = listener.local_addr()?;
    options.hosts = hosts(bound, &arguments.hosts);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let database = address::describe(&config);
    if is_open {
        print::log(
            "trax",
            "read-only: on other addresses than loopback only identified people may change anything; see --trust-header and --password-file",
        );
    }
    print::log(
        "trax",
        &format!("serves http://{bound}{}/ of {database}", options.base),
    );
    let site = Site::new(config.clone(), options);
    let serving = site.serve(listener);
    tokio::pin!(serving);
    let mut looks = tokio::time::interval(LOOK);
    loop {
        let is_told = tokio::select! {
            served = &mut serving => {
                served?;
                break;
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            _ = hangup.recv() => true,
            _ = looks.tick() => false,
        };
        let stamps = stamps(&arguments);
        if is_told || stamps != seen {
            seen = stamps;
            let read = people(&config, &arguments);
            match read.await {
                Ok(identity) => {
                    site.set_identity(identity);
                    print::log(
                        "trax",
                        "read the files of --roles and --password-file again",
                    );
                }
                Err(failure) => print::log(
                    "trax",
                    &format!("{failure}; the files as read before stay in use"),
                ),
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the files of users, and checks that the roles exist.
async fn people(config: &Address, arguments: &Arguments) -> Result<Identity, Failure> {
    let identity = identity(arguments)?;
    check_roles(config, arguments, &identity).await?;
    Ok(identity)
}

/// Returns the modification time, size and inode of each file of users.
fn stamps(arguments: &Arguments) -> Vec<Option<(SystemTime, u64, u64)>> {
    let files = [&arguments.roles, &arguments.password_file];
    let stamp = |file: &PathBuf| {
        let about = std::fs::metadata(file).ok()?;
        Some((about.modified().ok()?, about.len(), about.ino()))
    };
    files.into_iter().flatten().map(stamp).collect()
}

/// Refuses a role that the server does not know. If the server cannot be reached, requests of the
/// role are refused later.
async fn check_roles(
    config: &Address,
    arguments: &Arguments,
    identity: &Identity,
) -> Result<(), Failure> {
    let (Some(roles), Some(file)) = (identity.roles(), &arguments.roles) else {
        return Ok(());
    };
    let names: Vec<&str> = roles.roles().collect();
    let Ok(connection) = address::connect(config).await else {
        return Ok(());
    };
    let sql = "select n.name from pg_catalog.unnest($1) n (name) \
               where not exists (select from pg_catalog.pg_roles r where r.rolname = n.name) order by 1 limit 1";
    let unknown = connection
        .query_typed(sql, &[(&names, Type::TEXT_ARRAY)])
        .await?;
    let Some(row) = unknown.first() else {
        return Ok(());
    };
    let name: &str = row.try_get(0)?;
    Err(Failure::usage(format!("role \"{name}\" does not exist"))
        .at(&file.display().to_string())
        .hint(format!(
            "create role {}; or name another in the file",
            quote::name(name)
        )))
}

/// Serves the pages of a database on this machine until the program ends, and returns their
/// address: the default one, or another if that is in use.
pub(crate) async fn serve(config: Address) -> Result<String, Failure> {
    let usual = tokio::net::TcpListener::bind(USUAL).await;
    let listener = match usual {
        Ok(listener) => listener,
        Err(_) => tokio::net::TcpListener::bind("127.0.0.1:0").await?,
    };
    let bound = listener.local_addr()?;
    let options = Options {
        hosts: hosts(bound, &[]),
        read_only: false,
        ..Options::default()
    };
    let site = Site::new(config, options);
    tokio::spawn(async move {
        if let Err(error) = site.serve(listener).await {
            print::log("trax", &format!("the pages ended: {error}"));
        }
    });
    Ok(format!("http://{bound}/"))
}

/// Returns the host names under which the pages are served.
fn hosts(bound: SocketAddr, given: &[String]) -> Vec<String> {
    let port = bound.port();
    let mut hosts = vec![bound.to_string()];
    if bound.ip().is_loopback() {
        for name in ["localhost", "127.0.0.1", "[::1]"] {
            hosts.push(format!("{name}:{port}"));
        }
    }
    hosts.extend(given.iter().cloned());
    hosts
}

fn base(text: &str) -> Result<String, Failure> {
    let base = text.trim_end_matches('/');
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
    if !base.is_empty() && !base.starts_with('/')
        || base.starts_with("//")
        || !base.chars().all(plain)
    {
        return Err(Failure::usage(format!("\"{text}\" is not a path")).hint("--base /trax"));
    }
    Ok(base.to_owned())
}

fn identity(arguments: &Arguments) -> Result<Identity, Failure> {
    let roles = arguments.roles.as_deref();
    let roles = roles.map(|file| read(file, Roles::parse)).transpose()?;
    if let Some(file) = &arguments.password_file {
        let passwords = read(file, Passwords::parse)?;
        return Ok(Identity::Passwords { passwords, roles });
    }
    match (&arguments.trust_header, roles) {
        (Some(name), Some(roles)) => {
            let name = name.parse().map_err(|_| {
                Failure::usage(format!("\"{name}\" is not the name of a header"))
                    .hint("--trust-header X-Forwarded-User")
            })?;
            Ok(Identity::Header { name, roles })
        }
        (None, Some(_)) => Err(Failure::usage("--roles needs a way to identify people")
            .hint("add --trust-header NAME or --password-file FILE")),
        _ => Ok(Identity::Nobody),
    }
}

fn read<T>(file: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, Failure> {
    let place = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(error.to_string()).at(&place))?;
    parse(&text).map_err(|error| Failure::usage(error).at(&place))
}
