//! Tests of the checkers: each must report the act that breaks its rule, done here by hand in SQL,
//! and report nothing for an undamaged history.

use crate::check::violations;
use crate::fact::{self, Acknowledgement, Attempt, Crash, Execution, Facts, Kind, Schedule};
use crate::holder::Hold;
use harness::session::{Session, session};

/// An undamaged history: completed, failed and waiting jobs, a limited group, a key, a manifest's
/// occurrences, an effect.
const HISTORY: &str = "
    create table public.ledger (job_id bigint not null, nonce text not null);
    select trax.configure_group('two', max_active_jobs => 2);
    select trax.schedule('seconds', 'tick', cron => '* * * * * *');
    update trax.manifest_state set next_run_at = date_trunc('second', now()), next_scheduled_for = date_trunc('second', now());
    select * from trax.tick();
    select trax.enqueue('work', jsonb_build_object('nonce', 'work-' || n), group_name => 'two') from generate_series(1, 6) n;
    select trax.enqueue('work', '{\"nonce\": \"unique-1\", \"unique\": \"u\"}', unique_key => 'u', priority => 31);
    select trax.complete(job_id, token) from trax.claim_next(max_jobs => 1, tasks => '{work}', groups => '{default}');
    select trax.enqueue('work', '{\"nonce\": \"unique-2\", \"unique\": \"u\"}', unique_key => 'u', group_name => 'late');
    select trax.enqueue('work', jsonb_build_object('nonce', 'key-' || n, 'key', 'k'), concurrency_key => 'k') from generate_series(1, 2) n;
    select trax.enqueue('ledger', jsonb_build_object('nonce', 'ledger-' || n)) from generate_series(1, 2) n;
    with done as (select c.job_id, c.input->>'nonce' as nonce, trax.complete(c.job_id, c.token) from trax.claim_next(tasks => '{ledger}') c)
        insert into public.ledger select job_id, nonce from done;
    select trax.complete(job_id, token) from trax.claim_next(max_jobs => 1, tasks => '{tick}');
    select trax.fail(job_id, token, 'once', retry_in => '0') from trax.claim_next(max_jobs => 1, tasks => '{work}', groups => '{two}');
    select trax.complete(job_id, token) from trax.claim_next(max_jobs => 2, tasks => '{work}', groups => '{two}');
    select trax.complete(job_id, token) from trax.claim_next(max_jobs => 1, tasks => '{work}', groups => '{default}');
    select job_id from trax.claim_next(max_jobs => 2, tasks => '{work}', groups => '{two}')";

/// The facts of a history in which every call was acknowledged and handlers executed every attempt.
async fn facts(s: &Session) -> Facts {
    let mut facts = Facts {
        group_limits: [("two", vec![fact::from_the_beginning(2)])].into(),
        schedules: vec![Schedule {
            name: "seconds".to_owned(),
            kind: Kind::Some(1),
        }],
        is_drained: true,
        database_limit: 100,
        ..Facts::default()
    };
    fact::read(s.client(), 0, &mut facts)
        .await
        .expect("the tables are read");
    for job in &facts.jobs {
        if let Some(nonce) = job.nonce.clone() {
            let job = job.job;
            facts.enqueued.push(Acknowledgement {
                at: 0,
                nonce,
                job,
                unique: None,
            });
        }
    }
    for run in &facts.attempts {
        let Some(began) = run.started_at else {
            continue;
        };
        if run.state == "completed" {
            let acknowledged = Acknowledgement {
                job: run.job,
                ..Acknowledgement::default()
            };
            facts.completed.push(acknowledged);
        }
        let word = if run.state == "completed" {
            "ok"
        } else {
            "failed"
        };
        facts.executions.push(Execution {
            shard: None,
            job: run.job,
            attempt: run.attempt,
            nonce: run.nonce.clone().unwrap_or("-".to_owned()),
            worker: "w".to_owned(),
            began,
            ended: run.finished_at,
            word: word.to_owned(),
            works: Vec::new(),
        });
    }
    facts
}

/// Reads the tables again, on top of earlier facts.
async fn seen_again(s: &Session, before: &Facts) -> Vec<&'static str> {
    let mut facts = before.clone();
    fact::read(s.client(), 0, &mut facts)
        .await
        .expect("the tables are read");
    let mut rules: Vec<_> = violations(&facts).into_iter().map(|one| one.rule).collect();
    rules.dedup();
    rules
}

