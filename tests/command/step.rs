//! `trax step`: a shell script under `trax worker --exec` is durable.

use super::{bare, trax};
use harness::process::{Process, Scratch, run, trax_binary};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use std::process::Command;
use std::time::Duration;
use trax_client::testkit::{Database, pass_time};

/// A database, and a script that is the program of its worker.
struct Flow {
    db: Database,
    s: Session,
    files: Scratch,
}

/// The first lines of each script: `trax` is the binary, and `code` prints the exit code of a
/// command whose messages go to the file `said`.
const PRELUDE: &str = r#"
trax() { "$TRAX" "$@"; }
code() { "$@" >>"$DIR/printed" 2>>"$DIR/said"; echo $?; }
note() { echo "$1" >>"$DIR/log"; }
"#;

impl Flow {
    async fn of(script: &str) -> Self {
        let (db, s) = session().await;
        let files = Scratch::new("step");
        let path = files.path().join("script");
        std::fs::write(path, format!("{PRELUDE}{script}")).expect("a script can be written");
        Flow { db, s, files }
    }

    fn worker(&self, options: &[&str]) -> Command {
        let exec = format!("exec bash {}", self.files.path().join("script").display());
        let mut worker = trax(&self.db, &["worker", "--task", "flow", "--exec", &exec]);
        worker
            .args(options)
            .env("TRAX", trax_binary())
            .env("DIR", self.files.path());
        worker
    }

    /// Runs all jobs that are ready; returns the worker's log.
    fn work(&self) -> String {
        let (code, _, errors) = run(&mut self.worker(&["--until-empty", "--grace", "0.5s"]));
        assert_eq!(code, Some(0), "{errors}");
        errors
    }

    async fn enqueue(&self, options: &str) -> i64 {
        let job = format!("'flow', 'null', retry_delay => '1 h'{options}");
        self.s.enqueue(&job).await
    }

