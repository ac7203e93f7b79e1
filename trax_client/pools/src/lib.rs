//! Stores an order and queues the job that ships it, in one transaction, with each common pool.

pub mod bb8;
pub mod deadpool;
pub mod sqlx;

use serde::{Deserialize, Serialize};
use trax_client::Task;

/// The input of the job.
#[derive(Debug, Deserialize, Serialize)]
pub struct ShipOrder {
    /// The id in `orders`.
    pub order: i64,
}

impl Task for ShipOrder {
    const NAME: &str = "order.ship";
}

/// The result type of the examples.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
