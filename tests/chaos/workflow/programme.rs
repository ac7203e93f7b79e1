//! The programme of a workflow: words in the input of its job, which its handler executes and from
//! which a checker computes what had to happen.
//!
//! - `row`: a step whose row commits with its record; `row!`: with an undo
//! - `note`: a step whose work runs before its record; `note!`: with an undo
//! - `sleep=300`: milliseconds
//! - `signal=a`, `signal=a=1500`: a signal of a name, for a time at most
//! - `child=row,sleep=200`: a child with a programme
//! - `children=all`, `children=any=800`: a wait for the children, for a time at most
//! - `slip=2`: the first two attempts end here with an error
//! - `fail`: the job fails for good

use crate::random::Random;
use std::collections::BTreeMap;
use std::time::Duration;

/// The names of signals.
pub(crate) const SIGNALS: [&str; 2] = ["a", "b"];
/// The step of each wait for children, as the client names it.
const CHILDREN: &str = "children";

/// The act of a word of a programme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Row { undo: bool },
    Note { undo: bool },
    Sleep(Duration),
    Signal(String, Option<Duration>),
    Child(String),
    Children { any: bool, within: Option<Duration> },
    Slip(i32),
    Fail,
}

/// A word of a programme, and the step that it records, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Act {
    pub(crate) step: Option<String>,
    pub(crate) deed: Deed,
}

impl Act {
    /// The name under which the handler calls the client; the client numbers repeated names.
    pub(crate) fn name(&self) -> &str {
        match &self.deed {
            Deed::Signal(name, _) => name,
            Deed::Children { .. } => CHILDREN,
            _ => self.step.as_deref().unwrap_or_default(),
        }
    }

    /// The kind of its step in `trax.step`.
    pub(crate) fn kind(&self) -> &'static str {
        match self.deed {
            Deed::Row { .. } | Deed::Note { .. } => "step",
            Deed::Sleep(_) => "sleep",
            Deed::Signal(..) => "signal",
            Deed::Child(_) => "child",
            Deed::Children { .. } => "jobs",
            Deed::Slip(_) | Deed::Fail => "",
        }
    }
}

fn millis(text: &str) -> Duration {
    Duration::from_millis(text.parse().expect("a programme has whole milliseconds"))
}

fn deed(word: &str) -> Deed {
    let parts: Vec<&str> = word.splitn(3, '=').collect();
    let within = || parts.get(2).map(|text| millis(text));
    match parts[..] {
        ["row"] => Deed::Row { undo: false },
        ["row!"] => Deed::Row { undo: true },
        ["note"] => Deed::Note { undo: false },
        ["note!"] => Deed::Note { undo: true },
        ["sleep", time] => Deed::Sleep(millis(time)),
        ["signal", name, ..] => Deed::Signal(name.to_owned(), within()),
        ["child", ..] => Deed::Child(word["child=".len()..].replace(',', " ")),
        ["children", mode, ..] => Deed::Children {
            any: mode == "any",
            within: within(),
        },
        ["slip", attempts] => Deed::Slip(attempts.parse().expect("a number of attempts")),
        ["fail"] => Deed::Fail,
        _ => panic!("a programme has no word {word:?}"),
    }
}

/// Parses a programme.
pub(crate) fn acts(plan: &str) -> Vec<Act> {
    let mut used: BTreeMap<String, u32> = BTreeMap::new();
    let words = plan.split_whitespace().enumerate();
    words
        .map(|(place, word)| {
            let deed = deed(word);
            let step = match &deed {
                Deed::Row { .. } => Some(format!("row.{place}")),
                Deed::Note { .. } => Some(format!("note.{place}")),
                Deed::Sleep(_) => Some(format!("sleep.{place}")),
                Deed::Child(_) => Some(format!("child.{place}")),
                Deed::Signal(name, _) => Some(numbered(&mut used, name)),
                Deed::Children { .. } => Some(numbered(&mut used, CHILDREN)),
                Deed::Slip(_) | Deed::Fail => None,
            };
            Act { step, deed }
        })
        .collect()
}

