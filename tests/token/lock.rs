//! trax lock.
