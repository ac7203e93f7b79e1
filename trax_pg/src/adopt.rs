//! Adoption: the jobs of a copy become this server's own.

use crate::manifest::zone_update;
use crate::server::call::sql_function;
use crate::server::clock::Timestamp;
use crate::server::spi;
use crate::{audit, instance, rate, sql_job, wake};

sql_function!(trax_is_copy, pg_finfo_trax_is_copy, |call| {
    let is_copy = spi::connected(|spi| Ok(instance::require_adopted(spi).is_err()))?;
    Ok(call.value(is_copy))
});

sql_function!(trax_adopt, pg_finfo_trax_adopt, |call| {
    wake::mark(wake::DUE);
    spi::connected(|spi| {
        let now = Timestamp::now();
        if instance::require_adopted(spi).is_err() {
            sql_job::rebind(spi);
            rate::adopt(spi, now);
        }
        instance::adopt(spi, now);
        audit::record_here(spi, "adopt", None);
        // The zone data with which the next runs were computed is not known any more.
        zone_update::catch_up(spi, now)
    })?;
    Ok(call.null())
});
