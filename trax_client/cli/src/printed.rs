//! The text that a program prints on a pipe, of which a bounded part is kept.
//!
//! Input: a pipe, which is read to its end. Output: the text as JSON. Text that is not JSON, or is
//! longer than the limit, becomes a JSON string of its end, which begins with the number of bytes
//! that were left out. Nothing is dropped without a word.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt};
use trax_client::Json;

/// JSON that is longer is kept as text. The server takes 1 MiB by default, and stores a string in
/// ten bytes more than its text.
pub(crate) const JSON_LIMIT: usize = (1 << 20) - 10;
/// The number of bytes kept of a text, from its end.
pub(crate) const END: usize = 4096;
/// How long pipes may stay open after the program has ended, held by background processes.
pub(crate) const PIPE_PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Printed {
    kept: Vec<u8>,
    /// The number of bytes before those kept.
    left_out: usize,
    limit: usize,
}

impl Printed {
    /// Keeps everything up to this number of bytes, or else at least the end. No more than `limit`
    /// bytes and a piece are in memory.
    pub(crate) fn new(limit: usize) -> Self {
        Printed {
            kept: Vec::new(),
            left_out: 0,
            limit: limit.max(2 * END),
        }
    }

    /// Reads to the end of the pipe.
    pub(crate) async fn read(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(mut pipe) = pipe else { return };
        let mut piece = [0; 8192];
        while let Ok(length @ 1..) = pipe.read(&mut piece).await {
            self.kept.extend_from_slice(&piece[..length]);
            if self.kept.len() > self.limit {
                let excess = self.kept.len() - END;
                self.kept.drain(..excess);
                self.left_out += excess;
            }
        }
    }

    /// Returns whether everything is kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.left_out == 0
    }

    /// Returns all bytes, unless some are left out.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        self.is_whole().then_some(&self.kept)
    }

    /// Returns the JSON, or a string of the end of the text; null for white space.
    pub(crate) fn json(&self) -> Json {
        match self.as_json() {
            Some((json, _)) => json,
            None if self.is_whole() && self.end().trim().is_empty() => Json::default(),
            None => Value::from(self.marked_end()).into(),
        }
    }

    /// Returns whether it is JSON with characters that PostgreSQL cannot store, which are replaced.
    pub(crate) fn is_replaced(&self) -> bool {
        self.as_json().is_some_and(|(_, is_replaced)| is_replaced)
    }

    /// Returns the text as JSON, if it is JSON, and whether characters in it are replaced.
    fn as_json(&self) -> Option<(Json, bool)> {
        let text = std::str::from_utf8(self.whole()?).ok()?;
        let clean = cleaned(text);
        Some((clean.parse().ok()?, clean != text))
    }

    /// Returns the end of the text, after the number of bytes left out before it.
    pub(crate) fn marked_end(&self) -> String {
        let left_out = self.left_out + self.kept.len() - end(&self.kept).len();
        let text = self.end();
        match left_out {
            0 => text.trim_end().to_owned(),
            count => format!("({count} bytes left out)\n{}", text.trim_end()),
        }
    }

    /// Returns the end of the text, without characters that PostgreSQL cannot store.
    pub(crate) fn end(&self) -> String {
        String::from_utf8_lossy(end(&self.kept)).replace('\0', "\u{fffd}")
    }
}

/// Returns at most the last `END` bytes, beginning at the start of a line if possible.
fn end(text: &[u8]) -> &[u8] {
    let Some(cut) = text.len().checked_sub(END).filter(|cut| *cut > 0) else {
        return text;
    };
    let end = &text[cut..];
    let line = end.iter().position(|byte| *byte == b'\n');
    line.map(|at| &end[at + 1..])
        .filter(|rest| !rest.is_empty())
        .unwrap_or(end)
}

