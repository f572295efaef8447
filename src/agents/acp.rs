//! The Agent Client Protocol: one session, one prompt, over lines of JSON-RPC; permissions are asked of the gate.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::process::ChildStdin;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::acp_requests::{Asked, ReportedCalls};
use super::entry::Entry;
use super::events::{count, dollars, text};
use super::launch::{AgentError, LAST_MOMENT, Launch, last_line, last_words, read_whole};
use super::lines::{Line, Lines};
use super::permission_request;
use super::program::{Before, CommandLine, LaunchContext, OutputFormat, Program};
use crate::domain::agent_program::{AgentProgram, Backend, Permissions};
use crate::domain::call_text::one_line;
use crate::domain::message::TokenUsage;
use crate::domain::money::Money;
use crate::engine::agent_task::AgentTask;
use crate::engine::agent_tools::PermissionRequest;
use crate::engine::ruling::Permission;
use crate::sys::json_lines;
use crate::sys::paths::AbsPath;
use crate::sys::process::{self, Piped, ProcessSpec};

/// The version of the protocol that is spoken.
const VERSION: u64 = 1;
/// Numbers of agentd's requests.
const INITIALIZE: u64 = 1;
const NEW_SESSION: u64 = 2;
const PROMPT: u64 = 3;
const LOAD_SESSION: u64 = 4;
const AUTHENTICATE: u64 = 5;
/// The error of a program that wants to be authenticated first.
const AUTH_REQUIRED: i64 = -32000;
/// Messages that may wait for a program that does not read.
const WAITING: usize = 64;

/// Lines in a row that may be no messages: a banner, a warning of its runtime, a bar of progress.
const MOST_ODD_LINES: u32 = 10_000;
/// Characters of such a line that an error quotes.
const LONGEST_QUOTE: usize = 300;

/// The protocol's programs.
pub(super) struct Acp;

impl Program for Acp {
    /// A session learns of the tools when it is made.
    fn command_line(&self, _line: &mut CommandLine, _context: &LaunchContext<'_>) {}

    fn output_format(&self, _before: Before) -> OutputFormat {
        OutputFormat::Protocol
    }
}

/// Whether a message ends the conversation.
enum Next {
    More,
    Done,
}

/// One conversation.
struct Conversation<'a> {
    launch: &'a Launch,
    task: &'a AgentTask,
    entry: Option<&'a Entry>,
    out: mpsc::Sender<String>,
    /// The request that waits for its answer; it has one at a time.
    waiting: u64,
    /// How it can be authenticated, as it output.
    methods: Vec<Value>,
    /// Whether it has been.
    authenticated: bool,
    /// Whether the session is one that it has loaded: then it knows the task.
    loaded: bool,
    session: String,
    /// What the session had cost when it was loaded.
    paid: Money,
    after_tool: bool,
    /// The last calls that it reported.
    calls: ReportedCalls,
    /// Whether it has said a message.
    spoken: bool,
    /// The first line that was none, and how many there were since its last message.
    odd_line: Option<String>,
    odd_lines: u32,
}

