//! Flows through the binary.