    /// The lines that the script has written to a file.
    fn lines(&self, file: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.files.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn steps(&self, job: i64) -> String {
        let sql = format!("select step, kind, output from trax.read_steps({job})");
        self.s.get(&sql).await
    }

    async fn output(&self, job: i64) -> String {
        let sql = format!("select state, attempt, output from trax.job where job_id = {job}");
        self.s.get(&sql).await
    }

    async fn later(&self, time: Duration) {
        let passed = pass_time(self.s.client(), time).await;
        passed.expect("time passes");
    }
}

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn a_command_runs_once_and_every_attempt_prints_what_it_printed() {
    let flow = Flow::of(
        r#"set -eu
name=$(trax step name -- sh -c 'echo ran >>"$DIR/ran"; printf "Ada\n Lovelace\n\n"')
one=$(trax step n -- echo 1)
two=$(trax step n -- echo 2)
doc=$(trax step doc --json -- sh -c 'echo ran >>"$DIR/ran"; echo "{\"n\":1.10}"')
hash=$(trax step hash -- echo 12e345)
null=$(trax step nothing -- true)$(trax step null --json -- echo null)
printf '%s|' "$name" "$one" "$two" "$doc" "$hash" "$null"
[ "$TRAX_ATTEMPT" = 2 ]"#,
    )
    .await;
    let job = flow.enqueue(", max_retries => 1").await;
    let log = flow.work();
    assert!(log.contains("1 retrying"), "{log}");
    let kept = "name|step|\"Ada\\n Lovelace\"\nn|step|\"1\"\nn#2|step|\"2\"\ndoc|step|{\"n\": 1.10}\n\
        hash|step|\"12e345\"\nnothing|step|null\nnull|step|null";
    assert_eq!(flow.steps(job).await, kept);
    flow.later(2 * HOUR).await;
    flow.work();
    let output = r#"completed|2|"Ada\n Lovelace|1|2|{\"n\": 1.10}|12e345|null|""#;
    assert_eq!(flow.output(job).await, output);
    assert_eq!(flow.lines("ran").len(), 2, "each ran once");
    assert_eq!(flow.steps(job).await, kept, "also of the ended job");
    flow.s.assert_healthy().await;
}

#[tokio::test]
async fn a_command_that_fails_is_not_recorded_and_its_exit_code_and_output_are_passed_on() {
    let flow = Flow::of(
        r#"
code trax step e -- false >/dev/null
code trax step e -- true >/dev/null
code trax step a -- sh -c 'echo half; exit 7' >/dev/null
exec "$TRAX" step f -- sh -c 'echo "{\"retry_in\": 7200}"; echo no >&2; exit 75' 2>"$DIR/error""#,
    )
    .await;
    let job = flow.enqueue("").await;
    flow.work();
    let waits = "select error, (detail ->> 'retry_in') from trax.run";
    assert_eq!(flow.s.get(waits).await, "temporary failure|7200");
    assert_eq!(flow.lines("error"), ["no"]);
    assert_eq!(flow.lines("printed"), ["half"]);
    // A command that failed leaves its name to the next one.
    assert_eq!(flow.steps(job).await, "e|step|null");
    flow.s.assert_healthy().await;
}

#[tokio::test]
async fn the_exit_code_of_a_step_is_that_of_its_command_or_says_what_is_wrong() {
    let flow = Flow::of(
        r#"
touch "$DIR/plain"
echo $(code trax step a -- sh -c 'exit 7') \
    $(code trax step b -- sh -c 'kill -9 $$') \
    $(code trax step c -- no-such-program) \
    $(code trax step d -- "$DIR/plain") \
    $(code trax step utf -- printf '\351') \
    $(code trax step nul -- printf 'a\0b') \
    $(code trax step json --json -- echo hello) \
    $(code trax step unicode --json -- echo '"\u0000"') \
    $(code trax step large -- sh -c 'head -c 1100000 /dev/zero | tr "\0" x') \
    $(code trax step usage --json) \
    $(code trax step nap --sleep 0s) \
    $(code trax step nap -- true)"#,
    )
    .await;
    let job = flow.enqueue("").await;
    flow.work();
    let codes = r#"completed|1|"7 137 127 126 65 65 65 65 65 64 0 0""#;
    assert_eq!(flow.output(job).await, codes);
    assert_eq!(flow.steps(job).await, "nap|sleep|\nnap#2|step|null");
    let said = flow.lines("said").join("\n");
    for part in [
        "trax: no-such-program: ",
        "is not UTF-8, and is not kept\nhint: print it in base64: trax step NAME -- sh -c 'COMMAND | base64'",
        "has a NUL, which PostgreSQL cannot store",
        "is not JSON (expected value at line 1 column 1), and is not kept\nhint: leave out --json",
        "the result of step \"unicode\" is not JSON: the character NUL after ",
        "the result of step \"large\" was refused: ",
        "trax.max_input_bytes",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    flow.s.assert_healthy().await;
}

#[tokio::test]
async fn a_command_whose_end_was_not_recorded_runs_again() {
    for killed in ["$PPID", "$WORKER"] {
        let flow = Flow::of(
            r#"set -e
export WORKER=$PPID
trax step charge -- sh -c '
    echo ran >>"$DIR/ran"
    [ -e "$DIR/again" ] || { touch "$DIR/again"; kill -9 KILLED; }
    echo 7'"#
                .replace("KILLED", killed)
                .as_str(),
        )
        .await;
        let job = flow.enqueue(", max_retries => 3").await;
        run(&mut flow.worker(&["--until-empty"]));
        assert_eq!(flow.lines("ran").len(), 1);
        assert_eq!(flow.steps(job).await, "");
        // The lease of a worker that was killed ends, and then the delay of the retry.
        flow.later(2 * HOUR).await;
        flow.later(2 * HOUR).await;
        flow.work();
        assert_eq!(flow.output(job).await, "completed|2|7");
        assert_eq!(flow.lines("ran").len(), 2);
        assert_eq!(flow.steps(job).await, "charge|step|\"7\"");
        flow.s.assert_healthy().await;
    }
}

#[tokio::test]
async fn an_attempt_that_has_lost_its_lease_records_nothing_and_its_program_ends() {
    let flow = Flow::of(
        r#"
trap '' TERM
mkfifo "$DIR/go"
code trax step slow -- sh -c 'echo begun >"$DIR/log"; read go <"$DIR/go"; echo mine' >"$DIR/code"
trax step after -- true
sleep 600"#,
    )
    .await;
    let job = flow.enqueue("").await;
    let worker = Process::start(flow.worker(&["--grace", "0.5s", "--concurrency", "1"]));
    // No heartbeat is due between the report that the job has begun and the end of the step, so the
    // step finds that the lease is lost.
    eventually(
        "the step begins, as the server knows",
        PATIENCE,
        async || {
            let is_known = flow.s.get("select not ahead from trax.lease").await == "t";
            match is_known && !flow.lines("log").is_empty() {
                true => Ok(()),
                false => Err(worker.output()),
            }
        },
    )
    .await;
    flow.s
        .get("select trax.release(job_id, token) from trax.lease")
        .await;
    let other = flow.s.claim_one("worker => 'other', lease => '1 h'").await;
    std::fs::write(flow.files.path().join("go"), "go\n").expect("the step reads it");
    worker.says("the lease is lost", PATIENCE).await;
    assert_eq!(flow.lines("code"), ["74"]);
    let said = flow.lines("said").join("\n");
    assert!(
        said.starts_with("trax: the attempt of this program has ended, and keeps no step\nhint: "),
        "{said}"
    );
    assert_eq!(flow.steps(job).await, "");
    let record = format!(
        "select recorded from trax.record_step({}, 'slow', '1')",
        other.key()
    );
    assert_eq!(flow.s.get(&record).await, "t");
    assert_eq!(flow.steps(job).await, "slow|step|1");
    flow.s
        .get(&format!("select trax.complete({})", other.key()))
        .await;
    flow.s.assert_healthy().await;
}

#[tokio::test]
async fn a_sleep_ends_the_program_and_a_later_attempt_goes_on_behind_it() {
    let flow = Flow::of(
        r#"
trap 'note "bye $TRAX_ATTEMPT"' EXIT
note begin
trax step nap --sleep 1h
note behind
trax step nap --sleep 1h || note $?
echo '"done"'"#,
    )
    .await;
    let job = flow.enqueue(", max_retries => 0").await;
    let log = flow.work();
    assert!(
        log.contains("1 released") && !log.contains("failed"),
        "{log}"
    );
    assert_eq!(flow.lines("log"), ["begin", "bye 1"], "its trap ran");
    let waits = "select waits_for, attempts from trax.work_queue";
    assert_eq!(flow.s.get(waits).await, "time|0");
    for nap in 1..=2 {
        flow.later(HOUR).await;
        flow.work();
        let behind = flow
            .lines("log")
            .iter()
            .filter(|line| *line == "behind")
            .count();
        assert_eq!(behind, nap);
    }
    assert_eq!(flow.output(job).await, "completed|1|\"done\"");
    assert_eq!(flow.lines("log").len(), 8);
    let steps = flow.steps(job).await;
    assert_eq!(steps, "nap|sleep|\nnap#2|sleep|");
    flow.s.assert_healthy().await;
}

#[tokio::test]
async fn a_program_that_ignores_its_end_does_not_go_on_behind_a_wait() {
    let flow = Flow::of(
        r#"
trap '' TERM
note begin
trax step nap --sleep 1h || true
note behind"#,
    )
    .await;
    flow.enqueue("").await;
    flow.work();
    assert_eq!(flow.lines("log"), ["begin"]);
    flow.s.assert_healthy().await;
}

#[tokio::test]
async fn a_script_waits_for_a_signal_or_for_the_end_of_its_time() {
    let flow = Flow::of(
        r#"
if click=$(trax step confirmed --signal click --within 3d); then echo "by $click"; else echo "exit $?"; fi
trax step order --signal order --json"#,
    )
    .await;
    let clicked = flow.enqueue("").await;
    flow.work();
    let waits = "select waits_for from trax.work_queue";
    assert_eq!(flow.s.get(waits).await, "signal");
    let send = async |job: i64, signal: &str, payload: &str| {
        let sql = format!("select trax.send_signal({job}, '{signal}', '{payload}')");
        assert_eq!(flow.s.get(&sql).await, "sent");
    };
    send(clicked, "click", "\"ada\"").await;
    send(clicked, "order", "\"7\"").await;
    flow.work();
    assert_eq!(flow.output(clicked).await, r#"completed|1|"by ada\n\"7\"""#);
    let late = flow.enqueue("").await;
    send(late, "order", "[1]").await;
    flow.work();
    flow.later(96 * HOUR).await;
    flow.work();
    assert_eq!(flow.output(late).await, r#"completed|1|"exit 3\n[1]""#);
    flow.s.assert_healthy().await;
}

/// The work was done: its output cannot be kept.
#[tokio::test]
async fn a_step_whose_output_cannot_be_kept_is_undone() {
    for (command, option) in [
        (r"printf '\351'", ""),
        (r"printf 'a\000b'", ""),
        ("echo hello", "--json"),
    ] {
        let script = format!("trax step charge {option} --undo card.refund -- sh -c \"{command}\"");
        let flow = Flow::of(&script).await;
        flow.enqueue("").await;
        flow.work();
        let queued = "select task from trax.work_queue";
        assert_eq!(flow.s.get(queued).await, "card.refund", "{command}");
    }
}

#[tokio::test]
async fn a_step_of_a_job_that_fails_for_good_is_undone() {
    let flow = Flow::of(
        r#"set -e
trax step charge --undo card.refund --undo-input '{"cents": 900}' -- echo ok
trax step mail --undo mail.sorry -- true
exit 65"#,
    )
    .await;
    flow.enqueue("").await;
    flow.work();
    let undo = "select task, input, waits_for from trax.work_queue order by job_id";
    let queued = flow.s.get(undo).await;
    assert!(queued.contains("card.refund|{\"cents\": 900}|"), "{queued}");
    assert!(queued.contains("mail.sorry|"), "{queued}");
    flow.s.assert_healthy().await;
}

#[tokio::test]
async fn a_script_has_children_and_gets_their_outputs() {
    let flow = Flow::of(
        r#"set -e
trax step one --spawn sum --input '[1, 2]' >>"$DIR/ids"
trax step two --spawn sum >>"$DIR/ids"
trax step sums --children"#,
    )
    .await;
    let job = flow.enqueue("").await;
    flow.work();
    let inputs = "select job_id, input, parent_job_id from trax.work_queue where task = 'sum' order by job_id";
    let children = [job + 1, job + 2];
    let rows = format!("{}|[1, 2]|{job}\n{}|{{}}|{job}", children[0], children[1]);
    assert_eq!(flow.s.get(inputs).await, rows);
    flow.s
        .get(
            "select trax.complete(job_id, token, '7') from trax.claim_next(tasks => '{sum}');
            select trax.fail(job_id, token, 'no', permanent => true) from trax.claim_next(tasks => '{sum}')",
        )
        .await;
    flow.later(Duration::ZERO).await;
    flow.work();
    let ids = children.map(|id| id.to_string());
    assert_eq!(flow.lines("ids"), [ids.clone(), ids].concat());
    let output = format!(
        "select output -> 0 -> 'output', output -> 1 ->> 'error' from trax.job where job_id = {job}"
    );
    assert_eq!(flow.s.get(&output).await, "7|no");
}

#[tokio::test]
async fn a_command_that_ends_well_in_spite_of_a_cancel_has_done_its_step() {
    let flow = Flow::of(
        r#"trax step careful -- sh -c '
trap "echo done; exit 0" TERM
echo begun >"$DIR/log"
while true; do sleep 0.1; done'
trax step after -- true"#,
    )
    .await;
    let job = flow.enqueue("").await;
    let worker = Process::start(flow.worker(&["--lease", "3", "--grace", "10"]));
    eventually("the step begins", PATIENCE, async || {
        match flow.lines("log").is_empty() {
            true => Err(worker.output()),
            false => Ok(()),
        }
    })
    .await;
    flow.s.get(&format!("select trax.cancel({job})")).await;
    flow.s
        .becomes("select state from trax.job", "cancelled")
        .await;
    assert_eq!(flow.steps(job).await, "careful|step|\"done\"");
    flow.s.assert_healthy().await;
}

#[tokio::test]
async fn steps_side_by_side_and_within_each_other_are_each_recorded() {
    let flow = Flow::of(
        r#"set -e
for n in 1 2 3 4 5; do
    trax step "page $n" -- echo $n >"$DIR/$n" &
done
wait
trax step outer -- sh -c '"$TRAX" step inner -- echo within'
cat "$DIR"/[1-5]"#,
    )
    .await;
    let job = flow.enqueue("").await;
    flow.work();
    assert_eq!(
        flow.output(job).await,
        r#"completed|1|"within\n1\n2\n3\n4\n5""#
    );
    let steps = format!("select string_agg(step, ',' order by step) from trax.read_steps({job})");
    let names = "inner,outer,page 1,page 2,page 3,page 4,page 5";
    assert_eq!(flow.s.get(&steps).await, names);
    flow.s.assert_healthy().await;
}

#[tokio::test]
async fn recorded_steps_that_a_changed_script_does_not_reach_are_logged() {
    let flow = Flow::of("trax step new -- true").await;
    flow.enqueue("").await;
    let claimed = flow.s.claim_one("").await;
    flow.s
        .get(&format!(
            "select trax.record_step({0}, 'old', '1'); select trax.release({0})",
            claimed.key()
        ))
        .await;
    let log = flow.work();
    let said = "completed without its recorded steps \"old\"";
    assert!(log.contains(said), "{log}");
    assert_eq!(
        flow.s.get("select detail from trax.run").await,
        r#"{"unreached_steps": ["old"]}"#
    );
}

#[test]
fn outside_of_a_worker_it_says_what_to_type() {
    let (code, output, errors) = run(bare().args(["step", "a", "--", "true"]));
    assert_eq!((code, output.as_str()), (Some(64), ""), "{errors}");
    assert_eq!(
        errors,
        "trax: trax step works only in a program that trax worker --exec runs\n\
        hint: type: trax worker --task TASK --exec 'sh ./script', where the script calls trax step\n"
    );
    let mut outlived = bare();
    outlived.args(["step", "a", "--", "true"]);
    let (code, _, errors) = run(outlived.env("TRAX_STEP_SOCKET", "trax-step-of-nobody"));
    assert_eq!(code, Some(74), "{errors}");
    assert!(errors.contains("has ended"), "{errors}");
    let (_, help, _) = run(bare().args(["step", "--help"]));
    for part in [
        "--sleep",
        "--signal",
        "--within",
        "--spawn",
        "--children",
        "--undo-input",
        "Exit codes",
        "NAME#2",
    ] {
        assert!(help.contains(part), "{part}: {help}");
    }
}
