//! What the flow itself costs: a warm prompt, and a step visit with a model that answers at once, journal included.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a benchmark sets its world up in a temporary folder and fails loudly"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agentd::definition::policy_file::{PolicySource, read_policies};
use agentd::definition::{Loaded, load};
use agentd::domain::budget::{Budgets, Spend};
use agentd::domain::issue::IssueKey;
use agentd::domain::message::{Message, TokenUsage, ToolCall};
use agentd::domain::name::RepoName;
use agentd::domain::policy::PolicyPrincipal;
use agentd::domain::redaction::Redactor;
use agentd::domain::report::ReportFormat;
use agentd::domain::run::{Principal, PrincipalSource, RunId};
use agentd::domain::target::{LoopLimits, OnFatalError, Price, SessionSettings, Target};
use agentd::engine::arguments::Scope;
use agentd::engine::budget::Meter;
use agentd::engine::clock::RunClock;
use agentd::engine::flow::{FlowRun, Progress};
use agentd::engine::journal::Journal;
use agentd::engine::model::{Model, ModelError, ModelReply, ModelRequest, ReplyStop};
use agentd::engine::offer::Offers;
use agentd::engine::pacing::Backoff;
use agentd::engine::policy::Policy;
use agentd::engine::queue::Queues;
use agentd::engine::session::SessionWorld;
use agentd::engine::stop::StopHandle;
use agentd::engine::tool_schema::ArgumentSchemas;
use agentd::engine::visit::{FlowPlan, FlowWorld, Shapes};
use agentd::engine::workplace::Workplace;
use agentd::prompt::template::Values;
use agentd::store::journal_file::FileJournal;
use agentd::store::run_dir::RunDir;
use agentd::sys::clock::Clock;
use agentd::sys::paths::AbsPath;
use agentd::sys::worktree_path::WorktreeRoot;
use divan::Bencher;
use divan::counter::ItemsCount;
use futures::future::BoxFuture;
use serde_json::json;
use uuid::Uuid;

fn main() {
    divan::main();
}

/// A prompt of 2 KB with five variables, as a step would see it.
#[divan::bench]
fn warm_prompt(bencher: Bencher<'_, '_>) {
    let project = Project::new();
    let loaded = project.load();
    let step = loaded.definition.flow.step("initial.a").unwrap();
    let values: Values = ["iteration", "issue", "topic", "depth", "branch"]
        .map(|name| (name, "some value"))
        .into_iter()
        .collect();
    bencher.bench_local(|| loaded.resolve_prompt(step, None, divan::black_box(&values)).unwrap());
}

/// F0 from its first to its last visit, on a journal in a file. The time per visit is the time by the number of items.
#[divan::bench(args = [13, 103, 1003], sample_count = 20)]
fn flow(bencher: Bencher<'_, '_>, visits: usize) {
    flow_of(bencher, visits, false);
}

/// The same, each visit on disk before the next one begins, as in a run: what the disk takes comes on top.
#[divan::bench(args = [13, 103], sample_count = 5)]
fn flow_synced(bencher: Bencher<'_, '_>, visits: usize) {
    flow_of(bencher, visits, true);
}

