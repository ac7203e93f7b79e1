//! The README and the pages of `docs/`: their SQL and commands run and print the output shown (the
//! rule is in `harness::markdown`), their links are valid, and the reference pages match the
//! server.
//!
//! A page runs in an empty database of a server without schedulers. A tutorial (`tutorial-*` and
//! `migrating-workflows.md`) also has a scheduler and Python with the package. `drills.md` and
//! `outbox.md` have separate servers, since the first stops its server and the second creates
//! databases and roles.

mod drills;
mod links;
mod locks;
mod reference;

use harness::markdown::{Block, Language, blocks, matches, play};
use harness::process::trax_binary;
use harness::scheduler::{live_server, new_name};
use harness::shared_server;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use trax_client::testkit::{Server, free_port};

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The README and every page.
fn documents() -> Vec<PathBuf> {
    let pages = std::fs::read_dir(root().join("docs")).expect("docs/ can be read");
    let mut documents: Vec<PathBuf> = pages
        .map(|page| page.expect("an entry can be read").path())
        .filter(|page| page.extension().is_some_and(|end| end == "md"))
        .collect();
    documents.sort();
    documents.insert(0, root().join("README.md"));
    documents
}

fn text(document: &Path) -> String {
    std::fs::read_to_string(document)
        .unwrap_or_else(|error| panic!("{}: {error}", document.display()))
}

/// A new, empty database of a server, and commands that find it, `trax` among them.
async fn empty_database(server: &'static Server) -> impl Fn(&str) -> Command {
    let name = new_name("document");
    server
        .plain_database(&name)
        .await
        .expect("a database is made");
    move |program| {
        let psql = server.command("psql");
        let mut command = match program {
            "psql" => server.command("psql"),
            _ => Command::new(program),
        };
        for (name, value) in psql.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .env(
                "PATH",
                path_with(&[&trax_binary(), Path::new(psql.get_program())]),
            )
            .env("PGOPTIONS", "-c client_min_messages=warning")
            .env("PGDATABASE", &name);
        command
    }
}

/// The search path, with the directories of these programs first.
fn path_with(programs: &[&Path]) -> OsString {
    let beside = |program: &&Path| program.parent().unwrap_or(program).to_path_buf();
    let mut path: Vec<PathBuf> = programs.iter().map(beside).collect();
    path.extend(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    ));
    std::env::join_paths(path).expect("a path has no colon")
}

/// The setup of a tutorial's reader: a scheduler, Python with the package, and a port for a
/// service.
async fn reader_of_a_tutorial() -> impl Fn(&str) -> Command {
    let server = live_server();
    let command = empty_database(server).await;
    let python = root().join("target/languages/trax-python/bin/python3");
    let package = root().join("trax_client/python/src");
    let port = free_port().expect("a port is free");
    move |program| {
        let psql = server.command("psql");
        let programs = [&*trax_binary(), Path::new(psql.get_program()), &python];
        let mut command = command(program);
        command
            .env("PATH", path_with(&programs))
            .env("PYTHONPATH", &package)
            .env("PORT", port.to_string());
        command
    }
}

fn is(document: &Path, start: &str) -> bool {
    document
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with(start))
}

fn is_tutorial(document: &Path) -> bool {
    is(document, "tutorial-") || is(document, "migrating-workflows")
}

#[tokio::test]
async fn every_block_of_every_page_runs_and_prints_what_it_shows() {
    let mut played = 0;
    for document in documents() {
        let name = document.display().to_string();
        let blocks = blocks(&text(&document));
        let elsewhere = is_tutorial(&document)
            || ["drills", "outbox"]
                .iter()
                .any(|start| is(&document, start));
        if blocks.iter().any(Block::runs) && !elsewhere {
            play(&name, &blocks, empty_database(shared_server()).await);
            played += 1;
        }
    }
    assert!(
        played >= 6,
        "{played} documents have SQL, and more should show some"
    );
}

/// The query given to a scaler is one that the page shows and a test has run.
#[test]
fn the_query_for_keda_is_one_that_the_page_of_autoscaling_runs() {
    let page = text(&root().join("docs/autoscaling.md"));
    let query = page
        .lines()
        .find_map(|line| line.trim().strip_prefix("query: \"")?.strip_suffix('"'))
        .expect("KEDA is given a query");
    let runs = |block: &Block| block.runs() && block.code.contains(&format!("{query};"));
    assert!(blocks(&page).iter().any(runs), "{query}");
}

/// Jobs that no worker may claim would start workers that idle.
#[tokio::test]
async fn the_query_for_keda_counts_no_job_that_no_worker_may_claim() {
    let page = text(&root().join("docs/autoscaling.md"));
    let query = page
        .lines()
        .find_map(|line| line.trim().strip_prefix("query: \"")?.strip_suffix('"'))
        .expect("KEDA is given a query");
    let (_database, s) = harness::session::session().await;
    assert_eq!(s.get(query).await, "0", "without the group");
    s.get(
        "select trax.enqueue('t', group_name => 'mail') from generate_series(1, 20);
        select count(*) from trax.claim_next(max_jobs => 3)",
    )
    .await;
    for (settings, wanted) in [
        ("enabled => true", "20"),
        ("enabled => false", "3"),
        ("enabled => true, max_active_jobs => 7", "7"),
        ("max_active_jobs => 0", "20"),
    ] {
        s.get(&format!("select trax.configure_group('mail', {settings})"))
            .await;
        assert_eq!(s.get(query).await, wanted, "{settings}");
    }
}

