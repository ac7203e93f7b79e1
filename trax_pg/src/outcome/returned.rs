//! The outputs of completions.

use crate::error::Result;
use crate::lease;
use crate::server::call::Call;
use crate::server::spi::array_elements;
use crate::work_queue;
use pgrx::pg_sys;

/// The columns of a run that a completion fills.
#[derive(Clone, Copy, Default)]
pub(crate) struct Returned {
    pub(crate) output: Option<pg_sys::Datum>,
    /// Reports which part of the output was left out.
    pub(crate) detail: Option<pg_sys::Datum>,
}

impl From<Option<pg_sys::Datum>> for Returned {
    fn from(output: Option<pg_sys::Datum>) -> Self {
        Returned {
            output,
            detail: None,
        }
    }
}

/// Returns the outputs for the jobs of a call; an omitted array is all nulls.
pub(crate) fn outputs(call: &Call, index: usize, jobs: usize) -> Result<Vec<Returned>> {
    let Some(outputs) = call.datum(index) else {
        return Ok(vec![Returned::default(); jobs]);
    };
    let outputs = array_elements(pg_sys::JSONBOID, outputs)?;
    lease::same_length("outputs", outputs.len(), jobs)?;
    for output in outputs.iter().flatten() {
        work_queue::check_size("output", *output)?;
    }
    Ok(outputs.into_iter().map(Returned::from).collect())
}
