//! Agent definitions: what loads, what is refused, and what the report says about it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use agentd::definition::{Diagnostic, Loaded, Refused, Severity, load};
use agentd::domain::completion::{Completion, CompositeMode};
use agentd::domain::flow::{ClosureAction, PermissionMode, StepKind};
use agentd::prompt::template::Values;
use serde_json::{Value, json};

/// A fixture's project in a folder of its own, to be changed at will.
struct Project {
    root: tempfile::TempDir,
    agent: PathBuf,
}

impl Project {
    fn new(fixture: &str, agent: &str) -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/agents").join(fixture);
        let root = tempfile::tempdir().unwrap();
        copy(&from, root.path());
        let agent = root.path().join(".agent").join(agent);
        Self { root, agent }
    }

    fn f0() -> Self {
        Self::new("f0", "f0")
    }

    fn json(&self, file: &str, change: impl FnOnce(&mut Value)) -> &Self {
        let path = self.agent.join(file);
        let mut value: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut value);
        put(&path, &serde_json::to_string_pretty(&value).unwrap());
        self
    }

    fn agent_json(&self, change: impl FnOnce(&mut Value)) -> &Self {
        self.json("agent.json", change)
    }

    fn registry(&self, change: impl FnOnce(&mut Value)) -> &Self {
        self.json("steps_registry.json", change)
    }

    fn write(&self, file: &str, text: &str) -> &Self {
        put(&self.agent.join(file), text);
        self
    }

    fn remove(&self, file: &str) -> &Self {
        std::fs::remove_file(self.agent.join(file)).unwrap();
        self
    }

    fn load(&self) -> Result<Loaded, Refused> {
        load(self.root.path(), &self.agent, &BTreeSet::new())
    }

    fn loaded(&self) -> Loaded {
        self.load().unwrap_or_else(|refused| panic!("refused:\n{refused}"))
    }

    /// Every finding, whether it loads or not.
    fn findings(&self) -> Vec<Diagnostic> {
        match self.load() {
            Ok(loaded) => loaded.diagnostics,
            Err(Refused(findings)) => findings,
        }
    }

    /// The finding of that code; it must carry a file, and a line where the file has lines.
    fn finds(&self, code: &str, severity: Severity) -> Diagnostic {
        let findings = self.findings();
        let all = || findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let found = findings
            .iter()
            .find(|found| found.code == code && found.severity == severity)
            .unwrap_or_else(|| panic!("no {severity:?} {code} in:\n{}", all()));
        assert_eq!(self.load().is_err(), findings.iter().any(|found| found.severity == Severity::Error));
        assert!(found.file.starts_with(".agent/") || found.file.contains(".yml"), "{found}");
        found.clone()
    }

    fn refused_for(&self, code: &str) -> Diagnostic {
        self.finds(code, Severity::Error)
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

#[expect(clippy::disallowed_methods, reason = "fixtures in a temporary folder")]
fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn codes(findings: &[Diagnostic]) -> Vec<&'static str> {
    findings.iter().map(|found| found.code).collect()
}

fn values(pairs: &[(&str, &str)]) -> Values {
    pairs.iter().copied().collect()
}

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
        ["AC-IGNORED-001", "AC-IGNORED-001", "SR-TRANS-013"],
        "{:#?}",
        loaded.diagnostics
    );
    let step = flow.step("initial.a").unwrap();
    let prompt = loaded.resolve_prompt(step, None, &Values::default()).unwrap();
    assert_eq!(prompt.text, "\nDo the initial part.\n");
    assert_eq!(prompt.path, ".agent/f0/prompts/steps/initial/a/f_default.md");
    assert_eq!(loaded.system_prompt().text, "You are f0. You are done when the step flow reaches its end.\n");
    let schema = step.output_schema.as_ref().unwrap();
    assert_eq!(schema.json["properties"]["next_action"]["additionalProperties"], json!(false));
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
    let yml = project.root.path().join(".agent/climpt/config/f0-steps-user.yml");
    let text = std::fs::read_to_string(&yml).unwrap();
    put(&yml, &format!("\u{feff}{}", text.replace('\n', "\r\n")));
    let loaded = project.loaded();
    let step = &loaded.definition.flow.steps[0];
    assert_eq!(
        loaded.resolve_prompt(step, None, &Values::default()).unwrap().text,
        "\nDo the initial part.\n"
    );
}

