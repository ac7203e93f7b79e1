//! Converts SQL in the server's hints to what the reader types. The server words hints in SQL,
//! which works from every client. Statements become commands of `trax` where one exists, and
//! arguments those of the command that runs, or else members of a file.

use std::sync::OnceLock;

use trax_client::sql_hint;
use trax_client::sql_hint::Value;

use crate::quote;

/// The arguments of a call, some named: each is a text, or the elements of an array.
type Arguments = Vec<(Option<String>, Vec<String>)>;

/// Texts after `select` in the server's hints that contain no values.
const KNOWN: [(&str, &str); 9] = [
    (
        "id, task, last_error from trax.dead_letter where status = 'awaiting_intervention'; \
         then trax.requeue_dead_letter(id) or trax.acknowledge_dead_letter(id)",
        "trax dead list; then trax dead requeue ID or trax dead ack ID",
    ),
    ("* from trax.stopped_schedule", "trax manifest list"),
    ("* from trax.diagnose()", "trax doctor"),
    ("* from trax.job", "trax jobs list"),
    (
        "group_name from trax.lane union select group_name from trax.manifest order by 1",
        "trax group list",
    ),
    (
        "job_id, run_as, started_at from trax.lease where run_as is not null",
        "trax jobs list --task sql --state in_progress",
    ),
    (
        "name from trax.manifest order by name",
        "trax manifest list",
    ),
    ("name from trax.rate_state order by name", "trax rate list"),
    (
        "trax.grant_access(role, level, tasks => ..., groups => ...)",
        "trax grant ROLE LEVEL --task TASK --group GROUP",
    ),
];

/// A function that has a command.
struct Call {
    function: &'static str,
    /// The argument that the command stands for.
    said: &'static str,
    command: &'static str,
    /// The options of the arguments, in order; empty for an argument that is typed alone.
    options: &'static [&'static str],
}

const fn call(
    function: &'static str,
    command: &'static str,
    options: &'static [&'static str],
) -> Call {
    Call {
        function,
        said: "",
        command,
        options,
    }
}

const CALLS: [Call; 24] = [
    call("acknowledge_dead_letter", "trax dead ack", &[""]),
    call("cancel", "trax jobs cancel", &[""]),
    call("check", "trax check", &[]),
    Call {
        said: "until",
        ..call("close_rate", "trax rate open", &["", "--key"])
    },
    Call {
        said: "enabled",
        ..call("configure_group", "trax group resume", &[""])
    },
    call("configure_group", "trax group set", &[""]),
    call(
        "configure_rate",
        "trax rate set",
        &["", "--allowed", "--per", "--burst"],
    ),
    call("disable_manifest", "trax manifest disable", &[""]),
    call("drop_rate", "trax rate drop", &[""]),
    call("enable_manifest", "trax manifest enable", &[""]),
    call("enqueue_sql", "trax enqueue", &["--sql"]),
    call("explain_job", "trax jobs why", &[""]),
    call("explain_manifest", "trax manifest why", &[""]),
    call("fork", "trax jobs fork", &[""]),
    call("grant_access", "trax grant", &["", ""]),
    call("move_group", "trax group move", &["", "--to"]),
    call("open_batch", "trax enqueue ... --open-batch", &[]),
    call("read_steps", "trax jobs show", &[""]),
    call("requeue_dead_letter", "trax dead requeue", &[""]),
    call("resume", "trax resume", &[]),
    call("run_now", "trax jobs retry --scheduled", &[""]),
    call("send_signal", "trax signal", &["", ""]),
    call("trigger", "trax manifest trigger", &[""]),
    call("unschedule", "trax manifest delete", &[""]),
];

/// The arguments of a command.
#[derive(Default)]
pub struct Typed {
    /// Its options, such as `--per`.
    pub options: Vec<String>,
    /// The names of the arguments that are typed alone.
    pub alone: Vec<String>,
}

/// The arguments of the command that runs.
static RUNNING: OnceLock<Typed> = OnceLock::new();

/// How an argument is typed.
enum Place {
    Option(String),
    Alone,
    /// In a file: `every = "30 s"`.
    Member,
}

impl Typed {
    /// From now on, hints speak of these arguments.
    pub fn runs(self) {
        RUNNING.get_or_init(|| self);
    }

    fn place(&self, name: &str) -> Place {
        let option = match name {
            // The name of a worker is its own option there.
            "worker" if !self.options.iter().any(|option| option == "--worker") => {
                "--name".to_owned()
            }
            name => option(name),
        };
        let name = option[2..].replace('-', "_");
        let is_alone = |known: &String| *known == name || known.strip_suffix('s') == Some(&name);
        if self.options.contains(&option) {
            Place::Option(option)
        } else if self.alone.iter().any(is_alone) {
            Place::Alone
        } else {
            Place::Member
        }
    }

    /// Returns a fix in which commands stand for calls, and options for their arguments.
    pub fn rewritten(&self, fix: &str) -> String {
        const STARTS: [&str; 2] = ["select ", "call "];
        sql_hint::rewritten(fix, |text, may_begin| {
            let statement = STARTS.iter().find_map(|start| text.strip_prefix(start));
            match statement.and_then(command) {
                None if may_begin => self.argument(text),
                found => found,
            }
        })
    }

