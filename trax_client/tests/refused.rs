//! The compiler's message names the error in a wrong handler or producer.
//!
//! `TRYBUILD=overwrite` rewrites the messages, for another compiler.

use std::process::Command;

/// The compiler whose messages are stored; each version words them differently.
const COMPILER: &str = "rustc 1.95.";

#[test]
#[ignore = "compiles the client once more: make ci runs it"]
fn a_mistake_is_named_by_the_compiler() {
    let asked = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()))
        .arg("--version")
        .output();
    let version = asked.expect("the compiler answers").stdout;
    let version = String::from_utf8_lossy(&version);
    if version.starts_with(COMPILER) || std::env::var_os("TRYBUILD").is_some() {
        trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
    } else {
        eprintln!(
            "skipped: the messages are those of {COMPILER}x, and this is {}",
            version.trim()
        );
    }
}
