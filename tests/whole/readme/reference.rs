//! The reference pages, which are generated from the server: `functions.md` from the comments of
//! the functions, `settings.md` from the descriptions of the settings. Names in these texts are
//! linked.

use super::{root, text};
use harness::database;
use harness::scheduler::connect;
use tokio_postgres::Client;

/// The functions of the contract, in the order of the page. A function that only trax calls says
/// "Internal." in its comment, and is not listed.
const CONTRACT: [(&str, &str); 11] = [
    (
        "Produce",
        "enqueue enqueue_many enqueue_sql limit_queue_time change_job run_now cancel explain_job await_job await_jobs get_jobs",
    ),
    (
        "Manifests",
        "schedule unschedule enable_manifest disable_manifest trigger trigger_group activate cancel_manifest apply preview \
         preview_cron explain_manifest",
    ),
    ("Groups", "configure_group cancel_group"),
    ("Tasks", "configure_task reset_task"),
    (
        "Work",
        "claim_next heartbeat complete complete_many complete_and_claim fail release acknowledge_cancel cancel_own \
         report_progress report_worker wait_for_work waiting_tasks runs_as_stored",
    ),
    (
        "Steps",
        "record_step read_steps sleep await_signal send_signal spawn await_children fork",
    ),
    (
        "Graphs and batches",
        "enqueue_graph read_needs read_graph open_batch seal_batch",
    ),
    (
        "Dead letters",
        "requeue_dead_letter requeue_dead_letters acknowledge_dead_letter record_again",
    ),
    (
        "Tokens",
        "acquire_token await_token extend_token release_token",
    ),
    (
        "Rates",
        "configure_rate drop_rate consume_rate close_rate read_rate",
    ),
    (
        "Operate",
        "status check diagnose metrics tick pause resume believe_clock start_scheduler adopt set_shard shard_of where_is grant_access revoke_access",
    ),
];

const OPENING: &str = "# Functions

