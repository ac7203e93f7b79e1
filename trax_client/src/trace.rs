//! W3C trace context: the span of a distributed trace that enqueued a job.
//!
//! The context is stored in the argument `trace` of `trax.enqueue` under the names of the two HTTP
//! headers, so that workers in all languages can read and write it: `{"traceparent":
//! "00-<trace>-<span>-01", "tracestate": "vendor=value"}`. All attempts of the job share it. Input:
//! those two texts. Output: a [`TraceContext`] that is valid by
//! <https://www.w3.org/TR/trace-context>, or the reason why it is invalid.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::json::Json;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// The flags that the specification defines: sampled and random.
const KNOWN_FLAGS: u8 = 0b11;
const SAMPLED: u8 = 0b01;
/// The maximum number of members of a `tracestate`.
const MAX_MEMBERS: usize = 32;

/// The span that enqueued a job, in the form shared by tracing systems.
///
/// ```
/// use trax_client::{JobOptions, TraceContext};
///
/// let caller: TraceContext = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse()?;
/// assert!(caller.is_sampled());
/// let options = JobOptions::new().trace_context(&caller.with_state("vendor=value")?);
/// # let _ = options;
/// # Ok::<(), trax_client::MalformedTrace>(())
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TraceContext {
    trace_id: u128,
    span_id: u64,
    flags: u8,
    state: Option<String>,
}

/// The reason why a text is not a valid trace context.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MalformedTrace(String);

impl fmt::Display for MalformedTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for MalformedTrace {}

fn malformed<T>(header: &str, why: impl fmt::Display) -> Result<T, MalformedTrace> {
    Err(MalformedTrace(format!("{header}: {why}")))
}

impl FromStr for TraceContext {
    type Err = MalformedTrace;

    /// Parses a `traceparent`.
    fn from_str(text: &str) -> Result<Self, MalformedTrace> {
        let mut parts = text.splitn(5, '-');
        let mut part = |what: &str, digits: usize| match parts.next() {
            Some(hex) if hex.len() == digits && hex.bytes().all(is_lower_hex) => {
                u128::from_str_radix(hex, 16).or_else(|error| malformed(TRACEPARENT, error))
            }
            _ => malformed(
                TRACEPARENT,
                format_args!("its {what} is not {digits} hexadecimal digits in lower case"),
            ),
        };
        let version = part("version", 2)?;
        let trace_id = part("trace id", 32)?;
        let span_id = part("span id", 16)? as u64;
        let flags = part("flags", 2)? as u8;
        // Later versions may have more fields.
        if version == 0xff || (version == 0 && parts.next().is_some()) {
            return malformed(
                TRACEPARENT,
                "it has an invalid version, or is longer than its version allows",
            );
        }
        Self::of(trace_id, span_id, flags)
    }
}

impl fmt::Display for TraceContext {
    /// Writes the `traceparent`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "00-{:032x}-{:016x}-{:02x}",
            self.trace_id, self.span_id, self.flags
        )
    }
}

impl TraceContext {
    /// Returns a context from the ids of another library. Undefined flags are cleared.
    pub fn of(trace_id: u128, span_id: u64, flags: u8) -> Result<Self, MalformedTrace> {
        if trace_id == 0 || span_id == 0 {
            return malformed(TRACEPARENT, "an id of zero is invalid");
        }
        Ok(TraceContext {
            trace_id,
            span_id,
            flags: flags & KNOWN_FLAGS,
            state: None,
        })
    }

    /// Adds a `tracestate`, the vendor-specific part. An empty text sets none.
    pub fn with_state(mut self, tracestate: &str) -> Result<Self, MalformedTrace> {
        self.state = state(tracestate)?;
        Ok(self)
    }

    /// Returns the trace id.
    pub fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// Returns the id of the span that enqueued the job.
    pub fn span_id(&self) -> u64 {
        self.span_id
    }

    /// Returns the flags of the `traceparent`.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// Returns whether the caller that enqueued the job recorded its span.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Returns the `traceparent`, for a call to another system.
    pub fn traceparent(&self) -> String {
        self.to_string()
    }

    /// Returns the `tracestate`, if set.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// Returns the JSON form that is stored with the job.
    pub(crate) fn to_json(&self) -> Json {
        let json = match &self.state {
            Some(state) => json!({TRACEPARENT: self.to_string(), TRACESTATE: state}),
            None => json!({TRACEPARENT: self.to_string()}),
        };
        json.into()
    }
}

/// The two headers in a `trace`; other members are ignored.
#[derive(Default, Deserialize)]
struct Headers {
    traceparent: Option<Value>,
    tracestate: Option<Value>,
}

