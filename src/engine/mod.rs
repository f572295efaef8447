//! One run of one flow, seeing the outside through three traits: Model, Tool and Journal.

pub mod model;
pub mod tool;
pub mod journal;
pub mod policy_program;
pub mod policy;
