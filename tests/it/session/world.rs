//! A world for sessions: a model that reads from a script, tools that count, a journal in memory, tokio's test clock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use agentd::definition::policy_file::{PolicySource, read_policies};
use agentd::domain::budget::{Budgets, Spend};
use agentd::domain::event::Event;
use agentd::domain::issue::IssueKey;
use agentd::domain::message::{Message, TokenUsage, ToolCall, ToolSpec};
use agentd::domain::policy::{PolicyPrincipal, Risk};
use agentd::domain::record::{AccountingEntry, AccountingKind, AccountingStatus, Artifact};
use agentd::domain::redaction::{KnownSecret, Redactor};
use agentd::domain::report::ReportFormat;
use agentd::domain::run::{Principal, PrincipalSource, RunId};
use agentd::domain::target::{OnFatalError, Price, SessionSettings, Target};
use agentd::engine::arguments::Scope;
use agentd::engine::budget::Meter;
use agentd::engine::clock::RunClock;
use agentd::engine::day_cap::DayCap;
use agentd::engine::envelope::Answer;
use agentd::engine::gate::{Gate, HandoffRuling};
use agentd::engine::halt::Halt;
use agentd::engine::journal::{Journal, JournalError};
use agentd::engine::model::{Model, ModelError, ModelErrorClass, ModelReply, ModelRequest, ReplyStop};
use agentd::engine::pacing::Backoff;
use agentd::engine::policy::Policy;
use agentd::engine::queue::Queues;
use agentd::engine::record::{Record, SessionIds};
use agentd::engine::report::ReportShape;
use agentd::engine::session::{
    PromptIdentity, SessionMode, SessionOutcome, SessionRequest, SessionWorld, run_session,
};
use agentd::engine::single_call::{SingleCall, call_tool};
use agentd::engine::stop::StopHandle;
use agentd::engine::tool::{BoundParameter, CallLimits, Permit, Tool, ToolError, ToolOutput};
use chrono::DateTime;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

/// A secret that must never be kept.
pub const SECRET: &str = "s3cr3t-value-of-the-operator";
/// Every tool allowed.
pub const ALLOW_ALL: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";

/// One scripted answer of the model.
#[derive(Debug, Clone)]
pub enum Line {
    Reply(ModelReply),
    Fail(ModelErrorClass, Option<u16>),
    /// Never answers.
    Hang,
    /// Answers after a while.
    Slow(Duration, ModelReply),
    Panic,
    /// Answers what it is asked.
    Answer(fn(&ModelRequest) -> ModelReply),
}

pub fn reply(text: &str, calls: &[(&str, Value)]) -> ModelReply {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let tool_calls = calls
        .iter()
        .map(|(name, arguments)| ToolCall {
            id: format!("call-{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            name: (*name).to_owned(),
            arguments: match arguments {
                Value::String(raw) => raw.clone(),
                other => other.to_string(),
            },
        })
        .collect();
    ModelReply {
        text: text.to_owned(),
        reasoning: None,
        tool_calls,
        stop: ReplyStop::End,
        stop_raw: Some("stop".to_owned()),
        usage: Some(TokenUsage::new(10, 5, 0, 0)),
        cost: None,
        actual_provider: None,
        actual_model: None,
    }
}

pub fn calls(calls: &[(&str, Value)]) -> Line {
    Line::Reply(reply("", calls))
}

pub fn call(name: &str, arguments: Value) -> Line {
    calls(&[(name, arguments)])
}

pub fn text(text: &str) -> Line {
    Line::Reply(reply(text, &[]))
}

pub fn report(content: &str) -> Line {
    call("agent__final_report", json!({ "report_format": "markdown", "content": content }))
}

pub fn report_json(content: Value) -> Line {
    call("agent__final_report", json!({ "report_format": "json", "content_json": content }))
}

pub fn empty() -> Line {
    text("")
}

pub fn think(thought: &str) -> Line {
    Line::Reply(ModelReply { reasoning: Some(json!({ "thought": thought })), ..reply("", &[]) })
}

pub fn limited(retry_after: Option<u64>) -> Line {
    Line::Fail(ModelErrorClass::RateLimited { retry_after: retry_after.map(Duration::from_secs) }, Some(429))
}

pub fn server_error() -> Line {
    Line::Fail(ModelErrorClass::Server, Some(500))
}

pub fn dropped() -> Line {
    Line::Fail(ModelErrorClass::Network, None)
}

/// Reads from its script, the last line again and again; keeps every request with its time.
#[derive(Default)]
pub struct ScriptedModel {
    script: Mutex<VecDeque<Line>>,
    pub seen: Mutex<Vec<(Instant, ModelRequest)>>,
}

impl Model for ScriptedModel {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        self.seen.lock().unwrap().push((Instant::now(), request.clone()));
        check_protocol(request);
        let line = {
            let mut script = self.script.lock().unwrap();
            if script.len() > 1 { script.pop_front() } else { script.front().cloned() }
        };
        Box::pin(async move {
            match line.expect("the script has a line") {
                Line::Reply(reply) => Ok(reply),
                Line::Fail(class, status) => {
                    Err(ModelError { class, message: format!("scripted, key {SECRET}"), status })
                }
                Line::Hang => std::future::pending().await,
                Line::Slow(wait, reply) => {
                    tokio::time::sleep(wait).await;
                    Ok(reply)
                }
                Line::Panic => panic!("scripted panic"),
                Line::Answer(answer) => Ok(answer(request)),
            }
        })
    }
}

