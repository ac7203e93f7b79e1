//! Children: jobs that a job queues, once for each step, and whose ends it may await.

use super::wait::{deadline, suspend, until};
use super::{Contents, Kind, Place};
use crate::access_scope;
use crate::access_scope::Scope;
use crate::error::{Error, Result};
use crate::job_graph;
use crate::job_needs;
use crate::lease;
use crate::outcome::Return;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::rights::as_owner;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::RowLock;
use crate::setting;
use crate::work_queue;
use crate::work_queue::NewJob;
use pgrx::{JsonB, pg_sys};
use serde_json::json;

row! {
    struct Child {
        job_id: i64,
        is_alive: bool,
        is_of_another: bool,
    }
}
statement!(
    ChildIsCircle, "workflow/is_circle.sql",
    { job_id: INT8OID, child: INT8OID } -> bool
);
statement!(ChildList, "workflow/children.sql", { job_id: INT8OID } -> Child);
statement!(
    ChildrenShown, "workflow/children_shown.sql",
    { job_id: INT8OID, bytes: INT8OID } -> pg_sys::Datum
);

sql_function!(trax_spawn, pg_finfo_trax_spawn, |call| {
    as_owner(call, |caller| {
        let place = Place::from_call(call, Kind::Child)?;
        let job = NewJob {
            parent_job_id: Some(place.job_id),
            ..NewJob::of_arguments(call, 3, place.now)?
        };
        work_queue::refuse_sql_task(&job.task)?;
        let input = call.datum(4).unwrap_or_else(work_queue::empty_object);
        work_queue::check_size("input", input)?;
        let child = spi::connected(|spi| {
            let scope = access_scope::of_caller(spi, caller);
            spawn(spi, &scope, &place, &job, input)
        })?;
        Ok(child.map_or_else(|| call.null(), |child| call.value(child)))
    })
});

sql_function!(trax_await_children, pg_finfo_trax_await_children, |call| {
    let place = Place::from_call(call, Kind::Jobs)?;
    let mode = call.name(3, "mode")?;
    let one_is_enough = match mode.as_str() {
        "all" => false,
        "any" => true,
        _ => {
            return Err(Error::invalid(format!("mode \"{mode}\" does not exist"))
                .detail("The modes are all and any.")
                .hint("Specify one of: all, any."));
        }
    };
    let until = until(call, 4)?;
    let mut rows = call.rows();
    spi::connected(|spi| {
        let (state, children) = await_children(spi, &place, one_is_enough, until)?;
        rows.push(&[arg(state), children]);
        Ok(())
    })?;
    Ok(rows.end())
});

/// Queues a child; returns `None` when the lease is lost or the job is asked to stop. A cancel of
/// the job waits for this transaction, and then finds the child.
fn spawn(
    spi: &Spi,
    scope: &Scope,
    place: &Place,
    job: &NewJob,
    input: pg_sys::Datum,
) -> Result<Option<i64>> {
    scope.require(&job.task, &job.group)?;
    work_queue::lock_groups(std::iter::once(job));
    if let Some(batch) = job.batch {
        job_graph::lock(batch);
    }
    let kept = lease::keep(spi, place.job_id, place.token, RowLock::Share)?;
    let Some(kept) = kept.filter(|kept| !kept.cancel_requested) else {
        return Ok(None);
    };
    let id = work_queue::next_id();
    let output = arg(JsonB(json!(id)));
    let contents = Contents {
        output,
        is_open: job.unique_key.is_some(),
        ..Contents::default()
    };
    let answer = place.record_in(spi, kept.attempt, contents)?;
    if !answer.recorded {
        let kept = answer.output.ok_or_else(Error::changed_since_snapshot)?;
        return child_id(kept).map(Some);
    }
    if job.unique_key.is_none() {
        if let Some(batch) = job.batch {
            job_graph::keep_open(spi, scope, batch, Some(place.job_id))?;
        }
        let is_queued = work_queue::enqueue_as(job, id, input);
        if let Some(batch) = job.batch.filter(|_| is_queued) {
            job_graph::add_to_batch(batch, &[id]);
        }
        return Ok(Some(id));
    }
    // A job that keeps the key alive becomes the child.
    let id = work_queue::enqueue_within(spi, scope, job, &[Some(input)])?[0];
    refuse_circle(spi, place.job_id, id)?;
    place.settle(spi, false, arg(JsonB(json!(id))));
    Ok(Some(id))
}

