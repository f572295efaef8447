//! What the flow itself costs, beside climpt's published figures.
//!
//! `cargo bench --bench flow`. A warm prompt: one of 2 KB with five variables. A visit: prompt, session, report held against
//! its schema, gate, handoff through the policy, routing, completion, and all that is kept of it: the journal (redacted,
//! hash-chained), the ledger and the conversation; with a model that answers at once. The time of a visit is the time of a
//! whole run, its record opened and closed, by its visits. climpt's figure has prompt, schema, gate, router and log in it.
//! How many times faster each is to be is told beside it. What is missed fails, files in memory, where the least of the times
//! counts: whatever else the machine does only adds to them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark sets its world up in a temporary folder, prints what it measured and fails loudly"
)]

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentd::definition::{Loaded, load};
use agentd::domain::event::Event;
use agentd::domain::message::{Message, ToolCall};
use agentd::domain::redaction::Redactor;
use agentd::domain::report::ReportFormat;
use agentd::engine::flow::{FlowMove, FlowRun};
use agentd::engine::journal::Journal;
use agentd::engine::model::{ModelReply, ModelRequest};
use agentd::engine::task_text::TaskText;
use agentd::engine::touched::Touched;
use agentd::engine::visit::{FlowPlan, FlowWorld, Shapes};
use agentd::engine::workplace::Workplace;
use agentd::prompt::template::Values;
use agentd::sys::paths::AbsPath;
use agentd::sys::worktree_path::WorktreeRoot;
use serde_json::json;
use world::Instantly;

/// climpt 1.13, published: a warm prompt's median, and a visit of so many.
const CLIMPT_PROMPT: Duration = Duration::from_micros(1_440);
const CLIMPT_VISIT: [(usize, Duration); 3] = [
    (13, Duration::from_micros(1_900)),
    // Not published: what the other two say of a start, here spread over 103 visits.
    (103, Duration::from_micros(1_190)),
    (1_003, Duration::from_micros(1_100)),
];
/// How many times faster each is to be, where files cost no disk.
const PROMPT_AIM: f64 = 50.0;
const VISIT_AIM: f64 = 15.0;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let mut missed = Vec::new();
    let mut aimed = |what: &str, times, aim, counts| {
        let (climpt, times_faster) = aim;
        let least = told(what, times, Some(aim));
        if counts && climpt.as_secs_f64() / least.as_secs_f64() < times_faster {
            missed.push(what.to_owned());
        }
    };
    aimed("a warm prompt", warm_prompt(), (CLIMPT_PROMPT, PROMPT_AIM), true);
    let disk = tempfile::tempdir().unwrap();
    for (visits, climpt) in CLIMPT_VISIT {
        let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
            println!("a visit, of {visits}, files in memory: skipped, /dev/shm is not there");
            continue;
        };
        let times = flow(memory.path(), visits, (20_000 / visits).clamp(20, 200), false);
        aimed(&format!("a visit, of {visits}, files in memory"), times, (climpt, VISIT_AIM), true);
    }
    for (visits, climpt) in CLIMPT_VISIT {
        let times = flow(disk.path(), visits, (4_000 / visits).clamp(9, 101), false);
        aimed(&format!("a visit, of {visits}, on disk"), times, (climpt, VISIT_AIM), false);
    }
    // As in a run: each visit is on disk before the next one begins.
    for (visits, rounds) in [(13, 9), (103, 3)] {
        let times = flow(disk.path(), visits, rounds, true);
        told(&format!("a visit, of {visits}, on disk before the next"), times, None);
    }
    assert!(missed.is_empty(), "not as fast as it is to be: {}", missed.join("; "));
}

/// Prints the median and the least, which it gives; with climpt's time and an aim, how many times faster the median is.
fn told(what: &str, mut times: Vec<Duration>, climpt: Option<(Duration, f64)>) -> Duration {
    times.sort_unstable();
    let (least, median) = (times[0], times[times.len() / 2]);
    let Some((climpt, aim)) = climpt else {
        println!("{what:<48} median {median:>9.1?}  least {least:>9.1?}");
        return least;
    };
    let faster = climpt.as_secs_f64() / median.as_secs_f64();
    println!(
        "{what:<48} median {median:>9.1?}  least {least:>9.1?}  climpt {climpt:>7.1?}: {faster:.1} times faster (aim {aim})"
    );
    least
}

