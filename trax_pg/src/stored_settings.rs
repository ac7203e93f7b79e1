//! The stored settings of a group, a rate, a task or a waiting job, and the difference that a
//! change makes to those or to the settings of a manifest.

use crate::server::spi::{Rows, Spi, arg, row, statement};
use std::collections::BTreeMap;

row! {
    /// A stored column, as JSON text.
    struct Member {
        key: String,
        value: String,
    }
}
statement!(GroupSettings, "stored_settings/group.sql", { name: TEXTOID } -> Member);
statement!(RateSettings, "stored_settings/rate.sql", { name: TEXTOID } -> Member);
statement!(TaskSettings, "stored_settings/task.sql", { name: TEXTOID } -> Member);
statement!(JobSettings, "stored_settings/job.sql", { job_id: INT8OID } -> Member);

/// Stored settings, as names and JSON texts; empty when there are none.
pub(crate) struct StoredSettings(BTreeMap<String, String>);

/// The difference between two sets of settings.
pub(crate) enum Difference {
    Created,
    /// `name: before -> after`, joined by commas.
    Changed(String),
    None,
}

impl StoredSettings {
    pub(crate) fn of_group(spi: &Spi, name: &str) -> Self {
        Self::of(&spi.query(GroupSettings { name: arg(name) }))
    }

    pub(crate) fn of_rate(spi: &Spi, name: &str) -> Self {
        Self::of(&spi.query(RateSettings { name: arg(name) }))
    }

    pub(crate) fn of_task(spi: &Spi, name: &str) -> Self {
        Self::of(&spi.query(TaskSettings { name: arg(name) }))
    }

    pub(crate) fn of_job(spi: &Spi, job_id: i64) -> Self {
        let settings = JobSettings {
            job_id: arg(job_id),
        };
        Self::of(&spi.query_latest(settings))
    }

    fn of(members: &Rows<Member>) -> Self {
        let members = members.iter();
        Self(members.map(|member| (member.key, member.value)).collect())
    }

    pub(crate) fn difference(&self, after: &Self) -> Difference {
        if self.0.is_empty() {
            return Difference::Created;
        }
        let changes: Vec<String> = after
            .0
            .iter()
            .filter(|&(key, value)| self.0.get(key) != Some(value))
            .map(|(key, value)| {
                let before = self.0.get(key).map_or("null", String::as_str);
                format!("{key}: {before} -> {value}")
            })
            .collect();
        if changes.is_empty() {
            return Difference::None;
        }
        Difference::Changed(changes.join(", "))
    }
}
