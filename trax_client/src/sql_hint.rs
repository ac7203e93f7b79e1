//! Parses the SQL in the server's hints: its arguments `name => value`, and the tokens around them.

/// The value of an argument.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// A literal as quote_literal() writes it.
    Text(String),
    /// `interval '30 s'`
    Span(String),
    /// A number, `true`, or the name of a column or an argument.
    Word(String),
    /// `now()`
    Now,
    /// `now() + interval '5 min'`
    Later(String),
    /// `array['a', 'b']`
    List(Vec<Value>),
    /// `...`
    Any,
}

/// Returns a hint in which `replace` has replaced tokens: from the text that begins with a token it
/// returns the replacement and the rest. Its second argument says whether an argument may begin
/// here that belongs to no call. Quoted parts, which may have names of others, stay as they are.
pub fn rewritten<'t>(
    hint: &'t str,
    mut replace: impl FnMut(&'t str, bool) -> Option<(String, &'t str)>,
) -> String {
    let (mut text, mut rest) = (String::with_capacity(hint.len()), hint);
    // The arguments of a call that stays belong to it.
    let mut depth = 0_usize;
    while !rest.is_empty() {
        if let Some((new, after)) = replace(rest, depth == 0 && !text.ends_with(is_of_name)) {
            text.push_str(&new);
            rest = after;
            continue;
        }
        // As in: a worker's program.
        let is_apostrophe = text.ends_with(|c: char| c.is_ascii_lowercase());
        let length = match rest.starts_with('\'') && is_apostrophe {
            true => 1,
            false => token(rest),
        };
        let (token, after) = rest.split_at(length);
        match token {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        text.push_str(token);
        rest = after;
    }
    text
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the length of the first token of a text: a quoted string of SQL or the shell, an escaped
/// character, or a character.
fn token(text: &str) -> usize {
    let mut letters = text.chars();
    match letters.next() {
        Some(quote @ ('\'' | '"')) => text[1..].find(quote).map_or(text.len(), |end| end + 2),
        Some('\\') => 1 + letters.next().map_or(0, char::len_utf8),
        letter => letter.map_or(0, char::len_utf8),
    }
}

/// Parses the argument `name => value` at the beginning of a text; returns also the rest.
pub fn argument(text: &str) -> Option<(&str, Value, &str)> {
    let end = text.find(|c: char| !c.is_ascii_lowercase() && c != '_')?;
    let (name, after) = text.split_at(end);
    let (value, after) = value(after.strip_prefix(" => ")?)?;
    (!name.is_empty()).then_some((name, value, after))
}

/// Parses the value at the beginning of a text; returns also the rest.
pub fn value(text: &str) -> Option<(Value, &str)> {
    if let Some(elements) = text.strip_prefix("array[") {
        list(elements)
    } else if let Some(after) = text.strip_prefix("...") {
        Some((Value::Any, after))
    } else if let Some(span) = text.strip_prefix("now() + interval ") {
        literal(span).map(|(span, after)| (Value::Later(span), after))
    } else if let Some(after) = text.strip_prefix("now()") {
        Some((Value::Now, after))
    } else if let Some(span) = text.strip_prefix("interval ") {
        literal(span).map(|(span, after)| (Value::Span(span), after))
    } else if let Some((text, after)) = literal(text) {
        Some((Value::Text(text), after))
    } else {
        let end = text.find(|c: char| !is_of_name(c) && !matches!(c, '-' | '.'));
        // The full stop after it is the sentence's.
        let word = text[..end.unwrap_or(text.len())].trim_end_matches('.');
        (!word.is_empty()).then(|| (Value::Word(word.to_owned()), &text[word.len()..]))
    }
}

/// Parses elements up to the closing bracket.
fn list(mut text: &str) -> Option<(Value, &str)> {
    let mut values = Vec::new();
    loop {
        text = text.trim_start_matches([' ', ',']);
        if let Some(after) = text.strip_prefix(']') {
            return Some((Value::List(values), after));
        }
        let (element, after) = value(text)?;
        values.push(element);
        text = after;
    }
}

/// Parses a literal as quote_literal() writes it.
fn literal(text: &str) -> Option<(String, &str)> {
    let (quoted, escapes) = match text.strip_prefix('E') {
        Some(quoted) => (quoted, true),
        None => (text, false),
    };
    let quoted = quoted.strip_prefix('\'')?;
    let mut value = String::new();
    let mut letters = quoted.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' if escapes => value.extend(letters.next().map(|(_, letter)| letter)),
            '\'' if letters.next_if(|(_, next)| *next == '\'').is_some() => value.push('\''),
            '\'' => return Some((value, &quoted[at + 1..])),
            _ => value.push(letter),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_every_kind_are_parsed() {
        let text = |text: &str| Value::Text(text.to_owned());
        let word = |word: &str| Value::Word(word.to_owned());
        for (sql, value, rest) in [
            ("a => 'it''s'; or", text("it's"), "; or"),
            (r"a => E'\\ ''x'", text(r"\ 'x"), ""),
            ("a => interval '30 s'.", Value::Span("30 s".to_owned()), "."),
            ("a => now(), b", Value::Now, ", b"),
            (
                "a => now() + interval '1 h'",
                Value::Later("1 h".to_owned()),
                "",
            ),
            (
                "a => array['b', 7] c",
                Value::List(vec![text("b"), word("7")]),
                " c",
            ),
            ("a => -0.5.", word("-0.5"), "."),
            ("a => ...", Value::Any, ""),
        ] {
            assert_eq!(argument(sql), Some(("a", value, rest)), "{sql}");
        }
        for sql in [
            "a => 'open",
            "a =>",
            " => 1",
            "A => 1",
            "a => (1)",
            "a => array['b'",
        ] {
            assert_eq!(argument(sql), None, "{sql}");
        }
    }

    #[test]
    fn only_what_is_not_quoted_is_replaced_and_an_apostrophe_is_no_quote() {
        let replaced = rewritten(
            "A worker's a => 1, 'a => 2', f(a => 3), \"a => 4\", ba => 5; a => 6.",
            |text, may_begin| {
                let (_, _, after) =
                    argument(text).filter(|(name, ..)| may_begin && *name == "a")?;
                Some(("X".to_owned(), after))
            },
        );
        assert_eq!(
            replaced,
            "A worker's X, 'a => 2', f(a => 3), \"a => 4\", ba => 5; X."
        );
    }
}
