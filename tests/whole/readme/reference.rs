//! The pages of reference, compared with the server: `functions.md` is written from the comments of
//! the functions, `settings.md` has a row with the default of each setting.

use super::{root, text};
use harness::database;
use harness::scheduler::{connect, execute};
use tokio_postgres::Client;

/// The functions of the contract, in the order of the page. One that is called by nobody but trax
/// says "Internal." in its comment, and has no place here.
const CONTRACT: [(&str, &str); 7] = [
    (
        "Produce",
        "enqueue enqueue_many limit_queue_time run_now cancel await_job await_jobs get_jobs",
    ),
    (
        "Manifests",
        "schedule unschedule enable_manifest disable_manifest trigger trigger_group activate cancel_manifest apply preview \
         preview_cron explain_manifest",
    ),
    ("Groups", "configure_group cancel_group"),
    (
        "Work",
        "claim_next heartbeat complete complete_many complete_and_claim fail release acknowledge_cancel cancel_own \
         report_progress report_worker wait_for_work waiting_tasks runs_as_stored",
    ),
    (
        "Dead letters",
        "requeue_dead_letter requeue_dead_letters acknowledge_dead_letter",
    ),
    (
        "Tokens",
        "acquire_token await_token extend_token release_token",
    ),
    (
        "Operate",
        "status check diagnose metrics tick pause resume start_scheduler adopt grant_access revoke_access",
    ),
];

const OPENING: &str = "# Functions

The contract, as `\\df+ trax.*` shows it in psql. Arguments are called by name; every type is built in.
`copy trax.new_job (...) from stdin` takes the arguments of `enqueue` as columns. This page is written from the comments
in the server: `TRAX_WRITE_PAGES=1 cargo test -p trax_tests readme::reference` writes it anew.
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
                .map(str::to_owned)
                .collect(),
            result: plain(row.get("result")),
            comment: row.get("comment"),
        })
        .collect()
}

/// The types as they are written by hand.
fn plain(signature: &str) -> String {
    let mut signature = signature
        .replace("timestamp with time zone", "timestamptz")
        .replace("integer", "int")
        .replace(" DEFAULT ", " default ")
        .replace("NULL::", "null::")
        .replace("CURRENT_USER", "current_user")
        .replace("TABLE(", "table (")
        .replace("SETOF ", "setof ");
    // Of a default the value counts, not its type: null::text[], '{}'::jsonb.
    while let Some(at) = signature.find("::") {
        let rest = &signature[at + 2..];
        let end = rest.find([',', ')']).unwrap_or(rest.len());
        signature.replace_range(at..at + 2 + end, "");
    }
    signature
}

impl Function {
    /// How it is called, in lines of code.
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
    let functions = functions(&client).await;
    let mut page = OPENING.to_owned();
    let mut listed = Vec::new();
    for (title, names) in CONTRACT {
        page.push_str(&format!("\n## {title}\n"));
        for name in names.split_whitespace() {
            let function = functions
                .iter()
                .find(|function| function.name == name)
                .unwrap_or_else(|| panic!("there is no function {name}"));
            page.push_str(&format!(
                "\n### {name}\n\n{}\n\n{}\n",
                function.signature(),
                function.comment
            ));
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
    let path = root().join("docs/functions.md");
    if std::env::var_os("TRAX_WRITE_PAGES").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    assert!(
        text(&path) == page,
        "docs/functions.md is not what the functions say. Type: \
         TRAX_WRITE_PAGES=1 cargo test -p trax_tests readme::reference"
    );
}

#[tokio::test]
async fn the_page_of_settings_has_each_with_its_default() {
    let database = database().await;
    let client = connect(&database).await;
    let page = text(&root().join("docs/settings.md"));
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `trax."))
        .filter_map(|line| line.split_once("` | "));
    execute(
        &client,
        "create temp table said (name text primary key, value text not null)",
    )
    .await;
    for (name, rest) in rows {
        // "0: no limit" and "empty: all" explain themselves.
        let cell = rest.split(" |").next().unwrap_or(rest);
        let value = cell.split(':').next().unwrap_or(cell);
        client
            .execute(
                "insert into said values ('trax.' || $1, replace($2, 'empty', ''))",
                &[&name, &value],
            )
            .await
            .expect("a setting stands in one row");
    }
    let sql = "
        select coalesce(p.name, s.name) || ': the server has ' || coalesce(p.boot_val || coalesce(p.unit, ''), 'none')
            || ', the page ' || coalesce(s.value, 'none')
        from (select * from pg_settings where name like 'trax.%') p
        full join said s on s.name = p.name
        where case
            when p.name is null or s.name is null then true
            when p.unit = 'ms' then p.boot_val::numeric <> extract(epoch from s.value::interval) * 1000
            when p.unit = 's' then p.boot_val::numeric <> extract(epoch from s.value::interval)
            when p.unit = 'B' then p.boot_val::numeric <> pg_size_bytes(s.value)
            when p.vartype in ('integer', 'real') then p.boot_val::numeric <> s.value::numeric
            else p.boot_val <> s.value
        end
        order by 1";
    let wrong: Vec<String> = client
        .query(sql, &[])
        .await
        .expect("settings can be compared")
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
