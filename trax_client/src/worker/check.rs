//! Checks of a worker's configuration before it starts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::setup::Setup;
use crate::error::{Error, Result};
use crate::manifest::Manifest;

/// The most handlers that may run at once: far more than a process can have threads.
const CONCURRENCY_AT_MOST: usize = 1_000_000;

/// Checks the configuration of a worker before it starts.
pub(crate) fn check<'m, S: Send + Sync + 'static>(
    name: &str,
    setup: &Setup<S>,
    manifests: impl Iterator<Item = &'m Manifest> + Clone,
) -> Result<()> {
    let handlers = &setup.handlers;
    let mistake = handlers.mistake().or_else(|| idle(setup));
    let mistake = mistake.or_else(|| nul(name, setup));
    let mistake = mistake.or_else(|| handlers.too_many(setup.concurrency));
    let mistake = mistake.or_else(|| {
        let unhandled = manifests
            .clone()
            .find(|manifest| !manifest.is_sql() && !handlers.knows(manifest.task()))?;
        Some(format!(
            "the schedule \"{}\" runs task \"{}\", for which this worker has no handler; add one, or store the \
             schedule elsewhere",
            unhandled.name(),
            unhandled.task()
        ))
    });
    let mistake = mistake.or_else(|| {
        let name = twice(manifests)?;
        Some(format!(
            "the schedule \"{name}\" is given twice; remove one"
        ))
    });
    mistake.map_or(Ok(()), |mistake| Err(Error::Setup(mistake)))
}

/// Returns the name that two manifests have.
fn twice<'m>(manifests: impl Iterator<Item = &'m Manifest>) -> Option<&'m str> {
    let mut names = BTreeSet::new();
    let mut repeated = manifests
        .map(Manifest::name)
        .filter(|name| !names.insert(*name));
    repeated.next()
}

/// Returns the setting with which no job could run, and what to type.
fn idle<S>(setup: &Setup<S>) -> Option<String> {
    let ms = Duration::from_millis;
    let times = [
        ("lease", setup.lease, ms(30), "from_secs(30)"),
        (
            "poll_interval",
            setup.poll_interval,
            ms(1),
            "from_millis(200)",
        ),
        ("stall_limit", setup.stall_limit, ms(100), "from_secs(30)"),
    ];
    let short = times.iter().find(|(_, given, least, _)| given < least);
    if let Some((name, given, least, example)) = short {
        return Some(format!(
            "{name} is {given:?}, but must be at least {least:?}; type .{name}(Duration::{example})"
        ));
    }
    if setup.concurrency == 0 {
        return Some("concurrency is 0, so no handler could run; type .concurrency(10)".to_owned());
    }
    if setup.concurrency > CONCURRENCY_AT_MOST {
        return Some(format!(
            "concurrency is {}, but must be at most {CONCURRENCY_AT_MOST}; type .concurrency(10)",
            setup.concurrency
        ));
    }
    let lists = [("groups", &setup.groups), ("versions", &setup.versions)];
    let is_empty = |names: &Option<Vec<String>>| names.as_ref().is_some_and(Vec::is_empty);
    let (name, _) = lists.iter().find(|(_, names)| is_empty(names))?;
    Some(format!(
        "{name} is an empty list; name one at least, or leave it out to claim all"
    ))
}

/// Returns the mistake of a name that the server cannot read.
fn nul<S: Send + Sync + 'static>(name: &str, setup: &Setup<S>) -> Option<String> {
    let tasks = setup.handlers.tasks();
    let lists = [&tasks, &setup.groups, &setup.versions];
    let all = lists.into_iter().flatten().flatten();
    let mut all = all.map(String::as_str).chain([name]);
    let bad = all.find(|name| name.contains('\0'))?;
    Some(format!(
        "the name {bad:?} has the character NUL, which PostgreSQL cannot store; leave it out"
    ))
}

/// Returns every manifest that a worker stores at startup.
pub(crate) fn declared_by<'m>(
    schedules: &'m [Manifest],
    declared: &'m BTreeMap<String, Vec<Manifest>>,
) -> impl Iterator<Item = &'m Manifest> + Clone {
    let declared = declared.values().flatten();
    schedules.iter().chain(declared)
}

#[cfg(test)]
mod tests {
    use super::super::{Context, HandlerResult, Worker};
    use super::*;
    use crate::{Address, Json};

    async fn nothing(_: Json, _: Context) -> HandlerResult<()> {
        Ok(())
    }

    fn worker() -> Worker {
        let nowhere: Address = "postgres://ada@127.0.0.1:1/jobs"
            .parse()
            .expect("an address");
        Worker::new(nowhere).without_signals().handle("t", nothing)
    }

    #[tokio::test]
    async fn a_setting_with_which_no_job_could_run_is_refused_with_one_to_type() {
        let none: [&str; 0] = [];
        for (worker, words) in [
            (
                worker().lease(Duration::ZERO),
                ".lease(Duration::from_secs(30))",
            ),
            (
                worker().poll_interval(Duration::ZERO),
                "poll_interval is 0ns, but must be at least 1ms; type .poll_interval(",
            ),
            (worker().stall_limit(Duration::ZERO), ".stall_limit("),
            (worker().concurrency(0), ".concurrency(10)"),
            (
                worker().concurrency(usize::MAX),
                "must be at most 1000000; type .concurrency(10)",
            ),
            (
                worker().handle_any(nothing).handle_any(nothing),
                "two handlers of any task; remove one",
            ),
            (
                worker()
                    .schedule(Manifest::new("m", "t"))
                    .manifests("source", [Manifest::new("m", "t")]),
                "the schedule \"m\" is given twice; remove one",
            ),
            (worker().groups(none), "groups is an empty list"),
            (worker().versions(none), "versions is an empty list"),
            (worker().handle("sql", nothing), "Client::enqueue_sql"),
            (worker().name("a\0"), "\"a\\0\" has the character NUL"),
            (worker().handle("b\0", nothing), "\"b\\0\" has"),
            (worker().groups(["c\0"]), "\"c\\0\" has"),
        ] {
            let refused = worker.run().await.expect_err("it could run no job");
            assert!(matches!(refused, Error::Setup(_)), "{refused:?}");
            assert!(refused.to_string().contains(words), "{refused}");
        }
    }
}
