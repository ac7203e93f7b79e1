//! Changes of a manifest, in a call of `trax.schedule` or in a document.

use super::definition::{Definition, Locked, Written, lock};
use super::work::Work;
use crate::columns::HIGHEST_PRIORITY;
use crate::error::{Error, Result};
use crate::manifest_state::dependency;
use crate::server::call::Call;
use crate::server::choice::one_of;
use crate::server::clock::Timestamp;
use crate::server::json;
use crate::server::rights::Caller;
use crate::server::spi::{Spi, arg, row, statement};
use crate::stored_settings::Difference;
use crate::timing::Timing;
use crate::timing::zone::ServerZone;
use crate::{sql_job, work_queue};
use pgrx::datum::{FromDatum, Interval};
use pgrx::pg_sys;

statement!(
    ManifestSave, "manifest/save.sql",
    {
        name: TEXTOID,
        task: TEXTOID,
        input: JSONBOID,
        group: TEXTOID,
        cron: TEXTOID,
        every: INTERVALOID,
        run_at: TIMESTAMPTZOID,
        timezone: TEXTOID,
        priority: INT4OID,
        max_retries: INT4OID,
        retry_delay: INTERVALOID,
        timeout: INTERVALOID,
        starts_at: TIMESTAMPTZOID,
        ends_at: TIMESTAMPTZOID,
        replace: BOOLOID,
        replace_schedule: BOOLOID,
        enabled: BOOLOID,
        now: TIMESTAMPTZOID,
        depends_mode: TEXTOID,
        dormant: BOOLOID,
        misfire: TEXTOID,
        misfire_threshold: INTERVALOID,
        misfire_limit: INT4OID,
        overlap: TEXTOID,
        max_concurrency: INT4OID,
        variance: INTERVALOID,
        exclusions: JSONBOID,
        applied: BOOLOID,
        on_dead_letter: TEXTOID,
        source: TEXTOID,
        run_as: TEXTOID,
        row: JSONBOID,
        had: TEXTARRAYOID,
        parents: TEXTARRAYOID,
    } -> (Written, Saved)
);
row! {
    struct Saved {
        /// The settings that differ from those before, as `name: before -> after`.
        changes: Option<String>,
    }
}

/// The effects of an unresolved dead letter on a schedule.
pub(super) const ON_DEAD_LETTER: [&str; 2] = ["stop", "continue"];

/// `None` keeps the stored value; with `replace` it sets the default, except for `enabled`.
pub(crate) struct Change {
    pub(crate) name: String,
    pub(super) work: Work,
    pub(crate) group: Option<String>,
    pub(crate) cron: Option<String>,
    pub(crate) every: Option<pg_sys::Datum>,
    pub(crate) run_at: Option<Timestamp>,
    pub(crate) depends_on: Option<Vec<String>>,
    pub(crate) depends_mode: Option<String>,
    pub(crate) dormant: Option<bool>,
    pub(crate) timezone: Option<String>,
    pub(crate) priority: Option<i32>,
    pub(crate) max_retries: Option<i32>,
    pub(crate) retry_delay: Option<pg_sys::Datum>,
    pub(crate) timeout: Option<pg_sys::Datum>,
    pub(crate) misfire: Option<String>,
    pub(crate) misfire_threshold: Option<pg_sys::Datum>,
    pub(crate) misfire_limit: Option<i32>,
    pub(crate) overlap: Option<String>,
    pub(crate) max_concurrency: Option<i32>,
    pub(crate) variance: Option<pg_sys::Datum>,
    pub(crate) exclusions: Option<pg_sys::Datum>,
    pub(crate) starts_at: Option<Timestamp>,
    pub(crate) ends_at: Option<Timestamp>,
    pub(crate) enabled: Option<bool>,
    pub(crate) on_dead_letter: Option<String>,
    pub(crate) replace: bool,
    /// The change comes from `trax.apply`, which may prune manifests that it created.
    pub(crate) applied: bool,
    /// The source of its document.
    pub(crate) source: Option<String>,
    pub(crate) now: Timestamp,
}

