//! Which of several hosts answers, and for how long each may be silent.
//!
//! Enters: an address, whose hosts may have several addresses each. Leaves: a connection that is
//! ready for calls, its handshake included, or the most telling of the errors. Holds: no host
//! delays another for longer than a `stagger`, and none is waited for longer than its limit. The
//! first that stands in the address is preferred while it answers.

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, LoadBalanceHosts};

use crate::address::{Address, Opened};
use crate::error::{Blame, Error, Result};
use crate::worker::connection::random;

/// How long one host may take when the address says nothing of it.
const LIMIT: Duration = Duration::from_secs(10);
/// How long the first host is alone at most, before the next is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// A connection to one of the hosts.
pub(crate) async fn open(address: &Address) -> Result<Opened> {
    let limit = address.get_connect_timeout().copied().unwrap_or(LIMIT);
    let hosts = hosts(address)?;
    if let [
        Place { ip: Some(_), .. }
        | Place {
            host: Some(Host::Unix(_)),
            ..
        },
    ] = hosts.as_slice()
    {
        return bounded(limit, at(address, &hosts[0])).await;
    }
    let tries = hosts.into_iter().map(|place| {
        let address = address.clone();
        move || bounded(limit, resolved(address, place, limit))
    });
    race(tries.collect(), stagger(limit)).await
}

fn stagger(limit: Duration) -> Duration {
    STAGGER.min(limit / 8)
}

/// One host of an address.
#[derive(Clone)]
struct Place {
    host: Option<Host>,
    ip: Option<IpAddr>,
    port: u16,
}

/// In the order in which they are tried.
fn hosts(address: &Address) -> Result<Vec<Place>> {
    let (names, ips) = (address.get_hosts(), address.get_hostaddrs());
    let ports = address.get_ports();
    let count = names.len().max(ips.len());
    let fits = |length: usize, most: usize| length <= most || length == count;
    if count == 0 {
        return Err(Error::Address("it names no host".to_owned()));
    }
    if !fits(names.len(), 0) || !fits(ips.len(), 0) || !fits(ports.len(), 1) {
        return Err(Error::Address(
            "it has not as many hostaddrs or ports as hosts".to_owned(),
        ));
    }
    let mut places: Vec<Place> = (0..count)
        .map(|at| Place {
            host: names.get(at).cloned(),
            ip: ips.get(at).copied(),
            port: ports.get(at).or(ports.first()).copied().unwrap_or(5432),
        })
        .collect();
    if address.get_load_balance_hosts() == LoadBalanceHosts::Random {
        places.sort_by_cached_key(|_| random());
    }
    Ok(places)
}

/// A connection to a host that may be a name of several addresses.
async fn resolved(address: Address, place: Place, limit: Duration) -> Result<Opened> {
    let name = match (&place.host, place.ip) {
        (Some(Host::Tcp(name)), None) => name.clone(),
        _ => return at(&address, &place).await,
    };
    let found = tokio::net::lookup_host((name.as_str(), place.port)).await;
    let found = found.map_err(|error| Error::Connection(format!("{name}: {error}").into()))?;
    let mut ips: Vec<IpAddr> = found.map(|found| found.ip()).collect();
    if address.get_load_balance_hosts() == LoadBalanceHosts::Random {
        ips.sort_by_cached_key(|_| random());
    }
    let tries = ips.into_iter().map(|ip| {
        let (address, place) = (address.clone(), place.clone());
        move || async move {
            let place = Place {
                ip: Some(ip),
                ..place
            };
            at(&address, &place).await
        }
    });
    race(tries.collect(), stagger(limit)).await
}

async fn at(address: &Address, place: &Place) -> Result<Opened> {
    let one = address.with_config(only(address, place));
    one.open_one().await
}

/// The same with one of its hosts alone.
fn only(config: &Config, place: &Place) -> Config {
    let mut one = Config::new();
    match &place.host {
        Some(Host::Tcp(name)) => one.host(name),
        Some(Host::Unix(directory)) => one.host_path(directory),
        None => &mut one,
    };
    if let Some(ip) = place.ip {
        one.hostaddr(ip);
    }
    one.port(place.port);
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

/// The first that succeeds; each begins when the one before has failed, or has been silent for a
/// `stagger`.
async fn race<T, F>(tries: Vec<impl FnOnce() -> F>, stagger: Duration) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (mut tries, mut running) = (tries.into_iter(), JoinSet::new());
    let mut told: Option<Error> = None;
    loop {
        let begun = tries.next();
        let waits = tries.len() > 0;
        if let Some(begin) = begun {
            running.spawn(begin());
        }
        tokio::select! {
            tried = running.join_next() => match tried {
                Some(Ok(Ok(opened))) => return Ok(opened),
                Some(Ok(Err(error))) => told = Some(more_telling(told, error)),
                Some(Err(error)) => told = Some(more_telling(told, Error::Connection(error.into()))),
                None if !waits => {
                    return Err(told.unwrap_or_else(|| Error::Connection("it has no address".into())));
                }
                None => {}
            },
            () = sleep(stagger), if waits => {}
        }
    }
}

/// What a server says tells more than a silence.
fn more_telling(one: Option<Error>, other: Error) -> Error {
    let weight = |error: &Error| match error.blame() {
        Blame::Connection => u8::from(error.is_waking()),
        Blame::Moment | Blame::Call => 2,
    };
    match one {
        Some(one) if weight(&one) > weight(&other) => one,
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_of_an_address_keeps_all_that_is_said_of_them() {
        let text = "host=a,b hostaddr=127.0.0.1,127.0.0.2 port=1,2 user=u password=p dbname=d \
                    options='-c x=y' application_name=n connect_timeout=3 tcp_user_timeout=4 keepalives=0 \
                    keepalives_idle=5 keepalives_interval=6 keepalives_retries=7 target_session_attrs=read-write \
                    channel_binding=require sslnegotiation=direct";
        let config: Config = text.parse().expect("it is an address");
        let address = Address::from(config.clone());
        let places = hosts(&address).expect("it has hosts");
        let mut expected: Config = text
            .replace("a,b", "b")
            .replace("127.0.0.1,127.0.0.2", "127.0.0.2")
            .replace("1,2 ", "2 ")
            .parse()
            .expect("it is an address");
        expected.ssl_mode(config.get_ssl_mode());
        assert_eq!(only(&config, &places[1]), expected);
        let wrong: Config = "host=a,b,c port=1,2".parse().expect("it is an address");
        assert!(hosts(&Address::from(wrong)).is_err());
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
