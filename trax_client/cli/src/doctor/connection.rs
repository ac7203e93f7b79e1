//! Checks that only a client can make: reachability, intermediaries, versions and clocks.

use std::net::IpAddr;
use std::time::{Duration, Instant, SystemTime};

use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use trax_client::{Address, Error, Neighbor};

use super::{Finding, Severity};
use crate::lock_wait;
use crate::session::of_another_version;
use trax_terminal::{Connection, address};

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The oldest server version that trax supports.
const OLDEST_SERVER: i32 = 150_000;
/// The clock difference from which users and programs are affected.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);
/// The time limit for an address to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that answered.
pub(super) struct Reached {
    pub(super) client: Connection,
    pub(super) role: String,
    /// Whether the extension or a router's is installed, and its schema contains nothing of other
    /// owners.
    pub(super) installed: bool,
    pub(super) findings: Vec<Finding>,
    address: String,
    server: String,
    extension: Option<String>,
    round_trip: Duration,
}

impl Reached {
    /// Returns a line about the server examined.
    pub(super) fn summary(&self) -> String {
        let extension = match &self.extension {
            Some(version) => format!("trax {version}"),
            None => "no trax".to_owned(),
        };
        format!(
            "{}: PostgreSQL {}, {extension}, this program {VERSION}, a round trip {:.1} ms",
            self.address,
            self.server,
            self.round_trip.as_secs_f64() * 1e3
        )
    }
}

/// The server's facts about itself and this connection.
const FACTS: &str = "select
    pg_catalog.current_setting('server_version') as server,
    pg_catalog.current_setting('server_version_num')::int4 as server_number,
    session_user::text as role,
    pg_catalog.pg_backend_pid() as pid,
    pg_catalog.pg_is_in_recovery() as standby,
    (select e.extversion from pg_catalog.pg_extension e where e.extname in ('trax', 'trax_router')) as extension,
    (select a.default_version from pg_catalog.pg_available_extensions a where a.name = 'trax') as available,
    coalesce((select s.ssl from pg_catalog.pg_stat_ssl s where s.pid = pg_catalog.pg_backend_pid()), false) as encrypted";

/// Connects and collects facts. On failure, returns a finding with the reason.
pub(super) async fn reach(config: &Address) -> Result<Reached, Box<Finding>> {
    let mut findings = Vec::new();
    let (client, host) = connect(config, &mut findings).await?;
    let broken = |error: tokio_postgres::Error| Box::new(unreachable(config, &error.into()));
    let row = client.query_typed_one(FACTS, &[]).await.map_err(broken)?;
    let get = |name: &str| row.try_get::<_, Option<String>>(name).map_err(broken);
    let (server, role) = (
        get("server")?.unwrap_or_default(),
        get("role")?.unwrap_or_default(),
    );
    lock_wait::report(config, row.try_get("pid").map_err(broken)?);
    let (extension, available) = (get("extension")?, get("available")?);
    let number: i32 = row.try_get("server_number").map_err(broken)?;
    if number < OLDEST_SERVER {
        findings.push(Finding::new(
            Severity::Critical,
            "server_too_old",
            format!("The server is PostgreSQL {server}; trax requires 15 or later."),
            "Upgrade the server, for example with pg_upgrade",
        ));
    }
    if row.try_get("standby").map_err(broken)? {
        findings.push(Finding::new(
            Severity::Warning,
            "standby",
            "This server is a standby: it is read-only, and nothing can be enqueued or claimed.",
            "Name all servers, host=one,two, and target_session_attrs=read-write in the url",
        ));
    }
    let mut is_ours = true;
    for neighbor in [Neighbor::Trax, Neighbor::Router, Neighbor::PgCron] {
        match neighbor.is_in(&*client).await {
            Ok(_) => {}
            Err(Error::NotPermitted(report)) => {
                is_ours &= neighbor != Neighbor::Trax;
                findings.push(Finding::new(
                    Severity::Critical,
                    "stranger_schema",
                    format!(
                        "A role pretends to be a part of trax: {}. {}",
                        report.message,
                        report.detail.unwrap_or_default()
                    ),
                    report.hint.unwrap_or_default(),
                ));
            }
            Err(error) => return Err(Box::new(unreachable(config, &error))),
        }
    }
    let is_there = extension.is_some() && is_ours;
    // A role without rights gets no answer here; its missing rights are reported later.
    let refusal = match is_there {
        true => of_another_version(&client).await.ok().flatten(),
        false => None,
    };
    findings.extend(refusal.map(|report| {
        Finding::new(
            Severity::Critical,
            "other_version",
            format!("Every call is refused: {}.", report.message),
            report.hint.unwrap_or_default(),
        )
    }));
    findings.extend(versions(extension.as_deref(), available.as_deref()));
    if !row.try_get("encrypted").map_err(broken)? && is_remote(&host) {
        findings.push(Finding::new(
            Severity::Warning,
            "tls_off",
            format!(
                "The connection to {} goes over a network without encryption: others can read inputs, outputs and passwords.",
                describe(&host)
            ),
            "Set ssl = on on the server, hostssl in its pg_hba.conf, and sslmode=require in the url",
        ));
    }
    let (round_trip, ahead) = clock(&client).await.map_err(broken)?;
    findings.extend(clock_difference(ahead, round_trip));
    findings.extend(between(config, &host, &client).await);
    Ok(Reached {
        client,
        role,
        installed: is_there,
        findings,
        address: address::describe(config),
        server,
        extension,
        round_trip,
    })
}

