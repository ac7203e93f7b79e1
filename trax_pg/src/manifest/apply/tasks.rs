//! The tasks of the document: their defaults.

use super::source::names_of_tasks;
use super::{Action, compared, kept_if_changed, nameless, removed};
use crate::audit::Kind;
use crate::document::Object;
use crate::error::Result;
use crate::server::choice::one_of;
use crate::server::clock::Timestamp;
use crate::server::spi::{Spi, arg, statement};
use crate::task;
use crate::task::{BACKOFF, ON_FINAL_FAILURE, Settings};
use serde_json::Value;

statement!(
    TaskPrunable, "task/prunable.sql",
    { kept: TEXTARRAYOID, source: TEXTOID } -> String
);

/// Returns the settings of a task of the document.
pub(super) fn settings(spi: &Spi, value: &Value, source: Option<&str>) -> Result<Settings> {
    let keys = [
        "name",
        "max_retries",
        "retry_delay",
        "backoff",
        "retry_delay_max",
        "timeout",
        "on_final_failure",
    ];
    let object = Object::new(value, "a task", &keys)?;
    Ok(Settings {
        name: object.new_name("name")?.ok_or_else(|| nameless("a task"))?,
        max_retries: object.within("max_retries", 0, i32::MAX - 1)?,
        retry_delay: object.interval(spi, "retry_delay", 0)?,
        backoff: object.number("backoff", &BACKOFF)?,
        retry_delay_max: object.interval(spi, "retry_delay_max", 0)?,
        timeout: object.interval(spi, "timeout", 1)?,
        on_final_failure: one_of(
            object.text("on_final_failure")?,
            "on_final_failure",
            &ON_FINAL_FAILURE,
        )?,
        applied: true,
        source: source.map(str::to_owned),
    })
}

/// Stores the settings of tasks that have others, and with `prune` deletes those that an earlier
/// document of the source had.
pub(super) fn apply(
    spi: &Spi,
    tasks: &[Settings],
    prune: bool,
    source: Option<&str>,
    now: Timestamp,
    actions: &mut Vec<Action>,
) -> Result<()> {
    for settings in tasks {
        actions.push(kept_if_changed(|| {
            let difference = task::store(spi, settings, now);
            Ok(compared(Kind::Task, settings.name.clone(), difference))
        })?);
    }
    if prune {
        let prunable = TaskPrunable {
            kept: arg(names_of_tasks(tasks)),
            source: source.and_then(arg),
        };
        for name in spi.query(prunable).iter() {
            task::forget(spi, &name);
            actions.push(removed(Kind::Task, name));
        }
    }
    Ok(())
}
