//! Calls a function of the contract with named arguments, in one round trip and without a prepared
//! statement, so that calls work behind a transaction pooler.

use std::error::Error as StdError;
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use serde_json::Value;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::json::Json;
use crate::worker::deadline::LONGEST;

/// Returns a name as a quoted SQL identifier.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A span of time as PostgreSQL's `interval`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Interval(pub(crate) Duration);

const MICROS_PER_DAY: i64 = 86_400_000_000;

impl Interval {
    /// Returns the length in microseconds. The server refuses a length that is too long, and names
    /// the argument.
    pub(crate) fn micros(self) -> i64 {
        i64::try_from(self.0.as_micros()).unwrap_or(i64::MAX)
    }

    /// Returns the length as a text that PostgreSQL reads.
    pub(crate) fn text(self) -> String {
        format!("{} us", self.micros())
    }
}

impl ToSql for Interval {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        // Wire format: microseconds, days, months.
        out.extend_from_slice(&self.micros().to_be_bytes());
        out.extend_from_slice(&[0; 8]);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::INTERVAL
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Interval {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        let (micros, rest) = raw.split_first_chunk::<8>().ok_or("interval too short")?;
        let (days, rest) = rest.split_first_chunk::<4>().ok_or("interval too short")?;
        let (months, _) = rest.split_first_chunk::<4>().ok_or("interval too short")?;
        let days =
            i64::from(i32::from_be_bytes(*days)) + 30 * i64::from(i32::from_be_bytes(*months));
        let micros =
            i64::from_be_bytes(*micros).saturating_add(days.saturating_mul(MICROS_PER_DAY));
        Ok(Interval(Duration::from_micros(
            u64::try_from(micros).unwrap_or(0),
        )))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::INTERVAL
    }
}

/// A time as PostgreSQL's `timestamptz`. The driver's own conversion overflows for a time that is
/// 300,000 years away; here it becomes `infinity`, which the server refuses by name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Time(pub(crate) SystemTime);

/// PostgreSQL counts from 2000-01-01.
const EPOCH: Duration = Duration::from_secs(946_684_800);

impl Time {
    fn micros(self) -> i64 {
        let epoch = SystemTime::UNIX_EPOCH + EPOCH;
        let micros = |span: Duration| i64::try_from(span.as_micros());
        match self.0.duration_since(epoch) {
            Ok(after) => micros(after).unwrap_or(i64::MAX),
            Err(before) => micros(before.duration()).map_or(i64::MIN, |micros| -micros),
        }
    }
}

impl ToSql for Time {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.extend_from_slice(&self.micros().to_be_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }

    to_sql_checked!();
}

/// A Rust type that maps to exactly one SQL type.
pub(crate) trait Argument: ToSql + Sync {
    const TYPE: Type;
}

macro_rules! arguments {
    ($($rust:ty => $sql:ident),* $(,)?) => {
        $(impl Argument for $rust { const TYPE: Type = Type::$sql; })*
    };
}

arguments! {
    &str => TEXT,
    String => TEXT,
    bool => BOOL,
    f64 => FLOAT8,
    i32 => INT4,
    i64 => INT8,
    Uuid => UUID,
    Value => JSONB,
    Time => TIMESTAMPTZ,
    Interval => INTERVAL,
    Vec<String> => TEXT_ARRAY,
    Vec<i64> => INT8_ARRAY,
    Vec<Uuid> => UUID_ARRAY,
    Json => JSONB,
    Vec<Json> => JSONB_ARRAY,
    Vec<Option<Json>> => JSONB_ARRAY,
}

/// A call. Arguments that are not set take the function's defaults.
pub(crate) struct Call<'p> {
    function: &'static str,
    names: Vec<&'static str>,
    values: Vec<(&'p (dyn ToSql + Sync), Type)>,
    /// Whether the first value is the lock timeout.
    has_lock_timeout: bool,
    /// The name of an argument that is a time, given as the span from now.
    from_now: Option<&'static str>,
}

impl<'p> Call<'p> {
    pub(crate) fn new(function: &'static str) -> Self {
        Call {
            function,
            names: Vec::new(),
            values: Vec::new(),
            has_lock_timeout: false,
            from_now: None,
        }
    }

    /// Sets `lock_timeout` for the call's transaction. Must precede any argument.
    pub(crate) fn lock_timeout(mut self, timeout: Option<&'p String>) -> Self {
        if let Some(timeout) = timeout {
            self.values.push((timeout, Type::TEXT));
            self.has_lock_timeout = true;
        }
        self
    }

    pub(crate) fn arg<T: Argument>(mut self, name: &'static str, value: &'p T) -> Self {
        self.names.push(name);
        self.values.push((value, T::TYPE));
        self
    }

    pub(crate) fn option<T: Argument>(self, name: &'static str, value: &'p Option<T>) -> Self {
        match value {
            Some(value) => self.arg(name, value),
            None => self,
        }
    }

