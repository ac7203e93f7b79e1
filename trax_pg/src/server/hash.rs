//! Hashes of names.

/// Returns the 64-bit FNV-1a hash over the parts, each ended by a zero byte, with the finalizer of
/// MurmurHash3 so that every bit counts. For places in memory and numbers of locks, which may be
/// shared.
pub(crate) fn name_hash(parts: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::name_hash;

    #[test]
    fn parts_are_distinguished() {
        assert_ne!(name_hash(&["a", "bc"]), name_hash(&["ab", "c"]));
    }
}
