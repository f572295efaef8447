//! Many issues over time: what to start when, what the result was, and why the rest waits. The run pipeline is
//! elsewhere.

mod admission;
mod approved;
mod assigned_run;
mod assignee;
mod assignment_format;
mod backoff;
mod checks;
mod commands;
mod cron;
mod dependencies;
mod dispatch;
mod draining;
mod follow;
mod handing_over;
mod heads;
mod hints;
mod listen;
mod loading;
mod main_loop;
mod money;
mod moves;
mod open_requests;
mod other_definitions;
mod outbox;
mod parked;
mod placement;
mod plan_reactions;
mod plans;
mod pollers;
mod polling;
mod outbox_writer;
mod outcome;
mod own_slots;
mod poll;
mod pulls;
mod recover;
mod reload;
mod requests;
mod rounds;
mod run_progress;
mod schedule;
mod snapshot;
mod start;
mod start_rules;
mod status;
mod store_health;
mod supervise;
mod sweep;
mod taken;
mod told;
mod troubles;
mod waiting;
mod why;

pub mod cluster_status;
pub mod shared_formats;
pub mod state_format;
pub mod status_format;

pub use admission::Admission;
pub use cron::{CronError, due, next};
pub use dependencies::{Dependencies, Reload, Watched};
pub use dispatch::{
    abandons, approved, approves, clean_ups, extends, finds_left, give_backs, starts, takes, takes_as_asked,
    unfinished,
};
pub use hints::Hints;
pub use loading::{DaemonError, DaemonFiles, StateError};
pub use main_loop::{Daemon, DaemonReport};
pub use outcome::{Afterwards, RunSummary, afterwards};
pub use run_progress::{Progress, said};
pub use schedule::{Action, schedule};
pub use snapshot::{
    Asked, Facts, Holder, IssueRef, Limits, Poll, Presence, Running, Seen, Selection, Snapshot,
    WaitsForPerson,
};
pub use start_rules::{Outlook, Reason, Verdict, explain, in_one_sentence, outlook, refusal};
pub use supervise::{
    Abandon, CleanUp, Extend, FindLeft, Gift, Given, RunHandle, Start, StartRequest, UnfinishedRun,
};
pub use sweep::Previewed;
pub use waiting::Waiting;
pub use why::{Surroundings, gather};
