//! The course of a campaign: applies and heals faults by the plan, waits until all jobs have ended,
//! and judges.

use crate::check::{Violation, violations};
use crate::fact::Facts;
use crate::fault::Strike;
use crate::fleet::Fleet;
use crate::journal::Journal;
use crate::strike::{Damage, Result, Wound};
use crate::testbed::now;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::Client;

/// The time limit for all jobs to end after the last fault, on a loaded machine.
const DRAIN: Duration = Duration::from_secs(240);
/// The time limit for the scheduler and each worker to resume: the promised time, times 4 for a
/// loaded machine. A scheduler is back in 6 s and sees settings and zone data within 10 s, the
/// longest lease lasts 6 s, and due jobs wait up to 15 s for a clock that went back.
pub(crate) const REVIVAL: Duration = Duration::from_secs(4 * (6 + 10 + 6 + 15));
/// The interval between looks at the tables.
pub(crate) const WATCH: Duration = Duration::from_secs(2);
/// The time limit of one act of the driver.
const STUCK: Duration = Duration::from_secs(90);
/// A heal that takes longer than this is reported.
pub(crate) const LONG: Duration = Duration::from_secs(10);
/// The delay before another attempt to heal.
const AGAIN: Duration = Duration::from_secs(1);
/// The interval between looks at the fleet.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// Applies the faults of a campaign, and heals them.
pub(crate) trait Striker {
    /// Applies a fault; returns a description and the wound to heal, if any.
    async fn strike(&mut self, strike: Strike) -> Result<(String, Option<Wound>)>;
    /// Heals a wound.
    async fn heal(&mut self, wound: &Wound) -> Result<()>;
    fn fleet(&mut self) -> &mut Fleet;
    fn damage(&mut self) -> &mut Damage;
}

/// Applies and heals all faults of the plan; returns the ones that could not be applied.
pub(crate) async fn strike_all(strikes: &[Strike], striker: &mut impl Striker) -> Vec<String> {
    let begun = Instant::now();
    let mut wounds: Vec<(Duration, Wound)> = Vec::new();
    let mut missed = Vec::new();
    for strike in strikes {
        loop {
            let now = begun.elapsed();
            let is_heavy = strike.fault.is_of_the_server() && now >= strike.at;
            // A stopped process would not end with its server, so all wounds are healed first.
            let (over, open): (Vec<_>, Vec<_>) = wounds
                .into_iter()
                .partition(|(until, _)| is_heavy || *until <= now);
            wounds = open;
            for (_, wound) in over {
                let left = heal(striker, wound, &mut missed).await;
                wounds.extend(left.map(|wound| (now + AGAIN, wound)));
            }
            striker.fleet().refill();
            if now >= strike.at {
                break;
            }
            tokio::time::sleep(LOOK.min(strike.at - now)).await;
        }
        let (at, struck_at) = (begun.elapsed(), now());
        let struck = tokio::time::timeout(STUCK, striker.strike(*strike)).await;
        match struck.unwrap_or_else(|_| Err(format!("it took longer than {STUCK:?}"))) {
            Ok((words, wound)) => {
                let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
                println!(
                    "{:7.1} {:?} {:?} {words}",
                    at.as_secs_f64(),
                    strike.fault,
                    strike.hold
                );
                wounds.extend(wound.map(|wound| (begun.elapsed() + strike.hold, wound)));
                let lag = strike.fault.lag(strike.hold);
                striker.damage().lags.extend(lag.map(|lag| {
                    let micros = i64::try_from(lag.as_micros()).unwrap_or(i64::MAX);
                    (struck_at, now() + micros)
                }));
            }
            Err(why) => {
                println!("{:7.1} {:?} missed: {why}", at.as_secs_f64(), strike.fault);
                missed.push(format!("{:?}: {why}", strike.fault));
            }
        }
    }
    let end = begun.elapsed() + STUCK;
    while !wounds.is_empty() && begun.elapsed() < end {
        wounds.sort_by_key(|(until, _)| *until);
        let (until, wound) = wounds.remove(0);
        tokio::time::sleep(until.saturating_sub(begun.elapsed())).await;
        let left = heal(striker, wound, &mut missed).await;
        wounds.extend(left.map(|wound| (begun.elapsed() + AGAIN, wound)));
    }
    missed
}

