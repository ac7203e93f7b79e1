//! A request: its path, its user, and the links of its page.

use axum::http::StatusCode;

use crate::identity::Person;
use crate::moment::Zone;
use crate::trouble::Trouble;

/// The maximum length of a value in a request, in bytes.
pub(crate) const VALUE: usize = 1_000;
/// The maximum length of a value that is JSON, in bytes.
pub(crate) const LONG: usize = 4_000;
/// The values that are JSON.
const JSON: [&str; 2] = ["input", "payload"];
/// The maximum number of values in a request: the rows of a page, and some filters.
const VALUES: usize = 100;

/// A request that has passed the checks.
pub(crate) struct Visit {
    /// The path prefix of the site.
    pub(crate) base: String,
    /// The path within the site, without the leading slash.
    pub(crate) path: String,
    /// The location of the page in a cluster.
    pub(crate) place: Option<Place>,
    pub(crate) query: Values,
    pub(crate) person: Person,
    /// The reason why acts are disabled: users are not identified, or the options disable them.
    pub(crate) read_only: Option<&'static str>,
    /// The token that every form carries.
    pub(crate) token: String,
    /// The time zone of the user's browser, as the script reports it.
    pub(crate) zone: Zone,
}

/// The location of a page in a cluster.
#[derive(Clone)]
pub(crate) struct Place {
    /// The path prefix of the pages of all shards.
    pub(crate) home: String,
    /// The numbers of all shards.
    pub(crate) shards: Vec<i32>,
    /// The shard of the page, if it is about one.
    pub(crate) shard: Option<i32>,
}

impl Visit {
    /// Returns the same visit on the pages of one shard.
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
            zone: self.zone.clone(),
        }
    }

    /// Returns the segments of the path within the site.
    pub(crate) fn words(&self) -> Vec<&str> {
        self.path.split('/').collect()
    }

    /// Returns the name of the act in the path of a form.
    pub(crate) fn act(&self) -> Result<&str, Trouble> {
        match self.words().as_slice() {
            ["act", name] => Ok(name),
            _ => Err(Trouble::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "this page takes no form",
            )),
        }
    }

    /// Returns the URL of a page; `path` is within the site: "jobs/5".
    pub(crate) fn link(&self, path: &str) -> String {
        beneath(&self.base, path)
    }

    /// Returns the URL of a page that individual shards do not have.
    pub(crate) fn site_link(&self, path: &str) -> String {
        match &self.place {
            Some(place) => beneath(&place.home, path),
            None => self.link(path),
        }
    }

    /// Returns the same URL with a query.
    pub(crate) fn site_link_with(&self, path: &str, values: &[(&str, &str)]) -> String {
        let place = self.place.as_ref();
        with(place.map_or(&self.base, |place| &place.home), path, values)
    }

    /// Returns the URL of the same page for all shards or for one; for a list, with its filters.
    pub(crate) fn link_elsewhere(&self, place: &Place, shard: Option<i32>) -> String {
        let base = match shard {
            Some(shard) => format!("{}/shards/{shard}", place.home),
            None => place.home.clone(),
        };
        if self.path.contains('/') || self.path == "live" {
            return beneath(&base, "");
        }
        // A position in one list has no meaning in another.
        let filters = self.query.0.iter().map(|(n, v)| (n.as_str(), v.as_str()));
        let filters: Vec<_> = filters
            .filter(|(name, _)| !["before", "after"].contains(name))
            .collect();
        match filters.is_empty() {
            true => beneath(&base, &self.path),
            false => with(&base, &self.path, &filters),
        }
    }

    /// Returns the URL of a page with a query.
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
    // A nested router does not match its path with a trailing slash.
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
            .take(VALUES)
            .collect();
        for (name, value) in &pairs {
            let most = if JSON.contains(&name.as_str()) {
                LONG
            } else {
                VALUE
            };
            if value.len() > most {
                let message = format!("a value is longer than {most} bytes");
                return Err(Trouble::invalid(message)
                    .hint("Use the command trax, or SQL, for longer ones."));
            }
            if name.contains('\0') || value.contains('\0') {
                return Err(Trouble::invalid("a value has a zero byte"));
            }
        }
        Ok(Values(pairs))
    }

    /// Returns a value unless it is empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(n, _)| n == name)?;
        Some(found.1.as_str()).filter(|value| !value.is_empty())
    }

    /// Returns the values of a name that is given several times, such as the selected rows of a
    /// list.
    pub(crate) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self
            .0
            .iter()
            .filter(move |(n, v)| n == name && !v.is_empty());
        named.map(|(_, value)| value.as_str())
    }

    /// Returns the names of all values.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Returns a value as a number.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, Trouble> {
        match self.get(name).map(str::parse) {
            None => Ok(None),
            Some(Ok(number)) => Ok(Some(number)),
            Some(Err(_)) => Err(Trouble::invalid(format!("{name} is not a number"))),
        }
    }
}
