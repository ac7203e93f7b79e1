//! Rates: how much may start in a time.

use super::Client;
use std::time::Duration;

use tokio_postgres::GenericClient;

use crate::error::Result;
use crate::rate::{Closed, Consumed, Rate};
use crate::sql::{Call, Interval, Time};

impl<C: GenericClient + Sync> Client<'_, C> {
    /// Creates or changes a rate. From the commit on the change counts for every claim.
    pub async fn configure_rate(&self, name: &str, rate: &Rate) -> Result<()> {
        let period = Interval(rate.period);
        Call::new("configure_rate")
            .arg("name", &name)
            .arg("allowed", &rate.allowed)
            .arg("period", &period)
            .option("burst", &rate.burst)
            .run(self.db)
            .await
    }

    /// Removes a rate.
    ///
    /// # Errors
    /// [`Error::WrongState`](crate::Error::WrongState) while a group or a job that waits or runs
    /// names it, [`Error::UnknownName`](crate::Error::UnknownName) (42704) if there is
    /// none.
    pub async fn drop_rate(&self, name: &str) -> Result<()> {
        Call::new("drop_rate").arg("name", &name).run(self.db).await
    }

    /// Uses a rate, or a key of it, for something that is no job. Writes nothing; a rollback gives
    /// nothing back.
    pub async fn consume_rate(&self, name: &str, key: Option<&str>, cost: i32) -> Result<Consumed> {
        let columns = "granted, (extract(epoch from retry_after) * 1000000)::bigint";
        let rows = Call::new("consume_rate")
            .arg("name", &name)
            .option("key", &key)
            .arg("cost", &cost)
            .rows(self.db, columns)
            .await?;
        let row = rows.first().expect("the function returns a row");
        if row.try_get(0)? {
            return Ok(Consumed::Granted);
        }
        let micros: Option<i64> = row.try_get(1)?;
        let after = micros.map(|micros| Duration::from_micros(micros.unsigned_abs()));
        Ok(Consumed::RetryAfter(after))
    }

    /// Closes a rate, or a key of it, or opens it. The latest time of all calls counts.
    pub async fn close_rate(&self, name: &str, key: Option<&str>, closed: Closed) -> Result<()> {
        let (span, time) = match closed {
            Closed::For(span) => (Some(Interval(span)), None),
            Closed::Until(time) => (None, Some(Time(time))),
            Closed::Open => (None, Some(Time(std::time::SystemTime::UNIX_EPOCH))),
        };
        Call::new("close_rate")
            .arg("name", &name)
            .option("key", &key)
            .option("until", &time)
            .span_from_now("until", &span)
            .run(self.db)
            .await
    }
}
