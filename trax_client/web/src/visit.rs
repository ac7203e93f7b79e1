//! One request: what was asked, by whom, and the links of its page.

use crate::identity::Person;
use crate::trouble::Trouble;

/// Longest part of a request that is a value.
const VALUE: usize = 1_000;

/// A request that has passed the gate.
pub(crate) struct Visit {
    /// The path in front of ours.
    pub(crate) base: String,
    /// Our path, without the first slash.
    pub(crate) path: String,
    pub(crate) query: Values,
    pub(crate) person: Person,
    /// Why there are no acts: nobody is known, or the options say so.
    pub(crate) read_only: Option<&'static str>,
    /// What every form carries.
    pub(crate) token: String,
}

impl Visit {
    /// Returns the address of a page; `path` is ours: "jobs/5".
    pub(crate) fn link(&self, path: &str) -> String {
        // A router that is nested does not answer with a slash behind its path.
        if path.is_empty() && !self.base.is_empty() {
            return self.base.clone();
        }
        format!("{}/{path}", self.base)
    }

    /// Returns the address of a page with some values.
    pub(crate) fn link_with(&self, path: &str, values: &[(&str, &str)]) -> String {
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(values)
            .finish();
        format!("{}/{path}?{query}", self.base)
    }
}

/// The values of a query or a form.
#[derive(Debug, Default)]
pub(crate) struct Values(Vec<(String, String)>);

impl Values {
    pub(crate) fn parse(text: &str) -> Result<Self, Trouble> {
        let pairs: Vec<(String, String)> = form_urlencoded::parse(text.as_bytes())
            .into_owned()
            .take(50)
            .collect();
        for (name, value) in &pairs {
            if value.len() > VALUE {
                return Err(Trouble::invalid(format!(
                    "a value is longer than {VALUE} bytes"
                )));
            }
            if name.contains('\0') || value.contains('\0') {
                return Err(Trouble::invalid("a value has a zero byte"));
            }
        }
        Ok(Values(pairs))
    }

    /// Returns a value that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(n, _)| n == name)?;
        Some(found.1.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Trouble> {
        match self.get(name).map(str::parse) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(Trouble::invalid(format!("{name} is not a number"))),
        }
    }
}
