//! No backtraces: with `RUST_BACKTRACE` in the server's environment, the DETAIL of an error would
//! show this library's frames to clients and in logs.

const NAME: &str = "RUST_LIB_BACKTRACE";

/// Disables backtraces of this library in this process and those that it forks, whatever the
/// environment: the standard library reads the variable once.
pub(crate) fn never() {
    let before = std::env::var_os(NAME);
    // SAFETY: a process that loads the library has one thread; the previous value is restored.
    unsafe {
        std::env::set_var(NAME, "0");
        drop(std::backtrace::Backtrace::capture());
        match before {
            Some(value) => std::env::set_var(NAME, value),
            None => std::env::remove_var(NAME),
        }
    }
}
