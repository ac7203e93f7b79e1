//! The address of the database: `--database-url`, else DATABASE_URL, else the PG* variables.

use std::env::VarError;

use tokio_postgres::Config;
use tokio_postgres::config::Host;
use trax_client::{Address, Error, Neighbor};

use crate::{Connection, Failure};

/// Returns the address for this command. `variable` looks up the environment.
pub fn resolve(
    url: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Address, Failure> {
    let given = url.map(str::to_owned).or_else(|| variable("DATABASE_URL"));
    let address = match given {
        Some(url) => url.parse::<Address>().map_err(|error| {
            Failure::usage(format!("invalid database URL: {}", cause(error)))
                .hint("postgres://user:password@host:5432/database, or host=/socket/dir dbname=x")
        })?,
        None => Config::new().into(),
    };
    let mut address = address
        .or_environment(&variable)
        .map_err(|error| Failure::usage(cause(error)).hint("correct that variable, or unset it"))?;
    if let Some(name) = variable("PGAPPNAME")
        && address.get_application_name().is_none()
    {
        address.application_name(name);
    }
    Ok(address)
}

/// Returns the message of an invalid address or variable.
fn cause(error: Error) -> String {
    match error {
        Error::Address(cause) => cause,
        other => other.to_string(),
    }
}

/// Returns the address from the arguments and this process's environment.
pub fn from_environment(url: Option<&str>) -> Result<Address, Failure> {
    resolve(url, |name| match std::env::var(name) {
        Ok(value) if !value.is_empty() => Some(value),
        Ok(_) | Err(VarError::NotPresent | VarError::NotUnicode(_)) => None,
    })
}

/// Returns a readable form of an address, without the password.
pub fn describe(config: &Config) -> String {
    let user = config.get_user().unwrap_or("?");
    let database = config.get_dbname().unwrap_or(user);
    format!(
        "{} (database \"{database}\", user \"{user}\")",
        hosts(config).join(", ")
    )
}

/// Returns the hosts as the library's errors name them.
fn hosts(config: &Config) -> Vec<String> {
    let ports = config.get_ports();
    config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(i, host)| {
            let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(dir) => format!("{}/.s.PGSQL.{port}", dir.display()),
            }
        })
        .collect()
}

/// Connects, as `trax` unless the address has another name. A failure names the address.
///
/// # Errors
/// Also if the schema trax there has another owner.
pub async fn connect(address: &Address) -> Result<Connection, Failure> {
    let mut named = address.clone();
    if named.get_application_name().is_none() {
        named.application_name("trax");
    }
    let address = &named;
    let connected = address.connect().await;
    let connected = connected.map_err(|error| unreachable(address, &error))?;
    match Neighbor::Trax.is_in(&connected).await {
        Ok(_) => Ok(Connection::new(connected)),
        Err(error @ Error::Connection(_)) => Err(unreachable(address, &error)),
        Err(error) => Err(error.into()),
    }
}

const WITH_PASSWORD: &str =
    "give the password of that user as PGPASSWORD, in PGPASSFILE or ~/.pgpass, or in the url";

/// Returns the failure for an address that cannot be reached.
pub fn unreachable(address: &Config, error: &Error) -> Failure {
    let mut cause = error.to_string();
    let hint = match (error, error.report().map(|report| report.sqlstate.as_str())) {
        (Error::Tls(_), _) => {
            "say sslmode, sslrootcert, sslcert and sslkey in the url, or PGSSLMODE and so on"
        }
        (_, Some("28P01")) => WITH_PASSWORD,
        _ if cause.contains("password missing") => WITH_PASSWORD,
        (_, Some("28000")) => {
            "name a role that may connect, in the url or as PGUSER; pg_hba.conf of the server says who may"
        }
        (_, Some("3D000")) => {
            "name a database that exists, in the url or as PGDATABASE; psql --list shows them"
        }
        _ => "give --database-url, DATABASE_URL, or PGHOST, PGPORT, PGUSER and PGDATABASE",
    };
    // The only host is already named.
    if let [host] = hosts(address).as_slice() {
        cause = cause.replacen(&format!("{host}: "), "", 1);
    }
    Failure::new(format!("cannot reach {}: {cause}", describe(address))).hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(url: Option<&str>, variables: &[(&str, &str)]) -> Result<String, String> {
        let find = |name: &str| {
            variables
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, value)| (*value).to_owned())
        };
        resolve(url, find)
            .map(|config| describe(&config))
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn the_argument_counts_before_the_environment() {
        let environment = [("DATABASE_URL", "postgres://b@two/y"), ("PGHOST", "three")];
        assert_eq!(
            described(Some("postgres://a@one:7000/x"), &environment),
            Ok("one:7000 (database \"x\", user \"a\")".to_owned())
        );
        assert_eq!(
            described(None, &environment),
            Ok("two:5432 (database \"y\", user \"b\")".to_owned())
        );
    }

    #[test]
    fn pghost_may_be_a_socket_directory() {
        let environment = [("PGHOST", "/tmp/s"), ("PGPORT", "6000"), ("PGUSER", "u")];
        assert_eq!(
            described(None, &environment),
            Ok("/tmp/s/.s.PGSQL.6000 (database \"u\", user \"u\")".to_owned())
        );
    }

    #[test]
    fn an_address_as_the_name_of_a_database_is_not_shown() {
        for variable in ["PGDATABASE", "PGHOST"] {
            let said = described(None, &[(variable, "postgres://u:s3cret@h/d")]);
            assert!(said.is_err_and(|text| text.contains(variable) && !text.contains("s3cret")));
        }
        let said = described(Some("host=h dbname=postgres://u:s3cret@h/d"), &[]);
        assert!(said.is_err_and(|text| !text.contains("s3cret")));
    }

    #[test]
    fn a_wrong_port_is_named() {
        let said = described(None, &[("PGPORT", "many")]);
        assert!(said.is_err_and(|text| text.contains("many")));
    }
}
