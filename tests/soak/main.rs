//! A soak: one database gets a million jobs after the other, beside kills, restarts and the changes
//! of an administrator. After each million every job is checked.
//!
//!     make soak JOBS=1000000000 SEED=3
//!
//! The database stays in target/soak (`SOAK_DIR`). The next run continues with it, by the extension
//! that is installed then. A run that gets SIGINT or SIGTERM ends after the current million; after
//! a kill the next run continues where the last complete run ended. The faults of a million depend
//! on the seed and its number.

mod check;
mod kept;
mod round;
mod strike;

use harness::number;
use kept::Kept;
use round::Round;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::signal::unix::{SignalKind, signal};
use trax_client::testkit::Server;

/// The jobs of a round.
const MILLION: u64 = 1_000_000;
/// The database of the soak.
const DATABASE: &str = "soak";

/// The error describes a promise that does not hold, or a server that does not come back.
type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime starts");
    let jobs = number("JOBS").unwrap_or(10 * MILLION);
    let seed = number("SEED").unwrap_or(1);
    let kept = Kept::of_environment();
    let mut server = kept.open();
    let done = runtime.block_on(soak(&mut server, seed, jobs.div_ceil(MILLION)));
    kept.keep(server);
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            println!("{wrong}");
            println!("the database is in {kept}");
            ExitCode::FAILURE
        }
    }
}

/// Runs rounds until the database has had this many.
async fn soak(server: &mut Server, seed: u64, rounds: u64) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut signals = signal(kind).map_err(|error| error.to_string())?;
        let asked = stop.clone();
        tokio::spawn(async move {
            signals.recv().await;
            asked.store(true, Ordering::Relaxed);
        });
    }
    let mut number = check::prepare(server).await?;
    while number < rounds && !stop.load(Ordering::Relaxed) {
        number += 1;
        let begun = Instant::now();
        let strikes = run(server, seed, number, MILLION).await?;
        let sizes = check::sizes(server).await?;
        check::forget(server, number, seed).await?;
        let seconds = begun.elapsed().as_secs_f64();
        println!("million {number}: {seconds:.1} s; {strikes}; {sizes}");
    }
    Ok(())
}

/// Runs a round of jobs with its faults, and checks all of them; returns the faults.
async fn run(server: &mut Server, seed: u64, number: u64, jobs: u64) -> Result<String> {
    let round = Arc::new(Round::new(server, number, jobs));
    let tasks = round.begin();
    let mut said = Vec::new();
    for (at, strike) in strike::plan(seed, number, jobs) {
        round.reaches(at).await?;
        said.push(strike.run(server).await?);
    }
    round.ends().await?;
    for task in tasks {
        task.await.map_err(|error| error.to_string())??;
    }
    round.wrong()?;
    check::every_job(server, &round).await?;
    if said.is_empty() {
        said.push("no fault".to_owned());
    }
    Ok(said.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use check::connect;

    const JOBS: u64 = 3000;

    async fn one_round() -> (Server, Arc<Round>) {
        let mut server = kept::options().start().expect("a server starts");
        let begun = check::prepare(&server).await.expect("it is prepared");
        assert_eq!(begun, 0);
        run(&mut server, 2, 1, JOBS).await.expect("all is well");
        let round = Arc::new(Round::new(&server, 1, JOBS));
        (server, round)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lost_a_doubled_and_a_dead_job_and_a_doubled_occurrence_are_seen() {
        let (server, round) = one_round().await;
        let acts = [
            (
                "delete from trax.run where state = 'completed' and task = 'soak' and input = '17'",
                "2999 of 3000 completed",
            ),
            (
                "insert into trax.run select * from trax.run where input = '18' and state = 'completed'",
                "2999 different",
            ),
            (
                "insert into trax.dead_letter (job_id, attempts, priority, created_at, task, group_name, reason, last_error, input)
                 select 7, 1, 0, now(), 'soak', 'g0', 'retries_exhausted', 'no', '1'",
                "1 dead letters",
            ),
            (
                "update trax.run set task = 'beat', scheduled_for = '2000-01-01' where state = 'completed' and input in ('20', '21')",
                "1 occurrences ran twice",
            ),
        ];
        check::every_job(&server, &round).await.expect("as before");
        for (act, seen) in acts {
            let client = connect(&server.existing(DATABASE))
                .await
                .expect("it accepts us");
            client.batch_execute(act).await.expect("it can be done");
            let said = check::every_job(&server, &round).await;
            let said = said.expect_err("it is seen");
            assert!(said.contains(seen), "{seen}: {said}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_kept_database_goes_on_with_the_next_round() {
        let dir = std::env::temp_dir().join(format!("trax-soak-{}", std::process::id()));
        let kept = Kept::at(dir.clone());
        for number in 1..=2 {
            let mut server = kept.open();
            let before = check::prepare(&server).await.expect("it is prepared");
            assert_eq!(before, number - 1);
            run(&mut server, 5, number, JOBS)
                .await
                .expect("all is well");
            let forgotten = check::forget(&server, number, 5).await;
            forgotten.expect("the round is recorded");
            kept.keep(server);
        }
        // A run that was killed at the end of `keep`.
        std::fs::rename(dir.join("data"), dir.join("complete")).expect("it can be renamed");
        let rounds = check::prepare(&kept.open()).await;
        assert_eq!(rounds, Ok(2));
        std::fs::remove_dir_all(dir).expect("it can be removed");
    }

    #[tokio::test]
    async fn a_job_that_is_given_out_or_completed_after_its_end_is_seen() {
        let server = kept::options().start().expect("a server starts");
        let round = Round::new(&server, 2, JOBS);
        round.give_out(3001);
        round.acknowledge(3001);
        round.wrong().expect("all is well");
        round.give_out(3001);
        round.acknowledge(3001);
        round.acknowledge(3000);
        assert_eq!(
            round.wrong(),
            Err("round 2: 3001 was given out after its end; 3001 was completed twice; 3000 is not of this round".to_owned())
        );
    }

    #[test]
    fn the_faults_of_a_round_depend_on_seed_and_number() {
        let plan = |seed, number| format!("{:?}", strike::plan(seed, number, MILLION));
        assert_eq!(plan(3, 9), plan(3, 9));
        let all: std::collections::HashSet<String> = (1..200).map(|n| plan(3, n)).collect();
        assert!(all.len() > 100, "{} plans", all.len());
    }
}
