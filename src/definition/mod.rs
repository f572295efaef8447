//! Agent definitions and policies: read, migrated and checked before any model is called.

pub mod policy_file;
