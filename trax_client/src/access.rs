//! Access levels of a role.

use std::error::Error as StdError;

use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use crate::level;
use crate::sql::{Argument, quoted};

/// The rights of a role.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// No rights: those of an earlier level are revoked.
    Nothing,
    /// Read all tables except tokens; call `status` and `check`.
    Reader,
    /// Enqueue, trigger and cancel jobs.
    Producer,
    /// Claim jobs, report outcomes, and enqueue.
    Worker,
    /// Everything.
    Admin,
}

impl Access {
    /// Belongs after advice to grant a level: how a role keeps the level that it has.
    pub const KEEPS_BOTH: &str = level::KEEPS_BOTH;

    /// Returns the lowest level that has the right which a message of the server says is missing.
    /// `None` if it names no function and no table, or is not in English.
    pub fn lowest_for(message: &str) -> Option<&'static str> {
        let object = message.strip_prefix("permission denied for ")?;
        match object.split_once(' ')? {
            ("function" | "procedure", name) => Some(level::of(name)),
            ("table" | "view", _) => Some(Access::Reader.name()),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Access::Nothing => "none",
            Access::Reader => "reader",
            Access::Producer => "producer",
            Access::Worker => "worker",
            Access::Admin => "admin",
        }
    }
}

/// The name of a role, for an argument of type `regrole`.
#[derive(Debug)]
pub(crate) struct Role<'a>(pub(crate) &'a str);

impl ToSql for Role<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        // The server parses the text as an identifier; quotes preserve case and leading digits.
        out.extend_from_slice(quoted(self.0).as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::REGROLE
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

impl Argument for Role<'_> {
    const TYPE: Type = Type::REGROLE;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_of_a_missing_right_is_that_of_its_object() {
        for (object, level) in [
            ("function preview_cron", Some("reader")),
            ("function enqueue", Some("producer")),
            ("function pause", Some("admin")),
            ("table manifest", Some("reader")),
            ("view job", Some("reader")),
            ("schema trax", None),
        ] {
            let message = format!("permission denied for {object}");
            assert_eq!(Access::lowest_for(&message), level, "{object}");
        }
    }

    #[test]
    fn a_role_is_sent_as_a_quoted_identifier() {
        let mut wire = BytesMut::new();
        assert!(Role("A \"b").to_sql(&Type::REGROLE, &mut wire).is_ok());
        assert_eq!(&wire[..], b"\"A \"\"b\"");
    }
}
