//! The default name of a worker.

use super::registration::host;

/// Returns host, process id and a random part.
pub(crate) fn default_name() -> String {
    format!(
        "{}:{}:{:08x}",
        host(),
        std::process::id(),
        rand::random::<u32>()
    )
}
