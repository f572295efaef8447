//! The table of cases.
