//! How people say which runs they mean: a state, a point in time.

use std::time::Duration;

use chrono::{DateTime, NaiveDate, NaiveTime};
use serde_json::json;

use crate::config::Span;
use crate::domain::facts::RunFacts;
use crate::domain::stop::{Stop, StopDetail, StopReason};
use crate::record::finish::RunState;

/// A point in time as people write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// So long ago.
    Ago(Duration),
    /// Milliseconds since 1970.
    At(i64),
}

/// Reads one.
pub fn since(text: &str) -> Result<Since, String> {
    if let Ok(day) = text.parse::<NaiveDate>() {
        return Ok(Since::At(day.and_time(NaiveTime::MIN).and_utc().timestamp_millis()));
    }
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Ok(Since::At(at.timestamp_millis()));
    }
    let span = text.parse::<Span>().map(|span| Since::Ago(span.0));
    span.map_err(|_| {
        format!("\"{text}\" is no time; write a span such as 24h or 7d, a day such as 2026-11-24, or an RFC 3339 time")
    })
}

impl Since {
    /// In milliseconds since 1970, where `now` is the present.
    pub fn ms(self, now: i64) -> i64 {
        match self {
            Self::Ago(span) => now.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)),
            Self::At(at) => at,
        }
    }
}

/// What a run is, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has not ended.
    Running,
    /// It ended because a person has to approve or answer something.
    Waiting,
    /// It ended with success.
    Achieved,
    /// It ended otherwise.
    Failed,
    /// It ended with this reason.
    Reason(StopReason),
    /// It ended with this detail.
    Detail(StopDetail),
}

/// Reads one.
pub fn state(text: &str) -> Result<State, String> {
    let reason = || serde_json::from_value(json!(text.to_ascii_uppercase())).ok().map(State::Reason);
    let detail = || serde_json::from_value(json!(text.to_ascii_lowercase())).ok().map(State::Detail);
    match text.to_ascii_lowercase().as_str() {
        "running" => Ok(State::Running),
        "waiting" => Ok(State::Waiting),
        "achieved" => Ok(State::Achieved),
        "failed" => Ok(State::Failed),
        _ => reason().or_else(detail).ok_or_else(|| {
            format!("\"{text}\" is no state; there are running, waiting, achieved, failed, and each stop reason and detail")
        }),
    }
}

impl State {
    /// Whether a run is in it.
    pub fn is_of(self, facts: &RunFacts, standing: RunState) -> bool {
        self.is_of_stop(facts.end.as_ref().filter(|_| standing == RunState::Ended), facts.lease.is_some())
    }

    /// The same of a run that has that stop, or none yet; `begun`: whether anything is recorded of it.
    pub fn is_of_stop(self, stop: Option<&Stop>, begun: bool) -> bool {
        let Some(stop) = stop else { return self == Self::Running && begun };
        match self {
            Self::Running => false,
            Self::Waiting => {
                stop.parks()
                    || matches!(stop.detail, StopDetail::ApprovalPending | StopDetail::GuidanceNeeded)
            }
            Self::Achieved => stop.success(),
            Self::Failed => !stop.success(),
            Self::Reason(reason) => stop.reason() == reason,
            Self::Detail(detail) => stop.detail == detail,
        }
    }
}
