//! Many issues over time: what to start when, what the result was, and why the rest waits. The run pipeline is
//! elsewhere.

// What it is made from, what it keeps, and what it says of itself.
mod dependencies;
mod loading;
mod reload;
mod published_status;
mod status;
mod troubles;
pub mod state_format;
pub mod status_format;
// One look: what is there, what is decided, what starts.
mod look;
mod activity;
mod unread;
mod untold_ends;
mod hints;
mod poll;
mod admission;
mod disk_room;
mod snapshot;
mod start_rules;
mod outlook;
mod schedule;
mod cron;
mod sweep;
mod start;
mod why;
// The runs, and what follows from their ends.
mod dispatch;
mod supervise;
mod draining;
mod still_wanted;
mod run_progress;
mod recover;
mod backoff;
mod outcome;
mod outbox;
mod outbox_writer;
// People: what they write, answer, approve, pay and take over.
mod listen;
mod commands;
mod stopping;
mod parked;
mod plans;
mod plan_reactions;
mod approved;
mod money;
mod pause;
mod taken;
// The pull request: checks, conflicts, and what is answered in a follow-up run.
mod pulls;
mod labelled_pulls;
mod heads;
mod checks;
mod follow;
mod rounds;
// One node among several.
pub mod cluster;
// All of it, in turn.
mod main_loop;

pub use admission::Admission;
pub use cluster::Waiting;
pub use cron::{CronError, due, next};
pub use dependencies::{Dependencies, Reload, Watched};
pub use disk_room::DiskRoom;
pub use dispatch::{
    OpenWith, abandons, approved, approves, besides, clean_ups, denies, ends_calls, extends, finds_left,
    give_backs, runs_of_others, starts, takes, takes_as_asked, unfinished,
};
pub use hints::Hints;
pub use loading::{DaemonError, DaemonFiles, StateError};
pub use main_loop::{Daemon, DaemonReport};
pub use outcome::{Afterwards, RunSummary, afterwards};
pub use outlook::Outlook;
pub use run_progress::{Progress, shown_line};
pub use schedule::{Action, schedule};
pub use snapshot::{
    Facts, IssueRef, Limits, Lookup, Poll, Presence, Running, SchedulerSnapshot, Seen, Selection,
    WaitsForPerson, WorkedOnBy,
};
pub use start_rules::{Reason, Verdict, explain, in_one_sentence, refusal, rule_of_end};
pub use supervise::{
    Abandon, CleanUp, Extend, FindLeft, Gift, MoneyGiven, RunHandle, Start, StartRequest, UnfinishedRun,
};
pub use sweep::{Previewed, WouldBeTaken};
pub use why::{AskedDaemon, Explanation, Left, LeftCalls, NodeAnswer, OFFERED, Surroundings, gather};
