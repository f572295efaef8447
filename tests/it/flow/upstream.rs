//! What a definition's checks and programs are told of the remote, and what the run may not change under them, through
//! the binary, in the sandbox.

use agentd::sim::scenario_file::ReplyFile;
use serde_json::{Value, json};

use super::outside::{reply, run, says};
use crate::definition::project::Project;
use crate::outside::world::{GREEN, World};

/// The demo's shop with F0 in it, which may write and run commands, and files of the repository's own.
async fn shop(replies: Vec<ReplyFile>, files: &[(&str, &str)]) -> (World, Project) {
    let world = World::of(1, |scenario| {
        scenario.model.replies = replies;
        for (path, content) in files {
            let more = serde_json::from_value(json!({ *path: content })).unwrap();
            let known = &mut scenario.repositories[0].commits[0].files;
            let more: std::collections::BTreeMap<_, _> = more;
            known.extend(more);
        }
    })
    .await;
    let rule = |id: &str, kind: &str| {
        format!(
            "[[rule]]\nid = \"{id}\"\nkind = \"{kind}\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n\n"
        )
    };
    world.write("shop/.agent/policy.toml", &(rule("steps", "handoff") + &rule("tools", "tool")));
    world.verify(GREEN);
    let project = Project::within(&world.shop(), "f0", "f0");
    (world, project)
}

fn command(line: &str) -> Value {
    json!({ "name": "run_command", "arguments": { "argv": ["sh", "-ec", line] } })
}

/// A first step that calls, then says where it goes.
fn works(calls: &[Value], then: &str) -> Vec<ReplyFile> {
    vec![reply(json!({ "tool_calls": calls })), says(then)]
}

/// Before `closure.a` these validators are asked.
fn asks(project: &Project, validation: &str, validators: Value) {
    project.registry(|registry| {
        let names: Vec<Value> =
            validators.as_object().unwrap().keys().map(|name| json!({ "validator": name })).collect();
        registry["validators"] = validators;
        registry["validationSteps"] = json!({ validation: {
            "stepId": validation, "name": "v", "c2": "retry", "c3": "a", "validationConditions": names,
            "onFailure": { "action": "retry", "maxAttempts": 2 } } });
    });
}

fn git(name: &str, line: &str, success: &str) -> (String, Value) {
    (name.to_owned(), json!({ "type": "command", "command": line, "successWhen": success }))
}

#[tokio::test(flavor = "multi_thread")]
async fn d104_the_sandbox_s_git_knows_the_origin_branch_and_the_remote() {
    let line = "echo mine > mine.txt && git add mine.txt && git commit -qm mine; \
        test \"$(git diff --name-only origin/develop...HEAD)\" = mine.txt; \
        test \"$(git log --format=%s origin/develop..HEAD)\" = mine; \
        git merge-base --is-ancestor develop HEAD; \
        git remote get-url origin > held.txt";
    let (world, _) = shop([works(&[command(line)], "handoff"), vec![says("closing")]].concat(), &[]).await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let held = world.git(&world.shop(), &["show", "feature/issue-7:held.txt"]).await;
    assert_eq!(held.trim(), format!("{}/git/demo/shop.git", world.sim.base_url()), "no credentials");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d105_checks_that_only_a_published_work_passes_are_answered_for_the_moment_after() {
    let commit = command("echo mine > mine.txt && git add mine.txt && git commit -qm mine");
    for (line, success, id, ends) in [
        ("git log origin/develop..HEAD --oneline", "empty", "closure.graph", Some(0)),
        ("git rev-parse --abbrev-ref --symbolic-full-name @{u}", "exitCode:0", "closure.graph", Some(0)),
        ("git merge-base --is-ancestor HEAD origin/develop", "exitCode:0", "closure.graph", Some(0)),
        ("git branch --merged develop", "contains:feature/issue-7", "closure.graph", Some(0)),
        // What holds now is not asked again, and what holds at no time does not hold.
        ("git log origin/develop..HEAD --format=%s", "contains:mine", "closure.graph", Some(0)),
        ("git log origin/develop..HEAD --format=%s", "contains:yours", "closure.graph", Some(1)),
        // climpt asks only the validation step of the completion type.
        ("git log origin/develop..HEAD --format=%s", "contains:yours", "closure.a", Some(0)),
        ("git log --format=%s", "contains:yours", "closure.a", Some(1)),
    ] {
        let closing = vec![says("closing"); 4];
        let (world, project) =
            shop([works(std::slice::from_ref(&commit), "handoff"), closing].concat(), &[]).await;
        let asked = [git("clean", "git status --porcelain", "empty"), git("asked", line, success)];
        asks(&project, id, Value::Object(asked.into_iter().collect()));
        let (code, output) = run(&world).await;
        assert_eq!(code, ends, "{line} {success} {id}: {output:#}");
        let passed_over = output["warnings"].to_string().contains("check_passed_over");
        assert_eq!(passed_over, id == "closure.a" && ends == Some(0), "{line} {id}: {output:#}");
        world.sim.shutdown().await;
    }
}

const CHECK: &str = "#!/bin/sh\ntest -e mine.txt\n";

#[tokio::test(flavor = "multi_thread")]
async fn d108_a_check_that_the_run_changed_is_not_asked_until_it_is_put_back() {
    let weakens = command("echo mine > mine.txt; echo 'exit 0' > ci/check.sh");
    for (line, from_worktree) in
        [("sh ci/check.sh", false), ("cd . && ./ci/check.sh", false), ("sh ci/check.sh", true)]
    {
        let restores = command("git checkout ci/check.sh");
        let script = match from_worktree {
            true => [works(std::slice::from_ref(&weakens), "handoff"), vec![says("closing")]].concat(),
            false => {
                [works(std::slice::from_ref(&weakens), "handoff"), works(&[restores], "closing")].concat()
            }
        };
        let (world, project) = shop(script, &[("ci/check.sh", CHECK)]).await;
        let mut validator = git("asked", &line.replace("./ci", "sh ci"), "exitCode:0");
        validator.1["fromWorktree"] = json!(from_worktree);
        asks(&project, "closure.a", Value::Object([validator].into_iter().collect()));
        let (code, output) = run(&world).await;
        assert_eq!(code, Some(0), "{line}: {output:#}");
        let requests = format!("{:?}", world.sim.model_requests());
        let told = requests.contains("it runs ci/check.sh, which this run changed");
        assert_eq!(told, !from_worktree, "{line}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d108_a_step_s_program_that_the_run_changed_or_made_is_not_executed() {
    for (path, from_worktree, ends) in [
        ("ci/step.sh", false, "policy_denied"),
        ("ci/new.sh", false, "policy_denied"),
        ("ci/step.sh", true, "completed"),
    ] {
        let weakens = command(&format!("echo mine > mine.txt; echo 'echo {{}}' > {path}"));
        let (world, project) =
            shop(works(&[weakens], "handoff"), &[("ci/step.sh", "echo '{\"real\": true}'\n")]).await;
        project.registry(|registry| {
            let step = registry["steps"]["closure.a"].as_object_mut().unwrap();
            step.remove("structuredGate");
            step.remove("transitions");
            step.remove("outputSchemaRef");
            step.insert(
                "runner".to_owned(),
                json!({ "command": "sh", "args": [path], "fromWorktree": from_worktree }),
            );
        });
        let (_, output) = run(&world).await;
        assert_eq!(output["stop_detail"], ends, "{path}: {output:#}");
        let told = output.to_string().contains(&format!("its program {path} was changed by this run"));
        assert_eq!(told, !from_worktree, "{output:#}");
        world.finish().await;
    }
}