/// What every wire demands of a request: each result answers a call, each call is answered, ids are unique.
fn check_protocol(request: &ModelRequest) {
    let mut open: Vec<&str> = Vec::new();
    let mut ever: Vec<&str> = Vec::new();
    for message in &request.messages {
        match message {
            Message::Tool { tool_call_id, .. } => {
                let place = open.iter().position(|id| id == tool_call_id);
                open.remove(place.unwrap_or_else(|| panic!("a result without its call: {tool_call_id}")));
            }
            other => {
                assert!(open.is_empty(), "calls without a result: {open:?}");
                if let Message::Assistant { tool_calls, .. } = other {
                    for call in tool_calls {
                        assert!(!ever.contains(&call.id.as_str()), "the id {} twice", call.id);
                        ever.push(&call.id);
                        open.push(&call.id);
                    }
                }
            }
        }
    }
    assert!(open.is_empty(), "calls without a result: {open:?}");
}

/// A journal in memory.
#[derive(Default)]
pub struct VecJournal {
    pub events: Mutex<Vec<Event>>,
    pub files: Mutex<BTreeMap<String, Vec<u8>>>,
    /// Appends fail from this one on.
    pub fails_at: Mutex<Option<usize>>,
}

impl Journal for VecJournal {
    fn append(&self, event: Event) -> Result<(), JournalError> {
        let mut events = self.events.lock().unwrap();
        if self.fails_at.lock().unwrap().is_some_and(|at| events.len() >= at) {
            return Err(JournalError { path: "events.jsonl".into(), message: "disk full".into() });
        }
        events.push(event);
        Ok(())
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async { Ok(()) })
    }

    fn keep<'a>(&'a self, path: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<Artifact, JournalError>> {
        let artifact = Artifact {
            path: path.to_owned(),
            sha256: agentd::domain::canonical::sha256_hex(&bytes),
            bytes: bytes.len() as u64,
        };
        self.files.lock().unwrap().insert(path.to_owned(), bytes);
        Box::pin(async move { Ok(artifact) })
    }

    fn kept<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Vec<u8>, JournalError>> {
        let found = self.files.lock().unwrap().get(path).cloned();
        Box::pin(async move {
            found.ok_or_else(|| JournalError { path: path.to_owned(), message: "not found".into() })
        })
    }
}

/// What a test tool does.
#[derive(Clone)]
pub enum Does {
    /// Gives its arguments back as text.
    Echo,
    /// Gives the number of its runs.
    Count,
    /// Gives `bytes` bytes.
    Big,
    /// Sleeps `ms` milliseconds.
    Sleep,
    Fails,
    Refuses,
    Panics,
    Leaks,
    /// Says that the run cannot go on.
    Ends,
}

