//! Fair shares: how many due manifests of each group one cycle queues.
//!
//! With L entries allowed and G groups due, each group gets L/G; the remainder, and the unused
//! share of small groups, goes to groups by priority, among equals to the one that has waited
//! longest. Pure.

use crate::server::clock::Timestamp;
use crate::server::spi::row;
use std::cmp::Reverse;

row! {
    /// A group that has due manifests.
    #[derive(Clone, Debug)]
    pub(crate) struct DueGroup {
        name: String,
        priority: i16,
        due: i64,
        /// When the first of them became due.
        since: Timestamp,
    }
}

/// Returns the share of each group, in the order of `groups`; no share exceeds the group's due
/// number.
pub(crate) fn shares(groups: &[DueGroup], allowed: i64) -> Vec<i64> {
    let even = allowed / (groups.len() as i64).max(1);
    let mut shares: Vec<i64> = groups.iter().map(|group| group.due.min(even)).collect();
    let mut left = allowed - shares.iter().sum::<i64>();
    let mut by_priority: Vec<usize> = (0..groups.len()).collect();
    by_priority.sort_by_key(|&index| (Reverse(groups[index].priority), groups[index].since));
    for index in by_priority {
        let more = (groups[index].due - shares[index]).min(left);
        shares[index] += more;
        left -= more;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::{DueGroup, shares};
    use crate::server::clock::Timestamp;

    fn group(priority: i16, due: i64) -> DueGroup {
        waiting(priority, due, 0)
    }

    fn waiting(priority: i16, due: i64, since: i64) -> DueGroup {
        DueGroup {
            name: format!("{priority}/{due}"),
            priority,
            due,
            since: Timestamp(since),
        }
    }

    #[test]
    fn among_equals_the_group_that_has_waited_longest_comes_first() {
        let groups = [waiting(0, 9, 30), waiting(0, 9, 10), waiting(0, 9, 20)];
        assert_eq!(shares(&groups, 2), [0, 2, 0]);
    }

    #[test]
    fn a_small_group_is_served_whole_beside_a_large_one() {
        assert_eq!(shares(&[group(0, 5000), group(0, 15)], 200), [185, 15]);
    }

    #[test]
    fn what_is_left_over_goes_by_priority() {
        assert_eq!(
            shares(&[group(0, 100), group(5, 100), group(1, 2)], 32),
            [10, 20, 2]
        );
        assert_eq!(
            shares(&[group(0, 9), group(3, 9), group(2, 9)], 10),
            [3, 4, 3]
        );
    }

    #[test]
    fn more_groups_than_entries_are_served_by_priority() {
        assert_eq!(
            shares(&[group(0, 1), group(9, 1), group(1, 1)], 2),
            [0, 1, 1]
        );
    }

    #[test]
    fn nothing_is_given_beyond_what_is_due() {
        assert_eq!(shares(&[group(0, 3), group(1, 4)], 200), [3, 4]);
        assert!(shares(&[], 200).is_empty());
    }
}
