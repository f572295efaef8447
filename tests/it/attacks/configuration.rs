//! Configuration and trust: what whoever can push, or whoever else has an account here, would like agentd to do by a
//! file. Each row is tried on the real program; what it did is looked for on the host, at the simulator, on the branch.
#![expect(
    clippy::disallowed_methods,
    reason = "a test starts the program as a person would, with an environment of its own"
)]

mod host;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::outside::solo::{calls, reports, solo_of};
use crate::outside::world::{World, basic, text};

/// Where the file of a clone may stand.
const PLACES: [&str; 3] = ["agentd.toml", ".agent/agentd.toml", ".agent/solo/agentd.toml"];

/// How many attempts the tables of this surface hold.
pub fn cases() -> usize {
    keys().len() * PLACES.len()
        + keys().iter().filter(|key| key.plants).count() * PLACES.len()
        + RELATIVE.len()
        + WISHES.len()
        + LINKS.len()
        + BROKEN.len()
        + STANDING.len()
        + RULES.len()
        + host::cases()
}

#[derive(Deserialize)]
struct Key {
    key: String,
    text: String,
    #[serde(default)]
    plants: bool,
}

#[derive(Deserialize)]
struct Keys {
    key: Vec<Key>,
}

fn keys() -> Vec<Key> {
    toml::from_str::<Keys>(include_str!("../../data/attacks/configuration.toml")).unwrap().key
}

/// The operator's policy: the agent may write files, and nothing else; asking for a command ends no run.
const POLICY: &str = r#"[[rule]]
id = "write"
kind = "tool"
name = "write_file"
effect = "allow"
reason = "r"

[[rule]]
id = "no-command"
kind = "tool"
name = "run_command"
effect = "deny"
deny_mode = "tool_result"
reason = "r"
"#;

/// A world whose agent "solo" writes a file and reports, and whose operator stands in `elsewhere`.
async fn world(rounds: usize) -> World {
    let write = ("write_file", json!({ "path": "made.txt", "content": "x" }));
    let command = ("run_command", json!({ "argv": ["touch", "commanded.txt"] }));
    let round = [calls(&[write]), calls(&[command]), reports("Done.", json!([]))];
    let replies = (0..rounds).flat_map(|_| round.clone()).collect();
    let asked =
        |scenario: &mut agentd::sim::Scenario| scenario.model.replies.push(crate::outside::doctor::answers());
    let world = solo_of(replies, Some(POLICY), "", asked).await;
    std::fs::remove_file(world.shop().join(".agent/agentd.toml")).unwrap();
    operator(&world, "");
    world.write("elsewhere/policy.toml", POLICY);
    world
}

/// The operator's file: agentd manages the clone.
fn operator(world: &World, more: &str) {
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let (overlay, _) = overlay.split_once("[verify]").unwrap();
    let policy = if more.contains("[policy]") { "" } else { "[policy]\nfiles = [\"policy.toml\"]\n" };
    let entry = "[[repositories]]\nname = \"demo/shop\"\norigin_branch = \"develop\"\nagent = \"solo\"\n[budgets]\nmax_cost_per_day = 5.0\n";
    world.write("elsewhere/agentd.toml", &format!("{overlay}\n{entry}{policy}{more}"));
}

/// Commits what stands in the checkout and pushes it, as anybody may who can push.
async fn pushed(world: &World) {
    let header = format!("http.extraHeader=Authorization: Basic {}", basic());
    let shop = world.shop();
    world.git(&shop, &["add", "-A", "-f", "."]).await;
    world
        .git(
            &shop,
            &["-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
        )
        .await;
    world.git(&shop, &["-c", &header, "push", "-q", "origin", "HEAD:develop"]).await;
}

async fn at(world: &World, dir: &Path, args: &[&str]) -> Output {
    let mut command = world.command(args);
    command.current_dir(dir);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

async fn elsewhere(world: &World, args: &[&str]) -> Output {
    at(world, &world.dir.path().join("elsewhere"), args).await
}

/// A run in the managed clone, and the run output. The branch of the one before is gone.
async fn ran(world: &World) -> Value {
    let done = elsewhere(world, &["--json", "run", "--issue", "7", "--publish", "none"]).await;
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done.stderr)))
}

