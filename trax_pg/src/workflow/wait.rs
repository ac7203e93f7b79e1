//! Waits: a job sleeps until a time, and the common part of all waits.

use super::{Answer, Contents, Kind, Place};
use crate::error::{Error, Result};
use crate::outcome;
use crate::outcome::Return;
use crate::server::call::{Call, sql_function};
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::server::spi::Spi;

sql_function!(trax_sleep, pg_finfo_trax_sleep, |call| {
    let place = Place::from_call(call, Kind::Sleep)?;
    let until = until(call, 3)?.ok_or_else(|| Error::null_argument("until"))?;
    let state = spi::connected(|spi| sleep(spi, &place, until))?;
    Ok(call.value(state))
});

/// Returns the time at which a wait ends.
pub(super) fn until(call: &Call, index: usize) -> Result<Option<Timestamp>> {
    let until = call.optional::<Timestamp>(index);
    until
        .map(|at| at.bounded("argument \"until\"", "until => now() + interval '3 days'"))
        .transpose()
}

fn sleep(spi: &Spi, place: &Place, until: Timestamp) -> Result<&'static str> {
    let is_over = until <= place.now;
    let contents = Contents {
        is_open: !is_over,
        until: Some(until),
        ..Contents::default()
    };
    let Some(answer) = place.record(spi, contents)? else {
        return Ok("lost");
    };
    if answer.recorded && !is_over {
        let back = Return {
            run_at: until,
            waits_for: Some("time"),
            wait_until: None,
        };
        return suspend(spi, place, &back);
    }
    // The job is executed again after it was suspended: its time has come, or a person has let it
    // run earlier.
    if !answer.recorded && !answer.is_settled {
        place.settle(spi, false, None);
    }
    Ok("passed")
}

/// Ends the attempt without using it.
pub(super) fn suspend(spi: &Spi, place: &Place, back: &Return) -> Result<&'static str> {
    let suspended = outcome::suspend(spi, place.job_id, place.token, back, place.now)?;
    Ok(if suspended { "suspended" } else { "lost" })
}

/// Returns when an open wait ends: as it was recorded when the job was suspended, or as it is given
/// now.
pub(super) fn deadline(answer: &Answer, given: Option<Timestamp>) -> Option<Timestamp> {
    if answer.recorded {
        given
    } else {
        answer.wait_until
    }
}
