//! One issue from label to pull request, stage by stage. Start with [`pipeline`].

// What is asked for, and the run that answers it.
pub mod request;
pub mod earlier_request;
pub mod run;
pub mod run_observer;
pub mod extender;
pub mod stage;
// The stages, in their order, and who goes through them.
pub mod plan;
pub mod origin;
pub mod lease;
pub mod worktree;
pub mod instance;
pub mod steps;
pub mod commit;
pub mod verify;
mod doubts;
pub mod judge;
pub mod publish;
pub mod seal;
pub mod pipeline;
// What several stages use.
mod merged;
mod found_edits;
mod remote_look;
mod shared_work;
mod comment_state;
pub mod closure;
pub mod issue_budget;
// Beside the stages: what people, other nodes and the clock say meanwhile.
mod overtaken;
mod new_remarks;
mod shown_progress;
pub mod budget_extension;
pub mod stop_request;
// What people do with the work between two runs.
pub mod decisions;
pub mod carry_out;
pub mod parked;
pub mod taken;
pub mod beside;
pub mod give_back;
