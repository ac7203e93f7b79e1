//! `trax import` once more: the manifests of an import belong to its source; those whose line is
//! gone are named, and removed with `--prune`.

use super::{said, trax};
use harness::process::{Scratch, run};
use harness::session::{Session, session};
use trax_client::testkit::Database;

const MANIFESTS: &str =
    "select coalesce(string_agg(name, ' ' order by name), '') from trax.manifest";

fn crontab(files: &Scratch, name: &str, commands: &[&str]) -> String {
    let path = files.path().join(name);
    let lines: String = commands
        .iter()
        .map(|command| format!("0 3 * * * {command}\n"))
        .collect();
    std::fs::write(&path, lines).expect("it can be written");
    path.display().to_string()
}

/// Imports, and returns the text on standard error.
fn import(database: &Database, arguments: &[&str]) -> String {
    let all = [&["import", "crontab", "--timezone", "UTC"], arguments].concat();
    let (code, output, errors) = run(&mut trax(database, &all));
    assert_eq!(code, Some(0), "{output}{errors}");
    errors
}

/// Returns the name of this machine.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("it has a name");
    name.trim().to_owned()
}

async fn manifests(s: &Session) -> String {
    s.get(MANIFESTS).await
}

#[tokio::test]
async fn what_was_imported_is_of_its_source_and_no_other_prune_removes_it() {
    let (db, s) = session().await;
    let files = Scratch::new("sources");
    let (one, two) = (
        crontab(&files, "one", &["a"]),
        crontab(&files, "two", &["b"]),
    );
    import(&db, &[&one, &two, "--apply", "--yes"]);
    let document = files.path().join("own.toml");
    std::fs::write(&document, "[[manifests]]\nname = \"own\"\ntask = \"t\"\n")
        .expect("it is written");
    let document = document.display().to_string();
    for options in [&["--prune"][..], &["--prune", "--source", "shop"]] {
        let all = [&["manifest", "apply", &document, "--yes"], options].concat();
        said(&db, &all);
        assert_eq!(manifests(&s).await, "one:a own two:b", "{options:?}");
    }
    let errors = import(
        &db,
        &[&crontab(&files, "one", &[]), "--apply", "--yes", "--prune"],
    );
    assert!(errors.contains("removed: 1"), "{errors}");
    assert_eq!(manifests(&s).await, "own two:b");
    let sources = "select string_agg(source, ' ' order by name) from trax.manifest";
    assert_eq!(
        s.get(sources).await,
        format!("shop crontab {}:{two}", host())
    );
    let shown = said(&db, &["manifest", "show", "two:b"]);
    assert!(
        shown.contains(&format!("crontab {}:{two}", host())),
        "{shown}"
    );
}

#[tokio::test]
async fn a_line_that_is_gone_is_named_with_what_to_type() {
    let (db, s) = session().await;
    let files = Scratch::new("gone");
    let file = crontab(&files, "work", &["a", "b", "c"]);
    import(&db, &[&file, "--apply", "--yes"]);
    let file = crontab(&files, "work", &["a", "c"]);
    let source = format!("crontab {}:{file}", host());
    let named = format!("manifest \"work:b\" of source \"{source}\" has no line any more");
    for (options, fate) in [
        (&[][..], ", and stays: to remove it, add --prune"),
        (&["--prune"], ", and is removed with --apply"),
        (
            &["--apply", "--yes"],
            ", and stays: to remove it, add --prune",
        ),
    ] {
        let errors = import(&db, &[&[file.as_str()], options].concat());
        assert!(
            errors.contains(&format!("{named}{fate}")),
            "{options:?}: {errors}"
        );
        assert_eq!(errors.matches("no line any more").count(), 1, "{errors}");
        assert_eq!(manifests(&s).await, "work:a work:b work:c");
    }
    let errors = import(&db, &[&file, "--apply", "--yes", "--prune"]);
    assert!(
        errors.contains("2 of 2 lines are now manifests; removed: 1"),
        "{errors}"
    );
    assert_eq!(manifests(&s).await, "work:a work:c");
    let errors = import(&db, &[&file, "--apply", "--yes", "--prune"]);
    assert!(!errors.contains("no line any more"), "{errors}");
}

