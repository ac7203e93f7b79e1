//! The claim of an executor: the next SQL job of its role.

use super::{Request, claim, commit_as_claimed};
use crate::access_scope::Scope;
use crate::error::Result;
use crate::instance;
use crate::server::durability;
use crate::server::json;
use crate::server::rights::is_role;
use crate::server::spi::Spi;
use pgrx::datum::FromDatum;
use pgrx::{Uuid, pg_sys};

/// The member of a SQL job's input that contains its statement.
pub(crate) const COMMAND: &str = "command";

/// The member with the OID that the name of the role had when the job was queued.
pub(crate) const ROLE_OID: &str = "role_oid";

/// A SQL job that this transaction has claimed.
pub(crate) struct SqlJob {
    pub(crate) job_id: i64,
    pub(crate) token: Uuid,
    /// Its statement; `None` if its input was changed by hand.
    pub(crate) command: Option<String>,
    role: Option<u64>,
}

impl SqlJob {
    /// Returns whether the job was queued for this role, and not for another of the same name.
    pub(crate) fn is_for(&self, role: pg_sys::Oid) -> bool {
        self.role.is_none_or(|oid| oid == u64::from(role.to_u32()))
    }

    /// Returns whether the role that the job was queued for exists, under any name.
    pub(crate) fn has_role(&self) -> bool {
        let oid = self.role.and_then(|oid| u32::try_from(oid).ok());
        oid.is_some_and(|oid| is_role(pg_sys::Oid::from(oid)))
    }
}

/// Claims the next SQL job of the role `run_as`, if one may run.
pub(crate) fn sql_job(spi: &Spi, run_as: &str, worker: &str) -> Result<Option<SqlJob>> {
    instance::require_adopted(spi)?;
    let untouched = durability::is_untouched();
    let request = Request {
        worker: worker.to_owned(),
        max_jobs: 1,
        min_jobs: 1,
        max_wait: None,
        tasks: None,
        groups: None,
        versions: None,
        scope: Scope::default(),
        lease_micros: 0,
        places: None,
        run_as: Some(run_as.to_owned()),
    };
    let mut found = None;
    let claimed = claim(spi, &request, |row| {
        found = Some((value(row[0]), value(row[2]), row[4].expect("an input")));
    })?;
    commit_as_claimed(untouched, claimed);
    let Some((job_id, token, input)) = found else {
        return Ok(None);
    };
    let input = json::value(input, "the input of a SQL job").ok();
    let member = |name: &str| input.as_ref()?.get(name);
    Ok(Some(SqlJob {
        job_id,
        token,
        command: member(COMMAND).and_then(|text| Some(text.as_str()?.to_owned())),
        role: member(ROLE_OID).and_then(serde_json::Value::as_u64),
    }))
}

fn value<T: FromDatum>(value: Option<pg_sys::Datum>) -> T {
    // SAFETY: a column of a claimed job, with the type that a claim returns.
    value
        .and_then(|value| unsafe { T::from_datum(value, false) })
        .expect("a column that is not null")
}
