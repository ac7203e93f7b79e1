//! bulk_dead_letter
