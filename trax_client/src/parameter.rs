//! Taking single parameters out of a connection string; the rest stays as it was typed.

type Parameters = Vec<(String, String)>;

/// Returns the text without the parameters of these names, and those in the order in which they
/// stand there.
pub(crate) fn take_out(text: &str, names: &[&str]) -> (String, Parameters) {
    let is_url = ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| text.starts_with(scheme));
    if is_url {
        from_url(text, names)
    } else {
        from_pairs(text, names)
    }
}

fn from_url(text: &str, names: &[&str]) -> (String, Parameters) {
    // The driver looks for the credentials first: a password may contain a question mark.
    let begin = text.find('@').unwrap_or(0);
    let Some(mark) = text[begin..].find('?').map(|at| begin + at) else {
        return (text.to_owned(), Vec::new());
    };
    let mut taken = Vec::new();
    let mut kept = Vec::new();
    for part in text[mark + 1..].split('&') {
        match part.split_once('=') {
            Some((name, value)) if names.contains(&name) => {
                taken.push((name.to_owned(), percent_decoded(value)));
            }
            _ => kept.push(part),
        }
    }
    let rest = match kept.is_empty() {
        true => text[..mark].to_owned(),
        false => format!("{}?{}", &text[..mark], kept.join("&")),
    };
    (rest, taken)
}

/// Decodes %XX. Bytes that are no UTF-8 name no file that anybody means.
fn percent_decoded(text: &str) -> String {
    let decoded = percent_encoding::percent_decode_str(text);
    decoded.decode_utf8_lossy().into_owned()
}

/// Follows the driver's grammar; where the text breaks it, the rest stays for the driver to
/// complain of.
fn from_pairs(text: &str, names: &[&str]) -> (String, Parameters) {
    let (mut kept, mut taken) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some((name, value, after)) = next_pair(rest) {
        if names.contains(&name) {
            taken.push((name.to_owned(), value));
        } else {
            kept.push_str(&rest[..rest.len() - after.len()]);
        }
        rest = after;
    }
    kept.push_str(rest);
    (kept, taken)
}

/// Returns a name, its value without quotes, and the text behind it.
fn next_pair(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start();
    let end = text.find(|c: char| c == '=' || c.is_whitespace())?;
    let (name, after) = text.split_at(end);
    let after = after.trim_start().strip_prefix('=')?.trim_start();
    let (quoted, after) = match after.strip_prefix('\'') {
        Some(inner) => (true, inner),
        None => (false, after),
    };
    let mut value = String::new();
    let mut letters = after.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            '\'' if quoted => return Some((name, value, &after[at + 1..])),
            _ if !quoted && letter.is_whitespace() => return Some((name, value, &after[at..])),
            _ => value.push(letter),
        }
    }
    (!quoted && !value.is_empty()).then_some((name, value, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, rest: &str, taken: &[&str]) {
        let (left, out) = take_out(text, &["a", "b"]);
        let out: Vec<String> = out.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(
            (left.as_str(), out),
            (rest, taken.iter().map(|s| s.to_string()).collect())
        );
    }

    #[test]
    fn the_rest_stays_as_it_was_typed() {
        check(
            "postgres://u@h/d?a=1&c=%41&b=%2Fx",
            "postgres://u@h/d?c=%41",
            &["a=1", "b=/x"],
        );
        check(
            "postgres://u:?a=1@h/d?b=2",
            "postgres://u:?a=1@h/d",
            &["b=2"],
        );
        check("postgresql://h", "postgresql://h", &[]);
        check("c='x y' a='it\\'s' d=1", "c='x y' d=1", &["a=it's"]);
        check("a = 1  c=2 b=3", "  c=2", &["a=1", "b=3"]);
        check("c=a=1 b=", "c=a=1 b=", &[]);
        check("a='open", "a='open", &[]);
        check("", "", &[]);
    }

    #[test]
    fn a_percent_that_codes_nothing_stays() {
        assert_eq!(percent_decoded("100%&%zz%41%"), "100%&%zzA%");
    }
}
