//! `[program]` of `agentd.toml`: the agent program for agents whose definition names no backend. Also turns a program
//! that is written there or in a definition into one that can be started.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::duration::Span;
use super::table_file::table;
use crate::domain::agent_program::{AgentProgram, Backend, Permissions, STALL_LIMIT, StepExecutor};
use crate::domain::egress::Egress;

/// The word for agentd's own session in the place of a backend's.
const SESSION: &str = "session";

table! {
    /// `[program]`. The keys are those of `runner.agentd.program` in a definition, and `backend`.
    #[derive(PartialEq)]
    pub struct ProgramTable {
        /// `session` (agentd's own), `claude-code`, `codex`, `gemini`, `opencode`, `acp` or `command`.
        pub backend: String = SESSION.to_owned(),
        /// Program and first arguments; needed for `command` and `acp`.
        pub argv: Vec<String> = Vec::new(),
        /// Model to ask for.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub model: Option<String> = None,
        /// The names of variables of agentd's own environment that the program gets.
        pub environment: Vec<String> = Vec::new(),
        /// Paths below the user's home that are copied into the program's private home.
        pub home: Vec<String> = Vec::new(),
        /// Further paths that it may read.
        pub readable: Vec<String> = Vec::new(),
        /// `auto` (the sandbox; refused if there is none) or `off`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub sandbox: Option<ProgramSandbox> = None,
        /// `true`, `false` or a list of hosts, such as `example.org`, `*.example.org`, `example.org:8443`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub network: Option<ReachFile> = None,
        /// Endpoints that it reaches by name, from `sandbox.endpoints` or `providers`. agentd adds the credentials.
        pub endpoints: Vec<String> = Vec::new(),
        /// Who answers permission requests of the program: the policy, or its sandbox alone.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub permissions: Option<PermissionsWord> = None,
        /// Whether agentd's own tools are served to it over MCP; absent = true.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub tools: Option<bool> = None,
        /// Longest time of one visit, such as `10m`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub time_limit: Option<Span> = None,
        /// Longest silence, such as `5m`.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub stall_limit: Option<Span> = None,
        /// Most turns of its own in one visit.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_turns: Option<u32> = None,
        /// Most requests to models by its endpoints in one visit.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_requests: Option<u32> = None,
        /// The most tokens in one visit, as reported by the replies of its endpoints or by the program.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub max_tokens: Option<u64> = None,
    }
}

/// `program.sandbox`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words of the format")]
pub enum ProgramSandbox {
    Auto,
    Off,
}

/// `program.permissions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words of the format")]
pub enum PermissionsWord {
    Policy,
    #[serde(rename = "cage")]
    Sandbox,
}

/// `program.network`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the words of the format")]
pub enum ReachFile {
    All(bool),
    Hosts(Vec<String>),
}

/// What is wrong with a program as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// Key of [`ProgramTable`].
    pub key: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub fix: String,
}

fn unfit(key: &'static str, message: impl Into<String>, fix: impl Into<String>) -> Unfit {
    Unfit { key, message: message.into(), fix: fix.into() }
}

/// The backend if it is named without further keys. `usual` = the program of a backend without a usual one is named
/// elsewhere.
///
/// # Errors
/// There is no such backend, or its program must be named.
pub fn named(word: &str, is_known: bool) -> Result<StepExecutor, Unfit> {
    if word == SESSION {
        return Ok(StepExecutor::Session);
    }
    let Some(backend) = Backend::parse(word) else {
        let known: Vec<&str> = Backend::ALL.iter().map(|backend| backend.as_str()).collect();
        let message = format!("there is no backend \"{word}\"");
        return Err(unfit("backend", message, format!("write {SESSION}, {}", known.join(", "))));
    };
    if backend.facts().program.is_none() && !is_known {
        return Err(without_argv(backend));
    }
    Ok(StepExecutor::Named(backend))
}

fn without_argv(backend: Backend) -> Unfit {
    let message = format!("the backend \"{}\" needs program.argv", backend.as_str());
    unfit("argv", message, "write program and arguments as argv: [\"name\", \"argument\"]")
}

