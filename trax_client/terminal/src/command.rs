//! Converts SQL in the server's hints to what the reader types. The server words hints in SQL,
//! which works from every client. Statements become commands of `trax` where one exists, and
//! arguments become options, or members of a manifest file.

use crate::quote;

/// The arguments of a call, some named: each is a text, or the elements of an array.
type Arguments = Vec<(Option<String>, Vec<String>)>;

/// Texts after `select` in the server's hints that contain no values.
const KNOWN: [(&str, &str); 10] = [
    (
        "id, task, last_error from trax.dead_letter where status = 'awaiting_intervention'; \
         then trax.requeue_dead_letter(id) or trax.acknowledge_dead_letter(id)",
        "trax dead list; then trax dead requeue ID or trax dead ack ID",
    ),
    ("* from trax.stopped_schedule", "trax manifest list"),
    ("* from trax.diagnose()", "trax doctor"),
    ("* from trax.job", "trax jobs list"),
    ("trax.cancel(job_id)", "trax jobs cancel ID"),
    ("trax.acknowledge_dead_letter(id)", "trax dead ack ID"),
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
    (
        "trax.grant_access(role, level, tasks => ..., groups => ...)",
        "trax grant ROLE LEVEL --task TASK --group GROUP",
    ),
];

/// How an argument is written.
#[derive(Clone, Copy, PartialEq)]
enum Style {
    /// `--group mail`
    Option,
    /// `group_name = "mail"`
    Member,
}

/// Returns a fix in which each call with an equivalent command is replaced by it, and each argument
/// by an option, except inside quotes, where names stand.
pub fn as_commands(fix: &str) -> String {
    rewritten(fix, Style::Option)
}

/// Does the same for the author of a manifest file: arguments become members.
pub fn as_members(fix: &str) -> String {
    rewritten(fix, Style::Member)
}