impl Change {
    /// Returns the arguments of `trax.schedule`, in their order.
    pub(crate) fn from_call(call: &Call, caller: Caller) -> Result<Self> {
        let name = call.new_name(0, "name")?;
        let work = Work::of(
            call.optional_new_name(1, "task")?,
            call.datum(2),
            sql_job::command(call, 26, "sql")?,
            call.optional_name(27, "run_as")?,
            caller,
        )?;
        let change = Self {
            name,
            work,
            cron: call.optional_text(3, "cron")?,
            every: call.optional_positive(4, "every")?.and(call.datum(4)),
            run_at: call.optional(5),
            depends_on: call.optional_names(6, "depends_on")?,
            depends_mode: one_of(
                call.optional_text(7, "depends_mode")?,
                "depends_mode",
                &["all", "any"],
            )?,
            dormant: call.optional(8),
            timezone: call.optional_text(9, "timezone")?,
            group: call.optional_new_name(10, "group_name")?,
            priority: call.optional_within(11, "priority", 0, HIGHEST_PRIORITY)?,
            max_retries: call.optional_within(12, "max_retries", 0, i32::MAX - 1)?,
            retry_delay: call
                .optional_not_negative(13, "retry_delay")?
                .and(call.datum(13)),
            timeout: call.optional_positive(14, "timeout")?.and(call.datum(14)),
            misfire: one_of(
                call.optional_text(15, "misfire")?,
                "misfire",
                &["fire_once", "fire_all", "skip"],
            )?,
            misfire_threshold: call
                .optional_not_negative(16, "misfire_threshold")?
                .and(call.datum(16)),
            misfire_limit: call.optional_within(17, "misfire_limit", 1, i32::MAX)?,
            overlap: one_of(
                call.optional_text(18, "overlap")?,
                "overlap",
                &["queue", "skip", "allow"],
            )?,
            max_concurrency: call.optional_within(19, "max_concurrency", 1, i32::MAX)?,
            variance: call
                .optional_not_negative(20, "variance")?
                .and(call.datum(20)),
            exclusions: call.datum(21),
            starts_at: call.optional(22),
            ends_at: call.optional(23),
            enabled: call.optional(24),
            on_dead_letter: one_of(
                call.optional_text(25, "on_dead_letter")?,
                "on_dead_letter",
                &ON_DEAD_LETTER,
            )?,
            replace: false,
            applied: false,
            source: None,
            now: Timestamp::now(),
        };
        change.check()?;
        Ok(change)
    }

    /// Checks the change by itself.
    pub(crate) fn check(&self) -> Result<()> {
        self.work
            .input
            .map_or(Ok(()), |input| work_queue::check_size("input", input))?;
        self.check_kind()?;
        if self.replace {
            self.refuse_without_task()?;
        }
        let times = [
            ("run_at", self.run_at),
            ("starts_at", self.starts_at),
            ("ends_at", self.ends_at),
        ];
        for (name, time) in times {
            let Some(time) = time else { continue };
            let example = format!("{name} => now() + interval '1 day'");
            time.bounded(&format!("argument \"{name}\""), &example)?;
            // The zero of a program's type for times.
            if time < Timestamp::UNIX_EPOCH {
                return Err(Error::invalid(format!(
                    "argument \"{name}\" must be a time after 1970"
                ))
                .detail(format!("{name} is earlier."))
                .hint(format!("Specify a time, for example: {example}")));
            }
        }
        refuse_end_before_start(self.starts_at, self.ends_at)?;
        if let Some(name) = &self.timezone {
            ServerZone::spelled(name)?;
        }
        // Parses the schedule by itself; the complete stored one is parsed again after it was
        // saved.
        self.own_timing()?.plan().map(|_| ())
    }

    fn check_kind(&self) -> Result<()> {
        let given = [
            self.cron.is_some(),
            self.every.is_some(),
            self.run_at.is_some(),
            self.depends_on
                .as_ref()
                .is_some_and(|parents| !parents.is_empty()),
        ];
        if given.into_iter().filter(|&given| given).count() > 1 {
            return Err(Error::invalid("a manifest has one kind of schedule")
                .detail("More than one of cron, every, run_at and depends_on is specified.")
                .hint("Specify one of cron => '0 2 * * *', every => interval '5 min', run_at => '...' or depends_on => array['...']"));
        }
        Ok(())
    }

