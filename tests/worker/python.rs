//! The Python package (`trax_client/python`): its tests, checks and distribution, run by
//! `scripts/python`.

use harness::process::Scratch;
use harness::scheduler::{connect, execute, live_database, live_server};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the workspace").to_path_buf()
}

/// Runs the script, which must succeed, and returns its output.
async fn succeeds(arguments: &[&str], url: String) -> String {
    let mut command = Command::new(root().join("scripts/python"));
    command.args(arguments);
    let run = move || {
        command
            .env("DATABASE_URL", url)
            .output()
            .expect("the script runs")
    };
    let output = tokio::task::spawn_blocking(run).await.expect("it ran");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

#[tokio::test]
async fn the_tests_of_the_python_package_pass() {
    let database = live_database().await;
    let client = connect(&database).await;
    let name = database.name();
    execute(
        &client,
        &format!("alter database {name} set trax.tick_interval = '50 ms'"),
    )
    .await;
    let port = live_server().port();
    let url = format!("postgresql://postgres@127.0.0.1:{port}/{name}");
    // Most of them wait for a server or a clock.
    let said = succeeds(&["test", "--numprocesses", "3"], url).await;
    assert!(said.contains(" passed"), "{said}");
}

#[tokio::test]
async fn the_python_package_is_typed_and_without_lints() {
    succeeds(&["lint"], String::new()).await;
}

#[tokio::test]
async fn the_python_package_is_built_and_has_our_version() {
    let packages = Scratch::new("python-package");
    let into = packages.path().join("dist").display().to_string();
    succeeds(&["package", &into], String::new()).await;
    let wheel = format!("trax_worker-{}-py3-none-any.whl", env!("CARGO_PKG_VERSION"));
    let wheel = Path::new(&into).join(wheel);
    let python = root().join("target/languages/trax-python/bin/python3");
    // Installed from the wheel alone, without the source.
    let program = "import trax, importlib.resources as r; assert '.whl' in trax.__file__;
assert r.files('trax').joinpath('py.typed').is_file(); print(trax.__version__)";
    let output = Command::new(python)
        .args(["-c", program])
        .current_dir("/")
        .env("PYTHONPATH", &wheel)
        .output()
        .expect("python runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.trim(), env!("CARGO_PKG_VERSION"), "{output:?}");
}
