//! Settings: every `trax.*` parameter, each with its definition and a getter that returns a proper
//! type.
//!
//! All but `trax.databases` and `trax.home` may be set in the configuration file, by `alter system`
//! and by a superuser's `alter database ... set`. The scheduler of a database applies a change
//! within ten seconds.

use pgrx::guc::{GucContext, GucFlags, GucRegistry, GucSetting, PostgresGucEnum};
use pgrx::pg_sys;
use std::ffi::{CStr, CString};
use std::time::Duration;

/// The highest priority; the lowest is 0.
pub(crate) const HIGHEST_PRIORITY: i32 = 31;

const DAY_S: i32 = 24 * 60 * 60;
const DAY_MS: i32 = DAY_S * 1_000;
const YEAR_S: i32 = 365 * DAY_S;

/// A number: its parameter, default, range, unit, and the getter that converts it.
macro_rules! int_setting {
    (
        $getter:ident -> $type:ty: $convert:expr;
        $name:literal = $default:expr, $min:expr => $max:expr, $unit:expr;
        $short:literal, $long:literal
    ) => {
        mod $getter {
            use super::*;
            pub(super) static SETTING: GucSetting<i32> = GucSetting::<i32>::new($default);
            pub(super) fn define() {
                GucRegistry::define_int_guc(
                    $name,
                    $short,
                    $long,
                    &SETTING,
                    $min,
                    $max,
                    GucContext::Suset,
                    $unit,
                );
            }
        }

        #[doc = concat!("The value of ", stringify!($name), ".")]
        pub fn $getter() -> $type {
            $convert($getter::SETTING.get())
        }
    };
}

static ENABLED: GucSetting<bool> = GucSetting::<bool>::new(true);
static DATABASES: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static HOME: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));
static RETRY_BACKOFF: GucSetting<f64> = GucSetting::<f64>::new(2.0);

/// Returns whether schedulers are enabled, for this database.
pub fn enabled() -> bool {
    ENABLED.get()
}

fn define_enabled() {
    GucRegistry::define_bool_guc(
        c"trax.enabled",
        c"Whether trax schedulers work.",
        c"Off in the configuration file: the launcher stops all schedulers. Off for one database: its scheduler stays connected and does nothing. A trax.tick() by hand still works.",
        &ENABLED,
        GucContext::Suset,
        GucFlags::default(),
    );
}

/// The effect of an unresolved dead letter on its schedule.
#[derive(Clone, Copy, Debug, Eq, PartialEq, PostgresGucEnum)]
pub enum OnDeadLetter {
    #[name = c"stop"]
    Stop,
    #[name = c"continue"]
    Continue,
}

static ON_DEAD_LETTER: GucSetting<OnDeadLetter> =
    GucSetting::<OnDeadLetter>::new(OnDeadLetter::Stop);

/// Defines the setting that the statement which stores a manifest reads.
fn define_on_dead_letter() {
    GucRegistry::define_enum_guc(
        c"trax.on_dead_letter",
        c"What a job that failed for good means for its schedule, where the schedule does not say.",
        c"stop: the schedule stands still until a person resolves the dead letter. continue: the next run comes at its time, as with cron. The value counts when a schedule is made, or applied again from a document without on_dead_letter; later changes of the setting do not concern it.",
        &ON_DEAD_LETTER,
        GucContext::Suset,
        GucFlags::default(),
    );
}

static VACUUM: GucSetting<bool> = GucSetting::<bool>::new(true);

/// Returns whether the scheduler vacuums the queue and the leases.
pub fn vacuum() -> bool {
    VACUUM.get()
}

fn define_vacuum() {
    GucRegistry::define_bool_guc(
        c"trax.vacuum",
        c"Whether the scheduler has the work queue and the leases vacuumed when much of them is dead.",
        c"On: a background worker, for as long as a vacuum takes. Off: only autovacuum runs, once a minute at most, and at tens of thousands of jobs a second both tables grow by a gigabyte in that time.",
        &VACUUM,
        GucContext::Suset,
        GucFlags::default(),
    );
}

/// The databases that may have a scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Databases {
    /// Every database that has the extension.
    All,
    /// Only these names.
    Named(Vec<String>),
}

