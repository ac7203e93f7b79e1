//! One request: what was asked, by whom, and the links of its page.

use axum::http::StatusCode;

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
    /// Where in a cluster the page is.
    pub(crate) place: Option<Place>,
    pub(crate) query: Values,
    pub(crate) person: Person,
    /// Why there are no acts: nobody is known, or the options say so.
    pub(crate) read_only: Option<&'static str>,
    /// What every form carries.
    pub(crate) token: String,
}

/// Where in a cluster a page is.
#[derive(Clone)]
pub(crate) struct Place {
    /// The path in front of the pages of all shards.
    pub(crate) home: String,
    /// The numbers of all shards.
    pub(crate) shards: Vec<i32>,
    /// The one whose page it is.
    pub(crate) shard: Option<i32>,
}

impl Visit {
    /// Returns the same visit of the pages of one shard.
    pub(crate) fn of_shard(&self, number: i32, path: &str) -> Visit {
        let place = self.place.as_ref();
        Visit {
            base: format!("{}/shards/{number}", self.base),
            path: path.to_owned(),
            place: place.map(|place| Place {
                shard: Some(number),
                ..place.clone()
            }),
            query: self.query.clone(),
            person: self.person.clone(),
            read_only: self.read_only,
            token: self.token.clone(),
        }
    }

    /// Returns the parts of our path.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.path.split('/').collect()
    }

    /// Returns the name of the act that a form of this path asks for.
    pub(crate) fn act(&self) -> Result<&str, Trouble> {
        match self.words().as_slice() {
            ["act", name] => Ok(name),
            _ => Err(Trouble::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this page takes no form",
            )),
        }
    }

    /// Returns the address of a page; `path` is ours: "jobs/5".
    pub(crate) fn link(&self, path: &str) -> String {
        beneath(&self.base, path)
    }

    /// Returns the address of what no shard has for itself.
    pub(crate) fn site_link(&self, path: &str) -> String {
        match &self.place {
            Some(place) => beneath(&place.home, path),
            None => self.link(path),
        }
    }

    /// Returns the same with some values.
    pub(crate) fn site_link_with(&self, path: &str, values: &[(&str, &str)]) -> String {
        let place = self.place.as_ref();
        with(place.map_or(&self.base, |place| &place.home), path, values)
    }

    /// Returns the address of the same page of all shards, or of one; of a list with its filters.
    pub(crate) fn link_elsewhere(&self, place: &Place, shard: Option<i32>) -> String {
        let base = match shard {
            Some(shard) => format!("{}/shards/{shard}", place.home),
            None => place.home.clone(),
        };
        if self.path.contains('/') || self.path == "live" {
            return beneath(&base, "");
        }
        // How far a list was read means nothing in another.
        let filters = self.query.0.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        let filters: Vec<_> = filters
            .filter(|(name, _)| !["before", "after"].contains(name))
            .collect();
        match filters.is_empty() {
            true => beneath(&base, &self.path),
            false => with(&base, &self.path, &filters),
        }
    }

    /// Returns the address of a page with some values.
    pub(crate) fn link_with(&self, path: &str, values: &[(&str, &str)]) -> String {
        with(&self.base, path, values)
    }
}

fn with(base: &str, path: &str, values: &[(&str, &str)]) -> String {
    let query = form_urlencoded::Serializer::new(String::new())
        .extend_pairs(values)
        .finish();
    format!("{base}/{path}?{query}")
}

fn beneath(base: &str, path: &str) -> String {
    // A router that is nested does not answer with a slash behind its path.
    if path.is_empty() && !base.is_empty() {
        return base.to_owned();
    }
    format!("{base}/{path}")
}

/// The values of a query or a form.
#[derive(Clone, Debug, Default)]
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
