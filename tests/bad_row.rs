//! bad_row
