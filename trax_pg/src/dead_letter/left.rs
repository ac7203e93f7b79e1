//! The dead letters of a list that cannot be requeued.

use crate::error::Error;
use crate::server::spi::row;

row! {
    /// How many dead letters of a list cannot be requeued.
    pub(super) struct Left {
        with_key: i64,
        without_role: i64,
        undone: i64,
        without_rate: i64,
    }
}

impl Left {
    /// Warns the caller how many stay, and why.
    pub(super) fn warn(&self) {
        let count = |number: i64| match number {
            1 => "1 dead letter was not requeued".to_owned(),
            more => format!("{more} dead letters were not requeued"),
        };
        if self.with_key > 0 {
            Error::key_taken(format!("{} because another job has the unique key", count(self.with_key)))
                .detail("A second job with the same key cannot be queued.")
                .hint("When those jobs have ended, requeue them again; or resolve each: select trax.acknowledge_dead_letter(id)")
                .warn();
        }
        if self.undone > 0 {
            Error::wrong_state(format!(
                "{} because their steps are being undone",
                count(self.undone)
            ))
            .detail("A job in the place of such a letter begins from the start.")
            .hint("Requeue each: select trax.requeue_dead_letter(id, fresh => true)")
            .warn();
        }
        if self.without_role > 0 {
            Error::wrong_state(format!(
                "{} because the role of the statement is not known",
                count(self.without_role)
            ))
            .detail("The cycle wrote such a dead letter from the history, which has no roles.")
            .hint("Queue each statement again: select trax.enqueue_sql('...'); and resolve the dead letter: select trax.acknowledge_dead_letter(id)")
            .warn();
        }
        if self.without_rate > 0 {
            Error::wrong_state(format!(
                "{} because their rate does not exist, or its burst is lower than their cost",
                count(self.without_rate)
            ))
            .detail("Such a job would never start.")
            .hint("Requeue each, to see what to type: select trax.requeue_dead_letter(id)")
            .warn();
        }
    }
}