/// Returns 55000 when the job that has the unique key of a child waits for the end of its parent.
fn refuse_circle(spi: &Spi, job_id: i64, child: i64) -> Result<()> {
    let circle = ChildIsCircle {
        job_id: arg(job_id),
        child: arg(child),
    };
    if !spi.query_latest(circle).one() {
        return Ok(());
    }
    let (message, detail) = match child == job_id {
        true => (
            format!("job {job_id} itself has the unique key of the child"),
            "A job that is its own child would wait for its own end.",
        ),
        false => (
            format!("job {child}, which has the unique key of the child, waits for job {job_id}"),
            "As its child, each would wait for the end of the other.",
        ),
    };
    Err(Error::wrong_state(message).detail(detail).hint(
        "Give the child a unique key of its own, for example: unique_key => 'invoice 7, part 1'",
    ))
}

/// Returns 55000 when the wait for these children would wait for its own end: one of them waits for
/// the job, or, if one is enough, each of them.
fn refuse_circles(spi: &Spi, job_id: i64, living: &[Child], one_is_enough: bool) -> Result<()> {
    let mut circle = Ok(());
    for child in living {
        circle = match child.is_of_another {
            true => refuse_circle(spi, job_id, child.job_id),
            false => Ok(()),
        };
        if circle.is_ok() == one_is_enough {
            break;
        }
    }
    circle
}

fn child_id(output: pg_sys::Datum) -> Result<i64> {
    let id = crate::server::json::value(output, "the id of the child")?;
    id.as_i64().ok_or_else(|| {
        Error::wrong_state("the step of a child has no id")
            .detail("Its output in trax.step is not a number.")
            .hint("Put the id of the child back: update trax.step set output = ...")
    })
}

fn await_children(
    spi: &Spi,
    place: &Place,
    one_is_enough: bool,
    until: Option<Timestamp>,
) -> Result<(&'static str, Option<pg_sys::Datum>)> {
    let mode = if one_is_enough { "any" } else { "all" };
    let contents = Contents {
        is_open: true,
        until,
        waited_for: Some(mode),
        ..Contents::default()
    };
    let list = ChildList {
        job_id: arg(place.job_id),
    };
    let (living, ended): (Vec<Child>, Vec<Child>) = spi
        .query_latest(list)
        .iter()
        .partition(|child: &Child| child.is_alive);
    if until.is_none() && living.iter().any(|child| child.is_of_another) {
        Lock::Circles.take(Mode::Alone);
    }
    let Some(answer) = place.record(spi, contents)? else {
        return Ok(("lost", None));
    };
    if !answer.recorded && answer.is_settled {
        let state = if answer.timed_out {
            "timed_out"
        } else {
            "ended"
        };
        return Ok((state, answer.output));
    }
    let until = deadline(&answer, until);
    let is_over = living.is_empty() || one_is_enough && !ended.is_empty();
    let timed_out = !is_over && until.is_some_and(|until| until <= place.now);
    if is_over || timed_out {
        if !answer.recorded {
            job_needs::end_wait(spi, place.job_id);
        }
        let shown = Some(shown(spi, place.job_id));
        place.settle(spi, timed_out, shown);
        return Ok((if timed_out { "timed_out" } else { "ended" }, shown));
    }
    if until.is_none() {
        refuse_circles(spi, place.job_id, &living, one_is_enough)?;
    }
    // Two steps may have the same child, by its unique key.
    let living = living.iter().map(|child| child.job_id).collect();
    job_needs::begin_wait(spi, place.job_id, living, one_is_enough);
    let back = Return {
        run_at: place.now,
        waits_for: Some("jobs"),
        wait_until: until,
    };
    Ok((suspend(spi, place, &back)?, None))
}

/// Returns the children as the answer lists them. Their outputs are left out when they are together
/// larger than one output may be: `trax.job` has them.
fn shown(spi: &Spi, job_id: i64) -> pg_sys::Datum {
    let shown = ChildrenShown {
        job_id: arg(job_id),
        bytes: arg(setting::max_input_bytes() as i64),
    };
    spi.query_latest(shown).one()
}
