//! Fair share: the tasks of one worker take turns, so that each gets an equal share of its claims.
//!
//! Input: the number of jobs wanted, and the number that a claim returned. Output: the number of
//! jobs and the task of the next claim. Invariant: while several tasks have waiting jobs, each in
//! turn gets a claim of the same size. A task without jobs sits out some turns. If no task had more
//! jobs than requested, one claim covers all tasks, as without fair share, so an idle worker sends
//! no more claims than others.

use super::polling::More;

/// The maximum number of consecutive turns that a task without jobs sits out.
const LONGEST_PAUSE: u32 = 15;

/// The request of a claim.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ClaimRequest {
    /// The number of jobs.
    pub(crate) jobs: usize,
    /// The only task to claim; `None` means all tasks.
    pub(crate) task: Option<String>,
}

pub(crate) struct FairShare {
    tasks: Vec<TaskShare>,
    /// The task whose turn it is.
    at: usize,
}

struct TaskShare {
    task: String,
    /// The last claim for the task returned fewer jobs than requested.
    short: bool,
    /// The number of turns that the task sits out, and how many of them are left.
    sits_out: u32,
    turns_left: u32,
}

impl FairShare {
    /// Returns `None` for a worker that claims by age and priority only, or has a single task.
    pub(crate) fn new(wanted: bool, tasks: Option<&[String]>) -> Option<Self> {
        let mut tasks = tasks.filter(|tasks| wanted && tasks.len() > 1)?.to_vec();
        tasks.sort();
        let share = |task| TaskShare {
            task,
            short: true,
            sits_out: 0,
            turns_left: 0,
        };
        Some(FairShare {
            tasks: tasks.into_iter().map(share).collect(),
            at: 0,
        })
    }

    /// Returns the next request, for up to `want` jobs.
    pub(crate) fn request(&self, want: usize) -> ClaimRequest {
        let more = self.tasks.iter().filter(|task| !task.short).count();
        if more == 0 {
            return ClaimRequest {
                jobs: want,
                task: None,
            };
        }
        ClaimRequest {
            jobs: want.div_ceil(more),
            task: Some(self.tasks[self.at].task.clone()),
        }
    }

    /// Records that a claim returned `got` jobs, and returns whether another claim should follow.
    pub(crate) fn record(&mut self, request: &ClaimRequest, got: usize) -> More {
        let short = got < request.jobs;
        if request.task.is_none() {
            for task in &mut self.tasks {
                (task.short, task.sits_out, task.turns_left) = (short, 0, 0);
            }
            return More::after(request.jobs, got);
        }
        let task = &mut self.tasks[self.at];
        task.short = short;
        task.sits_out = if got == 0 {
            (task.sits_out * 2 + 1).min(LONGEST_PAUSE)
        } else {
            0
        };
        task.turns_left = task.sits_out;
        loop {
            self.at = (self.at + 1) % self.tasks.len();
            let next = &mut self.tasks[self.at];
            if next.turns_left == 0 {
                return More::Likely;
            }
            next.turns_left -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> FairShare {
        let tasks = ["b", "c", "a"].map(str::to_owned);
        FairShare::new(true, Some(&tasks)).expect("there is something to divide")
    }

    fn turn(jobs: usize, task: &str) -> ClaimRequest {
        ClaimRequest {
            jobs,
            task: Some(task.to_owned()),
        }
    }

    const ALL: ClaimRequest = ClaimRequest {
        jobs: 10,
        task: None,
    };

    #[test]
    fn while_more_waits_each_task_gets_an_equal_share_in_turn() {
        let mut share = three();
        assert_eq!(share.request(10), ALL);
        assert_eq!(share.record(&ALL, 10), More::Likely);
        for task in ["a", "b", "c", "a"] {
            let request = share.request(10);
            assert_eq!(request, turn(4, task));
            assert_eq!(share.record(&request, 4), More::Likely);
        }
    }

    #[test]
    fn when_no_task_has_more_one_claim_is_for_all() {
        let mut share = three();
        share.record(&ALL, 10);
        for got in [3, 2, 1] {
            let request = share.request(10);
            assert!(request.task.is_some());
            assert_eq!(share.record(&request, got), More::Likely);
        }
        assert_eq!(share.request(10), ALL);
        assert_eq!(share.record(&ALL, 9), More::Perhaps);
        assert_eq!(share.record(&ALL, 0), More::No, "the worker is idle");
        assert_eq!(share.request(10), ALL);
    }

    #[test]
    fn one_that_has_nothing_is_asked_less_and_less_and_leaves_its_share() {
        let mut share = three();
        share.record(&ALL, 10);
        let mut asked = Vec::new();
        for _ in 0..60 {
            let request = share.request(10);
            let name = request.task.clone().unwrap_or_default();
            share.record(&request, if name == "a" { request.jobs } else { 0 });
            asked.push((name, request.jobs));
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
        assert!(FairShare::new(true, Some(&["a".to_owned()])).is_none());
        assert!(FairShare::new(true, None).is_none());
        assert!(FairShare::new(false, Some(&["a".to_owned(), "b".to_owned()])).is_none());
    }
}
