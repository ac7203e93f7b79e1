//! The text of the functions of the router.

use super::catalog::Function;
use super::{Route, only_reads, route};
use std::fmt::Write as _;

/// Joins the lines of a list with commas.
fn list(lines: &[String]) -> String {
    let mut text = String::new();
    for (at, line) in lines.iter().enumerate() {
        let comma = if at + 1 < lines.len() { "," } else { "" };
        writeln!(text, "    {line}{comma}").expect("a string takes it");
    }
    text
}

fn in_parentheses(lines: &[String]) -> String {
    match lines {
        [] => "()".to_owned(),
        _ => format!("(\n{})", list(lines)),
    }
}

impl Function {
    fn returns(&self, more: &[&str]) -> String {
        let columns = self
            .columns
            .iter()
            .map(|(name, kind)| format!("{name} {kind}"));
        let columns: Vec<String> = columns.chain(more.iter().map(|&c| c.to_owned())).collect();
        match &columns[..] {
            [] if self.is_set => format!("setof {}", self.result),
            [] => self.result.clone(),
            _ => format!("table {}", in_parentheses(&columns)),
        }
    }

    /// The types in the parentheses of `comment on function`.
    fn types(&self, first: &[&str]) -> String {
        let own = self.arguments.iter().map(|argument| argument.kind.as_str());
        first
            .iter()
            .copied()
            .chain(own)
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn takes(&self, name: &str) -> String {
        let at = self.arguments.iter().position(|a| a.name == name);
        format!(
            "${}",
            1 + at.unwrap_or_else(|| panic!("{} has {name}", self.name))
        )
    }

    /// The function that calls it on a shard. A role is sent by name, since its oid differs there.
    pub(super) fn call(&self) -> String {
        let name = &self.name;
        let kind_of = |kind: &str| match kind {
            "regrole" => "text".to_owned(),
            kind => kind.to_owned(),
        };
        let mut arguments = vec!["shard integer".to_owned()];
        arguments.extend(self.arguments.iter().map(|a| kind_of(&a.kind)));
        let given: Vec<String> = self
            .arguments
            .iter()
            .enumerate()
            .map(|(at, a)| match a.kind.as_str() {
                "regrole" => format!("{} => ${}::text::regrole", a.name, at + 2),
                kind => format!("{} => ${}::{kind}", a.name, at + 2),
            })
            .collect();
        let call = format!("trax.{name}({})", given.join(", "));
        // A scalar in the select list is 10 % cheaper than one in FROM.
        let statement = match &self.columns[..] {
            [] => format!("select {call}"),
            columns => {
                let columns: Vec<String> = columns
                    .iter()
                    .map(|(name, kind)| match kind.as_str() {
                        // Sent as text in one format, whatever the shard's datestyle.
                        "timestamp with time zone" => {
                            format!(
                                "pg_catalog.to_jsonb(called.{name}) operator(pg_catalog.#>>) '{{}}' as {name}"
                            )
                        }
                        "interval" => panic!("{name} has the intervalstyle of the shard"),
                        _ => format!("called.{name}"),
                    })
                    .collect();
                format!("select {} from {call} called", columns.join(", "))
            }
        };
        // Values are sent as text, which must be parsed the same under any settings of the shard.
        let styles: String = [
            ("timestamp", "set datestyle = iso\n"),
            ("interval", "set intervalstyle = iso_8601\n"),
        ]
        .into_iter()
        .filter(|(kind, _)| self.arguments.iter().any(|a| a.kind.contains(kind)))
        .map(|(_, style)| style)
        .collect();
        let types: Vec<String> = self.arguments.iter().map(|a| kind_of(&a.kind)).collect();
        let types: Vec<&str> = ["integer"]
            .into_iter()
            .chain(types.iter().map(String::as_str))
            .collect();
        let is_asked_again = only_reads(name);
        let own_name = if is_asked_again {
            format!("{name}_once")
        } else {
            name.clone()
        };
        let (arguments, returns) = (in_parentheses(&arguments), self.returns(&[]));
        let types = types.join(", ");
        let called = format!(
            "create function trax_router.{own_name}{arguments}
returns {returns}
language plproxy volatile
set search_path = pg_catalog, pg_temp
set client_min_messages = warning
{styles}as $$
    connect trax_router.address($1);
    {statement};
$$;
comment on function trax_router.{own_name}({types}) is
    'Internal. Calls trax.{name}() on a shard.';
"
        );
        if !is_asked_again {
            return called;
        }
        let given: String = (2..=self.arguments.len() + 1)
            .map(|n| format!(", ${n}"))
            .collect();
        format!(
            "{called}
create function trax_router.{name}{arguments}
returns {returns}
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
declare
    failure trax_router.failure;
begin
    return query select called.* from trax_router.{own_name}($1{given}) called;
exception
    when others then
        get stacked diagnostics
            failure.state = returned_sqlstate,
            failure.message = message_text;
        if not trax_router.may_ask_again(failure) then
            raise;
        end if;
        return query select called.* from trax_router.{own_name}($1{given}) called;
end;
$$;
comment on function trax_router.{name}({types}) is
    'Internal. Calls trax.{name}() on a shard, once more when the connection broke.';
"
        )
    }

    /// The statement that calls it on a shard and keeps the result.
    fn ask(&self, then: &str) -> String {
        let given: String = (1..=self.arguments.len())
            .map(|n| format!(", ${n}"))
            .collect();
        let call = format!("trax_router.{}(shard{given})", self.name);
        if self.is_set && !self.columns.is_empty() {
            return format!("return query select {then} from {call} called;");
        }
        match self.result.as_str() {
            "void" => format!("perform {call};"),
            _ => format!("result := {call};"),
        }
    }

    /// The routing function of the same name.
    pub(super) fn routed(&self) -> String {
        let mut more: &[&str] = &[];
        let mut declared = vec!["failure trax_router.failure;".to_owned()];
        let returns_rows = !self.columns.is_empty();
        let has_result = !returns_rows && self.result != "void";
        if has_result {
            declared.push(format!("result {};", self.result));
        }
        let give = if has_result { "return result;\n" } else { "" };
        let caught = "when others or query_canceled then
get stacked diagnostics
    failure.state = returned_sqlstate,
    failure.message = message_text,
    failure.detail = pg_exception_detail,
    failure.hint = pg_exception_hint;
failure.shard := shard;
";
        let once = |ask: &str| {
            format!(
                "begin\n{}{}exception\n{}end;\n",
                indent(ask, 1),
                indent(give, 1),
                indent(&format!("{caught}perform trax_router.raise(failure);\n"), 1)
            )
        };
        let body = match route(&self.name) {
            Route::Hand | Route::Direct => return String::new(),
            Route::Id => {
                let is_dead_letter = self.name.ends_with("dead_letter");
                declared.push(format!(
                    "shard constant integer := trax_router.shard_that_has($1, {is_dead_letter});"
                ));
                once(&self.ask("called.*"))
            }
            Route::Any => {
                declared.push("shard constant integer := trax_router.any_shard();".to_owned());
                once(&self.ask("called.*"))
            }
            Route::Token => {
                declared
                    .push("shard constant integer := trax_router.shard_of_token($1);".to_owned());
                once(&self.ask("called.*"))
            }
            Route::Group(keys) => {
                let keys: Vec<String> = keys.iter().map(|key| self.takes(key)).collect();
                let place = format!(
                    "{}, coalesce({})",
                    self.takes("group_name"),
                    keys.join(", ")
                );
                declared.push(format!(
                    "shard integer := trax_router.shard_of_group({place});"
                ));
                declared.push("tried integer[] := '{}';".to_owned());
                format!(
                    "-- A job that may run anywhere goes to another shard when this one is away.
begin
    loop
        begin
{}{}        exception
{}        end;
    end loop;
end;
",
                    indent(&self.ask("called.*"), 3),
                    indent(give, 3),
                    indent(
                        &format!(
                            "{caught}tried := tried || shard;
shard := null;
if trax_router.was_not_reached(failure.message) then
    shard := trax_router.shard_of_group({place}, tried);
end if;
if shard is null then
    perform trax_router.raise(failure);
end if;
"
                        ),
                        3
                    )
                )
            }
            Route::Manifest => {
                declared.push("shard integer;".to_owned());
                declared.push("has_it integer;".to_owned());
                declared.push("refusal trax_router.failure;".to_owned());
                let note = if self.name == "unschedule" {
                    "forget($1)"
                } else {
                    "remember($1, has_it)"
                };
                format!(
                    "begin
    for shard in select * from trax_router.shards_of_manifest($1) loop
        begin
{}            has_it := shard;
            exit;
        exception
{}        end;
    end loop;
    if has_it is null then
        perform trax_router.raise(refusal);
    end if;
    perform trax_router.{note};
{}end;
",
                    indent(&self.ask("called.*"), 3),
                    indent(
                        &format!(
                            "{caught}refusal := trax_router.look_further(failure, refusal);\n"
                        ),
                        3
                    ),
                    indent(give, 1)
                )
            }
            Route::WholeGroup | Route::All => {
                let shards = match route(&self.name) {
                    Route::All => "trax_router.numbers()".to_owned(),
                    _ if self.name == "configure_group" => {
                        "trax_router.shards_of_settings($1)".to_owned()
                    }
                    _ => "trax_router.shards_of_group($1)".to_owned(),
                };
                declared.push("shard integer;".to_owned());
                declared.push("refusal trax_router.failure;".to_owned());
                declared.push("done integer[] := '{}';".to_owned());
                if has_result {
                    declared.push(format!("total {} := 0;", self.result));
                }
                let add = if has_result {
                    "total := total + result;\n"
                } else {
                    ""
                };
                format!(
                    "-- Each for itself: one that is away or refuses is told of when the others have done it.
begin
    for shard in select * from {shards} loop
        begin
{}            done := done || shard;
        exception
{}        end;
    end loop;
    if refusal is not null then
        perform trax_router.raise(refusal, trax_router.done_on(done));
    end if;
{}end;
",
                    indent(&format!("{}\n{add}", self.ask("called.*")), 3),
                    indent(
                        &format!(
                            "{caught}if refusal is null or trax_router.is_cancelled(failure) then
    refusal := failure;
end if;
exit when trax_router.is_cancelled(failure);
"
                        ),
                        3
                    ),
                    indent(if has_result { "return total;\n" } else { "" }, 1)
                )
            }
            Route::Rows(away) => {
                let is_metrics = self.name == "metrics";
                if !is_metrics {
                    more = &["shard integer"];
                } else {
                    declared.push("shard integer;".to_owned());
                }
                let label = "jsonb_build_object('shard', shard::text)";
                let (asked, away) = if is_metrics {
                    (
                        self.ask(&format!(
                            "called.name, called.labels || {label}, called.value"
                        )) + &format!(
                            "\nreturn query select 'trax_shard_up', {label}, 1::double precision;"
                        ),
                        away.replace("'{}'::jsonb", label),
                    )
                } else {
                    (self.ask("called.*, shard"), format!("{away}, shard"))
                };
                // Rows that come from the router itself.
                let own = match &*self.name {
                    "diagnose" => {
                        "    return query select own.* from trax_router.unended_moves($1) own;
    return query
    select
        'job_on_two_shards', 'critical',
        format('%s jobs of group \"%s\" are on shard %s and on shard %s, and may run twice: one of the shards was restored from a backup.',
            count(*), j.group_name, j.other_shard, j.shard),
        format('call trax_router.move_group(%L, %s, null)', j.group_name, min(trax_router.shard_of_group(j.group_name))),
        j.shard
    from trax_router.jobs_on_two_shards() j
    group by j.group_name, j.shard, j.other_shard
    order by j.group_name, j.shard;\n"
                    }
                    "check" => {
                        "    return query
    select
        'every job is on one shard',
        format('Job %s of group \"%s\" is on shard %s and on shard %s.', j.job_id, j.group_name, j.other_shard, j.shard),
        j.shard
    from trax_router.jobs_on_two_shards() j;\n"
                    }
                    _ => "",
                };
                format!(
                    "begin
    for shard in select * from trax_router.numbers() loop
        begin
{}        exception
{}        end;
    end loop;
{own}end;
",
                    indent(&asked, 3),
                    indent(
                        &format!(
                            "{caught}if not trax_router.is_away(failure) then
    perform trax_router.raise(failure);
end if;
return query select {away};
"
                        ),
                        3
                    )
                )
            }
        };
        let arguments: Vec<String> = self
            .arguments
            .iter()
            .map(|a| match &a.default {
                Some(default) => format!("{} {} default {default}", a.name, a.kind),
                None => format!("{} {}", a.name, a.kind),
            })
            .collect();
        let declared: String = declared.iter().map(|d| format!("    {d}\n")).collect();
        format!(
            "
create function trax.{}{}
returns {}
language plpgsql volatile
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
{declared}{body}$$;
comment on function trax.{}({}) is
    '{}';
",
            self.name,
            in_parentheses(&arguments),
            self.returns(more),
            self.name,
            self.types(&[]),
            self.comment.replace('\'', "''")
        )
    }
}

/// Indents each line by `times` levels of four spaces, and lines after `when others` by one more.
fn indent(text: &str, times: usize) -> String {
    let mut is_caught = false;
    let mut out = String::new();
    for line in text.lines() {
        let deeper = usize::from(is_caught);
        writeln!(out, "{}{line}", "    ".repeat(times + deeper)).expect("a string takes it");
        is_caught = is_caught || line.starts_with("when others");
    }
    out
}
