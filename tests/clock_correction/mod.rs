//! Corrections after the server's clock was ahead.

mod lease;
mod next_run;
