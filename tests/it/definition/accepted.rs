//! What loads, whatever generation or form it is written in.

use std::collections::BTreeMap;

use agentd::definition::Severity;
use agentd::domain::completion::{Completion, CompositeMode};
use agentd::domain::flow::{ClosureAction, PermissionMode, StepKind};
use agentd::prompt::template::Values;
use serde_json::json;

use super::project::{Project, codes, put, values, without};

#[test]
fn f0_loads_with_true_warnings_only() {
    let loaded = Project::f0().loaded();
    let flow = &loaded.definition.flow;
    assert_eq!(flow.entry, "initial.a");
    assert_eq!(flow.steps.len(), 3);
    assert_eq!(loaded.definition.completion, Completion::StepMachine);
    assert_eq!(loaded.definition.max_iterations, Some(50));
    assert_eq!(
        codes(&loaded.diagnostics),
        [
            "AC-IGNORED-001",
            "AC-IGNORED-001",
            "SR-TRANS-013",
            // The targets of jumps that its gates do not let through.
            "SR-IGNORED-001",
            "SR-IGNORED-001",
            "SR-TRANS-014",
            "SR-IGNORED-001"
        ],
        "{:#?}",
        loaded.diagnostics
    );
    let step = flow.step("initial.a").unwrap();
    let prompt = loaded.resolve_prompt(step, None, &Values::default()).unwrap();
    assert_eq!(prompt.text, "\nDo the initial part.\n");
    assert_eq!(prompt.path, ".agent/f0/prompts/steps/initial/a/f_default.md");
    assert_eq!(loaded.system_prompt().text, "You are f0. You are done when the step flow reaches its end.\n");
    let schema = step.output_schema.as_ref().unwrap();
    assert_eq!(
        schema.json["properties"]["next_action"].get("additionalProperties"),
        None,
        "as open as written"
    );
    assert_eq!(schema.source, ".agent/f0/schemas/s.schema.json#initial.a");
}

#[test]
fn the_hash_covers_every_file_and_nothing_else() {
    let project = Project::f0();
    let before = project.loaded().sha256;
    assert_eq!(project.loaded().sha256, before);
    for file in ["prompts/steps/closure/a/f_default.md", "prompts/system.md", "schemas/s.schema.json"] {
        let path = project.agent.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        put(&path, &format!("{text}\n"));
        assert_ne!(project.loaded().sha256, before, "{file}");
        put(&path, &text);
    }
    assert_eq!(project.loaded().sha256, before);
}

#[test]
fn a_run_keeps_what_was_loaded() {
    let project = Project::f0();
    let loaded = project.loaded();
    project.write("prompts/steps/initial/a/f_default.md", "Something else.");
    let step = loaded.definition.flow.step("initial.a").unwrap();
    assert_eq!(
        loaded.resolve_prompt(step, None, &Values::default()).unwrap().text,
        "\nDo the initial part.\n"
    );
}

#[test]
fn p01_the_least_an_agent_needs_loads_with_a_warning() {
    let project = Project::f0();
    project.agent_json(|agent| {
        *agent = json!({"name": "f0", "displayName": "f0",
            "runner": {"flow": {}, "verdict": {"type": "stepMachine"}, "boundaries": {}}});
    });
    let loaded = project.loaded();
    assert_eq!(loaded.definition.version, "1.0");
    assert_eq!(loaded.definition.boundaries.permission_mode, PermissionMode::Plan);
    assert_eq!(project.finds("AC-VALID-002", Severity::Warning).message, "the agent has no description");
}

/// Keys that other programs write and that mean nothing here, each where it stands: none is dropped in silence.
#[test]
fn p02_every_key_without_effect_is_reported_and_the_definition_loads() {
    let project = Project::f0();
    project.agent_json(|agent| {
        let runner = &mut agent["runner"];
        runner["flow"]["defaultModel"] = json!("opus");
        runner["flow"]["askUserAutoResponse"] = json!("go on");
        runner["flow"]["schemas"] = json!({"base": "schemas", "inspection": true});
        runner["flow"]["prompts"]["fallbackDir"] = json!("prompts");
        runner["actions"] = json!({"enabled": true, "types": ["close"]});
        runner["execution"] = json!({"worktree": {"enabled": true}, "finalize": {"push": true}});
        runner["integrations"]["github"]["labels"] = json!({"gap": "from: reviewer"});
        agent["colour"] = json!("red");
    });
    project.registry(|registry| {
        registry["pathTemplate"] = json!("{c1}/{c2}/{c3}.md");
        let step = &mut registry["steps"]["initial.a"];
        for (key, value) in [
            ("type", json!("prompt")),
            ("model", json!("opus")),
            ("condition", json!("x")),
            ("priority", json!(1)),
        ] {
            step[key] = value;
        }
        step["structuredGate"]["targetMode"] = json!("dynamic");
        step["transitions"]["next"]["fallback"] = json!("closure.a");
    });
    project.write("config.json", "{\"worktree\": {\"forceWorktree\": true}}");
    let loaded = project.loaded();
    let told: Vec<&str> = loaded.diagnostics.iter().map(|found| found.pointer.as_str()).collect();
    for key in [
        "/runner/flow/defaultModel",
        "/runner/flow/askUserAutoResponse",
        "/runner/flow/schemas",
        "/runner/flow/prompts/fallbackDir",
        "/runner/boundaries/allowedTools",
        "/runner/actions",
        "/runner/execution",
        "/runner/logging",
        "/colour",
        "/pathTemplate",
        "/steps/initial.a/model",
        "/steps/initial.a/condition",
        "/steps/initial.a/priority",
        "/steps/initial.a/structuredGate/targetMode",
        "/steps/initial.a/transitions/next/fallback",
    ] {
        assert!(told.contains(&key), "{key} is not reported: {told:#?}");
    }
    assert!(loaded.diagnostics.iter().any(|found| found.file.ends_with("f0/config.json")));
    assert!(loaded.diagnostics.iter().all(|found| found.severity == Severity::Warning));
}