pub struct TestTool {
    spec: ToolSpec,
    does: Does,
    risk: Risk,
    bound: Vec<BoundParameter>,
    queue: Option<String>,
    pub runs: AtomicUsize,
    pub running: AtomicUsize,
    pub most_at_once: AtomicUsize,
    pub received: Mutex<Vec<Value>>,
}

impl TestTool {
    pub fn new(name: &str, does: Does) -> Self {
        Self::with_schema(name, does, json!({ "type": "object" }))
    }

    pub fn with_schema(name: &str, does: Does, parameters: Value) -> Self {
        Self {
            spec: ToolSpec { name: name.to_owned(), description: "A test tool.".to_owned(), parameters },
            does,
            risk: Risk::Write,
            bound: Vec::new(),
            queue: None,
            runs: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            received: Mutex::default(),
        }
    }

    pub fn bound(mut self, bound: &[BoundParameter]) -> Self {
        self.bound = bound.to_vec();
        self
    }

    pub fn queued(mut self, queue: &str) -> Self {
        self.queue = Some(queue.to_owned());
        self
    }

    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    async fn work(&self, arguments: &Value) -> Result<ToolOutput, ToolError> {
        let number = self.runs.fetch_add(1, Ordering::SeqCst) + 1;
        self.received.lock().unwrap().push(arguments.clone());
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        let result = match self.does {
            Does::Echo => Ok(ToolOutput::text(arguments.to_string())),
            Does::Count => Ok(ToolOutput::text(number.to_string())),
            Does::Big => {
                let bytes = usize::try_from(arguments["bytes"].as_u64().unwrap()).unwrap();
                Ok(ToolOutput::text("x".repeat(bytes)))
            }
            Does::Sleep => {
                tokio::time::sleep(Duration::from_millis(arguments["ms"].as_u64().unwrap())).await;
                Ok(ToolOutput::text("slept"))
            }
            Does::Fails => Err(ToolError::for_model("boom")),
            Does::Refuses => Err(ToolError::Refused {
                code: "path_outside_worktree".to_owned(),
                message: "the path is outside the worktree".to_owned(),
            }),
            Does::Panics => panic!("scripted panic"),
            Does::Ends => Err(ToolError::Fatal("the disk is gone".to_owned())),
            Does::Leaks => Ok(ToolOutput::text(format!("token={SECRET}"))),
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

impl Tool for TestTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }
    fn source(&self) -> &str {
        "test"
    }
    fn risk(&self) -> Risk {
        self.risk
    }
    fn queue(&self) -> Option<&str> {
        self.queue.as_deref()
    }
    fn bound_parameters(&self) -> &[BoundParameter] {
        &self.bound
    }
    fn call<'a>(
        &'a self,
        _permit: Permit,
        arguments: &'a Value,
        _limits: CallLimits,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(self.work(arguments))
    }
}

/// Made once: its patterns take a while to compile.
fn redactor() -> Arc<Redactor> {
    static REDACTOR: LazyLock<Arc<Redactor>> = LazyLock::new(|| {
        let secret = KnownSecret { kind: "operator".to_owned(), value: SECRET.to_owned() };
        Arc::new(Redactor::new([7; 32], vec![secret], &[]).unwrap())
    });
    Arc::clone(&REDACTOR)
}

pub fn target(model: &str) -> Target {
    Target {
        provider: "fake".to_owned(),
        model: model.to_owned(),
        context_window: 131_072,
        context_window_buffer: 256,
        max_output_tokens: 16_384,
        temperature: None,
        price: Some(Price { input: 1.0, output: 2.0, cache_read: 0.1, cache_write: 1.25 }),
    }
}

