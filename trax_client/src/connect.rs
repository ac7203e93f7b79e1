//! Connects to the first of several hosts that answers.
//!
//! Input: an address, whose hosts may have several IP addresses each. Output: a connection after
//! its handshake, or the most informative error. Invariants: no host delays the next by more than a
//! `stagger`, no host takes longer than its limit, and a silent host is tried again meanwhile.
//! Among hosts that answer, the first in the address is preferred.

use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::config::{Host, LoadBalanceHosts, SslMode as DriverMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Notification};

use crate::address::{Address, SslMode};
use crate::error::{Blame, Error, Result, chain};
use crate::open::Opened;
use crate::tls::connector;

/// The time for one host if the address sets no limit.
const LIMIT: Duration = Duration::from_secs(10);
/// The end of the driver's error when the server asks for a password and the address has none.
const PASSWORD_MISSING: &str = "password missing";
/// How long one host is tried alone before the next one is tried in parallel.
const STAGGER: Duration = Duration::from_millis(250);
/// How long to wait for a silent host before a second attempt begins in parallel. The kernel
/// resends a lost packet after 1 s at first, then ever more rarely.
const AGAIN: Duration = Duration::from_millis(1500);

impl Address {
    /// Opens a new connection. A separate task drives it until the client is dropped.
    ///
    /// Each host is given `connect_timeout`, or 10 s if that is not set, including the handshake.
    /// If a host has not answered within 250 ms at most, the next host is tried in parallel.
    ///
    /// # Errors
    /// [`Error::Tls`] when the server or its certificate does not satisfy the address,
    /// [`Error::Connection`] when no host can be reached, or the error of the server.
    pub async fn connect(&self) -> Result<Client> {
        let (client, connection) = self.open().await?;
        drive(connection);
        Ok(client)
    }

    /// Connects as [`connect`](Self::connect) does. Calls `heard` with each notification on the
    /// channels that the connection listens to, and with `None` when the connection has ended.
    pub async fn connect_hearing(
        &self,
        heard: impl Fn(Option<&Notification>) + Send + 'static,
    ) -> Result<Client> {
        let (client, mut connection) = self.open().await?;
        tokio::spawn(async move {
            // The client's next call reports the error: it finds the connection closed.
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(notification) = message {
                    heard(Some(&notification));
                }
            }
            heard(None);
        });
        Ok(client)
    }

    /// Connects over an open stream, such as a tunnel or a proxy. `host` is the server's name for
    /// TLS.
    pub async fn connect_over<S>(&self, stream: S, host: &str) -> Result<Client>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut address = self.clone();
        address.take_password_from_file();
        let mut connector = connector(self)?;
        let tls = MakeTlsConnect::<S>::make_tls_connect(&mut connector, host)
            .map_err(|error| Error::Tls(error.to_string()))?;
        // The stream may lead to any host, so the exemption of local sockets from TLS does not
        // apply.
        let way = match self.sslmode() {
            SslMode::Disable | SslMode::Allow => DriverMode::Disable,
            SslMode::Prefer => DriverMode::Prefer,
            SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => DriverMode::Require,
        };
        let config = address.driver_config(way);
        let (client, connection) = config.connect_raw(stream, tls).await?;
        drive(connection);
        Ok(client)
    }

    /// Opens a new connection that the caller drives.
    pub(crate) async fn open(&self) -> Result<Opened> {
        open(self).await
    }
}

/// Connects to one of the hosts.
async fn open(address: &Address) -> Result<Opened> {
    let limit = address.get_connect_timeout().copied().unwrap_or(LIMIT);
    let hosts = hosts(address)?;
    if let [
        HostAddress { ip: Some(_), .. }
        | HostAddress {
            host: Some(Host::Unix(_)),
            ..
        },
    ] = hosts.as_slice()
    {
        let opened = bounded(limit, open_target(address, &hosts[0])).await;
        return opened.map_err(|error| error.of_host(&hosts[0].name()));
    }
    let tries = hosts.into_iter().map(|target| {
        let address = address.clone();
        move || async move {
            let name = target.name();
            let opened = bounded(limit, resolved(address, target, limit)).await;
            opened.map_err(|error| error.of_host(&name))
        }
    });
    race(tries.collect(), stagger(limit)).await
}

