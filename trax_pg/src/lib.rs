//! trax: a job scheduler that lives inside PostgreSQL.
//!
//! Work moves down this list; what must go back goes back as a row with a due time.

mod manifest;

mod due;

mod new_job;

mod work_queue;

mod claim;

mod lease;

mod progress;

mod outcome;

mod dead_letter;

mod cleanup;

mod cycle;

mod dependency;
mod detour;
mod fair;
mod far_ahead;
mod group;
mod hint;
mod instance;
mod limit;
mod manifest_state;
mod registry;
mod token;

pub mod retry;
mod server_zone;
mod tally;
mod timing;
mod two_phase;
mod wake;
mod zone_data;

mod adopt;
mod backend;
mod by_hand;
mod clock;
mod columns;
mod deadlock;
mod durability;
mod end_of_transaction;
mod entry;
mod error;
mod hash;
mod job_ended;
mod json;
mod lock;
mod own_code;
mod procedure;
mod rights;
mod schema;
mod scope;
pub mod setting;
mod shmem;
mod spi;
mod table;
mod transaction;
mod worker;

::pgrx::pg_module_magic!();

#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    setting::define();
    deadlock::install();
    transaction::listener(end_of_transaction::ended);
    if shmem::can_be_requested() {
        shmem::request();
        worker::hold::install();
        worker::launcher::register();
    }
}
