//! What the gate is asked about, and its word on it.

use serde_json::{Map, Value, json};

use super::envelope::CallAnswer;
use crate::domain::approval::NamedFile;
use crate::domain::denied_files::DeniedFiles;
use crate::domain::judged_paths::JudgedPaths;
use crate::domain::message::ToolCall;

/// Which proposals a reply may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Tools and report.
    Open,
    /// Only the report.
    Final,
    /// The reply came after a stop request, so only the report counts (D38).
    Stopping,
}

/// One call of a reply with its arguments read.
#[derive(Debug, Clone, PartialEq)]
pub struct Proposal {
    /// As the model wrote it.
    pub call: ToolCall,
    /// Arguments, or why they cannot be read.
    pub arguments: Result<Map<String, Value>, String>,
    /// The checked content of a report call. It is checked before anything runs.
    pub report: ReportCall,
}

/// Whether a call brings the session's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportCall {
    /// It is another call.
    No,
    /// It is the first valid report of the reply.
    Captured,
    /// It is a report, but not a valid one.
    Invalid(String),
    /// It comes after the report was captured.
    TooLate,
}

/// The gate's word on one call.
#[derive(Debug)]
pub enum Ruling {
    /// It may run.
    Run(Box<ReadyCall>),
    /// It may not; the model reads why.
    Answered(CallAnswer),
    /// It is a protocol call that the session itself acts on.
    Protocol,
}

/// The gate's word on a call that stands alone.
#[derive(Debug)]
pub enum SingleRuling {
    /// It may run.
    Run(Box<ReadyCall>),
    /// It cannot run as proposed.
    Refused(CallAnswer),
    /// The policy denies it, softly or hard.
    Denied(CallAnswer),
}

/// The policy's answer to a permission request of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permission {
    /// It may.
    Allowed,
    /// It may not; the reason is for the program.
    Denied(String),
    /// Nothing speaks of it, and what nothing allows is denied.
    NotMentioned,
}

/// A call that may run.
#[derive(Debug)]
pub struct ReadyCall {
    /// As the model wrote it.
    pub call: ToolCall,
    /// After binding.
    pub arguments: Value,
    /// What the loop guard knows it by.
    pub action: String,
    /// Hash of the proposal (P-035).
    pub proposal_hash: String,
    /// Unicode scalars of the serialised arguments.
    pub characters_in: u64,
    /// The files that it must not show.
    pub denied_files: DeniedFiles,
    /// The paths that it was allowed for.
    pub judged_paths: JudgedPaths,
    /// Whether a person approved it.
    pub approved: bool,
    /// The files that its command named then; `None` = nothing was looked at.
    pub approved_files: Option<Vec<NamedFile>>,
}

/// Facts of a write that a person approved, and that a server's tool or an agent program does: it does not say what stands there then.
pub fn untold_write(path: &str) -> Value {
    json!({ "path": path, "untold": true })
}

/// What the gate says to a handoff.
#[derive(Debug, Clone, PartialEq)]
pub enum HandoffRuling {
    /// The flow may go there.
    Accepted(CallAnswer),
    /// It is denied softly, and the flow may choose another way.
    Denied(CallAnswer),
}
