//! fair