/// A session about to run.
pub struct World {
    pub model: Arc<ScriptedModel>,
    pub journal: Arc<VecJournal>,
    pub tools: BTreeMap<String, Arc<TestTool>>,
    pub settings: SessionSettings,
    pub budgets: Budgets,
    pub policy: String,
    pub mode: SessionMode,
    pub report: ReportShape,
    pub system: String,
    pub opening: Vec<Message>,
    pub queues: BTreeMap<String, usize>,
    pub include_text: bool,
    pub turn_timeout: Option<Duration>,
    pub aside: Option<String>,
    pub day_cap: Option<Arc<DayCap>>,
    /// Asked instead of the scripted model.
    pub provider: Option<Arc<dyn Model>>,
    pub stop: Arc<StopHandle>,
    signal: agentd::engine::stop::StopSignal,
    order: Vec<String>,
}

/// A session that ran.
pub struct Ran {
    pub outcome: SessionOutcome,
    pub events: Vec<Event>,
    pub requests: Vec<ModelRequest>,
    pub times: Vec<Instant>,
    pub files: BTreeMap<String, Vec<u8>>,
    pub tools: BTreeMap<String, Arc<TestTool>>,
    pub took: Duration,
}

impl World {
    pub fn new(script: Vec<Line>) -> Self {
        let (stop, signal) = StopHandle::new();
        let world = Self {
            model: Arc::new(ScriptedModel { script: Mutex::new(script.into()), seen: Mutex::default() }),
            journal: Arc::default(),
            tools: BTreeMap::new(),
            settings: SessionSettings {
                max_turns: 15,
                max_tool_calls_per_turn: 20,
                max_retries: 3,
                llm_timeout: Duration::from_secs(120),
                tool_timeout: Duration::from_secs(60),
                tool_response_max_bytes: 12_288,
                targets: vec![target("m")],
                stream: false,
                on_auth_error: OnFatalError::Fail,
                on_quota: OnFatalError::Fail,
            },
            budgets: Budgets::default(),
            policy: ALLOW_ALL.to_owned(),
            mode: SessionMode::Task,
            report: ReportShape::new(ReportFormat::Markdown, None).unwrap(),
            system: "You resolve issues.".to_owned(),
            opening: vec![Message::User { content: "Fix it.".to_owned() }],
            queues: BTreeMap::new(),
            include_text: false,
            turn_timeout: None,
            aside: None,
            day_cap: None,
            provider: None,
            stop: Arc::new(stop),
            signal,
            order: Vec::new(),
        };
        let number = |name: &str| json!({ "type": "object", "properties": { name: { "type": "integer" } }, "required": [name] });
        world
            .tool(TestTool::new("echo", Does::Echo))
            .tool(TestTool::new("count", Does::Count))
            .tool(TestTool::with_schema("big", Does::Big, number("bytes")))
            .tool(TestTool::with_schema("sleep", Does::Sleep, number("ms")))
            .tool(TestTool::new("fail", Does::Fails))
    }

