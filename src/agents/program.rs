//! What agentd knows of each agent program: how it is launched, and how its output is read.

use serde_json::Value;

use super::entry::Entry;
use super::events::Signal;
use crate::domain::agent_program::AgentProgram;
use crate::domain::message::TokenUsage;
use crate::engine::agent_output::AgentProgress;
use crate::engine::agent_task::AgentTask;

/// Longest time that a program is to wait for a call of agentd's tools, in seconds; agentd's own limits come first.
pub(super) const CALL_SECONDS: u32 = 3600;
/// Folder of the private home that holds what agentd writes for the program.
const FOLDER: &str = ".agentd";

/// One agent program.
pub(super) trait Program: Sync {
    /// Writes the command line of one launch. The prompt goes by standard input wherever the program reads it there:
    /// arguments are short, and every process of the machine can read them.
    fn command_line(&self, line: &mut CommandLine, context: &LaunchContext<'_>);

    /// What its output is, after what its conversation has counted already.
    fn output_format(&self, before: Before) -> OutputFormat;

    /// Whether it ends without an event that says so: its exit code does.
    fn ends_without_a_word(&self) -> bool {
        false
    }

    /// Whether its counts of tokens are those of its whole conversation.
    fn counts_conversation(&self) -> bool {
        false
    }
}

/// What went before a launch in the conversation that it goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Before {
    /// Its id; `None` = the launch begins a new one.
    pub(super) conversation: Option<String>,
    /// What it has counted.
    pub(super) usage: TokenUsage,
}

/// What the output of a program is.
pub(super) enum OutputFormat {
    /// Its standard output is its answer.
    Answer,
    /// Events, one a line.
    Events(Box<dyn Reader>),
    /// By the Agent Client Protocol.
    Protocol,
}

/// What reads the events of one launch.
pub(super) trait Reader: Send {
    /// Takes one event.
    fn event(&mut self, event: &Value, progress: &AgentProgress) -> Signal;
}

/// Reads one line. A line that is not a JSON object is ignored.
pub(super) fn read_line(reader: &mut dyn Reader, line: &str, progress: &AgentProgress) -> Signal {
    match serde_json::from_str(line) {
        Ok(event @ Value::Object(_)) => reader.event(&event, progress),
        _ => Signal::More,
    }
}

/// What a command line depends on.
pub(super) struct LaunchContext<'a> {
    /// What the definition asks for.
    pub(super) program: &'a AgentProgram,
    /// Whether it may do in its sandbox what it likes.
    pub(super) sandboxed: bool,
    /// What it works on.
    pub(super) task: &'a AgentTask,
    /// How it finds agentd's tools, where they are served.
    pub(super) entry: Option<&'a Entry>,
    /// The value of a variable that it is given: some programs learn of an endpoint by their own settings alone.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
}

impl LaunchContext<'_> {
    /// Whether the definition copies settings of the program's own into its home.
    pub(super) fn has_settings(&self, folder: &str) -> bool {
        self.program.home.iter().any(|named| named.trim_start_matches("~/").starts_with(folder))
    }
}

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
    /// The command line of one launch.
    pub(super) fn of(program: &dyn Program, context: &LaunchContext<'_>) -> Self {
        let mut line = Self { stdin: context.task.prompt.clone(), ..Self::default() };
        program.command_line(&mut line, context);
        line
    }

    /// Adds arguments.
    pub(super) fn add(&mut self, words: &[&str]) {
        self.args.extend(words.iter().map(|word| (*word).to_owned()));
    }

    /// A file of ours below the private home; gives its path.
    pub(super) fn file(&mut self, entry: &Entry, name: &str, content: Value) -> String {
        let below = format!("{FOLDER}/{name}");
        let path = entry.home.join(&below).to_string();
        self.files.push((below, content));
        path
    }
}
