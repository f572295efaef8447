//! Several nodes that share their work: names, documents and the decisions of their protocols.
//!
//! Every decision is a pure function of what was read, of what this node has seen, and of its own monotonic time. It gives the
//! documents to write; who writes them does it on the revisions that were read, all or none, so that of two that decide on the
//! same the second is refused. No decision compares the wall clocks of two hosts. A node's name, its state directory and its
//! process are its own; a session is one life of it, and a term says how often the lease on an issue was taken.

pub mod cells;
pub mod clock_skew;
pub mod configuration;
pub mod control;
pub mod forms;
pub mod lease;
pub mod names;
pub mod assignment;
pub mod outcome;
pub mod person_request;
pub mod poller;
pub mod quota;
pub mod rights;
pub mod run_row;
pub mod session;
