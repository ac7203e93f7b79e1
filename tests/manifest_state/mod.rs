//! When a manifest runs next.

mod dependency;
