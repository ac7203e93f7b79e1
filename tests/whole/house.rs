//! The shape of the source: the direction of imports, the place of tests, and the reason for each
//! unsafe block. `scripts/form` checks the length of files, and the width and words of comments.
//!
//! Words: an *import* is a module that another names, in a `use` line or in place; it runs *up* if
//! the imported module comes first in `lib.rs`. A *circle* is a set of modules each of which
//! reaches the others by imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Imports of the extension that run up, each with its reason. Only shorten this list.
const UP: [(&str, &str); 0] = [];
/// The folders of the packages in other languages, and the endings of their files.
const PACKAGES: [(&str, &str); 2] = [
    ("trax_client/python/src/trax", "py"),
    ("trax_client/node/src", "ts"),
];
/// Folders of tests beside those of the stages.
const OTHER_TESTS: [&str; 12] = [
    "chaos",
    "command",
    "conformance",
    "harness",
    "relay",
    "router",
    "shard",
    "soak",
    "testkit",
    "web",
    "whole",
    "worker",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Collects every file of a folder with this ending, in order, except in `target`.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                files(&path, ending, found);
            }
        } else if path.extension().is_some_and(|end| end == ending) {
            found.push(path);
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
}

/// The modules of a package, by path such as `outcome::ending`, with what each imports.
struct Modules(BTreeMap<String, BTreeSet<String>>);

impl Modules {
    fn read(source: &Path) -> Self {
        let mut paths = Vec::new();
        files(source, "rs", &mut paths);
        let named: Vec<(String, String)> = paths
            .iter()
            .map(|path| {
                let relative = path.strip_prefix(source).expect("it is in the folder");
                let mut parts: Vec<&str> = relative.iter().filter_map(|p| p.to_str()).collect();
                let file = parts.pop().expect("a file has a name");
                let is_folder = matches!(file, "mod.rs" | "lib.rs" | "main.rs");
                if !is_folder {
                    parts.push(file.trim_end_matches(".rs"));
                }
                (parts.join("::"), code(&read(path)))
            })
            .collect();
        let names: BTreeSet<String> = named.iter().map(|(name, _)| name.clone()).collect();
        let imports = named.iter().map(|(name, text)| {
            let imported = imports(text)
                .into_iter()
                .map(|path| module(&path, name, &names))
                .filter(|imported| imported != name && !imported.is_empty());
            (name.clone(), imported.collect())
        });
        Modules(imports.collect())
    }

    /// Returns the sets of two or more modules that reach each other.
    fn circles(&self) -> Vec<Vec<&str>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> = self
            .0
            .keys()
            .map(|name| (name.as_str(), self.reach(name)))
            .collect();
        let mut circles: Vec<Vec<&str>> = Vec::new();
        for (name, reach) in &reached {
            let circle: Vec<&str> = reach
                .iter()
                .filter(|other| reached.get(*other).is_some_and(|back| back.contains(name)))
                .copied()
                .collect();
            if circle.len() > 1 && !circles.contains(&circle) {
                circles.push(circle);
            }
        }
        circles
    }

    fn reach(&self, from: &str) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut open: Vec<&str> = vec![from];
        while let Some(name) = open.pop() {
            for next in self.0.get(name).into_iter().flatten() {
                if reached.insert(next.as_str()) {
                    open.push(next);
                }
            }
        }
        reached
    }
}

/// A file without its comments and its tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths of this package that a file names, such as `crate::a::b` and `super::c`; lists are
/// expanded.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$' || c == ':') {
                continue;
            }
            let rest = &text[at..];
            let mut depth = 0;
            let is_part = |c: char| c.is_alphanumeric() || "_:{}, \n*".contains(c);
            let end = rest.find(|c: char| {
                depth += i32::from(c == '{') - i32::from(c == '}');
                depth < 0 || !is_part(c) || (depth == 0 && ", \n".contains(c))
            });
            take_apart("", &rest[..end.unwrap_or(rest.len())], &mut found);
        }
    }
    found
}

