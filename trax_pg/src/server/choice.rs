//! Arguments that take one of some words.

use crate::error::{Error, Result};

/// Returns one of the words that an argument takes, or 22023.
pub(crate) fn one_of(value: Option<String>, name: &str, words: &[&str]) -> Result<Option<String>> {
    match value {
        Some(value) if !words.contains(&value.as_str()) => Err(Error::invalid(format!(
            "argument \"{name}\" must be one of {}",
            words.join(", ")
        ))
        .detail(format!("{name} is \"{value}\"."))
        .hint(format!("Specify one of them: {name} => '{}'", words[0]))),
        other => Ok(other),
    }
}
