//! A port for a server.

use super::Error;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::ops::Range;

/// The range to use if the kernel does not report its ports for outgoing connections. Linux'
/// default begins at 32768.
const FIRST: u16 = 10_000;
const END: u16 = 32_768;

/// Returns a port of 127.0.0.1 that is free now and outside the kernel's range for outgoing
/// connections, so that it stays free while a server starts slowly or restarts.
///
/// # Errors
///
/// If no port can be bound.
pub fn free_port() -> Result<u16, Error> {
    let ports = ports();
    let begin = rand::random::<u64>();
    for step in 0..ports.len() {
        let offset = (begin as usize).wrapping_add(step) % ports.len();
        let port = ports.start + offset as u16;
        match TcpListener::bind(("127.0.0.1", port)) {
            Ok(_) => return Ok(port),
            Err(taken) if taken.kind() == ErrorKind::AddrInUse => {}
            Err(error) => return Err(Error::of("a free port")(error)),
        }
    }
    Err(Error::new(format!("all ports of {ports:?} are taken")))
}

/// Returns the ports below those of outgoing connections.
fn ports() -> Range<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range.unwrap_or_default();
    let first = first
        .split_whitespace()
        .next()
        .and_then(|port| port.parse().ok());
    match first {
        Some(first) if first > FIRST + 1000 => FIRST..first,
        _ => FIRST..END,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_not_free_and_no_port_is_one_of_outgoing_connections() {
        let first = free_port().expect("a port is free");
        let _taken = TcpListener::bind(("127.0.0.1", first)).expect("it was free");
        for _ in 0..100 {
            let port = free_port().expect("a port is free");
            assert!(port != first && ports().contains(&port), "{port}");
        }
        let outgoing = std::net::TcpStream::connect(("127.0.0.1", first)).expect("it listens");
        let outgoing = outgoing.local_addr().expect("it has an address").port();
        assert!(!ports().contains(&outgoing), "{outgoing}");
    }
}
