//! trax
pub mod retry;
pub mod schedule;

::pgrx::pg_module_magic!();
