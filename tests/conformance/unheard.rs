//! A worker with refused calls: its heartbeats only, or every call until an update.

use super::scenario::SOON;
use super::trial::{Trial, Verdict, is, within};
use harness::PATIENCE;
use harness::scheduler::scheduler_of;

/// The heartbeat sessions are terminated, and no new one can be opened.
pub(super) async fn unheard(trial: &Trial) -> Verdict {
    if !trial.program.is_whole() {
        return Ok(());
    }
    let name = trial.database.name();
    let role = format!("unheard_{name}");
    trial
        .execute(&format!(
            "create role {role} login; select trax.grant_access('{role}', 'worker')"
        ))
        .await?;
    let start = trial.hasty();
    let worker = trial.start_unlike(&role, start);
    let long = trial.begins(2500 * start.lease, &worker).await?;
    let next = trial.enqueue("wait", r#"{"ms": 1}"#, "").await?;
    trial
        .execute(&format!("alter role {role} connection limit 1"))
        .await?;
    let end = format!(
        "select count(pg_terminate_backend(pid)) from pg_stat_activity
        where usename = '{role}' and query ~ 'trax_cancel|heartbeat|report_'"
    );
    let count = format!("select count(*) from pg_stat_activity where usename = '{role}'");
    within("one session is left", SOON, async || {
        trial.value(&end).await?;
        match trial.value(&count).await?.as_str() {
            "1" => Ok(()),
            seen => Err(format!("{seen} sessions")),
        }
    })
    .await?;
    trial.becomes(long, "1 completed", &worker).await?;
    is("runs", trial.runs(long).await?.as_str(), "1 completed")?;
    let state = trial.state(next).await?;
    is(
        "the next one without a heartbeat",
        state.as_str(),
        "0 queued",
    )?;
    let said = trial.printed().matches("nothing is claimed: ").count();
    is("says so", said, 1)?;
    trial
        .execute(&format!("alter role {role} connection limit -1"))
        .await?;
    trial.becomes(next, "1 completed", &worker).await?;
    trial.execute(&format!("alter role {role} nologin")).await
}

/// The library refuses every call until the extension is updated.
pub(super) async fn update(trial: &Trial) -> Verdict {
    const WHAT: &str = "alter extension trax update";
    if !trial.program.is_whole() {
        return Ok(());
    }
    trial
        .execute(
            "drop extension trax cascade;
            create extension trax version '0.1.0';
            select trax.grant_access('conformance', 'worker')",
        )
        .await?;
    let worker = trial.start(super::trial::Start::CALM);
    within("it says what to type", SOON * 3, async || {
        let printed = trial.printed();
        match printed.contains(WHAT) {
            true => Ok(()),
            false => Err(printed),
        }
    })
    .await?;
    // The worker retries.
    let refused = "select xact_rollback from pg_stat_database where datname = current_database()";
    let number = async || -> Verdict<i64> {
        let text = trial.value(refused).await?;
        text.parse().map_err(|_| text)
    };
    let before = number().await?;
    within("more calls are refused", SOON * 3, async || {
        match number().await? - before {
            5.. => Ok(()),
            seen => Err(format!("{seen} more")),
        }
    })
    .await?;
    let printed = trial.printed();
    let said = printed.lines().filter(|line| line.contains(WHAT)).count();
    is("lines that say so", said, 1)?;
    trial.execute(WHAT).await?;
    scheduler_of(&trial.client, trial.database.name(), PATIENCE).await;
    trial.works(&worker).await
}
