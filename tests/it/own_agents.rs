//! agentd's own agents for its own repository: the living example is checked as any other.
#![expect(clippy::disallowed_methods, reason = "the program under test")]

use std::process::Command;

#[test]
fn the_repositorys_own_configuration_and_agents_are_in_order() {
    for (args, told) in [
        (&["config", "check"][..], "The configuration can be used."),
        (&["agents", "check"], "resolver: in order (0 errors, 0 defects, 0 warnings)"),
    ] {
        let done = Command::new(env!("CARGO_BIN_EXE_agentd"))
            .args(args)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("GITHUB_TOKEN", "a-token")
            .env("ANTHROPIC_API_KEY", "a-key")
            .output()
            .unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert_eq!(done.status.code(), Some(0), "{args:?}: {said}");
        assert!(said.contains(told), "{args:?}: {said}");
    }
}

#[test]
fn a_prompt_without_a_run_names_what_only_a_run_would_have_put_in() {
    let ask = |given: &[&str]| {
        let done = Command::new(env!("CARGO_BIN_EXE_agentd"))
            .args(["prompt", "steps/initial/issue"])
            .args(given)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .unwrap();
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let told = ask(&["--uv", "issue=7"]);
    assert!(told.contains("uv-issue_body") && !told.contains("uv-issue,"), "{told}");
    assert!(!told.contains("uv-verdict_criteria"), "the template does not name it: {told}");
    assert!(!ask(&["--uv", "issue_body=It breaks."]).contains("uv-issue_body"));
}
