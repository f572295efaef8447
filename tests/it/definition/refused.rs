//! What is refused before any model is asked: one mutation of F0 for each case.

use agentd::definition::Severity;
use serde_json::{Value, json};

use super::project::{Project, codes, done, parameter, put, step, verdict, without};

/// One change of F0, and the code it must give.
pub type Case = (&'static str, &'static str, fn(&Project));

pub const NEGATIVE: &[Case] = &[
    ("n01", "AC-LOAD-001", |p| done(p.remove("agent.json"))),
    ("n02", "AC-LOAD-002", |p| done(p.write("agent.json", "{\n  \"name\": \"f0\",\n"))),
    ("n03 name", "AC-LOAD-003", |p| done(p.agent_json(|agent| without(agent, "name")))),
    ("n03 displayName", "AC-LOAD-003", |p| done(p.agent_json(|agent| without(agent, "displayName")))),
    ("n03 runner", "AC-LOAD-003", |p| done(p.agent_json(|agent| without(agent, "runner")))),
    ("n04", "AC-VALID-001", |p| done(p.agent_json(|agent| agent["name"] = json!("My_Agent")))),
    ("n05 unknown", "AC-VERDICT-005", |p| verdict(p, json!({"type": "detect:mood"}))),
    ("n05 poll", "AC-VERDICT-001", |p| {
        verdict(p, json!({"type": "poll:state"}));
        p.agent_json(|agent| agent["parameters"] = json!({}));
    }),
    ("n05 structured", "AC-VERDICT-002", |p| verdict(p, json!({"type": "detect:structured", "config": {}}))),
    ("n05 composite", "AC-VERDICT-003", |p| verdict(p, json!({"type": "meta:composite", "config": {}}))),
    ("n05 composite empty", "AC-VERDICT-008", |p| {
        verdict(p, json!({"type": "meta:composite", "config": {"operator": "or", "conditions": []}}));
    }),
    ("n05 composite operator", "AC-VERDICT-009", |p| {
        verdict(
            p,
            json!({"type": "composite", "config": {"operator": "xor",
            "conditions": [{"type": "detect:graph"}]}}),
        );
    }),
    ("n05 composite part", "AC-VERDICT-010", |p| {
        verdict(p, json!({"type": "composite", "config": {"operator": "or", "conditions": ["x"]}}));
    }),
    ("n05 custom", "AC-VERDICT-004", |p| verdict(p, json!({"type": "meta:custom", "config": {}}))),
    ("n05 iteration", "AC-VALID-001", |p| verdict(p, json!({"type": "count:iteration", "config": {}}))),
    ("n05 check", "AC-VALID-001", |p| verdict(p, json!({"type": "count:check", "config": {}}))),
    ("n05 number", "AC-VALID-001", |p| {
        verdict(p, json!({"type": "count:iteration", "config": {"maxIterations": 0}}));
    }),
    ("n06 mode", "AC-VALID-001", |p| {
        p.agent_json(|agent| agent["runner"]["boundaries"]["permissionMode"] = json!("yolo"));
    }),
    ("n06 log", "AC-VALID-001", |p| {
        p.agent_json(|agent| agent["runner"]["logging"]["format"] = json!("xml"));
    }),
    ("n07 no cli", "AC-VALID-001", |p| parameter(p, json!({"type": "string", "description": "x"}))),
    ("n07 cli", "AC-VALID-001", |p| {
        parameter(p, json!({"type": "string", "description": "x", "cli": "extra"}));
    }),
    ("n07 twice", "AC-VALID-001", |p| {
        parameter(p, json!({"type": "string", "description": "x", "cli": "--issue"}));
    }),
    ("n07 default", "AC-VALID-001", |p| {
        parameter(p, json!({"type": "number", "description": "x", "cli": "--extra", "default": "7"}));
    }),
    ("n08", "SR-LOAD-003", |p| done(p.remove("steps_registry.json"))),
    ("n09", "SR-LOAD-002", |p| done(p.registry(|registry| registry["agentId"] = json!("f1")))),
    ("n10", "SR-LOAD-001", |p| done(p.registry(|registry| without(registry, "steps")))),
    ("n11 closure", "SR-VALID-001", |p| {
        step(p, "closure.a", |step| step["structuredGate"]["allowedIntents"] = json!(["closing", "next"]));
    }),
    ("n11 work", "SR-VALID-001", |p| {
        step(p, "initial.a", |step| step["structuredGate"]["allowedIntents"] = json!(["next", "closing"]));
    }),
    ("n12 kind", "SR-VALID-001", |p| {
        step(p, "initial.a", |step| step["structuredGate"]["fallbackIntent"] = json!("closing"));
    }),
    ("n12 not allowed", "SR-VALID-001", |p| {
        step(p, "initial.a", |step| step["structuredGate"]["fallbackIntent"] = json!("jump"));
    }),
    ("n13 entry", "SR-ENTRY-002", |p| {
        p.registry(|registry| registry["entryStep"] = json!("initial.b"));
    }),
    ("n13 mapping", "SR-ENTRY-003", |p| {
        p.registry(|registry| registry["entryStepMapping"] = json!({"detect:graph": "initial.b"}));
    }),
    ("n13 none", "SR-ENTRY-001", |p| done(p.registry(|registry| without(registry, "entryStep")))),
    ("n14 other file", "SR-VALID-002", |p| {
        step(p, "initial.a", |step| step["structuredGate"]["intentSchemaRef"] = json!("other.json#/x"));
    }),
    ("n14 no pointer", "SR-VALID-002", |p| {
        step(p, "initial.a", |step| without(&mut step["structuredGate"], "intentSchemaRef"));
    }),
    ("n14 no field", "SR-VALID-002", |p| {
        step(p, "initial.a", |step| without(&mut step["structuredGate"], "intentField"));
    }),
    ("n15 fewer", "SR-VALID-003", |p| {
        p.json("schemas/s.schema.json", |schema| {
            schema["initial.a"]["properties"]["next_action"]["properties"]["action"]["enum"] =
                json!(["next"]);
        });
    }),
    ("n15 more", "SR-VALID-003", |p| {
        step(p, "initial.a", |step| step["structuredGate"]["allowedIntents"] = json!(["next", "repeat"]));
    }),
    ("n16", "SR-GATE-003", |p| step(p, "continuation.a", |step| without(step, "outputSchemaRef"))),
    ("n17", "SR-GATE-004", |p| {
        for id in ["initial.a", "continuation.a", "closure.a"] {
            step(p, id, |step| without(step, "structuredGate"));
        }
    }),
    ("n18 next", "SR-TRANS-001", |p| {
        step(p, "initial.a", |step| step["transitions"]["next"]["target"] = json!("continuation.b"));
    }),
    ("n18 handoff", "SR-TRANS-006", |p| {
        step(p, "initial.a", |step| step["transitions"]["handoff"]["target"] = json!("closure.b"));
    }),
    ("n18 escalate", "SR-TRANS-008", |p| {
        step(p, "continuation.a", |step| {
            step["stepKind"] = json!("verification");
            step["structuredGate"]["allowedIntents"] = json!(["next", "escalate"]);
            step["transitions"] = json!({"next": {"target": "closure.a"}, "escalate": {"target": "nobody"}});
        });
    }),
    ("n18 jump", "SR-TRANS-010", |p| {
        step(p, "initial.a", |step| {
            step["structuredGate"]["allowedIntents"] = json!(["next", "jump"]);
            step["transitions"]["jump"] = json!({"target": "nowhere"});
        });
    }),
    ("n19 next", "SR-TRANS-002", |p| {
        step(p, "initial.a", |step| step["transitions"]["next"]["target"] = Value::Null);
    }),
    ("n19 handoff", "SR-TRANS-005", |p| {
        step(p, "initial.a", |step| step["transitions"]["handoff"]["target"] = Value::Null);
    }),
    ("n21 malformed", "MALFORMED_SCHEMA_IDENTIFIER", |p| {
        step(p, "initial.a", |step| step["outputSchemaRef"]["schema"] = json!("##/x"));
    }),
    ("n21 malformed too", "MALFORMED_SCHEMA_IDENTIFIER", |p| {
        step(p, "initial.a", |step| step["outputSchemaRef"]["schema"] = json!("//x"));
    }),
    ("n21 missing", "SCHEMA_POINTER_ERROR", |p| {
        step(p, "initial.a", |step| step["outputSchemaRef"]["schema"] = json!("initial.z"));
    }),
    ("n21 file", "FAILED_SCHEMA_RESOLUTION", |p| {
        step(p, "initial.a", |step| step["outputSchemaRef"]["file"] = json!("none.json"));
    }),
    ("n22 validator", "SR-REF-001", |p| {
        p.registry(|registry| {
            registry["validationSteps"] =
                json!({"closure.graph": {"validationConditions": [{"validator": "clean"}]}});
        });
    }),
    ("n22 pattern", "SR-REF-002", |p| {
        p.registry(|registry| {
            registry["validators"] =
                json!({"clean": {"type": "command", "command": "true", "failurePattern": "dirty"}});
        });
    }),
    ("n23 matches", "SR-REF-003", |p| {
        p.registry(|registry| {
            registry["validators"] =
                json!({"clean": {"type": "command", "command": "true", "successWhen": "matches:("}});
        });
    }),
    ("n23 semantic", "SR-REF-003", |p| {
        p.registry(|registry| registry["failurePatterns"] = json!({"dirty": {"semanticMatch": ["/[/"]}}));
    }),
    ("n24 outside", "AC-VERDICT-007", |p| {
        verdict(p, json!({"type": "meta:custom", "config": {"handlerPath": "../../x.sh"}}));
    }),
    ("n24 absent", "AC-VERDICT-007", |p| {
        verdict(p, json!({"type": "meta:custom", "config": {"handlerPath": "x.sh"}}));
    }),
    ("n24 no program", "AC-VERDICT-006", |p| {
        p.write("handler.ts", "export default () => true;");
        verdict(p, json!({"type": "meta:custom", "config": {"handlerPath": "handler.ts"}}));
    }),
    ("system prompt", "PR-SYSTEM-002", |p| done(p.remove("prompts/system.md"))),
    ("t02 declared", "PR-RESOLVE-003", |p| {
        p.write("prompts/steps/continuation/a/f_default.md", "Go on with {uv-topic}.");
        step(p, "continuation.a", |step| step["uvVariables"] = json!(["topic"]));
    }),
    ("t03 used", "PR-RESOLVE-005", |p| {
        p.write("prompts/steps/continuation/a/f_default.md", "Go on with {uv-topic}.");
    }),
    ("t08", "PR-C3L-004", |p| step(p, "initial.a", |step| step["edition"] = json!("again"))),
    ("t07", "PR-C3L-004", |p| step(p, "closure.a", |step| step["adaptation"] = json!("label-only"))),
    ("t09", "PR-C3L-004", |p| done(p.write("prompts/steps/initial/a/f_default.md", "---\na: b\n---\n"))),
    ("t10", "PR-FILE-001", |p| {
        p.write("prompts/steps/initial/a/f_default.md", "---\na: [\n---\nx");
    }),
    ("t14", "PR-C3L-002", |p| step(p, "initial.a", |step| step["c3"] = json!("../a"))),
    ("t16", "PR-RESOLVE-003", |p| {
        p.write("prompts/steps/initial/a/f_default.md", "After {uv-completed_iterations}.");
        step(p, "initial.a", |step| step["uvVariables"] = json!(["completed_iterations"]));
    }),
    ("t17", "PR-RESOLVE-006", |p| {
        p.agent_json(|agent| {
            agent["parameters"]["iteration"] =
                json!({"type": "number", "description": "x", "cli": "--iteration"});
        });
    }),
    ("pattern", "PR-C3L-002", |p| {
        put(
            &p.root.join(".agent/climpt/config/f0-steps-user.yml"),
            "params:\n  two:\n    directiveType:\n      pattern: \"^(closure)$\"\n",
        );
    }),
    ("inputs no step", "SR-INPUT-003", |p| {
        step(p, "closure.a", |step| {
            step["inputs"] = json!({"x": {"from": "initial.z.note", "required": true}});
        });
    }),
    ("inputs no key", "SR-INPUT-003", |p| {
        step(p, "closure.a", |step| {
            step["inputs"] = json!({"x": {"from": "initial.a.note", "required": true}});
        });
    }),
    ("inputs clash", "SR-INPUT-002", |p| {
        p.registry(|registry| {
            let twin = registry["steps"]["continuation.a"].clone();
            registry["steps"]["continuation.a.next"] = twin;
            registry["steps"]["continuation.a.next"]["stepId"] = json!("continuation.a.next");
            registry["steps"]["closure.a"]["inputs"] =
                json!({"x": {"from": "continuation.a.next_action"}, "y": {"from": "continuation.a.next.action"}});
        });
    }),
    ("prompt by path", "PR-C3L-004", |p| step(p, "initial.a", |step| step["path"] = json!("words/gone.md"))),
    ("registry is a device", "SR-LOAD-003", |p| {
        p.remove("steps_registry.json");
        std::os::unix::fs::symlink("/dev/zero", p.agent.join("steps_registry.json")).unwrap();
    }),
    ("prompt is a device", "PR-C3L-002", |p| {
        p.remove("prompts/steps/initial/a/f_default.md");
        std::os::unix::fs::symlink("/dev/zero", p.agent.join("prompts/steps/initial/a/f_default.md"))
            .unwrap();
    }),
    ("iterations", "SR-VALID-004", |p| {
        step(p, "initial.a", |step| step["iterations"] = json!({"min": 3, "max": 2}));
    }),
    ("one of several shapes", "SR-VALID-004", |p| {
        step(p, "initial.a", |step| step["structuredGate"]["allowedIntents"] = json!("next"));
    }),
    ("twice", "SR-VALID-004", |p| {
        let path = p.agent.join("steps_registry.json");
        let text = std::fs::read_to_string(&path).unwrap();
        put(&path, &text.replacen("\"c1\"", "\"c1\": \"steps\", \"c1\"", 1));
    }),
];

