//! A bounded cache, for keys that callers choose: names of tasks, groups and lanes.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// A map of at most `MOST` entries. Beyond that it is cleared: every entry can be computed again.
pub(crate) struct BoundedCache<K, V, const MOST: usize>(HashMap<K, V>);

impl<K, V, const MOST: usize> Default for BoundedCache<K, V, MOST> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash, V, const MOST: usize> BoundedCache<K, V, MOST> {
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.0.len() >= MOST && !self.0.contains_key(&key) {
            // Frees the memory too.
            self.0 = HashMap::new();
        }
        self.0.insert(key, value);
    }

    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedCache;

    #[test]
    fn the_last_entry_is_there_and_never_more_than_the_most() {
        let mut kept: BoundedCache<String, u32, 3> = BoundedCache::default();
        for n in 0..100 {
            kept.insert(n.to_string(), n);
            assert_eq!(kept.get(&n.to_string()), Some(&n));
            assert!(kept.0.len() <= 3, "{n}");
        }
        kept.insert("99".to_owned(), 1);
        assert_eq!(kept.get("99"), Some(&1));
        kept.remove("99");
        assert_eq!(kept.get("99"), None);
    }
}
