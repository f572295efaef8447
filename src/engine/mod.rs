//! One run of one flow. It sees the outside through three traits: Model, Tool and Journal.

// The seams.
pub mod model;
pub mod tool;
pub mod touched;
pub mod tool_schema;
pub use crate::store::journal;
pub mod tool_list;
// What a run shares: time, stop, budgets, queues.
pub mod clock;
pub mod stop;
pub mod budget;
pub mod shared_cap_format;
pub mod shared_cap;
pub mod shared_caps;
pub mod allowance;
pub mod interrupt;
pub mod abort;
pub mod queue;
// The gate.
pub mod redaction_program;
pub mod policy_program;
pub mod policy;
pub mod envelope;
pub mod session_trace;
pub mod arguments;
pub mod loop_guard;
pub mod task_status;
mod plan_gate;
pub mod question;
pub mod report;
pub mod ruling;
mod slack_blocks;
pub mod tool_output;
pub mod nearest_rules;
pub mod new_remarks;
pub mod gate;
pub mod execution;
// The session.
pub mod token_estimate;
mod conversation;
pub mod context_guard;
pub mod tool_catalog;
pub mod pacing;
pub mod reply_validation;
pub mod session;
pub mod session_outcome;
pub mod single_call;
pub mod task_text;
pub mod variables;
pub mod workplace;
pub mod agent_output;
pub mod agent_tools;
pub mod agent_task;
pub mod visit;
mod visits_made;
mod reader;
pub mod outcomes;
pub mod agent_visit;
mod checks;
mod subprocess;
pub mod flow;
mod flow_position;
mod attempt;
mod turn;
mod tool_changes;
mod turn_end;
mod not_done;
