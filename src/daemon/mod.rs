//! Many issues over time: what to start when, what the result was, and why the rest waits. The run pipeline is
//! elsewhere.

mod admission;
mod approved;
mod backoff;
mod checks;
mod commands;
mod cron;
mod dependencies;
mod dispatch;
mod draining;
mod follow;
mod heads;
mod hints;
mod listen;
mod loading;
mod main_loop;
mod money;
mod outbox;
mod parked;
mod plan_reactions;
mod plans;
mod outbox_writer;
mod outcome;
mod poll;
mod pulls;
mod recover;
mod reload;
mod rounds;
mod run_progress;
mod schedule;
mod snapshot;
mod start;
mod start_rules;
mod status;
mod supervise;
mod sweep;
mod taken;
mod published_status;
mod troubles;
mod why;

pub mod cluster;

pub mod state_format;
pub mod status_format;

pub use admission::Admission;
pub use cluster::Waiting;
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
pub use run_progress::{Progress, shown_line};
pub use schedule::{Action, schedule};
pub use snapshot::{
    Facts, IssueRef, Limits, Lookup, Poll, Presence, Running, SchedulerSnapshot, Seen, Selection,
    WaitsForPerson, WorkedOnBy,
};
pub use start_rules::{Outlook, Reason, Verdict, explain, in_one_sentence, refusal};
pub use supervise::{
    Abandon, CleanUp, Extend, FindLeft, Gift, MoneyGiven, RunHandle, Start, StartRequest, UnfinishedRun,
};
pub use sweep::Previewed;
pub use why::{AskedDaemon, Explanation, LeftCalls, NodeAnswer, OFFERED, Surroundings, gather};