#[test]
fn p03_settings_that_a_completion_type_does_not_have_are_warned_of() {
    let project = Project::f0();
    project.agent_json(|agent| agent["runner"]["verdict"]["config"]["issueParam"] = json!("issue"));
    let found = project.finds("AC-UNKNOWN-001", Severity::Warning);
    assert_eq!(found.pointer, "/runner/verdict/config/issueParam");
    project.loaded();
}

#[test]
fn p04_p06_a_step_has_defaults_and_its_kind_follows_from_c2() {
    let project = Project::f0();
    project.registry(|registry| {
        for id in ["initial.a", "continuation.a", "closure.a"] {
            let step = registry["steps"][id].as_object_mut().unwrap();
            for key in ["uvVariables", "usesStdin", "edition", "stepKind", "name"] {
                step.remove(key);
            }
        }
    });
    let flow = project.loaded().definition.flow;
    let kinds: Vec<_> = flow.steps.iter().map(|step| step.kind).collect();
    assert_eq!(kinds, [Some(StepKind::Work), Some(StepKind::Work), Some(StepKind::Closure)]);
    let step = &flow.steps[0];
    assert_eq!((step.address.edition.as_str(), step.uses_stdin), ("default", false));
    assert!(step.uv_variables.is_empty());
}

#[test]
fn p05_p07_step_ids_of_one_and_three_parts_and_sections_are_accepted() {
    let project = Project::f0();
    project.registry(|registry| {
        let closure = registry["steps"].as_object_mut().unwrap().shift_remove("closure.a").unwrap();
        registry["steps"]["finish"] = closure;
        registry["steps"]["finish"]["stepId"] = json!("finish");
        registry["steps"]["finish"]["transitions"]["repeat"]["target"] = json!("finish");
        for id in ["initial.a", "continuation.a"] {
            registry["steps"][id]["transitions"]["handoff"]["target"] = json!("finish");
        }
        registry["steps"]["section.a.b"] = json!({"stepId": "section.a.b", "c2": "initial", "c3": "a"});
    });
    project.loaded();
}

#[test]
fn p08_p11_the_scaffold_form_loads_without_gates_and_its_prefixes_are_normalised() {
    let project = Project::f0();
    project.agent_json(|agent| agent["runner"]["verdict"] = json!({"type": "detect:keyword", "config": {}}));
    project.registry(|registry| {
        let step = |id: &str, c2: &str| json!({"stepId": id, "name": id, "c2": c2, "c3": "a", "uvVariables": ["uv-issue"]});
        *registry = json!({"agentId": "f0", "version": "1.0.0", "c1": "steps",
            "entryStepMapping": {"detect:keyword": "initial.a"},
            "steps": {"initial.a": step("initial.a", "initial"), "continuation.a": step("continuation.a", "continuation")}});
    });
    let loaded = project.loaded();
    assert_eq!(loaded.definition.completion, Completion::KeywordSignal { keyword: "TASK_COMPLETE".into() });
    assert_eq!(loaded.definition.flow.steps[0].uv_variables, ["issue"]);
    assert!(project.finds("SR-DEPRECATED-001", Severity::Warning).message.contains("uv-issue"));
}

#[test]
fn p09_the_schemas_enum_may_list_the_intents_in_any_order() {
    let project = Project::f0();
    project.json("schemas/s.schema.json", |schema| {
        schema["initial.a"]["properties"]["next_action"]["properties"]["action"]["enum"] =
            json!(["handoff", "repeat", "next"]);
    });
    project.loaded();
}

