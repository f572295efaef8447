//! A program that swaps folders and links while agentd's tools look at them for it: it is given what it could read itself, and what
//! the policy allowed.

use serde_json::json;

use super::bench::{fixer, no_landlock, no_sandbox, rules, script};
use crate::outside::world::World;

/// Seconds of each race.
const SECONDS: &str = "4";

#[tokio::test(flavor = "multi_thread")]
async fn s_055_in_bubblewrap_no_link_that_comes_meanwhile_leads_agentds_tools_anywhere() {
    if let Some(why) = no_sandbox() {
        eprintln!("skipped, there is no sandbox here: {why}");
        return;
    }
    meddled("bubblewrap").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s_055_under_landlock_no_link_that_comes_meanwhile_leads_agentds_tools_anywhere() {
    if let Some(why) = no_landlock() {
        eprintln!("skipped: {why}");
        return;
    }
    meddled("landlock").await;
}

#[expect(clippy::print_stderr, reason = "a skipped test says why")]
async fn meddled(mode: &str) {
    let asked = "import sys; print(sys.executable); print(sys.base_prefix)";
    let Ok(told) = std::process::Command::new("python3").args(["-c", asked]).output() else {
        eprintln!("skipped, there is no python3 here");
        return;
    };
    // What stands in the PATH may be a script that leads to it.
    let told = String::from_utf8(told.stdout).unwrap();
    let (python, prefix) = told.trim().split_once('\n').unwrap();
    let world = World::new(0).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[sandbox]\nmode = \"{mode}\"\n"));
    world.write("outside/OUTSIDE.txt", "OUTSIDE\n");
    let program = script(&world, "meddling.py", include_str!("meddling.py"));
    let at = |name: &str| world.dir.path().join(name).display().to_string();
    let argv = [
        python.to_owned(),
        program.display().to_string(),
        env!("CARGO_BIN_EXE_agentd").to_owned(),
        at("outside"),
        SECONDS.to_owned(),
    ];
    fixer(&world, "command", &json!({"argv": argv, "readable": [prefix, at("programs")]}));
    let deny = |tool: &str| {
        format!(
            "[[rule]]\nid = \"kept-{tool}\"\nkind = \"tool\"\nname = \"{tool}\"\neffect = \"deny\"\nreason = \"kept\"\n\
             deny_mode = \"tool_result\"\nwhen = {{ path = [\"kept/**\"] }}\n\n"
        )
    };
    rules(&world, &format!("{}{}", deny("read_file"), deny("search")));
    let (_, output) = world.json(&["run", "--issue", "7", "--agent", "fixer"]).await;
    let said = output.to_string();
    for told in [
        "status: True diff: True",
        "inside: True",
        "since: True",
        "denied: True",
        "left: []",
        "outside: 0 of True []",
        "kept: 0 of True []",
    ] {
        assert!(said.contains(told), "{told}: {output:#}");
    }
    world.sim.shutdown().await;
}