impl Databases {
    fn parse(text: &str) -> Self {
        let names: Vec<String> = text
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(Into::into)
            .collect();
        if names.is_empty() {
            Self::All
        } else {
            Self::Named(names)
        }
    }

    /// Returns whether the database `name` may have a scheduler.
    pub fn contain(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.iter().any(|one| one == name),
        }
    }
}

/// Returns which databases may have a scheduler.
pub fn databases() -> Databases {
    DATABASES.get().map_or(Databases::All, |text| {
        Databases::parse(text.to_string_lossy().as_ref())
    })
}

fn define_databases() {
    GucRegistry::define_string_guc(
        c"trax.databases",
        c"The databases in which the launcher runs a trax scheduler.",
        c"Names separated by commas, exactly as in pg_database. Empty: every database that has the extension.",
        &DATABASES,
        GucContext::Sighup,
        GucFlags::default(),
    );
}

/// Returns the name of this server's location, if it has one.
pub(crate) fn home() -> Option<String> {
    let name = HOME.get()?;
    (!name.is_empty()).then(|| name.to_string_lossy().into_owned())
}

fn define_home() {
    GucRegistry::define_string_guc(
        c"trax.home",
        c"The name of this server's location, by which a copy of its files is recognized.",
        c"A database remembers the name under which it was made or adopted; on a server with another name or none its jobs do not run until trax.adopt(). Set it outside the data directory, which a copy brings along: in a file that is included from elsewhere, or on the server's command line; the same on a standby that may take over. Empty: a copy of the files runs as the original does.",
        &HOME,
        GucContext::Sighup,
        GucFlags::DISALLOW_IN_AUTO_FILE,
    );
}

int_setting! {
    tick_interval -> Duration: millis;
    c"trax.tick_interval" = 1_000, 10 => DAY_MS / 24, GucFlags::UNIT_MS;
    c"The longest time between two cycles of a scheduler.",
    c"A scheduler also wakes at the earliest due time. A cycle is trax.tick(). 10ms costs a hundred transactions a second in an idle database; at 1h work that no wake-up announced waits up to an hour."
}

int_setting! {
    max_entries_per_cycle -> Option<usize>: unless_zero;
    c"trax.max_entries_per_cycle" = 200, 0 => i32::MAX, GucFlags::default();
    c"How many due manifests one cycle queues.",
    c"When more are due, the next cycle follows at once. 1 makes a transaction of each; 0 is unlimited: one long transaction when much is due."
}

int_setting! {
    max_active_jobs -> Option<usize>: unless_zero;
    c"trax.max_active_jobs" = 0, 0 => 1_000_000, GucFlags::default();
    c"How many jobs of a database may execute at once.",
    c"Running jobs are counted by their leases in trax.claim_next. 0 is unlimited; 1 runs one job at a time in the whole database. A smaller value never ends a run that has begun."
}

/// Returns whether this session or its role has set the database's limit itself, rather than the
/// configuration file or `alter database`, which does not reach connected sessions.
pub(crate) fn chose_max_active_jobs() -> bool {
    // SAFETY: settings are defined when the library is loaded, and their records stay where they
    // are.
    unsafe { source_of(c"trax.max_active_jobs") > pg_sys::GucSource::PGC_S_DATABASE }
}

#[cfg(feature = "pg15")]
unsafe fn source_of(name: &CStr) -> pg_sys::GucSource::Type {
    // SAFETY: an array of `count` pointers to records that are never freed, each with a name.
    unsafe {
        let count = pg_sys::GetNumConfigOptions() as usize;
        let records = std::slice::from_raw_parts(pg_sys::get_guc_variables(), count);
        records
            .iter()
            .find(|&&record| CStr::from_ptr((*record).name) == name)
            .map_or(pg_sys::GucSource::PGC_S_DEFAULT, |&record| (*record).source)
    }
}

#[cfg(not(feature = "pg15"))]
unsafe fn source_of(name: &CStr) -> pg_sys::GucSource::Type {
    // SAFETY: null, or a record that is never freed.
    unsafe {
        // The constant of this name in pg_sys exists on 15 only.
        let error = pgrx::PgLogLevel::ERROR as i32;
        let record = pg_sys::find_option(name.as_ptr(), false, true, error);
        record
            .as_ref()
            .map_or(pg_sys::GucSource::PGC_S_DEFAULT, |record| record.source)
    }
}

