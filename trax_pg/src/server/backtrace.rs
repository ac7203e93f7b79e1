//! No backtraces: with `RUST_BACKTRACE` in the server's environment the DETAIL of an error would
//! have frames of ours, for clients and logs.

const NAME: &str = "RUST_LIB_BACKTRACE";

/// Makes this process, and those that it forks, capture no backtrace in our code, whatever the
/// environment says: the standard library looks there once.
pub(crate) fn never() {
    let before = std::env::var_os(NAME);
    // SAFETY: a process that loads the library has one thread; what was there is put back.
    unsafe {
        std::env::set_var(NAME, "0");
        drop(std::backtrace::Backtrace::capture());
        match before {
            Some(value) => std::env::set_var(NAME, value),
            None => std::env::remove_var(NAME),
        }
    }
}
