//! Statements: what `statement!` and `row!` say of the files in `sql/query`, against the server.
//!
//! A session compares the names when it plans a statement; here all are planned, also those that
//! no other test runs.

use harness::session::session;
use harness::statement;
use std::collections::BTreeMap;
use std::path::Path;
use tokio_postgres::types::Type;

/// The sources of the extension, as one text.
fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("it is read").path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            text.push_str(&std::fs::read_to_string(&path).expect("it is text"));
        }
    }
}

/// What stands between `begin` and `end`, as often as it is there.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
    text.split(begin)
        .skip(1)
        .map(|rest| rest.split(end).next().expect("a part"))
        .collect()
}

/// Pairs of `name: type`, one a comma.
fn pairs(text: &str) -> Vec<(String, String)> {
    let lines = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or(""));
    let text: String = lines.collect();
    text.split(',')
        .filter_map(|pair| pair.split_once(':'))
        .map(|(name, kind)| (name.trim().to_owned(), kind.trim().to_owned()))
        .collect()
}

fn type_of(oid: &str) -> Type {
    match oid {
        "BOOLOID" => Type::BOOL,
        "INT4OID" => Type::INT4,
        "INT8OID" => Type::INT8,
        "OIDOID" => Type::OID,
        "TEXTOID" => Type::TEXT,
        "UUIDOID" => Type::UUID,
        "JSONBOID" => Type::JSONB,
        "INTERVALOID" => Type::INTERVAL,
        "TIMESTAMPTZOID" => Type::TIMESTAMPTZ,
        "BOOLARRAYOID" => Type::BOOL_ARRAY,
        "INT4ARRAYOID" => Type::INT4_ARRAY,
        "INT8ARRAYOID" => Type::INT8_ARRAY,
        "OIDARRAYOID" => Type::OID_ARRAY,
        "TIDARRAYOID" => Type::TID_ARRAY,
        "TEXTARRAYOID" => Type::TEXT_ARRAY,
        "UUIDARRAYOID" => Type::UUID_ARRAY,
        "JSONBARRAYOID" => Type::JSONB_ARRAY,
        "TIMESTAMPTZARRAYOID" => Type::TIMESTAMPTZ_ARRAY,
        other => panic!("a parameter of the type {other}"),
    }
}

/// The fields of the rows that are declared, by name; a generic row stands without its type.
fn rows(text: &str) -> BTreeMap<String, Vec<String>> {
    between(text, "row! {", "\n}")
        .into_iter()
        .filter_map(|row| {
            let (_, row) = row.split_once("struct ")?;
            let (name, fields) = row.split_once('{')?;
            let name = name.split('<').next()?.trim().to_owned();
            let fields = pairs(fields).into_iter().map(|(name, _)| name).collect();
            Some((name, fields))
        })
        .collect()
}

/// The columns of a row, or how many if they have no names.
fn columns(row: &str, rows: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    row.trim_matches(['(', ')'])
        .split(", ")
        .flat_map(|part| {
            let name = part.split('<').next().expect("a name");
            let unnamed = || vec![String::new()];
            rows.get(name).cloned().unwrap_or_else(unnamed)
        })
        .collect()
}

#[tokio::test]
async fn all_statements_have_the_parameters_and_columns_that_their_declarations_name() {
    let mut text = String::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trax_pg/src");
    sources(&folder, &mut text);
    let rows = rows(&text);
    let (_db, s) = session().await;
    let mut seen = 0;
    for declaration in between(&text, "statement!(", ");") {
        let mut quoted = declaration.split('"');
        let (Some(_), Some(file), Some(rest)) = (quoted.next(), quoted.next(), quoted.next())
        else {
            continue;
        };
        let (parameters, row) = rest.split_once("->").unwrap_or((rest, ""));
        let parameters = pairs(parameters.trim_matches(|c| " \n,{}".contains(c)));
        let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
        let types: Vec<Type> = parameters.iter().map(|(_, oid)| type_of(oid)).collect();
        let sql = statement(file, &names);
        let prepared = s.client().prepare_typed(&sql, &types).await;
        let prepared = prepared.unwrap_or_else(|error| panic!("{file}: {error:?}"));
        seen += 1;
        if row.is_empty() {
            continue;
        }
        let wanted = columns(row.trim(), &rows);
        let found: Vec<&str> = prepared
            .columns()
            .iter()
            .map(|column| column.name())
            .collect();
        if wanted == [""] {
            assert_eq!(found.len(), 1, "{file}: {found:?}");
        } else {
            assert_eq!(found, wanted, "{file}");
        }
    }
    assert!(seen > 100, "{seen} statements");
}