int_setting! {
    default_lease -> Duration: millis;
    c"trax.default_lease" = 30_000, 100 => DAY_MS, GucFlags::UNIT_MS;
    c"How long a claim holds a job when the claim does not specify it.",
    c"A dead worker's jobs run again after this time and one cycle. The argument lease of trax.claim_next and trax.heartbeat sets another. At 100ms a worker that pauses briefly loses its jobs; at 1d a crash delays them by a day."
}

int_setting! {
    default_timeout -> Duration: millis;
    c"trax.default_timeout" = 20 * 60 * 1_000, 1 => i32::MAX, GucFlags::UNIT_MS;
    c"How long one attempt may execute when its job does not specify it.",
    c"After this time its cancellation is requested. The argument timeout of trax.enqueue and trax.schedule sets another. 1ms cancels nearly everything; the largest value lets an attempt run for 24 days."
}

int_setting! {
    cancel_grace -> Duration: millis;
    c"trax.cancel_grace" = 30_000, 0 => DAY_MS, GucFlags::UNIT_MS;
    c"How long an attempt may continue after its timeout.",
    c"After this time its lease is revoked, and trax.heartbeat reports this to the worker. 0 takes the lease away as soon as the timeout is noticed; 1d lets a worker that ignores the request keep its job for a day."
}

int_setting! {
    default_max_retries -> i32: same;
    c"trax.default_max_retries" = 3, 0 => 1_000, GucFlags::default();
    c"How often a failed job is retried when it does not specify it.",
    c"The argument max_retries of trax.enqueue and trax.schedule sets another. 0: the first failure is final. 1000: a job that always fails stays for weeks before it becomes a dead letter."
}

int_setting! {
    retry_delay -> Duration: millis;
    c"trax.retry_delay" = 5 * 60 * 1_000, 0 => i32::MAX, GucFlags::UNIT_MS;
    c"The delay before the first retry.",
    c"The argument retry_delay of trax.enqueue and trax.schedule, and retry_in of trax.fail, set another. 0 retries at once. Never more than trax.retry_delay_max."
}

/// Returns the factor by which each retry waits longer than the one before.
pub fn retry_backoff() -> f64 {
    RETRY_BACKOFF.get()
}

fn define_retry_backoff() {
    GucRegistry::define_float_guc(
        c"trax.retry_backoff",
        c"The factor by which each retry waits longer than the one before.",
        c"1 waits the same time every time; 100 reaches trax.retry_delay_max with the second retry.",
        &RETRY_BACKOFF,
        1.0,
        100.0,
        GucContext::Suset,
        GucFlags::default(),
    );
}

int_setting! {
    retry_delay_max -> Duration: millis;
    c"trax.retry_delay_max" = 60 * 60 * 1_000, 0 => i32::MAX, GucFlags::UNIT_MS;
    c"The longest delay before a retry.",
    c"0 retries at once, whatever trax.retry_delay says; the largest value lets a delay grow to 24 days."
}

int_setting! {
    dependent_priority_boost -> i32: same;
    c"trax.dependent_priority_boost" = 16, 0 => HIGHEST_PRIORITY, GucFlags::default();
    c"The number added to the priority of a job that follows its parent.",
    c"Parents are the depends_on of trax.schedule. 0 treats it like any other; 31 puts it before all others of its group. The sum is at most 31."
}

int_setting! {
    priority_aging -> Option<Duration>: seconds_unless_zero;
    c"trax.priority_aging" = 0, 0 => YEAR_S, GucFlags::UNIT_S;
    c"The waiting time that is worth one step of priority.",
    c"trax.claim_next takes jobs in the order of priority. 0 is off: low priorities wait as long as higher ones come. 1s makes age count more than priority within half a minute."
}

int_setting! {
    max_sql_workers -> usize: count;
    c"trax.max_sql_workers" = 2, 0 => 64, GucFlags::default();
    c"How many background workers may run the SQL jobs of a database at once.",
    c"0 runs none: they wait. Each takes one of the server's max_worker_processes while it lives; 64 is what one server can have for all its databases."
}

int_setting! {
    sql_worker_idle_timeout -> Duration: millis;
    c"trax.sql_worker_idle_timeout" = 60_000, 100 => DAY_MS, GucFlags::UNIT_MS;
    c"How long a background worker for SQL jobs waits for the next one before it ends.",
    c"At 100ms a statement that comes alone waits for the start of a process; at 1d up to trax.max_sql_workers of the server's max_worker_processes stay taken."
}

