//! The operating system, one file a concern: processes, files, paths, locks, clock, shutdown.
