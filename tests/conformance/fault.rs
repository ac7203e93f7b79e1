//! Tests of the suite itself: each faulty worker must fail the scenario about its fault. The
//! workers are the Python example with a few words replaced.

use super::program::{Kind, Language, example, package};
use super::scenario::Scenario;
use super::{PYTHON, PYTHON_WORKER, judge, verdict};

/// A fault, and the scenario that must detect it.
struct Fault {
    /// The faulty behavior.
    name: &'static str,
    /// Text of the example, and its replacement.
    replaced: &'static [(&'static str, &'static str)],
    scenario: Scenario,
    /// Words that the verdict contains.
    words: &'static str,
}

const FAULTS: [Fault; 15] = [
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
            // Only a superuser may read the lease in this statement.
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
        name: "goes on after its timeout",
        replaced: &[("if cancelled or not held:", "if not held:")],
        scenario: Scenario::Timeout,
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
    Fault {
        name: "gives back at SIGTERM without a grace",
        replaced: &[("threading.Timer(GRACE,", "threading.Timer(0,")],
        scenario: Scenario::StopFinishes,
        words: "the job in hand",
    },
    Fault {
        name: "takes longer leases than it was told",
        replaced: &[("float(os.getenv(\"LEASE\", \"30\"))", "60.0")],
        scenario: Scenario::Killed,
        words: "a heartbeat",
    },
    Fault {
        name: "retries what failed for good",
        replaced: &[("getattr(error, \"permanent\", False)", "False")],
        scenario: Scenario::Failures,
        words: "not 1 failed",
    },
    Fault {
        name: "uses up an attempt for a job that is put off",
        replaced: &[(
            "(RELEASE, later.args[0])",
            "(FAIL, \"\", later.args[0], False)",
        )],
        scenario: Scenario::Snooze,
        words: "not 0 queued",
    },
    Fault {
        name: "ends when an outcome is refused",
        replaced: &[(
            "tell(FAIL, f\"the outcome was refused: {error}\", None, True)",
            "raise",
        )],
        scenario: Scenario::TooLarge,
        words: "the worker has ended",
    },
    Fault {
        name: "runs finished work again when its output is refused",
        replaced: &[(
            "was refused: {error}\", None, True)",
            "was refused: {error}\", None, False)",
        )],
        scenario: Scenario::TooLarge,
        words: "not 1 failed",
    },
    Fault {
        name: "decodes inputs where no job answers for them",
        replaced: &[
            (
                "daemon=True).start()\n",
                "daemon=True).start()\n    given = json.loads(job.text)\n",
            ),
            ("(json.loads(job.text), job)", "(given, job)"),
        ],
        scenario: Scenario::Poison,
        words: "the worker has ended",
    },
];

#[test]
fn a_worker_that_runs_fewer_jobs_than_it_may_is_seen() {
    let mut program = example(Language::Python, &[]);
    program.kind = Kind::Whole;
    let said = verdict(judge(program, Scenario::Concurrency)).expect_err("it runs one at a time");
    assert!(said.contains("handlers at once: 1, not 4"), "{said}");
}

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

/// Faults put into the Python package: words of Python in which `s` is its class of steps, and `c`
/// that of claims.
const FAULTS_OF_PACKAGE: [(&str, &str, Scenario, &str); 8] = [
    (
        "runs a recorded step again",
        "s._kept = lambda self, step, kind: iter(())",
        Scenario::Steps,
        "steps run",
    ),
    (
        "takes a signal twice",
        "s._named = lambda self, name: name",
        Scenario::Waits,
        "results",
    ),
    (
        "queues a child again",
        "f = s.spawn; s.spawn = lambda self, name, *rest: \
            f(self, f'{name} {self._attempt.attempt}', *rest)",
        Scenario::Steps,
        "results",
    ),
    (
        "keeps the result of a step of a stale attempt",
        // Only a superuser may read the lease in this statement.
        "import os; from trax import sql as q; \
            os.environ['DATABASE_URL'] = os.environ['DATABASE_URL'].replace('conformance@', 'postgres@'); \
            q.RECORD_STEP = q.RECORD_STEP.replace('%(token)s::uuid', \
            '(select l.token from trax.lease l where l.job_id = %(job_id)s::bigint)')",
        Scenario::StepStops,
        "not stopped",
    ),
    (
        "takes every version",
        "f = c.parameters; c.parameters = lambda self, wanted: {**f(self, wanted), 'versions': None}",
        Scenario::Versions,
        "a job of another version",
    ),
    (
        "claims as if no job could begin",
        "from trax import sql as q; \
            q.CLAIM, q.COMPLETE_AND_CLAIM = (text.replace('places => %(max_jobs)s::int', 'places => 0') \
            for text in (q.CLAIM, q.COMPLETE_AND_CLAIM))",
        Scenario::Rates,
        "0 queued",
    ),
    (
        "calls with jobs of several keys",
        "from trax.many import Many as m; m.key = lambda self, task, value: 1",
        Scenario::Many,
        // The last job of its key stays alone, if nobody saw that the others have begun.
        "not full|job 4 is 1 completed: not within",
    ),
    (
        "fails all jobs of a call with one of them",
        "from trax.many import _Gatherer as g; f = g._results; g._results = lambda *given: \
            [next((e for e in all if isinstance(e, Exception)), one) for all in [f(*given)] for one in all]",
        Scenario::Many,
        "not 1 completed",
    ),
];

#[test]
fn each_fault_of_a_package_is_seen() {
    let trials = FAULTS_OF_PACKAGE.map(|(name, fault, scenario, words)| {
        let program = package(&format!(
            "{PYTHON} -c \"import runpy, sys; from trax.steps import Steps as s; \
            from trax.exchange import Claim as c; {fault}; \
            sys.argv = ['', 'async']; runpy.run_path('{PYTHON_WORKER}', run_name='__main__')\""
        ));
        (name, words, judge(program, scenario))
    });
    for (name, words, trial) in trials {
        let said = match verdict(trial) {
            Ok(()) => panic!("nobody sees a worker that {name}"),
            Err(said) => said,
        };
        let wrong = said.split("\n-- printed:").next().unwrap_or_default();
        assert!(
            words.split('|').any(|words| wrong.contains(words)),
            "{name}: {said}"
        );
    }
}
