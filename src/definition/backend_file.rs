//! `backend` and `program` of a definition, below `runner.agentd` of the agent or `agentd` of a step: what works there.

use schemars::JsonSchema;
use serde::Deserialize;

use super::diagnostic::Severity;
use super::source::Findings;
use crate::config::duration::Span;
use crate::config::program_file::{PermissionsWord, ProgramSandbox, ProgramTable, ReachFile, Unfit, named};
use crate::domain::agent_program::{Backend, StepExecutor};

/// `program`: how the program is started and what it may reach.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgramFile {
    /// Program and first arguments; needed for `command` and `acp`.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Model to ask for.
    pub model: Option<String>,
    /// The names of variables of agentd's own environment that the program gets.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Paths below the user's home that are copied into the program's private home.
    #[serde(default)]
    pub home: Vec<String>,
    /// Further paths that it may read.
    #[serde(default)]
    pub readable: Vec<String>,
    /// `auto` (the sandbox; refused if there is none) or `off`.
    pub sandbox: Option<ProgramSandbox>,
    /// `true`, `false` or a list of hosts, such as `example.org`, `*.example.org`, `example.org:8443`.
    pub network: Option<ReachFile>,
    /// Endpoints that it reaches by name, from `sandbox.endpoints` or `providers`. agentd adds the credentials.
    #[serde(default)]
    pub endpoints: Vec<String>,
    /// Who answers permission requests of the program: the policy, or its sandbox alone.
    pub permissions: Option<PermissionsWord>,
    /// Whether agentd's own tools are served to it over MCP; absent = true.
    pub tools: Option<bool>,
    /// Longest time of one visit, such as `10m`.
    pub time_limit: Option<Span>,
    /// Longest silence, such as `5m`.
    pub stall_limit: Option<Span>,
    /// Most turns of its own in one visit.
    pub max_turns: Option<u32>,
    /// Most requests to models by its endpoints in one visit.
    pub max_requests: Option<u32>,
    /// The most tokens in one visit, as reported by the replies of its endpoints or by the program.
    pub max_tokens: Option<u64>,
}

/// `agentd` of a step.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
pub struct StepAgentdFile {
    /// What works on this step; absent = what the agent says.
    pub backend: Option<String>,
    /// How that program is started and what it may reach. Absent = as the agent or the configuration says.
    pub program: Option<ProgramFile>,
}

impl From<ProgramFile> for ProgramTable {
    fn from(file: ProgramFile) -> Self {
        Self {
            argv: file.argv,
            model: file.model,
            environment: file.environment,
            home: file.home,
            readable: file.readable,
            sandbox: file.sandbox,
            network: file.network,
            endpoints: file.endpoints,
            permissions: file.permissions,
            tools: file.tools,
            time_limit: file.time_limit,
            stall_limit: file.stall_limit,
            max_turns: file.max_turns,
            max_requests: file.max_requests,
            max_tokens: file.max_tokens,
            ..Self::default()
        }
    }
}

/// The backend that `backend` and `program` below `at` name. `None` = neither exists, or they are wrong. `known` = the
/// backend whose program is written elsewhere.
pub(super) fn executor(
    backend: Option<&str>,
    file: Option<ProgramFile>,
    known: Option<Backend>,
    (at, code): (&str, &'static str),
    findings: &mut Findings<'_>,
) -> Option<StepExecutor> {
    let is_known = file.is_some() || known.is_some_and(|known| backend == Some(known.as_str()));
    let read = match (backend, file) {
        (None, None) => return None,
        (None | Some("session"), Some(_)) => Err(vec![Unfit {
            key: "backend",
            message: "\"program\" is set, but the backend is agentd's own session".to_owned(),
            fix: "name the backend, for example \"command\"".to_owned(),
        }]),
        (Some(word), file) => match (named(word, is_known), file) {
            (Ok(StepExecutor::Named(backend)), Some(file)) => {
                ProgramTable::from(file).program(backend).map(|program| StepExecutor::Program(program.into()))
            }
            (read, _) => read.map_err(|problem| vec![problem]),
        },
    };
    read.map_err(|problems| {
        for Unfit { key, message, fix } in problems {
            let below = if key == "backend" { key.to_owned() } else { format!("program/{key}") };
            findings.add(Severity::Error, code, &format!("{at}/{below}"), message, fix);
        }
    })
    .ok()
}