fn numbered(used: &mut BTreeMap<String, u32>, name: &str) -> String {
    let count = used.entry(name.to_owned()).or_default();
    *count += 1;
    match *count {
        1 => name.to_owned(),
        more => format!("{name}#{more}"),
    }
}

/// The programme of the job that undoes a step.
pub(crate) fn undo_plan(step: &str) -> &'static str {
    match step.len() % 3 {
        0 => "slip=1 row",
        1 => "row sleep=150",
        _ => "row",
    }
}

/// Draws a programme. One that spawns children or has undo jobs cannot move to another shard.
pub(crate) fn draw(random: &mut Random, may_have_family: bool) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut children = 0;
    for _ in 0..random.between(2, 7) {
        let word = match random.below(if may_have_family { 12 } else { 7 }) {
            0 | 1 => "row".to_owned(),
            2 => "note".to_owned(),
            3 => format!("sleep={}", random.between(50, 2_500)),
            4 | 5 => signal(random),
            6 => format!("slip={}", random.between(1, 2)),
            7 | 8 => {
                children += 1;
                format!("child={}", child(random))
            }
            9 => "row!".to_owned(),
            10 => "note!".to_owned(),
            _ => wait_for_children(random),
        };
        words.push(word);
    }
    if children > 0 && random.percent(80) {
        words.push(wait_for_children(random));
        if random.percent(30) {
            words.push("row".to_owned());
        }
    }
    if random.percent(25) {
        words.push("fail".to_owned());
    }
    words.join(" ")
}

fn signal(random: &mut Random) -> String {
    let name = SIGNALS[random.below(SIGNALS.len() as u64) as usize];
    match random.percent(35) {
        true => format!("signal={name}={}", random.between(100, 3_000)),
        false => format!("signal={name}"),
    }
}

fn wait_for_children(random: &mut Random) -> String {
    let mode = if random.percent(35) { "any" } else { "all" };
    match random.percent(25) {
        true => format!("children={mode}={}", random.between(100, 2_000)),
        false => format!("children={mode}"),
    }
}

fn child(random: &mut Random) -> String {
    const PLANS: [&str; 8] = [
        "row",
        "note,row",
        "sleep=700,row",
        "row!,fail",
        "slip=1,row",
        "signal=a,row",
        "child=row,children=all,row",
        "row!,row!,sleep=400,fail",
    ];
    // A grandchild's programme has one word.
    PLANS[random.below(PLANS.len() as u64) as usize].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_programme_names_its_steps_as_the_client_does() {
        let acts = acts(
            "row! signal=a slip=1 signal=a=50 child=row,sleep=5 children=any=7 children=all fail",
        );
        let steps: Vec<_> = acts.iter().filter_map(|act| act.step.as_deref()).collect();
        let named = ["row.0", "a", "a#2", "child.4", "children", "children#2"];
        assert_eq!(steps, named);
        assert_eq!(acts[4].deed, Deed::Child("row sleep=5".to_owned()));
        let within = Some(Duration::from_millis(50));
        assert_eq!(acts[3].deed, Deed::Signal("a".to_owned(), within));
    }

    #[test]
    fn every_word_is_drawn_and_can_be_read() {
        let mut random = Random::new(1, "programme");
        let drawn: Vec<String> = (0..300).map(|_| draw(&mut random, true)).collect();
        let all = drawn.join(" ");
        for word in [
            "row",
            "row!",
            "note",
            "note!",
            "sleep=",
            "signal=a",
            "child=",
            "children=any",
            "slip=",
            "fail",
        ] {
            assert!(all.contains(word), "{word}");
        }
        let mut alone = (0..300).map(|_| draw(&mut random, false));
        assert!(alone.all(|plan| !plan.contains("child") && !plan.contains('!')));
        for plan in drawn {
            for act in acts(&plan) {
                if let Deed::Child(plan) = act.deed {
                    acts(&plan);
                }
            }
        }
    }
}