impl Launch {
    /// Connections to a program until it has answered the prompt. Dropping the future ends it with everything it started.
    pub(super) async fn converse(
        &self,
        spec: ProcessSpec,
        task: &AgentTask,
        entry: Option<&Entry>,
    ) -> Result<Option<i32>, AgentError> {
        let Piped { stdin, stdout, stderr, mut guard } =
            process::spawn_piped(spec).await.map_err(|error| AgentError::NotStarted(error.to_string()))?;
        let (out, inbox) = mpsc::channel(WAITING);
        let writer = tokio::spawn(write(stdin, inbox));
        let errors = tokio::spawn(last_words(stderr));
        let mut lines = Lines::new(BufReader::new(stdout));
        let mut conversation = Conversation::new(self, task, entry, out);
        conversation.say(&json!({"jsonrpc": "2.0", "id": INITIALIZE, "method": "initialize", "params": {
            "protocolVersion": VERSION,
            "clientCapabilities": {"fs": {"readTextFile": false, "writeTextFile": false}, "terminal": false},
            "clientInfo": {"name": "agentd", "title": "agentd", "version": env!("CARGO_PKG_VERSION")},
        }}))?;
        let (mut silence_ends, mut has_ended) = (Instant::now() + self.program.stall_limit, false);
        let ended = loop {
            let line = tokio::select! {
                biased;
                () = task.cancel.cancelled() => break Err(AgentError::Cancelled),
                line = lines.next() => line,
                // What it started may hold its output open: it is read for another moment, not until the stall limit.
                _ = guard.wait(), if !has_ended => {
                    has_ended = true;
                    silence_ends = silence_ends.min(Instant::now() + LAST_MOMENT);
                    continue;
                }
                () = tokio::time::sleep_until(silence_ends) => match has_ended {
                    true => Ok(Line::End),
                    false => break Err(AgentError::Stalled(self.program.stall_limit)),
                },
            };
            match line {
                Ok(Line::Text(line)) if line.trim().is_empty() => {}
                Ok(Line::Text(line)) => {
                    if !has_ended {
                        silence_ends = Instant::now() + self.program.stall_limit;
                    }
                    match conversation.message(&line).await {
                        Ok(Next::More) => {}
                        Ok(Next::Done) => break Ok(()),
                        Err(error) => break Err(error),
                    }
                }
                Ok(Line::Flood) => break Err(AgentError::Flood),
                Ok(Line::End) | Err(_) => {
                    break Err(AgentError::Ended { how: String::new(), last: String::new() });
                }
            }
        };
        let instead = conversation.said_instead();
        drop(conversation);
        let status = match &ended {
            // Its input is closed, and it has a moment to end. A program that closed its output has the same.
            Ok(()) | Err(AgentError::Ended { .. }) => {
                match tokio::time::timeout(LAST_MOMENT, guard.wait()).await {
                    Ok(status) => status,
                    Err(_) => guard.stop().await,
                }
            }
            Err(_) => guard.stop().await,
        };
        writer.abort();
        let code = status.and_then(|status| status.code());
        match ended {
            Ok(()) => Ok(code),
            Err(AgentError::Ended { .. }) => {
                let words = tokio::time::timeout(Duration::from_secs(1), errors).await;
                let mut last = last_line(&words.ok().and_then(Result::ok).unwrap_or_default());
                if let Some(instead) = instead {
                    last = format!("{last}; {instead}");
                }
                Err(AgentError::Ended {
                    how: format!(
                        "in the middle{}",
                        code.map_or_else(String::new, |code| format!(", with exit code {code}"))
                    ),
                    last,
                })
            }
            Err(AgentError::Stalled(limit)) if let Some(instead) = instead => {
                Err(AgentError::Itself(format!("{instead}, and then nothing for {} s", limit.as_secs())))
            }
            Err(error) => Err(error),
        }
    }
}

impl<'a> Conversation<'a> {
    fn new(
        launch: &'a Launch,
        task: &'a AgentTask,
        entry: Option<&'a Entry>,
        out: mpsc::Sender<String>,
    ) -> Self {
        Self {
            launch,
            task,
            entry,
            out,
            waiting: INITIALIZE,
            methods: Vec::new(),
            authenticated: false,
            loaded: false,
            session: String::new(),
            paid: Money::ZERO,
            after_tool: false,
            calls: ReportedCalls::new(entry.map(|_| task.tools.tools().to_vec()).unwrap_or_default()),
            spoken: false,
            odd_line: None,
            odd_lines: 0,
        }
    }

    fn say(&self, message: &Value) -> Result<(), AgentError> {
        let broken = |_| AgentError::Itself("it does not read what it is told".to_owned());
        self.out.try_send(format!("{message}\n")).map_err(broken)
    }

    async fn message(&mut self, line: &str) -> Result<Next, AgentError> {
        let broken = |what: &str| Err(AgentError::Itself(format!("it broke the protocol: {what}")));
        let Some(message) = message_of(line) else { return self.pass_over(line) };
        (self.spoken, self.odd_lines) = (true, 0);
        let id = message.get("id").filter(|id| !id.is_null());
        match (text(&message, "/method"), id) {
            (Some(method), Some(id)) => self.asked(&method, id.clone(), &message).await.map(|()| Next::More),
            (Some(method), None) => {
                // What comes before the prompt is the past of a session that was loaded.
                if method == "session/update" && self.waiting == PROMPT {
                    self.update(&message);
                    read_whole(&self.task.progress)?;
                }
                Ok(Next::More)
            }
            (None, Some(id)) if id.as_u64() == Some(self.waiting) => match message.get("result") {
                Some(result) => self.answered(result),
                None if self.waiting == NEW_SESSION
                    && !self.authenticated
                    && message.pointer("/error/code").and_then(Value::as_i64) == Some(AUTH_REQUIRED) =>
                {
                    self.authenticate()
                }
                None => Err(AgentError::Itself(format!("it refused: {}", refusal(&message)))),
            },
            (None, Some(_)) => broken("it answers what nobody asked"),
            (None, None) => broken("a message has neither method nor id"),
        }
    }