/// Drives a connection in a separate task until the client is dropped.
pub(crate) fn drive<E>(connection: impl Future<Output = Result<(), E>> + Send + 'static)
where
    E: Send + 'static,
{
    tokio::spawn(async move {
        // The client's next call returns the same error.
        connection.await.ok();
    });
}

fn stagger(limit: Duration) -> Duration {
    STAGGER.min(limit / 8)
}

/// A host of an address.
#[derive(Clone)]
struct HostAddress {
    host: Option<Host>,
    ip: Option<IpAddr>,
    port: u16,
}

impl HostAddress {
    /// Returns the host's name for error messages.
    fn name(&self) -> String {
        match (&self.host, self.ip) {
            (Some(Host::Tcp(name)), _) => format!("{name}:{}", self.port),
            (Some(Host::Unix(directory)), _) => {
                format!("{}/.s.PGSQL.{}", directory.display(), self.port)
            }
            (None, Some(ip)) => SocketAddr::new(ip, self.port).to_string(),
            (None, None) => format!("port {}", self.port),
        }
    }
}

/// Returns the hosts in the order in which to try them.
fn hosts(address: &Address) -> Result<Vec<HostAddress>> {
    let (names, ips) = (address.get_hosts(), address.get_hostaddrs());
    let ports = address.get_ports();
    let count = names.len().max(ips.len());
    let fits = |length: usize, most: usize| length <= most || length == count;
    if count == 0 {
        return Err(Error::Address("it contains no host".to_owned()));
    }
    if !fits(names.len(), 0) || !fits(ips.len(), 0) || !fits(ports.len(), 1) {
        return Err(Error::Address(
            "the numbers of hosts, hostaddrs and ports do not match".to_owned(),
        ));
    }
    let mut targets: Vec<HostAddress> = (0..count)
        .map(|at| HostAddress {
            host: names.get(at).cloned(),
            ip: ips.get(at).copied(),
            port: ports.get(at).or(ports.first()).copied().unwrap_or(5432),
        })
        .collect();
    if address.get_load_balance_hosts() == LoadBalanceHosts::Random {
        targets.sort_by_cached_key(|_| rand::random::<u64>());
    }
    Ok(targets)
}

/// Connects to a host, whose name may have several IP addresses.
async fn resolved(address: Address, target: HostAddress, limit: Duration) -> Result<Opened> {
    let name = match (&target.host, target.ip) {
        (Some(Host::Tcp(name)), None) => name.clone(),
        _ => return open_target(&address, &target).await,
    };
    let found = tokio::net::lookup_host((name.as_str(), target.port)).await;
    let found = found.map_err(|error| Error::Connection(error.into()))?;
    let mut ips: Vec<IpAddr> = found.map(|found| found.ip()).collect();
    if address.get_load_balance_hosts() == LoadBalanceHosts::Random {
        ips.sort_by_cached_key(|_| rand::random::<u64>());
    }
    let tries = ips.into_iter().map(|ip| {
        let (address, target) = (address.clone(), target.clone());
        move || async move {
            let target = HostAddress {
                ip: Some(ip),
                ..target
            };
            open_target(&address, &target).await
        }
    });
    race(tries.collect(), stagger(limit)).await
}

async fn open_target(address: &Address, target: &HostAddress) -> Result<Opened> {
    let mut one = address.with_config(only(address, target));
    let refused_file = one.take_password_from_file();
    let opened = insist(AGAIN, || {
        let one = one.clone();
        async move { one.open_one().await }
    })
    .await;
    opened.map_err(|error| match (error, refused_file) {
        (Error::Connection(cause), Some(reason)) if chain(&*cause).ends_with(PASSWORD_MISSING) => {
            Error::Connection(format!("{PASSWORD_MISSING}; {reason}").into())
        }
        (error, _) => error,
    })
}

/// Returns the result of the first attempt that ends. Another attempt begins whenever none has
/// ended for `pause`.
async fn insist<T, F>(pause: Duration, begin: impl Fn() -> F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut running = JoinSet::new();
    loop {
        running.spawn(begin());
        if let Ok(Some(ended)) = timeout(pause, running.join_next()).await {
            return ended.unwrap_or_else(|error| Err(Error::Connection(error.into())));
        }
    }
}

/// Returns the configuration reduced to one of its hosts.
fn only(config: &Config, target: &HostAddress) -> Config {
    let mut one = Config::new();
    match &target.host {
        Some(Host::Tcp(name)) => one.host(name),
        Some(Host::Unix(directory)) => one.host_path(directory),
        None => &mut one,
    };
    if let Some(ip) = target.ip {
        one.hostaddr(ip);
    }
    one.port(target.port);
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(limit) = config.get_connect_timeout() {
        one.connect_timeout(*limit);
    }
    if let Some(limit) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*limit);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .target_session_attrs(config.get_target_session_attrs());
    one
}

async fn bounded<T>(limit: Duration, opening: impl Future<Output = Result<T>>) -> Result<T> {
    match timeout(limit, opening).await {
        Ok(opened) => opened,
        Err(_) => Err(Error::Connection(
            format!("no connection within {:.1} s", limit.as_secs_f64()).into(),
        )),
    }
}

/// Returns the first success. Each attempt begins when the previous one has failed, or has not
/// answered within `stagger`.
async fn race<T, F>(tries: Vec<impl FnOnce() -> F>, stagger: Duration) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (mut tries, mut running) = (tries.into_iter(), JoinSet::new());
    let mut worst: Option<Error> = None;
    loop {
        let begun = tries.next();
        let waits = tries.len() > 0;
        if let Some(begin) = begun {
            running.spawn(begin());
        }
        tokio::select! {
            tried = running.join_next() => match tried {
                Some(Ok(Ok(opened))) => return Ok(opened),
                Some(Ok(Err(error))) => worst = Some(more_informative(worst, error)),
                Some(Err(error)) => worst = Some(more_informative(worst, Error::Connection(error.into()))),
                None if !waits => {
                    return Err(worst.unwrap_or_else(|| Error::Connection("it has no address".into())));
                }
                None => {}
            },
            () = sleep(stagger), if waits => {}
        }
    }
}

