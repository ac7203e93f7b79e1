//! The messages between `trax step` and the worker that runs its program, over a socket of the
//! attempt. A message is the length of a JSON document in four bytes, and the document.
//!
//! The socket has a name in Linux's abstract namespace: it needs no file, and is gone with the
//! worker. Both ends refuse another user's process at the other end.

use std::io;
use std::os::unix::net::SocketAddr;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use trax_client::Json;

/// The environment variable of a program with the name of the socket.
pub(crate) const VARIABLE: &str = "TRAX_STEP_SOCKET";

/// The longest output that is read. The server keeps at most 255 MiB (`trax.max_input_bytes`).
pub(crate) const LIMIT: usize = 256 << 20;
/// In JSON a character may have six times its length.
const LONGEST_MESSAGE: usize = 6 * LIMIT + 4096;

/// The first message of `trax step`.
#[derive(Deserialize, Serialize)]
pub(crate) enum Request {
    /// Run a command unless its output is kept. Another message follows: the output, or the reason
    /// why it cannot be kept.
    Step {
        name: String,
        undo: Option<(String, Json)>,
    },
    Sleep {
        name: String,
        time: Duration,
    },
    Signal {
        name: String,
        signal: String,
        timeout: Option<Duration>,
    },
    /// Queue a child with this task and input.
    Spawn {
        name: String,
        task: String,
        input: Json,
    },
    Children {
        name: String,
        timeout: Option<Duration>,
    },
}

/// The worker's answer. A suspended job gets none: its program is ended.
#[derive(Deserialize, Serialize)]
pub(crate) enum Answer {
    /// No output is kept: run the command.
    Run,
    /// The kept output, the payload of a signal, the id of a child, or the children.
    Kept(Json),
    TimedOut,
    /// The attempt has ended.
    Lost,
    Failed {
        error: String,
        is_permanent: bool,
    },
}

pub(crate) async fn write<T: Serialize>(stream: &mut UnixStream, message: &T) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    stream.write_u32_le(length).await?;
    stream.write_all(&text).await
}

pub(crate) async fn read<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    let length = stream.read_u32_le().await? as usize;
    if length > LONGEST_MESSAGE {
        return Err(io::Error::other("the message is too long"));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await?;
    Ok(serde_json::from_slice(&text)?)
}

/// Fails if the process at the other end is neither this user's nor root's.
pub(crate) fn check_peer(stream: &UnixStream) -> io::Result<()> {
    // SAFETY: the call has no preconditions, and cannot fail.
    let own = unsafe { libc::geteuid() };
    match stream.peer_cred()?.uid() {
        uid if uid == own || uid == 0 => Ok(()),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

#[cfg(target_os = "linux")]
pub(crate) fn address(name: &str) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn address(_: &str) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}
