//! Locates an error reported by the server in the files of manifests or of a graph.
//!
//! Input: TOML and JSON files, and an error of `trax.apply` or `trax.enqueue_graph`, which names a
//! manifest, group or job and usually a member of it or its value. Output: file, line and, in TOML,
//! key.

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use trax_client::Report;
use trax_terminal::Failure;

/// An object in a file.
#[derive(Debug)]
pub(crate) struct Place {
    file: String,
    /// "manifest", "group", "rate", "task" or "job".
    kind: &'static str,
    name: Option<String>,
    line: usize,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    /// Its path, as in `exclusions.dates`.
    path: String,
    key: String,
    line: usize,
    /// The texts in it, as an error may name only the value of a member.
    texts: Vec<String>,
}

const LISTS: [(&str, &str); 5] = [
    ("groups", "group"),
    ("jobs", "job"),
    ("manifests", "manifest"),
    ("rates", "rate"),
    ("tasks", "task"),
];

/// Returns the objects in a file.
pub(crate) fn places(file: &str, text: &str) -> Vec<Place> {
    match DeTable::parse(text) {
        Ok(table) => in_toml(file, text, table.get_ref()),
        Err(_) => in_json(file, text),
    }
}

/// Returns an error for an object without a name, which the server could not locate.
pub(crate) fn refuse_nameless(places: &[Place]) -> Result<(), Failure> {
    let Some(Place {
        file, kind, line, ..
    }) = places.iter().find(|place| place.name.is_none())
    else {
        return Ok(());
    };
    Err(Failure::usage(format!("a {kind} has no name"))
        .hint("add a line with a text: name = \"nightly-report\"")
        .at(&format!("{file}:{line}")))
}

fn line_at(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].matches('\n').count() + 1
}

/// Returns the line of a member of the document itself, if the document is TOML.
pub(crate) fn line_of(text: &str, key: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut keys = table.get_ref().keys();
    let key = keys.find(|own| own.get_ref() == key)?;
    Some(line_at(text, key.span().start))
}

/// Returns the line, the key and the text of a number in a TOML document that is not finite, which
/// JSON cannot represent.
pub(crate) fn not_finite(text: &str) -> Option<(usize, String, String)> {
    let document = DeValue::Table(DeTable::parse(text).ok()?.into_inner());
    let (keys, at, number) = infinite(&document, 0)?;
    // A place is within a manifest, group or job.
    let keys = match keys.len() {
        1 => keys,
        _ => keys[1..].to_vec(),
    };
    Some((line_at(text, at), keys.join("."), number))
}

/// Returns the keys, the offset and the text of a number that is not finite in a value at `at`.
fn infinite<'v>(value: &'v DeValue<'_>, at: usize) -> Option<(Vec<&'v str>, usize, String)> {
    match value {
        DeValue::Float(number) => {
            let is_infinite = |number: f64| !number.is_finite();
            let number = number.as_str();
            let found = number.parse().is_ok_and(is_infinite);
            found.then(|| (Vec::new(), at, number.to_owned()))
        }
        DeValue::Array(values) => values
            .iter()
            .find_map(|value| infinite(value.get_ref(), value.span().start)),
        DeValue::Table(members) => members.iter().find_map(|(key, value)| {
            let (mut keys, at, number) = infinite(value.get_ref(), value.span().start)?;
            keys.insert(0, key.get_ref());
            Some((keys, at, number))
        }),
        _ => None,
    }
}

/// Returns the named objects in a JSON file, without their members: the parser does
/// not locate them, so the line is that of the name.
fn in_json(file: &str, text: &str) -> Vec<Place> {
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let mut places: Vec<Place> = Vec::new();
    for (list, kind) in LISTS {
        let items = document.get(list).and_then(Value::as_array);
        for item in items.into_iter().flatten() {
            let Some(name) = item.get("name").and_then(Value::as_str) else {
                continue;
            };
            let written = Value::from(name).to_string();
            let earlier =
                |place: &&Place| place.kind == kind && place.name.as_deref() == Some(name);
            let earlier = places.iter().filter(earlier).count();
            let named = text.match_indices(&written).filter(|(at, _)| {
                let key = text[..*at].trim_end().strip_suffix(':');
                key.is_some_and(|key| key.trim_end().ends_with("\"name\""))
            });
            places.extend(named.map(|(at, _)| at).nth(earlier).map(|at| Place {
                file: file.to_owned(),
                kind,
                name: Some(name.to_owned()),
                line: line_at(text, at),
                members: Vec::new(),
            }));
        }
    }
    places
}

