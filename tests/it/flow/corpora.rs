//! Agents that were written for climpt, as they are: each goes to its end in the sandbox with a model that answers what the
//! schemas ask for, and what becomes of the issue is looked at. They are no part of this repository; where they are not
//! nearby the test says so and is skipped. Definitions of its own with the same traits are in `world.rs` and `upstream.rs`.

use std::path::{Path, PathBuf};

use agentd::definition::Loaded;
use agentd::domain::flow::{Step, StepKind};
use agentd::domain::intent::Intent;
use agentd::sim::scenario_file::ReplyFile;
use serde_json::{Map, Value, json};

use super::outside::{reply, reports};
use crate::definition::project::{copy, put};
use crate::outside::world::{GREEN, World, text};

const PAGE: &str = include_str!("../../../docs/climpt.md");
const START: &str =
    "| from | agent | verdict | steps | end | the issue afterwards |\n|---|---|---|---|---|---|\n";

/// Folders of definitions, each with a `.agent` in it; a variable names another place.
#[expect(clippy::disallowed_methods, reason = "a test's own switch")]
fn corpora() -> Option<PathBuf> {
    let nearby = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpora");
    let place = std::env::var_os("AGENTD_DEFINITIONS").map_or(nearby, PathBuf::from);
    place.is_dir().then_some(place)
}

