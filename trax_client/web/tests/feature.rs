//! The dependencies of a program that mounts the pages.

use std::process::Command;

#[test]
fn numbers_stay_what_they_are_in_the_program_that_mounts_the_pages() {
    // The tree of this package only: a build of the workspace unites the features of all packages.
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--package", "trax_web"])
        .args(["--edges", "normal,features", "--invert", "serde_json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    let lines = String::from_utf8_lossy(&tree.stdout);
    let trouble = String::from_utf8_lossy(&tree.stderr);
    assert!(tree.status.success(), "{trouble}");
    assert!(
        lines.contains("serde_json feature \"raw_value\""),
        "{lines}"
    );
    assert!(!lines.contains("arbitrary_precision"), "{lines}");
}
