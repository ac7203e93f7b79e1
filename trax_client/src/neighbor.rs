//! The schemas that programs of trax use by name, and checks of their ownership.
//!
//! A role that may create schemas can take one of these names and put functions, views and triggers
//! into the schema. These would run with the rights of the role that uses them, or name addresses
//! to connect to. Every program therefore checks the owner first.

use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::{Error, Report, Result};
use crate::sql::quoted;

/// A schema that programs of trax read, call or take addresses from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Neighbor {
    /// `trax`, of the extension `trax` or `trax_router`.
    Trax,
    /// `trax_router`, of the extension of the same name.
    Router,
    /// `trax_outbox`, created by `outbox.sql`.
    Outbox,
    /// `trax_relay`, created by `relay.sql`.
    Relay,
    /// `cron`, of the extension `pg_cron`, or a superuser's copy of it.
    PgCron,
}

impl Neighbor {
    /// All schemas.
    pub const ALL: [Neighbor; 5] = [
        Neighbor::Trax,
        Neighbor::Router,
        Neighbor::Outbox,
        Neighbor::Relay,
        Neighbor::PgCron,
    ];

    /// Returns the name of the schema.
    pub fn schema(self) -> &'static str {
        match self {
            Neighbor::Trax => "trax",
            Neighbor::Router => "trax_router",
            Neighbor::Outbox => "trax_outbox",
            Neighbor::Relay => "trax_relay",
            Neighbor::PgCron => "cron",
        }
    }

    /// Returns the extensions that create the schema; `None` if a SQL file creates it.
    fn extensions(self) -> Option<&'static [&'static str]> {
        match self {
            Neighbor::Trax => Some(&["trax", "trax_router"]),
            Neighbor::Router => Some(&["trax_router"]),
            Neighbor::PgCron => Some(&["pg_cron"]),
            Neighbor::Outbox | Neighbor::Relay => None,
        }
    }

    /// Returns whether the database has the schema, with trusted owners. Reads only catalogs, in
    /// one round trip.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if the schema does not belong to its extension, or an object in it
    /// belongs to a role that the current one has no reason to trust.
    pub async fn is_in<C: GenericClient + Sync>(self, database: &C) -> Result<bool> {
        let (schema, extensions) = (self.schema(), self.extensions());
        let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&schema, Type::TEXT), (&extensions, Type::TEXT_ARRAY)];
        let rows = database
            .query_typed(include_str!("query/schema.sql"), &arguments)
            .await?;
        let Some(row) = rows.first() else {
            return Ok(false);
        };
        let owner: &str = row.try_get(0)?;
        let (is_member, reader): (bool, Option<&str>) = (row.try_get(1)?, row.try_get(2)?);
        let stranger: Option<&str> = row.try_get(3)?;
        let mut hint = format!("as a superuser: drop schema {schema} cascade");
        let message = match (extensions, stranger) {
            (Some(extensions), _) if !is_member && self != Neighbor::PgCron => format!(
                "the schema \"{schema}\" is not that of the extension {}: it belongs to \"{owner}\"",
                extensions[0]
            ),
            (_, None) => return Ok(true),
            (_, Some(stranger)) => {
                if let Some(reader) = reader {
                    hint = format!(
                        "{hint}; or, if that role may do all that this one may: grant {} to {}",
                        quoted(reader),
                        quoted(stranger)
                    );
                }
                format!(
                    "an object in the schema \"{schema}\" belongs to \"{stranger}\", which this role has no reason to trust"
                )
            }
        };
        Err(Error::NotPermitted(Report {
            sqlstate: "42501".to_owned(),
            message,
            detail: Some(
                "Its owner's code would run with the rights of this role, so nothing in it was read or called."
                    .to_owned(),
            ),
            hint: Some(hint),
        }))
    }
}

/// Returns whether a database is a router. A schema of that name with another owner does not count:
/// `trax doctor` reports it.
///
/// # Errors
/// If the catalogs cannot be read.
pub async fn is_router<C: GenericClient + Sync>(database: &C) -> Result<bool> {
    match Neighbor::Router.is_in(database).await {
        Err(Error::NotPermitted(_)) => Ok(false),
        answer => answer,
    }
}
