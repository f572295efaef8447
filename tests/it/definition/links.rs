//! A definition is read inside of its repository, and migrated inside of its own folder: no path and no link leads out.

use std::os::unix::fs::symlink;
use std::path::Path;

use agentd::definition::migration::plan;
use serde_json::json;

use super::project::{Project, put};

/// Moves a file or a folder of the project out of it and leaves a link there.
#[expect(clippy::disallowed_methods, reason = "fixtures in a temporary folder")]
fn moved_out(project: &Project, path: &str, outside: &Path) {
    let (here, there) = (project.root.join(path), outside.join(path.replace('/', "-")));
    std::fs::rename(&here, &there).unwrap();
    symlink(&there, &here).unwrap();
}

#[test]
fn a_link_of_a_definition_that_leads_out_of_the_repository_is_refused_with_where_it_leads() {
    for path in [
        ".agent",
        ".agent/f0",
        ".agent/f0/agent.json",
        ".agent/f0/steps_registry.json",
        ".agent/f0/schemas",
        ".agent/f0/schemas/s.schema.json",
        ".agent/f0/prompts",
        ".agent/f0/prompts/system.md",
        ".agent/f0/prompts/steps",
        ".agent/f0/prompts/steps/initial/a/f_default.md",
        ".agent/climpt/config/f0-steps-app.yml",
        ".agent/climpt/config/f0-steps-user.yml",
    ] {
        let project = Project::f0();
        let outside = tempfile::tempdir().unwrap();
        moved_out(&project, path, outside.path());
        let refused = project.load().expect_err(path).to_string();
        assert!(refused.contains("link"), "{path}: {refused}");
        assert!(
            refused.contains("leads out") || refused.contains("leaves the prompt root"),
            "{path}: {refused}"
        );
        assert!(refused.contains(".agent/"), "which file it is: {path}: {refused}");
    }
}

#[test]
fn a_link_into_gits_own_folder_is_refused_and_one_that_stays_in_the_repository_is_read() {
    let project = Project::f0();
    let schema = project.agent.join("schemas/s.schema.json");
    for (there, loads) in [(".git/config", false), ("shared/s.json", true)] {
        put(&project.root.join(there), &std::fs::read_to_string(&schema).unwrap());
        std::fs::remove_file(&schema).unwrap();
        symlink(project.root.join(there), &schema).unwrap();
        assert_eq!(project.load().is_ok(), loads, "{there}");
    }
}

#[test]
fn migrate_touches_nothing_outside_of_the_agents_folder() {
    let old = json!({"agentId": "worker", "completionPatterns": {}, "steps": {}}).to_string();
    let outside = tempfile::tempdir().unwrap();
    let elsewhere = outside.path().join("steps_registry.json");
    put(&elsewhere, &old);
    for (what, named) in [
        ("a path that climbs", Some("../../steps_registry.json".to_owned())),
        ("an absolute path", Some(elsewhere.display().to_string())),
        ("a link out of the repository", None),
    ] {
        let project = Project::new("oldest", "worker");
        put(&project.root.join("steps_registry.json"), &old);
        match named {
            Some(named) => {
                project.agent_json(|agent| agent["prompts"]["registry"] = json!(named));
            }
            None => {
                project.remove("steps_registry.json");
                symlink(&elsewhere, project.agent.join("steps_registry.json")).unwrap();
            }
        }
        let refused = plan(&project.root, &project.agent).expect_err(what);
        assert!(refused.to_string().contains("leads out of the agent's folder"), "{what}: {refused}");
        assert!(refused.place.starts_with(".agent/worker/"), "{what}: {refused}");
    }
    // The registry of another agent is another's, although it is in the same repository.
    let project = Project::new("oldest", "worker");
    put(&project.root.join(".agent/other/steps_registry.json"), &old);
    project.remove("steps_registry.json");
    symlink("../other/steps_registry.json", project.agent.join("steps_registry.json")).unwrap();
    let refused = plan(&project.root, &project.agent).unwrap_err();
    assert!(refused.why.contains("leads out of the agent's folder"), "{refused}");
}

#[test]
fn migrate_says_that_the_registry_is_missing() {
    let project = Project::new("oldest", "worker");
    project.remove("steps_registry.json");
    let refused = plan(&project.root, &project.agent).unwrap_err();
    assert_eq!(refused.to_string(), "SR-LOAD-003: .agent/worker/steps_registry.json: does not exist");
}
