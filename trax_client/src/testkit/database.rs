//! A database of a throw-away server.

use tokio_postgres::{Client, Config, NoTls};

use super::Error;
use crate::connect::drive;

/// A database and its connection settings.
#[derive(Clone, Debug)]
pub struct Database {
    pub(crate) name: String,
    pub(crate) config: Config,
}

impl Database {
    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the connection settings: over the server's socket, as the superuser.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// Opens a new connection, driven by a separate task.
    pub async fn connect(&self) -> Result<Client, Error> {
        let (client, connection) = self.config.connect(NoTls).await?;
        drive(connection);
        Ok(client)
    }
}
