//! The suite sees what it is for: workers with a fault, each judged in the scenario that is about
//! it. They are the example in Python with a few of its words replaced.

use super::program::{Language, example};
use super::scenario::Scenario;
use super::{judge, verdict};

/// A fault, and where it must be seen.
struct Fault {
    /// What the worker does.
    name: &'static str,
    /// Words of the example, and what stands there instead.
    replaced: &'static [(&'static str, &'static str)],
    scenario: Scenario,
    /// In the verdict.
    words: &'static str,
}

const FAULTS: [Fault; 7] = [
    Fault {
        name: "sends no heartbeat",
        replaced: &[("job.done.wait(LEASE / 3)", "job.done.wait(1e6)")],
        scenario: Scenario::Heartbeats,
        words: "not 1 completed",
    },
    Fault {
        name: "ignores that a heartbeat says that its lease is lost",
        replaced: &[("if cancelled or not held:", "if cancelled:")],
        scenario: Scenario::LostLease,
        words: "stopped of job",
    },
    Fault {
        name: "completes whatever the token",
        replaced: &[
            // It needs the rights of a superuser to do so.
            (
                "os.environ[\"DATABASE_URL\"]",
                "os.environ[\"DATABASE_URL\"].replace('conformance@', 'postgres@')",
            ),
            (
                "select trax.complete(%s, %s::uuid, %s::jsonb)",
                "select trax.complete(l.job_id, l.token, j.output) \
                from (values (%s::bigint, %s::uuid, %s::jsonb)) j (id, token, output) \
                join trax.lease l on l.job_id = j.id",
            ),
        ],
        scenario: Scenario::StaleToken,
        words: "runs of the job of another",
    },
    Fault {
        name: "ignores a cancel",
        replaced: &[("if cancelled or not held:", "if not held:")],
        scenario: Scenario::Cancel,
        words: "stopped of job",
    },
    Fault {
        name: "does not reconnect",
        replaced: &[("            time.sleep(0.2)\n", "            raise\n")],
        scenario: Scenario::Restart,
        words: "the worker has ended",
    },
    Fault {
        name: "keeps its claims open, in a transaction until the outcome",
        replaced: &[
            (
                "db = db or psycopg.connect(DATABASE, autocommit=True",
                "db = db or psycopg.connect(DATABASE",
            ),
            ("    job.done.set()\n", "    job.done.set(); db.commit()\n"),
        ],
        scenario: Scenario::Claims,
        words: "a running job",
    },
    Fault {
        name: "exits at SIGTERM without giving back its job",
        replaced: &[("    stopping.set()\n", "    os._exit(0)\n")],
        scenario: Scenario::StopReleases,
        words: "a job after the stop",
    },
];

#[test]
fn each_fault_is_seen_by_the_scenario_that_is_about_it() {
    let trials = FAULTS.map(|fault| {
        let program = example(Language::Python, fault.replaced);
        let trial = judge(program, fault.scenario);
        (fault, trial)
    });
    for (fault, trial) in trials {
        let said = match verdict(trial) {
            Ok(()) => panic!("nobody sees a worker that {}", fault.name),
            Err(said) => said,
        };
        let wrong = said.split("\n-- printed:").next().unwrap_or_default();
        assert!(wrong.contains(fault.words), "{}: {said}", fault.name);
    }
}
