//! Whose turn it is: equal shares for the tasks of one worker.
//!
//! Enters: how many jobs are wanted, and how many a claim brought. Leaves: what the next claim asks
//! for, and of which task. Holds: while more than one task has jobs that wait, each gets a claim of
//! the same size in its turn. A task that had nothing sits some turns out; when no task has more
//! than it was asked for, one claim is for all of them, as without turns, and so an idle worker
//! sends no more claims than others.

/// The most turns in a row that a task without jobs sits out.
const LONGEST_PAUSE: u32 = 15;

/// What a claim asks for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ask {
    /// How many jobs.
    pub(crate) jobs: usize,
    /// Of this task alone.
    pub(crate) task: Option<String>,
}

pub(crate) struct Turns {
    tasks: Vec<Player>,
    /// The task whose turn it is.
    at: usize,
}

struct Player {
    task: String,
    /// It had less than it was asked for.
    short: bool,
    /// How many turns it sits out, and how many of them are left.
    pause: u32,
    skip: u32,
}

impl Turns {
    /// None for a worker that claims by age and priority alone, or one that has nothing to divide.
    pub(crate) fn new(wanted: bool, tasks: Option<&[String]>) -> Option<Self> {
        let mut tasks = tasks.filter(|tasks| wanted && tasks.len() > 1)?.to_vec();
        tasks.sort();
        let player = |task| Player {
            task,
            short: true,
            pause: 0,
            skip: 0,
        };
        Some(Turns {
            tasks: tasks.into_iter().map(player).collect(),
            at: 0,
        })
    }

    /// The next claim, of up to `want` jobs.
    pub(crate) fn ask(&self, want: usize) -> Ask {
        let more = self.tasks.iter().filter(|player| !player.short).count();
        if more == 0 {
            return Ask {
                jobs: want,
                task: None,
            };
        }
        Ask {
            jobs: want.div_ceil(more),
            task: Some(self.tasks[self.at].task.clone()),
        }
    }

    /// After that claim brought so many of the jobs it asked for: whether another one is to follow
    /// at once.
    pub(crate) fn took(&mut self, ask: &Ask, got: usize) -> bool {
        let short = got < ask.jobs;
        if ask.task.is_none() {
            for player in &mut self.tasks {
                (player.short, player.pause, player.skip) = (short, 0, 0);
            }
            // A claim may bring less than there is.
            return got > 0;
        }
        let player = &mut self.tasks[self.at];
        player.short = short;
        player.pause = if got == 0 {
            (player.pause * 2 + 1).min(LONGEST_PAUSE)
        } else {
            0
        };
        player.skip = player.pause;
        loop {
            self.at = (self.at + 1) % self.tasks.len();
            let next = &mut self.tasks[self.at];
            if next.skip == 0 {
                return true;
            }
            next.skip -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Turns {
        let tasks = ["b", "c", "a"].map(str::to_owned);
        Turns::new(true, Some(&tasks)).expect("there is something to divide")
    }

    fn turn(jobs: usize, task: &str) -> Ask {
        Ask {
            jobs,
            task: Some(task.to_owned()),
        }
    }

    const ALL: Ask = Ask {
        jobs: 10,
        task: None,
    };

    #[test]
    fn while_more_waits_each_task_gets_an_equal_share_in_turn() {
        let mut turns = three();
        assert_eq!(turns.ask(10), ALL);
        assert!(turns.took(&ALL, 10));
        for task in ["a", "b", "c", "a"] {
            let ask = turns.ask(10);
            assert_eq!(ask, turn(4, task));
            assert!(turns.took(&ask, 4));
        }
    }

    #[test]
    fn when_no_task_has_more_one_claim_is_for_all() {
        let mut turns = three();
        turns.took(&ALL, 10);
        for got in [3, 2, 1] {
            let ask = turns.ask(10);
            assert!(ask.task.is_some() && turns.took(&ask, got));
        }
        assert_eq!(turns.ask(10), ALL);
        assert!(turns.took(&ALL, 9), "there may be more than a claim brings");
        assert!(!turns.took(&ALL, 0), "nothing is left: the worker is idle");
        assert_eq!(turns.ask(10), ALL);
    }

    #[test]
    fn one_that_has_nothing_is_asked_less_and_less_and_leaves_its_share() {
        let mut turns = three();
        turns.took(&ALL, 10);
        let mut asked = Vec::new();
        for _ in 0..60 {
            let ask = turns.ask(10);
            let name = ask.task.clone().unwrap_or_default();
            turns.took(&ask, if name == "a" { ask.jobs } else { 0 });
            asked.push((name, ask.jobs));
        }
        let full = asked[10..]
            .iter()
            .filter(|ask| **ask == ("a".to_owned(), 10));
        assert!(full.count() > 40, "{asked:?}");
        let others = asked[10..].iter().filter(|(name, _)| name != "a").count();
        assert!((2..10).contains(&others), "{asked:?}");
    }

    #[test]
    fn there_are_no_turns_of_one_task_or_of_all_there_are() {
        assert!(Turns::new(true, Some(&["a".to_owned()])).is_none());
        assert!(Turns::new(true, None).is_none());
        assert!(Turns::new(false, Some(&["a".to_owned(), "b".to_owned()])).is_none());
    }
}