/// A prompt of 2 KB with five variables, as a step would see it.
fn warm_prompt() -> Vec<Duration> {
    const AT_ONCE: u32 = 1_000;
    let folder = tempfile::tempdir().unwrap();
    let loaded = Project::new(folder.path()).load();
    let step = loaded.definition.flow.step("initial.a").unwrap();
    let values: Values = ["iteration", "issue", "topic", "depth", "branch"]
        .map(|name| (name, "some value"))
        .into_iter()
        .collect();
    let round = |_| {
        let started = Instant::now();
        for _ in 0..AT_ONCE {
            black_box(loaded.resolve_prompt(step, None, black_box(&values)).unwrap());
        }
        started.elapsed() / AT_ONCE
    };
    (0..100).map(round).collect()
}

/// F0 from its first to its last visit, with a record in files; so many times. Gives the times by the visits.
fn flow(folder: &Path, visits: usize, rounds: usize, synced: bool) -> Vec<Duration> {
    let project = Project::new(&folder.join("project"));
    let loaded = Arc::new(project.load());
    let redactor = world::redactor();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut times = Vec::with_capacity(rounds);
    for round in 0..=rounds {
        // Records stay to the end: some file systems are slow to make files where others were just removed.
        let started = Instant::now();
        runtime.block_on(run(&project, folder, &loaded, &redactor, (visits, synced)));
        // The first one warms up.
        if round > 0 {
            times.push(started.elapsed() / visits as u32);
        }
    }
    times
}

async fn run(
    project: &Project,
    records: &Path,
    loaded: &Arc<Loaded>,
    redactor: &Arc<Redactor>,
    (visits, synced): (usize, bool),
) {
    let model = Arc::new(Instantly(move |request: &ModelRequest| answer(request, visits)));
    let (journal, world) = world::run(records, redactor, model);
    let world = FlowWorld(world);
    let mut values = loaded.run_values(&BTreeMap::new()).unwrap();
    for name in ["issue", "topic", "depth", "branch"] {
        values.set(name, "some value");
    }
    let plan = FlowPlan {
        loaded: Arc::clone(loaded),
        values,
        task: TaskText { facts: "The issue: fix it.".to_owned(), ..TaskText::default() },
        background: Arc::default(),
        format: ReportFormat::Markdown,
        shapes: Shapes::default(),
        settings: world::settings(),
        tools: Vec::new().into(),
        verify_commands: Vec::new(),
        include_prompt_text: false,
        scope: world::scope(),
        workplace: Workplace {
            root: WorktreeRoot::open(&AbsPath::new(&project.root).unwrap()).unwrap(),
            agent_folder: project.agent(),
            environment: Vec::new(),
            time_limit: Duration::from_secs(1),
            sandbox: None,
            upstream: None,
            touched: Touched::default(),
            recorded: None,
        },
        agents: BTreeMap::new(),
        gates_plans: false,
        run_id: journal.dir().run_id,
    };
    let mut flow = FlowRun::new(&plan, &world, Vec::new());
    let mut made = 0;
    loop {
        match flow.advance().await.unwrap() {
            FlowMove::Visited(visit) => {
                made += 1;
                journal.append(Event::VisitFinished(visit)).unwrap();
                if synced {
                    journal.flush().await.unwrap();
                }
            }
            FlowMove::Ended(end) => {
                assert!(end.stop.success(), "{end:?}");
                assert_eq!(made, visits);
                return;
            }
        }
    }
}

/// Says next, next, …, handoff, closing.
fn answer(request: &ModelRequest, visits: usize) -> ModelReply {
    let asked = request.messages.iter().rev().find_map(|message| match message {
        Message::User { content } => Some(content.as_str()),
        _ => None,
    });
    // Each prompt begins with the number of its visit.
    let visit: usize =
        asked.unwrap_or_default().split_whitespace().next().and_then(|word| word.parse().ok()).unwrap();
    let intent = match visits - visit {
        0 => "closing",
        1 => "handoff",
        _ => "next",
    };
    let report = json!({"report_format": "json", "content_json": {"next_action": {"action": intent}}});
    let call = ToolCall {
        id: format!("call-{visit}"),
        name: "agent__final_report".to_owned(),
        arguments: report.to_string(),
    };
    world::reply("", vec![call])
}

/// F0 with prompts of 2 KB that take five variables, without a limit of its own that would matter.
struct Project {
    root: PathBuf,
}

impl Project {
    fn new(root: &Path) -> Self {
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/agents/f0"), root);
        let project = Self { root: root.to_owned() };
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
        self.root.join(".agent/f0")
    }

    fn load(&self) -> Loaded {
        let supplied = ["topic", "depth"].map(str::to_owned);
        load(&self.root, &self.agent(), &BTreeSet::from(supplied)).expect("F0 loads")
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