    pub fn tool(mut self, tool: TestTool) -> Self {
        self.order.push(tool.spec.name.clone());
        self.tools.insert(tool.spec.name.clone(), Arc::new(tool));
        self
    }

    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub fn settings(mut self, change: impl FnOnce(&mut SessionSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    pub fn targets(mut self, models: &[&str]) -> Self {
        self.settings.targets = models.iter().map(|model| target(model)).collect();
        self
    }

    pub fn chat(mut self) -> Self {
        self.mode = SessionMode::Chat;
        self
    }

    pub fn shape(mut self, format: ReportFormat, schema: Option<Value>) -> Self {
        self.report = ReportShape::new(format, schema).unwrap();
        self
    }

    fn ids(&self) -> SessionIds {
        SessionIds {
            run: RunId(Uuid::from_u128(7)),
            session: Uuid::from_u128(8),
            step_id: "initial.issue".to_owned(),
            visit: 1,
            agent: "resolver".to_owned(),
            call_path: "issue-7:initial.issue".to_owned(),
        }
    }

    pub fn scope(&self) -> Scope {
        let principal = Principal::new(PrincipalSource::Local, "1000@host", None);
        Scope {
            principal: PolicyPrincipal::new(&principal, None),
            repo: "o/n".to_owned(),
            issue: IssueKey::Number(7),
            branch: "feature/issue-7".to_owned(),
            worktree: ".worktrees/issue-7".to_owned(),
        }
    }

    fn offered(&self) -> Vec<Arc<dyn Tool>> {
        self.order.iter().map(|name| Arc::clone(&self.tools[name]) as Arc<dyn Tool>).collect()
    }

    pub fn session_world(&self) -> SessionWorld {
        let clock = RunClock::starting(DateTime::from_timestamp_millis(1_700_000_000_000).unwrap());
        let policy = PolicySource { name: "policy.toml".into(), text: self.policy.clone() };
        SessionWorld {
            model: self.provider.clone().unwrap_or_else(|| Arc::clone(&self.model) as Arc<dyn Model>),
            journal: Arc::clone(&self.journal) as Arc<dyn Journal>,
            policy: Arc::new(Policy::new(read_policies(&[policy]).unwrap(), None)),
            redactor: redactor(),
            meter: Arc::new(Meter::new(self.budgets.clone(), Spend::default(), clock)),
            day_cap: self.day_cap.clone(),
            stop: self.signal.clone(),
            clock,
            queues: Arc::new(Queues::new(&self.queues, 4)),
            backoff: Backoff::default(),
            runtime_version: "0.0.0-test".to_owned(),
            claims: None,
        }
    }

    /// One call outside of a session.
    pub async fn call(&self, name: &str, arguments: &str) -> Result<SingleCall, Halt> {
        let call = ToolCall { id: "c1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
        let limits = CallLimits { timeout: Duration::from_secs(5), max_inline_bytes: 12_288 };
        call_tool(self.ids(), self.scope(), call, &self.offered(), limits, &self.session_world()).await
    }

    /// A transition to another step.
    pub async fn hand_off(&self, from: &str, to: &str, payload: &Value) -> Result<Answer, Halt> {
        let world = self.session_world();
        let record = Record::new(world.journal, world.redactor, world.clock, self.ids());
        let gate = Gate::new(world.policy, record, self.scope(), &[], &world.queues).unwrap();
        match gate.handoff(from, to, payload).await? {
            HandoffRuling::Accepted(answer) | HandoffRuling::Denied(answer) => Ok(answer),
        }
    }

    pub async fn run(self) -> Ran {
        let world = self.session_world();
        let request = SessionRequest {
            ids: self.ids(),
            scope: self.scope(),
            mode: self.mode,
            system: self.system.clone(),
            opening: self.opening.clone(),
            aside: self.aside.clone(),
            report: self.report.clone(),
            settings: self.settings.clone(),
            tools: self.offered(),
            prompt: PromptIdentity {
                prompt_hash: "p".to_owned(),
                template_hash: "t".to_owned(),
                version: Some("C1/v".to_owned()),
                include_text: self.include_text,
            },
            turn_timeout: self.turn_timeout,
        };
        let started = Instant::now();
        let outcome = run_session(request, &world).await;
        let took = started.elapsed();
        let seen = std::mem::take(&mut *self.model.seen.lock().unwrap());
        let (times, requests) = seen.into_iter().unzip();
        let ran = Ran {
            outcome,
            events: self.journal.events.lock().unwrap().clone(),
            requests,
            times,
            files: self.journal.files.lock().unwrap().clone(),
            tools: self.tools,
            took,
        };
        ran.check_invariants(&self.settings, self.provider.is_none());
        ran
    }
}

impl Ran {
    /// What holds after every session, whatever happened.
    fn check_invariants(&self, settings: &SessionSettings, scripted: bool) {
        let record = serde_json::to_string(&self.events).unwrap();
        assert!(!record.contains(SECRET), "the secret is in the journal");
        for (path, bytes) in &self.files {
            assert!(!String::from_utf8_lossy(bytes).contains(SECRET), "the secret is in {path}");
        }
        let lost =
            self.outcome.failure.as_ref().is_some_and(|failure| failure.error_name == "OutputWriteFailed");
        if lost {
            return;
        }
        if scripted {
            assert_eq!(self.llm_lines().len(), self.requests.len(), "A-072: one line per request");
        }
        let runs: usize = self.tools.values().map(|tool| tool.runs()).sum();
        let refusals = self
            .tools
            .values()
            .filter(|tool| matches!(tool.does, Does::Refuses))
            .map(|tool| tool.runs())
            .sum::<usize>();
        let lines = self.tool_lines().iter().filter(|entry| tool_of(entry).0 == "test").count();
        assert_eq!(lines, runs - refusals, "A-077: one line per execution");
        assert!(self.outcome.turns <= settings.max_turns, "A-001");
        let report = &self.outcome.report;
        assert!(report.content.is_some() != report.content_json.is_some(), "A-061: one payload");
        for event in &self.events {
            if let Event::LlmRequestPrepared(p) = event {
                assert_eq!(p.expected_tokens, p.ctx_tokens + p.new_tokens + p.schema_ctx_tokens, "A-014");
            }
            if let Event::ContextGuard(g) = event {
                assert_eq!(g.projected, g.current + g.pending + g.new + g.schema, "A-017");
            }
        }
    }

    pub fn llm_lines(&self) -> Vec<&AccountingEntry> {
        self.lines().into_iter().filter(|entry| matches!(entry.what, AccountingKind::Llm { .. })).collect()
    }

    pub fn tool_lines(&self) -> Vec<&AccountingEntry> {
        self.lines().into_iter().filter(|entry| matches!(entry.what, AccountingKind::Tool { .. })).collect()
    }

    fn lines(&self) -> Vec<&AccountingEntry> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::LlmAttempted { entry } | Event::ToolFinished { entry } => Some(&**entry),
                _ => None,
            })
            .collect()
    }

