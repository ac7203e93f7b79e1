//! `tests/every_major`: filters of the test program for the tests that run on each major version of
//! PostgreSQL before a change lands. Tests that depend on the major version must be included:
//! stages with conditional compilation, and tests that query the server's version.

use std::path::{Path, PathBuf};

/// Modules of the extension without tests under their own name, and the filter that covers each.
const ELSEWHERE: [(&str, &str); 1] = [("setting", "whole::settings::")];
/// Text of tests that query the server's version; split so that this file does not match.
const ASKS: [&str; 2] = [concat!("server_", "version_num"), concat!(".major", "()")];

fn tests() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn filters() -> Vec<String> {
    let list = std::fs::read_to_string(tests().join("every_major")).expect("the list can be read");
    list.lines().map(str::to_owned).collect()
}

/// Every Rust file below a folder, with its path relative to `root`: `whole/plan.rs`.
fn sources(root: &Path) -> Vec<(String, String)> {
    let mut folders = vec![root.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let name = path.strip_prefix(root).expect("it is below");
                let text = std::fs::read_to_string(&path).expect("a file can be read");
                found.push((name.to_string_lossy().into_owned(), text));
            }
        }
    }
    found
}

/// Returns the prefix of the names of a module's tests: `whole::plan::`.
fn module(file: &str) -> String {
    let path = file.trim_end_matches(".rs").trim_end_matches("/mod");
    path.replace('/', "::") + "::"
}

#[test]
fn what_depends_on_the_major_is_tested_on_each() {
    let filters = filters();
    let runs = |module: &str| {
        filters
            .iter()
            .any(|filter| module.contains(filter.as_str()))
    };
    let mut left_out = Vec::new();
    for (file, text) in sources(&tests().join("../trax_pg/src")) {
        let stage = file.split(['/', '.']).next().unwrap_or_default();
        let elsewhere = ELSEWHERE.iter().find(|(name, _)| *name == stage);
        let module = elsewhere.map_or(format!("{stage}::"), |(_, module)| (*module).to_owned());
        if text.contains("feature = \"pg") && !runs(&module) {
            left_out.push(module);
        }
    }
    for (file, text) in sources(&tests()) {
        let is_test = !["harness/", "chaos/", "soak/"]
            .iter()
            .any(|folder| file.starts_with(folder));
        let module = module(&file);
        if is_test && ASKS.iter().any(|asks| text.contains(asks)) && !runs(&module) {
            left_out.push(module);
        }
    }
    assert!(
        left_out.is_empty(),
        "add to tests/every_major: {left_out:#?}"
    );
}

#[test]
fn each_filter_for_every_major_names_tests() {
    let modules: Vec<String> = sources(&tests())
        .iter()
        .map(|(file, _)| module(file))
        .collect();
    for filter in filters() {
        assert!(
            modules.iter().any(|module| module.contains(&filter)),
            "tests/every_major names no test with {filter:?}"
        );
    }
}