#[test]
fn n01_to_n24_one_mutation_of_f0_gives_its_code_with_file_and_line() {
    for (name, code, change) in NEGATIVE {
        let project = Project::f0();
        change(&project);
        let findings = project.findings();
        let told = || findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let found = findings.iter().find(|found| found.code == *code && found.severity == Severity::Error);
        let found = found.unwrap_or_else(|| panic!("{name}: no error {code} in:\n{}", told()));
        let refused = project.load().unwrap_err();
        assert!(matches!(refused.exit_code(), 4 | 5), "{name}");
        assert!(refused.to_string().contains(code), "{name}");
        // Only a definition that is not there at all is named nowhere.
        assert!(found.place.is_some() || *code == "AC-LOAD-001", "{name}: no line in {found}");
        assert!(!found.message.is_empty(), "{name}");
    }
}

#[test]
fn a_broken_member_of_a_step_is_the_only_thing_wrong() {
    for (pointer, value) in [
        ("permissionMode", json!("yolo")),
        ("usesStdin", json!("yes")),
        ("stepKind", json!("play")),
        ("structuredGate/failFast", json!("no")),
    ] {
        let project = Project::f0();
        step(&project, "continuation.a", |step| {
            let mut place = step;
            for key in pointer.split('/') {
                place = &mut place[key];
            }
            *place = value.clone();
        });
        let mut findings = project.findings();
        findings.retain(|found| found.severity == Severity::Error);
        assert_eq!(codes(&findings), ["SR-VALID-004"], "{pointer}: {findings:#?}");
        assert_eq!(findings[0].pointer, format!("/steps/continuation.a/{pointer}"));
    }
}

