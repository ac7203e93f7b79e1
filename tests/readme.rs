//! The README's SQL runs, and prints what the README shows. The rule for its blocks is in `harness::markdown`.

use harness::markdown::{Block, blocks, matches, play};
use harness::scheduler::new_name;
use harness::shared_server;
use std::path::Path;
use std::process::Command;

/// A new, empty database, and the psql that runs in it.
async fn empty_database() -> impl Fn() -> Command {
    let name = new_name("document");
    shared_server()
        .plain_database(&name)
        .await
        .expect("a database is made");
    move || {
        let mut psql = shared_server().command("psql");
        psql.env("PGOPTIONS", "-c client_min_messages=warning")
            .args(["-d", &name]);
        psql
    }
}

#[tokio::test]
async fn every_sql_block_of_the_readme_runs_and_prints_what_it_shows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    if !path.exists() {
        println!("there is no README.md yet");
        return;
    }
    let text = std::fs::read_to_string(&path).expect("README.md can be read");
    let blocks = blocks(&text);
    assert!(
        blocks.len() >= 5,
        "README.md has {} blocks of SQL, and should show more",
        blocks.len()
    );
    play("README.md", &blocks, empty_database().await);
}

#[tokio::test]
async fn every_sql_block_of_every_page_runs_and_prints_what_it_shows() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let mut played = 0;
    for page in std::fs::read_dir(pages).expect("docs/ can be read") {
        let page = page.expect("an entry can be read").path();
        let text = std::fs::read_to_string(&page).expect("a page can be read");
        let name = page.display().to_string();
        play(&name, &blocks(&text), empty_database().await);
        played += 1;
    }
    assert!(played > 0, "docs/ has no page");
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
exit 1
```

```text
belongs to no SQL
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
fn the_blocks_of_a_document_are_its_sql_and_the_text_right_behind_it() {
    let found = blocks(DOCUMENT);
    let lines: Vec<usize> = found.iter().map(|block| block.line).collect();
    assert_eq!(lines, [3, 30, 43]);
    let expected: Vec<bool> = found.iter().map(|block| block.expected.is_some()).collect();
    assert_eq!(expected, [true, true, false]);
    assert!(found[0].sql.starts_with("create table t"));
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
async fn a_document_that_tells_the_truth_passes() {
    play("document", &blocks(DOCUMENT), empty_database().await);
}

#[tokio::test]
async fn a_document_that_shows_another_output_does_not_pass() {
    let psql = empty_database().await;
    let wrong = DOCUMENT.replace(" 1 | a", " 2 | a");
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        play("document", &blocks(&wrong), psql)
    }));
    let said = played.expect_err("the output differs");
    let said = said
        .downcast_ref::<String>()
        .map(String::as_str)
        .unwrap_or_default();
    assert!(said.starts_with("document:3: psql prints"), "{said}");
}

#[tokio::test]
async fn a_document_with_a_failing_statement_does_not_pass() {
    let psql = empty_database().await;
    let failing = [Block {
        line: 7,
        sql: "select 1;\nselect 1 / 0;".to_owned(),
        expected: None,
    }];
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        play("document", &failing, psql)
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
