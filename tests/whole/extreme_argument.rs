//! Extreme numbers, spans and times in calls: each is taken, or refused in trax's own words.

use super::errors::{furnished, sample};
use harness::session::{Session, session};

/// The arguments of public functions: the function, its kind, its required arguments, and an
/// argument with its type. A procedure has its results among them.
const ARGUMENTS: &str = "
    select
        p.proname, p.prokind, (
            select string_agg(case when p.prokind = 'p' and p.proargmodes[r.n] = 'o' then r.name || '=null' else r.name end, ' ')
            from unnest(p.proargnames) with ordinality r (name, n)
            where r.n <= p.pronargs - p.pronargdefaults or p.prokind = 'p' and p.proargmodes[r.n] = 'o'
        ),
        p.proargnames[a.n], a.type
    from pg_proc p, unnest(p.proargtypes::regtype[]) with ordinality a (type, n)
    where p.pronamespace = 'trax'::regnamespace
        and coalesce(p.proargmodes[a.n], 'i') = 'i'
        and obj_description(p.oid, 'pg_proc') not like 'Internal.%'
    order by p.proname, a.n";

fn extremes(sql_type: &str) -> &'static [&'static str] {
    match sql_type {
        "integer" => &["-2147483648", "-1", "0", "2147483647"],
        "bigint" => &["-9223372036854775808", "-1", "0", "9223372036854775807"],
        "double precision" => &["'-Infinity'", "'NaN'", "-1", "0", "'Infinity'"],
        "interval" => &["'-178000000 years'", "'-1 s'", "'0'", "'178000000 years'"],
        "timestamp with time zone" => &["'-infinity'", "'4713-01-01 BC'", "'294276-12-31'"],
        _ => &[],
    }
}

/// Returns the arguments without which the server refuses an argument as such.
fn beside(argument: &str) -> &'static str {
    match argument {
        "max_wait" => ", max_jobs => 2, min_jobs => 2",
        "min_jobs" => ", max_jobs => 2, max_wait => '1 s'",
        "unique_for" => ", unique_key => 'n'",
        "variance" => ", cron => '0 3 * * *'",
        "retry_in" => ", close_rate => false",
        _ => "",
    }
}

/// Runs a statement until the timeout of the calls, which also counts for it, leaves it time.
async fn repeat(s: &Session, statement: &str) {
    while let Err(refusal) = s.attempt(statement).await {
        assert_eq!(refusal.code, "57014", "{statement}: {refusal}");
    }
}

#[tokio::test]
async fn an_extreme_argument_is_taken_or_refused_in_our_words() {
    let s = furnished().await;
    s.get("set statement_timeout = '300 ms'").await;
    let held = s.get("select job_id, token from trax.lease").await;
    let (job, token) = held.split_once('|').expect("one job runs");
    let (mut calls, mut foreign) = (0, Vec::new());
    for line in s.get(ARGUMENTS).await.lines() {
        let columns: Vec<&str> = line.split('|').collect();
        let &[function, kind, required, argument, sql_type] = &columns[..] else {
            panic!("{line:?} has not five columns");
        };
        for extreme in extremes(sql_type) {
            let others = required.split_whitespace();
            let others = others.filter(|name| *name != argument);
            let mut given: Vec<String> = others
                .map(|name| match name.split_once('=') {
                    Some((result, null)) => format!("{result} => {null}"),
                    None => format!("{name} => {}", sample(name)),
                })
                .collect();
            given.push(format!("{argument} => {extreme}{}", beside(argument)));
            let given = given.join(", ");
            let given = given.replace("{job}", job);
            let given = given.replace("{token}", &format!("'{token}'::uuid"));
            // A procedure waits in transactions of its own, and writes nothing.
            let (begin, call, end) = match kind {
                "p" => ("", format!("call trax.{function}({given})"), ""),
                _ => (
                    "begin",
                    format!("select * from trax.{function}({given}) r"),
                    "rollback",
                ),
            };
            repeat(&s, begin).await;
            let answer = s.attempt(&call).await;
            repeat(&s, end).await;
            calls += 1;
            // A wait without an end runs into the timeout.
            if let Err(refusal) = answer
                && refusal.code != "57014"
                && (refusal.detail.is_empty() || refusal.hint.is_empty())
            {
                foreign.push(format!("{call}\n  {refusal}"));
            }
        }
    }
    assert!(calls >= 400, "{calls} calls");
    assert!(foreign.is_empty(), "{}", foreign.join("\n"));
    s.assert_healthy().await;
}

#[tokio::test]
async fn days_and_hours_of_different_signs_are_a_length() {
    let (_db, s) = session().await;
    let length = "interval '1 day' - interval '1 hour'";
    s.enqueue(&format!(
        "'a', timeout => {length}, retry_delay => {length}"
    ))
    .await;
    let job = s
        .claim_one(&format!("lease => {length}, max_jobs => 1"))
        .await;
    let seconds = "select extract(epoch from lease_expires_at - started_at)::int, extract(epoch from timeout)::int from trax.lease";
    assert_eq!(s.get(seconds).await, "82800|82800");
    let fail = format!(
        "select trax.fail({}, 'no', retry_in => {length})",
        job.key()
    );
    assert_eq!(s.get(&fail).await, "retrying");
    let refused = s
        .refusal("select trax.enqueue('a', timeout => '1 month -1 day')")
        .await;
    assert_eq!(refused.message, "argument \"timeout\" has no fixed length");
}
