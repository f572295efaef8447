//! `runner.agentd.backend` and `program` of a definition: which program works on the steps instead of agentd's session.

use schemars::JsonSchema;
use serde::Deserialize;

use super::diagnostic::Severity;
use super::source::Findings;
use crate::config::duration::Span;
use crate::domain::agent_program::{AgentProgram, Backend, Permissions, STALL_LIMIT};
use crate::domain::egress::Egress;

/// `runner.agentd.program`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProgramFile {
    /// Program and first arguments; needed for `command` and `acp`.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Model to ask for.
    pub model: Option<String>,
    /// Variables of agentd's own environment that the program is given, by name.
    #[serde(default)]
    pub environment: Vec<String>,
    /// Paths below the user's home that are copied into the program's private home.
    #[serde(default)]
    pub home: Vec<String>,
    /// Further paths that it may read.
    #[serde(default)]
    pub readable: Vec<String>,
    /// `auto` (the cage, refused where there is none) or `off`.
    pub sandbox: Option<CageWord>,
    /// `true`, `false` or a list of hosts, such as `example.org`, `*.example.org`, `example.org:8443`.
    pub network: Option<ReachFile>,
    /// Endpoints that it reaches by name, credentials added by agentd: of `sandbox.endpoints` or `providers`.
    #[serde(default)]
    pub endpoints: Vec<String>,
    /// Who answers where the program asks before it does something: `policy` or `cage`.
    pub permissions: Option<PermissionsWord>,
    /// Whether agentd's own tools are served to it over MCP; absent = true.
    pub tools: Option<bool>,
    /// Longest time of one visit, such as `10m`.
    pub time_limit: Option<Span>,
    /// Longest silence, such as `5m`.
    pub stall_limit: Option<Span>,
    /// Most turns of its own in one visit.
    pub max_turns: Option<u32>,
}

/// `runner.agentd.program.sandbox`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words of the format")]
pub enum CageWord {
    Auto,
    Off,
}

/// `runner.agentd.program.permissions`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words of the format")]
pub enum PermissionsWord {
    Policy,
    Cage,
}

/// `runner.agentd.program.network`.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the words of the format")]
pub enum ReachFile {
    All(bool),
    Hosts(Vec<String>),
}

/// The program that works on the steps. What cannot be started as written is an error.
pub(super) fn program(
    backend: Option<&str>,
    file: Option<ProgramFile>,
    findings: &mut Findings<'_>,
) -> Option<AgentProgram> {
    const AT: &str = "/runner/agentd/backend";
    const CODE: &str = "AC-VALID-001";
    let word = backend.unwrap_or("session");
    if word == "session" {
        if file.is_some() {
            let message = "\"program\" is set, but the backend is agentd's own session";
            findings.add(Severity::Error, CODE, AT, message, "name the backend, for example \"command\"");
        }
        return None;
    }
    let Some(backend) = Backend::parse(word) else {
        let known: Vec<&str> = Backend::ALL.into_iter().map(Backend::as_str).collect();
        let message = format!("there is no backend \"{word}\"");
        let fix = format!("write session, {}", known.join(", "));
        findings.add(Severity::Error, CODE, AT, message, fix);
        return None;
    };
    let file = file.unwrap_or_default();
    let mut argv = file.argv;
    if argv.is_empty() {
        match backend.usual_program() {
            Some(usual) => argv.push(usual.to_owned()),
            None => {
                let message = format!("the backend \"{word}\" needs program.argv");
                let fix = "write {\"program\": {\"argv\": [\"name\", \"argument\"]}} beside it";
                findings.add(Severity::Error, CODE, AT, message, fix);
                return None;
            }
        }
    }
    // What a program cannot be told is refused, not left out.
    let unknown = [
        ("model", file.model.is_some() && matches!(backend, Backend::Command | Backend::Acp)),
        ("maxTurns", file.max_turns.is_some() && backend != Backend::ClaudeCode),
        ("stallLimit", file.stall_limit.is_some() && backend == Backend::Command),
        ("permissions", file.permissions.is_some() && !backend.asks()),
    ];
    for (key, _) in unknown.into_iter().filter(|(_, given)| *given) {
        let message = format!("program.{key} means nothing to the backend \"{word}\"");
        findings.add(
            Severity::Error,
            CODE,
            AT,
            message,
            "take it out, or write it as an argument in program.argv",
        );
    }
    let network = match file.network {
        None | Some(ReachFile::All(false)) => Egress::Nothing,
        Some(ReachFile::All(true)) => Egress::Everything,
        Some(ReachFile::Hosts(hosts)) => match Egress::of(hosts.iter().map(String::as_str)) {
            Ok(network) => network,
            Err(bad) => {
                let at = "/runner/agentd/program/network";
                findings.add(
                    Severity::Error,
                    CODE,
                    at,
                    bad.to_string(),
                    "correct the list, or write true or false",
                );
                return None;
            }
        },
    };
    let caged = !matches!(file.sandbox, Some(CageWord::Off));
    if !caged && (matches!(network, Egress::Hosts(_)) || !file.endpoints.is_empty()) {
        let message = "program.network and program.endpoints need the cage, and program.sandbox is \"off\"";
        let fix = "take \"sandbox\": \"off\" out, or the lists";
        findings.add(Severity::Error, CODE, "/runner/agentd/program/sandbox", message, fix);
        return None;
    }
    if file.permissions == Some(PermissionsWord::Cage) && !caged {
        let message =
            "program.permissions is \"cage\", and program.sandbox is \"off\": nothing would hold it";
        findings.add(Severity::Error, CODE, AT, message, "write \"policy\", or take \"sandbox\" out");
    }
    let permissions = match file.permissions {
        Some(PermissionsWord::Policy) => Permissions::Policy,
        Some(PermissionsWord::Cage) => Permissions::Cage,
        None if caged && backend != Backend::Acp => Permissions::Cage,
        None => Permissions::Policy,
    };
    Some(AgentProgram {
        backend,
        argv,
        model: file.model,
        environment: file.environment,
        home: file.home,
        readable: file.readable,
        endpoints: file.endpoints,
        caged,
        permissions,
        tools: file.tools.unwrap_or(true),
        network,
        time_limit: file.time_limit.map(|span| span.0),
        stall_limit: file.stall_limit.map_or(STALL_LIMIT, |span| span.0),
        max_turns: file.max_turns,
    })
}
