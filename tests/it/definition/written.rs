//! Definitions that agentd writes: new agents and migrated ones.

use std::collections::BTreeSet;

use agentd::definition::load;

use super::project::{Project, codes};

#[test]
fn a_new_agent_loads_without_a_diagnostic_and_never_overwrites() {
    use agentd::definition::scaffold::{ScaffoldError, new_agent};
    let project = tempfile::tempdir().unwrap();
    let files = new_agent(project.path(), "helper-2").unwrap();
    assert_eq!(files.len(), 11);
    let folder = project.path().join(".agent/helper-2");
    for name in ["agent.json", "steps_registry.json"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let definition: serde_json::Value = serde_json::from_str(&text).unwrap();
        let schema = folder.join(definition["$schema"].as_str().unwrap());
        assert!(schema.is_file(), "{name} names a schema that is not there: {}", schema.display());
    }
    let loaded = load(project.path(), &folder, &BTreeSet::new()).unwrap();
    assert_eq!(loaded.diagnostics, []);
    assert_eq!(loaded.definition.name, "helper-2");
    assert!(matches!(new_agent(project.path(), "helper-2"), Err(ScaffoldError::Exists(_))));
    assert!(matches!(new_agent(project.path(), "../x"), Err(ScaffoldError::Name(_))));
}

#[cfg(unix)]
#[test]
fn migrate_writes_through_links_and_keeps_the_mode() {
    use std::os::unix::fs::PermissionsExt as _;

    use agentd::definition::migration::{apply, plan};
    let project = Project::new("oldest", "worker");
    let (link, target) = (project.agent.join("agent.json"), project.agent.join("kept.json"));
    std::fs::copy(&link, &target).unwrap();
    std::fs::remove_file(&link).unwrap();
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    apply(&plan(&project.root, &project.agent).unwrap()).unwrap();
    assert!(link.is_symlink());
    assert!(std::fs::read_to_string(&target).unwrap().contains("\"runner\""));
    assert_eq!(target.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn migrate_refuses_what_it_would_lose() {
    use agentd::definition::migration::plan;
    for (member, code) in [
        ("\"description\": \"second\"", "AC-VALID-001"),
        ("\"x\": 12345678901234567890123", "AC-VALID-001"),
        ("\"x\": ", "AC-LOAD-002"),
    ] {
        let project = Project::new("oldest", "worker");
        let text = std::fs::read_to_string(project.agent.join("agent.json")).unwrap();
        let text = format!("{}, {member}}}", text.trim_end().strip_suffix('}').unwrap());
        project.write("agent.json", &text);
        let refused = plan(&project.root, &project.agent).unwrap_err();
        assert_eq!(refused.code, code, "{refused}");
        assert!(refused.place.starts_with(".agent/worker/agent.json:"), "{refused}");
    }
}

#[test]
fn migrate_writes_the_newest_form_once() {
    use agentd::definition::migration::{apply, plan};
    for (fixture, agent) in [("oldest", "worker"), ("middle", "keeper"), ("f0", "f0")] {
        let project = Project::new(fixture, agent);
        let before = project.loaded().definition;
        let migrations = plan(&project.root, &project.agent).unwrap();
        assert_eq!(migrations.is_empty(), fixture == "f0");
        apply(&migrations).unwrap();
        assert_eq!(plan(&project.root, &project.agent).unwrap(), [], "{fixture}: idempotent");
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