fn flow_of(bencher: Bencher<'_, '_>, visits: usize, synced: bool) {
    let project = Project::new();
    let loaded = Arc::new(project.load());
    let redactor = Arc::new(Redactor::new([7; 32], Vec::new(), &[]).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    bencher.counter(ItemsCount::new(visits)).bench_local(|| {
        runtime.block_on(run(&project, &loaded, &redactor, (visits, synced)));
    });
}

async fn run(
    project: &Project,
    loaded: &Arc<Loaded>,
    redactor: &Arc<Redactor>,
    (visits, synced): (usize, bool),
) {
    let run_id = RunId(Uuid::now_v7());
    let repo = RepoName::parse("o/n").unwrap();
    let dir = RunDir { repo, path: project.root.path().join(run_id.to_string()), run_id };
    let journal = Arc::new(FileJournal::open(dir, Clock::system(), Arc::clone(redactor)).unwrap());
    let clock = RunClock::starting(Clock::system().now());
    let budgets =
        Budgets { max_steps: 5_000, max_wall_time: Duration::from_secs(3_600), ..Budgets::default() };
    let (_stop, signal) = StopHandle::new();
    let rules =
        "[[rule]]\nid = \"a\"\nkind = \"handoff\"\nname = \"*\"\neffect = \"allow\"\nreason = \"bench\"\n";
    let rules = read_policies(&[PolicySource { name: "policy.toml".into(), text: rules.into() }]).unwrap();
    let world = FlowWorld(SessionWorld {
        model: Arc::new(Instant { visits }),
        journal: Arc::clone(&journal) as Arc<dyn Journal>,
        policy: Arc::new(Policy::new(rules, None)),
        redactor: Arc::clone(redactor),
        meter: Arc::new(Meter::new(budgets, Spend::default(), clock)),
        stop: signal,
        clock,
        queues: Arc::new(Queues::new(&BTreeMap::new(), 2)),
        schemas: ArgumentSchemas::default(),
        offers: Offers::default(),
        backoff: Backoff::default(),
        runtime_version: "bench".to_owned(),
        day_cap: None,
        claims: None,
        redaction: None,
        fault_snapshots: false,
        longest_inline: 65_536,
    });
    let mut values = loaded.run_values(&BTreeMap::new()).unwrap();
    for name in ["issue", "topic", "depth", "branch"] {
        values.set(name, "some value");
    }
    let plan = FlowPlan {
        loaded: Arc::clone(loaded),
        values,
        task: "The issue: fix it.".to_owned(),
        format: ReportFormat::Markdown,
        shapes: Shapes::default(),
        settings: settings(),
        tools: Vec::new(),
        verify_commands: Vec::new(),
        include_prompt_text: false,
        scope: Scope {
            principal: PolicyPrincipal::new(&Principal::new(PrincipalSource::Local, "1000@host", None), None),
            repo: "o/n".to_owned(),
            issue: IssueKey::Number(7),
            branch: "feature/issue-7".to_owned(),
            worktree: ".worktrees/issue-7".to_owned(),
        },
        workplace: Workplace {
            root: WorktreeRoot::open(&AbsPath::new(project.root.path()).unwrap()).unwrap(),
            agent_folder: project.agent(),
            environment: Vec::new(),
            time_limit: Duration::from_secs(1),
            caged: None,
        },
        agents: BTreeMap::new(),
        run_id,
    };
    let mut flow = FlowRun::new(&plan, &world, Vec::new());
    let mut made = 0;
    loop {
        match flow.advance().await.unwrap() {
            Progress::Visited(visit) => {
                made += 1;
                journal.append(agentd::domain::event::Event::VisitFinished(visit)).unwrap();
                if synced {
                    journal.flush().await.unwrap();
                }
            }
            Progress::Ended(end) => {
                assert!(end.stop.success(), "{end:?}");
                assert_eq!(made, visits);
                return;
            }
        }
    }
}

/// A model that answers at once: next, next, …, handoff, closing.
struct Instant {
    visits: usize,
}

impl Model for Instant {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        let asked = request.messages.iter().rev().find_map(|message| match message {
            Message::User { content } => Some(content.as_str()),
            _ => None,
        });
        // Each prompt begins with the number of its visit.
        let visit: usize =
            asked.unwrap_or_default().split_whitespace().next().and_then(|word| word.parse().ok()).unwrap();
        let intent = match self.visits - visit {
            0 => "closing",
            1 => "handoff",
            _ => "next",
        };
        let report = json!({"report_format": "json", "content_json": {"next_action": {"action": intent}}});
        let reply = ModelReply {
            text: String::new(),
            reasoning: None,
            tool_calls: vec![ToolCall {
                id: format!("call-{visit}"),
                name: "agent__final_report".to_owned(),
                arguments: report.to_string(),
            }],
            stop: ReplyStop::End,
            stop_raw: None,
            usage: Some(TokenUsage::new(10, 5, 0, 0)),
            cost: None,
            actual_provider: None,
            actual_model: None,
        };
        Box::pin(async move { Ok(reply) })
    }
}

fn settings() -> SessionSettings {
    SessionSettings {
        max_turns: 15,
        max_tool_calls_per_turn: 20,
        max_retries: 3,
        llm_timeout: Duration::from_secs(120),
        tool_timeout: Duration::from_secs(60),
        tool_response_max_bytes: 12_288,
        targets: vec![Target {
            provider: "none".to_owned(),
            model: "instant".to_owned(),
            context_window: 131_072,
            context_window_buffer: 256,
            max_output_tokens: 16_384,
            temperature: None,
            price: Some(Price { input: 0.0, output: 0.0, cache_read: 0.0, cache_write: 0.0 }),
        }],
        stream: false,
        on_auth_error: OnFatalError::Fail,
        on_quota: OnFatalError::Fail,
        loop_guard: LoopLimits::default(),
        schema_repair_attempts: 2,
        read_page_lines: 500,
    }
}

/// F0 with prompts of 2 KB that take five variables, without a limit of its own that would matter.
struct Project {
    root: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/agents/f0"), root.path());
        let project = Self { root };
        let edit = |file: &str, change: &dyn Fn(String) -> String| {
            let path = project.agent().join(file);
            std::fs::write(&path, change(std::fs::read_to_string(&path).unwrap())).unwrap();
        };
        edit("agent.json", &|text| text.replace("\"maxIterations\": 50", "\"maxIterations\": 5000"));
        let names = ["issue", "topic", "depth", "branch"];
        let listed =
            format!("\"uvVariables\": {}", json!(["iteration", "issue", "topic", "depth", "branch"]));
        edit("steps_registry.json", &|text| text.replace("\"uvVariables\": []", &listed));
        let used = names.map(|name| format!("{name}: {{uv-{name}}}\n")).concat();
        let prompt =
            format!("{{uv-iteration}} is the visit.\n{used}{}\n", "Words of the prompt. ".repeat(90));
        for step in ["initial", "continuation", "closure"] {
            edit(&format!("prompts/steps/{step}/a/f_default.md"), &|_| prompt.clone());
        }
        project
    }

    fn agent(&self) -> PathBuf {
        self.root.path().join(".agent/f0")
    }

    fn load(&self) -> Loaded {
        let supplied = ["topic", "depth"].map(str::to_owned);
        load(self.root.path(), &self.agent(), &BTreeSet::from(supplied)).expect("F0 loads")
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}
