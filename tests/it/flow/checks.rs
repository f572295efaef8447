//! Checks before a flow may close: E12 to E14.

use agentd::domain::stop::StopDetail;
use agentd::domain::trace::CheckMoment;
use serde_json::{Value, json};

use super::world::{Flow, says};
use crate::session::world::{Line, call, report_json};

/// F0 with checks before its closure.
async fn checked(script: Vec<Line>, validators: Value, on_failure: Value) -> Flow {
    Flow::f0(script).await.registry(|registry| {
        let names: Vec<Value> =
            validators.as_object().unwrap().keys().map(|name| json!({"validator": name})).collect();
        registry["validators"] = validators;
        registry["validationSteps"] = json!({"closure.graph": {"c2": "retry", "c3": "a",
            "validationConditions": names, "onFailure": on_failure}});
    })
}

fn git_clean() -> Value {
    json!({"git-clean": {"type": "command", "command": "git status --porcelain", "successWhen": "empty",
        "failurePattern": "dirty", "extractParams": {"files": "parseUntrackedFiles"}}})
}

fn dirty(flow: Flow) -> Flow {
    flow.ground.write("left over.txt", "x");
    flow.registry(|registry| {
        registry["failurePatterns"] =
            json!({"dirty": {"edition": "failed", "adaptation": "dirty", "params": ["files"]}});
    })
}

const RETRY: &str = "Commit these first:\n{{#each files}}\n- {{this}}\n{{/each}}\n";

fn commit() -> Line {
    call("run_command", json!({"argv": ["sh", "-c", "git add -A && git commit -qm kept"]}))
}

#[tokio::test]
async fn e12_a_failing_preflight_reaches_the_model_which_repairs_it() {
    let script = vec![says("handoff"), commit(), says("closing")];
    let flow = dirty(checked(script, git_clean(), json!({"action": "retry"})).await);
    flow.project.write("prompts/steps/retry/a/f_failed_dirty.md", RETRY);
    let ended = flow.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "closure.a"]);
    let asked = ended.asked(2);
    assert!(asked.starts_with("Commit these first:\n- left over.txt\n\n"), "{asked}");
    assert!(asked.contains("The issue: fix it."), "the step's own prompt and the issue follow: {asked}");
    let told: Vec<(CheckMoment, bool, u32)> =
        ended.checks().iter().map(|run| (run.moment, run.checks[0].held, run.attempt)).collect();
    assert_eq!(told, [(CheckMoment::Before, false, 1), (CheckMoment::After, true, 2)]);
    assert_eq!(ended.checks()[0].retry_prompts, [".agent/f0/prompts/steps/retry/a/f_failed_dirty.md"]);
}

#[tokio::test]
async fn e12_a_check_that_fails_at_the_end_visits_the_step_again() {
    // Clean before, dirty after the first visit.
    let dirties = call("write_file", json!({"path": "new.txt", "content": "x"}));
    let script = vec![says("handoff"), dirties, says("closing"), commit(), says("done")];
    let ended = checked(script, git_clean(), json!({"action": "retry"}))
        .await
        .registry(|registry| registry["failurePatterns"] = json!({"dirty": {}}))
        .run()
        .await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "closure.a", "closure.a"]);
    let asked = ended.asked(4);
    assert!(
        asked.contains("## git-clean") && asked.contains("?? new.txt"),
        "without a prompt of its own: {asked}"
    );
}

#[tokio::test]
async fn e13_on_failure_is_honoured_before_the_model_is_asked() {
    let run = |on_failure: Value| async {
        let script = vec![says("handoff"), says("repeat"), says("closing")];
        dirty(checked(script, git_clean(), on_failure).await).run().await
    };
    let ended = run(json!({"action": "abort"})).await;
    ended.failed(StopDetail::AgentAborted, "AGENT_VALIDATION_ABORT");
    assert_eq!((ended.visits.len(), ended.requests.len()), (2, 1), "no request for the closure");

    let ended = run(json!({"action": "skip"})).await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "closure.a", "closure.a"]);
    assert!(ended.warned("validation_skipped").is_some_and(|text| text.contains("git-clean")));
    assert!(!ended.asked(2).contains("git-clean"), "{}", ended.asked(2));

    let ended = run(json!({"action": "retry", "maxAttempts": 2})).await;
    ended.failed(StopDetail::AgentAborted, "last of 2 attempts");
    assert_eq!(ended.requests.len(), 2, "one try, and no request for the second");

    let ended = run(json!({"action": "retry", "maxAttempts": 1})).await;
    ended.failed(StopDetail::AgentAborted, "last of 1 attempt.");
}

