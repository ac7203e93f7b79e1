//! Suggests the existing name most similar to a mistyped one.

use tokio_postgres::types::Type;
use trax_client::Error;
use trax_terminal::Failure;

use crate::output::Options;
use crate::session::Session;

/// The kinds of names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// The object of an act in the audit.
    Audited,
    Group,
    Manifest,
    Role,
    Task,
    Token,
    Worker,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Audited => "object of an act",
            Kind::Group => "group",
            Kind::Manifest => "manifest",
            Kind::Role => "role",
            Kind::Task => "task",
            Kind::Token => "token",
            Kind::Worker => "worker",
        }
    }

    /// Returns a query for the names in current use, at most $1. The history is not read.
    fn names(self) -> &'static str {
        match self {
            Kind::Group => include_str!("query/name_of_groups.sql"),
            Kind::Audited => "select distinct a.name from trax.audit a order by 1 limit $1",
            Kind::Manifest => "select m.name from trax.manifest m order by 1 limit $1",
            Kind::Role => "select r.rolname::text from pg_catalog.pg_roles r order by 1 limit $1",
            Kind::Task => include_str!("query/name_of_tasks.sql"),
            Kind::Token => include_str!("query/name_of_tokens.sql"),
            Kind::Worker => "select w.name from trax.worker_state w order by 1 limit $1",
        }
    }

    fn list(self) -> Option<&'static str> {
        match self {
            Kind::Group => Some("trax group list"),
            Kind::Manifest => Some("trax manifest list"),
            Kind::Token => Some("trax tokens"),
            Kind::Worker => Some("trax workers"),
            Kind::Audited | Kind::Role | Kind::Task => None,
        }
    }
}

/// The maximum number of names compared.
const COMPARED: i64 = 20_000;

/// Returns the names of a kind.
pub(crate) async fn names(session: &Session, kind: Kind) -> Result<Vec<String>, Failure> {
    let rows = session
        .find(kind.names(), &[(&COMPARED, Type::INT8)])
        .await?;
    Ok(rows
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()?)
}

/// Returns the name of a kind most similar to an unknown one.
pub(crate) async fn similar_to(session: &Session, kind: Kind, name: &str) -> Option<String> {
    // Only advice: a role that may not read the names still gets the error.
    let names = names(session, kind).await.unwrap_or_default();
    closest(name, &names).map(str::to_owned)
}

/// Returns the failure for an unknown name.
pub(crate) async fn unknown(session: &Session, kind: Kind, name: &str) -> Failure {
    let failure = Failure::new(format!("{} \"{name}\" does not exist", kind.word()));
    let all = kind
        .list()
        .map(|list| format!("to see what exists: {list}"));
    let meant = similar_to(session, kind, name).await;
    session.absent(match (meant, all) {
        (Some(meant), Some(all)) => failure.hint(format!("did you mean \"{meant}\"? {all}")),
        (Some(meant), None) => failure.hint(format!("did you mean \"{meant}\"?")),
        (None, Some(all)) => failure.hint(all),
        (None, None) => failure,
    })
}

/// Returns an error of the server as a failure, with a similar name if the manifest or group does
/// not exist.
pub(crate) async fn explained(session: &Session, name: &str, error: Error) -> Failure {
    let is_of = |kind: &Kind| {
        let word = format!("{} ", kind.word());
        matches!(&error, Error::UnknownName(report) if report.message.starts_with(&word))
    };
    match [Kind::Manifest, Kind::Group].into_iter().find(is_of) {
        Some(kind) => unknown(session, kind, name).await,
        None => error.into(),
    }
}

/// For an empty list, notes the names in its filters that do not exist.
pub(crate) async fn note(session: &Session, output: &Options, filters: &[(Kind, &[String])]) {
    if output.quiet || output.json {
        return;
    }
    for (kind, asked) in filters.iter().filter(|(_, asked)| !asked.is_empty()) {
        let Ok(names) = names(session, *kind).await else {
            continue;
        };
        for name in asked.iter().filter(|name| !names.contains(name)) {
            let (word, meant) = (kind.word(), question(closest(name, &names)));
            output.note(&format!("no {word} is called \"{name}\" now{meant}"));
        }
    }
}

/// Returns the end of a sentence about an unknown name.
pub(crate) fn question(meant: Option<&str>) -> String {
    meant.map_or(String::new(), |meant| {
        format!("; did you mean \"{meant}\"?")
    })
}

/// Returns the name most similar to `name`, if at most a quarter of its letters (at most three)
/// differ, or only their case. Of three letters one may differ, of fewer none.
pub(crate) fn closest<'n>(name: &str, names: &'n [String]) -> Option<&'n str> {
    let most = match name.chars().count() {
        0..=2 => 0,
        letters => (letters / 4).clamp(1, 3),
    };
    names
        .iter()
        .filter(|other| other.as_str() != name)
        .map(|other| (distance(name, other), other))
        .filter(|(distance, other)| *distance <= most || folded(name) == folded(other))
        .min()
        .map(|(_, other)| other.as_str())
}

/// Returns the number of letters to insert, remove, replace, or swap with the next, to turn one
/// name into the other; 1 if only case or separators differ.
pub(crate) fn distance(one: &str, other: &str) -> usize {
    if one == other {
        return 0;
    }
    strsim::osa_distance(&folded(one), &folded(other)).max(1)
}

/// Returns a name with its letters in lower case and one kind of separator.
fn folded(name: &str) -> String {
    let letters = name.chars().flat_map(char::to_lowercase);
    letters
        .map(|c| match c {
            '-' | '_' | ' ' => '.',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_as_far_as_its_letters_differ() {
        for (one, other, far) in [
            ("mail", "mail", 0),
            ("mail", "mial", 1),
            ("mail", "mails", 1),
            ("mail", "mal", 1),
            ("mail", "Mail", 1),
            ("mail-send", "mail.send", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), far, "{one} {other}");
            assert_eq!(distance(other, one), far, "{other} {one}");
        }
    }

    #[test]
    fn the_closest_name_is_one_that_is_close() {
        let names = ["nightly-report", "nightly-repair", "mail"].map(str::to_owned);
        assert_eq!(closest("nightly-reprot", &names), Some("nightly-report"));
        assert_eq!(closest("mali", &names), Some("mail"));
        assert_eq!(closest("mail", &names), None);
        assert_eq!(closest("weekly", &names), None);
        let short = ["m", "a-b", "etl"].map(str::to_owned);
        assert_eq!(closest("n", &short), None);
        assert_eq!(closest("M", &short), Some("m"));
        assert_eq!(closest("a_b", &short), Some("a-b"));
        assert_eq!(closest("elt", &short), Some("etl"));
        assert_eq!(closest("et", &short), None);
    }
}
