//! A manifest of the document.

use super::nameless;
use crate::columns::HIGHEST_PRIORITY;
use crate::document::Object;
use crate::error::Result;
use crate::manifest::change::{Change, ON_DEAD_LETTER};
use crate::manifest::work::Work;
use crate::server::choice::one_of;
use crate::server::clock::Timestamp;
use crate::server::rights::Caller;
use crate::server::spi::Spi;
use serde_json::Value;

/// A manifest of the document.
pub(super) struct Entry<'a> {
    pub(super) name: String,
    pub(super) depends_on: Option<Vec<String>>,
    object: Object<'a>,
    source: Option<&'a str>,
    caller: Caller,
}

impl<'a> Entry<'a> {
    pub(super) fn read(value: &'a Value, source: Option<&'a str>, caller: Caller) -> Result<Self> {
        const KEYS: [&str; 28] = [
            "name",
            "task",
            "input",
            "cron",
            "every",
            "run_at",
            "depends_on",
            "depends_mode",
            "dormant",
            "timezone",
            "group_name",
            "priority",
            "max_retries",
            "retry_delay",
            "timeout",
            "misfire",
            "misfire_threshold",
            "misfire_limit",
            "overlap",
            "max_concurrency",
            "variance",
            "exclusions",
            "starts_at",
            "ends_at",
            "enabled",
            "on_dead_letter",
            "sql",
            "run_as",
        ];
        let object = Object::new(value, "a manifest", &KEYS)?;
        let name = object
            .new_name("name")?
            .ok_or_else(|| nameless("a manifest"))?;
        Ok(Self {
            name,
            depends_on: object.names("depends_on")?,
            object,
            source,
            caller,
        })
    }

    pub(super) fn change(&self, spi: &Spi, now: Timestamp) -> Result<Change> {
        let object = &self.object;
        let work = Work::of(
            object.new_name("task")?,
            object.json("input"),
            object.text("sql")?,
            object.name("run_as")?,
            self.caller,
        )?;
        let timezone = object.text("timezone")?;
        let zone = timezone.as_deref().unwrap_or("UTC");
        let change = Change {
            name: self.name.clone(),
            work,
            group: object.new_name("group_name")?,
            cron: object.text("cron")?,
            every: object.interval(spi, "every", 1)?,
            run_at: object.time(spi, "run_at", zone)?,
            depends_on: self.depends_on.clone(),
            depends_mode: one_of(
                object.text("depends_mode")?,
                "depends_mode",
                &["all", "any"],
            )?,
            dormant: object.boolean("dormant")?,
            priority: object.within("priority", 0, HIGHEST_PRIORITY)?,
            max_retries: object.within("max_retries", 0, i32::MAX - 1)?,
            retry_delay: object.interval(spi, "retry_delay", 0)?,
            timeout: object.interval(spi, "timeout", 1)?,
            misfire: one_of(
                object.text("misfire")?,
                "misfire",
                &["fire_once", "fire_all", "skip"],
            )?,
            misfire_threshold: object.interval(spi, "misfire_threshold", 0)?,
            misfire_limit: object.within("misfire_limit", 1, i32::MAX)?,
            overlap: one_of(
                object.text("overlap")?,
                "overlap",
                &["queue", "skip", "allow"],
            )?,
            max_concurrency: object.within("max_concurrency", 1, i32::MAX)?,
            variance: object.interval(spi, "variance", 0)?,
            exclusions: object.json("exclusions"),
            starts_at: object.time(spi, "starts_at", zone)?,
            ends_at: object.time(spi, "ends_at", zone)?,
            enabled: object.boolean("enabled")?,
            on_dead_letter: one_of(
                object.text("on_dead_letter")?,
                "on_dead_letter",
                &ON_DEAD_LETTER,
            )?,
            timezone: timezone.clone(),
            replace: true,
            applied: true,
            source: self.source.map(str::to_owned),
            now,
        };
        change.check()?;
        Ok(change)
    }
}
