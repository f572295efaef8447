//! One flow of a fixture's agent: a scripted model, real git, real files and real programs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agentd::domain::event::Event;
use agentd::domain::report::ReportFormat;
use agentd::domain::run::{RunId, VisitRecord};
use agentd::domain::stop::{FlowEnd, StopDetail};
use agentd::domain::trace::ChecksRun;
use agentd::engine::flow::{FlowMove, FlowRun};
use agentd::engine::model::ModelRequest;
use agentd::engine::task_text::TaskText;
use agentd::engine::touched::Touched;
use agentd::engine::visit::{FlowPlan, FlowWorld, Shapes};
use agentd::engine::workplace::Workplace;
use agentd::sys::clock::Clock;
use agentd::sys::worktree_path::WorktreeRoot;
use agentd::tools::{ToolWorld, worktree_tools};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::definition::project::Project;
use crate::git::Ground;
use crate::session::world::{ALLOW_ALL, Line, World, report_json};

/// Handoffs between steps allowed, too.
const HANDOFFS: &str =
    "[[rule]]\nid = \"steps\"\nkind = \"handoff\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";

/// A flow about to run.
pub struct Flow {
    pub project: Project,
    pub world: World,
    pub ground: Ground,
    /// `--uv`.
    pub given: BTreeMap<String, String>,
    /// Visits of a predecessor.
    pub finished: Vec<VisitRecord>,
    pub time_limit: Duration,
    /// What planning steps may run.
    pub verify: Vec<Vec<String>>,
}

/// A flow that ran.
pub struct Ended {
    pub end: FlowEnd,
    pub visits: Vec<VisitRecord>,
    pub events: Vec<Event>,
    pub requests: Vec<ModelRequest>,
    pub ground: Ground,
}

/// A report of a gated step with that intent.
pub fn says(intent: &str) -> Line {
    report_json(json!({"next_action": {"action": intent}}))
}

/// A report with that intent and a reason.
pub fn because(intent: &str, reason: &str) -> Line {
    report_json(json!({"next_action": {"action": intent, "reason": reason}}))
}

/// The steps' schemas take anything, so that a test can say what it likes.
pub fn open_schemas(project: &Project) {
    project.json("schemas/s.schema.json", |schemas| {
        for (_, schema) in schemas.as_object_mut().unwrap() {
            let action = schema["properties"]["next_action"]["properties"]["action"].clone();
            *schema = json!({"type": "object", "properties": {
                "next_action": {"type": "object", "properties": {"action": action}, "additionalProperties": true}},
                "additionalProperties": true});
        }
    });
}

impl Flow {
    pub async fn of(project: Project, script: Vec<Line>) -> Self {
        let mut world = World::new(script);
        world.policy = format!("{ALLOW_ALL}{HANDOFFS}");
        Self {
            project,
            world,
            ground: Ground::new().await,
            given: BTreeMap::new(),
            finished: Vec::new(),
            time_limit: Duration::from_secs(30),
            verify: Vec::new(),
        }
    }

    pub async fn f0(script: Vec<Line>) -> Self {
        Self::of(Project::f0(), script).await
    }

    pub fn registry(self, change: impl FnOnce(&mut Value)) -> Self {
        self.project.registry(change);
        self
    }

    pub fn agent(self, change: impl FnOnce(&mut Value)) -> Self {
        self.project.agent_json(change);
        self
    }

