//! A world for sessions: a model that reads from a script, tools that count, a journal in memory, tokio's test clock.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use agentd::definition::policy_file::{PolicySource, read_policies};
use agentd::domain::budget::{Budgets, Spend};
use agentd::domain::issue::IssueKey;
use agentd::domain::message::{Message, ToolCall};
use agentd::domain::model_target::{LoopLimits, ModelTarget, OnFatalError, Price, SessionSettings};
use agentd::domain::policy::PolicyPrincipal;
use agentd::domain::redaction::{KnownSecret, Redactor};
use agentd::domain::report::ReportFormat;
use agentd::domain::run::{Principal, PrincipalSource, RunId};
use agentd::engine::abort::Abort;
use agentd::engine::arguments::Scope;
use agentd::engine::budget::Meter;
use agentd::engine::clock::RunClock;
use agentd::engine::envelope::CallAnswer;
use agentd::engine::journal::Journal;
use agentd::engine::model::Model;
use agentd::engine::pacing::Backoff;
use agentd::engine::policy::Policy;
use agentd::engine::queue::Queues;
use agentd::engine::report::ReportShape;
use agentd::engine::ruling::HandoffRuling;
use agentd::engine::session::{PromptIdentity, SessionMode, SessionRequest, SessionWorld, run_session};
use agentd::engine::session_trace::{SessionIds, SessionTrace};
use agentd::engine::shared_cap::SharedCap;
use agentd::engine::shared_caps::SharedCaps;
use agentd::engine::single_call::{SingleCall, call_tool};
use agentd::engine::stop::StopHandle;
use agentd::engine::tool::{CallLimits, Tool};
use agentd::engine::tool_catalog::ToolCatalogs;
use agentd::engine::tool_schema::ArgumentSchemas;
use agentd::engine::touched::Touched;
use chrono::DateTime;
use serde_json::{Value, json};
use tokio::time::Instant;
use uuid::Uuid;

pub use super::parts::{Does, TestTool, VecJournal};
pub use super::ran::{Ran, failed, roles, tool_of};
pub use super::scripted::{
    Line, ScriptedModel, call, calls, dropped, empty, limited, reply, report, report_json, server_error,
    text, think,
};

/// A secret that must never be kept.
pub const SECRET: &str = "s3cr3t-value-of-the-operator";
/// Every tool allowed.
pub const ALLOW_ALL: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";

/// Made once: its patterns take a while to compile.
fn redactor() -> Arc<Redactor> {
    static REDACTOR: LazyLock<Arc<Redactor>> = LazyLock::new(|| {
        let secret = KnownSecret { kind: "operator".to_owned(), value: SECRET.to_owned() };
        Arc::new(Redactor::new([7; 32], vec![secret], &[]).unwrap())
    });
    Arc::clone(&REDACTOR)
}

pub fn target(model: &str) -> ModelTarget {
    ModelTarget {
        provider: "fake".to_owned(),
        model: model.to_owned(),
        context_window: 131_072,
        context_window_buffer: 256,
        max_output_tokens: 16_384,
        temperature: None,
        images: false,
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
    pub caps: SharedCaps,
    pub backoff_first: Duration,
    /// Asked instead of the scripted model.
    pub provider: Option<Arc<dyn Model>>,
    pub stop: Arc<StopHandle>,
    signal: agentd::engine::stop::StopSignal,
    order: Vec<String>,
}

impl World {
    pub fn new(script: Vec<Line>) -> Self {
        let (stop, signal) = StopHandle::new();
        let world = Self {
            model: Arc::new(ScriptedModel::new(script)),
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
                loop_guard: LoopLimits::default(),
                schema_repair_attempts: 2,
                read_page_lines: 500,
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
            caps: SharedCaps::default(),
            backoff_first: Backoff::default().first,
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
            caps: self.caps.clone(),
            stop: self.signal.clone(),
            clock,
            queues: Arc::new(Queues::new(&self.queues, 4)),
            new_remarks: None,
            schemas: ArgumentSchemas::default(),
            tool_catalogs: ToolCatalogs::default(),
            backoff: Backoff { first: self.backoff_first, ..Backoff::default() },
            runtime_version: "0.0.0-test".to_owned(),
            claims: None,
            redaction: None,
            fault_snapshots: false,
            longest_inline: 65_536,
            touched: Touched::default(),
        }
    }

    /// One call outside of a session.
    pub async fn call(&self, name: &str, arguments: &str) -> Result<SingleCall, Abort> {
        let call = ToolCall { id: "c1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() };
        let limits = CallLimits { timeout: Duration::from_secs(5), max_inline_bytes: 12_288 };
        call_tool(self.ids(), self.scope(), call, &self.offered(), limits, &self.session_world()).await
    }

    /// A transition to another step.
    pub async fn hand_off(&self, from: &str, to: &str, payload: &Value) -> Result<CallAnswer, Abort> {
        let world = self.session_world();
        let record =
            SessionTrace::new(world.journal.clone(), world.redactor.clone(), world.clock, self.ids());
        let gate = world.gate(record, self.scope(), &[]).unwrap();
        match gate.handoff(from, to, payload).await? {
            HandoffRuling::Accepted(answer) | HandoffRuling::Denied(answer) => Ok(answer),
        }
    }

    pub fn request(&self) -> SessionRequest {
        SessionRequest {
            ids: self.ids(),
            scope: self.scope(),
            mode: self.mode,
            system: self.system.clone(),
            opening: self.opening.clone().into(),
            aside: self.aside.clone(),
            report: self.report.clone(),
            settings: self.settings.clone(),
            tools: self.offered().into(),
            prompt: PromptIdentity {
                prompt_hash: "p".to_owned(),
                template_hash: "t".to_owned(),
                version: Some("C1/v".to_owned()),
                include_text: self.include_text,
            },
            turn_timeout: self.turn_timeout,
            background: Arc::default(),
        }
    }

    pub async fn run(self) -> Ran {
        let (request, world) = (self.request(), self.session_world());
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

/// A cap on a day's money, kept in a state directory.
pub fn day_cap(state: &std::path::Path, cap: agentd::domain::money::Money) -> SharedCap {
    let state = agentd::store::run_dir::StateDir::new(state.to_owned());
    SharedCap::of_days(Arc::clone(state.store()), cap)
}

/// A run's share of the cap of an issue, kept in a state directory.
pub fn issue_cap(state: &std::path::Path, cap: agentd::domain::money::Money) -> SharedCap {
    let state = agentd::store::run_dir::StateDir::new(state.to_owned());
    let issue = IssueKey::Number(7);
    let repo = agentd::domain::name::RepoName::parse("o/n").unwrap();
    let run_id = RunId(Uuid::new_v4());
    SharedCap::of_issue(Arc::clone(state.store()), (cap, 0.8), (repo, issue), run_id, Default::default())
}
