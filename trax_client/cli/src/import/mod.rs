//! `trax import`: converts entries of other schedulers to manifests.
//!
//! A *line* is an entry of the other scheduler: a line of a crontab or a row of `cron.job`. A
//! *proposal* is the resulting manifest, or the reason why there is none.

mod apply;
mod crontab;
mod from_crontab;
mod from_pg_cron;
mod pg_cron_schedule;
mod proposal;
mod run;

use crate::command::commands;

pub(crate) const HELP: &str = "\
Shows each line, the manifest that it becomes and its next runs; changes nothing without --apply. The server computes \
the next runs, for which it creates the manifests in a transaction that is rolled back.

A worker on the machine with the programs runs them:

  trax worker --task shell --exec 'trax import run'

The manifests of an import belong to its source, the crontab or pg_cron. After a change, import again: manifests whose \
line is gone are named, and --prune removes them.

As with cron: missed runs are skipped, nothing is retried, a command may take a day. Unlike cron: a command does not \
start while its previous run continues; it starts once when that ends. No mail is sent: the standard error of a command \
that fails is the error of its job, which becomes a dead letter; the next run comes at its time all the same, unless the \
import was made with --on-dead-letter stop. With --like-cron behind run the job completes: what the command printed is \
in its output, with the exit code, and the log of the worker names one other than 0. Schedules that are made otherwise \
stop by default; as with cron for all that come: alter database ... set trax.on_dead_letter = continue";

commands! {
    /// Crontabs of users, /etc/crontab and files of /etc/cron.d
    Crontab(from_crontab::Arguments) => from_crontab::run,
    /// The jobs of the extension pg_cron, in any database
    #[command(name = "pg_cron", alias = "pg-cron")]
    PgCron(from_pg_cron::Arguments) => from_pg_cron::run,
    /// Run the command of one imported job: a program for trax worker --exec
    Run(run::Arguments) => run::run,
}
