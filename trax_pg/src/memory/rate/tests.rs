//! Tests of the keys, without a server.

use super::{BUCKETS, Demand, Limit, Memory, Moment, Timestamp, WAYS};

const SECOND: i64 = 1_000_000_000;
const START: Moment = Moment {
    shown: 1_000_000 * SECOND,
    uptime: 1000 * SECOND,
};

fn empty() -> Box<Memory> {
    // SAFETY: all zero is a valid, empty memory.
    unsafe { Box::new_zeroed().assume_init() }
}

/// Ten in a second, three at once, created a second after the start.
fn limit() -> Limit {
    limit_of(10, 3, SECOND)
}

fn limit_of(allowed: i64, burst: i64, after: i64) -> Limit {
    let at = Timestamp((START.shown + after) / 1000);
    Limit::new((allowed, 1_000_000, burst), at, at).expect("a possible limit")
}

fn demand(key: u128, limit: Limit, cost: i64) -> Demand {
    Demand { key, limit, cost }
}

/// Returns how long the first demand that is refused must wait; 0 if all are granted.
fn ask(memory: &mut Memory, demands: &[Demand], now: Moment) -> i64 {
    let later = memory.consume(demands, now, &mut Vec::new());
    later.map_or(0, |(_, wait)| wait)
}

fn begun() -> (Box<Memory>, Moment) {
    let mut memory = empty();
    memory.begin(START);
    (memory, START.plus(2 * SECOND))
}

#[test]
fn a_burst_starts_at_once_and_then_one_in_each_unit() {
    let (mut memory, now) = begun();
    let one = [demand(7, limit(), 1)];
    for _ in 0..3 {
        assert_eq!(ask(&mut memory, &one, now), 0);
    }
    assert_eq!(ask(&mut memory, &one, now), SECOND / 10);
    assert_eq!(ask(&mut memory, &one, now.plus(SECOND / 10 - 1)), 1);
    assert_eq!(ask(&mut memory, &one, now.plus(SECOND / 10)), 0);
    assert_eq!(
        ask(&mut memory, &[demand(8, limit(), 3)], now),
        0,
        "another key"
    );
    let after_a_pause = now.plus(60 * SECOND);
    assert_eq!(ask(&mut memory, &[demand(7, limit(), 3)], after_a_pause), 0);
    assert_eq!(ask(&mut memory, &one, after_a_pause), SECOND / 10);
}

#[test]
fn no_window_has_one_too_many_whatever_the_order_and_the_costs() {
    let (mut memory, now) = begun();
    let mut random = 1_u64;
    let mut next = |below: i64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((random >> 33) as i64) % below
    };
    let mut starts = Vec::new();
    let mut at = now;
    for _ in 0..20_000 {
        at = at.plus(next(SECOND / 8));
        // A session that has read the clock before others were granted.
        let read = at.plus(-next(SECOND / 50));
        let cost = 1 + next(3);
        if ask(&mut memory, &[demand(7, limit(), cost)], read) == 0 {
            starts.push((read.shown, cost));
        }
    }
    starts.sort_unstable();
    assert!(starts.len() > 5000, "{} starts", starts.len());
    for (index, &(from, _)) in starts.iter().enumerate() {
        let mut cost = 0;
        for &(to, of) in &starts[index..starts.len().min(index + 40)] {
            cost += of;
            let most = 3 * SECOND + 10 * (to - from);
            assert!(cost * SECOND <= most, "{cost} in {} ns", to - from);
        }
    }
}

#[test]
fn all_demands_are_granted_or_none_is() {
    let (mut memory, now) = begun();
    let (scarce, plenty) = (
        demand(7, limit(), 3),
        demand(8, limit_of(100, 100, SECOND), 1),
    );
    assert_eq!(ask(&mut memory, &[plenty, scarce], now), 0);
    for _ in 0..200 {
        assert_eq!(ask(&mut memory, &[plenty, scarce], now), 3 * SECOND / 10);
    }
    assert_eq!(ask(&mut memory, &[demand(8, plenty.limit, 99)], now), 0);
}