/// Heals a wound; returns it if the heal must be tried again because another wound blocked it.
async fn heal(striker: &mut impl Striker, wound: Wound, missed: &mut Vec<String>) -> Option<Wound> {
    let begun = Instant::now();
    let healed = tokio::time::timeout(STUCK, striker.heal(&wound)).await;
    if begun.elapsed() > LONG {
        println!(
            "        healing {} took {:?}",
            wound.name(),
            begun.elapsed()
        );
    }
    let why = healed
        .unwrap_or_else(|_| Err("healing is stuck".to_owned()))
        .err()?;
    println!("        not healed: {why}");
    // A promotion may have lost the object that the heal removes.
    if wound.must_be_healed() && !why.contains("does not exist") {
        return Some(wound);
    }
    missed.push(why);
    None
}

/// Looks for violations, including brief ones; returns the number of claimable jobs.
pub(crate) async fn look_at(
    client: &Client,
    journal: &Journal,
) -> std::result::Result<u64, tokio_postgres::Error> {
    let backlog = "select count(*) from trax.work_queue
        where waits_for is null or waits_for not in ('time', 'signal', 'jobs')";
    let backlog: i64 = client.query_one(backlog, &[]).await?.get(0);
    let complaints = "select rule || ': ' || coalesce(detail, '') || ' at ' || clock_timestamp() from trax.check()";
    let rows = client.query(complaints, &[]).await?;
    journal.note(|pages| pages.complaints.extend(rows.iter().map(|row| row.get(0))));
    Ok(backlog.unsigned_abs())
}

/// Returns all violations, including the failed wait in `is_done`.
pub(crate) fn judge(facts: &Facts, is_done: Result<()>, fleet: &Fleet) -> Vec<Violation> {
    let mut found = violations(facts);
    if let Err(seen) = is_done {
        found.push(Violation {
            rule: "all is done when nothing more goes wrong",
            detail: format!("{seen}; workers said:\n{}", fleet.said()),
        });
    }
    found.extend(fleet.panics().into_iter().map(|detail| Violation {
        rule: "no worker process panics",
        detail,
    }));
    found
}

/// Waits until all tasks have ended.
pub(crate) async fn join(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        // Each task has its own deadlines; a panic is a fault of the campaign.
        task.await.expect("who takes part does not panic");
    }
}

/// Waits until no job waits or runs in any of the databases, except those of manifests.
pub(crate) async fn drain(
    sessions: impl AsyncFn() -> Vec<Client>,
    fleet: &mut Fleet,
) -> Result<()> {
    let begun = Instant::now();
    let open = "select j.job_id, j.state, j.attempt, j.task, j.group_name, j.run_at::text, coalesce(j.worker, q.waits_for, '')
        from trax.job j
        left join trax.work_queue q on q.job_id = j.job_id
        where j.manifest is null and j.state in ('queued', 'in_progress') order by j.job_id";
    let mut last = String::new();
    loop {
        fleet.refill();
        let mut rows = Vec::new();
        for client in sessions().await {
            let more = client.query(open, &[]).await;
            rows.extend(more.map_err(|error| error.to_string())?);
        }
        if rows.is_empty() {
            if begun.elapsed() > LONG {
                println!("        the last job to end: {last}");
            }
            return Ok(());
        }
        last = described(&rows[0]);
        if begun.elapsed() > DRAIN {
            let some: Vec<_> = rows.iter().take(10).map(described).collect();
            return Err(format!(
                "{} jobs are left after {DRAIN:?}: {some:#?}",
                rows.len()
            ));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn described(row: &tokio_postgres::Row) -> String {
    let text = |at: usize| row.get::<_, String>(at);
    format!(
        "job {} {} attempt {} {} {} {} {}",
        row.get::<_, i64>(0),
        text(1),
        row.get::<_, i32>(2),
        text(3),
        text(4),
        text(5),
        text(6)
    )
}
