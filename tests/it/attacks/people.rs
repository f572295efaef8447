//! What people without the right may not start, and what text on GitHub may not do.