    /// Models asked, in order.
    pub fn models(&self) -> Vec<&str> {
        self.requests.iter().map(|request| request.target.model.as_str()).collect()
    }

    /// Names of the tools offered in a request, 1-based.
    pub fn offered(&self, request: usize) -> Vec<&str> {
        self.requests[request - 1].tools.iter().map(|tool| tool.name.as_str()).collect()
    }

    /// Contents of the tool messages in a request, 1-based.
    pub fn results(&self, request: usize) -> Vec<&str> {
        self.requests[request - 1]
            .messages
            .iter()
            .filter_map(|message| match message {
                Message::Tool { content, .. } => Some(content.as_str()),
                _ => None,
            })
            .collect()
    }

    /// Words for the messages' roles in a request, 1-based: S, U, A, T.
    pub fn roles(&self, request: usize) -> String {
        roles(&self.requests[request - 1].messages)
    }

    pub fn gap(&self, request: usize) -> Duration {
        self.times[request] - self.times[request - 1]
    }

    pub fn detail(&self) -> &'static str {
        self.outcome.stop().detail.as_str()
    }

    pub fn content(&self) -> &str {
        self.outcome.report.content.as_deref().unwrap_or_default()
    }

    pub fn runs(&self, tool: &str) -> usize {
        self.tools[tool].runs()
    }

    pub fn conversation(&self) -> Value {
        let path = &self.outcome.conversation.as_ref().unwrap().path;
        serde_json::from_slice(&self.files[path]).unwrap()
    }

    pub fn metadata(&self) -> Value {
        Value::Object(self.outcome.report.metadata.clone().unwrap())
    }
}

/// Source and command of a tool line.
pub fn tool_of(entry: &AccountingEntry) -> (&str, &str) {
    match &entry.what {
        AccountingKind::Tool { mcp_server, command, .. } => (mcp_server, command),
        AccountingKind::Llm { .. } => panic!("not a tool line"),
    }
}

pub fn failed(entry: &AccountingEntry) -> bool {
    entry.status == AccountingStatus::Failed
}

pub fn roles(messages: &[Message]) -> String {
    messages
        .iter()
        .map(|message| match message {
            Message::System { .. } => 'S',
            Message::User { .. } => 'U',
            Message::Assistant { .. } => 'A',
            Message::Tool { .. } => 'T',
        })
        .collect()
}
