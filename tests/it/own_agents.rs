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