/// Connects to the first address that answers. Adds a warning for each earlier one that does not.
async fn connect(
    config: &Address,
    findings: &mut Vec<Finding>,
) -> Result<(Connection, Host), Box<Finding>> {
    let hosts = hosts(config);
    let mut last = None;
    for (place, host) in hosts.iter().enumerate() {
        let one = only(config, place, host);
        match tokio::time::timeout(PATIENCE, one.connect()).await {
            Ok(Ok(client)) => {
                return Ok((Connection::new(client), host.clone()));
            }
            Ok(Err(error)) => last = Some(unreachable(&one, &error)),
            Err(_) => last = Some(silent(&one)),
        }
        if place + 1 < hosts.len()
            && let Some(finding) = &last
        {
            let mut finding = finding.clone();
            finding.severity = Severity::Warning;
            findings.push(finding);
        }
    }
    Err(Box::new(last.unwrap_or_else(|| silent(config))))
}

/// Returns the hosts of an address. A name takes precedence over an IP address beside it.
fn hosts(config: &Address) -> Vec<Host> {
    let numbers = config.get_hostaddrs().iter();
    match config.get_hosts() {
        [] => numbers.map(|ip| Host::Tcp(ip.to_string())).collect(),
        hosts => hosts.to_vec(),
    }
}

/// Returns the address reduced to one of its hosts.
fn only(config: &Address, place: usize, host: &Host) -> Address {
    let mut one = config.with_config(Config::new());
    match host {
        Host::Tcp(name) => one.host(name),
        Host::Unix(directory) => one.host_path(directory),
    };
    let ports = config.get_ports();
    one.port(ports.get(place).or(ports.first()).copied().unwrap_or(5432));
    one.user(config.get_user().unwrap_or("postgres"));
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    one.connect_timeout(PATIENCE);
    one.application_name("trax doctor");
    one
}

const LOGIN_REFUSED: (&str, &str) = (
    "login_refused",
    "Correct user and password (PGUSER, PGPASSWORD, PGPASSFILE), or the server's pg_hba.conf",
);

fn unreachable(config: &Address, error: &Error) -> Finding {
    let code = error.report().map(|report| report.sqlstate.as_str());
    let (cause, fix) = match code {
        Some("3D000") => (
            "no_database",
            "Correct the name of the database, or make it: create database ... encoding 'UTF8' template template0",
        ),
        Some("28P01" | "28000") => LOGIN_REFUSED,
        None if error.to_string().contains("password missing") => LOGIN_REFUSED,
        Some("53300") => (
            "too_many_connections",
            "End sessions, raise max_connections, or put a pooler in between",
        ),
        Some("57P03") => (
            "server_starting",
            "Wait: the server starts, stops or recovers; see its log",
        ),
        None if matches!(error, Error::Tls(_)) => (
            "tls_refused",
            "Correct sslmode, sslrootcert, sslcert and sslkey in the url, or the server's certificate",
        ),
        _ => (
            "unreachable",
            "Start the server, and check the address (--database-url, DATABASE_URL or PGHOST and PGPORT), listen_addresses and firewalls",
        ),
    };
    let detail = format!("{}: {error}", address::describe(config));
    Finding::new(Severity::Critical, cause, detail, fix)
}

