//! agentd from outside: the program as a person starts it, against the simulator.
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts the program as a person would, with an environment of its own"
)]

mod aftermath;
pub mod approvals;
mod approved_files;
mod attacks;
mod bad_input;
mod before_a_run;
mod blobless;
mod budgets;
mod cases;
mod denied_files;
mod chat;
mod chat_http;
pub mod desk;
pub mod doctor;
mod ended_daemons;
mod examples;
mod enterprise;
mod commands;
mod confined;
mod contract;
mod crashes;
pub mod daemons;
mod first_hour;
pub mod follow_ups;
pub mod front;
mod front_costs;
mod gate_cases;
mod habits;
pub mod handoffs;
mod host_paths;
mod interruptions;
mod issue_file;
mod kinds;
mod litter;
mod main_job;
mod mapping;
mod origins;
mod outages;
mod one_reply;
mod page;
mod peoples_worktrees;
mod proof;
mod recorded;
mod records;
mod red_verify;
mod replays;
mod texts;
mod tool_lists;
mod tool_calls;
mod reading;
pub mod reload;
mod remotes;
mod session_keys;
mod several;
mod signing;
pub mod solo;
pub mod started;
mod sweeps;
mod unwanted;
mod unwritable_places;
mod what_is_said;
pub mod world;
mod worktrees;
