//! The server's catalogs, read by their indexes: lookups at the start of a session, where planning
//! equivalent statements would take longer than running them.
//!
//! Rows are those of the latest catalog snapshot, as the server's own lookups see them.

use pgrx::pg_sys;
use std::ffi::CStr;

/// A catalog and an index of it, whose first columns are oids.
#[derive(Clone, Copy)]
struct Path {
    catalog: u32,
    index: u32,
    columns: &'static [&'static CStr],
}

const DEPENDERS: Path = Path {
    catalog: 2608,
    index: 2673,
    columns: &[c"classid", c"objid"],
};
const DEPENDENTS: Path = Path {
    catalog: 2608,
    index: 2674,
    columns: &[c"refclassid", c"refobjid"],
};
const CHILDREN: Path = Path {
    catalog: 2611,
    index: 2187,
    columns: &[c"inhparent"],
};
const TRIGGERS: Path = Path {
    catalog: TRIGGER,
    index: 2701,
    columns: &[c"tgrelid"],
};
const CONSTRAINTS: Path = Path {
    catalog: 2606,
    index: 2665,
    columns: &[c"conrelid"],
};
const DEFAULTS: Path = Path {
    catalog: 2604,
    index: 2656,
    columns: &[c"adrelid"],
};
const INDEXES: Path = Path {
    catalog: 2610,
    index: 2678,
    columns: &[c"indrelid"],
};
const RULES: Path = Path {
    catalog: 2618,
    index: 2693,
    columns: &[c"ev_class"],
};
const POLICIES: Path = Path {
    catalog: 3256,
    index: 3258,
    columns: &[c"polrelid"],
};

const TYPE: u32 = 1247;
const PROCEDURE: u32 = 1255;
const RELATION: u32 = 1259;
const NAMESPACE: u32 = 2615;
const OPERATOR: u32 = 2617;
const TRIGGER: u32 = 2620;

/// The catalogs of code that runs when a table is written, and the class of their rows.
const PARTS: [(Path, u32); 6] = [
    (TRIGGERS, TRIGGER),
    (CONSTRAINTS, CONSTRAINTS.catalog),
    (DEFAULTS, DEFAULTS.catalog),
    (INDEXES, RELATION),
    (RULES, RULES.catalog),
    (POLICIES, POLICIES.catalog),
];

/// The columns of pg_depend, none of which is ever null.
#[repr(C)]
struct Depend {
    class: u32,
    object: u32,
    part: i32,
    referenced_class: u32,
    referenced: u32,
}

/// An open catalog that is read by one index.
struct Catalog {
    relation: pg_sys::Relation,
    index: pg_sys::Oid,
    keys: Vec<pg_sys::ScanKeyData>,
}

impl Catalog {
    fn open(path: Path) -> Self {
        let oid = pg_sys::Oid::from(path.catalog);
        let key = |column: &&CStr| {
            let mut key = pg_sys::ScanKeyData::default();
            // SAFETY: a column of this catalog, an oid; the value is set before each scan.
            unsafe {
                let column = pg_sys::get_attnum(oid, column.as_ptr());
                pg_sys::ScanKeyInit(
                    &raw mut key,
                    column,
                    pg_sys::BTEqualStrategyNumber as u16,
                    pg_sys::Oid::from(pg_sys::F_OIDEQ),
                    pg_sys::Datum::from(0),
                );
            }
            key
        };
        let keys = path.columns.iter().map(key).collect();
        // SAFETY: a catalog of the server, inside a transaction.
        let relation = unsafe { pg_sys::table_open(oid, pg_sys::AccessShareLock as i32) };
        Self {
            relation,
            index: pg_sys::Oid::from(path.index),
            keys,
        }
    }

    /// Passes the fixed part of each row whose first columns have these values to `show`.
    fn rows<T>(&self, values: &[pg_sys::Oid], mut show: impl FnMut(&T)) {
        // A scan writes to its keys.
        let mut keys = self.keys.clone();
        for (key, value) in keys.iter_mut().zip(values) {
            key.sk_argument = pg_sys::Datum::from(*value);
        }
        // SAFETY: the catalog is open, and the keys are of columns that the index begins with; a
        // row is shown before the scan moves on, as a T that its catalog's rows begin with.
        unsafe {
            let scan = pg_sys::systable_beginscan(
                self.relation,
                self.index,
                true,
                std::ptr::null_mut(),
                values.len() as i32,
                keys.as_mut_ptr(),
            );
            loop {
                let row = pg_sys::systable_getnext(scan);
                if row.is_null() {
                    break;
                }
                show(&*pg_sys::GETSTRUCT(row).cast::<T>());
            }
            pg_sys::systable_endscan(scan);
        }
    }