/// Returns the JSON without characters that PostgreSQL cannot store: NUL and unpaired surrogates.
fn cleaned(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        clean.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = match (unit(rest), rest.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0 | 0xd800..=0xdfff), _) => {
                clean.push('\u{fffd}');
                rest = &rest[6..];
                continue;
            }
            (Some(_), _) => 6,
            // The backslash and the character that it escapes.
            (None, _) => rest.chars().take(2).map(char::len_utf8).sum(),
        };
        clean.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    clean.push_str(rest);
    clean
}

/// Returns the code unit of an escape at the beginning of the text.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns what a program printed, without a pipe.
    pub(crate) fn printed(text: &[u8]) -> Printed {
        Printed {
            kept: text.to_owned(),
            ..Printed::new(JSON_LIMIT)
        }
    }

    #[test]
    fn text_that_is_not_json_is_kept_as_a_string() {
        for (said, kept) in [
            ("{\"a\": 1.10}\n", "{\"a\": 1.10}"),
            ("done!\n", "\"done!\""),
            (
                "{\"a\": 1}\n{\"a\": 2}\n",
                "\"{\\\"a\\\": 1}\\n{\\\"a\\\": 2}\"",
            ),
            ("", "null"),
            (" \n", "null"),
            ("null", "null"),
            ("a\0b", "\"a\u{fffd}b\""),
        ] {
            assert_eq!(
                printed(said.as_bytes()).json().text().trim(),
                kept,
                "{said}"
            );
        }
        let broken = printed(b"caf\xe9 au lait").json();
        assert_eq!(broken.text(), "\"caf\u{fffd} au lait\"");
    }

    #[tokio::test]
    async fn of_a_long_text_the_end_is_kept_and_the_rest_is_counted() {
        for (length, limit) in [
            (100_000, 2 * END),
            (100_000, JSON_LIMIT),
            (3 << 20, JSON_LIMIT),
        ] {
            let long = format!("{}\nthe end\n", "x".repeat(length));
            let mut printed = Printed::new(limit);
            printed.read(Some(long.as_bytes())).await;
            assert!(printed.kept.len() <= limit, "{length} {limit}");
            let text: String = printed.json().read().expect("it is a string");
            assert_eq!(text, format!("({} bytes left out)\nthe end", length + 1));
        }
        let json = format!("\"{}\"", "x".repeat(JSON_LIMIT));
        let mut printed = Printed::new(JSON_LIMIT);
        printed.read(Some(json.as_bytes())).await;
        assert!(!printed.is_whole());
        let text: String = printed.json().read().expect("it is a string");
        let (first, rest) = text.split_once('\n').expect("two lines");
        assert_eq!(first, format!("({} bytes left out)", json.len() - END));
        assert_eq!(rest.len(), END);
    }

    #[test]
    fn what_postgresql_cannot_store_is_replaced() {
        for (said, kept) in [
            (r#""a\u0000b\\u0000""#, r#""a�b\\u0000""#),
            (r#""\ud83d\ude00 \ud83d! \ude00""#, r#""\ud83d\ude00 �! �""#),
            (
                r#"{"\n\"\u000a": "\uD800\u0000"}"#,
                r#"{"\n\"\u000a": "��"}"#,
            ),
            (r#""\u+fff""#, r#""\"\\u+fff\"""#),
            ("\"\\", r#""\"\\""#),
        ] {
            assert_eq!(printed(said.as_bytes()).json().text(), kept, "{said}");
        }
        assert!(printed(br#""\u0000""#).is_replaced());
        assert!(!printed(br#""\\u0000 \u00e9""#).is_replaced() && !printed(b"\0").is_replaced());
    }

    #[test]
    fn a_kept_end_begins_with_a_whole_line() {
        let lines: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        let kept = printed(lines.as_bytes()).end();
        assert!(kept.starts_with("line ") && kept.ends_with("line 999\n"));
        assert_eq!(end(b"short\n"), b"short\n");
        assert_eq!(end(&[b'x'; 2 * END]).len(), END);
    }
}
