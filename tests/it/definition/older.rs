//! Definitions as climpt's guides wrote them over its first versions load, and mean what they meant.

use agentd::definition::Severity;
use agentd::domain::completion::Completion;
use agentd::domain::flow::{Intent, StepKind};
use serde_json::{Value, json};

use super::project::{Project, put};

/// An agent as the first guide to 1.10 has it: no schemas, an entry for all types, and `complete` as an intent.
pub fn first_guide() -> Project {
    let project = Project::f0();
    project.agent_json(|agent| {
        *agent = json!({
            "version": "1.10.0", "name": "f0", "displayName": "First", "description": "as the first guide has it",
            "behavior": {"systemPromptPath": "prompts/system.md", "completionType": "externalState",
                "completionConfig": {"maxIterations": 50}, "allowedTools": ["Read", "Bash"], "permissionMode": "bypassPermissions"},
            "parameters": {"issue": {"type": "number", "description": "the issue", "required": true, "cli": "--issue"}},
            "prompts": {"registry": "steps_registry.json", "fallbackDir": "prompts/"},
            "logging": {"directory": "tmp/logs", "format": "jsonl"}
        });
    });
    let step = |id: &str, c2: &str| {
        json!({"stepId": id, "name": id, "c2": c2, "c3": "default", "edition": "default",
            "structuredGate": {"allowedIntents": ["next", "repeat", "complete"], "intentField": "next_action.action",
                "fallbackIntent": "next", "handoffFields": []},
            "transitions": {"next": {"target": "continuation.default"}, "repeat": {"target": id},
                "complete": {"target": "complete.default"}}})
    };
    project.registry(|registry| {
        *registry = json!({
            "agentId": "f0", "version": "3.0.0", "userPromptsBase": ".agent/f0/prompts", "schemasBase": ".agent/f0/schemas",
            "c1": "steps", "pathTemplate": "{c1}/{c2}/{c3}/f_{edition}.md",
            "entryStepMapping": {"default": "initial.default"},
            "steps": {"initial.default": step("initial.default", "initial"),
                "continuation.default": step("continuation.default", "continuation"),
                "complete.default": {"stepId": "complete.default", "name": "end", "c2": "complete", "c3": "default", "edition": "default"}}
        });
    });
    for folder in ["initial", "continuation", "complete"] {
        project.write(
            &format!("prompts/steps/{folder}/default/f_default.md"),
            &format!("The {folder} part of #{{uv-issue}}."),
        );
    }
    put(&project.root.join(".agent/climpt/config/f0-steps-user.yml"), "");
    project
}

#[test]
fn the_first_guides_agent_loads_with_its_entry_its_gates_and_its_closing_step() {
    let loaded = first_guide().loaded();
    let flow = &loaded.definition.flow;
    assert_eq!(loaded.definition.completion, Completion::ExternalState);
    assert_eq!(flow.entry, "initial.default");
    let begin = flow.step("initial.default").unwrap();
    let gate = begin.gate.as_ref().unwrap();
    assert_eq!(gate.allowed_intents, [Intent::Next, Intent::Repeat, Intent::Handoff]);
    assert!(gate.fail_fast, "what is not said is true");
    assert_eq!(gate.read("Complete"), Some(Intent::Handoff), "models that were told so may still say it");
    let schema = &begin.output_schema.as_ref().unwrap().json;
    assert_eq!(
        schema.pointer("/properties/next_action/properties/action/enum"),
        Some(&json!(["next", "repeat", "handoff"]))
    );
    let end = flow.step("complete.default").unwrap();
    assert_eq!(end.kind, Some(StepKind::Closure));
    assert_eq!(end.gate.as_ref().unwrap().allowed_intents, [Intent::Closing, Intent::Repeat]);
    assert!(loaded.definition.has_closing_step());
    let told: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    for part in ["userPromptsBase", "schemasBase", "older name of an intent", "has no gate", "has no schema"]
    {
        assert!(told.iter().any(|line| line.contains(part)), "{part} is not told: {told:#?}");
    }
}

#[test]
fn the_first_guides_agent_is_migrated_once_and_stays_the_same() {
    use agentd::definition::migration::{apply, plan};
    let project = first_guide();
    let before = project.loaded().definition;
    apply(&plan(&project.root, &project.agent).unwrap()).unwrap();
    assert_eq!(plan(&project.root, &project.agent).unwrap(), [], "idempotent");
    assert_eq!(project.loaded().definition, before);
}

#[test]
fn an_intent_schema_from_the_root_of_its_file_is_found() {
    for (selector, root) in
        [("#/definitions/initial.a", "#/definitions/initial.a"), ("initial.a", "#/definitions/initial.a")]
    {
        let project = Project::f0();
        project.json("schemas/s.schema.json", |schema| *schema = json!({"definitions": schema.clone()}));
        project.registry(|registry| {
            for (id, step) in registry["steps"].as_object_mut().unwrap() {
                step["outputSchemaRef"]["schema"] = json!(format!("#/definitions/{id}"));
            }
            let step = &mut registry["steps"]["initial.a"];
            step["outputSchemaRef"]["schema"] = json!(selector);
            step["structuredGate"]["intentSchemaRef"] =
                json!(format!("{root}/properties/next_action/properties/action"));
        });
        project.loaded();
        let told = project.finds("SR-DEPRECATED-001", Severity::Warning);
        assert_eq!(told.pointer, "/steps/initial.a/structuredGate/intentSchemaRef");
        assert!(told.fix.contains("\"#/properties/next_action/properties/action\""), "{told}");
    }
}

