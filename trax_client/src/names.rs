//! Lists of names, as callers pass them.

/// Returns the names. `AsRef<str>` refuses `"mail".chars()`, whose letters are no names and which
/// `Into<String>` would accept.
pub(crate) fn owned<N: AsRef<str>>(names: impl IntoIterator<Item = N>) -> Vec<String> {
    names
        .into_iter()
        .map(|name| name.as_ref().to_owned())
        .collect()
}
