//! Adoption: the jobs of a copy become this server's own.

use crate::clock::Timestamp;
use crate::entry::sql_function;
use crate::{instance, spi, wake, zone_data};

sql_function!(trax_adopt, pg_finfo_trax_adopt, |call| {
    wake::mark(wake::DUE);
    spi::connected(|spi| {
        let now = Timestamp::now();
        instance::adopt(spi, now);
        // With which zone data the next runs were computed is not known any more.
        zone_data::catch_up(spi, now)
    })?;
    Ok(call.null())
});