fn in_toml(file: &str, text: &str, table: &DeTable<'_>) -> Vec<Place> {
    let mut places = Vec::new();
    for (list, kind) in LISTS {
        let list = table.iter().find(|(key, _)| key.get_ref() == list);
        let items = list.and_then(|(_, value)| value.get_ref().as_array());
        for item in items.into_iter().flat_map(|items| items.iter()) {
            let Some(members) = item.get_ref().as_table() else {
                continue;
            };
            let members = members_of(text, "", members);
            let named = members.iter().find(|member| member.path == "name");
            places.push(Place {
                file: file.to_owned(),
                kind,
                name: named.and_then(|member| member.texts.first().cloned()),
                line: line_at(text, item.span().start),
                members,
            });
        }
    }
    places
}

/// Returns the members of a table, and behind them those of the tables in it. An input has any.
fn members_of(text: &str, above: &str, table: &DeTable<'_>) -> Vec<Member> {
    let mut members = Vec::new();
    let mut inner = Vec::new();
    for (key, value) in table {
        let path = format!("{above}{}", key.get_ref());
        if path != "input" {
            for table in tables(value.get_ref()) {
                inner.extend(members_of(text, &format!("{path}."), table));
            }
        }
        members.push(Member {
            path,
            key: key.get_ref().to_string(),
            line: line_at(text, key.span().start),
            texts: texts(value.get_ref()),
        });
    }
    members.append(&mut inner);
    members
}

/// Returns a table, or the tables in a list.
fn tables<'v, 't>(value: &'v DeValue<'t>) -> Vec<&'v DeTable<'t>> {
    match value {
        DeValue::Table(table) => vec![table],
        DeValue::Array(values) => values.iter().flat_map(|v| tables(v.get_ref())).collect(),
        _ => Vec::new(),
    }
}

fn texts(value: &DeValue<'_>) -> Vec<String> {
    match value {
        DeValue::String(text) => vec![text.to_string()],
        DeValue::Array(values) => values.iter().flat_map(|v| texts(v.get_ref())).collect(),
        _ => Vec::new(),
    }
}

