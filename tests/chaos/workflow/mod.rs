//! Workflows: jobs that execute a programme of steps, waits and children, the participants that
//! send signals to them, and the facts about them.

pub(crate) mod fact;
pub(crate) mod handler;
pub(crate) mod post;
pub(crate) mod programme;
#[cfg(test)]
mod sabotage;

/// The task of a workflow.
pub(crate) const WORKFLOW: &str = "workflow";
/// The task of the jobs that undo steps.
pub(crate) const UNDO: &str = "undo";
/// The table in which each step has its row.
pub(crate) const TABLE: &str = "
    create table public.deed (
        job_id bigint not null, nonce text not null, step text not null, attempt int not null,
        at timestamptz not null default clock_timestamp()
    );
    grant insert, select on public.deed to worker;";