The contract, as `\\df+ trax.*` shows it in psql. Pass arguments by name; those in brackets are null by default. Every
type is built in. Others are internal, as `make_run_partitions`, for [restores](operations.md#backups-copies-failover).
[Tests write](development.md#build-and-test) this page from the comments in the server.
";

/// The settings, in the order of the page.
const SETTINGS: [(&str, &str); 5] = [
    (
        "The scheduler",
        "enabled databases home tick_interval max_entries_per_cycle max_sql_workers sql_worker_idle_timeout vacuum",
    ),
    (
        "Leases and time limits",
        "default_lease default_timeout cancel_grace",
    ),
    (
        "Retries",
        "default_max_retries retry_delay retry_backoff retry_delay_max on_dead_letter",
    ),
    (
        "What runs, and in which order",
        "max_active_jobs priority_aging dependent_priority_boost",
    ),
    (
        "What is kept",
        "run_retention dead_letter_retention audit_retention program max_input_bytes",
    ),
];

const SETTINGS_OPENING: &str = "# Settings

A superuser sets most for the server, where a change takes effect with a reload, for a database, whose scheduler applies
it within ten seconds, or for a session:

    alter system set trax.run_retention = '30d';        -- then: select pg_reload_conf()
    alter database app set trax.run_retention = '30d';

Defaults of jobs count when they are used, so a change also concerns jobs that wait: `trax.default_lease` and
`trax.default_timeout` in the session that claims, `trax.default_max_retries` and the delays of retries in the session
that reports the failure (after the loss of a worker, the scheduler), not in the session that enqueues.

Unknown `trax.` names are refused. [Tests write](development.md#build-and-test) this page.
";

struct Function {
    name: String,
    head: String,
    arguments: Vec<String>,
    result: String,
    comment: String,
}

async fn functions(client: &Client) -> Vec<Function> {
    let sql = "
        select
            p.proname::text,
            case p.prokind when 'p' then 'call trax.' else 'trax.' end || p.proname as head,
            pg_get_function_arguments(p.oid) as arguments,
            case p.prokind when 'p' then '' else pg_get_function_result(p.oid) end as result,
            coalesce(obj_description(p.oid, 'pg_proc'), '') as comment
        from pg_proc p
        where p.pronamespace = 'trax'::regnamespace
        order by p.proname";
    let rows = client.query(sql, &[]).await.expect("functions are listed");
    rows.iter()
        .map(|row| Function {
            name: row.get("proname"),
            head: row.get("head"),
            arguments: plain(row.get("arguments"))
                .split(", ")
                .filter(|argument| !argument.is_empty())
                .map(|argument| match argument.strip_suffix(" default null") {
                    Some(optional) => format!("[{optional}]"),
                    None => argument.to_owned(),
                })
                .collect(),
            result: plain(row.get("result")),
            comment: row.get("comment"),
        })
        .collect()
}

/// The types in the way people write them.
fn plain(signature: &str) -> String {
    let mut signature = signature
        .replace("timestamp with time zone", "timestamptz")
        .replace("integer", "int")
        .replace(" DEFAULT ", " default ")
        .replace("NULL::", "null::")
        .replace("CURRENT_USER", "current_user")
        .replace("TABLE(", "table (")
        .replace("SETOF ", "setof ");
    // Shows the value of a default without its type: null::text[], '{}'::jsonb.
    while let Some(at) = signature.find("::") {
        let rest = &signature[at + 2..];
        let end = rest.find([',', ')']).unwrap_or(rest.len());
        signature.replace_range(at..at + 2 + end, "");
    }
    signature
}

impl Function {
    /// The signature, in lines of code.
    fn signature(&self) -> String {
        let mut lines = vec![format!("    {}(", self.head)];
        let indent = " ".repeat(lines[0].len().min(24));
        let last = self.arguments.len().saturating_sub(1);
        for (at, argument) in self.arguments.iter().enumerate() {
            let end = if at == last { "" } else { ", " };
            let line = lines.last_mut().expect("there is a first line");
            if line.len() + argument.len() > 96 {
                *line = line.trim_end().to_owned();
                lines.push(format!("{indent}{argument}{end}"));
            } else {
                line.push_str(argument);
                line.push_str(end);
            }
        }
        let result = match self.result.as_str() {
            "" => ")".to_owned(),
            result => format!(") returns {result}"),
        };
        let line = lines.last_mut().expect("there is a first line");
        line.push_str(&result);
        lines.join("\n")
    }
}

#[tokio::test]
async fn the_page_of_functions_is_what_their_comments_say() {
    let database = database().await;
    let client = connect(&database).await;
    let shard = client.batch_execute("create extension trax_shard").await;
    shard.expect("the extension is created");
    let functions = functions(&client).await;
    let settings = settings(&client).await;
    let names = names_of(&settings);
    let mut page = OPENING.to_owned();
    let mut listed = Vec::new();
    for (title, list) in CONTRACT {
        page.push_str(&format!("\n## {title}\n"));
        for name in list.split_whitespace() {
            let function = functions
                .iter()
                .find(|function| function.name == name)
                .unwrap_or_else(|| panic!("there is no function {name}"));
            page.push_str(&format!(
                "\n### {name}\n\n{}\n\n{}\n",
                function.signature(),
                linked(&function.comment, &names)
            ));
            let mut links: Vec<String> = Vec::new();
            for setting in settings.iter().filter(|setting| setting.names(name)) {
                links.push(setting.link());
            }
            if !links.is_empty() {
                page.push_str(&format!("\nSettings: {}.\n", links.join(", ")));
            }
            listed.push(name);
        }
    }
    for function in &functions {
        assert!(
            listed.contains(&function.name.as_str()) || function.comment.starts_with("Internal."),
            "{} is in no list of the contract, and its comment does not begin with \"Internal.\"",
            function.name
        );
    }
    is_written("docs/functions.md", &page);
}

/// Compares a page, and writes it first if `TRAX_WRITE_PAGES` is set.
pub(super) fn is_written(name: &str, page: &str) {
    let path = root().join(name);
    if std::env::var_os("TRAX_WRITE_PAGES").is_some() {
        std::fs::write(&path, page).expect("the page can be written");
    }
    assert!(
        text(&path) == page,
        "{name} is not what the server says. Type: \
         TRAX_WRITE_PAGES=1 cargo test -p trax_tests readme"
    );
}

struct Setting {
    name: String,
    default: String,
    range: String,
    where_set: &'static str,
    meaning: String,
    extremes: String,
}

impl Setting {
    /// Whether the setting's description names this function.
    fn names(&self, function: &str) -> bool {
        words(&self.extremes).any(|word| word == function)
    }

    fn link(&self) -> String {
        let (name, anchor) = (&self.name, self.name.replace('.', ""));
        format!("[`{name}`](settings.md#{anchor})")
    }
}

/// The names that follow `trax.` in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split("trax.").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// Each name with a heading in one of the two pages, and its link.
fn names_of(settings: &[Setting]) -> Vec<(String, String)> {
    let functions = CONTRACT
        .iter()
        .flat_map(|(_, list)| list.split_whitespace());
    let functions = functions.map(|name| {
        let shown = format!("trax.{name}");
        (shown.clone(), format!("[`{shown}`](functions.md#{name})"))
    });
    let settings = settings
        .iter()
        .map(|setting| (setting.name.clone(), setting.link()));
    functions.chain(settings).collect()
}

/// Links the names of functions and settings in a text.
fn linked(text: &str, names: &[(String, String)]) -> String {
    let mut pieces = text.split("trax.");
    let mut written = pieces.next().unwrap_or_default().to_owned();
    for (piece, word) in pieces.zip(words(text)) {
        let name = format!("trax.{word}");
        let link = names.iter().find(|(known, _)| *known == name);
        written.push_str(link.map_or(&name, |(_, link)| link));
        let rest = &piece[word.len()..];
        written.push_str(
            rest.strip_prefix("()")
                .filter(|_| link.is_some())
                .unwrap_or(rest),
        );
    }
    written
}

/// Formats a setting's number with the largest unit that divides it.
fn with_unit(value: &str, unit: Option<&str>) -> String {
    const TIME: [(i64, &str); 5] = [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "min"),
        (1_000, "s"),
        (1, "ms"),
    ];
    const SIZE: [(i64, &str); 3] = [(1_048_576, "MB"), (1_024, "kB"), (1, "B")];
    let (units, factor): (&[_], i64) = match unit {
        Some("ms") => (&TIME, 1),
        Some("s") => (&TIME, 1_000),
        Some("B") => (&SIZE, 1),
        _ => return value.to_owned(),
    };
    let number: i64 = value.parse().expect("a setting with a unit is a number");
    let largest = units
        .iter()
        .find(|(size, _)| number != 0 && number * factor % size == 0);
    largest.map_or_else(
        || value.to_owned(),
        |(size, name)| format!("{}{name}", number * factor / size),
    )
}

async fn settings(client: &Client) -> Vec<Setting> {
    let sql = "select name, boot_val, unit, min_val, max_val, context, short_desc, extra_desc
        from pg_settings where name like 'trax.%'";
    let rows = client.query(sql, &[]).await.expect("settings are listed");
    rows.iter()
        .map(|row| {
            let text = |column: &str| row.get::<_, Option<&str>>(column).unwrap_or_default();
            let unit: Option<&str> = row.get("unit");
            let shown = |value: &str| with_unit(value, unit);
            let range = match (text("min_val"), text("max_val")) {
                ("", _) => String::new(),
                (least, "2147483647") => format!("{} or more", shown(least)),
                (least, most) => format!("{} to {}", shown(least), shown(most)),
            };
            Setting {
                name: text("name").to_owned(),
                default: match text("boot_val") {
                    "" => "empty".to_owned(),
                    value => shown(value),
                },
                range,
                where_set: match text("context") {
                    // The opening of the page says it.
                    "superuser" => "",
                    "sighup" => "server",
                    "user" => "session or transaction, by anybody",
                    other => panic!("{other} has no words yet"),
                },
                meaning: text("short_desc").to_owned(),
                extremes: text("extra_desc").to_owned(),
            }
        })
        .collect()
}

#[tokio::test]
async fn the_page_of_settings_is_what_their_descriptions_say() {
    let database = database().await;
    let client = connect(&database).await;
    let settings = settings(&client).await;
    let names = names_of(&settings);
    let mut page = SETTINGS_OPENING.to_owned();
    let mut listed = Vec::new();
    for (title, list) in SETTINGS {
        page.push_str(&format!("\n## {title}\n"));
        for name in list.split_whitespace() {
            let name = format!("trax.{name}");
            let setting = settings
                .iter()
                .find(|setting| setting.name == name)
                .unwrap_or_else(|| panic!("there is no setting {name}"));
            let (default, meaning) = (&setting.default, linked(&setting.meaning, &names));
            let range = match setting.range.as_str() {
                "" => String::new(),
                range => format!("; range: {range}"),
            };
            let where_set = match setting.where_set {
                "" => String::new(),
                place => format!("; set for: {place}"),
            };
            page.push_str(&format!(
                "\n### {name}\n\nDefault: `{default}`{range}{where_set}.\n\n{meaning} {}\n",
                linked(&setting.extremes, &names)
            ));
            listed.push(name);
        }
    }
    for setting in &settings {
        assert!(
            listed.contains(&setting.name),
            "{} is in no list of SETTINGS",
            setting.name
        );
    }
    is_written("docs/settings.md", &page);
}

#[test]
fn names_of_functions_and_settings_become_links() {
    let names = [("trax.tick".to_owned(), "[T]".to_owned())];
    let text = "A trax.tick() by hand, trax.tick, and trax.ticks.";
    assert_eq!(linked(text, &names), "A [T] by hand, [T], and trax.ticks.");
}
