//! The inputs of the demo's jobs.

use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
pub(crate) struct Parcel {
    pub(crate) parcel: i64,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct ChainInput {
    pub(crate) chain: i64,
    pub(crate) step: i64,
    pub(crate) steps: i64,
}