    /// A line that is no message: programs write other things there, too.
    fn pass_over(&mut self, line: &str) -> Result<Next, AgentError> {
        let quoted = || one_line(line, LONGEST_QUOTE);
        self.odd_line.get_or_insert_with(quoted);
        self.odd_lines += 1;
        if self.odd_lines < MOST_ODD_LINES {
            return Ok(Next::More);
        }
        Err(AgentError::Itself(format!(
            "it broke the protocol: {MOST_ODD_LINES} lines in a row are no messages, the last one \"{}\"",
            quoted()
        )))
    }

    /// What it wrote, where that was no message at all.
    fn said_instead(&self) -> Option<String> {
        let line = self.odd_line.as_ref().filter(|_| !self.spoken)?;
        Some(format!("it wrote \"{line}\" instead of a message of the protocol"))
    }

    fn answered(&mut self, result: &Value) -> Result<Next, AgentError> {
        match self.waiting {
            INITIALIZE => {
                if result.get("protocolVersion").and_then(Value::as_u64) != Some(VERSION) {
                    let spoken = result.get("protocolVersion").cloned().unwrap_or_default();
                    return Err(AgentError::Itself(format!(
                        "it speaks version {spoken} of the protocol, not {VERSION}"
                    )));
                }
                self.methods = result["authMethods"].as_array().cloned().unwrap_or_default();
                let servers: Vec<Value> = self.entry.iter().map(|entry| server(entry)).collect();
                let loads = result.pointer("/agentCapabilities/loadSession").and_then(Value::as_bool);
                if let (Some(session), Some(true)) = (self.task.resume.clone(), loads) {
                    let params = json!({"sessionId": session, "cwd": self.launch.cwd.to_string(), "mcpServers": servers});
                    let paid = self.all_paid().get(&session).copied();
                    self.paid = paid.unwrap_or_default();
                    self.session = session;
                    self.loaded = true;
                    return self.ask(LOAD_SESSION, "session/load", params);
                }
                self.new_session()
            }
            AUTHENTICATE => self.new_session(),
            NEW_SESSION => {
                let Some(session) = text(result, "/sessionId") else {
                    return Err(AgentError::Itself(
                        "it broke the protocol: a new session has no id".to_owned(),
                    ));
                };
                self.session = session;
                self.prompt()
            }
            LOAD_SESSION => self.prompt(),
            _ => {
                self.usage(result);
                match text(result, "/stopReason").as_deref() {
                    Some("end_turn") => Ok(Next::Done),
                    Some(other) => Err(AgentError::Itself(format!("it stopped with \"{other}\""))),
                    None => Err(AgentError::Itself(
                        "it broke the protocol: its answer has no stop reason".to_owned(),
                    )),
                }
            }
        }
    }

    fn new_session(&mut self) -> Result<Next, AgentError> {
        let servers: Vec<Value> = self.entry.iter().map(|entry| server(entry)).collect();
        let params = json!({"cwd": self.launch.cwd.to_string(), "mcpServers": servers});
        self.ask(NEW_SESSION, "session/new", params)
    }

    /// Authenticates with a method whose variables the program has, because nobody can sign in by hand.
    fn authenticate(&mut self) -> Result<Next, AgentError> {
        self.authenticated = true;
        let has = |variable: &str| self.launch.variable(variable).is_some();
        let fits = |method: &&Value| {
            variables(method).iter().any(|all| !all.is_empty() && all.iter().all(|name| has(name)))
        };
        let Some(id) = self.methods.iter().find(fits).and_then(|method| text(method, "/id")) else {
            let names: Vec<String> = self.methods.iter().filter_map(|method| text(method, "/id")).collect();
            return Err(AgentError::Itself(format!(
                "it wants to be authenticated ({}), and none of that works here: give it the variable of a key by \
                 program.endpoints or program.environment, or the files of a login by program.home",
                names.join(", ")
            )));
        };
        self.ask(AUTHENTICATE, "authenticate", json!({"methodId": id}))
    }