#[test]
fn an_agent_whose_name_is_not_its_folders_is_refused() {
    let project = Project::f0();
    project.agent_json(|agent| agent["name"] = json!("f9"));
    project.registry(|registry| registry["agentId"] = json!("f9"));
    assert_eq!(project.refused_for("AC-VALID-002").pointer, "/name");
}

#[test]
fn n02_a_truncated_file_is_told_with_line_and_column() {
    let project = Project::f0();
    project.write("agent.json", "{\n  \"name\": \"f0\",\n  \"displayName\" \"x\"\n}");
    let found = project.refused_for("AC-LOAD-002");
    assert_eq!(found.place.map(|place| (place.line, place.column)), Some((3, 17)));
    assert!(found.to_string().starts_with(".agent/f0/agent.json:3:17: error AC-LOAD-002"), "{found}");
}

#[test]
fn every_problem_is_in_one_report() {
    let project = Project::f0();
    project.agent_json(|agent| {
        without(agent, "displayName");
        agent["colour"] = json!("red");
        agent["runner"]["boundaries"]["permissionMode"] = json!("yolo");
    });
    project.registry(|registry| {
        registry["steps"]["closure.a"]["structuredGate"]["allowedIntents"] = json!(["next"]);
    });
    let codes = codes(&project.findings());
    for code in ["AC-LOAD-003", "AC-VALID-001", "AC-UNKNOWN-001", "SR-VALID-001"] {
        assert!(codes.contains(&code), "no {code} in {codes:?}");
    }
    assert_eq!(project.load().unwrap_err().exit_code(), 5, "a file breaks its schema");
}

