//! What the compiler says of a handler or a producer that is wrong names what is wrong.
//!
//! `TRYBUILD=overwrite` writes the messages again, for another compiler.

#[test]
fn a_mistake_is_named_by_the_compiler() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
