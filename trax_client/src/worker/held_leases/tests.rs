use super::super::cancellation::{Cancellation, cancellation};
use super::*;
use crate::reached::Reached;

const LEASE: Duration = Duration::from_secs(30);

fn one(timeout: Option<Duration>, sent: Moment) -> (HeldLeases, Token, Cancellation) {
    let held = HeldLeases::default();
    let token = Token(uuid::Uuid::from_u128(7));
    let (trigger, cancellation) = cancellation();
    held.insert((JobId(1), token), trigger, sent, LEASE, timeout);
    (held, token, cancellation)
}

fn beat(held: bool, cancel_requested: bool) -> Vec<Beat> {
    vec![Beat {
        job_id: JobId(1),
        held,
        cancel_requested,
        lease_expires_at: None,
    }]
}

#[test]
fn a_lease_without_contact_for_its_length_is_lost() {
    let now = Moment::now();
    let (held, _, cancellation) = one(None, now);
    held.expire(now + LEASE / 2);
    assert_eq!(cancellation.reason(), None);
    held.expire(now + LEASE);
    assert_eq!(cancellation.reason(), Some(Reason::LeaseLost));
}

#[test]
fn a_handler_that_has_completed_its_job_is_not_told_that_the_lease_is_lost() {
    let now = Moment::now();
    let (held, token, cancellation) = one(None, now);
    let attempt = Reached::of(token, 0);
    reached::complete(token);
    held.record_beats(&[(JobId(1), token)], &beat(false, false), now, LEASE);
    held.expire(now + LEASE);
    assert_eq!(cancellation.reason(), None);
    drop(attempt);
    let (held, token, cancellation) = one(None, now);
    held.record_beats(&[(JobId(1), token)], &beat(false, false), now, LEASE);
    assert_eq!(cancellation.reason(), Some(Reason::LeaseLost));
}

#[test]
fn a_job_whose_lease_ran_out_in_the_sleep_of_the_machine_is_not_begun() {
    let now = Moment::now();
    let (held, token, _cancellation) = one(None, now);
    assert!(!held.begin(JobId(1), token, now + LEASE));
    held.expire(now + LEASE);
    assert!(!held.begin(JobId(1), token, now), "it was given up");
}

#[test]
fn a_cancel_request_after_the_timeout_is_a_timeout() {
    let now = Moment::now();
    let (held, token, late) = one(Some(Duration::ZERO), now);
    assert!(held.begin(JobId(1), token, now));
    held.record_beats(&[(JobId(1), token)], &beat(true, true), now, LEASE);
    assert_eq!(late.reason(), Some(Reason::Timeout));
    let (held, token, early) = one(Some(LEASE), now);
    held.record_beats(&[(JobId(1), token)], &beat(true, true), now, LEASE);
    assert_eq!(early.reason(), Some(Reason::Cancelled));
}

#[test]
fn a_timeout_counts_from_the_begin_and_asks_the_handler_once() {
    let now = Moment::now();
    let timeout = Duration::from_secs(5);
    let (held, token, cancellation) = one(Some(timeout), now);
    assert_eq!(held.earliest_end(), Some(now + LEASE), "it waits");
    held.expire(now + timeout * 2);
    assert_eq!(cancellation.reason(), None);
    assert!(held.begin(JobId(1), token, Moment::now()));
    let end = held.earliest_end().expect("it is held");
    assert!(end < now + timeout + Duration::from_secs(1));
    held.expire(end);
    assert_eq!(cancellation.reason(), Some(Reason::Timeout));
    assert_eq!(held.earliest_end(), Some(now + LEASE), "it is still held");
}

#[test]
fn a_lease_that_ran_out_with_the_timeout_is_lost() {
    let now = Moment::now();
    let (held, token, cancellation) = one(Some(Duration::from_secs(5)), now);
    assert!(held.begin(JobId(1), token, now));
    held.expire(now + LEASE * 2);
    assert_eq!(cancellation.reason(), Some(Reason::LeaseLost));
}