fn silent(config: &Address) -> Finding {
    Finding::new(
        Severity::Critical,
        "unreachable",
        format!(
            "{}: no answer within {} s",
            address::describe(config),
            PATIENCE.as_secs()
        ),
        "Check the address and the firewalls on the way",
    )
}

fn versions(extension: Option<&str>, available: Option<&str>) -> Option<Finding> {
    let Some(installed) = extension else {
        return Some(match available {
            Some(version) => Finding::new(
                Severity::Critical,
                "not_installed",
                format!("trax {version} is installed on the server, but not in this database."),
                "create extension trax",
            ),
            None => Finding::new(
                Severity::Critical,
                "not_installed",
                "trax is not installed on this server.",
                "On the server: make install PG_CONFIG=/path/to/pg_config; then here: create extension trax",
            ),
        });
    };
    if available.is_some_and(|available| numbers(installed) < numbers(available)) {
        return Some(Finding::new(
            Severity::Warning,
            "update_pending",
            format!(
                "The server has trax {}, this database has {installed}.",
                available.unwrap_or_default()
            ),
            "alter extension trax update",
        ));
    }
    (installed != VERSION).then(|| {
        let fix = if numbers(installed) < numbers(VERSION) {
            "Install the newer extension on the server, then: alter extension trax update"
        } else {
            "Install the newer program: cargo install --path trax_client/cli"
        };
        Finding::new(
            Severity::Warning,
            "client_version",
            format!("This program is version {VERSION}, the extension {installed}."),
            fix,
        )
    })
}

/// Returns the parts of a version, for comparison.
fn numbers(version: &str) -> Vec<u64> {
    version
        .split('.')
        .map(|part| part.parse().unwrap_or(0))
        .collect()
}

/// Returns the shortest of several round trips, and the number of seconds that the server's clock
/// is ahead.
async fn clock(client: &Connection) -> Result<(Duration, f64), tokio_postgres::Error> {
    let mut best: Option<(Duration, f64)> = None;
    for _ in 0..3 {
        let (begin, here) = (Instant::now(), SystemTime::now());
        let row = client
            .query_typed_one("select pg_catalog.clock_timestamp()", &[])
            .await?;
        let round_trip = begin.elapsed();
        let middle = here + round_trip / 2;
        let there: SystemTime = row.try_get(0)?;
        let ahead = match there.duration_since(middle) {
            Ok(ahead) => ahead.as_secs_f64(),
            Err(behind) => -behind.duration().as_secs_f64(),
        };
        if best.is_none_or(|(least, _)| round_trip < least) {
            best = Some((round_trip, ahead));
        }
    }
    Ok(best.unwrap_or_default())
}

fn clock_difference(ahead: f64, round_trip: Duration) -> Option<Finding> {
    let certain = ahead.abs() - round_trip.as_secs_f64() / 2.0;
    (certain > CLOCK_TOLERANCE.as_secs_f64()).then(|| {
        let which = if ahead > 0.0 { "ahead of" } else { "behind" };
        Finding::new(
            Severity::Warning,
            "clock_difference",
            format!(
                "The server's clock is {:.1} s {which} this machine's. Only the server's counts: times that are computed here will be too early or too late.",
                ahead.abs()
            ),
            "On the machine that is wrong: timedatectl set-ntp true",
        )
    })
}

/// Returns whether a connection leaves this machine.
fn is_remote(host: &Host) -> bool {
    match host {
        Host::Unix(_) => false,
        Host::Tcp(name) if name == "localhost" => false,
        Host::Tcp(name) => !name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
    }
}

