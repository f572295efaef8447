//! Many issues over time: what to start when, what the result was, and why the rest waits. The run pipeline is
//! elsewhere.

mod admission;
mod backoff;
mod bell;
mod board;
mod commands;
mod cron;
mod dispatch;
mod ends;
mod follow;
mod loading;
mod outcome;
mod parts;
mod poll;
mod progress;
mod pulls;
mod recover;
mod reload;
mod rules;
mod schedule;
mod settle;
mod status;
mod supervise;
mod sweep;
mod troubles;
mod watch;
mod why;

pub mod state_format;
pub mod status_format;

pub use admission::Admission;
pub use bell::Bell;
pub use board::{Asked, Board, Facts, Holder, IssueRef, Limits, Poll, Running, Seen, Selection};
pub use cron::{CronError, due, next};
pub use dispatch::{abandons, approves, retires, unfinished, walks};
pub use loading::{DaemonFiles, StateError};
pub use outcome::{Afterwards, RunSummary, afterwards};
pub use parts::{Parts, Reload, Watched};
pub use progress::Progress;
pub use rules::{Outlook, Presence, Reason, Verdict, explain, outlook, refusal};
pub use schedule::{Action, schedule};
pub use supervise::{Abandon, Retire, RunControl, RunRequest, Start, Unfinished};
pub use sweep::Previewed;
pub use watch::{Daemon, DaemonError, DaemonReport};
pub use why::{GatherError, Surroundings, gather};
