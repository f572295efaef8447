//! Flows as a person runs them: the binary, the simulator, and agents that were written for other programs.

use agentd::sim::scenario_file::{FaultFile, ReplyFile};
use serde_json::{Value, json};

use crate::definition::project::Project;
use crate::definition::refused::NEGATIVE;
use crate::outside::daemons::until;
use crate::outside::world::{GREEN, World, text};

/// Everything that the definitions here ask for is allowed.
pub const POLICY: &str = "[[rule]]\nid = \"steps\"\nkind = \"handoff\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n\n\
    [[rule]]\nid = \"tools\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";

pub fn reply(value: Value) -> ReplyFile {
    serde_json::from_value(value).unwrap()
}

pub fn reports(content: Value) -> ReplyFile {
    reply(json!({"final_report": {"report_format": "json", "content_json": content}}))
}

pub fn says(intent: &str) -> ReplyFile {
    reports(json!({"next_action": {"action": intent}}))
}

/// The demo's shop with F0 in it and a model that gives these replies.
pub async fn shop(replies: Vec<ReplyFile>) -> (World, Project) {
    let world = World::of(1, |scenario| scenario.model.replies = replies).await;
    world.write("shop/.agent/policy.toml", POLICY);
    world.verify(GREEN);
    let project = Project::within(&world.shop(), "f0", "f0");
    (world, project)
}

pub async fn run(world: &World) -> (Option<i32>, Value) {
    world.json(&["run", "--issue", "7", "--agent", "f0"]).await
}

fn visited(output: &Value) -> Vec<&str> {
    output["steps"].as_array().unwrap().iter().map(|step| step["step_id"].as_str().unwrap()).collect()
}

pub fn state(world: &World) -> (bool, Vec<String>) {
    let issue = world.sim.issue("demo/shop", 7).unwrap();
    (issue.open, issue.labels)
}

#[tokio::test(flavor = "multi_thread")]
async fn e01_f0_runs_to_completion_unmodified() {
    let (world, _) = shop(["next", "next", "next", "handoff", "closing"].map(says).into()).await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(
        visited(&output),
        ["initial.a", "continuation.a", "continuation.a", "continuation.a", "closure.a"]
    );
    assert_eq!((&output["iterations"], &output["change"]), (&json!(5), &json!("none")));
    assert_eq!(state(&world), (true, vec!["agentd:done".to_owned()]), "its integration with GitHub is off");
    assert!(world.sim.pulls("demo/shop").is_empty());
    assert_eq!(world.sim.unused_replies(), Vec::<String>::new());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e02_e10_e11_f0_differs_where_that_is_better() {
    let limited = reply(json!({"error": {"status": 429, "retry_after": 0}}));
    let abort = reports(json!({"next_action": {"action": "abort"}}));
    let script = vec![says("next"), says("repeat"), limited, says("handoff"), abort];
    let (world, project) = shop(script).await;
    may_abort(&project);
    let (code, output) = run(&world).await;
    assert_eq!(
        visited(&output),
        ["initial.a", "continuation.a", "initial.a", "closure.a"],
        "repeat's target counts"
    );
    assert_eq!(
        (code, output["stop_detail"].as_str()),
        (Some(1), Some("agent_aborted")),
        "an abort is a failure: {output:#}"
    );
    assert_eq!(output["steps"][2]["attempts"], 2, "one 429 does not fail the run");
    world.finish().await;
}

/// F0, whose last step may abort.
fn may_abort(project: &Project) {
    project.registry(|registry| {
        let gate = &mut registry["steps"]["closure.a"]["structuredGate"];
        gate["allowedIntents"] = json!(["closing", "repeat", "abort"]);
    });
    project.json("schemas/s.schema.json", |schema| {
        schema["closure.a"]["properties"]["next_action"]["properties"]["action"]["enum"] =
            json!(["closing", "repeat", "abort"]);
    });
}

/// A process that dies right behind such a visit has written nothing else of the flow's end.
#[tokio::test(flavor = "multi_thread")]
async fn e23_killed_right_behind_a_visit_that_failed_the_next_run_ends_as_it_did_and_not_well() {
    let abort = reports(json!({"next_action": {"action": "abort", "reason": "This must not be merged."}}));
    let (world, project) = shop(vec![says("next"), says("handoff"), abort]).await;
    may_abort(&project);
    let hang = json!({ "method": "PATCH", "path": "/repos/**/comments/*", "kind": "hang", "times": 0 });
    world.sim.inject(&serde_json::from_value::<FaultFile>(hang).unwrap()).unwrap();
    let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "f0"]);
    let quiet = std::process::Stdio::null;
    let mut child = command.stdout(quiet()).stderr(quiet()).spawn().unwrap();
    let runs = world.dir.path().join("state/repos/demo/shop/runs");
    let journal = || {
        let run = std::fs::read_dir(&runs).ok()?.flatten().next()?;
        std::fs::read_to_string(run.path().join("events.jsonl")).ok().map(|text| (run.path(), text))
    };
    until("its flow is over", || journal().is_some_and(|(_, text)| text.contains("\"flow_ended\""))).await;
    child.kill().unwrap();
    child.wait().unwrap();
    world.sim.world().faults.clear();
    let (run_dir, text) = journal().unwrap();
    let end = text.lines().position(|line| line.contains("\"flow_ended\"")).unwrap();
    let kept: Vec<&str> = text.lines().take(end).collect();
    let last = kept.iter().rposition(|line| line.contains("\"visit_finished\"")).unwrap();
    let cut = kept[..=last].join("\n") + "\n";
    agentd::sys::files::write_private(&run_dir.join("events.jsonl"), cut.as_bytes()).unwrap();
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("agent_aborted")), "{output:#}");
    assert!(output.to_string().contains("This must not be merged."), "{output:#}");
    assert_eq!(world.sim.model_requests().len(), 3, "no model was asked again");
    assert!(world.sim.pulls("demo/shop").is_empty());
    world.finish().await;
}

