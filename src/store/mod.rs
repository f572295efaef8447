//! The state directory: run directories, the hash-chained journal and leases.