    fn close(self) {
        // SAFETY: opened above.
        unsafe { pg_sys::table_close(self.relation, pg_sys::AccessShareLock as i32) };
    }
}

/// Returns the oid of schema trax; invalid when it does not exist.
fn schema() -> pg_sys::Oid {
    // SAFETY: a lookup inside a transaction.
    unsafe { pg_sys::get_namespace_oid(c"trax".as_ptr(), true) }
}

/// Returns the tables in schema trax, and their partitions, which may be in another.
pub(crate) fn own_tables() -> Vec<pg_sys::Oid> {
    let mut tables = Vec::new();
    // Every object in a schema depends on it; pg_class has no index by schema.
    let depends = Catalog::open(DEPENDENTS);
    depends.rows(&[NAMESPACE.into(), schema()], |row: &Depend| {
        if row.class == RELATION {
            tables.push(pg_sys::Oid::from(row.object));
        }
    });
    depends.close();
    // SAFETY: lookups inside a transaction.
    let kind = |table: &pg_sys::Oid| unsafe { pg_sys::get_rel_relkind(*table) } as u8;
    tables.retain(|table| [b'r', b'p', b'f'].contains(&kind(table)));
    let children = Catalog::open(CHILDREN);
    let mut at = 0;
    while let Some(&parent) = tables.get(at) {
        children.rows(&[parent], |child: &u32| {
            let child = pg_sys::Oid::from(*child);
            if !tables.contains(&child) {
                tables.push(child);
            }
        });
        at += 1;
    }
    children.close();
    tables
}

/// Other roles' code that runs when tables are written. The server records no dependency on its own
/// functions and types, so none of those is here.
pub(crate) struct Called {
    /// Functions, including those of operators, of triggers, constraints, defaults and generated
    /// columns, indexes, rules and policies.
    pub(crate) functions: Vec<pg_sys::Oid>,
    /// Whether columns or expressions have types, any of which may lead to the constraints of a
    /// domain.
    pub(crate) has_types: bool,
}

/// Returns other roles' code that runs when these tables are written.
pub(crate) fn called(tables: &[pg_sys::Oid]) -> Called {
    let mut parts: Vec<(u32, pg_sys::Oid)> =
        tables.iter().map(|&table| (RELATION, table)).collect();
    for (path, class) in PARTS {
        let catalog = Catalog::open(path);
        for table in tables {
            catalog.rows(&[*table], |part: &u32| parts.push((class, (*part).into())));
        }
        catalog.close();
    }
    let (mut functions, mut types) = (Vec::new(), Vec::new());
    let depends = Catalog::open(DEPENDERS);
    for (class, part) in parts {
        depends.rows(&[class.into(), part], |row: &Depend| {
            let referenced = pg_sys::Oid::from(row.referenced);
            match row.referenced_class {
                PROCEDURE => functions.push(referenced),
                // SAFETY: a lookup inside a transaction.
                OPERATOR => functions.push(unsafe { pg_sys::get_opcode(referenced) }),
                TYPE => types.push(referenced),
                _ => {}
            }
        });
    }
    depends.close();
    let schema = schema();
    let own = [schema, pg_sys::InvalidOid];
    // SAFETY: a lookup inside a transaction.
    functions.retain(|function| !own.contains(&unsafe { pg_sys::get_func_namespace(*function) }));
    functions.sort_unstable_by_key(|function| function.to_u32());
    functions.dedup();
    Called {
        functions,
        has_types: types
            .into_iter()
            .any(|oid| namespace_of(oid) != Some(schema)),
    }
}

/// Returns the schema of a type; `None` when the type is gone.
fn namespace_of(oid: pg_sys::Oid) -> Option<pg_sys::Oid> {
    // SAFETY: a lookup inside a transaction; the row is a type's, and is released.
    unsafe {
        let cache = pg_sys::SysCacheIdentifier::TYPEOID as i32;
        let row = pg_sys::SearchSysCache1(cache, pg_sys::Datum::from(oid));
        if row.is_null() {
            return None;
        }
        let schema = (*pg_sys::GETSTRUCT(row).cast::<pg_sys::FormData_pg_type>()).typnamespace;
        pg_sys::ReleaseSysCache(row);
        Some(schema)
    }
}