    pub fn prompt(self, step: &str, text: &str) -> Self {
        let path = format!("prompts/steps/{}/f_default.md", step.replace('.', "/"));
        self.project.write(&path, text);
        self
    }

    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    #[expect(clippy::disallowed_methods, reason = "programs are looked for where the tests' own are")]
    pub async fn run(self) -> Ended {
        let loaded = self.project.loaded();
        let root = WorktreeRoot::open(&self.ground.repo).unwrap();
        let environment = vec![
            ("PATH".into(), std::env::var_os("PATH").unwrap_or_default()),
            ("HOME".into(), self.ground.home.as_path().as_os_str().to_owned()),
        ];
        let tools = worktree_tools(ToolWorld {
            page_lines: 500,
            root: root.clone(),
            environment: environment.clone(),
            clock: Clock::system(),
            cancel: CancellationToken::new(),
            sandbox: None,
        });
        let mut values = loaded.run_values(&self.given).unwrap();
        for (name, value) in [("issue", "7"), ("issue_title", "Fix it"), ("branch", "feature/issue-7")] {
            values.set(name, value);
        }
        let plan = FlowPlan {
            workplace: Workplace {
                root,
                agent_folder: loaded.folder.clone(),
                environment,
                time_limit: self.time_limit,
                sandbox: None,
                upstream: None,
                touched: Touched::default(),
                recorded: None,
            },
            loaded: Arc::new(loaded),
            values,
            task: TaskText { facts: "The issue: fix it.".to_owned(), ..TaskText::default() },
            background: Arc::default(),
            format: ReportFormat::Markdown,
            shapes: Shapes::default(),
            settings: self.world.settings.clone(),
            tools: tools.into(),
            verify_commands: self.verify.clone(),
            include_prompt_text: false,
            scope: self.world.scope(),
            agents: BTreeMap::new(),
            gates_plans: false,
            run_id: RunId(Uuid::from_u128(7)),
        };
        let world = FlowWorld(self.world.session_world());
        let mut flow = FlowRun::new(&plan, &world, self.finished.clone());
        let mut visits = Vec::new();
        let end = loop {
            match flow.advance().await.unwrap() {
                FlowMove::Visited(visit) => visits.push(*visit),
                FlowMove::Ended(end) => break end,
            }
        };
        // Asked again, it says the same (E24).
        assert!(matches!(flow.advance().await.unwrap(), FlowMove::Ended(again) if again == end));
        let seen = std::mem::take(&mut *self.world.model.seen.lock().unwrap());
        let ended = Ended {
            end,
            visits,
            events: self.world.journal.events.lock().unwrap().clone(),
            requests: seen.into_iter().map(|(_, request)| request).collect(),
            ground: self.ground,
        };
        ended.check_invariants();
        ended
    }
}

impl Ended {
    /// What holds at the end of every flow.
    fn check_invariants(&self) {
        let reason = self.end.completion_reason.as_deref();
        assert_eq!(
            self.end.stop.success(),
            reason.is_some_and(|reason| !reason.is_empty()),
            "{:?}",
            self.end
        );
        assert!(!self.end.stop.message.is_empty());
        for (index, visit) in self.visits.iter().enumerate() {
            let next = self.visits.get(index + 1).map(|next| next.step_id.as_str());
            assert!(next.is_none() || visit.next.as_deref() == next, "{visit:?} leads to {next:?}");
        }
    }

    /// The visited steps, in order.
    pub fn steps(&self) -> Vec<&str> {
        self.visits.iter().map(|visit| visit.step_id.as_str()).collect()
    }

    pub fn succeeded(&self) -> &Self {
        assert!(self.end.stop.success(), "{:?}\n{:#?}", self.end, self.visits);
        self
    }

    pub fn failed(&self, detail: StopDetail, says: &str) -> &Self {
        assert_eq!(self.end.stop.detail, detail, "{:?}", self.end);
        assert!(self.end.stop.message.contains(says), "{:?}", self.end);
        self
    }

    /// The last user message of a request, 1-based: what a visit was asked.
    pub fn asked(&self, request: usize) -> &str {
        use agentd::domain::message::Message;
        let messages = &self.requests[request - 1].messages;
        let last = messages.iter().rev().find_map(|message| match message {
            Message::User { content } => Some(content.as_str()),
            _ => None,
        });
        last.unwrap()
    }

    pub fn checks(&self) -> Vec<&ChecksRun> {
        self.events
            .iter()
            .filter_map(|event| match event {
                Event::ChecksRun(checks) => Some(&**checks),
                _ => None,
            })
            .collect()
    }

    pub fn warned(&self, code: &str) -> Option<&str> {
        self.events.iter().find_map(|event| match event {
            Event::Warned(warning) if warning.code == code => Some(warning.text.as_str()),
            _ => None,
        })
    }
}
