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

#[derive(Deserialize, Serialize)]
pub(crate) struct Customer {
    pub(crate) customer: i64,
    pub(crate) answers: bool,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Answer {
    pub(crate) job_id: i64,
    pub(crate) clicks: bool,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Shipment {
    pub(crate) customer: i64,
    pub(crate) item: String,
}