/// Returns the context stored with a job, and the error for any part that was dropped. Both are
/// `None` for a `trace` without a `traceparent`, which belongs to the program.
pub(crate) fn received(trace: Option<&Json>) -> (Option<TraceContext>, Option<MalformedTrace>) {
    let object = trace.filter(|trace| trace.text().trim_start().starts_with('{'));
    let headers: Headers = object
        .and_then(|trace| trace.read().ok())
        .unwrap_or_default();
    let Some(parent) = headers.traceparent else {
        return (None, None);
    };
    let parsed = match parent.as_str() {
        Some(parent) => parent.parse::<TraceContext>(),
        None => malformed(TRACEPARENT, "it is not a string"),
    };
    let context = match parsed {
        Ok(context) => context,
        Err(error) => return (None, Some(error)),
    };
    let stated = match headers.tracestate {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => state(&text),
        Some(_) => malformed(TRACESTATE, "it is not a string"),
    };
    // An invalid tracestate does not invalidate the traceparent.
    match stated {
        Ok(state) => (Some(TraceContext { state, ..context }), None),
        Err(error) => (Some(context), Some(error)),
    }
}

/// Returns a `tracestate` without its empty members; `None` if no member is left.
fn state(text: &str) -> Result<Option<String>, MalformedTrace> {
    let blank = |c: char| c == ' ' || c == '\t';
    let members: Vec<&str> = text
        .split(',')
        .map(|member| member.trim_matches(blank))
        .filter(|member| !member.is_empty())
        .collect();
    if members.len() > MAX_MEMBERS {
        return malformed(
            TRACESTATE,
            format_args!("it has more than {MAX_MEMBERS} members"),
        );
    }
    let mut keys = HashSet::new();
    for member in &members {
        match member.split_once('=') {
            Some((key, value)) if is_key(key) && is_value(value) && keys.insert(key) => {}
            _ => return malformed(TRACESTATE, format_args!("invalid member \"{member}\"")),
        }
    }
    Ok((!members.is_empty()).then(|| members.join(",")))
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Returns whether a key is `vendor` or `tenant@vendor`, by the grammar of level 2 of the
/// specification.
fn is_key(key: &str) -> bool {
    let begins = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let goes_on = |b: &u8| begins(b) || b"_-*/@".contains(b);
    let bytes = key.as_bytes();
    bytes.len() <= 256 && bytes.first().is_some_and(begins) && bytes.iter().all(goes_on)
}

/// Returns whether a value is valid. The member is already trimmed and split, so there is no
/// trailing blank and no comma.
fn is_value(value: &str) -> bool {
    let allowed = |b: u8| matches!(b, 0x20..=0x7e) && b != b'=';
    !value.is_empty() && value.len() <= 256 && value.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_right_one_survives_its_way_through_the_database() {
        let context = PARENT
            .parse::<TraceContext>()
            .and_then(|context| context.with_state(" a=1 ,, t@b=x y"));
        let context = context.expect("it is right");
        assert_eq!(
            (context.traceparent().as_str(), context.tracestate()),
            (PARENT, Some("a=1,t@b=x y"))
        );
        assert_eq!(received(Some(&context.to_json())), (Some(context), None));
    }

    #[test]
    fn what_breaks_the_grammar_is_malformed() {
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "+0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert!(text.parse::<TraceContext>().is_err(), "{text:?}");
        }
        let long = format!("a={}", "x".repeat(257));
        let many = (0..33).map(|n| format!("k{n}=1")).collect::<Vec<_>>();
        for text in [
            "a",
            "a=",
            "A=1",
            "=1",
            "a=1,a=2",
            "a=b=c",
            "a=ü",
            &long,
            &many.join(","),
        ] {
            assert!(state(text).is_err(), "{text:?}");
        }
        assert_eq!(state(" , "), Ok(None));
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let later = format!("cc{}-what-comes", &PARENT[2..]).replace("-01-", "-ff-");
        let context = later.parse::<TraceContext>().expect("it is right");
        assert_eq!(context.traceparent(), PARENT.replace("-01", "-03"));
    }

    #[test]
    fn a_bad_state_is_dropped_and_its_parent_kept() {
        let (context, dropped) = received(Some(
            &json!({"traceparent": PARENT, "tracestate": "=,="}).into(),
        ));
        assert_eq!(
            context.map(|context| context.state),
            Some(None),
            "{dropped:?}"
        );
        assert!(dropped.is_some_and(|error| error.to_string().starts_with("tracestate: ")));
        for bad in [json!({"traceparent": 7}), json!({"traceparent": "x"})] {
            let (context, dropped) = received(Some(&bad.into()));
            assert!(context.is_none() && dropped.is_some());
        }
        for own in ["{\"id\": 7}", "9", "[\"x\"]", "null", "1e400"] {
            let own = own.parse().expect("it is JSON");
            assert_eq!(received(Some(&own)), (None, None));
        }
        let beside = format!("{{\"id\": 1e400, \"traceparent\": \"{PARENT}\"}}");
        let beside = beside.parse().expect("it is JSON");
        assert!(received(Some(&beside)).0.is_some());
    }
}
