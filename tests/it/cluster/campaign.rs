//! The short form of `.ci/campaigns/cluster-faults`.

use std::path::Path;
use std::process::Command;

use super::server::is_there;

#[test]
fn after_some_faults_each_issue_and_each_run_is_as_if_undisturbed() {
    if !is_there("cluster-faults") {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/campaigns/cluster-faults");
    let asked = ["--program", env!("CARGO_BIN_EXE_agentd"), "--faults", "4", "--at-work", "2", "--seed", "1"];
    let done = match Command::new("python3").arg(script).args(asked).output() {
        Ok(done) => done,
        Err(error) => return eprintln!("SKIPPED: python3 does not start: {error}"),
    };
    let told = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(done.status.success(), "{} {}", told[0], told[1]);
    assert!(told[0].contains("4 faults in "), "{}", told[0]);
}
