//! An order and the job that ships it, in one transaction: with each pool that a service may have.

pub mod bb8;
pub mod deadpool;
pub mod sqlx;

use serde::{Deserialize, Serialize};
use trax_client::Task;

/// The input of the job.
#[derive(Debug, Deserialize, Serialize)]
pub struct ShipOrder {
    /// The row of `orders`.
    pub order: i64,
}

impl Task for ShipOrder {
    const NAME: &str = "order.ship";
}

/// What the examples return.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
