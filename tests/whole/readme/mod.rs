//! The README and the pages of `docs/`: their SQL and commands run and print what they show (the
//! rule is in `harness::markdown`), their links lead somewhere, and the pages of reference say what
//! the server has.

mod reference;

use harness::markdown::{Block, Language, blocks, matches, play};
use harness::process::trax_binary;
use harness::scheduler::new_name;
use harness::shared_server;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The directory of a page, or of the README.
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

/// A new, empty database, and commands that find it, `trax` among them.
async fn empty_database() -> impl Fn(&str) -> Command {
    let name = new_name("document");
    shared_server()
        .plain_database(&name)
        .await
        .expect("a database is made");
    move |program| {
        let psql = shared_server().command("psql");
        let mut command = match program {
            "psql" => shared_server().command("psql"),
            _ => Command::new(program),
        };
        let beside = |program: &Path| program.parent().unwrap_or(program).to_path_buf();
        let mut path = vec![
            beside(&trax_binary()),
            beside(Path::new(psql.get_program())),
        ];
        path.extend(std::env::split_paths(
            &std::env::var_os("PATH").unwrap_or_default(),
        ));
        for (name, value) in psql.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .env(
                "PATH",
                std::env::join_paths(path).expect("a path has no colon"),
            )
            .env("PGOPTIONS", "-c client_min_messages=warning")
            .env("PGDATABASE", &name);
        command
    }
}

#[tokio::test]
async fn every_block_of_every_page_runs_and_prints_what_it_shows() {
    let mut played = 0;
    for document in documents() {
        let name = document.display().to_string();
        let blocks = blocks(&text(&document));
        if !blocks.is_empty() {
            play(&name, &blocks, empty_database().await);
            played += 1;
        }
    }
    assert!(
        played >= 6,
        "{played} documents have SQL, and more should show some"
    );
}

#[test]
fn every_link_of_every_page_leads_to_a_file() {
    for document in documents() {
        let from = document.parent().expect("a document is in a directory");
        let page = text(&document);
        for rest in page.split("](").skip(1) {
            let link = rest.split_once(')').map_or(rest, |(link, _)| link);
            let target = link.split('#').next().unwrap_or(link);
            if !target.is_empty() && !target.contains("://") {
                assert!(
                    from.join(target).exists(),
                    "{} has a link to {target}, which is not there",
                    document.display()
                );
            }
        }
    }
}

#[test]
fn the_readme_is_short_and_names_every_page() {
    let documents = documents();
    let readme = text(&documents[0]);
    assert!(
        readme.lines().count() <= 160,
        "README.md has {} lines: what is more belongs to docs/",
        readme.lines().count()
    );
    for page in &documents[1..] {
        let name = page.file_name().expect("a page is a file");
        let link = format!("docs/{}", name.to_string_lossy());
        assert!(readme.contains(&link), "README.md does not lead to {link}");
    }
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

```sql
insert into t values (2);
```
";

#[test]
fn the_blocks_of_a_document_are_what_runs_and_the_text_right_behind_it() {
    let found = blocks(DOCUMENT);
    let lines: Vec<usize> = found.iter().map(|block| block.line).collect();
    assert_eq!(lines, [3, 18, 38, 51]);
    let languages: Vec<Language> = found.iter().map(|block| block.language).collect();
    let (sql, shell) = (Language::Sql, Language::Shell);
    assert_eq!(languages, [sql, shell, sql, sql]);
    let expected: Vec<bool> = found.iter().map(|block| block.expected.is_some()).collect();
    assert_eq!(expected, [true, true, true, false]);
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
    play("document", &blocks(DOCUMENT), empty_database().await);
}

#[tokio::test]
async fn a_document_that_shows_another_output_does_not_pass() {
    let command = empty_database().await;
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
    let command = empty_database().await;
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