fn describe(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(directory) => directory.display().to_string(),
    }
}

/// Returns a finding if the server sees a different connection than the one made here, and whether
/// a pooler shares it.
async fn between(config: &Address, host: &Host, first: &Connection) -> Option<Finding> {
    let place = hosts(config).iter().position(|one| one == host)?;
    let one = only(config, place, host);
    let port = one.get_ports().first().copied()?;
    let (second, here) = match host {
        Host::Tcp(name) => {
            let stream = TcpStream::connect((name.as_str(), port)).await.ok()?;
            let here = stream.local_addr().ok()?.port();
            (one.connect_over(stream, name).await.ok()?, Some(here))
        }
        Host::Unix(directory) => {
            let path = directory.join(format!(".s.PGSQL.{port}"));
            let stream = UnixStream::connect(path).await.ok()?;
            (one.connect_over(stream, "").await.ok()?, None)
        }
    };
    let second = Connection::new(second);
    let sql = "select pg_catalog.inet_client_port()";
    let row = second.query_typed_one(sql, &[]).await.ok()?;
    // Null, or -1, for a connection over a local socket.
    let there: Option<i32> = row.try_get(0).ok()?;
    let there = there.and_then(|port| u16::try_from(port).ok());
    if here == there {
        return None;
    }
    let shared = shares_a_process(first, &second).await;
    let detail = if shared {
        "A pooler is in between and assigns a server process to each transaction: LISTEN, session settings and advisory locks of a session do not last."
    } else {
        "A pooler, proxy or tunnel is in between: the server sees another connection than this machine made."
    };
    Some(Finding::new(
        Severity::Notice,
        "pooler",
        detail,
        "Nothing, if this is intended: trax works behind it. Workers start jobs fastest when they connect to the server directly",
    ))
}

/// Returns whether two connections reach the same server process, so that session state of one
/// leaks into the other.
async fn shares_a_process(first: &Connection, second: &Connection) -> bool {
    let mut pids = Vec::new();
    for client in [first, second, first, second] {
        let sql = "select pg_catalog.pg_backend_pid()";
        let Ok(row) = client.query_typed_one(sql, &[]).await else {
            return false;
        };
        pids.push(row.try_get::<_, i32>(0).unwrap_or_default());
    }
    pids[0] == pids[1] || pids[1] == pids[2] || pids[2] == pids[3]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_by_more_than_the_way_takes_are_reported() {
        let way = Duration::from_millis(10);
        assert_eq!(clock_difference(1.9, way), None);
        assert_eq!(clock_difference(30.0, Duration::from_secs(60)), None);
        let detail = |ahead| clock_difference(ahead, way).map(|finding| finding.detail);
        assert!(detail(3.0).is_some_and(|text| text.contains("3.0 s ahead of")));
        assert!(detail(-90.0).is_some_and(|text| text.contains("90.0 s behind")));
    }

    #[test]
    fn only_another_machine_needs_encryption() {
        for (host, remote) in [
            ("localhost", false),
            ("127.0.0.1", false),
            ("127.1.2.3", false),
            ("::1", false),
            ("192.168.1.7", true),
            ("db.example.org", true),
        ] {
            assert_eq!(is_remote(&Host::Tcp(host.to_owned())), remote, "{host}");
        }
        assert!(!is_remote(&Host::Unix("/tmp".into())));
    }

    #[test]
    fn versions_that_differ_say_which_is_to_be_renewed() {
        assert_eq!(versions(Some(VERSION), Some(VERSION)), None);
        let fix = |installed| versions(Some(installed), None).map(|finding| finding.fix);
        assert!(fix("0.0.9").is_some_and(|fix| fix.contains("alter extension trax update")));
        assert!(fix("99.0.0").is_some_and(|fix| fix.contains("cargo install")));
        let pending = versions(Some("0.0.9"), Some(VERSION)).map(|finding| finding.fix);
        assert_eq!(pending.as_deref(), Some("alter extension trax update"));
        let missing = versions(None, Some("0.1.0")).map(|finding| finding.fix);
        assert_eq!(missing.as_deref(), Some("create extension trax"));
    }
}
