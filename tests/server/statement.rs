//! Statements: the declarations of `statement!` and `row!` match the files in `sql/query` and the
//! server.
//!
//! A session compares the names when it plans a statement. Here all are planned, including those
//! that no other test runs.

use harness::session::session;
use harness::statement::declared;
use std::collections::BTreeMap;
use tokio_postgres::types::Type;

fn type_of(oid: &str) -> Type {
    match oid {
        "BOOLOID" => Type::BOOL,
        "INT2OID" => Type::INT2,
        "INT4OID" => Type::INT4,
        "INT8OID" => Type::INT8,
        "FLOAT8OID" => Type::FLOAT8,
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
        "TIDOID" => Type::TID,
        "TIDARRAYOID" => Type::TID_ARRAY,
        "TEXTARRAYOID" => Type::TEXT_ARRAY,
        "UUIDARRAYOID" => Type::UUID_ARRAY,
        "JSONBARRAYOID" => Type::JSONB_ARRAY,
        "TIMESTAMPTZARRAYOID" => Type::TIMESTAMPTZ_ARRAY,
        other => panic!("a parameter of the type {other}"),
    }
}

/// The columns of a row, or their number if they have no names.
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
    let (statements, rows) = declared();
    let (_db, s) = session().await;
    assert!(statements.len() > 100, "{} statements", statements.len());
    for statement in statements {
        let file = &statement.file;
        let types = statement.parameters.iter();
        let types: Vec<Type> = types.map(|(_, oid)| type_of(oid)).collect();
        let prepared = s.client().prepare_typed(&statement.sql, &types).await;
        let prepared = prepared.unwrap_or_else(|error| panic!("{file}: {error:?}"));
        if statement.row.is_empty() {
            continue;
        }
        let wanted = columns(&statement.row, &rows);
        let found = prepared.columns().iter().map(|column| column.name());
        let found: Vec<&str> = found.collect();
        if wanted == [""] {
            assert_eq!(found.len(), 1, "{file}: {found:?}");
        } else {
            assert_eq!(found, wanted, "{file}");
        }
    }
}