#[tokio::test]
async fn e13_a_failure_that_is_passed_over_is_no_attempt_of_another_steps_check() {
    let script = vec![says("handoff"), says("repeat"), says("closing")];
    let flow = dirty(checked(script, git_clean(), json!({"action": "retry", "maxAttempts": 2})).await);
    let flow = flow.registry(|registry| {
        registry["validationSteps"]["initial.a"] = json!({"stepId": "initial.a", "c2": "retry", "c3": "a",
            "postLLMConditions": [{"validator": "git-clean"}], "onFailure": {"action": "skip"}});
    });
    let ended = flow.run().await;
    let attempts: Vec<(&str, u32)> =
        ended.checks().iter().map(|run| (run.step_id.as_str(), run.attempt)).collect();
    assert_eq!(attempts, [("initial.a", 1), ("closure.a", 1), ("closure.a", 2)]);
    ended.failed(StopDetail::AgentAborted, "last of 2 attempts");
}

#[tokio::test]
async fn e13_e23_a_killed_process_does_not_start_the_count_of_failed_checks_anew() {
    let on_failure = json!({"action": "retry", "maxAttempts": 2});
    let flow = |script| async { dirty(checked(script, git_clean(), on_failure.clone()).await) };
    let ended = flow(vec![says("handoff"), says("repeat")]).await.run().await;
    ended.failed(StopDetail::AgentAborted, "last of 2 attempts");
    // What a process leaves that dies between the second visit and the third.
    let kept = serde_json::to_string(&ended.visits[..2]).unwrap();
    let finished = serde_json::from_str(&kept).unwrap();
    let ended = flow(Vec::new()).await.with(|flow| flow.finished = finished).run().await;
    ended.failed(StopDetail::AgentAborted, "last of 2 attempts");
    assert_eq!(
        (ended.checks()[0].attempt, ended.requests.len()),
        (2, 0),
        "no attempt more than without the crash"
    );
}

#[tokio::test]
async fn e14_a_check_that_cannot_be_run_ends_the_run_whatever_on_failure_says() {
    for (command, on_failure) in [("no-such-program --check", "retry"), ("./a.txt", "skip")] {
        let validators = json!({"odd": {"type": "command", "command": command}});
        let ended =
            checked(vec![says("handoff"), says("closing")], validators, json!({"action": on_failure}))
                .await
                .run()
                .await;
        ended.failed(StopDetail::AgentAborted, "AGENT_VALIDATION_ABORT");
        assert_eq!(ended.requests.len(), 1);
    }
}

#[tokio::test]
async fn e14_a_check_that_is_declared_beyond_repair_is_not_tried_again() {
    let validators = json!({"red": {"type": "command", "command": "false", "recoverableByDefault": false}});
    let ended = checked(vec![says("handoff")], validators, json!({"action": "retry"})).await.run().await;
    ended.failed(StopDetail::AgentAborted, "cannot be repaired");
}

#[tokio::test]
async fn d90_parameters_of_a_command_are_never_run_and_the_worktree_is_its_place() {
    let ended = Flow::f0(vec![says("handoff"), says("closing")])
        .await
        .registry(|registry| {
            registry["validators"] = json!({"looks": {"type": "command",
                "command": "test -f a.txt && printf '%s|%s' \"$1\" \"${name}\"", "successWhen": "contains:$(touch pwned); touch pwned|it's"}});
            registry["validationSteps"] = json!({"closure.graph": {"validationConditions": [
                {"validator": "looks", "params": {"text": "$(touch pwned); touch pwned", "name": "it's"}}]}});
        })
        .run()
        .await;
    ended.succeeded();
    assert!(!ended.ground.repo.join("pwned").as_path().exists());
}