fn rewritten(fix: &str, style: Style) -> String {
    const SELECT: &str = "select ";
    let (mut text, mut rest) = (String::new(), fix);
    // The arguments of a call that stays belong to it.
    let mut depth = 0_usize;
    while !rest.is_empty() {
        let found = match rest.strip_prefix(SELECT).and_then(command) {
            None if depth == 0 && !text.ends_with(is_of_name) => argument(rest, style),
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

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the argument `name => value` at the beginning of a text in another style, and the rest.
fn argument(text: &str, style: Style) -> Option<(String, &str)> {
    const NOW: &str = "now()";
    let (name, text) = text.split_once(" => ")?;
    if name.is_empty() || !name.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
        return None;
    }
    let (values, after) = if let Some(elements) = text.strip_prefix("array[") {
        array(elements)?
    } else if let Some(after) = text.strip_prefix("...") {
        (vec!["...".to_owned()], after)
    } else if let Some(length) = text.strip_prefix("now() + interval ") {
        (vec!["tomorrow".to_owned()], value(length)?.1)
    } else if let Some(after) = text.strip_prefix(NOW) {
        (vec!["now".to_owned()], after)
    } else {
        let (value, after) = value(text.strip_prefix("interval ").unwrap_or(text))?;
        (vec![value], after)
    };
    // These are not in the file.
    let is_option = style == Style::Option || matches!(name, "prune" | "source");
    let new = if is_option {
        option(name, &values)
    } else {
        member(name, &values, text.starts_with("array["))
    };
    Some((new, after))
}

fn option(name: &str, values: &[String]) -> String {
    let option = match name {
        "group_name" | "groups" => "--group".to_owned(),
        "tasks" => "--task".to_owned(),
        name => format!("--{}", name.replace('_', "-")),
    };
    let written = values.iter().map(|value| match value.as_str() {
        "true" => option.clone(),
        "..." => format!("{option} ..."),
        value => format!("{option} {}", quote::word(value)),
    });
    written.collect::<Vec<String>>().join(" ")
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
    let call = text.strip_prefix("trax.")?;
    let (function, arguments) = call.split_once('(')?;
    let (arguments, after) = read(arguments)?;
    let of = |name: &str| {
        let found = arguments
            .iter()
            .find(|(known, _)| known.as_deref() == Some(name));
        found
            .and_then(|(_, values)| values.first())
            .map(String::as_str)
    };
    let first = arguments.first().and_then(|(_, values)| values.first());
    let first = first.map(|value| quote::word(value));
    let command = match (function, arguments.len()) {
        ("resume", 0) => "trax resume".to_owned(),
        ("check", 0) => "trax check".to_owned(),
        ("trigger", 1) => format!("trax manifest trigger {}", first?),
        ("unschedule", 1) => format!("trax manifest delete {}", first?),
        ("disable_manifest", 1) => format!("trax manifest disable {}", first?),
        ("cancel", 1) => format!("trax jobs cancel {}", first?),
        ("enqueue_sql", 1) => format!("trax enqueue --sql {}", first?),
        ("grant_access", 2..=4) => {
            let mut grant = format!(
                "trax grant {} {}",
                quote::word(&unquoted(arguments[0].1.first()?)),
                quote::word(arguments[1].1.first()?)
            );
            for (name, values) in &arguments[2..] {
                let option = match name.as_deref()? {
                    "tasks" => "--task",
                    "groups" => "--group",
                    _ => return None,
                };
                for value in values {
                    grant.push_str(&format!(" {option} {}", quote::word(value)));
                }
            }
            grant
        }
        ("configure_group", 2) if of("enabled") == Some("true") => {
            format!("trax group resume {}", first?)
        }
        ("configure_group", 2) => {
            let most = of("max_active_jobs")?;
            format!("trax group set {} --max-active-jobs {most}", first?)
        }
        ("enable_manifest", 1) => format!("trax manifest enable {}", first?),
        ("explain_manifest", 1) => format!("trax manifest why {}", first?),
        ("requeue_dead_letter", 1) => format!("trax dead requeue {}", first?),
        ("acknowledge_dead_letter", 1) => format!("trax dead ack {}", first?),
        _ => return None,
    };
    Some((command, after))
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
        let (values, after) = match text.strip_prefix("array[") {
            Some(elements) => array(elements)?,
            None => value(text).map(|(value, after)| (vec![value], after))?,
        };
        arguments.push((name, values));
        text = after;
    }
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

/// Parses a literal as quote_literal() writes it, a number or a word.
fn value(text: &str) -> Option<(String, &str)> {
    let (quoted, escapes) = match text.strip_prefix('E') {
        Some(quoted) if quoted.starts_with('\'') => (quoted, true),
        _ => (text, false),
    };
    let Some(quoted) = quoted.strip_prefix('\'') else {
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-');
        let (word, after) = text.split_at(end.unwrap_or(text.len()));
        return (!word.is_empty()).then(|| (word.to_owned(), after));
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
mod tests {
    use super::*;

    #[test]
    fn a_name_of_others_stays_as_it_was_quoted() {
        for fix in [
            r"commit prepared 'select trax.enable_manifest('''') ; drop table t; --'; or: x",
            r"trax worker --exec COMMAND --task 'a'\''select trax.resume()'",
            r#"alter function "it's"."select trax.resume()"() owner to postgres"#,
            r"drop 'select trax.resume()",
            r"\",
        ] {
            assert_eq!(as_commands(fix), fix);
        }
        let behind = "commit prepared 'it''s'; or: select trax.resume()";
        assert_eq!(
            as_commands(behind),
            "commit prepared 'it''s'; or: trax resume"
        );
    }

    #[test]
    fn a_call_that_is_a_command_is_shown_as_one() {
        for (sql, command) in [
            (
                "To let it go on, type: select trax.resume()",
                "To let it go on, type: trax resume",
            ),
            (
                "select trax.grant_access('app', 'reader')",
                "trax grant app reader",
            ),
            (
                r#"As an administrator: select trax.grant_access(E'"A\\ ""b"', 'worker')"#,
                r#"As an administrator: trax grant 'A\ "b' worker"#,
            ),
            (
                "If it should, as an admin of trax type: select trax.grant_access('app', 'worker', \
                 tasks => array['a', 'it''s'], groups => array['g'])",
                r"If it should, as an admin of trax type: trax grant app worker --task a --task 'it'\''s' --group g",
            ),
            (
                "See jobs with: select * from trax.job; cancel one with: select trax.cancel(job_id)",
                "See jobs with: trax jobs list; cancel one with: trax jobs cancel ID",
            ),
            (
                "End the session: select * from trax.diagnose() says how.",
                "End the session: trax doctor says how.",
            ),
            (
                "select trax.configure_group('it''s', enabled => true)",
                r"trax group resume 'it'\''s'",
            ),
            (
                "See: select job_id, worker, task, started_at from trax.lease where group_name = 'g'; or: \
                 select trax.configure_group('g', max_active_jobs => 8)",
                "See: trax jobs list --state in_progress --group g; or: trax group set g --max-active-jobs 8",
            ),
            (
                "select trax.requeue_dead_letter(7); or, without another run: select trax.acknowledge_dead_letter(7)",
                "trax dead requeue 7; or, without another run: trax dead ack 7",
            ),
            (
                "See: select id, task, last_error from trax.dead_letter where status = 'awaiting_intervention'; \
                 then trax.requeue_dead_letter(id) or trax.acknowledge_dead_letter(id)",
                "See: trax dead list; then trax dead requeue ID or trax dead ack ID",
            ),
        ] {
            assert_eq!(as_commands(sql), command);
        }
        for (sql, option, member) in [
            (
                "Specify an interval, for example: every => interval '30 s'",
                "Specify an interval, for example: --every '30 s'",
                "Specify an interval, for example: every = \"30 s\"",
            ),
            (
                "group_name => 'it''s'; run_at => now() + interval '5 min', priority => 0",
                r"--group 'it'\''s'; --run-at tomorrow, --priority 0",
                "group_name = \"it's\"; run_at = \"tomorrow\", priority = 0",
            ),
            (
                "Name its parents: depends_on => array['a', 'b c']; or leave out run_at => ...",
                "Name its parents: --depends-on a --depends-on 'b c'; or leave out --run-at ...",
                "Name its parents: depends_on = [\"a\", \"b c\"]; or leave out run_at = ...",
            ),
            (
                "apply that with prune => true, or apply this one with source => 'x'",
                "apply that with --prune, or apply this one with --source x",
                "apply that with --prune, or apply this one with --source x",
            ),
            (
                "Nothing, or: select trax.trigger('m')",
                "Nothing, or: trax manifest trigger m",
                "Nothing, or: trax manifest trigger m",
            ),
        ] {
            assert_eq!(as_commands(sql), option);
            assert_eq!(as_members(sql), member);
        }
        for sql in [
            "select trax.adopt()",
            "select trax.adopt(keep => true)",
            "change their parents with trax.schedule(..., depends_on => ...).",
            "quoted: 'prune => true'",
            "select trax.start_scheduler(); or call trax.tick()",
            "begin; select trax.make_run_partitions(d.day, 0) from d; commit",
            "select pg_terminate_backend(7)",
            "select trax.resume(",
        ] {
            assert_eq!(as_commands(sql), sql);
        }
    }
}
