//! The port to tools: what a tool is, how it is called, and whom its errors are for.

use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::domain::denied_files::DeniedFiles;
use crate::domain::judged_paths::JudgedPaths;
use crate::domain::message::ToolSpec;
use crate::domain::policy::Risk;

/// A call under way.
pub type ToolCalled<'a> = BoxFuture<'a, Result<ToolOutput, ToolError>>;

/// A tool, built-in, of an MCP server, REST, or an external agent. Only the gate can call it: it alone makes permits.
pub trait Tool: Send + Sync {
    /// How it is offered to models. Fixed for a session.
    fn spec(&self) -> &ToolSpec;

    /// Who provides it, in the words of the ledger: `agentd` for built-in tools, else the name of the server.
    fn source(&self) -> &str {
        "agentd"
    }

    /// What it can do to the world.
    fn risk(&self) -> Risk;

    /// Whether it is known to change nothing anywhere, so that a step that only plans may call it (D78). What a server says
    /// of its own tool is not enough.
    fn only_reads(&self) -> bool {
        self.risk() == Risk::Read
    }

    /// The only file of the worktree that a call with these arguments can change, from the worktree's folder, with links
    /// followed; `None` = it can change others, or it is not known. It is believed of agentd's own tools only.
    fn only_file(&self, _arguments: &Value) -> Option<String> {
        None
    }

    /// Queue it waits in; `None` = the default queue.
    fn queue(&self) -> Option<&str> {
        None
    }

    /// Arguments set by the host after parsing and before schema validation, by name (S-030, S-031, D79).
    fn bound_parameters(&self) -> &[BoundParameter] {
        &[]
    }

    /// The schema for the arguments after binding (S-051). It differs from what models see only where bound parameters
    /// are hidden (C-18).
    fn arguments_schema(&self) -> &Value {
        &self.spec().parameters
    }

    /// Runs the call with arguments that passed the gate. Dropping the future aborts it, its process group included.
    fn call<'a>(&'a self, permit: Permit, arguments: &'a Value, limits: CallLimits) -> ToolCalled<'a>;
}

/// A parameter that the host sets, whatever the model wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundParameter {
    /// `user_id`: the principal's UUID.
    UserId,
    /// `repo`: owner/name.
    Repo,
    /// `issue`: the number.
    Issue,
    /// `branch`: the issue's branch.
    Branch,
    /// `worktree`: the worktree's path relative to the main checkout.
    Worktree,
}

impl BoundParameter {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::UserId, Self::Repo, Self::Issue, Self::Branch, Self::Worktree];
}

/// Proof that the gate let this call through. Only the engine makes one, and a call uses it up.
#[derive(Debug)]
pub struct Permit {
    denied: DeniedFiles,
    judged: JudgedPaths,
}

impl Permit {
    /// Made in one place only.
    pub(in crate::engine) fn for_a_call(denied: DeniedFiles, judged: JudgedPaths) -> Self {
        Self { denied, judged }
    }

    /// The files that the call must not show, whatever folder it names, and the paths that it is allowed for.
    pub fn into_files(self) -> (DeniedFiles, JudgedPaths) {
        (self.denied, self.judged)
    }
}

/// What a call may use.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    /// The call is aborted after this; the gate enforces it too.
    pub timeout: Duration,
    /// Longest inline result in bytes; a tool that pages should stay below (X-032, D77).
    pub max_inline_bytes: u64,
}

/// What a call gave.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    /// Text for the model, before redaction and size cap.
    pub text: String,
    /// Exit code, where a process ran.
    pub exit_code: Option<i32>,
    /// What the record keeps beside the text (command evidence, page position); small.
    pub facts: Option<Value>,
}

impl ToolOutput {
    /// Text and nothing else.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), exit_code: None, facts: None }
    }
}

/// Why a call gave nothing; it says who must hear of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolError {
    /// The call must not run as proposed: an envelope `denied` with this code (`path_outside_worktree`, …).
    #[error("{message}")]
    Refused {
        /// A stable code (P-018).
        code: String,
        /// Fixed reason for the model.
        message: String,
    },
    /// It ran and failed: `(tool failed: message)`; the model may try again.
    #[error("{message}")]
    ForModel {
        /// Class, as S-024's `error_type`: `ToolNotFound`, `ResourceNotFound`, `UnauthorizedAccess`, `Validation`, `ToolExecutionError` or the tool's own.
        error_type: String,
        /// For the model; no secrets, no absolute paths.
        message: String,
    },
    /// It ran longer than its limit: `(tool failed: timeout)`.
    #[error("timeout")]
    Timeout,
    /// The host has no room for what the call writes. That says nothing of the work: the run ends, and is gone on with when there
    /// is room.
    #[error("{0}")]
    NoRoom(String),
    /// The run cannot go on.
    #[error("{0}")]
    Fatal(String),
}

impl ToolError {
    /// A failure of the tool's own kind, for the model.
    pub fn for_model(message: impl Into<String>) -> Self {
        Self::ForModel { error_type: "ToolExecutionError".into(), message: message.into() }
    }
}