#[tokio::test]
async fn every_condition_of_success_and_files_are_asked() {
    let holds = json!({
        "code": {"type": "command", "command": "exit 3", "successWhen": "exitCode:3"},
        "text": {"type": "command", "command": "echo all green", "successWhen": "contains:green"},
        "pattern": {"type": "command", "command": "echo 12 passed", "successWhen": "matches:^\\d+ passed"},
        "file": {"type": "file", "path": "src/lib.rs"}
    });
    let ended =
        checked(vec![says("handoff"), says("closing")], holds, json!({"action": "abort"})).await.run().await;
    assert!(ended.succeeded().checks()[0].checks.iter().all(|check| check.held));
    let fails = json!({
        "gone": {"type": "file", "path": "docs/plan.md"},
        "red": {"type": "command", "command": "echo 'FAIL x'; exit 1"}
    });
    let script = vec![says("handoff"), says("closing")];
    let ended = checked(script, fails, json!({"action": "retry", "maxAttempts": 2})).await.run().await;
    let asked = ended.asked(2);
    for part in ["## gone", "\"docs/plan.md\"", "## red", "exit code 1", "FAIL x"] {
        assert!(asked.contains(part), "{part} in {asked}");
    }
}

#[tokio::test]
async fn a_program_of_the_agent_checks_and_says_more() {
    let flow = checked(
        vec![says("handoff"), says("closing")],
        json!({"own": {"type": "custom", "path": "check.sh", "failurePattern": "own"}}),
        json!({"action": "retry", "maxAttempts": 2}),
    )
    .await
    .registry(|registry| registry["failurePatterns"] = json!({"own": {"adaptation": "own"}}));
    flow.project.write("prompts/steps/retry/a/f_failed_own.md", "Because {{cause}}.");
    flow.project.program(
        "check.sh",
        "#!/bin/sh\ngrep -q '\"step_id\":\"closure.a\"' || exit 9\necho '{\"cause\": \"of rain\"}'\nexit 1\n",
    );
    let ended = flow.run().await;
    ended.failed(StopDetail::AgentAborted, "own");
    assert!(ended.asked(2).starts_with("Because of rain."), "{}", ended.asked(2));
}

#[tokio::test]
async fn a_question_about_the_change_is_asked_of_a_reader_that_cannot_write() {
    let judged = |holds: bool| {
        report_json(
            json!({"holds": holds, "summary": "an accident", "relatedFiles": ["a.txt"], "severity": "low"}),
        )
    };
    let script = vec![
        says("handoff"),
        call("write_file", json!({"path": "judge.txt", "content": "x"})),
        judged(false),
        says("closing"),
        judged(true),
    ];
    let validators =
        json!({"relevant": {"type": "semantic", "semanticConfig": {"checkType": "file-relevance"}}});
    let flow = checked(script, validators, json!({"action": "retry"})).await;
    let flow = flow.registry(|registry| {
        registry["failurePatterns"] =
            json!({"stray": {"adaptation": "stray", "semanticMatch": ["/accid[a-z]+/"]}});
    });
    flow.project.write(
        "prompts/steps/retry/a/f_failed_stray.md",
        "{{summary}}: {{#each relatedFiles}}{{this}}{{/each}}",
    );
    let ended = flow.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "closure.a"]);
    assert!(ended.asked(2).contains("belong to the issue"), "{}", ended.asked(2));
    assert!(ended.asked(4).starts_with("an accident: a.txt"), "{}", ended.asked(4));
    assert!(!ended.ground.repo.join("judge.txt").as_path().exists(), "judging changes nothing");
}

/// F0 whose validation step of `step` has conditions of its own before and behind the step's work.
async fn around(step: &str, script: Vec<Line>, lists: Value) -> Flow {
    let step = step.to_owned();
    Flow::f0(script).await.registry(|registry| {
        registry["validators"] = json!({
            "begun": {"type": "file", "path": "a.txt"}, "never": {"type": "file", "path": "never.txt"},
            "made": {"type": "file", "path": "made.txt"}});
        registry["validationSteps"] = json!({step: lists});
    })
}

