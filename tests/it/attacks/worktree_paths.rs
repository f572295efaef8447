//! What a command may write in its worktree and may not publish: protected paths, secrets, what is too large.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::outside::solo::{calls, left, newest, reports, run, solo_of};
use crate::outside::world::World;

/// Any command, any file but the protected ones; one of those is let through by name.
const POLICY: &str = r#"
[[rule]]
id = "commands"
kind = "tool"
name = "run_command"
effect = "allow"
reason = "for the test: any command"

[[rule]]
id = "let"
kind = "tool"
name = "write_file"
effect = "allow"
reason = "the operator lets it"
when = { path = [".github/let.yml"] }

[[rule]]
id = "protected"
kind = "tool"
name = "write_file"
effect = "deny"
reason = "protected_path"
when = { path = [".github/**", ".agent/**", "agentd.toml", "deploy/**"] }

[[rule]]
id = "rest"
kind = "tool"
name = "*"
effect = "allow"
reason = "everything else"
"#;

/// A cap that its cases pass, beside what holds for all.
const MORE: &str =
    "[commit]\nmax_files = 50\nmax_lines = 2000\nmax_bytes = 2000000\nsecrets_allowed = [\"fixtures/**\"]\n";

#[derive(Deserialize)]
struct Table {
    case: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    group: String,
    name: String,
    script: String,
    says: Vec<String>,
}

fn cases() -> Vec<Case> {
    toml::from_str::<Table>(include_str!("../../data/attacks/worktree_paths.toml")).unwrap().case
}

/// How many attempts there are; those of history are made in two modes.
pub fn count() -> usize {
    cases().len() + cases().iter().filter(|case| case.group.contains("history")).count()
}

/// A run whose model asks for these commands, in this mode, in a repository with something protected.
async fn ran(scripts: &[&str], mode: &str, more: &str) -> (World, Option<i32>, Value) {
    let mut replies: Vec<_> = scripts
        .chunks(if scripts.len() < 10 { 1 } else { 10 })
        .map(|chunk| {
            let of = |script: &&str| ("run_command", json!({ "argv": ["sh", "-c", *script] }));
            calls(&chunk.iter().map(of).collect::<Vec<_>>())
        })
        .collect();
    // What the report names is meant to be committed.
    replies.push(reports("Done: k3.bin, large.txt, k7.txt, k8.txt, s3.bin and s4.txt.", json!([])));
    let more = format!("[sandbox]\nmode = \"{mode}\"\n{more}");
    let world = solo_of(replies, Some(POLICY), &more, |scenario| {
        let files = &mut scenario.repositories[0].commits[0].files;
        let names = ["renamed", "removed", "mode", "link", "append"].map(|name| format!("deploy/{name}.yml"));
        let others = ["lib/notes.txt", "docs/old.yml", "docs/rename.txt"].map(str::to_owned);
        for name in names.into_iter().chain(others) {
            files
                .insert(name.clone(), serde_json::from_value(json!(format!("{name}\nold lines\n"))).unwrap());
        }
    })
    .await;
    let (code, output) = run(&world).await;
    (world, code, output)
}

fn pushed(world: &World) -> Option<String> {
    agentd::sim::bare::head(&world.sim.git_dir("demo/shop").unwrap(), "feature/issue-7")
}

/// What every command came to, for a case that did not do what it says.
fn answers(world: &World) -> String {
    let record = left(world, "run.json");
    let outputs = record["items"].as_array().into_iter().flatten();
    let outputs = outputs.filter(|item| item["type"] == "tool_call_output_item");
    outputs.map(|item| format!("{}\n", item["output"])).collect()
}

/// Every case of a group in one run: each is named, nothing is pushed, nothing is lost.
async fn refused(group: &str, mode: &str, more: &str) {
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.group == group).collect();
    let scripts: Vec<&str> = cases.iter().map(|case| case.script.as_str()).collect();
    let (world, code, output) = ran(&scripts, mode, more).await;
    assert_eq!(
        (code, output["stop_detail"].as_str()),
        (Some(1), Some("policy_denied")),
        "{group}: {output:#}\n{}",
        answers(&world)
    );
    let told = output["failures"].to_string() + &output.to_string();
    let missing: BTreeMap<&str, Vec<&String>> = cases
        .iter()
        .map(|case| (case.name.as_str(), case.says.iter().filter(|word| !says(&told, word)).collect()))
        .filter(|(_, missing): &(_, Vec<_>)| !missing.is_empty())
        .collect();
    assert!(missing.is_empty(), "{group} ({mode}): {missing:#?}\n{output:#}\n{}", answers(&world));
    assert_eq!(pushed(&world), None, "{group} ({mode})");
    assert!(world.sim.pulls("demo/shop").is_empty());
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    for secret in ["ghp_Zq4Rt8Lm2Vx9", "demo-token-of-the-simulator", "MIIEowIBAAKCAQEAzQ0r"] {
        assert!(!told.contains(secret) && !report.contains(secret), "{group}: {secret}");
    }
    let here = world.shop().join(".worktrees/issue-7");
    let kept = world.git(&here, &["status", "--porcelain"]).await
        + &world.git(&here, &["log", "--oneline", "-3"]).await;
    assert!(kept.lines().count() > 1, "nothing is lost: {kept}");
    world.finish().await;
}