/// The smallest value that a schema lets through, as far as these schemas go.
fn minimal(schema: &Value) -> Value {
    if let Some(value) = schema.get("const") {
        return value.clone();
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    let mut object = Map::new();
    let mut add = |part: &Value| {
        let wanted = part["required"].as_array().cloned().unwrap_or_default();
        for name in wanted.iter().filter_map(Value::as_str) {
            let known = [part, schema]
                .into_iter()
                .chain(schema["allOf"].as_array().into_iter().flatten())
                .find_map(|place| place["properties"].get(name));
            let value = known.map_or(json!("x"), minimal);
            object.entry(name.to_owned()).or_insert(value);
        }
    };
    add(schema);
    for part in schema["allOf"].as_array().into_iter().flatten() {
        add(part);
    }
    for rule in schema["allOf"].as_array().into_iter().flatten().filter(|part| part.get("if").is_some()) {
        let so = Value::Object(object.clone());
        if jsonschema::is_valid(&rule["if"], &so) {
            let mut add = |part: &Value| {
                for name in part["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                    let known = part["properties"].get(name).or_else(|| schema["properties"].get(name));
                    object.entry(name.to_owned()).or_insert(known.map_or(json!("x"), minimal));
                }
            };
            add(&rule["then"]);
        }
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[0].as_str(),
        kind => kind.as_str(),
    };
    match kind {
        Some("string") => json!("x"),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        Some("array") => json!([]),
        _ => Value::Object(object),
    }
}

/// What the model reports of a step: what its schema wants, and where it goes.
fn report(step: &Step, intent: Option<Intent>) -> ReplyFile {
    let Some(schema) = &step.output_schema else {
        return reply(json!({ "final_report": { "report_format": "markdown", "content": "Done." } }));
    };
    let mut content = minimal(&schema.json);
    if let Some(intent) = intent {
        content["next_action"] = json!({ "action": intent.as_str(), "reason": "as asked" });
    }
    content["stepId"] = json!(step.id);
    reports(content)
}

/// The steps that a willing model visits: it hands over where it may, closes where it may.
fn route(loaded: &Loaded) -> Vec<(Step, Option<Intent>)> {
    let flow = &loaded.definition.flow;
    let mut route = Vec::new();
    let mut at = flow.step(&flow.entry).cloned();
    while let Some(step) = at.take().filter(|_| route.len() < 12) {
        let allowed = step.gate.as_ref().map(|gate| gate.allowed_intents.clone()).unwrap_or_default();
        let intent =
            [Intent::Closing, Intent::Handoff, Intent::Next].into_iter().find(|one| allowed.contains(one));
        let target = intent.and_then(|intent| step.transitions.get(&intent)).and_then(|to| {
            let targets = to.targets();
            targets.first().map(|id| (*id).clone())
        });
        at = match (&intent, step.kind) {
            (Some(_), _) => target.and_then(|id| flow.step(&id).cloned()),
            (None, Some(StepKind::Closure)) => None,
            (None, _) => {
                flow.continuation_of(&step).and_then(|id| flow.step(&id).cloned()).or(Some(step.clone()))
            }
        };
        route.push((step, intent));
    }
    route
}

/// Variables that nobody else supplies: the agent's parameters that are required.
fn given(agent: &Path) -> Vec<String> {
    let file: Value =
        serde_json::from_str(&std::fs::read_to_string(agent.join("agent.json")).unwrap()).unwrap();
    let mut given = Vec::new();
    for (name, parameter) in
        file["parameters"].as_object().into_iter().flatten().filter(|(name, _)| *name != "issue")
    {
        if parameter.get("default").is_none() && parameter["required"] == true {
            let value = if parameter["type"] == "number" { "1" } else { "x" };
            given.extend(["--uv".to_owned(), format!("{name}={value}")]);
        }
    }
    given
}

/// Runs an agent of a corpus to its end, and gives its row of the table.
#[expect(clippy::disallowed_methods, reason = "the path of the test's own machine")]
async fn run(corpus: &Path, agent: &str, cage: &str) -> String {
    let world = World::of(1, |scenario| {
        scenario.model.replies = Vec::new();
        scenario.repositories[0].issues[0].labels = vec!["in-progress".to_owned()];
    })
    .await;
    copy(&corpus.join(".agent"), &world.shop().join(".agent"));
    let folder = world.shop().join(".agent").join(agent);
    let loaded = agentd::definition::load(&world.shop(), &folder, &Default::default());
    let loaded = loaded.unwrap_or_else(|refused| panic!("{agent}: {refused}"));
    let route = route(&loaded);
    // The oldest flows have no closing step: their model says when the issue is to be closed.
    let mut replies: Vec<ReplyFile> = route.iter().map(|(step, intent)| report(step, *intent)).collect();
    if !loaded.definition.has_closing_step() {
        let close = "Done.\n\n```issue-action\n{\"action\": \"close\", \"issue\": 7, \"body\": \"## Resolution\"}\n```\n";
        replies[2] = reply(json!({ "final_report": { "report_format": "markdown", "content": close } }));
    }
    world.sim.push_replies(replies).unwrap();
    world.write("shop/.agent/policy.toml", super::outside::POLICY);
    world.verify(GREEN);
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}[sandbox]\nmode = \"{cage}\"\n"));
    // A stand-in where the program is not installed: what it would check is not what is looked at here.
    let tools = world.dir.path().join("tools");
    put(&tools.join("deno"), "#!/bin/sh\necho '{\"merged\": true}'\n");
    make_executable(&tools.join("deno"));
    let given = given(&folder);
    let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", agent]);
    command.args(&given);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", tools.display()));
    let running = tokio::task::spawn_blocking(move || command.output().unwrap());
    let done = running.await.unwrap();
    let output: Value = serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|error| panic!("{agent}: {error}: {}", text(&done.stderr)));
    assert_eq!(output["success"], true, "{agent} in {cage}: {output:#}");
    let issue = world.sim.issue("demo/shop", 7).unwrap();
    let steps: Vec<&str> =
        output["steps"].as_array().unwrap().iter().map(|step| step["step_id"].as_str().unwrap()).collect();
    let mut short = steps.clone();
    short.dedup();
    let completion = &loaded.definition.completion;
    let row = format!(
        "| {} | {agent} | {} | {} | {} | {}: {} |\n",
        corpus.file_name().unwrap().to_string_lossy(),
        completion.all_names()[0],
        short.join(", "),
        output["stop_detail"].as_str().unwrap(),
        if issue.open { "open" } else { "closed" },
        issue.labels.join(", ")
    );
    world.sim.shutdown().await;
    row
}

fn make_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn climpts_own_agents_go_to_their_end_in_the_sandbox() {
    let Some(corpora) = corpora() else {
        eprintln!("skipped: no definitions of other projects nearby (AGENTD_DEFINITIONS names a folder)");
        return;
    };
    let mut table = START.to_owned();
    for corpus in folders(&corpora, ".agent") {
        for agent in folders(&corpus.join(".agent"), "agent.json") {
            let name = agent.file_name().unwrap().to_str().unwrap();
            let row = run(&corpus, name, "auto").await;
            assert_eq!(row, run(&corpus, name, "landlock").await, "the kind of sandbox changes nothing");
            table += &row;
        }
    }
    if !PAGE.ends_with(&table) {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("climpt.md");
        let words = PAGE.split(START).next().unwrap();
        put(&file, &format!("{words}{table}"));
        panic!("something else came of them; look at it, then: cp {} docs/climpt.md", file.display());
    }
}

/// The folders in a folder that have this in them.
fn folders(place: &Path, sign: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = entries.filter(|path| path.join(sign).exists()).collect();
    folders.sort();
    folders
}
