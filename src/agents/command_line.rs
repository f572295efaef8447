//! What each program is told on its command line, and what it gets on its standard input.

use super::launch::Launch;
use crate::domain::agent_program::Backend;
use crate::engine::agent_visit::AgentTask;

/// Arguments after the definition's own, and the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CommandLine {
    pub(super) args: Vec<String>,
    pub(super) stdin: String,
}

/// The command line of one launch. The prompt goes by standard input wherever the program reads it there: arguments are
/// short, and every process of the machine can read them.
pub(super) fn of(launch: &Launch, task: &AgentTask, caged: bool) -> CommandLine {
    let program = &launch.program;
    let mut args: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    match program.backend {
        Backend::Command | Backend::Acp => {}
        Backend::ClaudeCode => {
            add(&["-p", "--output-format", "stream-json", "--verbose", "--strict-mcp-config"]);
            // In the cage it may do what it likes; without one it edits, and asks for nothing else.
            add(&["--permission-mode", if caged { "bypassPermissions" } else { "acceptEdits" }]);
            if let Some(turns) = program.max_turns {
                add(&["--max-turns", &turns.to_string()]);
            }
            if let Some(model) = &program.model {
                add(&["--model", model]);
            }
            if let Some(schema) = &task.schema {
                add(&["--json-schema", &schema.to_string()]);
            }
            if let Some(resume) = &task.resume {
                add(&["--resume", resume]);
            }
        }
        Backend::Codex => {
            add(&["exec"]);
            if let Some(resume) = &task.resume {
                add(&["resume", resume]);
            }
            add(&["--json", "--skip-git-repo-check"]);
            if caged {
                add(&["--dangerously-bypass-approvals-and-sandbox"]);
            } else if task.resume.is_none() {
                add(&["-s", "workspace-write"]);
            }
            if let Some(model) = &program.model {
                add(&["-m", model]);
            }
            add(&["-"]);
        }
        Backend::Gemini => {
            let mode = if caged { "yolo" } else { "auto_edit" };
            add(&["-o", "stream-json", "--skip-trust", "--approval-mode", mode]);
            if let Some(model) = &program.model {
                add(&["-m", model]);
            }
            if let Some(resume) = &task.resume {
                add(&["--resume", resume]);
            }
            add(&["-p", "The task is above."]);
        }
        Backend::OpenCode => {
            add(&["run", "--format", "json"]);
            if caged {
                add(&["--auto"]);
            }
            if let Some(model) = &program.model {
                add(&["-m", model]);
            }
            if let Some(resume) = &task.resume {
                add(&["-s", resume]);
            }
        }
    }
    CommandLine { args, stdin: task.prompt.clone() }
}