    /// Returns the argument `name => value` at the beginning of a text as it is typed, and the
    /// rest.
    fn argument<'t>(&self, text: &'t str) -> Option<(String, &'t str)> {
        let (name, value, after) = sql_hint::argument(text)?;
        let values = typed(&value);
        let new = match self.place(name) {
            Place::Option(option) => with_option(&option, &values),
            Place::Alone if value == Value::Any => name.to_uppercase(),
            Place::Alone => with_option("", &values),
            Place::Member => member(name, &values, matches!(value, Value::List(_))),
        };
        Some((new, after))
    }
}

/// Returns a fix as the reader of the running command types it.
pub fn as_commands(fix: &str) -> String {
    RUNNING.get().map_or_else(
        || Typed::default().rewritten(fix),
        |typed| typed.rewritten(fix),
    )
}

/// Returns the option for an argument of a function.
fn option(name: &str) -> String {
    let name = match name {
        "from_step" => "from",
        "group_name" | "groups" => "group",
        "job_id" => "id",
        "period" => "per",
        "tasks" => "task",
        "versions" => "version",
        name => name,
    };
    format!("--{}", name.replace('_', "-"))
}

/// Returns an option with each of the values, or the values alone where it is empty.
fn with_option(option: &str, values: &[String]) -> String {
    let written = values.iter().map(|value| match value.as_str() {
        "true" => option.to_owned(),
        "..." => format!("{option} ..."),
        value => format!("{option} {}", quote::word(value)),
    });
    let written = written.collect::<Vec<String>>().join(" ");
    written.trim_start().to_owned()
}

fn member(name: &str, values: &[String], is_list: bool) -> String {
    let written = |value: &String| match value.as_str() {
        "..." if !is_list => value.clone(),
        plain if plain.parse::<i64>().is_ok() || matches!(plain, "true" | "false") => value.clone(),
        text => format!("{text:?}"),
    };
    let written = values.iter().map(written).collect::<Vec<_>>().join(", ");
    match is_list {
        true => format!("{name} = [{written}]"),
        false => format!("{name} = {written}"),
    }
}

/// Returns the command for the statement at the beginning of a text, and the rest of the text.
fn command(text: &str) -> Option<(String, &str)> {
    const RUNNING: &str = "job_id, worker, task, started_at from trax.lease";
    if let Some(after) = text.strip_prefix(RUNNING) {
        let list = "trax jobs list --state in_progress";
        let Some(literal) = after.strip_prefix(" where group_name = ") else {
            return Some((list.to_owned(), after));
        };
        let (group, after) = sql_hint::value(literal)?;
        return Some((
            format!("{list} {}", with_option("--group", &typed(&group))),
            after,
        ));
    }
    let known = KNOWN
        .iter()
        .find_map(|(sql, command)| Some((*command, text.strip_prefix(sql)?)));
    if let Some((command, after)) = known {
        return Some((command.to_owned(), after));
    }
    const SCHEMAS: [&str; 2] = ["trax.", "trax_router."];
    let rows = ["* from ", "step, kind from "];
    let call = rows
        .iter()
        .find_map(|rows| text.strip_prefix(rows))
        .unwrap_or(text);
    let call = SCHEMAS
        .iter()
        .find_map(|schema| call.strip_prefix(schema))?;
    let (function, arguments) = call.split_once('(')?;
    let (arguments, after) = read(arguments)?;
    let has = |name: &str| {
        arguments
            .iter()
            .any(|(known, _)| known.as_deref() == Some(name))
    };
    let known = CALLS
        .iter()
        .find(|call| call.function == function && (call.said.is_empty() || has(call.said)))?;
    let mut text = known.command.to_owned();
    for (index, (name, values)) in arguments.into_iter().enumerate() {
        let written = match name {
            Some(name) if name == known.said => continue,
            Some(name) => with_option(&option(&name), &values),
            None if function == "grant_access" && index == 0 => {
                quote::word(&unquoted(values.first()?))
            }
            // The place of an output, or an argument that the command already has.
            None if values == ["null"] || known.options.is_empty() => continue,
            None if values == ["..."] => "...".to_owned(),
            None => with_option(known.options.get(index)?, &values),
        };
        text.push(' ');
        text.push_str(&written);
    }
    Some((text, after))
}

/// Parses arguments up to the closing parenthesis.
fn read(mut text: &str) -> Option<(Arguments, &str)> {
    let mut arguments = Vec::new();
    loop {
        text = text.trim_start_matches([' ', ',']);
        if let Some(after) = text.strip_prefix(')') {
            return Some((arguments, after));
        }
        let (name, value, after) = match sql_hint::argument(text) {
            Some((name, value, after)) => (Some(name.to_owned()), value, after),
            None => {
                let (value, after) = sql_hint::value(text)?;
                (None, value, after)
            }
        };
        arguments.push((name, typed(&value)));
        text = after;
    }
}

/// Returns a value, or the elements of an array, as they are typed. The name of a column or an
/// argument becomes the word for a value.
fn typed(value: &Value) -> Vec<String> {
    let text = match value {
        Value::List(values) => return values.iter().flat_map(typed).collect(),
        Value::Text(text) | Value::Span(text) => text.clone(),
        Value::Word(word) if matches!(&word[..], "true" | "false" | "null") => word.clone(),
        Value::Word(word) => word.trim_start_matches("job_").to_uppercase(),
        Value::Now => "now".to_owned(),
        Value::Later(_) => "tomorrow".to_owned(),
        Value::Any => "...".to_owned(),
    };
    vec![text]
}

/// Returns the name of a role as in pg_roles.
fn unquoted(name: &str) -> String {
    match name
        .strip_prefix('"')
        .and_then(|name| name.strip_suffix('"'))
    {
        Some(inner) => inner.replace("\"\"", "\""),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