/// F0 once more, by another name.
#[expect(clippy::disallowed_methods, reason = "a copy in a temporary folder")]
fn copy_as_g0(world: &World) {
    let script = "cp -a .agent/f0 .agent/g0 && grep -rl f0 .agent/g0 | xargs sed -i s/f0/g0/g";
    let mut copy = std::process::Command::new("sh");
    assert!(copy.args(["-c", script]).current_dir(world.shop()).status().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn e23_what_a_killed_run_of_another_agent_did_is_done_anew_though_its_steps_are_called_the_same() {
    // The second reply is lost with the process.
    let script = vec![says("next"), says("next"), says("handoff"), says("closing")];
    let (world, _) = shop(script).await;
    crate::outside::daemons::slow_model(&world, 1, 600_000);
    copy_as_g0(&world);
    let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "f0"]);
    let quiet = std::process::Stdio::null;
    let mut child = command.stdout(quiet()).stderr(quiet()).spawn().unwrap();
    until("its second visit", || world.sim.model_requests().len() == 2).await;
    child.kill().unwrap();
    child.wait().unwrap();
    world.sim.world().faults.clear();
    let (code, output) = world.json(&["run", "--issue", "7", "--agent", "g0"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(visited(&output), ["initial.a", "closure.a"], "{output:#}");
    let told = output["warnings"].to_string();
    assert!(told.contains("was of the agent \\\"f0\\\"") && told.contains("done anew"), "{told}");
    let used = output["totals"]["tokens_out"].as_u64();
    let of_visit = output["budgets"]["cost_used_usd"].as_f64();
    assert!(of_visit > Some(0.0), "{used:?} {:#} {:#}", output["totals"], output["budgets"]);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n01_to_n24_each_mutation_of_f0_is_refused_before_the_model_is_asked() {
    let (world, _) = shop(vec![says("closing")]).await;
    for (name, code, change) in NEGATIVE {
        let project = Project::within(&world.shop(), "f0", "f0");
        change(&project);
        let (exit, output) = run(&world).await;
        assert!(matches!(exit, Some(4 | 5)), "{name}: {exit:?} {output:#}");
        assert_eq!(output["exit_code"], exit.unwrap(), "{name}");
        // Where a folder or a name is gone, the start is refused before the definition is read.
        let told = output.to_string();
        let unread = !project.agent.join("agent.json").exists();
        assert!(told.contains(code) || unread, "{name}: {code} is not in {output:#}");
        assert!(told.contains(".agent/"), "{name}: no file in {output:#}");
        assert!(!world.shop().join(".worktrees").exists(), "{name} made a worktree");
    }
    assert!(world.sim.model_requests().is_empty());
    world.finish().await;
}

/// The resolver with another closure.
fn resolver(world: &World, github: &Value) {
    let path = world.shop().join(".agent/resolver/agent.json");
    let mut agent: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    agent["runner"]["integrations"]["github"] = github.clone();
    world.write("shop/.agent/resolver/agent.json", &serde_json::to_string_pretty(&agent).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn t17_variables_of_the_command_line_count_once_and_unused_ones_are_told() {
    let (world, project) = shop(["handoff", "closing", "handoff", "closing"].map(says).into()).await;
    project.agent_json(|agent| {
        agent["parameters"]["topic"] =
            json!({"type": "string", "description": "t", "cli": "--topic", "default": "x"});
    });
    project.write("prompts/steps/initial/a/f_default.md", "About {uv-topic}.\n");
    let run = |uv: &'static [&'static str]| {
        let given = uv.iter().flat_map(|pair| ["--uv", pair]);
        let args: Vec<&str> = ["run", "--issue", "7", "--agent", "f0"].into_iter().chain(given).collect();
        let world = &world;
        async move { world.json(&args).await }
    };
    let (code, output) = run(&["input_text=abc"]).await;
    assert_eq!(code, Some(4));
    assert!(output.to_string().contains("PR-C3L-002"), "{output:#}");
    let (code, output) = run(&["topic=A", "uv-topic=B"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(!output["warnings"].to_string().contains("uv_unused"), "{output:#}");
    assert!(format!("{:?}", world.sim.model_requests()).contains("About B."));
    let (_, output) = run(&["topci=A"]).await;
    let told = output["warnings"].to_string();
    assert_eq!(told.matches("uv_unused").count(), 1, "{told}");
    assert!(told.contains("topci"), "{told}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e21_a_closure_that_only_labels_never_closes() {
    for (github, closes) in [
        (
            json!({"defaultClosureAction": "label-only", "labels": {"completion": {"add": ["reviewed"], "remove": ["bug"]}}}),
            false,
        ),
        (json!({"defaultClosureAction": "label-and-close"}), true),
        (json!({"enabled": false}), false),
    ] {
        let world =
            World::of(1, |scenario| scenario.repositories[0].issues[0].labels = vec!["bug".to_owned()]).await;
        resolver(&world, &github);
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!(code, Some(0), "{output:#}");
        let pull = &world.sim.pulls("demo/shop")[0];
        let body = pull.body.as_ref().unwrap();
        assert_eq!(body.lines().any(|line| line == "Closes #7"), closes, "{github}: {pull:?}");
        assert_eq!(body.lines().any(|line| line == "Refs #7"), !closes, "{github}: {pull:?}");
        let labels =
            if github["labels"].is_null() { ["bug", "agentd:done"] } else { ["reviewed", "agentd:done"] };
        assert_eq!(state(&world), (true, labels.map(str::to_owned).into()), "{github}");
        world.finish().await;
    }
}

/// F0 as one closing step, whose closing is its whole work.
pub fn one_shot(project: &Project) {
    project.agent_json(|agent| {
        agent["runner"]["integrations"]["github"] = json!({"labels": {"answered": "answered"}});
        agent["runner"]["agentd"] = json!({"closes": true});
    });
    project.registry(|registry| {
        registry["entryStep"] = json!("closure.a");
        for gone in ["initial.a", "continuation.a"] {
            registry["steps"].as_object_mut().unwrap().remove(gone);
        }
    });
    crate::flow::world::open_schemas(project);
}

#[tokio::test(flavor = "multi_thread")]
async fn e21_d12_without_a_pull_request_the_closure_closes_or_labels_the_issue() {
    let closing = |with: Value| {
        let mut content = json!({"next_action": {"action": "closing"}});
        content.as_object_mut().unwrap().extend(with.as_object().unwrap().clone());
        reports(content)
    };
    for (said, open, labels) in [
        (json!({}), false, vec!["agentd:done"]),
        (
            json!({"closure_action": "label-only", "issue": {"labels": {"add": ["answered", "deploy"]}}}),
            true,
            vec!["answered", "agentd:done"],
        ),
        (json!({"closure_action": "LABEL_ONLY"}), true, vec!["agentd:done"]),
        (json!({"closure_action": "leave it"}), true, vec!["agentd:done"]),
    ] {
        let (world, project) = shop(vec![closing(said.clone())]).await;
        one_shot(&project);
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{output:#}");
        let labels: Vec<String> = labels.into_iter().map(str::to_owned).collect();
        assert_eq!(state(&world), (open, labels), "{said}");
        let refused = output["warnings"].to_string().contains("closure_label_refused");
        assert_eq!(
            refused,
            said["issue"].is_object(),
            "what only the model names is told: {}",
            output["warnings"]
        );
        let unknown = output["warnings"].to_string().contains("closure_unknown");
        assert_eq!(unknown, said["closure_action"] == "leave it", "{}", output["warnings"]);
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn e22_a_closure_that_github_refuses_is_no_clean_success_and_the_next_run_heals_it() {
    let (world, project) = shop(vec![says("closing"), says("closing")]).await;
    one_shot(&project);
    let refuse: FaultFile =
        serde_json::from_value(json!({"method": "PATCH", "path": "/repos/demo/shop/issues/7",
        "kind": "status", "status": 403, "body": {"message": "Resource not accessible"}}))
        .unwrap();
    world.sim.inject(&refuse).unwrap();
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("github_error")), "{output:#}");
    assert_eq!(state(&world), (true, vec!["agentd:failed".to_owned()]));
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(state(&world), (false, vec!["agentd:done".to_owned()]));
    assert_eq!(world.sim.issue("demo/shop", 7).unwrap().comments.len(), 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e12_a_check_before_closing_reaches_the_model_through_the_binary() {
    let commit = reply(json!({"tool_calls": [
        {"name": "run_command", "arguments": {"argv": ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "kept"]}}]}));
    let edit = reply(json!({"tool_calls": [
        {"name": "write_file", "arguments": {"path": "README.md", "content": "# shop\n"}}]}));
    let (world, project) = shop(vec![edit, says("handoff"), commit, says("closing")]).await;
    project.registry(|registry| {
        registry["failurePatterns"] = json!({"dirty": {"edition": "failed", "adaptation": "dirty", "params": ["files"]}});
        registry["validators"] = json!({"clean": {"type": "command", "command": "git status --porcelain",
            "successWhen": "empty", "failurePattern": "dirty", "extractParams": {"files": "parseChangedFiles"}}});
        registry["validationSteps"] = json!({"closure.graph": {"c2": "retry", "c3": "a", "validationConditions": [{"validator": "clean"}]}});
    });
    project
        .write("prompts/steps/retry/a/f_failed_dirty.md", "Commit first:{{#each files}} {{this}}{{/each}}");
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let asked = world.sim.model_requests()[2].body.to_string();
    assert!(asked.contains("Commit first: README.md"), "{asked}");
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!((code, &replayed["programs_run"]), (Some(0), &json!(0)), "{replayed:#}");
    world.finish().await;
}

/// The ways around a filter of command texts: here there is nothing to filter, because there are no credentials to use.
#[tokio::test(flavor = "multi_thread")]
async fn e26_commands_of_an_agent_find_no_credentials() {
    let commands = [
        json!(["env"]),
        json!(["sh", "-c", "X=gh; $X issue close 7"]),
        json!(["sh", "-c", "g\"\"h api -X PATCH repos/demo/shop/issues/7 -f state=closed"]),
        json!(["git", "push", "--force", "origin", "HEAD:develop"]),
        json!(["git", "config", "--list", "--show-origin"]),
        json!(["sh", "-c", "cat \"$(git rev-parse --git-common-dir)/config\""]),
    ];
    let calls: Vec<Value> =
        commands.iter().map(|argv| json!({"name": "run_command", "arguments": {"argv": argv}})).collect();
    let (world, project) = shop(vec![reply(json!({"tool_calls": calls})), says("closing")]).await;
    one_shot(&project);
    project.agent_json(|agent| agent["runner"]["integrations"]["github"] = json!({"enabled": false}));
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let before = agentd::sim::bare::head(&git_dir, "develop");
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let seen = world.sim.model_requests()[1].body.to_string();
    assert!(seen.contains("NO_COLOR"), "the environment was shown: {seen}");
    for secret in [
        "demo-token-of-the-simulator",
        "a-key-of-the-simulator",
        "GITHUB_TOKEN",
        &crate::outside::world::basic(),
    ] {
        assert!(!seen.contains(secret), "{secret} is in {seen}");
    }
    assert_eq!(agentd::sim::bare::head(&git_dir, "develop"), before, "nothing was pushed");
    assert!(state(&world).0, "the issue is open");
    world.finish().await;
}

/// An agent of one step, which a program works on.
async fn of_one_program(script: &str) -> (World, Project) {
    let (world, project) = shop(vec![]).await;
    one_shot(&project);
    project.agent_json(|agent| {
        agent["runner"]["integrations"]["github"] = json!({"enabled": false});
        agent["runner"]["verdict"] = json!({"type": "count:iteration", "config": {"maxIterations": 1}});
        agent["parameters"]["verdictPath"] =
            json!({"type": "string", "description": "x", "cli": "--verdict-path", "default": "v.json"});
    });
    project.registry(|registry| {
        registry["steps"] = json!({"closure.a": {"stepId": "closure.a", "stepKind": "closure", "c2": "closure", "c3": "a",
            "runner": {"command": "merge.sh", "args": ["--pr", "${context.issue}", "${context.verdictPath}"]}}});
    });
    project.program("merge.sh", script);
    (world, project)
}

#[tokio::test(flavor = "multi_thread")]
async fn p_040_a_replay_runs_no_program_of_a_step_again_unless_all_is_to_be_done_anew() {
    let once =
        "#!/bin/sh\nprintf '{\"ok\": true, \"args\": \"%s\"}' \"$(cat /proc/sys/kernel/random/uuid)\"\n";
    let (world, project) = of_one_program(once).await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    for mode in ["strict", "hybrid"] {
        let (code, replayed) = world.json(&["runs", "replay", "latest", "--mode", mode]).await;
        assert_eq!((code, &replayed["programs_run"]), (Some(0), &json!(0)), "{mode}: {replayed:#}");
    }
    let (code, replayed) = world.json(&["runs", "replay", "latest", "--mode", "live"]).await;
    assert_eq!((code, &replayed["programs_run"]), (Some(1), &json!(1)), "{replayed:#}");
    let mut live = world.command_in(&["runs", "replay", "latest", "--mode", "live"]);
    let shown = tokio::task::spawn_blocking(move || live.output().unwrap()).await.unwrap();
    assert!(text(&shown.stdout).contains("1 program of the agent run"), "{}", text(&shown.stdout));
    // What failed fails again; what is too long to be recorded is named.
    project.program("merge.sh", "#!/bin/sh\nexit 2\n");
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("agent_cli_failed")), "{output:#}");
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!((code, &replayed["programs_run"]), (Some(0), &json!(0)), "{replayed:#}");
    project.program("merge.sh", "#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' 'a'\n");
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert!(code == Some(1) && replayed["missing"].as_str().unwrap().contains("too long"), "{replayed:#}");
    let (code, replayed) = world.json(&["runs", "replay", "latest", "--mode", "hybrid"]).await;
    assert_eq!((code, &replayed["programs_run"]), (Some(0), &json!(1)), "{replayed:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn e19_an_agent_of_one_program_runs_without_a_model() {
    let (world, project) =
        of_one_program("#!/bin/sh\nprintf '{\"ok\": true, \"args\": \"%s\"}' \"$*\"\n").await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(output["final_report"]["content_json"]["args"], "--pr 7 v.json", "{output:#}");
    project.program("merge.sh", "#!/bin/sh\nexit 2\n");
    let (code, output) = run(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("agent_cli_failed")), "{output:#}");
    let shown = world.agentd(&["runs", "report", "latest"]).await;
    assert!(text(&shown.stdout).contains("exit code 2"), "{}", text(&shown.stdout));
    world.finish().await;
}
