//! Nothing that a definition says is dropped in silence: unknown keys, values of a wrong type, and keys without effect are told
//! where they stand.

use agentd::definition::{Diagnostic, Severity, agents_of};
use serde_json::{Map, Value, json};

use super::project::{Project, put, step, verdict};

/// F0 with something at every place that the formats have.
fn full() -> Project {
    let project = Project::f0();
    project.agent_json(|agent| {
        agent["parameters"]["size"] = json!({"type": "number", "description": "how much", "required": false,
            "default": 2, "cli": "--size", "validation": {"min": 1, "max": 3, "enum": [1, 2, 3]}});
        let runner = &mut agent["runner"];
        runner["verdict"] = json!({"type": "meta:composite", "config": {"operator": "or", "conditions": [
            {"type": "detect:graph", "config": {}},
            {"type": "detect:structured", "config": {"signalType": "done", "requiredFields": ["result"]}},
            {"type": "detect:keyword", "config": {"verdictKeyword": "DONE"}},
            {"type": "count:check", "config": {"maxChecks": 90}}]}});
        runner["boundaries"]["sandbox"] = json!({"enabled": true,
            "network": {"mode": "custom", "trustedDomains": ["example.org"]}, "filesystem": {"allowedPaths": ["/srv"]}});
        runner["integrations"] = json!({"github": {"enabled": true, "defaultClosureAction": "close",
            "labels": {"blocked": "stuck", "completion": {"add": ["done"], "remove": ["open"]}}}});
        runner["agentd"] = json!({"requires": ["tests_pass"], "closes": true, "evidence": "optional",
            "continueSession": false, "backend": "command", "budgets": {"maxSteps": 9, "maxWallTime": "15m", "maxCost": 2.5},
            "program": {"argv": ["true"], "environment": ["LANG"], "timeLimit": "1m", "tools": true, "sandbox": "auto"}});
    });
    project.json("schemas/s.schema.json", |schema| {
        schema["initial.a"]["properties"]["note"] = json!({"type": "string"});
    });
    project.registry(|registry| {
        registry["description"] = json!("all of it");
        registry["failurePatterns"] = json!({"dirty": {"description": "x", "edition": "failed", "adaptation": "dirty",
            "params": ["files"], "semanticMatch": ["dirt"]}});
        registry["validators"] = json!({
            "clean": {"type": "command", "command": "true", "successWhen": "empty", "failurePattern": "dirty",
                "extractParams": {"files": "parseChangedFiles"}, "recoverableByDefault": true, "fromWorktree": false},
            "there": {"type": "file", "path": "a.txt"},
            "good": {"type": "semantic", "semanticConfig": {"checkType": "commit-message"}}});
        registry["validationSteps"] = json!({"closure.a": {"stepId": "closure.a", "name": "x", "description": "x",
            "c2": "retry", "c3": "a", "onFailure": {"action": "retry", "maxAttempts": 2},
            "validationConditions": [{"validator": "clean", "params": {"a": "b"}}],
            "preflightConditions": [{"validator": "there"}], "postLLMConditions": [{"validator": "good"}]}});
        let closure = &mut registry["steps"]["closure.a"];
        closure["inputs"] = json!({"note": {"from": "initial.a.note", "required": false, "default": "none", "onMissing": "default"}});
        closure["agentd"] = json!({"backend": "command", "program": {"argv": ["true"]}});
        registry["steps"]["section.old"] = json!({"stepId": "section.old", "c2": "initial", "c3": "a",
            "iterations": {"min": 1, "max": 2},
            "check": {"prompt": {"c2": "initial", "c3": "a"}, "responseFormat": {"result": "ok|ng"},
                "onPass": {"complete": true}, "onFail": {"retry": true, "maxRetries": 1, "fallback": "closure.a"}},
            "inputs": {"from_step": "initial.a", "from_steps": ["initial.a"],
                "variables": {"initial.a.note": {"required": false, "default": "x", "onMissing": "skip"}}},
            "outputSchema": {"$namespace": "old", "height": {"type": "number", "required": false, "description": "x", "default": 1}}});
        registry["steps"]["section.program"] = json!({"stepId": "section.program", "stepKind": "work",
            "runner": {"command": "true", "args": ["x"], "timeout": 5, "fromWorktree": false}});
    });
    project
}

/// Maps from names to things: a new name is a new thing, not a key.
const NAMED: [&str; 12] = [
    "/parameters",
    "/runner/integrations/github/labels",
    "/steps",
    "/validators",
    "/validationSteps",
    "/failurePatterns",
    "/transitions",
    "/inputs",
    "/variables",
    "/extractParams",
    "/params",
    "/responseFormat",
];