#[test]
fn conditions_at_a_step_are_those_of_its_validation_step() {
    let clean = json!({"clean": {"type": "command", "command": "true"}});
    let project = Project::f0();
    project.registry(|registry| {
        registry["validators"] = clean.clone();
        let step = &mut registry["steps"]["continuation.a"];
        step["completionConditions"] = json!([{"validator": "clean"}]);
        step["preflightConditions"] = json!(["clean"]);
        step["onFailure"] = json!({"action": "abort"});
    });
    let flow = project.loaded().definition.flow;
    let [validation] = flow.validation_steps.as_slice() else { panic!("{:?}", flow.validation_steps) };
    assert_eq!(validation.id, "continuation.a");
    assert_eq!((validation.before.len(), validation.after.len(), validation.conditions.len()), (1, 1, 0));
    assert_eq!(validation.on_failure.as_str(), "abort");
    // An entry of retry prompts only is no step, and belongs to its completion type.
    let project = Project::f0();
    project.registry(|registry| {
        registry["validators"] = clean;
        registry["steps"]["complete.stepMachine"] = json!({"stepId": "complete.stepMachine", "name": "x", "c2": "retry", "c3": "a",
            "completionConditions": [{"validator": "clean"}], "onFailure": {"action": "retry", "maxAttempts": 3}});
    });
    let flow = project.loaded().definition.flow;
    assert_eq!(flow.steps.len(), 3);
    assert_eq!(flow.validation_steps[0].id, "closure.graph");
    assert_eq!((flow.validation_steps[0].c2.as_str(), flow.validation_steps[0].after.len()), ("retry", 1));
}

#[test]
fn settings_of_version_1_12_stand_where_the_newest_form_has_them() {
    let project = Project::f0();
    project.agent_json(|agent| {
        let runner = &mut agent["runner"];
        runner["integrations"].take();
        runner.as_object_mut().unwrap().shift_remove("integrations");
        runner["boundaries"]["github"] = json!({"enabled": true, "defaultClosureAction": "label-only"});
        let logging = runner["logging"].take();
        runner.as_object_mut().unwrap().shift_remove("logging");
        runner["telemetry"] = json!({"logging": logging});
    });
    let loaded = project.loaded();
    assert!(loaded.definition.github.closure_action_set);
    assert!(
        !loaded.definition.github.default_closure_action.closes(),
        "an issue that is only labelled is not closed"
    );
    assert!(
        !loaded.diagnostics.iter().any(|found| found.code == "AC-UNKNOWN-001"),
        "{:#?}",
        loaded.diagnostics
    );
}

#[test]
fn the_migration_guides_flow_loads_with_the_questions_of_its_checks() {
    let project = Project::f0();
    project.agent_json(|agent| {
        agent["runner"]["verdict"] = json!({"type": "detect:keyword", "config": {}});
    });
    let step = |id: &str, c3: &str, pass: Value| {
        json!({"id": id, "name": c3, "prompt": {"c1": "steps", "c2": "phase", "c3": c3},
            "check": {"prompt": {"c1": "checks", "c2": "step", "c3": c3}, "responseFormat": {"result": "ok|ng", "message": "string"},
                "onPass": pass, "onFail": {"retry": true, "maxRetries": 2}}})
    };
    project.registry(|registry| {
        *registry = json!({"version": "2.0.0", "basePath": "prompts", "entryStep": "s_1", "steps": {
            "s_1": step("s_1", "analyze", json!({"next": "s_2"})), "s_2": step("s_2", "review", json!({"complete": true}))}});
    });
    for c3 in ["analyze", "review"] {
        project.write(&format!("prompts/steps/phase/{c3}/f_default.md"), "Work.");
        project.write(&format!("prompts/checks/step/{c3}/f_default.md"), &format!("Is the {c3} done?"));
    }
    put(&project.root.join(".agent/climpt/config/f0-steps-user.yml"), "");
    let loaded = project.loaded();
    let step = loaded.definition.flow.step("s_1").unwrap();
    let check = step.check.as_ref().unwrap();
    let question = loaded.resolve_check(step, check, &Default::default()).unwrap();
    assert_eq!(question.text, "Is the analyze done?");
}

#[test]
fn the_entry_of_all_other_types_counts_behind_the_type_and_behind_entry_step() {
    let entry = |mapping: Value, entry_step: Option<&str>| {
        let project = Project::f0();
        project.registry(|registry| {
            registry["entryStepMapping"] = mapping;
            registry.as_object_mut().unwrap().shift_remove("entryStep");
            if let Some(step) = entry_step {
                registry["entryStep"] = json!(step);
            }
        });
        project.loaded().definition.flow.entry
    };
    assert_eq!(entry(json!({"default": "continuation.a"}), None), "continuation.a");
    assert_eq!(entry(json!({"default": "continuation.a", "detect:graph": "initial.a"}), None), "initial.a");
    assert_eq!(entry(json!({"default": "continuation.a"}), Some("initial.a")), "initial.a");
}
