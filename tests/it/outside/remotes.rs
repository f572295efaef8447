//! Checkouts without a remote, or with one of another name; and ones that git refuses to look at.

use serde_json::Value;

use super::doctor::answers;
use super::world::{GREEN, World, text};

async fn world() -> World {
    let world = World::of(0, |scenario| scenario.model.replies.push(answers())).await;
    world.verify(GREEN);
    world
}

/// Takes the repository's name out of its configuration, as `agentd init` writes it where there is no remote.
fn without_a_name(world: &World) {
    let file = "shop/.agent/agentd.toml";
    let configured = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
    let nameless: Vec<&str> = configured.lines().filter(|line| !line.starts_with("name = ")).collect();
    world.write(file, &nameless.join("\n"));
}

/// What doctor finds of `what`, each with its state.
fn of(told: &Value, what: &str) -> Vec<String> {
    let findings = told["findings"].as_array().unwrap().iter().filter(|finding| finding["what"] == what);
    findings
        .map(|one| {
            let text = |key: &str| one[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {} → {}", text("state"), text("told"), text("remedy"))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_made_from_a_folder_is_asked_about_of_nobody() {
    let world = world().await;
    world.git(&world.shop(), &["remote", "remove", "origin"]).await;
    without_a_name(&world);
    let before = world.sim.requests().len();
    let (_, told) = world.json(&["doctor"]).await;
    let asked = world.sim.requests().split_off(before);
    let targets: Vec<&str> = asked.iter().map(|request| request.target.as_str()).collect();
    assert!(targets.iter().all(|target| target.starts_with("/model/")), "{targets:?}");
    let github = of(&told, "github");
    assert_eq!(github.len(), 1, "{told:#}");
    assert!(
        github[0].starts_with("warning: ") && github[0].contains("only --issue-file works"),
        "{github:?}"
    );
    assert!(of(&told, "permissions").is_empty(), "{told:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_only_remote_has_another_name_that_one_is_named_and_none_is_to_be_added() {
    let world = world().await;
    world.git(&world.shop(), &["remote", "rename", "origin", "upstream"]).await;
    let mut run = world.command_in(&["run", "--issue", "7"]);
    let done = tokio::task::spawn_blocking(move || run.output().unwrap()).await.unwrap();
    let told = text(&done.stderr);
    assert!(told.contains("remote = \"upstream\"") && !told.contains("git remote add"), "{told}");
    let init = world.agentd(&["init"]).await;
    let told = text(&init.stdout) + &text(&init.stderr);
    assert!(told.contains("None of the remotes (upstream) is called origin"), "{told}");
    assert!(told.contains("remote = \"upstream\""), "{told}");
    let (_, told) = world.json(&["doctor"]).await;
    let found = of(&told, "repository");
    assert!(found[0].starts_with("warning: ") && found[0].contains("remote = \"upstream\""), "{found:?}");
    world.configure(&["remote = \"upstream\""]);
    let init = world.agentd(&["init"]).await;
    let told = text(&init.stdout) + &text(&init.stderr);
    assert!(!told.contains("None of the remotes"), "{told}");
    let (_, told) = world.json(&["doctor"]).await;
    assert!(of(&told, "repository")[0].starts_with("ok: "), "{told:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_git_cannot_read_is_not_said_to_have_no_remote() {
    let world = world().await;
    let refused = |told: &Value, words: &str| {
        let found = of(told, "repository");
        assert_eq!(found.len(), 1, "{told:#}");
        assert!(found[0].starts_with("problem: ") && found[0].contains(words), "{found:?}");
        assert!(!found[0].contains("remote"), "{found:?}");
    };
    let mut command = world.command_in(&["--json", "doctor"]);
    command.env("PATH", world.dir.path().join("nothing-there"));
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    refused(&serde_json::from_slice(&done.stdout).unwrap(), "install git");

    // Only root can give a folder away.
    if std::os::unix::fs::chown(world.shop().join(".git"), Some(65_534), None).is_ok() {
        std::os::unix::fs::chown(world.shop(), Some(65_534), None).unwrap();
        let (_, told) = world.json(&["doctor"]).await;
        refused(&told, "belongs to another user");
    }
    world.finish().await;
}
