//! `trax web`: pages for a browser.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};
use trax_client::Address;
use trax_terminal::{Failure, address, print};
use trax_web::{Identity, Options, Passwords, Roles, Site};

/// Where the pages are unless told otherwise.
const USUAL: &str = "127.0.0.1:8740";

#[derive(clap::Args)]
#[command(after_help = "\
A page can do what its database role can, nothing more, and every act is in trax.audit.

On a loopback address whoever has an account on this machine may do what the connecting role may. \
To know who asks, put a proxy that authenticates in front and name its header with --trust-header, \
or give people passwords: htpasswd -B -c FILE NAME. Beyond loopback without one of them the pages \
are read-only.

Passwords and pages are not encrypted: beyond one machine put a proxy with TLS in front, and let \
only that proxy reach this address.")]
pub(crate) struct Arguments {
    /// The address to serve
    #[arg(long, value_name = "ADDRESS:PORT", default_value = USUAL)]
    listen: String,
    /// A name under which browsers may ask for the pages, with its port; may be repeated
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
    /// A file with a line for each person: a name and a role; the name * is everybody else
    #[arg(long, value_name = "FILE")]
    roles: Option<PathBuf>,
    /// A file of names and passwords as htpasswd -B writes it
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Show, but do nothing
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
        .ok_or_else(|| cannot(&"it is no address"))?;
    let identity = identity(&arguments)?;
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
    let database = address::describe(&config);
    if is_open {
        print::log(
            "trax",
            "read-only: beyond loopback only people who are known may do anything; see --trust-header and --password-file",
        );
    }
    print::log(
        "trax",
        &format!("serves http://{bound}{}/ of {database}", options.base),
    );
    let site = Site::new(config, options);
    tokio::select! {
        served = site.serve(listener) => served?,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Serves the pages of a database on this machine until the program ends, and returns their
/// address: the usual one, or another when that is taken.
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

/// Returns the names under which the pages may be asked for.
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
        (None, Some(_)) => Err(Failure::usage("--roles needs to know who asks")
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
