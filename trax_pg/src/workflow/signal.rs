//! Signals: messages to a job, which keeps them until it takes them.
//!
//! The signals of one name to one job have places 1, 2, 3 in the order of their commits: a sender
//! takes the next place, and a second one waits at the primary key until the first has ended. A
//! job that finds no signal adds the row of the next place itself, without a time of sending, in
//! the transaction that suspends it. So either the job waits at that key for the sender, and then
//! takes the signal, or the sender waits for the job to be suspended, fills the row, and wakes it.
//!
//! A sender keeps the job in this database until it commits: the mover of a group leaves such jobs
//! to its next batch, so that the signal goes with its job.

use super::wait::{deadline, suspend, until};
use super::{Contents, Kind, Place};
use crate::access_scope;
use crate::changes;
use crate::changes::Claimable;
use crate::error::{Error, Result};
use crate::outcome::Return;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::rights::as_owner;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::work_queue;
use pgrx::{PgSqlErrorCode, pg_sys};

/// The most signals of one name to one job: no job has more steps that could take them.
const SIGNALS_AT_MOST: i32 = 10_000;

/// How many locks keep the jobs in this database that signals are sent to, whatever their number.
const PARTS: u64 = 64;

row! {
    struct Sent {
        position: i32,
        awaited: bool,
    }
}
statement!(SignalAlive, "workflow/lives.sql", { job_id: INT8OID } -> bool);
statement!(
    SignalTake, "workflow/signal_take.sql",
    { job_id: INT8OID, name: TEXTOID, now: TIMESTAMPTZOID } -> Option<pg_sys::Datum>
);
statement!(SignalAwait, "workflow/signal_await.sql", { job_id: INT8OID, name: TEXTOID } -> i32);
statement!(SignalForgetWait, "workflow/signal_forget_wait.sql", { job_id: INT8OID, name: TEXTOID });
statement!(
    SignalSend, "workflow/signal_send.sql",
    {
        job_id: INT8OID,
        name: TEXTOID,
        now: TIMESTAMPTZOID,
        signal_id: TEXTOID,
        payload: JSONBOID,
    } -> Sent
);
statement!(
    SignalWasSent, "workflow/signal_was_sent.sql",
    { job_id: INT8OID, signal_id: TEXTOID } -> bool
);
statement!(
    SignalWake, "workflow/wake_signalled.sql",
    { job_id: INT8OID, now: TIMESTAMPTZOID } -> Claimable
);

sql_function!(trax_await_signal, pg_finfo_trax_await_signal, |call| {
    let place = Place::from_call(call, Kind::Signal)?;
    let name = call.new_name(3, "name")?;
    let until = until(call, 4)?;
    let mut rows = call.rows();
    spi::connected(|spi| {
        let (state, payload) = await_signal(spi, &place, &name, until)?;
        rows.push(&[arg(state), payload]);
        Ok(())
    })?;
    Ok(rows.end())
});

sql_function!(trax_send_signal, pg_finfo_trax_send_signal, |call| {
    as_owner(call, |caller| {
        spi::require_primary()?;
        let job_id = call.required::<i64>(0, "job_id")?;
        let name = call.new_name(1, "name")?;
        let payload = call.datum(2);
        payload.map_or(Ok(()), |payload| work_queue::check_size("payload", payload))?;
        let signal_id = call.optional_name(3, "signal_id")?;
        let state = spi::connected(|spi| {
            access_scope::of_caller(spi, caller).require_job(spi, job_id)?;
            send(spi, job_id, &name, payload, signal_id.as_deref())
        })?;
        Ok(call.value(state))
    })
});

sql_function!(trax_hold_signals, pg_finfo_trax_hold_signals, |call| {
    let job_id = call.required::<i64>(0, "job_id")?;
    Ok(call.value(signals_to(job_id).take_if_free(Mode::Alone)))
});

fn signals_to(job_id: i64) -> Lock<'static> {
    Lock::Signals(job_id as u64 % PARTS)
}

type Received = (&'static str, Option<pg_sys::Datum>);

fn await_signal(
    spi: &Spi,
    place: &Place,
    name: &str,
    until: Option<Timestamp>,
) -> Result<Received> {
    let contents = Contents {
        is_open: true,
        until,
        waited_for: Some(name),
        ..Contents::default()
    };
    let Some(answer) = place.record(spi, contents)? else {
        return Ok(("lost", None));
    };
    if !answer.recorded && answer.is_settled {
        return Ok(match answer.timed_out {
            true => ("timed_out", None),
            false => ("received", answer.output),
        });
    }
    let until = deadline(&answer, until);
    loop {
        let take = SignalTake {
            job_id: arg(place.job_id),
            name: arg(name),
            now: arg(place.now),
        };
        if let Some(payload) = spi.change_latest(take).first() {
            place.settle(spi, false, payload);
            return Ok(("received", payload));
        }
        if until.is_some_and(|until| until <= place.now) {
            spi.change_latest(SignalForgetWait {
                job_id: arg(place.job_id),
                name: arg(name),
            });
            place.settle(spi, true, None);
            return Ok(("timed_out", None));
        }
        let place_of_next = SignalAwait {
            job_id: arg(place.job_id),
            name: arg(name),
        };
        if spi.change_latest(place_of_next).len() == 1 {
            let back = Return {
                run_at: place.now,
                waits_for: Some("signal"),
                wait_until: until,
            };
            return Ok((suspend(spi, place, &back)?, None));
        }
        // A sender has filled it meanwhile.
    }
}

fn send(
    spi: &Spi,
    job_id: i64,
    name: &str,
    payload: Option<pg_sys::Datum>,
    signal_id: Option<&str>,
) -> Result<&'static str> {
    signals_to(job_id).take(Mode::Share);
    let alive = SignalAlive {
        job_id: arg(job_id),
    };
    match spi.query_latest(alive).first() {
        None => return Ok("unknown"),
        Some(true) => return Ok("ended"),
        Some(false) => {}
    }
    let now = Timestamp::now();
    loop {
        let was_sent = signal_id.is_some_and(|signal_id| {
            spi.query_latest(SignalWasSent {
                job_id: arg(job_id),
                signal_id: arg(signal_id),
            })
            .one()
        });
        if was_sent {
            return Ok("duplicate");
        }
        let add = || {
            let sent = spi.change_latest(SignalSend {
                job_id: arg(job_id),
                name: arg(name),
                now: arg(now),
                signal_id: signal_id.and_then(arg),
                payload,
            });
            Ok(sent.first())
        };
        let sent = match signal_id {
            None => add(),
            Some(_) => spi::isolated(add),
        };
        let sent = match sent {
            Ok(Some(sent)) => sent,
            // Another sender has taken the place.
            Ok(None) => continue,
            // Another sender has used the id for a signal of another name.
            Err(error) if error.is_duplicate() => continue,
            Err(error) => return Err(error),
        };
        require_room(job_id, name, sent.position)?;
        if sent.awaited {
            changes::rows_claimable(&spi.change_latest(SignalWake {
                job_id: arg(job_id),
                now: arg(now),
            }));
        }
        return Ok("sent");
    }
}

/// Returns 54000 for a signal that no step of its job could take.
fn require_room(job_id: i64, name: &str, position: i32) -> Result<()> {
    if position <= SIGNALS_AT_MOST {
        return Ok(());
    }
    Err(Error::new(
        PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
        format!("job {job_id} has {SIGNALS_AT_MOST} signals \"{name}\""),
    )
    .detail("A job has at most so many steps, and each takes one signal.")
    .hint("Store the data in a table, and send one signal for all of it."))
}