#[test]
fn unknown_keys_are_warned_of_with_pointer_line_and_the_nearest_key() {
    let project = Project::f0();
    step(&project, "initial.a", |step| step["structuredGate"]["allowedIntent"] = json!([]));
    let found = project.finds("SR-UNKNOWN-001", Severity::Warning);
    assert_eq!(found.pointer, "/steps/initial.a/structuredGate/allowedIntent");
    assert!(found.fix.contains("\"allowedIntents\""), "{found}");
    assert!(found.place.is_some_and(|place| place.line > 10));
}

#[test]
fn a_required_claim_of_no_known_kind_is_refused_with_the_nearest_before_anything_runs() {
    let project = Project::f0();
    project.agent_json(|agent| {
        agent["runner"]["agentd"] = json!({ "requires": ["change_made", "test_pass"] });
    });
    let found = project.finds("AC-VALID-001", Severity::Error);
    assert_eq!(found.pointer, "/runner/agentd/requires/1");
    assert!(found.fix.contains("\"tests_pass\""), "{found}");
    assert!(found.place.is_some_and(|place| place.line > 1), "{found}");
    assert_eq!(project.load().unwrap_err().exit_code(), 4);
}

#[test]
fn what_is_wrong_deep_inside_is_told_where_it_stands() {
    let project = Project::f0();
    step(&project, "initial.a", |step| step["structuredGate"]["allowedIntents"] = json!("next"));
    let found = project.finds("SR-VALID-004", Severity::Error);
    assert_eq!(found.pointer, "/steps/initial.a/structuredGate/allowedIntents");
    assert!(found.message.contains("\"array\""), "{found}");
    let project = Project::f0();
    project.agent_json(|agent| agent["runner"]["integrations"] = json!({"github": {"enabled": "yes"}}));
    let found = project.finds("AC-VALID-001", Severity::Error);
    assert_eq!(found.pointer, "/runner/integrations/github/enabled");
}

