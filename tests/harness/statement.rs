//! The statements of the product, as declared by `statement!` and `row!`.

use std::collections::BTreeMap;
use std::path::Path;

/// A statement of `sql/query`, as the product runs it.
pub struct Statement {
    /// The name in the sources.
    pub name: String,
    /// The file.
    pub file: String,
    /// The text, with numbered parameters.
    pub sql: String,
    /// The parameters in order, with their types.
    pub parameters: Vec<(String, String)>,
    /// The row type of the result; empty if no row is read.
    pub row: String,
}

/// Returns all statements, and the columns of the row types.
pub fn declared() -> (Vec<Statement>, BTreeMap<String, Vec<String>>) {
    let mut text = String::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trax_pg/src");
    sources(&folder, &mut text);
    let statements = between(&text, "statement!(", ");").into_iter();
    (statements.filter_map(statement_of).collect(), rows(&text))
}

/// Returns the text of a statement, with numbered parameters.
pub fn statement(name: &str) -> String {
    let (all, _) = declared();
    let found = all.into_iter().find(|one| one.name == name);
    found.unwrap_or_else(|| panic!("the statement {name}")).sql
}

fn statement_of(declaration: &str) -> Option<Statement> {
    let (name, rest) = declaration.split_once(',')?;
    let (_, rest) = rest.split_once('"')?;
    let (file, rest) = rest.split_once('"')?;
    let path = format!("{}/../sql/query/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut sql = std::fs::read_to_string(path).ok()?;
    let (texts, rest) = texts(rest);
    for (name, text) in texts {
        sql = sql.replace(&format!("{{{name}}}"), &text);
    }
    let (parameters, row) = rest.split_once("->").unwrap_or((rest, ""));
    let parameters = pairs(parameters.trim_matches(|c| " \n,{}".contains(c)));
    Some(Statement {
        name: name.trim().to_owned(),
        file: file.to_owned(),
        sql: numbered(file, &sql, &parameters),
        parameters,
        row: row.trim().to_owned(),
    })
}

/// Returns the texts of `with`, and the remaining text.
fn texts(rest: &str) -> (Vec<(String, String)>, &str) {
    let Some(mut rest) = rest.trim_start().strip_prefix("with {") else {
        return (Vec::new(), rest);
    };
    let mut found = Vec::new();
    while let Some((before, after)) = rest.split_once('"')
        && !before.contains('}')
    {
        let name = before
            .trim_end_matches([':', ' '])
            .rsplit([',', ' ', '\n'])
            .next();
        let quoted = after.replace("\\\"", "\0\0");
        let end = quoted.find('"').expect("a text ends");
        found.push((
            name.expect("a name").to_owned(),
            quoted[..end].replace("\0\0", "\""),
        ));
        rest = &after[end + 1..];
    }
    (found, rest.split_once('}').expect("the texts end").1)
}

fn numbered(file: &str, sql: &str, parameters: &[(String, String)]) -> String {
    let mut parts = sql.split('$');
    let mut text = parts.next().expect("a text").to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (name, rest) = part.split_at(end.unwrap_or(part.len()));
        let number = parameters.iter().position(|(known, _)| known == name);
        let number = number.unwrap_or_else(|| panic!("{file} has the parameter {name}")) + 1;
        text.push_str(&format!("${number}{rest}"));
    }
    text
}

/// Reads the sources of the extension into one text.
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

/// Returns every text between `begin` and `end`.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> Vec<&'a str> {
    text.split(begin)
        .skip(1)
        .map(|rest| rest.split(end).next().expect("a part"))
        .collect()
}

/// Parses comma-separated pairs of `name: type`.
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

/// Returns the fields of the declared rows, by name; a generic row is listed without its type.
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
