//! Manifest files: TOML or JSON, each a document for `trax.apply`; several form one document.

use std::path::Path;

use serde_json::{Map, Value};

use crate::document::{Kind, parse, text};
use crate::place::{Place, line_of, places, refuse_nameless};
use crate::similar::closest;
use trax_terminal::Failure;

/// The members that a document may have.
const LISTS: [&str; 4] = ["groups", "manifests", "rates", "tasks"];

const KIND: Kind = Kind {
    json: "a document is {\"groups\": [...], \"manifests\": [...]}, or TOML",
    toml: "a manifest is [[manifests]], then lines such as name = \"nightly\"",
};

/// The files as one document, and the locations of its parts.
pub(super) struct Document {
    pub(super) value: Value,
    pub(super) places: Vec<Place>,
}

/// Returns the files as one document.
pub(super) fn read(files: &[String]) -> Result<Document, Failure> {
    let mut whole: Map<String, Value> = Map::new();
    let mut found = Vec::new();
    for list in LISTS {
        whole.insert(list.to_owned(), Value::Array(Vec::new()));
    }
    for file in named(files)? {
        let text = text(&file)?;
        let document = parse(&file, &text, &KIND)?;
        add(&mut whole, document, |key| match line_of(&text, key) {
            Some(line) => format!("{file}:{line}"),
            None => file.clone(),
        })?;
        found.extend(places(&file, &text));
    }
    refuse_nameless(&found)?;
    Ok(Document {
        value: Value::Object(whole),
        places: found,
    })
}

/// Returns the files, with each directory replaced by its files in the order of their names.
fn named(files: &[String]) -> Result<Vec<String>, Failure> {
    let mut all = Vec::new();
    for file in files {
        if !Path::new(file).is_dir() {
            all.push(file.clone());
            continue;
        }
        let unreadable = |error| Failure::usage(format!("{file} cannot be read: {error}"));
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(file).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            let ending = path.extension().and_then(|ending| ending.to_str());
            if matches!(ending, Some("toml" | "json")) {
                inside.push(path.display().to_string());
            }
        }
        if inside.is_empty() {
            return Err(Failure::usage(format!("{file} has no .toml or .json file")));
        }
        inside.sort();
        all.append(&mut inside);
    }
    Ok(all)
}

/// Adds the lists of a document. `at` returns the location of a member.
fn add(
    whole: &mut Map<String, Value>,
    document: Value,
    at: impl Fn(&str) -> String,
) -> Result<(), Failure> {
    let Value::Object(document) = document else {
        return Err(Failure::usage("the document is not an object")
            .hint("a document is {\"groups\": [...], \"manifests\": [...]}")
            .at(&at("")));
    };
    for (key, value) in document {
        let failure = match (whole.get_mut(&key), value) {
            (Some(Value::Array(all)), Value::Array(more)) => {
                all.extend(more);
                continue;
            }
            (Some(_), _) => Failure::usage(format!("\"{key}\" is not a list"))
                .hint(format!("in TOML each element begins with [[{key}]]")),
            (None, _) => {
                let all = format!("the members are {}", LISTS.join(", "));
                let hint = match closest(&key, &LISTS.map(str::to_owned)) {
                    Some(meant) => format!("write \"{meant}\"; {all}"),
                    None => all,
                };
                Failure::usage(format!("the document has an unknown member \"{key}\"")).hint(hint)
            }
        };
        return Err(failure.at(&at(&key)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn toml_and_json_say_the_same() {
        let toml = "[[manifests]]\nname = \"a\"\ntask = \"t\"\nrun_at = 2030-01-01T10:00:00Z\n\
                    input = { n = 1, list = [1.5, true] }\n";
        let expected = json!({"manifests": [
            {"name": "a", "task": "t", "run_at": "2030-01-01T10:00:00Z", "input": {"n": 1, "list": [1.5, true]}}
        ]});
        assert_eq!(parse("x.toml", toml, &KIND).ok(), Some(expected.clone()));
        assert_eq!(
            parse("x.json", &expected.to_string(), &KIND).ok(),
            Some(expected.clone())
        );
        assert_eq!(
            parse("-", &expected.to_string(), &KIND).ok(),
            Some(expected)
        );
    }

    #[test]
    fn a_mistake_is_reported_with_its_line() {
        let said = parse("x.toml", "[[manifests]]\nname = \n", &KIND).map_err(|f| f.to_string());
        assert!(said.is_err_and(|text| text.contains("x.toml") && text.contains("line 2")));
    }

    #[test]
    fn several_files_are_one_document() {
        let mut whole = Map::new();
        whole.insert("manifests".to_owned(), json!([]));
        let one = json!({"manifests": [{"name": "a"}]});
        let two = json!({"manifests": [{"name": "b"}]});
        let at = |key: &str| format!("file: {key}");
        assert!(add(&mut whole, one, at).is_ok() && add(&mut whole, two, at).is_ok());
        assert_eq!(whole["manifests"], json!([{"name": "a"}, {"name": "b"}]));
        assert!(add(&mut whole, json!({"manifest": []}), at).is_err());
        assert!(add(&mut whole, json!({"manifests": {}}), at).is_err());
    }
}