const COLUMNS: &str = "job_id, queued_at, run_at, scheduled_for, started_at, finished_at, manifest_id, attempt, priority, final,
    state, failure_kind, task, group_name, manifest, worker, error, input, detail, output";

#[tokio::test]
async fn each_act_of_sabotage_in_sql_is_named() {
    let (_database, s) = session().await;
    s.get(HISTORY).await;
    let before = facts(&s).await;
    assert_eq!(violations(&before), [], "nothing is broken yet");
    let copied = format!("insert into trax.run ({COLUMNS}) select {COLUMNS} from trax.run");
    let again = format!(
        "insert into trax.run ({COLUMNS}) select job_id + 1000000, {} from trax.run where task = 'tick'",
        COLUMNS.split_once(", ").map_or("", |(_, rest)| rest)
    );
    let shorter = "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, input, group_name";
    for (rule, act) in [
        ("a job ends more than once", format!("{copied} where state = 'completed' limit 1")),
        ("an attempt is recorded twice", format!("{copied} where state = 'failed'")),
        ("an acknowledged job is lost", "delete from trax.work_queue where task = 'work'".to_owned()),
        ("an acknowledged job is lost", "delete from trax.lease".to_owned()),
        ("an acknowledged completion is lost", "delete from trax.run where task = 'work'".to_owned()),
        ("a job is in several places", "update trax.lease set job_id = (select min(job_id) from trax.work_queue)
            where job_id = (select min(job_id) from trax.lease)".to_owned()),
        ("a job goes on after its end", "update trax.run set final = true where state = 'failed'".to_owned()),
        ("a group is above its limit", "update trax.run set finished_at = now() + interval '1 min' where group_name = 'two' and final".to_owned()),
        ("a concurrency key is above its limit", "update trax.run set input = input || '{\"key\": \"k\"}', finished_at = clock_timestamp()
            where task = 'work' and final".to_owned()),
        ("a unique key is alive twice", "update trax.run set finished_at = finished_at + interval '1 min' where input->>'unique' = 'u'".to_owned()),
        ("the database is above its limit", format!("{shorter}) select job_id + n, now(), now(), now(), now() + interval '1 s', 1, 0, true, 'completed', 'odd', '{{}}', group_name
            from trax.work_queue, generate_series(1000000, 1000100) n where input->>'unique' = 'u'")),
        ("a manifest is above its limit", format!("{shorter}, manifest) select n, now(), now(), now(), now() + interval '1 s', 1, 0, true, 'completed', 'odd', '{{}}', 'default', 'seconds'
            from generate_series(1000000, 1000001) n")),
        ("an attempt is spent that never began", format!("{shorter}, failure_kind, worker) select n, now(), now(), now(), now() + interval '1 s', 1, 0, false, 'failed', 'work', '{{}}', 'default', 'lease_expired', 'w'
            from generate_series(1000000, 1000001) n")),
        ("an attempt ends before it began", "update trax.run set started_at = finished_at + interval '1 s' where task = 'work'".to_owned()),
        ("an occurrence runs twice", again),
        ("a schedule is not kept", "update trax.run set scheduled_for = scheduled_for + interval '100 ms' where task = 'tick'".to_owned()),
        ("an effect and its completion are not one", "delete from public.ledger".to_owned()),
        ("an effect and its completion are not one", "insert into public.ledger select * from public.ledger".to_owned()),
        ("an effect has no job", "insert into public.ledger values (-1, 'ledger-0')".to_owned()),
        ("a completion without an execution", "update trax.run set attempt = 7 where task = 'work' and final".to_owned()),
        ("trax.check() complains", "update trax.work_queue set lane_id = 1".to_owned()),
    ] {
        s.get("begin").await;
        s.get(&act).await;
        let named = seen_again(&s, &before).await;
        s.get("rollback").await;
        assert!(named.contains(&rule), "{act}: {rule} is not among {named:?}");
    }
}

#[tokio::test]
async fn each_false_word_of_a_client_or_a_handler_is_named() {
    let (_database, s) = session().await;
    s.get(HISTORY).await;
    let before = facts(&s).await;
    let named = |change: &dyn Fn(&mut Facts)| {
        let mut facts = before.clone();
        change(&mut facts);
        violations(&facts)
            .into_iter()
            .map(|one| one.rule)
            .collect::<Vec<_>>()
    };
    let expect = |rule: &'static str, change: &dyn Fn(&mut Facts)| {
        let named = named(change);
        assert!(named.contains(&rule), "{rule} is not among {named:?}");
    };
    expect("a job exists that was rolled back", &|facts| {
        facts.withdrawn.push("work-1".to_owned())
    });
    expect("a token has too many holders", &|facts| {
        let hold = Hold {
            asked: 1,
            from: 2,
            until: 9,
        };
        facts.holds = vec![hold; 3];
    });
    expect("a job has not ended", &|facts| facts.is_drained = false);
    expect("an attempt is executed twice", &|facts| {
        let again = facts.executions[0].clone();
        facts.executions.push(again);
    });
    // The history has one completed occurrence of "seconds".
    let tick = before.attempts.iter().find(|one| one.task == "tick");
    let tick = tick.expect("it ran").clone();
    let later = |seconds: i64| Attempt {
        job: tick.job + 1_000_000 + seconds,
        scheduled_for: tick.scheduled_for.map(|at| at + seconds * 1_000_000),
        queued_at: tick.queued_at + seconds * 1_000_000,
        started_at: tick.started_at.map(|at| at + seconds * 1_000_000),
        finished_at: tick.finished_at.map(|at| at + seconds * 1_000_000),
        ..tick.clone()
    };
    for (kind, more) in [
        // The occurrence at two seconds is missing.
        (Kind::All(1), vec![later(1), later(3)]),
        (Kind::Every(60), vec![later(30)]),
        (Kind::Once, vec![later(0)]),
        // Its parent, which is the manifest itself, had completed fewer times by then.
        (Kind::After("seconds".into()), vec![]),
    ] {
        expect("a schedule is not kept", &|facts| {
            facts.schedules[0].kind = kind.clone();
            facts.attempts.extend(more.clone());
        });
        // The schedule is violated even if commits may have been lost.
        expect("a schedule is not kept", &|facts| {
            facts.schedules[0].kind = kind.clone();
            facts.attempts.extend(more.clone());
            facts.losses.push((0, i64::MAX));
        });
    }
    let stolen = |facts: &mut Facts| {
        // The second attempt began while the first was running, and no row shows that the first
        // lease had ended.
        let retried = facts
            .executions
            .iter()
            .position(|one| one.attempt == 1 && one.word == "failed" && one.nonce == "work-1");
        let first = retried.expect("the history has a retry");
        facts.executions[first].ended = None;
    };
    expect("a job is executed twice at once", &stolen);
    let excused = named(&|facts| {
        stolen(facts);
        let retry = facts
            .executions
            .iter()
            .find(|one| one.attempt == 2)
            .map(|one| Crash::at(one.began));
        facts.crashes.extend(retry);
    });
    assert_eq!(excused, Vec::<&str>::new(), "a crash undoes claims");
    let lost_by = |worker: &str| {
        named(&|facts| {
            let first = facts.executions[0].clone();
            let again = Execution {
                began: first.began + 2,
                ended: first.ended.map(|at| at + 2),
                ..first.clone()
            };
            let of_it = |one: &&Attempt| (one.job, one.attempt) == (first.job, first.attempt);
            let run = facts.attempts.iter().find(of_it).expect("it is recorded");
            let lost = Attempt {
                attempt: first.attempt - 1,
                is_final: false,
                state: "failed".to_owned(),
                kind: Some("lease_expired".to_owned()),
                worker: Some(worker.to_owned()),
                started_at: None,
                finished_at: Some(first.began + 1),
                ..run.clone()
            };
            facts.executions[0].ended = Some(first.began + 1);
            facts.executions.push(again);
            facts.attempts.push(lost);
        })
    };
    let worker = before.executions[0].worker.clone();
    let twice = &"an attempt is executed twice";
    let unheard = lost_by(&worker);
    assert!(
        !unheard.contains(twice),
        "nobody heard that it had begun: {unheard:?}"
    );
    assert!(lost_by("another").contains(twice));
}
