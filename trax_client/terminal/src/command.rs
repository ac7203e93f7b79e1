//! Converts SQL in the server's hints to what the reader types. The server words hints in SQL,
//! which works from every client. Statements become commands of `trax` where one exists, and
//! arguments those of the command that runs, or else members of a file.

use std::sync::OnceLock;

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

const CALLS: [Call; 22] = [
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
        let option = option(name);
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

    /// Returns a fix in which commands stand for calls, and options for their arguments. Quoted
    /// parts, which may have names of others, stay as they are.
    pub fn rewritten(&self, fix: &str) -> String {
        const SELECT: &str = "select ";
        let (mut text, mut rest) = (String::new(), fix);
        // The arguments of a call that stays belong to it.
        let mut depth = 0_usize;
        while !rest.is_empty() {
            let found = match rest.strip_prefix(SELECT).and_then(command) {
                None if depth == 0 && !text.ends_with(is_of_name) => self.argument(rest),
                found => found,
            };
            if let Some((new, after)) = found {
                text.push_str(&new);
                rest = after;
                continue;
            }
            let (piece, after) = rest.split_at(piece(rest));
            match piece {
                "(" => depth += 1,
                ")" => depth = depth.saturating_sub(1),
                _ => {}
            }
            text.push_str(piece);
            rest = after;
        }
        text
    }

    /// Returns the argument `name => value` at the beginning of a text as it is typed, and the
    /// rest.
    fn argument<'t>(&self, text: &'t str) -> Option<(String, &'t str)> {
        let (name, text) = text.split_once(" => ")?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
            return None;
        }
        let (values, after) = values(text)?;
        let new = match self.place(name) {
            Place::Option(option) => with_option(&option, &values),
            Place::Alone if values == ["..."] => name.to_uppercase(),
            Place::Alone => with_option("", &values),
            Place::Member => member(name, &values, text.starts_with("array[")),
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

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the option for an argument of a function.
fn option(name: &str) -> String {
    let name = match name {
        "from_step" => "from",
        "group_name" | "groups" => "group",
        "job_id" => "id",
        "period" => "per",
        "tasks" => "task",
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

/// Returns the length of the first token of a text: a quoted string of SQL or the shell, an escaped
/// character, or a character.
fn piece(text: &str) -> usize {
    let mut letters = text.chars();
    match letters.next() {
        Some(quote @ ('\'' | '"')) => text[1..].find(quote).map_or(text.len(), |end| end + 2),
        Some('\\') => 1 + letters.next().map_or(0, char::len_utf8),
        letter => letter.map_or(0, char::len_utf8),
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
        let (group, after) = value(literal)?;
        return Some((format!("{list} --group {}", quote::word(&group)), after));
    }
    let known = KNOWN
        .iter()
        .find_map(|(sql, command)| Some((*command, text.strip_prefix(sql)?)));
    if let Some((command, after)) = known {
        return Some((command.to_owned(), after));
    }
    let rows = ["* from ", "step, kind from "];
    let call = rows
        .iter()
        .find_map(|rows| text.strip_prefix(rows))
        .unwrap_or(text)
        .strip_prefix("trax.")?;
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
        let name_end = text.find(|c: char| !c.is_ascii_lowercase() && c != '_')?;
        let name = match text[name_end..].strip_prefix(" => ") {
            Some(after) => {
                let name = text[..name_end].to_owned();
                text = after;
                Some(name)
            }
            None => None,
        };
        let (values, after) = values(text)?;
        arguments.push((name, values));
        text = after;
    }
}

/// Parses the value of an argument, or the elements of an array.
fn values(text: &str) -> Option<(Vec<String>, &str)> {
    if let Some(elements) = text.strip_prefix("array[") {
        return array(elements);
    }
    let (value, after) = if let Some(after) = text.strip_prefix("...") {
        ("...".to_owned(), after)
    } else if let Some(length) = text.strip_prefix("now() + interval ") {
        ("tomorrow".to_owned(), value(length)?.1)
    } else if let Some(after) = text.strip_prefix("now()") {
        ("now".to_owned(), after)
    } else {
        value(text.strip_prefix("interval ").unwrap_or(text))?
    };
    Some((vec![value], after))
}

/// Parses elements up to the closing bracket.
fn array(mut text: &str) -> Option<(Vec<String>, &str)> {
    let mut values = Vec::new();
    loop {
        text = text.trim_start_matches([' ', ',']);
        if let Some(after) = text.strip_prefix(']') {
            return Some((values, after));
        }
        let (element, after) = value(text)?;
        values.push(element);
        text = after;
    }
}

/// Parses a literal as quote_literal() writes it, or a number. The name of a column or an argument
/// becomes the word for a value.
fn value(text: &str) -> Option<(String, &str)> {
    let (quoted, escapes) = match text.strip_prefix('E') {
        Some(quoted) if quoted.starts_with('\'') => (quoted, true),
        _ => (text, false),
    };
    let Some(quoted) = quoted.strip_prefix('\'') else {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        let (word, after) = text.split_at(end.unwrap_or(text.len()));
        let word = match word {
            "true" | "false" | "null" => word.to_owned(),
            word => word.trim_start_matches("job_").to_uppercase(),
        };
        return (!word.is_empty()).then_some((word, after));
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' if escapes => value.extend(letters.next().map(|(_, letter)| letter)),
            '\'' if letters.next_if(|(_, next)| *next == '\'').is_some() => value.push('\''),
            '\'' => return Some((value, &quoted[at + 1..])),
            _ => value.push(letter),
        }
    }
    None
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
