//! trax
::pgrx::pg_module_magic!();
