//! What the benchmarks of the engine share: a model that answers at once, and a session's world on a record in files.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentd::definition::policy_file::{PolicySource, read_policies};
use agentd::domain::budget::{Budgets, Spend};
use agentd::domain::issue::IssueKey;
use agentd::domain::message::{TokenUsage, ToolCall};
use agentd::domain::model_target::{LoopLimits, ModelTarget, OnFatalError, Price, SessionSettings};
use agentd::domain::name::RepoName;
use agentd::domain::policy::PolicyPrincipal;
use agentd::domain::redaction::Redactor;
use agentd::domain::run::{Principal, PrincipalSource, RunId};
use agentd::engine::arguments::Scope;
use agentd::engine::budget::Meter;
use agentd::engine::clock::RunClock;
use agentd::engine::journal::Journal;
use agentd::engine::model::{Model, ModelError, ModelReply, ModelRequest, ReplyStop};
use agentd::engine::pacing::Backoff;
use agentd::engine::policy::Policy;
use agentd::engine::queue::Queues;
use agentd::engine::session::SessionWorld;
use agentd::engine::stop::StopHandle;
use agentd::engine::tool_catalog::ToolCatalogs;
use agentd::engine::tool_schema::ArgumentSchemas;
use agentd::engine::touched::Touched;
use agentd::store::journal_file::FileJournal;
use agentd::store::run_dir::StateDir;
use agentd::sys::clock::Clock;
use futures::future::BoxFuture;
use uuid::Uuid;

/// A policy that allows every tool and every handoff.
pub const ALLOW_ALL: &str = r#"
[[rule]]
id = "tools"
kind = "tool"
name = "*"
effect = "allow"
reason = "bench"

[[rule]]
id = "handoffs"
kind = "handoff"
name = "*"
effect = "allow"
reason = "bench"
"#;

/// A model that takes no time: what it says is a function of what it is asked.
pub struct Instantly<F>(pub F);

impl<F: Fn(&ModelRequest) -> ModelReply + Send + Sync> Model for Instantly<F> {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        let reply = (self.0)(request);
        Box::pin(async move { Ok(reply) })
    }
}

/// A reply of text and calls, whichever is there.
pub fn reply(text: &str, tool_calls: Vec<ToolCall>) -> ModelReply {
    ModelReply {
        text: text.to_owned(),
        reasoning: None,
        tool_calls,
        stop: ReplyStop::End,
        stop_raw: None,
        usage: Some(TokenUsage::new(100, 10, 0, 0)),
        cost: None,
        actual_provider: None,
        actual_model: None,
    }
}

/// One run with its record below `folder`, for any sessions in it.
pub fn run(
    folder: &Path,
    redactor: &Arc<Redactor>,
    model: Arc<dyn Model>,
) -> (Arc<FileJournal>, SessionWorld) {
    let run_id = RunId(Uuid::now_v7());
    let repo = RepoName::parse("o/n").unwrap();
    let dir = StateDir::new(folder.to_owned()).run(&repo, run_id);
    let journal = Arc::new(FileJournal::open(dir, Clock::system(), Arc::clone(redactor)).unwrap());
    let clock = RunClock::starting(Clock::system().now());
    let budgets =
        Budgets { max_steps: 5_000, max_wall_time: Duration::from_secs(3_600), ..Budgets::default() };
    let (_nobody_stops, stop) = StopHandle::new();
    let rules = [PolicySource { name: "policy.toml".into(), text: ALLOW_ALL.into() }];
    let world = SessionWorld {
        model,
        journal: Arc::clone(&journal) as Arc<dyn Journal>,
        policy: Arc::new(Policy::new(read_policies(&rules).unwrap(), None)),
        redactor: Arc::clone(redactor),
        meter: Arc::new(Meter::new(budgets, Spend::default(), clock)),
        stop,
        clock,
        queues: Arc::new(Queues::new(&BTreeMap::new(), 2)),
        schemas: ArgumentSchemas::default(),
        tool_catalogs: ToolCatalogs::default(),
        backoff: Backoff::default(),
        runtime_version: "bench".to_owned(),
        caps: agentd::engine::shared_caps::SharedCaps::default(),
        new_remarks: None,
        claims: None,
        redaction: None,
        fault_snapshots: false,
        longest_inline: 65_536,
        touched: Touched::default(),
    };
    (journal, world)
}

/// A redactor without known secrets: every shape of a key is looked for all the same.
pub fn redactor() -> Arc<Redactor> {
    Arc::new(Redactor::new([7; 32], Vec::new(), &[]).unwrap())
}

/// The local operator, on an issue.
pub fn scope() -> Scope {
    Scope {
        principal: PolicyPrincipal::new(&Principal::new(PrincipalSource::Local, "1000@host", None), None),
        repo: "o/n".to_owned(),
        issue: IssueKey::Number(7),
        branch: "feature/issue-7".to_owned(),
        worktree: ".worktrees/issue-7".to_owned(),
    }
}

/// The defaults, with one target.
pub fn settings() -> SessionSettings {
    SessionSettings {
        max_turns: 15,
        max_tool_calls_per_turn: 20,
        max_retries: 3,
        llm_timeout: Duration::from_secs(120),
        tool_timeout: Duration::from_secs(60),
        tool_response_max_bytes: 12_288,
        targets: vec![ModelTarget {
            provider: "none".to_owned(),
            model: "instant".to_owned(),
            context_window: 131_072,
            context_window_buffer: 256,
            max_output_tokens: 16_384,
            temperature: None,
            images: false,
            price: Some(Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 }),
        }],
        stream: false,
        on_auth_error: OnFatalError::Fail,
        on_quota: OnFatalError::Fail,
        loop_guard: LoopLimits::default(),
        schema_repair_attempts: 2,
        read_page_lines: 500,
    }
}