    /// Returns the timing that this change alone describes, as if nothing were stored.
    fn own_timing(&self) -> Result<Timing> {
        let exclusions = self
            .exclusions
            .map(|datum| json::value(datum, "the exclusions"))
            .transpose()?;
        Ok(Timing {
            cron: self.cron.clone(),
            every: self.every.and_then(read::<Interval>),
            run_at: self.run_at,
            depends: false,
            timezone: self.timezone.clone().unwrap_or_else(|| "UTC".to_string()),
            starts_at: self.starts_at,
            ends_at: self.ends_at,
            variance: self.variance.and_then(read::<Interval>),
            exclusions,
        })
    }

    /// Returns whether it contains a schedule.
    fn gives_schedule(&self) -> bool {
        self.replace
            || self.cron.is_some()
            || self.every.is_some()
            || self.run_at.is_some()
            || self.depends_on.is_some()
    }

    /// Locks the stored manifest, if there is one, and the edges, if they may change.
    pub(super) fn lock_stored(&self, spi: &Spi) -> Option<Locked> {
        let changes_edges = self.gives_schedule() && dependency::has_parents(spi, &self.name);
        if self.names_parents() || changes_edges {
            dependency::lock_edges();
        }
        lock(spi, &self.name)
    }

    /// Takes over from the stored manifest what the change keeps, and checks the result.
    pub(super) fn complete(&mut self, before: Option<&Locked>) -> Result<()> {
        let Some(before) = before else {
            self.refuse_without_task()?;
            return self.refuse_edges_without_parents(self.names_parents());
        };
        self.work.complete(before)?;
        self.check_against(&before.definition)
    }

    /// Checks the change against the stored definition.
    fn check_against(&self, before: &Definition) -> Result<()> {
        if !self.replace {
            refuse_end_before_start(
                self.starts_at.or(before.timing.starts_at),
                self.ends_at.or(before.timing.ends_at),
            )?;
        }
        let depends = match (&self.depends_on, self.gives_schedule()) {
            (Some(parents), _) => !parents.is_empty(),
            (None, true) => false,
            (None, false) => before.timing.depends,
        };
        self.refuse_edges_without_parents(depends)
    }

    fn refuse_edges_without_parents(&self, depends: bool) -> Result<()> {
        if depends || (self.depends_mode.is_none() && self.dormant != Some(true)) {
            return Ok(());
        }
        Err(Error::invalid("depends_mode and dormant need parents")
            .detail("The manifest depends on no other.")
            .hint("Name its parents: depends_on => array['...']"))
    }

    /// Returns whether it names any parent.
    pub(crate) fn names_parents(&self) -> bool {
        self.depends_on
            .as_ref()
            .is_some_and(|parents| !parents.is_empty())
    }

    /// Returns the parents to be stored; `None` leaves them as they are.
    pub(crate) fn parents(&self) -> Option<&[String]> {
        match &self.depends_on {
            Some(parents) => Some(parents),
            None if self.gives_schedule() => Some(&[]),
            None => None,
        }
    }

    /// Returns whether the manifest is enabled afterwards; `None` leaves that as it is. A new
    /// schedule enables a manifest again that trax disabled after its only run.
    fn enabled_after(&self, before: Option<&Definition>) -> Option<bool> {
        match before {
            Some(before) if self.enabled.is_none() && before.has_had_its_run() => {
                let same = self.run_at.is_some() && self.run_at == before.timing.run_at;
                (self.gives_schedule() && !same).then_some(true)
            }
            _ => self.enabled,
        }
    }

    /// Returns the mode to be stored; it is kept while the manifest depends on any other.
    fn stored_depends_mode<'a>(&'a self, before: Option<&'a Definition>) -> Option<&'a str> {
        let kept = before
            .filter(|_| !self.replace)
            .and_then(|before| before.depends_mode.as_deref());
        let given = self.depends_mode.as_deref();
        if self.names_parents() {
            given.or(kept).or(Some("all"))
        } else if self.gives_schedule() {
            None
        } else {
            given.or(kept)
        }
    }

    /// Returns whether it is dormant; kept like the mode.
    fn stored_dormant(&self, before: Option<&Definition>) -> Option<bool> {
        let kept = before
            .filter(|_| self.names_parents() && !self.replace)
            .map(|before| before.dormant);
        self.dormant.or(kept)
    }

