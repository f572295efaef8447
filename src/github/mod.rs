//! GitHub: reads that cost nothing while nothing changes, and effects that are safe to repeat.

mod account;
mod attachments;
mod auth;
mod breaker;
mod checks;
mod checks_wire;
mod client;
mod clipped_body;
mod comments;
mod dependencies;
mod discussion;
mod endpoint;
mod error;
mod fields;
mod graphql;
mod graphql_wire;
mod heard;
mod heard_wire;
mod pace;
mod issues;
mod job_log;
mod labels;
mod listing;
mod memory;
mod people;
mod permissions;
mod projects;
mod pull_state;
mod pull_words;
mod pulls;
mod repositories;
mod remark_wire;
mod remarks;
mod request;
mod silence;
mod rest_wire;
mod text_history;
mod threads;
mod time_outs;
mod text_history_wire;

pub mod listing_format;

pub use account::{Actor, Association, Viewer};
pub use attachments::{Rendered, TextOf};
pub use auth::GitToken;
pub use breaker::{BreakerState, Budget, read_limits};
pub use checks::{Annotation, CheckedHead, HEADS_AT_ONCE, HeadState, Job, Step};
pub use client::{Client, Settings};
pub use comments::{Comment, Reaction};
pub use dependencies::Dependency;
pub use discussion::{IssueLinks, LinkedIssue, ReviewThread};
pub use endpoint::Endpoint;
pub use error::{Error, ErrorKind};
pub use fields::field_named;
pub use heard::{From, Listed, Page, Present, Written};
pub use issues::{Fetched, Labelling};
pub use job_log::{JobLog, NoLog, Opened};
pub use listing::Listing;
pub use listing_format::{FieldValue, IssueSnapshot, PageCache};
pub use permissions::Right;
pub use pull_state::PullState;
pub use pulls::{OpenPulls, Pull, PullSpec};
pub use remarks::Bounded;
pub use repositories::Repository;
pub use text_history::{Edit, Rename, TextHistory};

/// What a find-or-create did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ensured {
    /// It was not there.
    Created,
    /// It was there and differed.
    Updated,
    /// It was there as wanted; nothing was written.
    Unchanged,
}
