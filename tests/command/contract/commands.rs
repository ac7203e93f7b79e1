//! The contract of each command, as a table.

/// The output with `--json`.
#[derive(Clone, Copy)]
pub(super) enum Json {
    /// An array of objects; the first object has these members.
    Of(&'static str),
    /// An object with these members.
    Document(&'static str),
    /// An empty array.
    Empty,
    /// The command has no such option.
    Refused,
}

/// The output with `--quiet`.
#[derive(Clone, Copy)]
pub(super) enum Quiet {
    /// No output.
    Nothing,
    /// These lines; `$` is the result of the preparation.
    Lines(&'static str),
    /// At least one word, each on its own line, such as new ids or times.
    Words,
    /// The command has no such option.
    Refused,
}

/// The contract of a command.
pub(super) struct Contract {
    pub(super) words: &'static str,
    /// Valid arguments: `$` is the result of the preparation, `%` a directory with files.
    pub(super) arguments: &'static str,
    /// A statement to run before each call; its value is `$`.
    pub(super) prepared: &'static str,
    /// False if the command takes too long and is run in another test.
    pub(super) runs: bool,
    pub(super) asks_a_database: bool,
    pub(super) code: i32,
    /// A part of the plain output.
    pub(super) shows: &'static str,
    pub(super) json: Json,
    pub(super) quiet: Quiet,
    /// Invalid arguments, each in place of the valid ones.
    pub(super) wrong: &'static [&'static str],
}

const fn of(words: &'static str, arguments: &'static str) -> Contract {
    Contract {
        words,
        arguments,
        prepared: "select 1",
        runs: true,
        asks_a_database: true,
        code: 0,
        shows: "",
        json: Json::Refused,
        quiet: Quiet::Nothing,
        wrong: &[],
    }
}

impl Contract {
    const fn prepared(self, prepared: &'static str) -> Self {
        Contract { prepared, ..self }
    }

    const fn code(self, code: i32) -> Self {
        Contract { code, ..self }
    }

    const fn shows(self, shows: &'static str) -> Self {
        Contract { shows, ..self }
    }

    const fn json(self, names: &'static str) -> Self {
        let json = Json::Of(names);
        Contract { json, ..self }
    }

    const fn json_document(self, names: &'static str) -> Self {
        let json = Json::Document(names);
        Contract { json, ..self }
    }

    const fn json_of_nothing(self) -> Self {
        let json = Json::Empty;
        Contract { json, ..self }
    }

    const fn quiet(self, quiet: Quiet) -> Self {
        Contract { quiet, ..self }
    }

    const fn wrong(self, wrong: &'static [&'static str]) -> Self {
        Contract { wrong, ..self }
    }

    const fn run_elsewhere(self) -> Self {
        Contract {
            runs: false,
            ..self
        }
    }

    /// A command that uses no database and prints only text.
    const fn alone(self) -> Self {
        Contract {
            asks_a_database: false,
            quiet: Quiet::Refused,
            ..self
        }
    }

    pub(super) fn words(&self) -> Vec<String> {
        split(self.words)
    }

    pub(super) fn arguments(&self, prepared: &str, files: &str) -> Vec<String> {
        let of = |word: String| word.replace('$', prepared).replace('%', files);
        split(self.arguments).into_iter().map(of).collect()
    }
}

/// Splits a line into words; `~` is a blank within a word.
pub(super) fn split(line: &str) -> Vec<String> {
    line.split_whitespace()
        .map(|word| word.replace('~', " "))
        .collect()
}

const AN_END: &str =
    "select job_id from (select trax.enqueue('t')) n (job_id), lateral trax.cancel(job_id)";
const A_JOB: &str = "select trax.enqueue('t')";
const A_GRAPH: &str = r#"select max(job_id) from trax.enqueue_graph('{"jobs": [{"name": "load", "task": "load"}, {"name": "sum", "task": "sum", "needs": ["load"]}]}')"#;
const A_DEAD_LETTER: &str = "select trax.enqueue('dies', max_retries => 0);
    select trax.fail(job_id, token, 'no') from trax.claim_next(tasks => '{dies}');
    select max(id) from trax.dead_letter";
const A_MANIFEST: &str = "select trax.schedule('m', 'a', cron => '0 4 * * *', timezone => 'Europe/Berlin', enabled => true);
    select trax.cancel_manifest('m');
    select 'm'";
const A_FAILURE: &str = "select trax.cancel(job_id) from trax.work_queue where task = 'fails';
    select trax.enqueue('fails');
    select trax.fail(job_id, token, 'no') from trax.claim_next(tasks => '{fails}');
    select max(job_id) from trax.work_queue where waits_for = 'time'";
const PG_CRON: &str = "create schema if not exists cron;
    create table if not exists cron.job (jobid bigint primary key, schedule text, command text, database text,
        username text, active boolean, jobname text,
        nodename text default 'localhost', nodeport int default current_setting('port')::int);
    insert into cron.job values (1, '0 3 * * *', 'vacuum', 'app', 'ada', true, 'v') on conflict do nothing;
    select 'pg_cron:v'";

const JOB: &str = "attempt error finished_at group_name job_id manifest priority queued_at run_at scheduled_for \
    started_at state task waits_for worker";
const WHOLE_JOB: &str = "attempt attempts cancel_requested concurrency_key dead_letter_id dead_letter_reason \
    dead_letter_status error finished_at group_name input job_id lease_expires_at manifest max_retries output parent_job_id \
    priority progress queued_at rate requeued_job_id run_at scheduled_for started_at state steps task timeout_at unique_key version waits_for worker";
const DEAD_LETTER: &str = "attempts created_at group_name id job_id last_error manifest reason requeued_job_id \
    resolution_note resolved_at status task";
const WHOLE_DEAD_LETTER: &str = "attempts concurrency_key created_at group_name id input job_id last_error manifest \
    max_retries priority rate reason requeued_job_id resolution_note resolved_at status task unique_key version";
const MANIFEST: &str = "cron depends_mode depends_on dormant enabled evaluation_error every group_name \
    last_queued_at last_success_at name next_run_at on_dead_letter parked_on run_at stopped_by task timezone";
const WHOLE_MANIFEST: &str = "applied created_at cron decided_at dependents depends_mode depends_on disabled_reason dormant enabled \
    ends_at evaluation_error evaluation_failed_since evaluation_failures every exclusions group_name input last_queued_at \
    last_scheduled_for last_skipped_for last_success_at made_up manifest_id max_concurrency max_retries misfire \
    misfire_limit misfire_threshold name next_run_at next_scheduled_for on_dead_letter overlap parked_due_at parked_on parked_since \
    priority retry_delay run_as run_at skipped source sql starts_at task timeout timezone updated_at variance";
const PROPOSAL: &str = "left_out line manifest next_runs notes source";
const RUN: &str = "local_time note run_at";

const COMMANDS: [Contract; 65] = [
    of("demo", "").run_elsewhere().wrong(&["--jobs 0", "more"]),
    of("bench", "").run_elsewhere().wrong(&["nonsense", "--all drain"]),
    of("worker", "--all-tasks --exec true --until-empty")
        .prepared(A_JOB)
        .shows("completed")
        .json("cancelled completed dead lost released retrying stopped timed_out unreported")
        .wrong(&[
            "", "--exec", "--exec true", "--all-tasks", "--exec true --all-tasks --task t", "--exec true --group g",
            "--exec true --task t --concurrency 0", "--exec true --task t --lease 0", "--exec true --task t --retry-delay soon"
        ]),
    of("lock", "name -- true")
        .json("exit_code held_seconds holder name outcome signal slot waited_seconds")
        .wrong(&["", "name", "name -- ", "name --ttl 1ms -- true", "name --wait 1s --no-wait -- true"]),
    of("enqueue", "t {\"n\":1}")
        .json("job_id")
        .quiet(Quiet::Words)
        .wrong(&["", "t {", "t {} --file x", "t --file /no/such/file", "t --timeout -1", "t --retry-delay -1", "t --unique-for 60", "t --on-duplicate replace", "t --unique-key k --on-duplicate raise", "t --priority high", "t --sql vacuum", "t --run-as ada", "--sql vacuum --stream", "t --batch b", "--sql vacuum --batch 1", "t - --open-batch"]),
    of("graph apply", "%/graph.toml")
        .shows("sum")
        .json("job_id name")
        .quiet(Quiet::Words)
        .wrong(&["", "/no/such/file", "%/crontab", "%/graph.toml more"]),
    of("graph show", "$")
        .prepared(A_GRAPH)
        .shows("load")
        .json("attempt condition error finished_at job_id name needs started_at state task waits_for")
        .quiet(Quiet::Words)
        .wrong(&["", "load", "1 2"]),
    of("graph seal", "$")
        .prepared("select trax.open_batch('t')")
        .shows("is sealed with 0 jobs")
        .json("batch jobs")
        .wrong(&["", "load", "1 2"]),
    of("relay", "--from dbname=nobody_has_this")
        .run_elsewhere()
        .wrong(&["", "--from a=b", "--from dbname=a --batch 0", "--from dbname=a --poll 1ms", "--outbox-sql --target-sql"]),
    of("status", "")
        .code(2)
        .shows("scheduler")
        .json("healthy hint item value")
        .quiet(Quiet::Words)
        .wrong(&["--json --quiet", "more"]),
    of("check", "").shows("healthy").json_of_nothing().wrong(&["more"]),
    of("top", "--once --interval 0.5")
        .shows("GROUP")
        .json("claims_per_second completions_per_second counted database dead dead_letters enqueued_per_second \
            failures_per_second groups running scheduler_lag_seconds scheduler_paused scheduler_running stopped_schedules tasks \
            version workers")
        .quiet(Quiet::Refused)
        .wrong(&["", "--interval 0", "--interval soon"]),
    of("doctor", "")
        .code(2)
        .shows("scheduler_not_running")
        .json("cause detail fix severity")
        .quiet(Quiet::Words)
        .wrong(&["more"]),
    of("metrics", "")
        .shows("trax_up 1")
        .json("labels name value")
        .quiet(Quiet::Words)
        .wrong(&["--listen 0 --json", "--listen nowhere"]),
    of("web", "").alone().run_elsewhere().wrong(&[
        "more",
        "--listen nowhere",
        "--listen 0.0.0.0:0",
        "--trust-header X-User",
        "--roles /no/such/file",
        "--password-file /no/such/file",
        "--base trax",
        "--connections 0",
    ]),
    of("import crontab", "%/crontab")
        .shows("becomes")
        .json(PROPOSAL)
        .quiet(Quiet::Lines("crontab:true"))
        .wrong(&["", "/no/such/file", "%/crontab --count 0", "%/crontab --system --user me"]),
    of("import pg_cron", "")
        .prepared(PG_CRON)
        .shows("cron.job:1")
        .json(PROPOSAL)
        .quiet(Quiet::Lines("$"))
        .wrong(&["more", "--count 0"]),
    of("import run", "").alone().run_elsewhere().wrong(&["more"]),
    of("step", "name -- true").alone().run_elsewhere().wrong(&[
        "", "name", "~ -- ", "name --sleep soon", "name --sleep 1s -- true", "name --signal s --sleep 1s", "name -- true",
        "name --within 1s -- true", "name --undo-input 1 -- true", "name --undo t --undo-input { -- true", "name --undo t --sleep 1s",
        "name --spawn t --input {", "name --children --sleep 1s", "name --within 1s --spawn t", "name --input 1 -- true",
    ]),
    of("signal", "$ click 5")
        .prepared(A_JOB)
        .shows("has the signal click")
        .json("job_id result")
        .wrong(&["", "seven", "1", "1 click {"]),
    of("jobs list", "--limit 3")
        .prepared(A_JOB)
        .shows("WHEN")
        .json(JOB)
        .quiet(Quiet::Words)
        .wrong(&["--state asleep", "--limit 0", "more"]),
    of("jobs show", "$")
        .prepared(A_JOB)
        .shows("for a worker")
        .json(WHOLE_JOB)
        .quiet(Quiet::Lines("queued"))
        .wrong(&["", "seven"]),
    of("jobs why", "$")
        .prepared(A_JOB)
        .shows("waits for a worker")
        .json("action detail reason since")
        .quiet(Quiet::Words)
        .wrong(&["", "seven"]),
    of("jobs cancel", "$")
        .prepared(A_JOB)
        .shows("cancelled")
        .json("job_id result")
        .wrong(&["", "1 --group g", "--group g --manifest m", "1 --all", "--all --task t"]),
    of("jobs retry", "$")
        .prepared(A_FAILURE)
        .shows("is now ready")
        .json("job_id new_job_id via")
        .wrong(&["", "seven"]),
    of("jobs change", "$ --priority 3")
        .prepared(A_JOB)
        .shows("changed")
        .json("job_id result")
        .wrong(&["", "seven --priority 1", "1", "1 --input {", "1 --timeout -1"]),
    of("jobs fork", "$")
        .prepared(AN_END)
        .shows("continues as job")
        .json("job_id new_job_id")
        .wrong(&["", "seven", "1 --input {"]),
    of("jobs watch", "$")
        .prepared(AN_END)
        .code(4)
        .shows("cancelled")
        .json("attempt error job_id progress run_at state task worker")
        .wrong(&["", "1 --timeout -1"]),
    of("dead list", "--limit 3")
        .prepared(A_DEAD_LETTER)
        .shows("DIED")
        .json(DEAD_LETTER)
        .quiet(Quiet::Words)
        .wrong(&["--status gone", "--limit 0"]),
    of("dead show", "$")
        .prepared(A_DEAD_LETTER)
        .shows("attempts spent")
        .json(WHOLE_DEAD_LETTER)
        .quiet(Quiet::Lines("awaiting_intervention"))
        .wrong(&["", "seven"]),
    of("dead requeue", "$")
        .prepared(A_DEAD_LETTER)
        .shows("requeued as job")
        .json("id requeued_job_id result")
        .wrong(&["", "1 --all", "1 --task t"]),
    of("dead ack", "$ --note seen")
        .prepared(A_DEAD_LETTER)
        .shows("acknowledged")
        .json("id requeued_job_id result")
        .wrong(&["", "1 --all", "1 --task t"]),
    of("manifest list", "")
        .prepared(A_MANIFEST)
        .shows("SCHEDULE")
        .json(MANIFEST)
        .quiet(Quiet::Lines("$"))
        .wrong(&["--group"]),
    of("manifest show", "$")
        .prepared(A_MANIFEST)
        .shows("next runs")
        .json(WHOLE_MANIFEST)
        .quiet(Quiet::Lines("$"))
        .wrong(&[""]),
    of("manifest apply", "%/manifest.toml --yes")
        .prepared(A_MANIFEST)
        .shows("changed")
        .json("action changes kind name source")
        .wrong(&["", "/no/such/file.toml", "%/crontab --yes"]),
    of("manifest diff", "%/manifest.toml --exit-code")
        .prepared("select trax.schedule('m', 'a', cron => '0 5 * * *')")
        .code(2)
        .shows("~ manifest m")
        .json("action changes kind name source")
        .wrong(&["", "/no/such/file.toml"]),
    of("manifest export", "$")
        .prepared(A_MANIFEST)
        .shows("[[manifests]]")
        .json_document("groups manifests rates tasks")
        .quiet(Quiet::Lines("$"))
        .wrong(&["m --format xml"]),
    of("manifest enable", "$")
        .prepared(A_MANIFEST)
        .shows("enabled")
        .json("action name")
        .wrong(&[""]),
    of("manifest disable", "$")
        .prepared(A_MANIFEST)
        .shows("disabled")
        .json("action name")
        .wrong(&[""]),
    of("manifest trigger", "$")
        .prepared(A_MANIFEST)
        .json("job_id name")
        .quiet(Quiet::Words)
        .wrong(&["", "m --input {"]),
    of("manifest preview", "$ --count 2")
        .prepared(A_MANIFEST)
        .shows("IN ITS ZONE")
        .json(RUN)
        .quiet(Quiet::Words)
        .wrong(&["", "m --count 0"]),
    of("manifest why", "$")
        .prepared(A_MANIFEST)
        .shows("not_due")
        .json("action detail reason since")
        .quiet(Quiet::Words)
        .wrong(&[""]),
    of("manifest delete", "$ --yes")
        .prepared("select trax.schedule('gone', 'a'); select 'gone'")
        .shows("deleted")
        .json("action name")
        .wrong(&[""]),
    of("group list", "")
        .prepared(A_MANIFEST)
        .shows("PRIORITY")
        .json("enabled manifests max_active_jobs max_per_key max_waiting name overflow priority rate ready running")
        .quiet(Quiet::Words)
        .wrong(&["more"]),
    of("group set", "g --priority 1")
        .shows("group \"g\" set")
        .json("action name")
        .wrong(&["", "g", "g --priority high", "g --overflow drop"]),
    of("task set", "t --max-retries 1")
        .shows("task \"t\" set")
        .json("action name")
        .wrong(&["", "t", "t --backoff much", "t --on-final-failure drop"]),
    of("task list", "")
        .prepared("select trax.configure_task('t', max_retries => 1)")
        .shows("RETRIES")
        .json("backoff max_retries name on_final_failure retry_delay retry_delay_max timeout")
        .quiet(Quiet::Lines("t"))
        .wrong(&["more"]),
    of("task reset", "t")
        .prepared("select trax.configure_task('t', max_retries => 1)")
        .shows("task \"t\" reset")
        .json("action name")
        .wrong(&[""]),
    of("group pause", "g")
        .prepared("select trax.configure_group('g')")
        .shows("paused")
        .json("action name")
        .wrong(&[""]),
    of("group resume", "g")
        .prepared("select trax.configure_group('g')")
        .shows("resumed")
        .json("action name")
        .wrong(&[""]),
    of("group move", "g --to 2")
        .run_elsewhere()
        .wrong(&["", "g", "g --to here"]),
    of("rate list", "")
        .prepared("select trax.configure_rate('r', 5, '1 min')")
        .shows("AVAILABLE")
        .json("allowed available burst closed_until free_at name period waiting")
        .quiet(Quiet::Words)
        .wrong(&["more"]),
    of("rate set", "r --allowed 5 --per 1m --burst 2")
        .shows("rate \"r\" set")
        .json("action name")
        .wrong(&["", "r", "r --allowed 5", "r --allowed many --per 1m"]),
    of("rate close", "r --key k --for 5m")
        .prepared("select trax.configure_rate('r', 5, '1 min')")
        .shows("closed")
        .json("action name")
        .wrong(&["", "r", "r --for 5m --until tomorrow"]),
    of("rate open", "r")
        .prepared("select trax.configure_rate('r', 5, '1 min')")
        .shows("opened")
        .json("action name")
        .wrong(&[""]),
    of("rate drop", "$")
        .prepared("select trax.configure_rate('gone', 5, '1 min'); select 'gone'")
        .shows("dropped")
        .json("action name")
        .wrong(&[""]),
    of("workers", "")
        .prepared("select trax.enqueue('t'); select from trax.claim_next(worker => 'w', tasks => '{t}')")
        .shows("working")
        .json("host info last_seen_at name oldest_started_at running started_at state tasks version")
        .quiet(Quiet::Words)
        .wrong(&["more"]),
    of("tokens", "")
        .prepared("select from trax.acquire_token('t', 'h', 1, '1 h')")
        .shows("EXPIRES")
        .json("expires_at holder max_holders name pid place since state")
        .quiet(Quiet::Words)
        .wrong(&["a b"]),
    of("audit", "--limit 2")
        .prepared("select trax.configure_group('g', priority => 1)")
        .shows("configure")
        .json("action at id kind name note program role")
        .quiet(Quiet::Words)
        .wrong(&["--kind nothing", "--limit 0", "more"]),
    of("pause", "--reason why").shows("paused").json("scheduler").wrong(&["more"]),
    of("resume", "").shows("is running again").json("scheduler").wrong(&["more"]),
    of("cron explain", "@daily --timezone Europe/Berlin")
        .shows("At 00:00 every day")
        .json("description expression runs timezone")
        .quiet(Quiet::Words)
        .wrong(&["", "@daily --count 0"]),
    of("grant", "$ reader")
        .prepared("do 'begin create role \"granted by the command\"; exception when duplicate_object then end';
            select 'granted~by~the~command'")
        .json("level role")
        .wrong(&["", "r", "r emperor"]),
    of("completions", "bash").alone().shows("_trax").wrong(&["", "tcsh"]),
    of("man", "").alone().shows(".TH").wrong(&["more"]),
];

/// Every command.
pub(super) fn all() -> impl Iterator<Item = &'static Contract> {
    COMMANDS.iter()
}