#[test]
fn what_is_said_of_a_lost_lease_is_not_said_of_the_next_one_of_its_job() {
    let now = Moment::now();
    let (held, _, next) = one(None, now);
    let lost = [(JobId(1), Token(uuid::Uuid::from_u128(8)))];
    held.record_beats(&lost, &beat(false, false), now, LEASE);
    assert_eq!(next.reason(), None);
    held.record_beats(&lost, &beat(true, false), now + LEASE, LEASE);
    assert_eq!(held.earliest_end(), Some(now + LEASE));
}

#[test]
fn of_many_reports_the_last_is_taken_once_and_a_stale_one_never() {
    let json = |value: i32| Json::from(serde_json::Value::from(value));
    let (held, token, _cancellation) = one(None, Moment::now());
    held.report(JobId(1), token, json(1));
    held.report(JobId(1), token, json(2));
    held.report(JobId(1), Token(uuid::Uuid::from_u128(8)), json(3));
    held.report(JobId(9), token, json(4));
    assert_eq!(held.take_reports(), [(JobId(1), token, json(2))]);
    assert_eq!(held.take_reports(), []);

    let old = |value: i32| vec![(JobId(1), token, json(value))];
    held.restore_reports(old(2));
    assert_eq!(held.take_reports(), old(2), "it was not sent");
    held.report(JobId(1), token, json(5));
    held.restore_reports(old(2));
    assert_eq!(held.take_reports(), old(5), "the newer one counts");
}

#[test]
fn what_no_handler_has_begun_is_ahead() {
    let (held, token, _cancellation) = one(None, Moment::now());
    let stale = Token(uuid::Uuid::from_u128(8));
    assert!(!held.begin(JobId(1), stale, Moment::now()));
    assert_eq!(held.ahead(&held.snapshot()), [JobId(1)]);
    assert_eq!(held.ahead(&[(JobId(1), stale)]), []);
    assert!(held.begin(JobId(1), token, Moment::now()));
    assert_eq!(held.ahead(&held.snapshot()), []);
}

#[test]
fn a_begin_is_unreported_until_a_call_that_was_sent_after_it_is_answered() {
    let before = Moment::now();
    let (held, token, _cancellation) = one(None, before);
    let leases = held.snapshot();
    assert_eq!(held.unreported(Moment::now()), []);
    assert!(held.begin(JobId(1), token, Moment::now()));
    let after = Moment::now() + LEASE;
    assert_eq!(held.unreported(Moment::now()), leases);
    assert_eq!(held.unreported(before), [], "not by then");
    held.record_beats(&leases, &beat(true, false), before, LEASE);
    assert_eq!(held.unreported(Moment::now()), leases);
    assert!(held.is_any_unreported());
    held.record_beats(&leases, &beat(true, false), after, LEASE);
    assert_eq!(held.unreported(Moment::now()), []);
    assert!(!held.is_any_unreported());
}

#[test]
fn a_job_that_may_be_asked_to_stop_is_asked_about_until_a_later_call_is_answered() {
    let before = Moment::now();
    let (held, token, cancellation) = one(None, before);
    let lease = [(JobId(1), token)];
    held.hear_cancels("7,10");
    assert_eq!(held.unreported(Moment::now()), []);
    held.hear_cancels("7,1");
    assert_eq!(held.unreported(Moment::now()), lease);
    held.record_beats(&lease, &beat(true, false), before, LEASE);
    assert_eq!(held.unreported(Moment::now()), lease, "it was sent before");
    held.record_beats(&lease, &beat(true, true), before + LEASE, LEASE);
    assert_eq!(held.unreported(Moment::now()), []);
    assert_eq!(cancellation.reason(), Some(Reason::Cancelled));
    held.hear_cancels("");
    assert_eq!(held.unreported(Moment::now()), lease, "any");
}

#[test]
fn a_stale_token_removes_nothing() {
    let (held, token, _cancellation) = one(None, Moment::now());
    held.remove(JobId(1), Token(uuid::Uuid::from_u128(8)));
    assert_eq!(held.snapshot(), vec![(JobId(1), token)]);
    held.remove(JobId(1), token);
    assert!(held.snapshot().is_empty());
}
