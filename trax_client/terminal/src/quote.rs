//! Quoting of untrusted names in suggested commands.

/// Returns a name as a quoted SQL identifier.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Returns a name for a place where SQL parses it from a text, quoted only if necessary.
pub fn name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(plain) {
        return name.to_owned();
    }
    identifier(name)
}

/// Returns a text as an SQL literal.
pub fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if quoted.contains('\\') {
        return format!("E'{}'", quoted.replace('\\', "\\\\"));
    }
    format!("'{quoted}'")
}

/// Returns a text as a value in a connection string of `name=value` pairs.
pub fn conninfo(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}

/// Returns a text as a single shell word.
pub fn shell(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns a text as a single shell word, quoted only if necessary.
pub fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.:/-".contains(c);
    if !text.is_empty() && !text.starts_with('-') && text.chars().all(plain) {
        return text.to_owned();
    }
    shell(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(shell("a'b; rm"), r"'a'\''b; rm'");
        assert_eq!(identifier("a\"b"), "\"a\"\"b\"");
        assert_eq!(
            ["ada_1", "Ada", "1", ""].map(name),
            ["ada_1", "\"Ada\"", "\"1\"", "\"\""]
        );
        assert_eq!(
            ["jobs", "a' b=c", ""].map(conninfo),
            ["jobs", r"'a\' b=c'", "''"]
        );
        assert_eq!(literal("a'b"), "'a''b'");
        assert_eq!(literal("a\\'b"), r"E'a\\''b'");
    }
}
