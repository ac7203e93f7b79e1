//! trax: a job scheduler that lives inside PostgreSQL.

mod schema;
pub mod setting;
mod shmem;
mod worker;

::pgrx::pg_module_magic!();

#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    setting::define();
    if shmem::can_be_requested() {
        shmem::request();
        worker::hold::install();
        worker::launcher::register();
    }
}
