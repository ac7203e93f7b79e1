//! The net under the outcomes: what waits behind a key or a manifest that has room is let in.

use crate::changes;
use crate::server::spi::{Spi, Statement, arg, statement};
use pgrx::{FromDatum, IntoDatum};
use std::sync::{Mutex, PoisonError};

/// Lanes of keys, and of manifests, that one sweep looks at.
const SWEEP_AT_MOST: i32 = 5000;

statement!(KEY_SWEEP, "limit/key_sweep.sql", TEXTOID, INT8OID, INT4OID);
statement!(
    MANIFEST_SWEEP,
    "limit/manifest_sweep.sql",
    INT8OID,
    INT8OID,
    INT4OID
);

/// Where this backend's last sweeps stopped: the keys or manifests behind which jobs wait, and
/// their lanes.
static SWEPT_KEYS: Mutex<Option<(String, i64)>> = Mutex::new(None);
static SWEPT_MANIFESTS: Mutex<Option<(i64, i64)>> = Mutex::new(None);

/// Lets the first job of each key and of each manifest in that has room.
pub(crate) fn sweep(spi: &Spi) {
    let beginning = (String::new(), i64::MIN);
    sweep_on(spi, &KEY_SWEEP, &SWEPT_KEYS, beginning);
    sweep_on(spi, &MANIFEST_SWEEP, &SWEPT_MANIFESTS, (0, i64::MIN));
}

/// One sweep from where the last one stopped, or from the beginning when that came to the end.
fn sweep_on<T: IntoDatum + FromDatum>(
    spi: &Spi,
    statement: &'static Statement,
    swept_to: &Mutex<Option<(T, i64)>>,
    beginning: (T, i64),
) {
    let mut swept_to = swept_to.lock().unwrap_or_else(PoisonError::into_inner);
    let (shared, lane) = swept_to.take().unwrap_or(beginning);
    let rows = spi.query(statement, &[arg(shared), arg(lane), arg(SWEEP_AT_MOST)]);
    for row in rows.iter() {
        if let Some(lane) = row.get(1) {
            changes::claimable(lane, row.must(2), row.must(3));
        }
    }
    let last = rows
        .first()
        .filter(|row| row.must::<i32>(6) == SWEEP_AT_MOST);
    *swept_to = last.map(|row| (row.must(4), row.must(5)));
}