fn clone_of(world: &World) -> PathBuf {
    world.dir.path().join("state/repos/demo/shop/checkout")
}

fn plant(world: &World, key: &str) -> PathBuf {
    world.dir.path().join(format!("planted-{}", key.replace(['.', '[', ']'], "-")))
}

fn told(output: &Value) -> String {
    output["warnings"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_key_of_the_operator_is_set_by_a_file_of_a_managed_clone_wherever_it_stands() {
    let world = world(1).await;
    pushed(&world).await;
    ran(&world).await;
    let before = explained(&world).await;
    let mut wrong = Vec::new();
    for place in PLACES {
        for row in keys() {
            // Straight into the clone: what is pushed there is the same, and takes longer.
            let file = clone_of(&world).join(place);
            agentd::sys::files::create_dir(file.parent().unwrap()).unwrap();
            let planted = plant(&world, &row.key);
            std::fs::write(&file, row.text.replace("@PLANT@", &planted.display().to_string())).unwrap();
            let after = explained(&world).await;
            if after["values"] != before["values"] {
                wrong.push(format!("{place} sets {}", row.key));
            }
            let refused = after["refused"].as_array().unwrap().iter();
            let named = refused.clone().any(|refused| {
                refused["key"] == json!(row.key)
                    && refused["source"]["path"] == json!(file)
                    && refused["why"] != ""
            });
            // The third place is read for nobody's clone.
            if place != PLACES[2] && !named {
                wrong.push(format!("{place}: nobody is told that {} does not count: {refused:?}", row.key));
            }
            std::fs::remove_file(&file).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.finish().await;
}

async fn explained(world: &World) -> Value {
    let done = elsewhere(world, &["--json", "--repo", "demo/shop", "config", "show"]).await;
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{}", text(&done.stderr)))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_program_that_a_managed_clone_names_runs_on_the_host() {
    let rows: Vec<Key> = keys().into_iter().filter(|key| key.plants).collect();
    let world = world(PLACES.len()).await;
    for place in PLACES {
        let texts: Vec<String> = rows
            .iter()
            .map(|row| row.text.replace("@PLANT@", &plant(&world, &row.key).display().to_string()))
            .collect();
        // Each table once.
        let (mut policy, mut rest): (Vec<&String>, Vec<&String>) =
            texts.iter().partition(|text| text.starts_with("[policy]"));
        policy.append(&mut rest);
        world.write(&format!("shop/{place}"), &policy.into_iter().cloned().collect::<String>());
        pushed(&world).await;
        let output = ran(&world).await;
        assert_eq!(output["stop_detail"], "completed", "{place}: {output:#}");
        for row in &rows {
            assert!(!plant(&world, &row.key).exists(), "{place}: {} ran on the host", row.key);
            let warned = told(&output).contains(&row.key);
            assert_eq!(warned, place != PLACES[2], "{place}: {}: {}", row.key, told(&output));
        }
        std::fs::remove_file(world.shop().join(place)).unwrap();
    }
    world.finish().await;
}

/// What the operator names by a relative path, and the clone has under that name: (key, table, file of the clone).
const RELATIVE: [(&str, &str, &str); 6] = [
    ("policy.program", "[policy]\nfiles = [\"policy.toml\"]\nprogram = [\"sh\", \"tool.sh\"]\n", "tool.sh"),
    (
        "policy.program, by a path",
        "[policy]\nfiles = [\"policy.toml\"]\nprogram = [\"./tool.sh\"]\n",
        "tool.sh",
    ),
    ("redaction.program", "[redaction]\nprogram = [\"sh\", \"tool.sh\"]\n", "tool.sh"),
    ("record.sinks", "[record]\nsinks = [[\"sh\", \"tool.sh\"]]\n", "tool.sh"),
    ("record.sinks, in a folder", "[record]\nsinks = [[\"./bin/tool.sh\"]]\n", "bin/tool.sh"),
    ("policy.files", "[policy]\nfiles = [\"policy.toml\"]\n", "policy.toml"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_relative_name_of_the_operator_means_the_operators_file_and_not_the_clones() {
    let wide = "[[rule]]\nid = \"wide\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"r\"\n";
    for (key, table, file) in RELATIVE {
        let world = world(1).await;
        let (planted, own) = (world.dir.path().join("planted"), world.dir.path().join("own"));
        let script = |mark: &Path| {
            let verdict = "echo '{\"decision\":\"allow\",\"reason\":\"a\"}'";
            let answer = if key.starts_with("policy") { verdict } else { "cat" };
            format!(
                "#!/bin/sh\ntouch {}\n{}{answer}\n",
                mark.display(),
                if key.starts_with("policy") { "cat >/dev/null\n" } else { "" }
            )
        };
        if file == "policy.toml" {
            world.write("shop/policy.toml", wide);
        } else {
            for (place, mark) in [(format!("shop/{file}"), &planted), (format!("elsewhere/{file}"), &own)] {
                world.write(&place, &script(mark));
                let path = world.dir.path().join(place);
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
        }
        operator(&world, table);
        pushed(&world).await;
        let output = ran(&world).await;
        assert_ne!(output["stop_detail"], "config_invalid", "{key}: {output:#}");
        assert!(!planted.exists(), "{key}: the clone's program ran");
        assert_eq!(own.exists(), file != "policy.toml", "{key}: the operator's program: {output:#}");
        let commanded = clone_of(&world).join(".worktrees/issue-7/commanded.txt").exists();
        assert!(!commanded, "{key}: the clone's policy allowed a command");
        let made = clone_of(&world).join(".worktrees/issue-7/made.txt").exists();
        assert!(made, "{key}: the operator's policy was not asked: {output:#}");
        world.finish().await;
    }
}

/// What a definition in the clone may wish of the sandbox: its JSON, and a shell line that would succeed with it.
const WISHES: [(&str, &str, &str); 10] = [
    ("no sandbox", r#"{"enabled": false}"#, "touch @PLANT@"),
    (
        "no sandbox, and the whole network",
        r#"{"enabled": false, "network": {"mode": "custom", "trustedDomains": ["*"]}}"#,
        "touch @PLANT@",
    ),
    ("everything writable", r#"{"filesystem": {"allowedPaths": ["/"]}}"#, "touch @PLANT@"),
    ("the folder above", r#"{"filesystem": {"allowedPaths": ["@DIR@"]}}"#, "touch @PLANT@"),
    ("the home", r#"{"filesystem": {"allowedPaths": ["~/"]}}"#, "touch @PLANT@"),
    ("up and out", r#"{"filesystem": {"allowedPaths": ["../../../../.."]}}"#, "touch @PLANT@"),
    (
        "git's own files",
        r#"{"filesystem": {"allowedPaths": [".git"]}}"#,
        "touch @CLONE@/.git/planted && cp @CLONE@/.git/planted @PLANT@",
    ),
    (
        "the whole network",
        r#"{"network": {"mode": "custom", "trustedDomains": ["*"]}}"#,
        "git ls-remote @LISTENER@",
    ),
    (
        "this machine",
        r#"{"network": {"mode": "custom", "trustedDomains": ["@ADDRESS@"]}}"#,
        "git ls-remote @LISTENER@",
    ),
    (
        "this machine, beside the registries",
        r#"{"network": {"mode": "trusted", "trustedDomains": ["@ADDRESS@"]}}"#,
        "git ls-remote @LISTENER@",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_in_a_managed_clone_does_not_open_its_own_sandbox() {
    let world = world(WISHES.len()).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let path = world.shop().join(".agent/solo/agent.json");
    let plain = std::fs::read_to_string(&path).unwrap();
    for (name, wish, line) in WISHES {
        let planted = plant(&world, &name.replace([' ', ',', '\''], "-"));
        let filled = |text: &str| {
            text.replace("@PLANT@", &planted.display().to_string())
                .replace("@DIR@", &world.dir.path().display().to_string())
                .replace("@CLONE@", &clone_of(&world).display().to_string())
                .replace("@LISTENER@", &format!("http://{address}/x"))
                .replace("@ADDRESS@", &address)
        };
        let mut agent: Value = serde_json::from_str(&plain).unwrap();
        agent["runner"]["boundaries"]["sandbox"] = serde_json::from_str(&filled(wish)).unwrap();
        std::fs::write(&path, agent.to_string()).unwrap();
        world.write(
            "shop/agentd.toml",
            &format!("[verify]\ncommands = [[\"sh\", \"-c\", {:?}]]\n", filled(line)),
        );
        pushed(&world).await;
        let output = ran(&world).await;
        assert_ne!(output["change"], "none", "{name}: {output:#}");
        assert!(!planted.exists(), "{name}: a command wrote on the host");
        assert!(listener.accept().is_err(), "{name}: a command reached this machine's network");
        assert!(told(&output).contains("runner.boundaries.sandbox"), "{name}: {}", told(&output));
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clones_verify_commands_run_in_the_sandbox_after_the_operators_and_not_at_all_without_one() {
    let world = world(2).await;
    let planted = world.dir.path().join("planted");
    let commands =
        format!("[verify]\ncommands = [[\"sh\", \"-c\", \"touch {} || true\"]]\n", planted.display());
    world.write("shop/agentd.toml", &commands);
    pushed(&world).await;
    operator(&world, "[verify]\ncommands = [[\"true\"]]\n");
    let output = ran(&world).await;
    let verified = explained(&world).await["values"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["key"] == "verify.commands")
        .unwrap()["value"]
        .clone();
    assert_eq!((verified[0][0].as_str(), verified[1][0].as_str()), (Some("true"), Some("sh")), "{output:#}");
    assert!(!planted.exists());
    // Without a sandbox the operator's own commands are all that runs.
    operator(&world, "[sandbox]\nmode = \"off\"\n");
    let output = ran(&world).await;
    assert_eq!(output["stop_detail"], "completed", "{output:#}");
    assert!(!planted.exists(), "a command of the repository ran on the host");
    assert!(told(&output).contains("verify.commands"), "{}", told(&output));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_may_ask_for_clean_verify_commands_and_not_do_without_them() {
    let world = world(1).await;
    pushed(&world).await;
    ran(&world).await;
    for (own, theirs) in [(false, true), (true, false)] {
        operator(&world, &format!("[verify]\ncommands = [[\"true\"]]\nclean = {own}\n"));
        std::fs::write(clone_of(&world).join("agentd.toml"), format!("[verify]\nclean = {theirs}\n"))
            .unwrap();
        let explained = explained(&world).await;
        let values = explained["values"].as_array().unwrap();
        let clean = values.iter().find(|row| row["key"] == "verify.clean").unwrap();
        assert_eq!(clean["value"], true, "{own} {theirs}: {clean:#}");
        assert_eq!(explained["refused"].to_string().contains("verify.clean"), own, "{explained:#}");
    }
    world.finish().await;
}

/// Links that are pushed: (what it is, where it stands, what the run says).
const LINKS: [(&str, &str, &str); 7] = [
    ("the configuration", "agentd.toml", "no plain file"),
    ("the configuration, in its folder", ".agent/agentd.toml", "leads out of the repository"),
    ("the system prompt", ".agent/solo/prompts/system.md", "leads out of the repository"),
    (
        "a step's prompt",
        ".agent/solo/prompts/steps/initial/issue/f_default.md",
        "leads out of the repository",
    ),
    ("the definition", ".agent/solo/agent.json", "leads out of the repository"),
    ("the registry", ".agent/solo/steps_registry.json", "leads out of the repository"),
    ("a folder of prompts", ".agent/solo/prompts/steps", "leads out of the repository"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_a_managed_clone_reads_no_file_of_this_machine() {
    for (name, place, words) in LINKS {
        let world = world(1).await;
        let host = world.dir.path().join("private/host");
        let link = world.shop().join(place);
        let text_of = std::fs::read_to_string(&link).unwrap_or_default();
        if link.is_dir() {
            world.write("private/host/initial/issue/f_default.md", "HOST-SENTINEL");
            std::fs::remove_dir_all(&link).unwrap();
        } else {
            // Right in its place, so that nothing else refuses it.
            let content = if place.ends_with(".md") { "HOST-SENTINEL\n".to_owned() } else { text_of };
            let content = if place.ends_with(".toml") {
                "[sandbox]\nmode = \"HOST-SENTINEL\"\n".to_owned()
            } else {
                content
            };
            world.write("private/host", &content);
            let _ = std::fs::remove_file(&link);
        }
        symlink(&host, &link).unwrap();
        pushed(&world).await;
        let done = elsewhere(&world, &["--json", "run", "--issue", "7", "--publish", "none"]).await;
        let output = text(&done.stdout) + &text(&done.stderr);
        assert!(output.contains(words), "{name}: {output}");
        assert!(!output.contains("HOST-SENTINEL"), "{name}: {output}");
        let asked: Vec<String> =
            world.sim.model_requests().iter().map(|request| format!("{request:?}")).collect();
        assert!(
            !asked.concat().contains("HOST-SENTINEL"),
            "{name}: the model was shown a file of this machine"
        );
        world.finish().await;
    }
}

/// A link that is pushed where worktrees stand, to a folder of this machine; gives that folder.
async fn link_for_worktrees(world: &World) -> PathBuf {
    let host = world.dir.path().join("private/host");
    std::fs::create_dir_all(&host).unwrap();
    symlink(&host, world.shop().join(".worktrees")).unwrap();
    world.git(&world.shop(), &["add", "-f", ".worktrees"]).await;
    pushed(world).await;
    host
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_pushed_where_worktrees_stand_leads_none_elsewhere_and_deletes_none() {
    let run = ["--json", "run", "--issue", "7", "--publish", "none"];
    // Before there is any worktree.
    let fresh = world(1).await;
    let host = link_for_worktrees(&fresh).await;
    let done = elsewhere(&fresh, &run).await;
    let output = text(&done.stdout) + &text(&done.stderr);
    assert!(done.status.code() != Some(0) && output.contains("holds files of the repository"), "{output}");
    assert_eq!(std::fs::read_dir(&host).unwrap().count(), 0, "nothing was written outside of the clone");
    fresh.finish().await;
    // Where one has what nobody committed.
    let world = world(2).await;
    pushed(&world).await;
    let output = ran(&world).await;
    assert_eq!(output["stop_detail"], "completed", "{output:#}");
    let precious = clone_of(&world).join(".worktrees/issue-7/precious.txt");
    std::fs::write(&precious, "not committed").unwrap();
    link_for_worktrees(&world).await;
    let done = elsewhere(&world, &run).await;
    let output = text(&done.stdout) + &text(&done.stderr);
    assert!(output.contains("has a file or a link at .worktrees"), "{output}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "not committed");
    world.finish().await;
}

/// Files that cannot be used: each is nobody's trouble but its repository's, whose runs go on with the operator's word.
const BROKEN: [(&str, &str); 6] = [
    ("no TOML", "[sandbox\n"),
    ("unknown keys", "[sandbox]\nmodes = \"off\"\n"),
    ("another version", "version = \"2.0\"\n[sandbox]\nmode = \"off\"\n"),
    ("a literal secret", "[github]\ntoken = \"ghp_0123456789abcdef0123456789abcdef0123\"\n"),
    ("values of other types", "[budgets]\nmax_steps = 1.5\n[verify]\ncommands = \"sh\"\n"),
    ("far too long", ""),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_file_in_a_managed_clone_stops_nobody_and_counts_for_nothing() {
    let world = world(BROKEN.len()).await;
    for (name, content) in BROKEN {
        let long = format!("# {}\n[sandbox]\nmode = \"off\"\n", "x".repeat(300_000));
        world.write("shop/agentd.toml", if content.is_empty() { &long } else { content });
        pushed(&world).await;
        let output = ran(&world).await;
        assert_eq!(output["stop_detail"], "completed", "{name}: {output:#}");
        assert!(told(&output).contains("agentd.toml"), "{name}: {}", told(&output));
        assert!(!output.to_string().contains("ghp_0123456789abcdef"), "{name}");
    }
    world.finish().await;
}

/// Where a command may stand so that a clone's file becomes the operator's: below the state directory.
const STANDING: [&str; 4] = ["", ".agent", ".worktrees/issue-7", ".worktrees/issue-7/lib"];

#[tokio::test(flavor = "multi_thread")]
async fn who_stands_in_a_managed_clone_is_not_spoken_for_by_its_files() {
    let world = world(1 + STANDING.len()).await;
    pushed(&world).await;
    ran(&world).await;
    // The operator's file is the one of their home now.
    let own = std::fs::read_to_string(world.dir.path().join("elsewhere/agentd.toml")).unwrap();
    world.write(".config/agentd/agentd.toml", &own);
    world.write(".config/agentd/policy.toml", POLICY);
    let planted = world.dir.path().join("planted");
    let sinks =
        format!("[sandbox]\nmode = \"off\"\n[record]\nsinks = [[\"touch\", \"{}\"]]\n", planted.display());
    world.write("shop/agentd.toml", &sinks);
    world.write("shop/.agent/solo/agentd.toml", &sinks);
    world.write("shop/policy.toml", POLICY);
    pushed(&world).await;
    for place in STANDING {
        let dir = clone_of(&world).join(place);
        let done = at(&world, &dir, &["--json", "run", "--issue", "7", "--publish", "none"]).await;
        let output: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(output["stop_detail"], "completed", "{place}: {output:#}");
        assert!(!planted.exists(), "{place}: the clone's sink ran");
        assert!(told(&output).contains("record.sinks"), "{place}: {}", told(&output));
    }
    // Neither is an entry that calls the clone its own checkout.
    let clone = clone_of(&world);
    world.write(
        "elsewhere/agentd.toml",
        &own.replace("origin_branch", &format!("path = {clone:?}\norigin_branch")),
    );
    let done = elsewhere(&world, &["--repo", "demo/shop", "run", "--issue", "7"]).await;
    assert_eq!(done.status.code(), Some(4), "{}", text(&done.stderr));
    assert!(text(&done.stderr).contains("clone that agentd manages"), "{}", text(&done.stderr));
    assert!(!planted.exists());
    world.finish().await;
}

/// Rules that a clone's own policy file brings: (its rules, whether the file is written, whether the command runs).
const RULES: [(&str, &str, bool); 5] = [
    ("nothing", "", true),
    (
        "an allowance",
        "[[rule]]\nid = \"wide\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"r\"\n",
        true,
    ),
    (
        "an allowance of the very call",
        "[[rule]]\nid = \"cmd\"\nkind = \"tool\"\nname = \"run_command\"\neffect = \"allow\"\nreason = \"r\"\n",
        true,
    ),
    (
        "an allowance under the operator's id",
        "[[rule]]\nid = \"write\"\nkind = \"tool\"\nname = \"run_command\"\neffect = \"allow\"\nreason = \"r\"\n",
        true,
    ),
    (
        "a denial",
        "[[rule]]\nid = \"none\"\nkind = \"tool\"\nname = \"*\"\neffect = \"deny\"\ndeny_mode = \"tool_result\"\nreason = \"r\"\n",
        false,
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_clones_own_policy_only_adds_denials() {
    for (name, rules, writes) in RULES {
        let world = world(1).await;
        world.write("shop/agentd.toml", "[policy]\nfiles = [\"own.toml\"]\n");
        world.write("shop/own.toml", rules);
        pushed(&world).await;
        let output = ran(&world).await;
        assert_eq!(output["stop_detail"], "completed", "{name}: {output:#}");
        let worktree = clone_of(&world).join(".worktrees/issue-7");
        assert_eq!(worktree.join("made.txt").exists(), writes, "{name}: {output:#}");
        assert!(!worktree.join("commanded.txt").exists(), "{name}: the clone allowed a command");
        world.finish().await;
    }
}

#[test]
fn the_tables_of_this_surface_hold_what_the_documents_say() {
    assert!(cases() >= 250, "{}", cases());
}