/// Expands `a::{b, c::d}` to `a::b` and `a::c::d`.
fn take_apart(before: &str, path: &str, found: &mut Vec<String>) {
    let path = path.trim();
    let Some((start, list)) = path.split_once('{') else {
        let name = path.split(" as ").next().unwrap_or(path);
        found.push(format!("{before}{name}"));
        return;
    };
    let before = format!("{before}{start}");
    let list = list.strip_suffix('}').unwrap_or(list);
    let (mut depth, mut from) = (0, 0);
    for (at, c) in list.char_indices().chain([(list.len(), ',')]) {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            if !list[from..at].trim().is_empty() {
                take_apart(&before, &list[from..at], found);
            }
            from = at + 1;
        }
    }
}

/// The module that contains a path named in the module `from`.
fn module(path: &str, from: &str, names: &BTreeSet<String>) -> String {
    let mut at: Vec<&str> = from.split("::").filter(|part| !part.is_empty()).collect();
    let mut rest: Vec<&str> = path.split("::").map(str::trim).collect();
    if rest[0] == "crate" {
        at.clear();
        rest.remove(0);
    }
    while rest.first() == Some(&"super") {
        at.pop();
        rest.remove(0);
    }
    at.extend(rest);
    while !at.is_empty() && !names.contains(&at.join("::")) {
        at.pop();
    }
    at.join("::")
}

