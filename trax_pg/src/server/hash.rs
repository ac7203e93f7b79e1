//! Keyed hashes of names.
//!
//! Names come from every role that may enqueue, in any database of the server. No role may be able
//! to find a second name with the hash of another: the key is a secret of this cluster, which no
//! SQL function shows. The key lasts as long as the data directory, and so do the locks of prepared
//! transactions, whose numbers are hashes.
//!
//! The effects of a collision:
//! - Floors compare all 128 bits, as a check value of 63 with the rest of their state.
//! - Two gates with the same index and the same half open each other, or are closed for a second at
//!   most.
//! - Two names of one lock wait for each other, as two calls for one name do.
//! - Of two names of prepared transactions, the end of one may wake no session: workers find its
//!   jobs when they poll.
//! - Of two workers of one session, the second is recorded half a minute late.
//! - A class of tokens has many names on purpose: a waiting session looks for its own.

use crate::server::backend::my_database;
use pgrx::pg_sys;
use std::hash::Hasher;
#[expect(deprecated, reason = "it takes a key, where DefaultHasher does not")]
use std::hash::SipHasher;
use std::sync::OnceLock;

/// Two keys of SipHash-2-4.
type Keys = [(u64, u64); 2];

/// Returns a hash of the parts in this database: 128 bits that only the server can compute. Each
/// half is a 64-bit hash.
pub(crate) fn name_hash(parts: &[&str]) -> u128 {
    keyed(keys(), my_database().to_u32(), parts)
}

/// Returns the lower half, without computing the other.
pub(crate) fn name_hash_64(parts: &[&str]) -> u64 {
    half(keys()[1], my_database().to_u32(), parts)
}

/// Returns the secret of pg_control, which initdb creates for answers to unknown users.
fn keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        // SAFETY: the control file was read when the server started; the secret has 32 bytes.
        let secret = unsafe {
            let nonce = pg_sys::GetMockAuthenticationNonce().cast::<[u64; 4]>();
            nonce.read_unaligned()
        };
        [(secret[0], secret[1]), (secret[2], secret[3])]
    })
}

fn keyed(keys: &Keys, database: u32, parts: &[&str]) -> u128 {
    let [high, low] = keys.map(|key| u128::from(half(key, database, parts)));
    high << 64 | low
}

fn half((first, second): (u64, u64), database: u32, parts: &[&str]) -> u64 {
    #[expect(deprecated, reason = "it takes a key, where DefaultHasher does not")]
    let mut hasher = SipHasher::new_with_keys(first, second);
    hasher.write(&database.to_ne_bytes());
    for part in parts {
        hasher.write(part.as_bytes());
        // No name has a zero byte.
        hasher.write(&[0]);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::keyed;

    const KEYS: [(u64, u64); 2] = [(1, 2), (3, 4)];

    #[test]
    fn parts_databases_and_keys_are_distinguished() {
        let hash = keyed(&KEYS, 5, &["a", "bc"]);
        assert_eq!(hash, keyed(&KEYS, 5, &["a", "bc"]));
        assert_ne!(hash, keyed(&KEYS, 5, &["ab", "c"]));
        assert_ne!(hash, keyed(&KEYS, 6, &["a", "bc"]));
        let other = keyed(&[(1, 2), (3, 5)], 5, &["a", "bc"]);
        assert_eq!(hash >> 64, other >> 64);
        assert_ne!(hash as u64, other as u64);
    }
}
