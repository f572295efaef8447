//! Nouns and rules, each with one home; no I/O, no async, no logging.

pub mod budget;
pub mod canonical;
pub mod issue;
pub mod mapping;
pub mod message;
pub mod money;
pub mod name;
pub mod origin;
pub mod stop;
pub mod target;
pub mod policy;
pub mod fingerprint;
pub mod record;
pub mod report;
pub mod trace;
pub mod event;
pub mod facts;
pub mod run;
pub mod dot_path;
pub mod intent;
pub mod input_spec;
pub mod output_schema;
pub mod completion;
pub mod flow;
pub mod step_context;
pub mod routing;
