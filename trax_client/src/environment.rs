//! The environment variables of libpq for the parts of an address.

use std::path::Path;

use tokio_postgres::Config;

use crate::error::{Error, Result};

/// The socket directory on Debian.
pub(crate) const SOCKET_DIR: &str = "/var/run/postgresql";

/// Returns the value of a variable of this process; an empty one counts as unset.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Sets the parts that `config` does not set, except TLS.
pub(crate) fn complete(
    config: &mut Config,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<()> {
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        let socket = Path::new(SOCKET_DIR).is_dir();
        let fallback = if socket { SOCKET_DIR } else { "localhost" };
        let hosts = variable("PGHOST").unwrap_or_else(|| fallback.to_owned());
        refuse_address_in("PGHOST", &hosts)?;
        for host in hosts.split(',') {
            config.host(host);
        }
    }
    if config.get_ports().is_empty()
        && let Some(ports) = variable("PGPORT")
    {
        for port in ports.split(',') {
            let port = port.parse().map_err(|_| {
                Error::Address(format!("PGPORT is \"{ports}\", which is not a port"))
            })?;
            config.port(port);
        }
    }
    if config.get_user().is_none() {
        let user = variable("PGUSER").or_else(|| variable("USER"));
        config.user(user.unwrap_or_else(|| "postgres".to_owned()));
    }
    if config.get_dbname().is_none()
        && let Some(name) = variable("PGDATABASE")
    {
        refuse_address_in("PGDATABASE", &name)?;
        config.dbname(name);
    }
    if config.get_password().is_none()
        && let Some(password) = variable("PGPASSWORD")
    {
        config.password(password);
    }
    Ok(())
}

/// Refuses an address, which may contain a password, in a variable whose value appears in error
/// messages.
fn refuse_address_in(variable: &str, value: &str) -> Result<()> {
    if !value.contains("://") {
        return Ok(());
    }
    Err(Error::Address(format!(
        "{variable} is an address, and must be a name; set DATABASE_URL to the address"
    )))
}