impl ProgramTable {
    /// The program of `[program]`; `None` = agentd's own session.
    ///
    /// # Errors
    /// What cannot be started as written.
    pub fn configured(&self) -> Result<Option<AgentProgram>, Vec<Unfit>> {
        match named(&self.backend, true).map_err(|problem| vec![problem])? {
            StepExecutor::Session if *self != Self::default() => {
                let message = "[program] is set, but its backend is agentd's own session";
                Err(vec![unfit("backend", message, "name the backend, for example \"claude-code\"")])
            }
            StepExecutor::Session => Ok(None),
            StepExecutor::Named(backend) => self.clone().program(backend).map(Some),
            StepExecutor::Program(program) => Ok(Some(*program)),
        }
    }

    /// The program of that backend as it is written here.
    ///
    /// # Errors
    /// What cannot be started as written. A key that the backend does not use is refused and not ignored.
    pub fn program(self, backend: Backend) -> Result<AgentProgram, Vec<Unfit>> {
        let mut problems = Vec::new();
        let mut argv = self.argv;
        if argv.is_empty() {
            match backend.facts().program {
                Some(usual) => argv.push(usual.to_owned()),
                None => problems.push(without_argv(backend)),
            }
        }
        let facts = backend.facts();
        let meaningless = [
            ("model", self.model.is_some() && !facts.takes_model),
            ("maxTurns", self.max_turns.is_some() && !facts.takes_turn_limit),
            ("stallLimit", self.stall_limit.is_some() && !facts.tells),
            ("permissions", self.permissions.is_some() && facts.asks.is_none()),
        ];
        for (key, _) in meaningless.into_iter().filter(|(_, given)| *given) {
            let message = format!("program.{key} means nothing to the backend \"{}\"", backend.as_str());
            problems.push(unfit(key, message, "take it out, or write it as an argument in argv"));
        }
        // Without endpoints agentd sees no request.
        let unseen = self.endpoints.is_empty();
        for (key, given) in [
            ("maxRequests", self.max_requests.is_some() && unseen),
            ("maxTokens", self.max_tokens.is_some() && unseen && !facts.tells),
        ] {
            if given {
                let message =
                    format!("program.{key} counts what goes by program.endpoints, and there are none");
                problems.push(unfit(
                    key,
                    message,
                    "name the model's provider in `endpoints`, or take it out",
                ));
            }
        }
        let network = match self.network {
            None | Some(ReachFile::All(false)) => Egress::Nothing,
            Some(ReachFile::All(true)) => Egress::Everything,
            Some(ReachFile::Hosts(hosts)) => {
                Egress::of(hosts.iter().map(String::as_str)).unwrap_or_else(|bad| {
                    let fix = "correct the list, or write true or false";
                    problems.push(unfit("network", bad.to_string(), fix));
                    Egress::Nothing
                })
            }
        };
        let sandboxed = !matches!(self.sandbox, Some(ProgramSandbox::Off));
        if !sandboxed && (matches!(network, Egress::Hosts(_)) || !self.endpoints.is_empty()) {
            let message =
                "program.network and program.endpoints need the sandbox, and program.sandbox is \"off\"";
            problems.push(unfit("sandbox", message, "take sandbox = \"off\" out, or the lists"));
        }
        if self.permissions == Some(PermissionsWord::Sandbox) && !sandboxed {
            let message =
                "program.permissions is \"cage\", and program.sandbox is \"off\": nothing would hold it";
            problems.push(unfit("permissions", message, "write \"policy\", or take `sandbox` out"));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let permissions = match self.permissions {
            Some(PermissionsWord::Policy) => Permissions::Policy,
            Some(PermissionsWord::Sandbox) => Permissions::Sandbox,
            None if sandboxed => facts.permissions,
            None => Permissions::Policy,
        };
        Ok(AgentProgram {
            backend,
            argv,
            model: self.model,
            environment: self.environment,
            home: self.home,
            readable: self.readable,
            endpoints: self.endpoints,
            sandboxed,
            permissions,
            tools: self.tools.unwrap_or(true),
            network,
            time_limit: self.time_limit.map(|span| span.0),
            stall_limit: self.stall_limit.map_or(STALL_LIMIT, |span| span.0),
            max_turns: self.max_turns,
            max_requests: self.max_requests,
            max_tokens: self.max_tokens,
        })
    }
}