/// As JSON writes it.
fn says(told: &str, word: &str) -> bool {
    let escaped = Value::from(word).to_string();
    told.contains(&escaped[1..escaped.len() - 1])
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_a_protected_path_that_a_command_wrote_is_never_published() {
    refused("protected", "auto", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_what_stands_in_place_of_a_protected_folder_is_never_published() {
    refused("links", "auto", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_a_protected_path_in_any_commit_of_the_branch_is_never_published() {
    for mode in ["bubblewrap", "off"] {
        refused("history", mode, "").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_names_that_git_or_git_lfs_reads_are_never_published_and_all_else_is_kept() {
    refused("names", "auto", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_a_submodule_from_this_machine_is_never_published() {
    refused("modules", "auto", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_a_secret_is_never_published() {
    refused("secrets", "auto", MORE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_a_secret_in_any_commit_of_the_branch_is_never_published() {
    for mode in ["bubblewrap", "off"] {
        refused("merged secret history", mode, MORE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_what_an_agent_commits_and_takes_away_again_is_in_no_history_and_its_files_are_published() {
    for mode in ["bubblewrap", "off"] {
        let cases: Vec<Case> = cases().into_iter().filter(|case| case.group == "secret history").collect();
        let scripts: Vec<&str> = cases.iter().map(|case| case.script.as_str()).collect();
        let (world, code, output) = ran(&scripts, mode, MORE).await;
        assert_eq!(code, Some(0), "{mode}: {output:#}\n{}", answers(&world));
        let warnings = output["warnings"].to_string();
        assert!(warnings.contains("commits_left") && warnings.contains("refs/agentd/refused/"), "{warnings}");
        let head = pushed(&world).expect("its files are published");
        let git_dir = world.sim.git_dir("demo/shop").unwrap();
        let commits =
            world.git(&git_dir, &["log", "-p", "--format=%an %B", &format!("develop..{head}")]).await;
        assert!(commits.contains("t2.txt") && commits.contains("t3.txt"), "{commits}");
        assert!(!commits.contains("Zq4Rt8Lm2Vx9") && !commits.contains("t1.txt"), "{commits}");
        let count = world.git(&git_dir, &["rev-list", "--count", &format!("develop..{head}")]).await;
        assert_eq!(count.trim(), "1");
        // Nothing is lost: what was committed is kept here.
        let kept =
            world.git(&world.shop(), &["for-each-ref", "--format=%(refname)", "refs/agentd/refused"]).await;
        let log = world.git(&world.shop(), &["log", "--all", "--format=%s", kept.trim()]).await;
        assert!(kept.trim().ends_with("/commits") && log.contains("two"), "{kept} {log}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_what_is_too_large_is_never_published_nor_opened() {
    refused("caps", "auto", MORE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i21_what_nobody_forbids_is_published() {
    let scripts = [
        "mkdir -p .github && echo x > .github/let.yml",
        "printf '* text=auto\\n*.snap linguist-generated\\n' > .gitattributes",
        "printf '[submodule \"v\"]\\n\\tpath = v\\n\\turl = ../shop.git\\n[submodule \"w\"]\\n\\tpath = w\\n\\turl = git@h:o/n.git\\n' > .gitmodules",
        "mkdir -p fixtures && echo 'password = \"q8Zr4Tk1''Vn7Ys3Lw9Hx\"' > fixtures/users.toml",
        "echo 'postgres://postgres:postgres@localhost/db' > compose.txt",
        "echo 'AK''IAIOSFODNN7EXAMPLE' > docs/keys.md",
        "mv docs/old.yml docs/new.yml && chmod +x lib/notes.txt && ln -s new.yml docs/link.yml",
        "head -c 1000000 /dev/zero | tr '\\0' 'a' > large.txt",
        "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m own || true",
    ];
    let (world, code, output) = ran(&scripts, "auto", MORE).await;
    assert_eq!(code, Some(0), "{output:#}\n{}", answers(&world));
    assert!(pushed(&world).is_some());
    let files = world.git(&world.shop().join(".worktrees/issue-7"), &["ls-files"]).await;
    for file in [".github/let.yml", ".gitmodules", "fixtures/users.toml", "docs/link.yml", "large.txt"] {
        assert!(files.contains(file), "{files}");
    }
    world.finish().await;
}
