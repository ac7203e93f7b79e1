//! A model of rates: sessions that read the clock and use one key, explored exhaustively.
//!
//! Each action is one step under the lock of `memory/rate`: a session reads the clock before, so
//! that others may be granted between its reading and its use, and time may pass. A granted start
//! counts with the time that was read. It may be given back, because another transaction took its
//! row. A restart loses the memory and the steps that the sessions were about to make; a key may
//! lose its entry to others.
//!
//! Each rule can be left out, and the checker then finds a window with one too many.

use stateright::{Checker, HasDiscoveries, Model as Checked, Property};

/// The time for one start, and how many may start at once.
const UNIT: u8 = 2;
const BURST: u8 = 2;
const FULL: u8 = UNIT * BURST;
/// The time at which a path ends.
const LAST: u8 = 8;

const EXACT: &str = "no window has one too many";

#[derive(Clone, Copy, Debug)]
struct Rules {
    /// A key counts as used up when the memory begins.
    used_up_at_begin: bool,
    /// A bucket keeps the latest time of the entries that were replaced.
    floor: bool,
    /// A start is given back only if none came after it.
    only_unchanged: bool,
    /// A use that has passed counts from the time that was read, not from its own.
    from_now: bool,
}

const ALL: Rules = Rules {
    used_up_at_begin: true,
    floor: true,
    only_unchanged: true,
    from_now: true,
};

#[derive(Clone, Copy, Debug)]
struct Model(Rules);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Session {
    Idle,
    /// The session has read the clock.
    Read(u8),
    /// The session was granted a start for the time `at`.
    Granted {
        at: u8,
        before: u8,
        after: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    began: Option<u8>,
    /// Until when the key is used; `None` without an entry.
    until: Option<u8>,
    floor: u8,
    sessions: [Session; 2],
    /// The times of the starts, in ascending order.
    starts: Vec<u8>,
    restarts: u8,
    replacements: u8,
    undone: u8,
    refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Action {
    TimePasses,
    ReadClock(usize),
    Consume(usize),
    Keep(usize),
    GiveBack(usize),
    ReplaceEntry,
    Restart,
}

impl Model {
    fn consume(self, state: &mut State, session: usize, at: u8) {
        let began = *state.began.get_or_insert(at);
        let unknown = match self.0.used_up_at_begin {
            true => state.floor.max(began + FULL),
            false => state.floor,
        };
        let before = state.until.unwrap_or(unknown);
        let from = if self.0.from_now {
            before.max(at)
        } else {
            before
        };
        let after = from + UNIT;
        if after > at + FULL {
            state.refused = true;
            state.sessions[session] = Session::Idle;
            return;
        }
        state.until = Some(after);
        state.starts.push(at);
        state.starts.sort_unstable();
        state.sessions[session] = Session::Granted { at, before, after };
    }

    fn give_back(self, state: &mut State, (at, before, after): (u8, u8, u8)) {
        let start = state.starts.iter().position(|&start| start == at);
        state
            .starts
            .remove(start.expect("a start that was granted"));
        state.undone += 1;
        match state.until {
            Some(until) if until == after => state.until = Some(before),
            Some(until) if !self.0.only_unchanged => state.until = Some(until - UNIT),
            _ => {}
        }
    }
}

impl Checked for Model {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: 0,
            began: None,
            until: None,
            floor: 0,
            sessions: [Session::Idle; 2],
            starts: Vec::new(),
            restarts: 0,
            replacements: 0,
            undone: 0,
            refused: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.now < LAST {
            actions.push(Action::TimePasses);
        }
        for (session, is) in state.sessions.iter().enumerate() {
            match is {
                Session::Idle => actions.push(Action::ReadClock(session)),
                Session::Read(_) => actions.push(Action::Consume(session)),
                Session::Granted { .. } => {
                    actions.push(Action::Keep(session));
                    if state.undone < 1 {
                        actions.push(Action::GiveBack(session));
                    }
                }
            }
        }
        if state.restarts < 1 {
            actions.push(Action::Restart);
        }
        if state.replacements < 1 && state.until.is_some() {
            actions.push(Action::ReplaceEntry);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::TimePasses => state.now += 1,
            Action::ReadClock(session) => state.sessions[session] = Session::Read(state.now),
            Action::Consume(session) => match state.sessions[session] {
                Session::Read(at) => self.consume(&mut state, session, at),
                _ => return None,
            },
            Action::Keep(session) => state.sessions[session] = Session::Idle,
            Action::GiveBack(session) => match state.sessions[session] {
                Session::Granted { at, before, after } => {
                    self.give_back(&mut state, (at, before, after));
                    state.sessions[session] = Session::Idle;
                }
                _ => return None,
            },
            Action::ReplaceEntry => {
                if self.0.floor {
                    state.floor = state.floor.max(state.until?);
                }
                state.until = None;
                state.replacements += 1;
            }
            Action::Restart => {
                (state.began, state.until, state.floor) = (None, None, 0);
                state.sessions = [Session::Idle; 2];
                state.restarts += 1;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXACT, |_, state: &State| state.is_exact()),
            Property::sometimes("more than a burst start", |_, state: &State| {
                state.starts.len() > usize::from(BURST) + 1
            }),
            Property::sometimes("a start is refused", |_, state: &State| state.refused),
            Property::sometimes("starts follow one given back", |_, state: &State| {
                state.undone > 0 && state.starts.len() > usize::from(BURST)
            }),
            Property::sometimes("starts follow a restart", |_, state: &State| {
                state.restarts > 0 && state.began.is_some() && state.until.is_some()
            }),
        ]
    }
}

impl State {
    /// Whether each window that begins and ends with a start has no more of them than it may.
    fn is_exact(&self) -> bool {
        self.starts.iter().enumerate().all(|(index, from)| {
            let rest = self.starts[index..].iter().zip(1..);
            rest.into_iter()
                .all(|(to, count): (&u8, u8)| count * UNIT <= FULL + (to - from))
        })
    }
}

fn explored(rules: Rules) -> impl Checker<Model> {
    Model(rules)
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join()
}

#[test]
fn no_window_has_one_too_many_starts() {
    let explored = Model(ALL).checker().threads(2).spawn_bfs().join();
    println!("{} states", explored.unique_state_count());
    explored.assert_properties();
}

#[test]
fn without_any_of_the_rules_a_window_has_one_too_many() {
    let without = [
        Rules {
            used_up_at_begin: false,
            ..ALL
        },
        Rules {
            floor: false,
            ..ALL
        },
        Rules {
            only_unchanged: false,
            ..ALL
        },
        Rules {
            from_now: false,
            ..ALL
        },
    ];
    for rules in without {
        let explored = explored(rules);
        assert!(explored.discovery(EXACT).is_some(), "{rules:?}");
    }
}