    fn prompt(&mut self) -> Result<Next, AgentError> {
        let session = self.session.clone();
        self.task.progress.tell(|output| output.conversation = Some(session.clone()));
        let words = match &self.task.anew {
            Some(anew) if !self.loaded => anew,
            _ => &self.task.prompt,
        };
        let prompt = json!([{"type": "text", "text": words}]);
        self.ask(PROMPT, "session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    fn ask(&mut self, id: u64, method: &str, params: Value) -> Result<Next, AgentError> {
        self.waiting = id;
        self.say(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .map(|()| Next::More)
    }

    /// A request of the program. The gate decides about permissions; other requests are not supported.
    async fn asked(&self, method: &str, id: Value, message: &Value) -> Result<(), AgentError> {
        if method != "session/request_permission" {
            let error = json!({"code": -32601, "message": "not on offer"});
            return self.say(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
        let policy = self.launch.program.permissions == Permissions::Policy;
        let allowed = !policy
            || match self.calls.asked(message) {
                Asked::OwnTool => true,
                Asked::Each(requests) => self.permits(requests).await,
            };
        let wanted: &[&str] = match allowed {
            // The policy answers this one call. A program that is told "always" asks it about no further one.
            true if policy => &["allow_once"],
            true => &["allow_once", "allow_always"],
            false => &["reject_once", "reject_always"],
        };
        let options = message.pointer("/params/options").and_then(Value::as_array);
        let find = |kind: &str| {
            let mut options = options.into_iter().flatten();
            options
                .find(|option| text(option, "/kind").as_deref() == Some(kind))
                .and_then(|option| text(option, "/optionId"))
        };
        let outcome = match wanted.iter().copied().find_map(find) {
            Some(option) => json!({"outcome": "selected", "optionId": option}),
            None => json!({"outcome": "cancelled"}),
        };
        self.say(&json!({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}}))
    }

    async fn permits(&self, requests: Vec<PermissionRequest>) -> bool {
        for request in requests {
            if self.task.tools.permit(request).await != Permission::Allowed {
                return false;
            }
        }
        true
    }

    fn update(&mut self, message: &Value) {
        let call = &message["params"]["update"];
        self.calls.note(call);
        match text(message, "/params/update/sessionUpdate").as_deref() {
            Some("agent_message_chunk") => {
                let fresh = std::mem::take(&mut self.after_tool);
                let words = text(message, "/params/update/content/text").unwrap_or_default();
                self.task.progress.tell(|output| {
                    if fresh {
                        output.text.clear();
                    }
                    output.text.push_str(&words);
                });
            }
            Some("tool_call") => {
                self.after_tool = true;
                self.task.progress.tell(|output| output.turns = output.turns.saturating_add(1));
            }
            Some("usage_update") => {
                // Nobody here knows what another currency is worth.
                let currency = text(message, "/params/update/cost/currency").unwrap_or_default();
                let cost = dollars(message, "/params/update/cost/amount");
                if let Some(cost) = cost.filter(|_| currency.eq_ignore_ascii_case("USD")) {
                    self.costs(cost);
                }
            }
            _ => {}
        }
    }

    /// The program tells what its session has cost, also before it was loaded; a sum does not shrink.
    fn costs(&self, all: Money) {
        let own = if all < self.paid { all } else { all.saturating_sub(self.paid) };
        self.task.progress.tell(|output| output.has_cost(own));
        let mut paid = self.all_paid();
        let known = paid.entry(self.session.clone()).or_default();
        *known = all.max(*known);
    }

    fn all_paid(&self) -> MutexGuard<'_, BTreeMap<String, Money>> {
        self.launch.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tokens, where the program tells them beside its answer.
    fn usage(&self, result: &Value) {
        let places = [
            (
                "/usage/inputTokens",
                "/usage/outputTokens",
                "/usage/cachedReadTokens",
                "/usage/cachedWriteTokens",
            ),
            (
                "/_meta/quota/token_count/input_tokens",
                "/_meta/quota/token_count/output_tokens",
                "/_meta/quota/token_count/cached_input_tokens",
                "/_meta/quota/token_count/cache_write_input_tokens",
            ),
        ];
        let usages = places.map(|(input, output, read, write)| {
            TokenUsage::new(
                count(result, input),
                count(result, output),
                count(result, read),
                count(result, write),
            )
        });
        if let Some(usage) = usages.into_iter().find(|usage| usage.total_tokens > 0) {
            self.task.progress.tell(|output| output.has_used(usage));
        }
    }
}

/// The message of a line; a text in it may have been cut within a character.
fn message_of(line: &str) -> Option<Value> {
    let read = serde_json::from_str::<Value>(line);
    let message = read.or_else(|_| serde_json::from_slice(&json_lines::mended(line.as_bytes()))).ok()?;
    let has = |member: &str| message.get(member).is_some();
    let is_one =
        message.get("method").is_some_and(Value::is_string) || has("id") && (has("result") || has("error"));
    is_one.then_some(message)
}

/// What an error says: its message, and its data whatever that is.
fn refusal(message: &Value) -> String {
    let why = text(message, "/error/message").unwrap_or_else(|| "no reason".to_owned());
    match message.pointer("/error/data") {
        None | Some(Value::Null) => why,
        Some(Value::String(data)) => format!("{why} ({data})"),
        Some(data) => match text(data, "/message").or_else(|| text(data, "/details")) {
            Some(words) => format!("{why} ({words})"),
            None => format!("{why} ({data})"),
        },
    }
}

/// Sets of variables; each one is enough to authenticate. They are listed, or follow from the id.
fn variables(method: &Value) -> Vec<Vec<String>> {
    let listed: Vec<String> =
        method["vars"].as_array().into_iter().flatten().filter_map(|one| text(one, "/name")).collect();
    let id = text(method, "/id").unwrap_or_default();
    let id = id.replace(|c: char| !c.is_ascii_alphanumeric(), "_").to_ascii_uppercase();
    if listed.is_empty() { vec![vec![id.clone()], vec![format!("{id}_API_KEY")]] } else { vec![listed] }
}

/// agentd's own tools, as a session learns of them.
fn server(entry: &Entry) -> Value {
    json!({"name": permission_request::SERVER, "command": entry.agentd, "args": entry.args(), "env": []})
}

/// Reads a conversation of which only the program's side is there.
pub(super) async fn read_output(task: &AgentTask, output: &[u8]) {
    let Ok(cwd) = AbsPath::new("/") else { return };
    let Some(usual) = AgentProgram::usual(Backend::ClaudeCode) else { return };
    let program = AgentProgram { backend: Backend::Acp, permissions: Permissions::Policy, ..usual };
    let launch = Launch {
        program,
        home: cwd.clone(),
        cwd,
        environment: Vec::new(),
        sandbox: None,
        counted: Arc::default(),
        paid: Arc::default(),
    };
    let (out, mut inbox) = mpsc::channel(WAITING);
    let mut conversation = Conversation::new(&launch, task, None, out);
    let mut lines = Lines::new(output);
    while let Ok(Line::Text(line)) = lines.next().await {
        if !line.trim().is_empty() && !matches!(conversation.message(&line).await, Ok(Next::More)) {
            break;
        }
        while inbox.try_recv().is_ok() {}
    }
}

async fn write(mut stdin: ChildStdin, mut inbox: mpsc::Receiver<String>) {
    while let Some(message) = inbox.recv().await {
        if stdin.write_all(message.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_its_data_whatever_that_is() {
        let of = |data: Value| refusal(&json!({"error": {"message": "No", "data": data}}));
        assert_eq!(of(Value::Null), "No");
        assert_eq!(of(json!("because")), "No (because)");
        assert_eq!(of(json!({"details": "no model"})), "No (no model)");
        assert_eq!(of(json!({"code": 7})), "No ({\"code\":7})");
    }

    #[test]
    fn a_way_to_authenticate_says_its_variables_or_is_called_by_them() {
        let listed = json!({"id": "openai-api-key", "vars": [{"name": "OPENAI_API_KEY"}]});
        assert_eq!(variables(&listed), [["OPENAI_API_KEY"]]);
        assert_eq!(
            variables(&json!({"id": "gemini-api-key"})),
            [["GEMINI_API_KEY"], ["GEMINI_API_KEY_API_KEY"]]
        );
        assert_eq!(variables(&json!({"id": "openai"})), [["OPENAI"], ["OPENAI_API_KEY"]]);
    }
}
