//! Opens a connection to one host, with TLS as the address asks for.

use tokio_postgres::config::{ChannelBinding, Host, SslMode as DriverMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};

use crate::address::{Address, SslMode};
use crate::error::{Error, Report, Result};
use crate::tls::{Connector, connector};

/// A client, and the driver of its connection.
pub(crate) type Opened = (Client, Driver);

type Driver = Connection<Socket, <Connector as MakeTlsConnect<Socket>>::Stream>;

impl Address {
    /// Opens a connection to an address that has a single host.
    pub(crate) async fn open_one(&self) -> Result<Opened> {
        let ways = self.ways();
        let first = self.open_by(ways[0]).await;
        match (first, ways.get(1)) {
            (Err(refused), Some(other)) if may_do_otherwise(&refused) => {
                let second = self.open_by(*other).await;
                second.map_err(|error| match refused {
                    Error::Tls(cause) => Error::Tls(format!("{cause}; without TLS: {error}")),
                    _ => error,
                })
            }
            (first, _) => first,
        }
    }

    async fn open_by(&self, way: DriverMode) -> Result<Opened> {
        let connector = connector(self)?;
        Ok(self.driver_config(way).connect(connector).await?)
    }

    /// Returns the TLS modes of the driver to try, in order. libpq's `allow` and `prefer` try both.
    fn ways(&self) -> &'static [DriverMode] {
        let is_socket = |host: &Host| matches!(host, Host::Unix(_));
        let hosts = self.get_hosts();
        let local =
            self.get_hostaddrs().is_empty() && !hosts.is_empty() && hosts.iter().all(is_socket);
        match self.sslmode() {
            _ if local => &[DriverMode::Disable],
            SslMode::Disable => &[DriverMode::Disable],
            SslMode::Allow => &[DriverMode::Disable, DriverMode::Require],
            SslMode::Prefer => &[DriverMode::Prefer, DriverMode::Disable],
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[DriverMode::Require],
        }
    }

    /// Returns the driver's configuration for one of its TLS modes.
    pub(crate) fn driver_config(&self, way: DriverMode) -> Config {
        let mut config = Config::clone(self);
        config.ssl_mode(way);
        match self.tls.get("channel_binding") {
            Some("disable") => config.channel_binding(ChannelBinding::Disable),
            Some("prefer") => config.channel_binding(ChannelBinding::Prefer),
            Some(_) => config.channel_binding(ChannelBinding::Require),
            None => &mut config,
        };
        config
    }
}

/// Returns whether a server that refused a connection with TLS may accept one without, or the
/// reverse.
fn may_do_otherwise(refused: &Error) -> bool {
    let by_rule = |report: &Report| report.sqlstate == "28000";
    matches!(refused, Error::Tls(_)) || refused.report().is_some_and(by_rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_this_machine_needs_no_tls() {
        let parsed = |text: &str| text.parse::<Address>().expect("an address");
        let local = parsed("host=/tmp sslmode=verify-full");
        assert_eq!(local.ways(), [DriverMode::Disable]);
        let remote = parsed("host=/tmp,h sslmode=verify-full");
        assert_eq!(remote.ways(), [DriverMode::Require]);
    }
}
