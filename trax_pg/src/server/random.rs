//! Random numbers.

use pgrx::pg_sys;
use std::cell::RefCell;

/// Returns a number from 0 to 1, from this backend's generator; not for secrets.
pub(crate) fn random() -> f64 {
    // SAFETY: advances this backend's random numbers.
    unsafe { pg_sys::pg_prng_double(&raw mut pg_sys::pg_global_prng_state) }
}

/// How many random bytes are read from the system's generator at once: one call for 16 of them was
/// 2.4 % of the instructions of a job that is claimed and completed alone.
const POOL_BYTES: usize = 512;

/// Unused random bytes: those from `used` on are left.
struct Pool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

thread_local! {
    // Empty when a process begins, so that no two processes share bytes.
    static POOL: RefCell<Pool> = const {
        RefCell::new(Pool { bytes: [0; POOL_BYTES], used: POOL_BYTES })
    };
}

fn fill(bytes: &mut [u8]) {
    // SAFETY: the buffer is as long as it says.
    let random = unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) };
    assert!(random, "the server has a source of strong random numbers");
}

/// Returns unpredictable UUIDs of version 4.
pub(crate) fn random_uuids(count: usize) -> Vec<[u8; 16]> {
    let mut uuids = vec![[0u8; 16]; count];
    let bytes = uuids.as_flattened_mut();
    if bytes.len() > POOL_BYTES {
        fill(bytes);
    } else {
        POOL.with_borrow_mut(|pool| {
            if POOL_BYTES - pool.used < bytes.len() {
                fill(&mut pool.bytes);
                pool.used = 0;
            }
            let taken = &mut pool.bytes[pool.used..pool.used + bytes.len()];
            bytes.copy_from_slice(taken);
            taken.fill(0);
            pool.used += bytes.len();
        });
    }
    for uuid in &mut uuids {
        uuid[6] = (uuid[6] & 0x0f) | 0x40;
        uuid[8] = (uuid[8] & 0x3f) | 0x80;
    }
    uuids
}