/// The real definitions, where they lie beside the project: they load unmodified.
#[test]
fn p02_real_definitions_load_unmodified() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/corpora/climpt");
    let corpora = if corpora.is_dir() {
        corpora
    } else {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpora/climpt")
    };
    if !corpora.is_dir() {
        println!("skipped: no corpora");
        return;
    }
    for agent in ["iterator", "considerer", "triager"] {
        let loaded = load(&corpora, &corpora.join(".agent").join(agent), &BTreeSet::new());
        match loaded {
            Ok(loaded) => {
                for found in &loaded.diagnostics {
                    println!("{found}");
                }
                assert!(
                    loaded.diagnostics.iter().all(|found| found.severity == Severity::Warning),
                    "{agent}"
                );
            }
            Err(refused) => panic!("{agent} is refused:\n{refused}"),
        }
    }
}

/// One change of F0, and the code it must give.
type Case = (&'static str, &'static str, fn(&Project));

/// Ends a change whose project nobody needs any more.
fn done(_: &Project) {}

fn step(project: &Project, id: &str, change: impl FnOnce(&mut Value)) {
    project.registry(|registry| change(&mut registry["steps"][id]));
}

fn verdict(project: &Project, value: Value) {
    project.agent_json(|agent| agent["runner"]["verdict"] = value);
}

fn parameter(project: &Project, value: Value) {
    project.agent_json(|agent| agent["parameters"]["extra"] = value);
}

fn without(value: &mut Value, key: &str) {
    value.as_object_mut().unwrap().shift_remove(key);
}

const NEGATIVE: &[Case] = &[
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
    ("n25 system prompt", "PR-SYSTEM-002", |p| done(p.remove("prompts/system.md"))),
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
            &p.root.path().join(".agent/climpt/config/f0-steps-user.yml"),
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
        let whole_file = ["AC-LOAD-001", "SR-LOAD-003", "PR-SYSTEM-002", "PR-C3L-004"].contains(code);
        assert!(found.place.is_some() || whole_file, "{name}: no line in {found}");
        assert!(!found.message.is_empty(), "{name}");
    }
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
fn n20_a_crossing_fails_the_check_and_not_the_run() {
    let project = Project::f0();
    step(&project, "continuation.a", |step| step["transitions"]["next"]["target"] = json!("closure.a"));
    let found = project.finds("SR-CROSS-001", Severity::Defect);
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
    assert!(load(project.root.path(), &project.agent, &supplied).is_ok());
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

#[test]
fn a_new_agent_loads_without_a_diagnostic_and_never_overwrites() {
    use agentd::definition::scaffold::{ScaffoldError, new_agent};
    let project = tempfile::tempdir().unwrap();
    let files = new_agent(project.path(), "helper-2").unwrap();
    assert_eq!(files.len(), 8);
    let folder = project.path().join(".agent/helper-2");
    let loaded = load(project.path(), &folder, &BTreeSet::new()).unwrap();
    assert_eq!(loaded.diagnostics, []);
    assert_eq!(loaded.definition.name, "helper-2");
    assert!(matches!(new_agent(project.path(), "helper-2"), Err(ScaffoldError::Exists(_))));
    assert!(matches!(new_agent(project.path(), "../x"), Err(ScaffoldError::Name(_))));
}

#[test]
fn migrate_writes_the_newest_form_once() {
    use agentd::definition::migration::{apply, plan};
    for (fixture, agent) in [("oldest", "worker"), ("middle", "keeper"), ("f0", "f0")] {
        let project = Project::new(fixture, agent);
        let before = project.loaded().definition;
        let migrations = plan(&project.agent).unwrap();
        assert_eq!(migrations.is_empty(), fixture == "f0");
        apply(&migrations).unwrap();
        assert_eq!(plan(&project.agent).unwrap(), [], "{fixture}: idempotent");
        let after = project.loaded();
        let mut after_definition = after.definition.clone();
        // Where a schema was written inside the registry its place is part of it, and may move.
        for (step, old) in after_definition.flow.steps.iter_mut().zip(&before.flow.steps) {
            step.output_schema.clone_from(&old.output_schema);
        }
        assert_eq!(after_definition, before, "{fixture}: the same definition");
        assert!(!codes(&after.diagnostics).contains(&"AC-DEPRECATED-001"), "{fixture}");
    }
}