#[tokio::test]
async fn conditions_behind_a_steps_work_are_asked_wherever_the_step_leads() {
    let makes = call("write_file", json!({"path": "made.txt", "content": "x"}));
    let script = vec![says("handoff"), makes, says("handoff"), says("closing")];
    let ended = around("initial.a", script, json!({"postLLMConditions": ["made"]})).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.a", "initial.a", "closure.a"]);
    assert!(ended.asked(2).contains("made.txt"), "the model hears of it: {}", ended.asked(2));
    let told: Vec<(CheckMoment, bool)> =
        ended.checks().iter().map(|run| (run.moment, run.checks[0].held)).collect();
    assert_eq!(told, [(CheckMoment::After, false), (CheckMoment::After, true)]);
}

#[tokio::test]
async fn conditions_before_a_step_are_asked_before_its_model_and_end_the_run() {
    let lists = json!({"preflightConditions": [{"validator": "begun"}], "onFailure": {"action": "skip"}});
    let ended = around("initial.a", vec![says("handoff"), says("closing")], lists).await.run().await;
    assert_eq!(ended.succeeded().checks().len(), 1, "asked once, before the first step");
    let lists = json!({"preflightConditions": [{"validator": "never"}], "onFailure": {"action": "skip"}});
    let ended = around("initial.a", vec![says("handoff")], lists).await.run().await;
    ended.failed(StopDetail::AgentAborted, "AGENT_VALIDATION_ABORT");
    assert_eq!(ended.requests.len(), 0, "no model is asked");
    let lists = json!({"preflightConditions": [{"validator": "never"}], "postLLMConditions": [{"validator": "begun"}]});
    let ended = around("closure.a", vec![says("handoff")], lists).await.run().await;
    ended.failed(StopDetail::AgentAborted, "has to hold before the step begins");
    assert_eq!(ended.requests.len(), 1);
}

#[tokio::test]
async fn conditions_behind_a_closing_step_are_asked_when_it_closes_only() {
    let makes = call("write_file", json!({"path": "made.txt", "content": "x"}));
    let script = vec![says("handoff"), makes, says("closing")];
    let lists = json!({"postLLMConditions": [{"validator": "made"}]});
    let ended = around("closure.a", script, lists).await.run().await;
    let moments: Vec<CheckMoment> = ended.succeeded().checks().iter().map(|run| run.moment).collect();
    assert_eq!(moments, [CheckMoment::After], "nothing is asked before, when there is nothing to ask");
}

#[tokio::test]
async fn the_first_guides_agent_goes_to_its_end() {
    let script = vec![says("next"), says("complete"), says("closing")];
    let ended = Flow::of(crate::definition::older::first_guide(), script).await.run().await;
    assert_eq!(ended.succeeded().steps(), ["initial.default", "continuation.default", "complete.default"]);
}

#[tokio::test]
async fn a_run_whose_next_step_the_definition_has_lost_says_what_comes_next() {
    let ended = Flow::f0(vec![says("handoff"), says("closing")]).await.run().await;
    let kept = serde_json::to_string(&ended.visits[..1]).unwrap();
    let finished: Vec<agentd::domain::run::VisitRecord> = serde_json::from_str(&kept).unwrap();
    let mut finished = finished;
    finished[0].next = Some("continuation.gone".to_owned());
    let ended = Flow::f0(Vec::new()).await.with(|flow| flow.finished = finished).run().await;
    ended.failed(StopDetail::ConfigInvalid, "\"continuation.gone\", which its definition has no more");
    assert!(ended.end.stop.message.contains("begins there at \"initial.a\""), "{}", ended.end.stop.message);
}

#[tokio::test]
async fn a_limit_of_one_is_said_as_one() {
    let flow = Flow::f0(vec![says("next")]).await;
    let flow = flow.agent(|agent| agent["runner"]["verdict"]["config"]["maxIterations"] = json!(1));
    flow.run().await.failed(StopDetail::MaxIterations, "limit of 1 iteration is reached");
}
