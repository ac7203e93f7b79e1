//! The expected values at the end, compared with the database and not with a handler's own
//! counters.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde::Serialize;
use tokio::process::Command;
use tokio_postgres::Client as Connection;
use tokio_postgres::types::Type;
use trax_client::Client;

use super::database::Files;
use super::workload::{CLOCK, DIGEST, DOOMED, FLAKY, PULSE, Plan, SALES, STEP, WEIGH};
use crate::output::{Cell, Column, Moment, Options, Record, Tone};
use trax_terminal::Failure;

/// A line of the final table.
struct Line {
    part: &'static str,
    what: &'static str,
    expected: Expected,
    actual: i64,
}

#[derive(Clone, Copy)]
enum Expected {
    Exactly(i64),
    AtLeast(i64),
}

impl Line {
    fn is_right(&self) -> bool {
        match self.expected {
            Expected::Exactly(number) => self.actual == number,
            Expected::AtLeast(number) => self.actual >= number,
        }
    }
}

/// A line in machine-readable form.
#[derive(Serialize)]
struct Verdict {
    part: &'static str,
    what: &'static str,
    expected: i64,
    /// Larger values are correct too.
    at_least: bool,
    actual: i64,
    ok: bool,
}

impl From<&Line> for Verdict {
    fn from(line: &Line) -> Self {
        let (expected, at_least) = match line.expected {
            Expected::Exactly(number) => (number, false),
            Expected::AtLeast(number) => (number, true),
        };
        Verdict {
            part: line.part,
            what: line.what,
            expected,
            at_least,
            actual: line.actual,
            ok: line.is_right(),
        }
    }
}

impl Record for Verdict {
    const COLUMNS: &'static [Column] = &[
        Column::text("part"),
        Column::text("what"),
        Column::number("expected"),
        Column::number("actual"),
        Column::whole(""),
    ];

    fn cells(&self, _: Moment) -> Vec<Cell> {
        let sign = if self.at_least { ">= " } else { "" };
        let ok = if self.ok {
            Cell::new("ok", Tone::Good)
        } else {
            Cell::new("WRONG", Tone::Bad)
        };
        vec![
            Cell::plain(self.part),
            Cell::plain(self.what),
            Cell::plain(format!("{sign}{}", self.expected)),
            Cell::plain(self.actual),
            ok,
        ]
    }

    fn key(&self) -> String {
        self.what.to_owned()
    }
}

/// Prints the table. Returns true if every line is correct.
pub(crate) async fn judge(
    connection: &Connection,
    plan: &Plan,
    files: &Files,
    output: Options,
) -> Result<bool, Failure> {
    let mut lines = runs(connection, plan).await?;
    lines.extend(sign_ups(connection, plan).await?);
    lines.extend(tables(connection, plan).await?);
    lines.push(digests(connection, plan, files).await?);
    lines.extend(leftovers(connection, output).await?);
    if !output.quiet {
        let verdicts: Vec<Verdict> = lines.iter().map(Verdict::from).collect();
        output.print("")?;
        output.list(&verdicts, Moment::Never, "")?;
    }
    Ok(lines.iter().all(Line::is_right))
}

/// Returns lines for the runs of each task in `trax.run`.
async fn runs(connection: &Connection, plan: &Plan) -> Result<Vec<Line>, Failure> {
    use Expected::{AtLeast, Exactly};
    let parts = [
        (
            "bulk",
            "jobs completed",
            WEIGH,
            "completed",
            Exactly(plan.bulk),
        ),
        (
            "chain",
            "steps completed",
            STEP,
            "completed",
            Exactly(plan.chains * plan.steps),
        ),
        (
            "flaky",
            "failed attempts",
            FLAKY,
            "failed",
            Exactly(plan.flaky * 2),
        ),
        (
            "flaky",
            "completed in the end",
            FLAKY,
            "completed",
            Exactly(plan.flaky),
        ),
        ("doomed", "failed attempts", DOOMED, "failed", Exactly(3)),
        (
            "every",
            "beats of every second",
            PULSE,
            "completed",
            AtLeast(plan.pulses),
        ),
        (
            "cron",
            "strikes of */2 * * * * *",
            CLOCK,
            "completed",
            AtLeast(plan.strikes),
        ),
        (
            "program",
            "files digested",
            DIGEST,
            "completed",
            Exactly(plan.files),
        ),
    ];
    let mut lines = Vec::new();
    for (part, what, task, state, expected) in parts {
        let sql = "select count(*) from trax.run where task = $1 and state = $2";
        let parameters = [(&task as _, Type::TEXT), (&state as _, Type::TEXT)];
        let row = connection.query_typed_one(sql, &parameters).await?;
        lines.push(Line {
            part,
            what,
            expected,
            actual: row.try_get(0)?,
        });
    }
    Ok(lines)
}

