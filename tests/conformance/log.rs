//! The handlers' log: the start and end of each handler, by this machine's clock.

use std::collections::HashMap;
use std::path::Path;

/// A line of the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Line {
    /// `begin`, `step NAME`, or the way in which the handler ended: `done` or `stopped`.
    pub(super) what: String,
    pub(super) job: i64,
    pub(super) attempt: i32,
    /// Milliseconds since 1970.
    pub(super) at: i64,
}

/// Reads the log; a line in another format than README.md describes is an error.
pub(super) fn read(path: &Path) -> Result<Vec<Line>, String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may be incomplete.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(line).collect()
}

fn line(text: &str) -> Result<Line, String> {
    let words: Vec<&str> = text.split(' ').collect();
    let (what, rest) = match words[..] {
        ["begin", ref rest @ ..] => ("begin", rest),
        ["step", ref rest @ .., _] => ("step ", rest),
        ["end", ref rest @ .., how @ ("done" | "stopped")] => (how, rest),
        _ => return Err(format!("no line of a log: {text:?}")),
    };
    let parsed = match rest {
        [job, attempt, at] => (job.parse().ok())
            .zip(attempt.parse().ok())
            .zip(at.parse().ok()),
        _ => None,
    };
    let ((job, attempt), at) = parsed.ok_or(format!("no line of a log: {text:?}"))?;
    let name = if what == "step " {
        words[words.len() - 1]
    } else {
        ""
    };
    Ok(Line {
        what: format!("{what}{name}"),
        job,
        attempt,
        at,
    })
}

/// Returns the largest number of handlers that ran at once.
pub(super) fn most_at_once(lines: &[Line]) -> usize {
    let mut sorted: Vec<&Line> = lines.iter().collect();
    // Within a millisecond, ends sort first, since no overlap is visible.
    sorted.sort_by_key(|line| (line.at, line.what == "begin"));
    let (mut running, mut most) = (0_usize, 0);
    for line in sorted {
        match line.what.as_str() {
            "begin" => running += 1,
            _ => running = running.saturating_sub(1),
        }
        most = most.max(running);
    }
    most
}

/// Returns pairs of attempts of one job in which the second began before the first had ended.
pub(super) fn overlaps(lines: &[Line]) -> Vec<String> {
    let mut open: HashMap<i64, &Line> = HashMap::new();
    let mut found = Vec::new();
    for line in lines {
        if line.what != "begin" {
            open.remove(&line.job);
        } else if let Some(before) = open.insert(line.job, line) {
            found.push(format!("{before:?} has not ended before {line:?}"));
        }
    }
    found
}

#[test]
fn a_log_says_how_many_ran_at_once_and_which_attempts_overlap() {
    let lines = |text: &str| -> Vec<Line> {
        let lines: Result<_, _> = text.lines().map(line).collect();
        lines.expect("lines of a log")
    };
    let one =
        lines("begin 1 1 10\nend 1 1 20 stopped\nbegin 1 2 20\nbegin 2 1 30\nend 1 2 40 done");
    assert_eq!((most_at_once(&one), overlaps(&one).len()), (2, 0));
    let two = lines("begin 1 1 10\nbegin 1 2 20");
    assert_eq!((most_at_once(&two), overlaps(&two).len()), (2, 1));
    for wrong in [
        "",
        "begin 1 1",
        "end 1 1 10",
        "begin a 1 10",
        "end 1 1 10 well",
    ] {
        assert!(line(wrong).is_err(), "{wrong}");
    }
}
