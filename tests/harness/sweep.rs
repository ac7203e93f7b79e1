//! A sweep over recorded attempts by the server's clock: the number of running attempts at each
//! start, and the limit at that time. Times are microseconds.

use crate::session::Session;
use std::collections::BTreeMap;

/// An ended attempt.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The job.
    pub job: i64,
    /// The group.
    pub group: String,
    /// The concurrency key.
    pub key: Option<String>,
    /// The earliest time of a claim: when the job was queued, or when its previous attempt ended.
    pub since: i64,
    /// The time of the claim.
    pub started_at: i64,
    /// The time of the outcome.
    pub finished_at: i64,
}

impl Attempt {
    /// Returns all recorded attempts.
    pub async fn all(s: &Session) -> Vec<Attempt> {
        let sql = "select job_id, group_name, input->>'key',
                       (extract(epoch from coalesce(lag(finished_at) over (partition by job_id order by attempt),
                           queued_at)) * 1000000)::bigint,
                       (extract(epoch from started_at) * 1000000)::bigint,
                       (extract(epoch from finished_at) * 1000000)::bigint
                   from trax.run
                   where started_at is not null";
        let rows = s.client().query(sql, &[]).await.expect("history is read");
        let attempt = |row: &tokio_postgres::Row| Attempt {
            job: row.get(0),
            group: row.get(1),
            key: row.get(2),
            since: row.get(3),
            started_at: row.get(4),
            finished_at: row.get(5),
        };
        rows.iter().map(attempt).collect()
    }
}

/// A change of a limit, which took effect between `began` and `committed`.
#[derive(Clone, Copy, Debug)]
pub struct LimitChange {
    /// The limit.
    pub limit: i64,
    /// The server's time before the call.
    pub began: i64,
    /// The server's time after its commit.
    pub committed: i64,
}

/// Returns the greatest limit that may have been in force at an instant: the last one committed
/// before, or one whose call was in progress. `changes` are in order; before the first there was no
/// limit.
pub fn limit_at(changes: &[LimitChange], at: i64) -> i64 {
    let over = changes.partition_point(|change| change.committed < at);
    let last = match over {
        0 => i64::MAX,
        _ => changes[over - 1].limit,
    };
    changes[over..]
        .iter()
        .take_while(|change| change.began <= at)
        .fold(last, |most, change| most.max(change.limit))
}

/// Returns the number of running spans at each instant with a start, including those that start and
/// excluding those that end at that instant.
pub fn running_at_starts(spans: impl Iterator<Item = (i64, i64)>) -> Vec<(i64, i64)> {
    // (ended, started) of each instant.
    let mut events: BTreeMap<i64, (i64, i64)> = BTreeMap::new();
    for (from, until) in spans {
        events.entry(from).or_default().1 += 1;
        events.entry(until).or_default().0 += 1;
    }
    let mut running = 0;
    let mut starts = Vec::new();
    for (at, (ended, started)) in events {
        running += started - ended;
        if started > 0 {
            starts.push((at, running));
        }
    }
    starts
}

/// Returns a description of the first starts above the limit, and the most that ran at once.
pub fn too_many(
    spans: impl Iterator<Item = (i64, i64)>,
    changes: &[LimitChange],
) -> (Vec<String>, i64) {
    let mut found = Vec::new();
    let mut most = 0;
    for (at, running) in running_at_starts(spans) {
        let limit = limit_at(changes, at);
        if running > limit && found.len() < 5 {
            found.push(format!("{running} ran at {at} where {limit} may"));
        }
        most = most.max(running);
    }
    (found, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGES: [LimitChange; 3] = [
        LimitChange {
            limit: 2,
            began: 0,
            committed: 10,
        },
        LimitChange {
            limit: 4,
            began: 100,
            committed: 110,
        },
        LimitChange {
            limit: 1,
            began: 200,
            committed: 210,
        },
    ];

    #[test]
    fn the_limit_is_the_last_committed_or_a_greater_one_under_way() {
        let limits: Vec<i64> = [11, 99, 100, 110, 111, 199, 200, 210, 211]
            .iter()
            .map(|&at| limit_at(&CHANGES, at))
            .collect();
        assert_eq!(limits, [2, 2, 4, 4, 4, 4, 4, 4, 1]);
        assert_eq!(limit_at(&CHANGES, 5), i64::MAX);
    }

    #[test]
    fn one_too_many_is_found_and_a_place_that_is_handed_on_is_not() {
        let fine = [(20, 30), (20, 40), (30, 50), (40, 60)];
        assert_eq!(too_many(fine.into_iter(), &CHANGES), (Vec::new(), 2));
        let wrong = [(20, 30), (20, 40), (29, 50)];
        let (found, most) = too_many(wrong.into_iter(), &CHANGES);
        assert_eq!(found, ["3 ran at 29 where 2 may"]);
        assert_eq!(most, 3);
    }

    #[test]
    fn a_limit_that_shrank_lets_what_runs_go_on_and_nothing_in() {
        let started_before = [(150, 300), (150, 300), (150, 250), (150, 250)];
        assert_eq!(
            too_many(started_before.into_iter(), &CHANGES).0,
            Vec::<String>::new()
        );
        let started_after = started_before.into_iter().chain([(260, 300)]);
        assert_eq!(
            too_many(started_after, &CHANGES).0,
            ["3 ran at 260 where 1 may"]
        );
    }
}
