//! trax: a job scheduler inside PostgreSQL.
//!
//! Work moves down this list; work that must go back up is stored as a row with a due time.

mod background;

mod cycle;

mod adopt;
mod cleanup;
mod repair;

mod clock_correction;

mod due;

mod new_job;

mod manifest;

mod graph;

mod sql_job;

mod claim;

mod workflow;

mod outcome;

mod dead_letter;

mod await_job;
mod lease;
mod progress;
mod token;

mod group;
mod limit;

mod job_steps;

mod unreadable_job;
mod work_queue;

mod job_graph;
mod job_needs;

mod rate;

mod task;

mod unique_key;

mod manifest_state;
mod worker_registry;

mod manual_change;

mod believed_clock;
mod end_of_transaction;
mod instance;
mod prepared;

mod access_scope;
mod audit;
mod changes;
mod direct_write;
mod document;
mod metrics;
mod step;
mod stored_settings;
mod unseen;
mod wake;

pub mod retry;
mod timing;

mod memory;

mod lane;

mod columns;
mod server;
pub mod setting;

mod error;

::pgrx::pg_module_magic!();

#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    server::version::refuse_second_library();
    server::backtrace::never();
    setting::define();
    server::deadlock::install();
    server::foreign_code::install();
    server::transaction::listener(end_of_transaction::ended);
    if memory::can_be_requested() {
        memory::request();
        background::closed_database::install();
        background::launcher::register();
    }
}