fn top(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

/// The stages of the extension, in the order in which work moves.
fn stages() -> Vec<String> {
    read(&root().join("trax_pg/src/lib.rs"))
        .lines()
        .filter_map(|line| line.trim_start_matches("pub ").strip_prefix("mod "))
        .filter_map(|line| line.strip_suffix(';').map(str::to_owned))
        .collect()
}

#[test]
fn work_moves_down_the_list_of_stages() {
    let source = root().join("trax_pg/src");
    let order = stages();
    let place = |module: &str| order.iter().position(|stage| stage == top(module));
    let mut up = BTreeSet::new();
    for (module, imports) in &Modules::read(&source).0 {
        for import in imports {
            if place(import) < place(module) && top(import) != top(module) {
                up.insert(format!("{module} -> {import}"));
            }
        }
    }
    let allowed: BTreeSet<String> = UP.iter().map(|(import, _)| (*import).to_owned()).collect();
    assert_eq!(up, allowed, "imports that run up the list in lib.rs");
}

#[test]
fn the_packages_in_rust_have_no_circles() {
    for package in [
        "trax_pg",
        "trax_pg/schedule",
        "trax_client",
        "trax_client/web",
        "trax_client/relay",
        "trax_client/cli",
        "trax_client/bench",
        "trax_client/terminal",
    ] {
        let modules = Modules::read(&root().join(package).join("src"));
        assert_eq!(modules.circles(), Vec::<Vec<&str>>::new(), "in {package}");
    }
    let client = Modules::read(&root().join("trax_client/src"));
    for (module, imports) in &client.0 {
        let is_outside = top(module) != "worker";
        assert!(
            !(is_outside && imports.contains("worker")),
            "{module} needs the worker, which needs all"
        );
    }
}

/// The modules of a package in Python or TypeScript, by file, with those that each imports.
fn scripts(folder: &str, ending: &str) -> Modules {
    let mut paths = Vec::new();
    files(&root().join(folder), ending, &mut paths);
    let name = |path: &PathBuf| {
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        stem.expect("a file has a name").to_owned()
    };
    let modules = paths.iter().map(|path| {
        let imported = read(path).lines().flat_map(imported_by).collect();
        (name(path), imported)
    });
    Modules(modules.collect())
}

/// Returns the modules that a line of Python or TypeScript imports from its own folder.
fn imported_by(line: &str) -> Vec<String> {
    let of_python = line.trim_start().strip_prefix("from .");
    if let Some((module, names)) = of_python.and_then(|rest| rest.split_once(" import ")) {
        let modules = if module.is_empty() { names } else { module };
        return modules.split(", ").map(str::to_owned).collect();
    }
    let of_typescript = line.split_once("from \"./").map(|(_, rest)| rest);
    let module = of_typescript.and_then(|rest| rest.split_once(".js\"").or(rest.split_once('"')));
    module
        .map(|(module, _)| module.to_owned())
        .into_iter()
        .collect()
}

#[test]
fn the_packages_for_python_and_node_have_no_circles() {
    for (folder, ending) in PACKAGES {
        let package = scripts(folder, ending);
        let imports: usize = package.0.values().map(BTreeSet::len).sum();
        assert!(imports > 30, "{folder}: {imports} imports");
        assert_eq!(package.circles(), Vec::<Vec<&str>>::new(), "{folder}");
    }
    assert_eq!(imported_by("from .clock import Moment"), ["clock"]);
    assert_eq!(
        imported_by("    from . import sql, typed"),
        ["sql", "typed"]
    );
    assert_eq!(
        imported_by("import { Moment } from \"./clock.js\";"),
        ["clock"]
    );
}

#[test]
fn a_circle_and_an_import_in_a_list_are_found() {
    assert_eq!(
        imports("use crate::a::{self, b::c, d};\nlet x = crate::e::f(1);"),
        [
            "crate::a::self",
            "crate::a::b::c",
            "crate::a::d",
            "crate::e::f"
        ]
    );
    let import = |from: &str, to: &str| (from.to_owned(), BTreeSet::from([to.to_owned()]));
    let modules = Modules(BTreeMap::from([
        import("a", "b"),
        import("b", "c"),
        import("c", "a"),
        import("d", "a"),
    ]));
    assert_eq!(modules.circles(), [["a", "b", "c"]]);
}

#[test]
fn a_test_lies_in_the_folder_of_the_stage_that_it_is_about() {
    let stages = stages();
    let tests = root().join("tests");
    let mut found = Vec::new();
    files(&tests, "rs", &mut found);
    for path in found {
        let path = path.strip_prefix(&tests).expect("it is in the folder");
        let name = path.iter().next().and_then(|name| name.to_str());
        let name = name.expect("a name");
        let belongs = name == "main.rs" || OTHER_TESTS.contains(&name);
        assert!(
            belongs || stages.iter().any(|stage| stage == name),
            "tests/{}: neither a stage of lib.rs nor {OTHER_TESTS:?}",
            path.display()
        );
    }
}

/// Lines that open an unsafe block or implement an unsafe trait without a SAFETY comment in the two
/// lines above.
fn unsafe_without_reason(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let is_unsafe = |line: &str| {
        let code = line.split("//").next().unwrap_or(line);
        [" {", " impl"]
            .iter()
            .any(|end| code.contains(&format!("unsafe{end}")))
    };
    let has_reason = |at: usize| {
        let above = &lines[at.saturating_sub(2)..at];
        above.iter().any(|line| line.contains("// SAFETY: "))
    };
    (0..lines.len())
        .filter(|&at| is_unsafe(lines[at]) && !has_reason(at))
        .map(|at| at + 1)
        .collect()
}

#[test]
fn every_unsafe_block_says_what_it_relies_on() {
    let mut found = Vec::new();
    for folder in ["trax_pg", "trax_client", "tests", "fuzz"] {
        files(&root().join(folder), "rs", &mut found);
    }
    let wrong: Vec<String> = found
        .iter()
        .flat_map(|path| {
            let lines = unsafe_without_reason(&read(path)).into_iter();
            lines.map(move |line| format!("{}:{line}", path.display()))
        })
        .collect();
    assert!(wrong.is_empty(), "no SAFETY line: {}", wrong.join("\n"));
    let text =
        "// SAFETY: a.\nunsafe_x(UNSAFE {\nlet b = UNSAFE { c };\n\nUNSAFE impl Send for D {}";
    let text = text.replace("UNSAFE", "unsafe");
    assert_eq!(unsafe_without_reason(&text), [5]);
}