/// Returns the more informative error: a server's error wins over no answer; for hosts that cannot
/// be reached, the reasons are joined.
fn more_informative(one: Option<Error>, other: Error) -> Error {
    let weight = |error: &Error| match error.blame() {
        Blame::Connection => u8::from(error.is_starting()),
        Blame::Moment | Blame::Call => 2,
    };
    let Some(mut one) = one else { return other };
    match one.add_host(other) {
        Some(other) if weight(&one) <= weight(&other) => other,
        _ => one,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpSocket;

    #[test]
    fn one_host_of_an_address_keeps_all_that_is_said_of_them() {
        let text = "host=a,b hostaddr=127.0.0.1,127.0.0.2 port=1,2 user=u password=p dbname=d \
                    options='-c x=y' application_name=n connect_timeout=3 tcp_user_timeout=4 keepalives=0 \
                    keepalives_idle=5 keepalives_interval=6 keepalives_retries=7 target_session_attrs=read-write \
                    channel_binding=require sslnegotiation=direct";
        let config: Config = text.parse().expect("it is an address");
        let address = Address::from(config.clone());
        let targets = hosts(&address).expect("it has hosts");
        let mut expected: Config = text
            .replace("a,b", "b")
            .replace("127.0.0.1,127.0.0.2", "127.0.0.2")
            .replace("1,2 ", "2 ")
            .parse()
            .expect("it is an address");
        expected.ssl_mode(config.get_ssl_mode());
        assert_eq!(only(&config, &targets[1]), expected);
        let wrong: Config = "host=a,b,c port=1,2".parse().expect("it is an address");
        assert!(hosts(&Address::from(wrong)).is_err());
    }

    #[tokio::test]
    async fn the_error_names_each_host_with_its_own_reason() {
        // The sockets are bound and do not listen, so connections are refused while they exist.
        let closed: Vec<TcpSocket> = (0..2)
            .map(|_| {
                let socket = TcpSocket::new_v4().expect("a socket");
                let any = SocketAddr::from(([127, 0, 0, 1], 0));
                socket.bind(any).expect("a free port");
                socket
            })
            .collect();
        let port = |at: usize| closed[at].local_addr().expect("it is bound").port();
        let (one, other) = (port(0), port(1));
        let error = async |address: &str| {
            let address: Address = address.parse().expect("it is an address");
            let error = open(&address).await.err().expect("nobody listens");
            assert!(error.is_transient(), "{error}");
            error.to_string()
        };
        let refused = "error connecting to server: Connection refused (os error 111)";
        assert_eq!(
            error(&format!("host=127.0.0.1 port={one} user=u")).await,
            format!("connection: 127.0.0.1:{one}: {refused}")
        );
        assert_eq!(
            error(&format!(
                "host=127.0.0.1,localhost,/no/such port={one},{other},7 user=u"
            ))
            .await,
            format!(
                "connection: 127.0.0.1:{one}: {refused}; localhost:{other}: {refused}; \
                 /no/such/.s.PGSQL.7: error connecting to server: No such file or directory (os error 2)"
            )
        );
        assert_eq!(
            error(&format!("hostaddr=::1 port={one} user=u")).await,
            format!("connection: [::1]:{one}: {refused}")
        );
        let unknown = error("host=no-such-host.invalid user=u").await;
        let begins = "connection: no-such-host.invalid:5432: failed to lookup";
        assert!(unknown.starts_with(begins), "{unknown}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_host_is_tried_again_beside_and_an_answer_ends_all_tries() {
        let begun = tokio::time::Instant::now();
        let answers = |at: u64, answer: Option<u32>| {
            insist(AGAIN, move || async move {
                // Packets sent before the host was back are lost.
                if begun.elapsed() < Duration::from_millis(at) {
                    sleep(Duration::from_secs(60)).await;
                }
                answer.ok_or_else(|| Error::Connection("refused".into()))
            })
        };
        assert_eq!(answers(3100, Some(1)).await.ok(), Some(1));
        assert_eq!(begun.elapsed(), 3 * AGAIN);
        assert!(answers(0, None).await.is_err(), "an error is an answer");
        assert_eq!(begun.elapsed(), 3 * AGAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_one_holds_up_the_next_for_a_moment_and_a_failed_one_not_at_all() {
        let begun = tokio::time::Instant::now();
        let trying = |after: u64, answer: Option<u32>| {
            move || async move {
                sleep(Duration::from_millis(after)).await;
                answer.ok_or_else(|| Error::Connection("refused".into()))
            }
        };
        let tries = vec![
            trying(60_000, None),
            trying(10, None),
            trying(20, Some(3)),
            trying(0, Some(4)),
        ];
        let first = race(tries, Duration::from_millis(100)).await;
        assert_eq!(first.ok(), Some(3));
        assert_eq!(begun.elapsed(), Duration::from_millis(130));
        let failed = race(vec![trying(1, None), trying(1, None)], STAGGER).await;
        assert!(failed.is_err());
    }
}