#[test]
fn a_file_that_is_not_there_is_told_where_it_is_named() {
    let project = Project::f0();
    project.remove("steps_registry.json").remove("prompts/system.md");
    for (code, pointer, file) in [
        ("SR-LOAD-003", "/runner/flow/prompts/registry", "steps_registry.json"),
        ("PR-SYSTEM-002", "/runner/flow/systemPromptPath", "prompts/system.md"),
    ] {
        let found = project.finds(code, Severity::Error);
        assert_eq!((found.file.as_str(), found.pointer.as_str()), (".agent/f0/agent.json", pointer));
        assert!(found.place.is_some_and(|place| place.line > 1), "{found}");
        assert!(found.message.contains(&format!(".agent/f0/{file} does not exist")), "{found}");
    }
    let project = Project::f0();
    step(&project, "initial.a", |step| step["path"] = json!("words/gone.md"));
    let found = project.finds("PR-C3L-004", Severity::Error);
    assert_eq!(found.pointer, "/steps/initial.a/path");
    assert!(found.message.contains(".agent/f0/words/gone.md"), "{found}");
}

#[test]
fn n20_a_crossing_is_a_warning_because_it_runs() {
    let project = Project::f0();
    step(&project, "continuation.a", |step| step["transitions"]["next"]["target"] = json!("closure.a"));
    let found = project.finds("SR-CROSS-001", Severity::Warning);
    assert_eq!(found.pointer, "/steps/continuation.a/transitions/next");
    assert!(project.load().is_ok());
}

#[test]
fn n20_a_cycle_without_an_end_fails_the_check_of_a_step_machine() {
    let project = Project::f0();
    for id in ["initial.a", "continuation.a"] {
        step(&project, id, |step| {
            step["structuredGate"]["allowedIntents"] = json!(["next", "repeat"]);
            without(&mut step["transitions"], "handoff");
        });
        project.json("schemas/s.schema.json", |schema| {
            schema[id]["properties"]["next_action"]["properties"]["action"]["enum"] =
                json!(["next", "repeat"]);
        });
    }
    project.finds("SR-FLOW-002", Severity::Defect);
    let orphan = project.finds("SR-FLOW-001", Severity::Warning);
    assert!(orphan.message.contains("closure.a"));
    assert!(project.load().is_ok());
}

