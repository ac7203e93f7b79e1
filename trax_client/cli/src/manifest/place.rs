//! Locates an error reported by the server in the manifest files.
//!
//! Input: TOML files, and an error of `trax.apply`, which names a manifest or group and usually a
//! member of it or its value. Output: file, line and key.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use trax_client::Report;

/// A manifest or group in a file.
#[derive(Debug)]
pub(super) struct Place {
    file: String,
    /// "manifest" or "group".
    kind: &'static str,
    name: Option<String>,
    line: usize,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    key: String,
    line: usize,
    /// The texts in it, as an error may name only the value of a member.
    texts: Vec<String>,
}

/// Returns the manifests and groups in a TOML file; empty if it is not valid TOML.
pub(super) fn places(file: &str, text: &str) -> Vec<Place> {
    let Ok(table) = DeTable::parse(text) else {
        return Vec::new();
    };
    let line = |span: Range<usize>| text[..span.start.min(text.len())].matches('\n').count() + 1;
    let mut places = Vec::new();
    for (list, kind) in [("groups", "group"), ("manifests", "manifest")] {
        let list = table
            .get_ref()
            .iter()
            .find(|(key, _)| key.get_ref() == list);
        let items = list.and_then(|(_, value)| value.get_ref().as_array());
        for item in items.into_iter().flat_map(|items| items.iter()) {
            let Some(members) = item.get_ref().as_table() else {
                continue;
            };
            let members: Vec<Member> = members
                .iter()
                .map(|(key, value)| Member {
                    key: key.get_ref().to_string(),
                    line: line(key.span()),
                    texts: texts(value.get_ref()),
                })
                .collect();
            let named = members.iter().find(|member| member.key == "name");
            places.push(Place {
                file: file.to_owned(),
                kind,
                name: named.and_then(|member| member.texts.first().cloned()),
                line: line(item.span()),
                members,
            });
        }
    }
    places
}

fn texts(value: &DeValue<'_>) -> Vec<String> {
    match value {
        DeValue::String(text) => vec![text.to_string()],
        DeValue::Array(values) => values.iter().flat_map(|v| texts(v.get_ref())).collect(),
        _ => Vec::new(),
    }
}

/// Returns the location of the error as `file:line: key`, if it can be determined.
pub(super) fn of(report: &Report, places: &[Place]) -> Option<String> {
    let message = &report.message;
    let text = format!("{message} {}", report.detail.as_deref().unwrap_or_default());
    let named = |place: &&Place| {
        let name = place.name.as_deref()?;
        message.find(&format!("{} \"{name}\"", place.kind))
    };
    // If the message names two, it is about the first. If two have the same name, the second is the
    // duplicate.
    let named = places
        .iter()
        .rev()
        .filter_map(|place| named(&place).map(|at| (at, place)))
        .min_by_key(|(at, _)| *at)
        .map(|(_, place)| place);
    let place = named.or_else(|| {
        let quoted = |member: &Member| message.contains(&format!("member \"{}\"", member.key));
        let kind = |place: &&Place| message.starts_with(&format!("a {} ", place.kind));
        let mut of_kind = places.iter().filter(kind);
        of_kind.find(|place| place.members.iter().any(quoted))
    })?;
    let rest = match &place.name {
        Some(name) => text.replacen(&format!("{} \"{name}\"", place.kind), "", 1),
        None => text,
    };
    let others = || place.members.iter().filter(|member| member.key != "name");
    let is_quoted = |word: &str| rest.contains(&format!("\"{word}\""));
    let found = others()
        .find(|member| is_quoted(&member.key))
        .or_else(|| others().find(|member| member.texts.iter().any(|text| is_quoted(text))))
        .or_else(|| others().find(|member| has_word(&rest, &member.key)));
    let Place { file, line, .. } = place;
    Some(match found {
        Some(Member { key, line, .. }) => format!("{file}:{line}: {key}"),
        None => format!("{file}:{line}"),
    })
}

fn has_word(text: &str, word: &str) -> bool {
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|other| other == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str = "\
[[groups]]
name = \"etl\"
priority = 40

[[manifests]]
name = \"extract\"
task = \"etl\"
cron = \"61 * * * *\"
timezone = \"Europe/Atlantis\"

[[manifests]]
name = \"load\"
task = \"etl\"
depends_on = [
    \"nobody\",
]
colour = 1
";

    fn found(message: &str, detail: &str) -> Option<String> {
        let report = Report {
            sqlstate: "22023".to_owned(),
            message: message.to_owned(),
            detail: Some(detail.to_owned()),
            hint: None,
        };
        of(&report, &places("x.toml", TOML))
    }

    #[test]
    fn a_mistake_is_where_its_key_or_its_value_is() {
        for (message, detail, place) in [
            (
                "group \"etl\": member \"priority\" must be a number",
                "",
                "x.toml:3: priority",
            ),
            (
                "manifest \"extract\": the cron expression is wrong",
                "At 1.",
                "x.toml:8: cron",
            ),
            (
                "manifest \"extract\": unknown zone",
                "\"Europe/Atlantis\" is none.",
                "x.toml:9: timezone",
            ),
            (
                "manifest \"load\": manifest \"nobody\" does not exist",
                "",
                "x.toml:14: depends_on",
            ),
            (
                "a manifest has an unknown member \"colour\"",
                "",
                "x.toml:17: colour",
            ),
            ("manifest \"extract\" stands there twice", "", "x.toml:5"),
        ] {
            assert_eq!(found(message, detail).as_deref(), Some(place), "{message}");
        }
        assert_eq!(found("the server is tired", ""), None);
    }
}
