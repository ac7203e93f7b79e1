//! The name of a worker that was given none.

use super::registration::host;

/// Returns host, process and a random part.
pub(crate) fn default_name() -> String {
    format!(
        "{}:{}:{:08x}",
        host(),
        std::process::id(),
        rand::random::<u32>()
    )
}
