//! The client and its guard.
