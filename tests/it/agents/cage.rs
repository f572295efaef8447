//! The attack corpus through a caged program: what it may not read, write, reach or leave behind.

use serde_json::json;

use super::bench::{fixer, journal, no_cage, script};
use crate::outside::world::{World, text};

/// A secret as the canaries of this test hold it.
const CANARY: &str = "canary-7f3a9c-secret";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_outside_is_readable_writable_reachable_or_left_behind() {
    if let Some(why) = no_cage() {
        eprintln!("skipped, there is no cage here: {why}");
        return;
    }
    let world = World::new(0).await;
    world.write(".netrc", CANARY);
    world.write(".ssh/id_ed25519", CANARY);
    world.write("other/.git/config", CANARY);
    world.write("outside.txt", "untouched\n");
    world.git(&world.shop(), &["config", "http.https://example.org/.extraHeader", CANARY]).await;
    let home = world.dir.path().display().to_string();
    let port = world.sim.api_url().rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    let attack = format!(
        r##"#!/bin/bash
cat >/dev/null
try() {{ echo "== $1"; shift; timeout 5 "$@" 2>&1 | head -c 2000; echo; }}
try environment env
try proc-environ sh -c 'cat /proc/*/environ | tr "\0" "\n"'
try home cat {home}/.netrc {home}/.ssh/id_ed25519 ~/.netrc
try other-repository cat {home}/other/.git/config
try git-config git config --list --show-origin
try common-config cat {home}/shop/.git/config
try state ls {home}/state
try policy cat {home}/shop/.agent/policy.toml
try shadow cat /etc/shadow
try processes sh -c 'ls -d /proc/[0-9]* | wc -l'
try network bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port} && echo REACHED'
try write-outside sh -c 'echo broken > {home}/outside.txt && echo "written here"'
try write-config sh -c 'echo broken >> {home}/shop/.git/config'
try hook sh -c 'mkdir -p {home}/shop/.git/hooks; printf "#!/bin/sh\ntouch {home}/hooked\n" > {home}/shop/.git/hooks/post-commit'
try fsmonitor git config core.fsmonitor 'touch {home}/hooked'
try hookspath git config --global core.hooksPath {home}
try filter sh -c 'git config filter.evil.clean "touch {home}/hooked; cat" && echo "* filter=evil" > .gitattributes'
setsid sleep 31.8 >/dev/null 2>&1 &
echo survived
"##
    );
    fixer(&world, "command", &json!({"argv": [script(&world, "attack.sh", &attack)]}));
    let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let all = journal(&world, &output);
    assert!(all.contains("survived"), "the attack ran to its end: {output:#}");
    assert!(!all.contains(CANARY), "a canary was readable: {all}");
    for secret in ["demo-token-of-the-simulator", "a-key-of-the-simulator", "root:", "REACHED"] {
        assert!(!all.contains(secret), "{secret} is in the record: {all}");
    }
    assert_eq!(std::fs::read_to_string(world.dir.path().join("outside.txt")).unwrap(), "untouched\n");
    assert!(!world.dir.path().join("hooked").exists(), "something of the agent's ran in the host");
    let config = std::fs::read_to_string(world.shop().join(".git/config")).unwrap();
    assert!(!config.contains("broken") && !config.contains("fsmonitor"), "{config}");
    assert!(!world.shop().join(".git/hooks/post-commit").exists());
    let left = std::process::Command::new("pgrep").args(["-f", "sleep 31.8"]).output().unwrap();
    assert_eq!(text(&left.stdout), "");
    world.finish().await;
}