int_setting! {
    run_retention -> Duration: seconds;
    c"trax.run_retention" = 7 * DAY_S, 0 => i32::MAX, GucFlags::UNIT_S;
    c"How long finished runs are kept.",
    c"Whole days are dropped. 0 drops a day as soon as it is over; the largest value keeps runs for 68 years."
}

int_setting! {
    dead_letter_retention -> Duration: seconds;
    c"trax.dead_letter_retention" = 30 * DAY_S, 0 => i32::MAX, GucFlags::UNIT_S;
    c"How long resolved dead letters are kept.",
    c"Unresolved ones stay: trax.requeue_dead_letter and trax.acknowledge_dead_letter resolve them. 0 removes a dead letter with the first cleanup after it was resolved; the largest value keeps it for 68 years."
}

int_setting! {
    audit_retention -> Duration: seconds;
    c"trax.audit_retention" = 90 * DAY_S, 0 => i32::MAX, GucFlags::UNIT_S;
    c"How long acts of operators are kept in trax.audit.",
    c"0 removes them with the next cleanup, within a minute; the largest value keeps them for 68 years."
}

int_setting! {
    max_input_bytes -> usize: count;
    c"trax.max_input_bytes" = 1024 * 1024, 1024 => 255 * 1024 * 1024, GucFlags::UNIT_BYTE;
    c"The largest input of a job, and the largest output or detail of an attempt, as the database holds it.",
    c"A larger one is refused by trax.enqueue, trax.enqueue_many, trax.complete and trax.fail. 1kB suits jobs that name their data; 255MB is what jsonb can hold, and every claim moves it."
}

static PROGRAM: GucSetting<Option<CString>> = GucSetting::<Option<CString>>::new(Some(c""));

fn define_program() {
    GucRegistry::define_string_guc(
        c"trax.program",
        c"The person or program that acts, as trax.audit shows it in the column program.",
        c"Set by a program that acts for several people over one connection, for the session or a transaction, by anybody; the first 1000 characters count. Empty: application_name.",
        &PROGRAM,
        GucContext::Userset,
        GucFlags::default(),
    );
}

/// Defines all settings and reserves the prefix, so that unknown `trax.` names are refused.
pub fn define() {
    define_enabled();
    define_vacuum();
    define_databases();
    define_home();
    tick_interval::define();
    max_entries_per_cycle::define();
    max_active_jobs::define();
    default_lease::define();
    default_timeout::define();
    cancel_grace::define();
    default_max_retries::define();
    retry_delay::define();
    define_retry_backoff();
    define_on_dead_letter();
    retry_delay_max::define();
    dependent_priority_boost::define();
    priority_aging::define();
    max_sql_workers::define();
    sql_worker_idle_timeout::define();
    run_retention::define();
    dead_letter_retention::define();
    audit_retention::define();
    define_program();
    max_input_bytes::define();
    // SAFETY: the argument is a string that ends with a nul byte; called from _PG_init.
    unsafe { pg_sys::MarkGUCPrefixReserved(c"trax".as_ptr()) };
}

fn count(value: i32) -> usize {
    usize::try_from(value).expect("the range of a counting setting begins at 0 or above")
}

fn unless_zero(value: i32) -> Option<usize> {
    (value != 0).then(|| count(value))
}

fn millis(value: i32) -> Duration {
    Duration::from_millis(count(value) as u64)
}

fn seconds(value: i32) -> Duration {
    Duration::from_secs(count(value) as u64)
}

fn seconds_unless_zero(value: i32) -> Option<Duration> {
    (value != 0).then(|| seconds(value))
}

fn same(value: i32) -> i32 {
    value
}

#[cfg(test)]
mod tests {
    use super::Databases;

    #[test]
    fn an_empty_list_means_all_databases() {
        assert_eq!(Databases::parse(" , "), Databases::All);
        assert!(Databases::parse("").contain("anything"));
    }

    #[test]
    fn a_list_means_its_exact_names() {
        let two = Databases::parse(" app, Billing ");
        assert!(two.contain("app") && two.contain("Billing"));
        assert!(!two.contain("billing") && !two.contain("postgres"));
    }
}