#[test]
fn after_a_start_each_older_rate_counts_as_just_used_up() {
    let mut memory = empty();
    let one = [demand(7, limit_of(10, 3, -SECOND), 1)];
    assert_eq!(ask(&mut memory, &one, START), SECOND / 10);
    assert_eq!(ask(&mut memory, &one, START.plus(SECOND / 10)), 0);
    assert_eq!(
        ask(&mut memory, &[demand(8, one[0].limit, 3)], START),
        3 * SECOND / 10
    );
}

#[test]
fn a_key_in_use_counts_as_just_used_up_at_a_change() {
    let (mut memory, now) = begun();
    assert_eq!(ask(&mut memory, &[demand(7, limit(), 3)], now), 0);
    assert_eq!(
        ask(&mut memory, &[demand(9, limit(), 1)], now.plus(-SECOND)),
        0
    );
    let changed = Limit {
        created_at: limit().created_at,
        ..limit_of(1, 2, 2 * SECOND)
    };
    let later = now.plus(SECOND / 2);
    assert_eq!(
        ask(&mut memory, &[demand(7, changed, 1)], later),
        SECOND / 2
    );
    assert_eq!(
        ask(&mut memory, &[demand(9, changed, 2)], later),
        0,
        "not in use then"
    );
}

#[test]
fn a_start_that_is_undone_is_given_back_unless_another_came_in_between() {
    let (mut memory, now) = begun();
    let all = [demand(7, limit(), 3)];
    let mut used = Vec::new();
    assert!(memory.consume(&all, now, &mut used).is_none());
    memory.restore(&used[0]);
    assert_eq!(ask(&mut memory, &all, now), 0);
    let mut used = Vec::new();
    let later = now.plus(SECOND / 10);
    let one = [demand(7, limit(), 1)];
    assert!(memory.consume(&one, later, &mut used).is_none());
    assert_eq!(ask(&mut memory, &one, later.plus(SECOND / 10)), 0);
    memory.restore(&used[0]);
    assert!(ask(&mut memory, &one, later.plus(SECOND / 10)) > 0);
}

#[test]
fn a_key_that_lost_its_place_is_not_taken_for_unused() {
    let (mut memory, now) = begun();
    let key = |number: usize| (number * BUCKETS) as u128;
    let all = |number| [demand(key(number), limit(), 3)];
    for number in 1..=WAYS + 1 {
        assert_eq!(ask(&mut memory, &all(number), now.plus(number as i64)), 0);
    }
    let waits = (1..=WAYS + 1).map(|number| ask(&mut memory, &all(number), now.plus(100)));
    assert!(waits.collect::<Vec<_>>().iter().all(|&wait| wait > 0));
    let others = ask(&mut memory, &all(WAYS + 2), now.plus(100));
    assert!(others > 0, "a new key of a full bucket waits");
    assert_eq!(ask(&mut memory, &all(WAYS + 2), now.plus(SECOND)), 0);
}

#[test]
fn neither_clock_alone_lets_a_start_through() {
    let (mut memory, now) = begun();
    let all = [demand(7, limit(), 3)];
    assert_eq!(ask(&mut memory, &all, now), 0);
    let ahead = Moment {
        shown: now.shown + 7200 * SECOND,
        ..now
    };
    assert_eq!(ask(&mut memory, &all, ahead), 3 * SECOND / 10);
    let ahead = ahead.plus(SECOND);
    assert_eq!(ask(&mut memory, &all, ahead), 0);
    let back = now.plus(2 * SECOND);
    assert!(ask(&mut memory, &all, back) > 7000 * SECOND);
    assert_eq!(memory.correct(back), 1);
    assert_eq!(ask(&mut memory, &all, back), 0);
}

#[test]
fn impossible_limits_are_refused() {
    let at = Timestamp(0);
    assert!(Limit::new((1_000_000, 1_000_000, 1), at, at).is_some());
    assert!(
        Limit::new((1_000_001, 1_000_000, 1), at, at).is_some(),
        "rounded up"
    );
    assert!(Limit::new((2_000_000, 1_000_000, 1), at, at).is_none());
    assert!(Limit::new((1, i64::MAX / 1000, 2), at, at).is_none());
    let unit = Limit::new((7, 60_000_000, 1), at, at).map(|limit| limit.unit);
    assert_eq!(unit, Some(8_571_428_572));
}
