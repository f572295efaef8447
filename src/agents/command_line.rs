//! What each program gets: its command line, its standard input, and the way to agentd's own tools.

use serde_json::{Value, json};

use super::permission_request::{PERMISSION, SERVER};
use super::tool_bridge::Entry;
use crate::domain::agent_program::{AgentProgram, Backend, Permissions};
use crate::engine::agent_task::AgentTask;

/// Values of the variables that a program is given.
pub(super) type Known<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Longest time that a program is to wait for a call of agentd's tools, in seconds; agentd's own limits come first.
const CALL_SECONDS: u32 = 3600;
/// Folder of the private home that holds what agentd writes for the program.
const FOLDER: &str = ".agentd";

/// What differs from launch to launch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CommandLine {
    /// Arguments after the definition's own.
    pub(super) args: Vec<String>,
    /// Standard input.
    pub(super) stdin: String,
    /// Further variables.
    pub(super) env: Vec<(&'static str, String)>,
    /// Files below the private home, by path.
    pub(super) files: Vec<(String, Value)>,
}

impl CommandLine {
    fn add(&mut self, words: &[&str]) {
        self.args.extend(words.iter().map(|word| (*word).to_owned()));
    }

    /// A file of ours below the private home; gives its path.
    fn file(&mut self, entry: &Entry, name: &str, content: Value) -> String {
        let below = format!("{FOLDER}/{name}");
        let path = entry.home.join(&below).to_string();
        self.files.push((below, content));
        path
    }
}

/// The command line of one launch. The prompt goes by standard input wherever the program reads it there: arguments are
/// short, and every process of the machine can read them. `sandboxed`: it may do in its sandbox what it likes; `entry` = the way to
/// agentd's tools, where they are served; `known` = the value of a variable that it is given: some programs have to be told of
/// an endpoint by their own settings.
pub(super) fn of(
    program: &AgentProgram,
    sandboxed: bool,
    task: &AgentTask,
    entry: Option<&Entry>,
    known: Known<'_>,
) -> CommandLine {
    let mut line = CommandLine { stdin: task.prompt.clone(), ..CommandLine::default() };
    match program.backend {
        Backend::Command => {
            if let Some(entry) = entry {
                line.env.push(("AGENTD_MCP_SOCKET", entry.socket.clone()));
            }
        }
        // A session is told of the tools when it is made.
        Backend::Acp => {}
        Backend::ClaudeCode => claude_code(&mut line, program, task, entry),
        Backend::Codex => codex(&mut line, program, (sandboxed, known), task, entry),
        Backend::Gemini => gemini(&mut line, program, (sandboxed, known), task, entry),
        Backend::OpenCode => opencode(&mut line, program, (sandboxed, known), task, entry),
    }
    line
}

/// Whether the definition copies settings of the program's own into its home.
fn has_settings(program: &AgentProgram, folder: &str) -> bool {
    program.home.iter().any(|named| named.trim_start_matches("~/").starts_with(folder))
}

fn claude_code(line: &mut CommandLine, program: &AgentProgram, task: &AgentTask, entry: Option<&Entry>) {
    line.add(&["-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config"]);
    if let Some(entry) = entry {
        let server = json!({"type": "stdio", "command": entry.agentd, "args": entry.args()});
        let config = json!({"mcpServers": {SERVER: server}});
        let path = line.file(entry, "claude-mcp.json", config);
        line.add(&["--mcp-config", &path, "--allowedTools", &format!("mcp__{SERVER}")]);
        line.env.push(("MCP_TOOL_TIMEOUT", format!("{CALL_SECONDS}000")));
    }
    match (program.permissions, entry) {
        // In the sandbox it may do what it likes.
        (Permissions::Sandbox, _) => line.add(&["--permission-mode", "bypassPermissions"]),
        (Permissions::Policy, Some(_)) => {
            let asked = format!("mcp__{SERVER}__{PERMISSION}");
            line.add(&["--permission-mode", "default", "--permission-prompt-tool", &asked]);
        }
        // Nobody can be asked: what it would ask for is refused.
        (Permissions::Policy, None) => line.add(&["--permission-mode", "default"]),
    }
    if let Some(turns) = program.max_turns {
        line.add(&["--max-turns", &turns.to_string()]);
    }
    if let Some(model) = &program.model {
        line.add(&["--model", model]);
    }
    if let Some(schema) = &task.schema {
        line.add(&["--json-schema", &schema.to_string()]);
    }
    if let Some(resume) = &task.resume {
        line.add(&["--resume", resume]);
    }
}