/// The places of all values in a file.
fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, inner)| places(inner, &format!("{at}/{key}"), found));
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, inner)| places(inner, &format!("{at}/{index}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Changes one place of a file of the full definition, and gives what is found there and below its file.
fn changed(file: &str, place: &str, change: impl FnOnce(&mut Value)) -> (Project, Vec<Diagnostic>) {
    let project = full();
    project.json(file, |value| change(value.pointer_mut(place).unwrap()));
    let found = project.findings();
    (project, found)
}

#[test]
fn the_full_definition_loads() {
    let loaded = full().loaded();
    let told: Vec<String> = loaded.diagnostics.iter().map(ToString::to_string).collect();
    assert!(!told.iter().any(|line| line.contains("is not known")), "{told:#?}");
}

#[test]
fn an_unknown_key_is_told_in_every_object_of_a_definition() {
    let mut tried = 0;
    for file in ["agent.json", "steps_registry.json"] {
        let mut all = Vec::new();
        full().json(file, |value| places(value, "", &mut all));
        for place in all {
            let named = NAMED.iter().any(|end| place.ends_with(end)) && !place.ends_with("/0/params");
            let is_object = {
                let mut is = false;
                full().json(file, |value| is = value.pointer(&place).unwrap().is_object());
                is
            };
            if named || !is_object || place.ends_with("/0/params") {
                continue;
            }
            let (_, found) = changed(file, &place, |value| value["zzz"] = json!("x"));
            let told = found.iter().find(|found| found.pointer == format!("{place}/zzz"));
            let told = told.unwrap_or_else(|| panic!("nothing tells of zzz in {file}{place}: {found:#?}"));
            assert!(told.message.contains("zzz") && told.place.is_some(), "{told}");
            tried += 1;
        }
    }
    assert!(tried > 45, "only {tried} objects were tried");
}

/// Values that may be anything, or that mean nothing whatever they are.
fn takes_anything(place: &str) -> bool {
    const ENDS: [&str; 9] = [
        "/default",
        "/$schema",
        "/responseFormat",
        "/responseFormat/result",
        "/runner/agentd/budgets",
        "/params/a",
        "/displayName",
        "/c1",
        "/transitions/closing",
    ];
    place.is_empty() || ENDS.iter().any(|end| place.ends_with(end))
}

#[test]
fn a_value_of_a_wrong_type_is_refused_where_it_stands_with_what_is_wrong() {
    let mut tried = 0;
    for file in ["agent.json", "steps_registry.json"] {
        let mut all = Vec::new();
        full().json(file, |value| places(value, "", &mut all));
        for place in all.into_iter().filter(|place| !takes_anything(place)) {
            let (project, found) = changed(file, &place, |value| {
                *value = match value {
                    Value::String(_) => json!({"no": "text"}),
                    Value::Object(_) => json!(5),
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => json!("wrong"),
                };
            });
            // What no run can reach refuses nothing (D65), but it is told all the same.
            let reached = !place.starts_with("/steps/section.");
            assert!(!reached || project.load().is_err(), "{file}{place} is taken: {found:#?}");
            let counts = |one: &&Diagnostic| !reached || one.severity == Severity::Error;
            let errors: Vec<&Diagnostic> = found.iter().filter(counts).collect();
            let around =
                |one: &&&Diagnostic| one.pointer.starts_with(&place) || place.starts_with(&one.pointer);
            let told = errors.iter().filter(around).max_by_key(|one| one.pointer.len());
            let told = told.unwrap_or_else(|| panic!("no error stands at {file}{place}: {found:#?}"));
            let near = told.pointer.matches('/').count() + 1 >= place.matches('/').count();
            assert!(near, "{file}{place} is told too far away: {told}");
            assert!(!told.message.is_empty() && !told.fix.is_empty(), "{told}");
            tried += 1;
        }
    }
    assert!(tried > 120, "only {tried} values were tried");
}

#[test]
fn an_agent_is_never_refused_without_a_word() {
    for (value, at) in [
        (
            json!({"type": "detect:structured", "config": {"signalType": 7}}),
            "/runner/verdict/config/signalType",
        ),
        (
            json!({"type": "detect:structured", "config": {"signalType": " "}}),
            "/runner/verdict/config/signalType",
        ),
        (
            json!({"type": "meta:custom", "config": {"handlerPath": ["x"]}}),
            "/runner/verdict/config/handlerPath",
        ),
    ] {
        let project = Project::f0();
        verdict(&project, value);
        let refused = project.load().unwrap_err();
        assert!(refused.to_string().contains(at), "says where: \"{refused}\"");
        assert!(refused.to_string().contains("fix: "), "says what next: \"{refused}\"");
        assert_eq!(refused.exit_code(), 5);
    }
}

#[test]
fn an_agent_whose_file_leads_nowhere_is_among_the_agents_and_says_so() {
    let project = Project::f0();
    project.remove("agent.json").remove("steps_registry.json");
    std::os::unix::fs::symlink("gone.json", project.agent.join("agent.json")).unwrap();
    put(&project.root.join(".agent/notes/README.md"), "no agent");
    assert_eq!(agents_of(&project.root), ["f0"]);
    assert!(project.load().unwrap_err().to_string().contains("agent.json"));
}

/// One key that has no effect where it stands: what is changed, the file, and the place that has to be told.
type Dead = (&'static str, fn(&Project));

const DEAD: &[Dead] = &[
    ("/steps/initial.a/structuredGate/fallbackIntent", |p| {
        step(p, "initial.a", |step| step["structuredGate"]["fallbackIntent"] = json!("repeat"));
    }),
    ("/steps/initial.a/structuredGate/targetField", |_| {}),
    ("/steps/initial.a/type", |p| step(p, "initial.a", |step| step["type"] = json!("question"))),
    ("/steps/initial.a/outputSchema", |p| {
        step(p, "initial.a", |step| step["outputSchema"] = json!({"x": {"type": "string"}}));
    }),
    ("/steps/initial.a/edition", |p| {
        p.write("words/begin.md", "Begin.");
        step(p, "initial.a", |step| {
            (step["path"], step["edition"]) = (json!("words/begin.md"), json!("again"));
        });
    }),
    ("/steps/closure.a/transitions/closing", |p| {
        step(p, "closure.a", |step| step["transitions"]["closing"] = json!({"target": "initial.a"}));
    }),
    ("/steps/initial.a/transitions/next/target", |p| {
        step(p, "initial.a", |step| {
            step["transitions"]["next"] = json!({"target": "continuation.a", "condition": "next_action",
            "targets": {"default": "continuation.a"}});
        });
    }),
    ("/steps/section.x/transitions/handoff", |p| {
        p.registry(|registry| {
            registry["steps"]["section.x"] = json!({"c2": "initial", "c3": "a",
            "transitions": {"next": {"target": null}, "handoff": {"target": "closure.a"}}});
        });
    }),
    ("/validators/idle", |p| checks(p, json!({"idle": {"type": "command", "command": "true"}}), json!({}))),
    ("/validators/there/successWhen", |p| {
        let there = json!({"there": {"type": "file", "path": "a", "successWhen": "empty"}});
        checks(p, there, json!({"closure.a": {"validationConditions": [{"validator": "there"}]}}));
    }),
    ("/validators/judge/command", |p| {
        let judge =
            json!({"judge": {"type": "semantic", "semanticConfig": {"checkType": "x"}, "command": "true"}});
        checks(p, judge, json!({"closure.a": {"validationConditions": [{"validator": "judge"}]}}));
    }),
    ("/validationSteps/closure.b", |p| {
        let clean = json!({"clean": {"type": "command", "command": "true"}});
        checks(p, clean, json!({"closure.b": {"validationConditions": [{"validator": "clean"}]}}));
    }),
    ("/validationSteps/closure.a/onFailure/maxAttempts", |p| {
        checks(p, json!({}), json!({"closure.a": {"onFailure": {"action": "abort", "maxAttempts": 2}}}));
    }),
    ("/validationSteps/closure.a/stepId", |p| {
        checks(p, json!({}), json!({"closure.a": {"stepId": "closure.b"}}));
    }),
    ("/failurePatterns/idle", |p| {
        p.registry(|registry| registry["failurePatterns"] = json!({"idle": {"edition": "failed"}}));
    }),
    ("/failurePatterns/dirty/params/0", |p| {
        p.registry(|registry| registry["failurePatterns"] = json!({"dirty": {"params": ["files"]}}));
        let clean = json!({"clean": {"type": "command", "command": "true", "failurePattern": "dirty"}});
        checks(p, clean, json!({"closure.a": {"validationConditions": [{"validator": "clean"}]}}));
    }),
    ("/entryStepMapping/detect:grap", |p| {
        p.registry(|registry| registry["entryStepMapping"] = json!({"detect:grap": "initial.a"}));
    }),
    ("/runner/integrations/github/labels", |p| {
        p.agent_json(|agent| {
            agent["runner"]["integrations"] = json!({"github": {"enabled": false, "labels": {"x": "y"}}});
        });
    }),
    ("/runner/verdict/config/conditions/0/config/maxIterations", |p| {
        verdict(
            p,
            json!({"type": "meta:composite", "config": {"operator": "or", "conditions": [
            {"type": "detect:graph", "config": {"maxIterations": 3}}]}}),
        );
    }),
    ("/behavior", |p| done_with(p.agent_json(|agent| agent["behavior"] = json!({"mood": "good"})))),
];

fn done_with(_: &Project) {}

fn checks(project: &Project, validators: Value, validation_steps: Value) {
    project.registry(|registry| {
        registry["validators"] = validators;
        registry["validationSteps"] = validation_steps;
    });
}

#[test]
fn a_key_without_effect_is_told_where_it_stands() {
    for (place, change) in DEAD {
        let project = Project::f0();
        change(&project);
        let found = project.findings();
        let told = found.iter().find(|one| one.pointer == *place && one.severity == Severity::Warning);
        let told = told.unwrap_or_else(|| panic!("nothing tells of {place}: {found:#?}"));
        assert!(!told.message.is_empty() && !told.fix.is_empty(), "{told}");
        assert!(project.load().is_ok(), "{place}: a key without effect refuses nothing: {found:#?}");
    }
    let project = Project::f0();
    project.agent_json(|agent| agent["behavior"] = json!({"mood": "good"}));
    let told = project.finds("AC-UNKNOWN-001", Severity::Warning);
    assert!(told.message.contains("mood"), "what stands in an unknown key is named: {told}");
}

#[test]
fn what_the_prompt_configuration_says_in_vain_is_told_and_a_wrong_type_is_refused() {
    let app = |text: &str| {
        let project = Project::f0();
        put(&project.root.join(".agent/climpt/config/f0-steps-app.yml"), text);
        project
    };
    let known = "working_dir: .agent/f0\napp_prompt:\n  base_dir: prompts/steps\n";
    let project = app(&format!("{known}  colour: red\n"));
    assert!(project.finds("PR-FILE-002", Severity::Warning).message.contains("app_prompt.colour"));
    let project = app("working_dir: .agent/f0\napp_prompt:\n  base_dir: 5\n");
    assert!(project.refused_for("PR-FILE-001").message.contains("app_prompt.base_dir"));
}

/// What would fail only in a run, after a model was paid: the code, and the change.
type Late = (&'static str, &'static str, fn(&Project));

const LATE: &[Late] = &[
    ("the intent is looked for where the schema has none", "SR-VALID-002", |p| {
        step(p, "initial.a", |step| step["structuredGate"]["intentField"] = json!("next.action"));
    }),
    ("a transition depends on a field that nobody is asked for", "SR-OUTPUT-001", |p| {
        step(p, "initial.a", |step| {
            step["transitions"]["next"] = json!({"condition": "mood", "targets": {"good": "continuation.a"}});
        });
    }),
    ("a transition has no target for a value that the schema allows", "SR-OUTPUT-001", |p| {
        p.json("schemas/s.schema.json", |schema| {
            schema["initial.a"]["properties"]["mood"] = json!({"enum": ["good", "bad"]});
        });
        step(p, "initial.a", |step| {
            step["transitions"]["next"] = json!({"condition": "mood", "targets": {"good": "continuation.a"}});
        });
    }),
    ("a plan has to be approved, and the schema has none", "SR-OUTPUT-001", |p| {
        step(p, "initial.a", |step| step["gate"] = json!("plan"));
    }),
    ("a run begins with what needs an input", "SR-INPUT-005", |p| {
        step(p, "initial.a", |step| {
            step["inputs"] = json!({"x": {"from": "continuation.a.next_action", "required": true}});
        });
    }),
    ("an input comes from a step that comes later", "SR-INPUT-005", |p| {
        step(p, "continuation.a", |step| {
            step["inputs"] = json!({"x": {"from": "closure.a.next_action", "required": true}});
        });
    }),
    ("a jump leads to a step without prompt", "PR-C3L-004", |p| {
        p.registry(|registry| {
            let mut far = registry["steps"]["continuation.a"].clone();
            (far["stepId"], far["c3"]) = (json!("continuation.far"), json!("far"));
            registry["steps"]["continuation.far"] = far;
        });
        step(p, "continuation.a", |step| {
            step["structuredGate"]["allowedIntents"] = json!(["next", "repeat", "handoff", "jump"]);
        });
        p.json("schemas/s.schema.json", |schema| {
            schema["continuation.a"]["properties"]["next_action"]["properties"]["action"]["enum"] =
                json!(["next", "repeat", "handoff", "jump"]);
        });
    }),
    ("the general retry prompt is broken", "PR-FILE-001", |p| {
        p.write("prompts/steps/retry/a/f_failed.md", "---\na: [\n---\nx");
        let clean = json!({"clean": {"type": "command", "command": "true"}});
        checks(
            p,
            clean,
            json!({"closure.a": {"c2": "retry", "c3": "a", "validationConditions": [{"validator": "clean"}]}}),
        );
    }),
    ("limits that no value fits", "AC-VALID-001", |p| {
        super::project::parameter(
            p,
            json!({"type": "number", "description": "x", "cli": "--x", "validation": {"min": 3, "max": 1}}),
        );
    }),
    ("a validator is asked at the moment that its phase excludes", "SR-REF-006", |p| {
        let clean = json!({"clean": {"type": "command", "command": "true", "phase": "postllm"}});
        checks(p, clean, json!({"closure.a": {"preflightConditions": [{"validator": "clean"}]}}));
    }),
];

#[test]
fn what_would_fail_only_after_a_model_was_paid_is_refused_at_load() {
    for (what, code, change) in LATE {
        let project = Project::f0();
        change(&project);
        let found = project.findings();
        let told = found.iter().find(|one| one.code == *code && one.severity == Severity::Error);
        assert!(told.is_some(), "{what}: no error {code} in {found:#?}");
    }
}

#[test]
fn a_name_in_a_validators_line_that_no_parameter_gives_is_told() {
    let with = |condition: Value| {
        let project = Project::f0();
        let log = json!({"log": {"type": "command", "command": "git log ${base}..HEAD ${HOME}"}});
        checks(&project, log, json!({"closure.a": {"validationConditions": [condition]}}));
        project
    };
    let found = with(json!({"validator": "log"})).finds("SR-REF-007", Severity::Warning);
    assert_eq!(found.pointer, "/validationSteps/closure.a/validationConditions/0");
    assert!(found.message.contains("${base}") && found.fix.contains("\"base\""), "{found}");
    let given = with(json!({"validator": "log", "params": {"base": "main"}}));
    assert!(!given.findings().iter().any(|one| one.code == "SR-REF-007"), "{:#?}", given.findings());
}

#[test]
fn two_steps_of_one_name_in_a_list_are_told() {
    let project = Project::f0();
    project.registry(|registry| {
        let Value::Object(steps) = registry["steps"].take() else { panic!("steps are a map") };
        let mut list: Vec<Value> = steps.into_iter().map(|(_, step)| step).collect();
        let mut twin: Map<String, Value> = list[1].as_object().unwrap().clone();
        twin.insert("name".to_owned(), json!("the second of that name"));
        list.push(Value::Object(twin));
        registry["steps"] = Value::Array(list);
    });
    let refused = project.load().unwrap_err().to_string();
    assert!(refused.contains("continuation.a"), "{refused}");
}

#[test]
fn a_flow_that_waits_for_what_nobody_does_is_told() {
    let watching = |enabled: bool| {
        let project = Project::f0();
        verdict(&project, json!({"type": "poll:state"}));
        project.agent_json(|agent| agent["runner"]["integrations"] = json!({"github": {"enabled": enabled}}));
        project.registry(|registry| {
            registry["steps"] = json!({"initial.a": {"c2": "initial", "c3": "a"}, "continuation.a": {"c2": "continuation", "c3": "a"}});
        });
        project
    };
    assert!(watching(false).finds("SR-FLOW-003", Severity::Warning).message.contains("no run completes"));
    assert!(!watching(true).findings().iter().any(|found| found.code == "SR-FLOW-003"));
}

#[test]
fn a_mistyped_keyword_of_a_schema_is_told_with_the_one_that_is_meant() {
    let project = Project::f0();
    project.json("schemas/s.schema.json", |schema| schema["initial.a"]["requierd"] = json!(["x"]));
    let found = project.finds("SR-SCHEMA-002", Severity::Warning);
    assert_eq!(found.pointer, "/steps/initial.a/outputSchemaRef");
    assert!(found.message.contains("\"requierd\" in .agent/f0/schemas/s.schema.json#initial.a"), "{found}");
    assert!(found.fix.contains("\"required\""), "{found}");
}
