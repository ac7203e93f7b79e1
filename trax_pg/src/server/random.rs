//! Random numbers.

use pgrx::pg_sys;

/// A number from 0 to 1, from this backend's generator: nobody's secret.
pub(crate) fn random() -> f64 {
    // SAFETY: advances this backend's random numbers.
    unsafe { pg_sys::pg_prng_double(&raw mut pg_sys::pg_global_prng_state) }
}

/// UUIDs of version 4 that nobody can guess.
pub(crate) fn random_uuids(count: usize) -> Vec<[u8; 16]> {
    let mut uuids = vec![[0u8; 16]; count];
    // SAFETY: the buffer has 16 bytes for each.
    let random = unsafe { pg_sys::pg_strong_random(uuids.as_mut_ptr().cast(), count * 16) };
    assert!(random, "the server has a source of strong random numbers");
    for uuid in &mut uuids {
        uuid[6] = (uuid[6] & 0x0f) | 0x40;
        uuid[8] = (uuid[8] & 0x3f) | 0x80;
    }
    uuids
}
