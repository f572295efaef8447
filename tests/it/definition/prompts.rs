//! Prompts of a definition: where they are found, and what goes into them.

use std::collections::{BTreeMap, BTreeSet};

use agentd::definition::{Severity, load};
use agentd::prompt::template::Values;
use serde_json::json;

use super::project::{Project, codes, step, values, without};

#[test]
fn d64_an_implied_closure_adaptation_falls_back_with_a_warning() {
    let project = Project::f0();
    project.agent_json(|agent| {
        agent["runner"]["integrations"]["github"] = json!({"defaultClosureAction": "label-only"});
    });
    let found = project.finds("PR-C3L-005", Severity::Warning);
    assert!(found.message.contains("label-only"), "{found}");
    let loaded = project.loaded();
    let closure = loaded.definition.flow.step("closure.a").unwrap();
    assert!(loaded.resolve_prompt(closure, None, &Values::default()).unwrap().fell_back);
    let error = loaded.resolve_prompt(closure, Some("label-and-close"), &Values::default()).unwrap_err();
    assert_eq!(error.code, "PR-C3L-004", "asked for by name, it must be there");
    project.write("prompts/steps/closure/a/f_default_label-only.md", "Only label.");
    let loaded = project.loaded();
    let closure = loaded.definition.flow.step("closure.a").unwrap();
    assert_eq!(loaded.resolve_prompt(closure, None, &Values::default()).unwrap().text, "Only label.");
}

#[test]
fn d68_parameters_take_what_is_given_or_their_default_and_tell_what_is_missing() {
    let project = Project::f0();
    project.agent_json(|agent| {
        agent["parameters"]["depth"] = json!({"type": "number", "description": "x", "cli": "--depth",
            "required": true, "validation": {"min": 1, "max": 5}});
        agent["parameters"]["mood"] =
            json!({"type": "string", "description": "x", "cli": "--mood", "default": "calm"});
    });
    let loaded = project.loaded();
    let given = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let values = loaded.run_values(&given(&[("depth", "3"), ("free", "yes")])).unwrap();
    assert_eq!(
        (values.get("depth"), values.get("mood"), values.get("free")),
        (Some("3"), Some("calm"), Some("yes"))
    );
    let wrong = loaded.run_values(&given(&[("iteration", "3"), ("issue", "1")])).unwrap_err();
    assert_eq!(codes(&wrong), ["PR-RESOLVE-006", "PR-RESOLVE-006", "PR-RESOLVE-003"]);
    let wrong = loaded.run_values(&given(&[("depth", "9")])).unwrap_err();
    assert!(wrong[0].message.contains("above the maximum 5"), "{}", wrong[0]);
}

#[test]
fn t18_zero_false_and_empty_lists_are_values() {
    let project = Project::f0();
    project.agent_json(|agent| {
        let parameter = |kind: &str, default: serde_json::Value| json!({"type": kind, "description": "x", "cli": format!("--{kind}"), "default": default});
        agent["parameters"]["depth"] = parameter("number", json!(0));
        agent["parameters"]["deep"] = parameter("boolean", json!(false));
        agent["parameters"]["paths"] = parameter("array", json!([]));
    });
    step(&project, "initial.a", |step| step["uvVariables"] = json!(["depth", "deep", "paths"]));
    project.write("prompts/steps/initial/a/f_default.md", "{uv-depth} {uv-deep} {uv-paths}");
    let loaded = project.loaded();
    let values = loaded.run_values(&BTreeMap::new()).unwrap();
    let prompt = loaded.resolve_prompt(&loaded.definition.flow.steps[0], None, &values).unwrap();
    assert_eq!(prompt.text, "0 false []");
}

#[test]
fn t16_a_later_step_may_use_what_the_first_cannot() {
    let project = Project::f0();
    project.write("prompts/steps/continuation/a/f_default.md", "After {uv-completed_iterations}.");
    step(&project, "continuation.a", |step| step["uvVariables"] = json!(["completed_iterations"]));
    project.loaded();
}

#[test]
fn a_name_given_on_the_command_line_counts_as_supplied() {
    let project = Project::f0();
    project.write("prompts/steps/initial/a/f_default.md", "Look at {uv-topic}.");
    project.refused_for("PR-RESOLVE-005");
    let supplied = BTreeSet::from(["topic".to_owned()]);
    assert!(load(&project.root, &project.agent, &supplied).is_ok());
}

#[test]
fn a_prompt_may_be_named_by_its_path() {
    let project = Project::f0();
    project.write("words/first.md", "The first words on {uv-iteration}.");
    step(&project, "initial.a", |step| {
        step["path"] = json!("words/first.md");
        step["uvVariables"] = json!(["iteration"]);
        without(step, "c2");
        without(step, "c3");
    });
    let loaded = project.loaded();
    let prompt = loaded
        .resolve_prompt(&loaded.definition.flow.steps[0], None, &values(&[("iteration", "1")]))
        .unwrap();
    assert_eq!(
        (prompt.text.as_str(), prompt.path.as_str()),
        ("The first words on 1.", ".agent/f0/words/first.md")
    );
    step(&project, "initial.a", |step| step["path"] = json!("../../../etc/passwd"));
    project.refused_for("PR-C3L-002");
}

#[test]
fn d9_an_omitted_required_is_required_but_optional_in_the_newest_format_with_a_warning() {
    let inputs = |version: &str| {
        let project = Project::f0();
        project.agent_json(|agent| agent["version"] = json!(version));
        step(&project, "closure.a", |step| {
            step["inputs"] = json!({"x": {"from": "initial.a.next_action"}});
        });
        let loaded = project.loaded();
        let warned = codes(&loaded.diagnostics).contains(&"SR-INPUT-004");
        (loaded.definition.flow.step("closure.a").unwrap().inputs.inputs[0].required, warned)
    };
    assert_eq!(inputs("1.0"), (true, false));
    assert_eq!(inputs("1.13.26"), (false, true));
}