fn codex(
    line: &mut CommandLine,
    program: &AgentProgram,
    (sandboxed, known): (bool, Known<'_>),
    task: &AgentTask,
    entry: Option<&Entry>,
) {
    line.add(&["exec"]);
    if let Some(resume) = &task.resume {
        line.add(&["resume", resume]);
    }
    line.add(&["--json", "--skip-git-repo-check"]);
    if sandboxed {
        line.add(&["--dangerously-bypass-approvals-and-sandbox"]);
    } else if task.resume.is_none() {
        line.add(&["-s", "workspace-write"]);
    }
    if let Some(entry) = entry {
        // Values are TOML; a JSON text or list of texts is one, too.
        let mut set =
            |key: &str, value: Value| line.add(&["-c", &format!("mcp_servers.{SERVER}.{key}={value}")]);
        set("command", json!(entry.agentd));
        set("args", json!(entry.args()));
        set("tool_timeout_sec", json!(CALL_SECONDS));
        set("default_tools_approval_mode", json!("approve"));
    }
    // Its own provider reads no other address from a variable. Copied settings have their own.
    if let Some(address) = known("OPENAI_BASE_URL").filter(|_| !has_settings(program, ".codex")) {
        line.add(&["-c", &format!("model_provider=\"{SERVER}\"")]);
        let mut set = |key: &str, value: &str| {
            line.add(&["-c", &format!("model_providers.{SERVER}.{key}={}", json!(value))]);
        };
        set("name", SERVER);
        set("base_url", &address);
        set("env_key", "OPENAI_API_KEY");
        set("wire_api", "responses");
    }
    if let Some(model) = &program.model {
        line.add(&["-m", model]);
    }
    line.add(&["-"]);
}

fn gemini(
    line: &mut CommandLine,
    program: &AgentProgram,
    (sandboxed, known): (bool, Known<'_>),
    task: &AgentTask,
    entry: Option<&Entry>,
) {
    let mode = if sandboxed { "yolo" } else { "auto_edit" };
    line.add(&["-o", "stream-json", "--skip-trust", "--approval-mode", mode]);
    if let Some(entry) = entry {
        // Settings of the system go before the user's and are merged with them.
        let server = json!({
            "command": entry.agentd, "args": entry.args(), "trust": true, "timeout": u64::from(CALL_SECONDS) * 1000,
        });
        let mut settings = json!({"mcpServers": {SERVER: server}});
        if known("GEMINI_API_KEY").is_some() && !has_settings(program, ".gemini") {
            settings["security"] = json!({"auth": {"selectedType": "gemini-api-key"}});
        }
        let path = line.file(entry, "gemini-settings.json", settings);
        line.env.push(("GEMINI_CLI_SYSTEM_SETTINGS_PATH", path));
    }
    if let Some(model) = &program.model {
        line.add(&["-m", model]);
    }
    if let Some(resume) = &task.resume {
        line.add(&["--resume", resume]);
    }
    line.add(&["-p", "The task is above."]);
}

fn opencode(
    line: &mut CommandLine,
    program: &AgentProgram,
    (sandboxed, known): (bool, Known<'_>),
    task: &AgentTask,
    entry: Option<&Entry>,
) {
    line.add(&["run", "--format", "json"]);
    if sandboxed {
        line.add(&["--auto"]);
    }
    if let Some(entry) = entry {
        let command: Vec<&str> = [entry.agentd.as_str()].into_iter().chain(entry.args()).collect();
        let timeout = u64::from(CALL_SECONDS) * 1000;
        let server = json!({"type": "local", "command": command, "enabled": true, "timeout": timeout});
        let mut config = json!({"mcp": {SERVER: server}, "permission": {format!("{SERVER}_*"): "allow"}});
        for (provider, variables, below) in [("anthropic", "ANTHROPIC", "/v1"), ("openai", "OPENAI", "")] {
            let key = format!("{{env:{variables}_API_KEY}}");
            let Some(address) = known(&format!("{variables}_BASE_URL")) else { continue };
            let options = json!({"baseURL": format!("{address}{below}"), "apiKey": key});
            config["provider"][provider] = json!({"options": options});
            let model =
                program.model.as_deref().and_then(|model| model.strip_prefix(provider)?.strip_prefix('/'));
            if let Some(model) = model {
                config["provider"][provider]["models"] = json!({model: {}});
            }
        }
        // The user's own settings may come by one of the two ways; they are merged.
        if program.environment.iter().any(|name| name == "OPENCODE_CONFIG") {
            line.env.push(("OPENCODE_CONFIG_CONTENT", config.to_string()));
        } else {
            let path = line.file(entry, "opencode.json", config);
            line.env.push(("OPENCODE_CONFIG", path));
        }
    }
    if let Some(model) = &program.model {
        line.add(&["-m", model]);
    }
    if let Some(resume) = &task.resume {
        line.add(&["-s", resume]);
    }
}
