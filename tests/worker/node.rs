//! The package for Node (`trax_client/node`): compiled, tested and packed by `scripts/node`.

use harness::scheduler::live_server;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the workspace").to_path_buf()
}

/// Runs the script, which must succeed, and returns its output.
fn succeeds(verb: &str) -> String {
    let url = format!(
        "postgresql://postgres@127.0.0.1:{}/postgres",
        live_server().port()
    );
    let output = Command::new(root().join("scripts/node"))
        .arg(verb)
        .env("DATABASE_URL", url)
        .output()
        .expect("the script runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{verb}: {said}");
    said
}

/// In sequence, since each compiles the package.
#[test]
fn the_package_for_node_is_packed_with_our_version_and_its_tests_pass() {
    let said = succeeds("package");
    let tarball = format!("trax-worker-{}.tgz", env!("CARGO_PKG_VERSION"));
    assert!(said.contains(&tarball), "{said}");
    let said = succeeds("test");
    assert!(said.contains("# fail 0"), "{said}");
}