#[test]
fn validation_conditions_that_no_run_asks_are_a_warning() {
    let asks = |id: &str, key: &str| {
        let conditions = json!([{ "validator": "green" }]);
        let mut step = json!({ "stepId": id, "name": "x", "c2": "retry", "c3": "a", "onFailure": { "action": "abort" } });
        step[key] = conditions;
        step
    };
    let project = |entries: &[(&str, &str)]| {
        let project = Project::f0();
        project.registry(|registry| {
            registry["validators"] = json!({ "green": { "type": "command", "command": "true" } });
            registry["validationSteps"] = json!({});
            for (id, key) in entries {
                registry["validationSteps"][*id] = asks(id, key);
            }
        });
        project
    };
    let found = project(&[("initial.a", "validationConditions")]).finds("SR-UNUSED-001", Severity::Warning);
    assert_eq!(found.pointer, "/validationSteps/initial.a/validationConditions");
    let both = [("closure.a", "validationConditions"), ("closure.graph", "validationConditions")];
    let found = project(&both).finds("SR-UNUSED-001", Severity::Warning);
    assert_eq!(found.pointer, "/validationSteps/closure.graph");
    for asked in [("closure.a", "validationConditions"), ("initial.a", "postLLMConditions")] {
        let found = project(&[asked]).findings();
        assert!(found.iter().all(|one| one.code != "SR-UNUSED-001"), "{asked:?}: {found:#?}");
    }
}

#[test]
fn d65_what_no_run_can_reach_is_a_warning() {
    let project = Project::f0();
    project.registry(|registry| {
        let mut stray = registry["steps"]["continuation.a"].clone();
        stray["stepId"] = json!("continuation.stray");
        stray["c3"] = json!("stray");
        stray["uvVariables"] = json!(["nobody_knows"]);
        stray["transitions"]["next"]["target"] = json!("nowhere");
        registry["steps"]["continuation.stray"] = stray;
    });
    for code in ["SR-TRANS-001", "PR-C3L-004", "SR-FLOW-001"] {
        project.finds(code, Severity::Warning);
    }
    assert!(project.load().is_ok());
}

#[test]
fn a_next_to_itself_a_literal_in_double_braces_and_a_parameter_that_nobody_misses() {
    let project = Project::f0();
    step(&project, "continuation.a", |step| {
        step["transitions"]["next"]["target"] = json!("continuation.a");
        step["uvVariables"] = json!(["extra"]);
    });
    parameter(&project, json!({"type": "string", "description": "x", "cli": "--extra"}));
    let words =
        "Go on with {{project}}, ${{ secrets.X }} and {{ 1 + 1 }}.\n\n{{project}} again, for {{uv-issue}}.\n";
    project.write("prompts/steps/continuation/a/f_default.md", words);
    assert_eq!(
        project.finds("SR-TRANS-014", Severity::Warning).pointer,
        "/steps/continuation.a/transitions/next"
    );
    let literal: Vec<String> = project
        .findings()
        .iter()
        .filter(|found| found.code == "PR-UV-004")
        .map(ToString::to_string)
        .collect();
    assert_eq!(literal.len(), 1, "{literal:?}");
    assert!(literal[0].contains("f_default.md:1:1") && literal[0].contains("{{project}}"), "{literal:?}");
    let optional = project.finds("PR-UV-002", Severity::Warning);
    assert!(
        optional.message.contains("\"extra\"") && optional.message.contains("does not use it"),
        "{optional}"
    );
    assert!(!project.findings().iter().any(|found| found.code == "PR-RESOLVE-003"));
}

#[test]
fn an_agent_that_is_to_plan_alone_is_warned_of_where_the_kinds_of_its_steps_let_them_write() {
    let planning = Project::f0();
    planning.agent_json(|agent| agent["runner"]["boundaries"]["permissionMode"] = json!("plan"));
    let found = planning.finds("SR-UNUSED-001", Severity::Warning);
    assert_eq!(found.pointer, "/runner/boundaries/permissionMode");
    assert!(found.message.contains("does not count for \"initial.a\""), "{}", found.message);
    planning.registry(|registry| {
        for step in registry["steps"].as_object_mut().unwrap().values_mut() {
            step["permissionMode"] = json!("plan");
        }
    });
    for project in [planning, Project::f0()] {
        let found = project.findings();
        assert!(found.iter().all(|one| one.code != "SR-UNUSED-001"), "{found:#?}");
    }
}