#[test]
fn p12_the_oldest_generation_loads_with_deprecations_that_name_file_line_and_key() {
    let project = Project::new("oldest", "worker");
    let loaded = project.loaded();
    let definition = &loaded.definition;
    assert_eq!(definition.completion, Completion::KeywordSignal { keyword: "ALL_DONE".into() });
    assert_eq!(definition.max_iterations, Some(7));
    assert_eq!(definition.flow.entry, "initial.manual");
    assert!(!definition.boundaries.sandbox.enabled);
    assert_eq!(definition.github.completion_add, ["done"]);
    let found = loaded
        .diagnostics
        .iter()
        .find(|found| found.code == "AC-DEPRECATED-001" && found.pointer == "/behavior/completionType")
        .unwrap();
    assert_eq!(found.fix, "write \"runner.verdict.type\"");
    assert!(found.place.is_some_and(|place| place.line > 1));
    let step = definition.flow.step("initial.manual").unwrap();
    let mut values = loaded.run_values(&BTreeMap::new()).unwrap();
    values.set("issue", "7");
    assert_eq!(
        loaded.resolve_prompt(step, None, &values).unwrap().text,
        "Look at everything for #7; say ALL_DONE when done.\n"
    );
}

#[test]
fn p12_the_middle_generation_loads_with_composite_inputs_and_validation() {
    let project = Project::new("middle", "keeper");
    let loaded = project.loaded();
    let Completion::Composite { mode: CompositeMode::Any, conditions } = &loaded.definition.completion else {
        panic!("{:?}", loaded.definition.completion)
    };
    assert_eq!(conditions.len(), 2);
    assert_eq!(loaded.definition.github.default_closure_action, ClosureAction::LabelOnly);
    let flow = &loaded.definition.flow;
    let validation = flow.validation_for(&flow.steps[0], &loaded.definition.completion).unwrap();
    assert_eq!((validation.conditions.len(), validation.max_attempts), (1, 2));
    let retry = loaded.retry_prompt(validation, Some("dirty"), &json!({"files": ["a.rs"]})).unwrap().unwrap();
    assert_eq!(retry.text, "Commit these:\n- a.rs\n");
    let prompt =
        loaded.resolve_prompt(&flow.steps[1], None, &values(&[("uv-initial_keep_height", "3")])).unwrap();
    assert_eq!(prompt.text, "It was 3 high. Go on.\n");
}

#[test]
fn p13_a_version_may_be_absent_10_or_semver_and_another_major_is_refused() {
    for version in [None, Some("1.0"), Some("1.12.0"), Some("1.13.26")] {
        let project = Project::f0();
        project.agent_json(|agent| match version {
            Some(version) => agent["version"] = json!(version),
            None => {
                agent.as_object_mut().unwrap().remove("version");
            }
        });
        assert_eq!(project.loaded().definition.version, version.unwrap_or("1.0"));
    }
    let project = Project::f0();
    project.registry(|registry| without(registry, "version"));
    assert_eq!(project.loaded().definition.flow.steps.len(), 3, "the registry's may be absent, too");
    let project = Project::f0();
    project.agent_json(|agent| agent["version"] = json!("2.0.0"));
    project.refused_for("AC-VALID-001");
}

#[test]
fn p14_byte_order_marks_and_crlf_change_nothing() {
    let project = Project::f0();
    let windows = |file: &str| {
        let text = std::fs::read_to_string(project.agent.join(file)).unwrap();
        project.write(file, &format!("\u{feff}{}", text.replace('\n', "\r\n")));
    };
    for file in
        ["agent.json", "steps_registry.json", "schemas/s.schema.json", "prompts/steps/initial/a/f_default.md"]
    {
        windows(file);
    }
    let yml = project.root.join(".agent/climpt/config/f0-steps-user.yml");
    let text = std::fs::read_to_string(&yml).unwrap();
    put(&yml, &format!("\u{feff}{}", text.replace('\n', "\r\n")));
    let loaded = project.loaded();
    let step = &loaded.definition.flow.steps[0];
    assert_eq!(
        loaded.resolve_prompt(step, None, &Values::default()).unwrap().text,
        "\nDo the initial part.\n"
    );
}

#[test]
fn a_required_kind_that_is_only_ever_cited_is_told_with_what_it_proves() {
    let project = Project::f0();
    project
        .agent_json(|agent| agent["runner"]["agentd"] = json!({ "requires": ["tests_pass", "change_made"] }));
    let told = |found: &agentd::definition::Diagnostic| found.pointer.starts_with("/runner/agentd/requires/");
    assert!(!project.findings().iter().any(told), "agentd knows those itself: {:#?}", project.findings());
    let only_cited = ["requirement_met", "behavior_observed", "defect_location", "other"];
    project.agent_json(|agent| agent["runner"]["agentd"] = json!({ "requires": only_cited }));
    let found: Vec<_> = project.loaded().diagnostics.into_iter().filter(told).collect();
    assert_eq!(found.len(), only_cited.len(), "{found:#?}");
    for (found, kind) in found.iter().zip(only_cited) {
        assert_eq!(found.severity, Severity::Warning, "{found}");
        assert!(
            found.message.contains(kind) && found.message.contains("what it cites stands there"),
            "{found}"
        );
        assert!(found.message.contains("agentd does not judge"), "{found}");
    }
}