#[tokio::test]
async fn a_name_of_another_source_is_left_out_and_can_be_taken_over() {
    let (db, s) = session().await;
    let files = Scratch::new("others");
    let first = crontab(&files, "work", &["a"]);
    import(&db, &[&first, "--apply", "--yes"]);
    let moved = Scratch::new("moved");
    let second = crontab(&moved, "work", &["a", "b"]);
    let all = [
        "import",
        "crontab",
        "--timezone",
        "UTC",
        &second,
        "--apply",
        "--yes",
    ];
    let shown = said(&db, &all);
    let source = format!("crontab {}:{first}", host());
    assert!(
        shown.contains("left out: the server refused it") && shown.contains(&source),
        "{shown}"
    );
    assert_eq!(manifests(&s).await, "work:a work:b");
    let sources =
        "select string_agg(distinct source, '; ') from trax.manifest where name = 'work:a'";
    assert_eq!(s.get(sources).await, source);
    let third = crontab(&moved, "work", &["a"]);
    import(
        &db,
        &[&third, "--source", &source, "--apply", "--yes", "--prune"],
    );
    assert_eq!(
        manifests(&s).await,
        "work:a work:b",
        "that is of another source"
    );
}

#[tokio::test]
async fn a_line_that_is_left_out_keeps_prune_from_removing_its_manifest() {
    let (db, s) = session().await;
    let files = Scratch::new("unreadable");
    let file = crontab(&files, "work", &["a", "b"]);
    import(&db, &[&file, "--apply", "--yes"]);
    std::fs::write(&file, "0 3 * * * a\n@hourley b\n").expect("it is written");
    for options in [&["--prune"][..], &["--prune", "--apply", "--yes"]] {
        let all = [&["import", "crontab", "--timezone", "UTC", &file], options].concat();
        let (code, _, errors) = run(&mut trax(&db, &all));
        assert_eq!(code, Some(1), "{errors}");
        assert!(
            errors.contains("--prune would remove manifest \"work:b\"")
                && errors.contains("@hourley"),
            "{errors}"
        );
        assert_eq!(manifests(&s).await, "work:a work:b");
    }
    std::fs::write(&file, "0 3 * * * a\n@reboot b\n").expect("it is written");
    let errors = import(&db, &[&file, "--prune", "--apply", "--yes"]);
    assert!(
        errors.contains("\"work:b\" of source")
            && errors.contains("has no line any more, and is removed"),
        "{errors}"
    );
    assert_eq!(manifests(&s).await, "work:a");
}

#[tokio::test]
async fn the_crontabs_of_two_users_that_come_by_a_pipe_do_not_replace_each_other() {
    let (db, s) = session().await;
    let files = Scratch::new("piped");
    let piped = |user: &str, line: &str| {
        let file = files.path().join(user);
        std::fs::write(&file, line).expect("it is written");
        let all = "import crontab - --timezone UTC --apply --yes";
        let output = trax(&db, &all.split(' ').collect::<Vec<_>>())
            .env("USER", user)
            .stdin(std::fs::File::open(&file).expect("it is there"))
            .output()
            .expect("it starts");
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), shown)
    };
    let (code, shown) = piped("ada", "0 3 * * * backup\n");
    assert_eq!(code, Some(0), "{shown}");
    let (code, shown) = piped("bob", "30 5 * * * backup\n");
    assert_eq!(code, Some(1), "{shown}");
    let owner = format!("crontab {} of ada", host());
    assert!(
        shown.contains("left out") && shown.contains(&owner),
        "{shown}"
    );
    let stored = "select cron, source from trax.manifest";
    assert_eq!(s.get(stored).await, format!("0 3 * * *|{owner}"));
}