    /// Returns the policy that a concurrency above 1 implies, which allows overlap, unless another
    /// policy was chosen.
    fn implied_overlap(&self, before: Option<&Definition>) -> Option<&'static str> {
        let chosen = match before {
            Some(before) if !self.replace => chose_overlap(before),
            _ => false,
        };
        (!chosen && self.max_concurrency.is_some_and(|max| max > 1)).then_some("allow")
    }

    /// Writes the definition and its edges. Returns the stored manifest, and its difference from
    /// the one before.
    pub(super) fn save(
        &self,
        spi: &Spi,
        before: Option<&Locked>,
    ) -> Result<(Definition, Difference)> {
        let row = before.and_then(|before| before.row);
        let before = before.map(|before| &before.definition);
        let had: &[String] = before.map_or(&[], |before| &before.parents);
        // As the stored ones: each once, in order.
        let mut parents = self.parents().unwrap_or(had).to_vec();
        parents.sort_unstable();
        parents.dedup();
        let (written, saved) = spi.query(self.statement(before, row, had, &parents)).one();
        let after = Definition::written(&self.name, written, before, parents);
        let replaced = self.parents();
        if let Some(new) = replaced.filter(|new| !new.is_empty() || !had.is_empty()) {
            dependency::replace(spi, after.id, &self.name, new)?;
        }
        let difference = match (before, saved.changes) {
            (None, _) => Difference::Created,
            (Some(_), Some(changes)) => Difference::Changed(changes),
            (Some(_), None) => Difference::None,
        };
        Ok((after, difference))
    }

    fn statement(
        &self,
        before: Option<&Definition>,
        row: Option<pg_sys::Datum>,
        had: &[String],
        parents: &[String],
    ) -> ManifestSave {
        let enabled = self.enabled_after(before);
        let overlap = self.overlap.as_deref().or(self.implied_overlap(before));
        let text = |value: &Option<String>| value.as_deref().and_then(arg);
        ManifestSave {
            name: arg(self.name.as_str()),
            task: text(&self.work.task),
            input: self.work.input,
            group: text(&self.group),
            cron: text(&self.cron),
            every: self.every,
            run_at: self.run_at.and_then(arg),
            timezone: text(&self.timezone),
            priority: self.priority.and_then(arg),
            max_retries: self.max_retries.and_then(arg),
            retry_delay: self.retry_delay,
            timeout: self.timeout,
            starts_at: self.starts_at.and_then(arg),
            ends_at: self.ends_at.and_then(arg),
            replace: arg(self.replace),
            replace_schedule: arg(self.gives_schedule()),
            enabled: enabled.and_then(arg),
            now: arg(self.now),
            depends_mode: self.stored_depends_mode(before).and_then(arg),
            dormant: self.stored_dormant(before).and_then(arg),
            misfire: text(&self.misfire),
            misfire_threshold: self.misfire_threshold,
            misfire_limit: self.misfire_limit.and_then(arg),
            overlap: overlap.and_then(arg),
            max_concurrency: self.max_concurrency.and_then(arg),
            variance: self.variance,
            exclusions: self.exclusions,
            applied: arg(self.applied),
            on_dead_letter: text(&self.on_dead_letter),
            source: self.source.as_deref().and_then(arg),
            run_as: text(&self.work.run_as),
            row,
            had: arg(had.to_vec()),
            parents: arg(parents.to_vec()),
        }
    }

    fn refuse_without_task(&self) -> Result<()> {
        match self.work.task {
            Some(_) => Ok(()),
            None => Err(Error::null_argument("task")
                .detail("A manifest has a task for workers, or a statement.")
                .hint("Specify task => 'report', or sql => 'vacuum analyze orders'.")),
        }
    }
}

fn refuse_end_before_start(start: Option<Timestamp>, end: Option<Timestamp>) -> Result<()> {
    match (start, end) {
        (Some(start), Some(end)) if end <= start => Err(Error::invalid(
            "argument \"ends_at\" must be later than \"starts_at\"",
        )
        .detail("The schedule would end before it begins.")
        .hint("Specify a later ends_at or an earlier starts_at.")),
        _ => Ok(()),
    }
}

/// Returns whether the overlap policy of a manifest is not the default.
fn chose_overlap(stored: &Definition) -> bool {
    let default = if stored.max_concurrency > 1 {
        "allow"
    } else {
        "queue"
    };
    stored.overlap != default
}

fn read<T: FromDatum>(datum: pg_sys::Datum) -> Option<T> {
    // SAFETY: the declarations in sql/api declare these arguments with the SQL type that T reads.
    unsafe { T::from_polymorphic_datum(datum, false, pg_sys::InvalidOid) }
}
