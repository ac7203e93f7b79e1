//! Reading: the rows of a table in the order in which they are stored.

use super::scan::slot_value;
use super::unguarded::guarded;
use super::{METHOD, Table, View};
use pgrx::datum::FromDatum;
use pgrx::pg_sys;

/// A scan of a table, with its current row.
pub(crate) struct StoredRows {
    scan: pg_sys::TableScanDesc,
    slot: *mut pg_sys::TupleTableSlot,
}

impl StoredRows {
    /// Begins a scan before the first row of a page.
    pub(crate) fn from_page(table: &Table, view: &View, page: u32) -> Self {
        use pg_sys::ScanOptions::{SO_ALLOW_PAGEMODE, SO_TYPE_TIDRANGESCAN};
        let mut first = pg_sys::ItemPointerData::default();
        pgrx::itemptr::item_pointer_set_all(&mut first, page, 1);
        let mut last = pg_sys::ItemPointerData::default();
        pgrx::itemptr::item_pointer_set_all(&mut last, u32::MAX - 1, u16::MAX);
        // SAFETY: table and snapshot are open until after `end`; the scan copies the two places.
        unsafe {
            let kind = &*(*table.relation).rd_tableam;
            let (begin, limit) = (
                kind.scan_begin.expect(METHOD),
                kind.scan_set_tidrange.expect(METHOD),
            );
            let scan = guarded(|| {
                let none = std::ptr::null_mut();
                let flags = SO_TYPE_TIDRANGESCAN | SO_ALLOW_PAGEMODE;
                let scan = begin(
                    table.relation,
                    view.snapshot,
                    0,
                    none,
                    std::ptr::null_mut(),
                    flags,
                );
                limit(scan, &raw mut first, &raw mut last);
                scan
            });
            Self {
                scan,
                slot: table.slot(),
            }
        }
    }

    /// Goes to the next row that the snapshot sees; returns false at the end.
    pub(crate) fn next(&self) -> bool {
        let forward = pg_sys::ScanDirection::ForwardScanDirection;
        // SAFETY: the scan and its slot are open.
        unsafe {
            let kind = &*(*(*self.scan).rs_rd).rd_tableam;
            let next = kind.scan_getnextslot_tidrange.expect(METHOD);
            guarded(|| next(self.scan, forward, self.slot))
        }
    }

    /// Returns a value of the current row.
    pub(crate) fn get<T: FromDatum>(&self, column: impl Into<usize>) -> Option<T> {
        // SAFETY: the slot holds a row of the table; the column has the SQL type that T reads.
        unsafe {
            let datum = slot_value(self.slot, column.into())?;
            T::from_polymorphic_datum(datum, false, pg_sys::InvalidOid)
        }
    }

    /// Returns a value that is passed by value, of a column that is not null.
    pub(crate) fn number(&self, column: impl Into<usize>) -> i64 {
        // SAFETY: the slot holds a row of the table.
        unsafe { slot_value(self.slot, column.into()) }.map_or(0, |datum| datum.value() as i64)
    }

    /// Returns the page of the current row.
    pub(crate) fn page(&self) -> u32 {
        // SAFETY: the slot holds a row of the table.
        unsafe { pgrx::itemptr::item_pointer_get_block_number(&raw const (*self.slot).tts_tid) }
    }

    pub(crate) fn end(self) {
        // SAFETY: ends what `from_page` began.
        unsafe {
            let kind = &*(*(*self.scan).rs_rd).rd_tableam;
            let end = kind.scan_end.expect(METHOD);
            guarded(|| end(self.scan));
            pg_sys::ExecDropSingleTupleTableSlot(self.slot);
        }
    }
}