/// Returns lines for the sign-ups: their ends, the rows of their steps, and the undone ones.
async fn sign_ups(connection: &Connection, plan: &Plan) -> Result<Vec<Line>, Failure> {
    let quarter = plan.customers / 4;
    let parts = [
        (
            "completed after steps, waits and children",
            "select count(*) from trax.run where task = 'account.sign_up' and state = 'completed'",
            2 * quarter,
        ),
        (
            "cancelled while they waited",
            "select count(*) from trax.run where task = 'account.sign_up' and state = 'cancelled'",
            quarter,
        ),
        (
            "failed for good, as a child has",
            "select count(*) from trax.run where task = 'account.sign_up' and state = 'failed' and final",
            quarter,
        ),
        (
            "mails sent",
            "select count(*) from demo.welcome",
            plan.customers + 1,
        ),
        (
            "items shipped",
            "select count(*) from demo.shipment",
            5 * quarter,
        ),
        (
            "accounts closed as undone, after the refund",
            "select count(*) from demo.account a left join demo.charge c using (customer)
             where a.closed_at > coalesce(c.refunded_at, '-infinity')
                and (c.customer is null) = (a.customer % 4 = 0)",
            2 * quarter,
        ),
        (
            "accounts open with their charge",
            "select count(*) from demo.account a join demo.charge c using (customer)
             where a.closed_at is null and c.refunded_at is null",
            2 * quarter,
        ),
        (
            "still waiting for an answer",
            "select count(*) from trax.work_queue where task = 'account.sign_up'",
            1,
        ),
    ];
    let mut lines = Vec::new();
    for (what, sql, expected) in parts {
        let row = connection.query_typed_one(sql, &[]).await?;
        lines.push(Line {
            part: "sign-up",
            what,
            expected: Expected::Exactly(expected),
            actual: row.try_get(0)?,
        });
    }
    Ok(lines)
}

/// Returns lines for the rows written by the handlers' transactions, and their agreement with the
/// history.
async fn tables(connection: &Connection, plan: &Plan) -> Result<Vec<Line>, Failure> {
    use Expected::Exactly;
    let parts = [
        (
            "bulk",
            "different parcels in demo.parcel",
            "select count(distinct parcel) from demo.parcel",
            Exactly(plan.bulk),
        ),
        (
            "chain",
            "chains with every step, in order",
            "select count(*) from (
                select 1 from demo.step group by chain
                having array_agg(step order by job_id) = array_agg(step order by step)
                and count(*) = (select max(step) from demo.step)
            ) whole",
            Exactly(plan.chains),
        ),
        (
            "doomed",
            "dead letters waiting, of 3 attempts",
            "select count(*) from trax.dead_letter
             where status = 'awaiting_intervention' and manifest = 'doomed' and attempts = 3",
            Exactly(1),
        ),
        (
            "cron",
            "strikes twice for one time, or off it",
            "select count(*) - count(distinct scheduled_for)
                 + count(*) filter (where extract(epoch from scheduled_for)::numeric % 2 <> 0)
             from trax.run where task = 'clock.strike'",
            Exactly(0),
        ),
        (
            "graph",
            "sales in the report of a statement",
            "select coalesce(sum(sales), 0)::bigint from demo.report",
            Exactly(plan.reports * SALES),
        ),
        (
            "graph",
            "letters sent after it",
            "select count(*) from demo.letter l where l.sales = (select sum(sales) from demo.report)",
            Exactly(plan.reports),
        ),
        (
            "all",
            "rows without a completed run, or the reverse",
            "select count(*) from (
                select job_id from demo.parcel union all
                select job_id from demo.step union all
                select job_id from demo.beat
            ) wrote full join (
                select job_id from trax.run
                where state = 'completed' and task = any ('{parcel.weigh,order.step,pulse.beat,clock.strike}')
            ) ran using (job_id) where wrote.job_id is null or ran.job_id is null",
            Exactly(0),
        ),
        (
            "all",
            "jobs completed more than once",
            "select count(*) from (
                select 1 from trax.run where state = 'completed' group by job_id having count(*) > 1
            ) twice",
            Exactly(0),
        ),
    ];
    let mut lines = Vec::new();
    for (part, what, sql, expected) in parts {
        let row = connection.query_typed_one(sql, &[]).await?;
        lines.push(Line {
            part,
            what,
            expected,
            actual: row.try_get(0)?,
        });
    }
    Ok(lines)
}

/// Compares the outputs with those of the same program run here.
async fn digests(connection: &Connection, plan: &Plan, files: &Files) -> Result<Line, Failure> {
    let mut command = Command::new("sha256sum");
    command.args(files.paths()).stdin(Stdio::null());
    let said = command.output().await?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let known: BTreeMap<&str, &str> = said
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(digest, path)| (path, digest))
        .collect();
    let sql = "select input ->> 'path', output ->> 'sha256' from trax.run \
               where task = $1 and state = 'completed'";
    let rows = connection
        .query_typed(sql, &[(&DIGEST, Type::TEXT)])
        .await?;
    let mut right = 0;
    for row in &rows {
        let (path, digest): (&str, Option<&str>) = (row.try_get(0)?, row.try_get(1)?);
        right += i64::from(digest.is_some() && known.get(path).copied() == digest);
    }
    Ok(Line {
        part: "program",
        what: "outputs equal to sha256sum's",
        expected: Expected::Exactly(plan.files),
        actual: right,
    })
}

/// Checks that no leases remain and no invariant is violated.
async fn leftovers(connection: &Connection, output: Options) -> Result<Vec<Line>, Failure> {
    let leases = connection
        .query_typed_one("select count(*) from trax.lease", &[])
        .await?;
    let violations = Client::new(connection).check().await?;
    for violation in &violations {
        let detail = violation.detail.as_deref().unwrap_or_default();
        output.print(&format!("  {}: {detail}", violation.rule))?;
    }
    let line = |what, actual| Line {
        part: "all",
        what,
        expected: Expected::Exactly(0),
        actual,
    };
    Ok(vec![
        line("leases left", leases.try_get(0)?),
        line(
            "rules violated (trax.check)",
            i64::try_from(violations.len()).unwrap_or(i64::MAX),
        ),
    ])
}