    /// Sets an argument that is a time, given as the span from now by the server's clock; a longer
    /// span than ten years, which might end after all times, counts as ten years.
    pub(crate) fn span_from_now(mut self, name: &'static str, span: &'p Option<Interval>) -> Self {
        if span.is_some() {
            self.from_now = Some(name);
        }
        self.option(name, span)
    }

    /// Returns `trax.f(a => $1, b => $2)`, which contains only names written in this crate, never a
    /// value. A lock timeout is set while the first argument is evaluated, so it takes effect
    /// before the function begins, in the same statement and for its transaction alone.
    fn text(&self) -> String {
        let before = usize::from(self.has_lock_timeout);
        let argument = |(i, name): (usize, &&str)| match (i, before) {
            (0, 1) => format!(
                "{name} => case when pg_catalog.set_config('lock_timeout', $1, true) is not null then $2 end"
            ),
            _ if self.from_now == Some(name) => format!(
                "{name} => pg_catalog.clock_timestamp() operator(pg_catalog.+) least(${}, '{} s')",
                i + 1 + before,
                LONGEST.as_secs()
            ),
            _ => format!("{name} => ${}", i + 1 + before),
        };
        let arguments: Vec<String> = self.names.iter().enumerate().map(argument).collect();
        format!("trax.{}({})", self.function, arguments.join(", "))
    }

    /// Returns the named columns of every row of a set-returning function.
    pub(crate) async fn rows<C: GenericClient + Sync>(
        self,
        db: &C,
        columns: &str,
    ) -> Result<Vec<Row>> {
        let sql = format!("select {columns} from {}", self.text());
        self.query(db, &sql).await
    }

    /// Returns the value of a scalar function.
    pub(crate) async fn value<C, T>(self, db: &C) -> Result<T>
    where
        C: GenericClient + Sync,
        T: for<'r> FromSql<'r>,
    {
        let sql = format!("select {}", self.text());
        let row = db.query_typed_one(&sql, &self.values).await;
        Ok(row.map_err(|error| self.failed(error))?.try_get(0)?)
    }

    /// Calls a procedure.
    pub(crate) async fn procedure<C: GenericClient + Sync>(self, db: &C) -> Result<()> {
        let sql = format!("call {}", self.text());
        self.query(db, &sql).await.map(drop)
    }

    /// Calls a procedure with OUT arguments, named in `results`, and returns their row.
    pub(crate) async fn procedure_with_results<C: GenericClient + Sync>(
        self,
        db: &C,
        results: &str,
    ) -> Result<Vec<Row>> {
        let nulls = results.replace(',', " => null,");
        let text = self.text();
        let inputs = text.trim_end_matches(')');
        let sql = format!("call {inputs}, {nulls} => null)");
        self.query(db, &sql).await
    }

    /// Calls a function and ignores its result.
    pub(crate) async fn run<C: GenericClient + Sync>(self, db: &C) -> Result<()> {
        let sql = format!("select {}", self.text());
        self.query(db, &sql).await.map(drop)
    }

    async fn query<C: GenericClient + Sync>(&self, db: &C, sql: &str) -> Result<Vec<Row>> {
        let rows = db.query_typed(sql, &self.values).await;
        rows.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: tokio_postgres::Error) -> Error {
        Error::from(error).of_call(self.function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_name_cannot_end_early() {
        assert_eq!(quoted("a\"; drop"), "\"a\"\"; drop\"");
    }

    #[test]
    fn a_time_of_any_age_is_sent() {
        let day = Duration::from_secs(86_400);
        let at = |time: SystemTime| Time(time).micros();
        let start = SystemTime::UNIX_EPOCH;
        assert_eq!(at(start + EPOCH), 0);
        assert_eq!(at(start + EPOCH + day), 86_400_000_000);
        assert_eq!(at(start), -946_684_800_000_000);
        let far = Duration::from_secs(1 << 60);
        assert_eq!(at(start + far), i64::MAX);
        assert_eq!(at(start - far), i64::MIN);
    }

    #[test]
    fn a_call_names_only_the_arguments_that_were_given() {
        let task = "t".to_owned();
        let call = Call::new("enqueue")
            .arg("task", &task)
            .option("run_at", &None::<Time>)
            .option("priority", &Some(3));
        assert_eq!(call.text(), "trax.enqueue(task => $1, priority => $2)");
        let timeout = "5ms".to_owned();
        let call = Call::new("release").lock_timeout(Some(&timeout));
        let call = call.arg("job_id", &1_i64).arg("delay", &2_i64);
        assert_eq!(
            call.text(),
            "trax.release(job_id => case when pg_catalog.set_config('lock_timeout', $1, true) is not null then $2 end, \
             delay => $3)"
        );
    }

    #[test]
    fn an_interval_survives_the_wire() {
        let mut wire = BytesMut::new();
        let there = Interval(Duration::from_micros(90_061_000_001));
        assert!(there.to_sql(&Type::INTERVAL, &mut wire).is_ok());
        let back = Interval::from_sql(&Type::INTERVAL, &wire).ok();
        assert_eq!(back, Some(there));
        let longest = Interval(Duration::MAX);
        assert!(longest.to_sql(&Type::INTERVAL, &mut wire).is_ok());
    }
}