#[tokio::test]
async fn the_page_of_the_outbox_carries_a_job() {
    let server = harness::options().fast().start().expect("a server starts");
    let psql = server.command("psql");
    let document = root().join("docs/outbox.md");
    play("docs/outbox.md", &blocks(&text(&document)), |program| {
        let mut command = Command::new(program);
        command.envs(
            psql.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        command
            .env(
                "PATH",
                path_with(&[&trax_binary(), Path::new(psql.get_program())]),
            )
            .env("PGDATABASE", "postgres")
            .env("PGSSLMODE", "disable");
        command
    });
}

#[tokio::test]
async fn every_tutorial_ends_in_something_that_works() {
    let tutorials = documents().into_iter().filter(|page| is_tutorial(page));
    let mut played = 0;
    for document in tutorials {
        let command = reader_of_a_tutorial().await;
        let name = document.display().to_string();
        play(&name, &blocks(&text(&document)), command);
        played += 1;
    }
    assert!(played >= 5, "{played} tutorials");
}

#[test]
fn the_readme_is_short_and_leads_to_the_book() {
    let documents = documents();
    let readme = text(&documents[0]);
    assert!(
        readme.lines().count() <= 160,
        "README.md has {} lines: what is more belongs to docs/",
        readme.lines().count()
    );
    assert!(readme.contains("](docs/SUMMARY.md)"));
}

#[test]
fn the_example_of_the_crate_is_added_as_the_page_says_while_no_registry_has_it() {
    let page = text(&root().join("docs/workers.md"));
    let adds: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("    cargo add "))
        .collect();
    assert_eq!(adds.len(), 1, "{adds:?}");
    let example = text(&root().join("trax_client/examples/hello.rs"));
    let comment: Vec<&str> = example
        .lines()
        .map_while(|line| line.strip_prefix("// "))
        .collect();
    let comment = comment.join(" ");
    assert!(comment.ends_with(adds[0]), "{comment}");
    assert!(comment.contains("cargo add --path "), "{comment}");
}

const DOCUMENT: &str = "# A document

```sql
create table t (n int);
insert into t values (1);
select n, 'a' as letter from t;
```

Which prints:

```text
 n | letter
---+--------
 1 | a
(1 row)
```

```sh
echo 1 > n; cat n
```

```text
1
```

```sh ignore
exit 1
```

```text
belongs to nothing that runs
```

```sql ignore
select 1 / 0;
```

```sql
select n from generate_series(1, 9) n;
```

```text
 n
---
 1
...
 9
(9 rows)
```

```toml
# a.toml
b = 1
```

```sh
cat a.toml
```
";

#[test]
fn the_blocks_of_a_document_are_what_runs_and_the_text_right_behind_it() {
    let found = blocks(DOCUMENT);
    let lines: Vec<usize> = found.iter().map(|block| block.line).collect();
    assert_eq!(lines, [3, 18, 38, 51, 56]);
    let languages: Vec<Language> = found.iter().map(|block| block.language).collect();
    let (sql, shell) = (Language::Sql, Language::Shell);
    assert_eq!(languages, [sql, shell, sql, Language::File, shell]);
    let expected: Vec<bool> = found.iter().map(|block| block.expected.is_some()).collect();
    assert_eq!(expected, [true, true, true, false, false]);
    assert!(found[0].code.starts_with("create table t"));
    assert!(
        found[0]
            .expected
            .as_ref()
            .is_some_and(|text| text.ends_with("(1 row)\n"))
    );
}

#[test]
fn three_dots_stand_for_any_lines_and_blanks_at_line_ends_do_not_count() {
    assert!(matches("a\n...\nd\n", "a  \nb\nc\nd\n\n"));
    assert!(matches("...\n", ""));
    assert!(!matches("a\n...\nd\n", "a\nb\n"));
    assert!(!matches("a\n", "a\nb\n"));
    assert!(!matches("a\nb\n", "a\n"));
    assert!(!matches("  a\n", "a\n"));
}

#[tokio::test]
async fn a_document_that_says_the_truth_passes() {
    play(
        "document",
        &blocks(DOCUMENT),
        empty_database(shared_server()).await,
    );
}

#[tokio::test]
async fn a_document_that_shows_another_output_does_not_pass() {
    let command = empty_database(shared_server()).await;
    let wrong = DOCUMENT.replace(" 1 | a", " 2 | a");
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        play("document", &blocks(&wrong), command)
    }));
    let said = played.expect_err("the output differs");
    let said = said
        .downcast_ref::<String>()
        .map(String::as_str)
        .unwrap_or_default();
    assert!(said.starts_with("document:3: this prints"), "{said}");
}

#[tokio::test]
async fn a_document_with_a_failing_statement_does_not_pass() {
    let command = empty_database(shared_server()).await;
    let failing = [Block {
        line: 7,
        language: Language::Sql,
        code: "select 1;\nselect 1 / 0;".to_owned(),
        expected: None,
    }];
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        play("document", &failing, command)
    }));
    let said = played.expect_err("a statement fails");
    let said = said
        .downcast_ref::<String>()
        .map(String::as_str)
        .unwrap_or_default();
    assert!(
        said.contains("document:7") && said.contains("division by zero"),
        "{said}"
    );
}
