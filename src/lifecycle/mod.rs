//! One issue from label to pull request, stage by stage. Start with [`pipeline`].

pub mod request;
pub mod plan;
pub mod origin;
pub mod lease;
pub mod extender;
pub mod run_observer;
pub mod stop_request;
pub mod run;
pub mod issue_budget;
pub mod parked;
pub mod taken;
pub mod give_back;
mod said;
mod comment_state;
mod shown_progress;
pub mod budget_extension;
pub mod stage;
pub mod worktree;
pub mod instance;
pub mod steps;
pub mod closure;
pub mod commit;
pub mod verify;
pub mod judge;
pub mod publish;
pub mod seal;
pub mod pipeline;