/// Returns the location of the error as `file:line: key`, if it can be determined.
pub(crate) fn of(report: &Report, places: &[Place]) -> Option<String> {
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
    let others = || place.members.iter().filter(|member| member.path != "name");
    let is_quoted = |word: &str| rest.contains(&format!("\"{word}\""));
    // A detail may quote the whole object, and so every key of it.
    let is_named = |key: &str| rest.contains(&format!("member \"{key}\""));
    let found = others()
        .find(|member| is_named(&member.key))
        .or_else(|| others().find(|member| is_quoted(&member.key)))
        .or_else(|| others().find(|member| member.texts.iter().any(|text| is_quoted(text))))
        .or_else(|| others().find(|member| has_word(&rest, &member.path)))
        .or_else(|| {
            let is_statement = rest.contains("the statement cannot be parsed");
            others().find(|member| is_statement && member.key == "sql")
        });
    let Place { file, line, .. } = place;
    Some(match found {
        Some(Member { path, line, .. }) => format!("{file}:{line}: {path}"),
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

[manifests.input]
sizes = 1

[manifests.exclusions]
days_of_week = [\"SUN\"]

[[manifests.exclusions.time_windows]]
from = \"22:00\"
size = \"25:00\"
";

    fn report(message: &str, detail: &str) -> Report {
        Report {
            sqlstate: "22023".to_owned(),
            message: message.to_owned(),
            detail: Some(detail.to_owned()),
            hint: None,
        }
    }

    fn found(message: &str, detail: &str) -> Option<String> {
        of(&report(message, detail), &places("x.toml", TOML))
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
                "manifest \"load\": a manifest has an unknown member \"colour\"",
                "The object is {\"colour\":1,\"depends_on\":[\"nobody\"],\"task\":\"etl\"}.",
                "x.toml:17: colour",
            ),
            (
                "manifest \"load\": the exclusions are not valid: unknown key \"size\"",
                "It is at time_windows[0].",
                "x.toml:27: exclusions.time_windows.size",
            ),
            (
                "manifest \"load\": the exclusions are not valid: \"25:00\" is not a time",
                "",
                "x.toml:27: exclusions.time_windows.size",
            ),
            (
                "manifest \"load\": the exclusions are not valid: the window begins on no day",
                "",
                "x.toml:22: exclusions",
            ),
            ("manifest \"extract\" stands there twice", "", "x.toml:5"),
        ] {
            assert_eq!(found(message, detail).as_deref(), Some(place), "{message}");
        }
        assert_eq!(found("the server is tired", ""), None);
        let sql = "[[manifests]]\nname = \"m\"\n\nsql = \"selct 1\"\n";
        let places = places("x.toml", sql);
        let message = "manifest \"m\": the statement cannot be parsed: syntax error at or near";
        assert_eq!(
            of(&report(message, ""), &places).as_deref(),
            Some("x.toml:4: sql")
        );
    }

    #[test]
    fn a_member_of_the_document_has_its_line_in_toml() {
        assert_eq!(line_of(TOML, "groups"), Some(1));
        assert_eq!(line_of("a = 1\n\nscedule = 2\n", "scedule"), Some(3));
        assert_eq!(line_of(TOML, "group"), None);
        assert_eq!(line_of("{\"groups\": []}", "groups"), None);
    }

    #[test]
    fn in_json_the_line_is_that_of_the_name() {
        let text = r#"{"groups": [{"name": "m"}],
            "manifests": [
                {"input": "m", "name": "it's \"new\""},
                {"name" : "m", "task": "t"}, {"task": "t",
                 "name": "m"}]}"#;
        let places = places("x.json", text);
        let at = |message: &str| of(&report(message, ""), &places);
        let new = "manifest \"it's \"new\"\": no";
        assert_eq!(at(new).as_deref(), Some("x.json:3"));
        assert_eq!(at("group \"m\": no").as_deref(), Some("x.json:1"));
        // The second is the duplicate.
        assert_eq!(places.len(), 4);
    }

    #[test]
    fn a_number_that_is_not_finite_has_its_line_and_key() {
        let of = |text: &str| {
            not_finite(text).map(|(line, key, number)| format!("{line} {key} {number}"))
        };
        let text =
            "[[manifests]]\nname = \"m\"\n[manifests.input]\na = [1.5, { \"b c\" = [\n  -inf] }]\n";
        assert_eq!(of(text).as_deref(), Some("5 input.a.b c -inf"));
        assert_eq!(
            of("[[jobs]]\ninput = { n = nan }").as_deref(),
            Some("2 input.n nan")
        );
        assert_eq!(of("x = 1e999").as_deref(), Some("1 x 1e999"));
        assert_eq!(of("x = [1_000.5, 1, \"inf\"]\n[inf]\nnan = 2"), None);
    }

    #[test]
    fn a_job_of_a_graph_has_its_line() {
        let graph = "[[jobs]]\nname = \"load\"\ntask = \"t\"\nneeds = [\"fetch\"]\n";
        let message = "job \"load\": needs \"fetch\", which is not in the document";
        let found = of(&report(message, ""), &places("g.toml", graph));
        assert_eq!(found.as_deref(), Some("g.toml:4: needs"));
    }

    #[test]
    fn a_manifest_without_a_name_is_refused_at_its_line() {
        let text = "[[groups]]\nname = \"g\"\n\n[[manifests]]\ntask = \"t\"\n";
        let refusal = refuse_nameless(&places("x.toml", text)).map_err(|f| f.to_string());
        assert_eq!(refusal, Err("x.toml:4: a manifest has no name".to_owned()));
        assert!(refuse_nameless(&places("x.toml", TOML)).is_ok());
    }
}
