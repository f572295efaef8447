//! Repositories looked after from a place of their own: each one's file counts for it, and the entry there says the rest.

use std::process::Output;

use super::world::{World, text};

/// The operator's directory beside the checkout: who talks to whom stands there, what the checkout needs in the checkout.
async fn desk(rounds: usize) -> World {
    let world = World::new(rounds).await;
    world.write(
        "desk/agentd.toml",
        &format!(
            "[[repositories]]\nname = \"demo/shop\"\npath = \"../shop\"\n\
             [github]\nmax_requests_per_minute = 100000\napi_url = \"{}\"\ntoken = \"${{GITHUB_TOKEN}}\"\n\
             [[session.targets]]\nprovider = \"anthropic\"\nmodel = \"from-the-desk\"\n",
            world.sim.api_url()
        ),
    );
    let own = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    let (before, _) = own.split_once("[providers.anthropic]").unwrap();
    world.write(
        "shop/.agent/agentd.toml",
        &format!(
            "{before}[providers.anthropic]\nkind = \"anthropic\"\nbase_url = \"{}\"\napi_key = \"${{MODEL_KEY}}\"\n\
             [[session.targets]]\nprovider = \"anthropic\"\nmodel = \"recorded-model\"\n\
             price = {{ input = 3.0, output = 15.0 }}\n\
             [policy]\nfiles = [\".agent/policy.toml\"]\n[verify]\ncommands = [[\"sh\", \"tests/run.sh\"]]\n",
            world.sim.model_url_anthropic()
        ),
    );
    world
}

async fn at_the_desk(world: &World, args: &[&str]) -> Output {
    let mut command = world.command(args);
    command.current_dir(world.dir.path().join("desk"));
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn newest(world: &World) -> serde_json::Value {
    let runs = world.dir.path().join("state/repos/demo/shop/runs");
    let run = std::fs::read_dir(runs).unwrap().map(|run| run.unwrap().path()).max().unwrap();
    serde_json::from_slice(&std::fs::read(run.join("result.json")).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn d85_a_daemon_elsewhere_runs_with_the_policy_and_the_verify_commands_of_the_checkout() {
    let world = desk(1).await;
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let done = at_the_desk(&world, &["daemon", "--once"]).await;
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert_eq!(world.labels(), ["agentd:done"]);
    world.assert_one_of_each();
    let verified = newest(&world).to_string();
    assert!(verified.contains("tests/run.sh"), "{verified}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_finds_the_checkout_of_the_repository_that_is_named_or_the_only_one() {
    let world = desk(1).await;
    let planned = at_the_desk(&world, &["--json", "run", "--issue", "7", "--dry-run"]).await;
    assert_eq!(planned.status.code(), Some(0), "{}", text(&planned.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(plan["origin"]["branch"], "develop", "{plan:#}");
    let done = at_the_desk(&world, &["--repo", "demo/shop", "run", "--issue", "7"]).await;
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    world.assert_one_of_each();
    for command in [&["run", "--issue", "7"][..], &["daemon", "--once"], &["sweep", "--dry-run"]] {
        let other = at_the_desk(&world, &[&["--repo", "demo/other"], command].concat()).await;
        let told = text(&other.stderr);
        assert_eq!(other.status.code(), Some(4), "{command:?}: {told}");
        assert!(told.contains("no entry under [[repositories]] is demo/other"), "{command:?}: {told}");
    }
    let daemon = at_the_desk(&world, &["daemon", "--once"]).await;
    assert_eq!(daemon.status.code(), Some(0), "{}", text(&daemon.stderr));
    for (repo, watched) in [("demo/shop", 1), ("demo/other", 0)] {
        let told = at_the_desk(&world, &["--json", "--repo", repo, "status"]).await;
        let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        assert_eq!(told["status"]["repositories"].as_array().map(Vec::len), Some(watched), "{told:#}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_several_repositories_and_no_checkout_around_run_asks_which() {
    let world = desk(0).await;
    let file = std::fs::read_to_string(world.dir.path().join("desk/agentd.toml")).unwrap();
    world.write(
        "desk/agentd.toml",
        &format!("{file}[[repositories]]\nname = \"demo/other\"\npath = \"../other\"\n"),
    );
    let asked = at_the_desk(&world, &["run", "--issue", "7"]).await;
    assert_eq!(asked.status.code(), Some(4));
    let told = text(&asked.stderr);
    assert!(told.contains("--repo demo/shop") && told.contains("--repo demo/other"), "{told}");
    world.finish().await;
}

fn two_at_the_desk(world: &World) {
    let file = std::fs::read_to_string(world.dir.path().join("desk/agentd.toml")).unwrap();
    let mut copy = std::process::Command::new("cp");
    copy.arg("-r").arg(world.shop()).arg(world.dir.path().join("other"));
    assert!(copy.status().unwrap().success());
    world.write(
        "desk/agentd.toml",
        &format!("{file}[[repositories]]\nname = \"demo/other\"\npath = \"../other\"\n"),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn d85_what_looks_at_a_checkout_finds_the_one_that_is_named_or_the_only_one() {
    let world = desk(1).await;
    for args in [&["agents", "list"][..], &["--repo", "demo/shop", "agents", "list"]] {
        let listed = at_the_desk(&world, args).await;
        assert!(
            text(&listed.stdout).contains("resolver"),
            "{} {}",
            text(&listed.stdout),
            text(&listed.stderr)
        );
    }
    let checked = at_the_desk(&world, &["agents", "check"]).await;
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let prompt = at_the_desk(&world, &["prompt", "steps/initial/plan", "--uv", "issue=7"]).await;
    assert!(!text(&prompt.stderr).contains("no agent"), "{}", text(&prompt.stderr));
    // A configuration of the desk alone has neither rules nor verify commands; the checkout has both.
    let doctor = at_the_desk(&world, &["--json", "doctor"]).await;
    let told: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let of = |what: &str| -> Vec<String> {
        let found = told["findings"].as_array().unwrap().iter().filter(|one| one["what"] == what);
        found.map(|one| format!("{} {}", one["state"], one["told"])).collect()
    };
    let shop = world.shop().display().to_string();
    assert!(of("repository")[0].starts_with("\"ok\"") && of("repository")[0].contains(&shop), "{told:#}");
    assert!(of("policy")[0].starts_with("\"ok\"") && of("agent")[0].starts_with("\"ok\""), "{told:#}");
    assert!(of("verify").iter().all(|told| !told.contains("no verify commands")), "{told:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d85_of_several_checkouts_agents_asks_which_and_doctor_and_config_check_look_at_each() {
    let world = desk(1).await;
    two_at_the_desk(&world);
    let policy = world.dir.path().join("other/.agent/policy.toml");
    let wrong =
        std::fs::read_to_string(&policy).unwrap().replacen("effect = \"allow\"", "effect = \"maybe\"", 1);
    std::fs::write(&policy, wrong).unwrap();
    for args in [&["agents", "list"][..], &["prompt", "steps/initial/plan"]] {
        let asked = at_the_desk(&world, args).await;
        let told = text(&asked.stderr);
        assert_eq!(asked.status.code(), Some(4), "{told}");
        assert!(told.contains("--repo demo/shop") && told.contains("--repo demo/other"), "{told}");
    }
    let listed = at_the_desk(&world, &["--repo", "demo/other", "agents", "list"]).await;
    assert!(text(&listed.stdout).contains("resolver"), "{}", text(&listed.stderr));
    let checked = at_the_desk(&world, &["config", "check"]).await;
    let told = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(4), "{told}");
    assert!(told.contains("demo/other: The policy cannot be used"), "{told}");
    let checked = at_the_desk(&world, &["--repo", "demo/shop", "config", "check"]).await;
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let doctor = at_the_desk(&world, &["--json", "doctor"]).await;
    let told: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let of = |what: &str| -> Vec<(String, String)> {
        let found = told["findings"].as_array().unwrap().iter().filter(|one| one["what"] == what);
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("all").to_owned();
        found.map(|one| (text(&one["repository"]), text(&one["state"]))).collect()
    };
    let both = |shop: &str, other: &str| {
        vec![("demo/shop".to_owned(), shop.to_owned()), ("demo/other".to_owned(), other.to_owned())]
    };
    assert_eq!(of("policy"), both("ok", "problem"), "{told:#}");
    assert_eq!(of("repository")[..1], both("ok", "ok")[..1], "{told:#}");
    for once in ["git", "sandbox", "state", "credentials"] {
        assert_eq!(of(once).len(), 1, "{once}: {told:#}");
    }
    world.sim.shutdown().await;
}

/// What an entry says of its checkout, and what is told of it by each command that would work there.
async fn wrong_entry(world: &World, entry: &str, commands: &[&[&str]], told: &str) {
    let file = std::fs::read_to_string(world.dir.path().join("desk/agentd.toml")).unwrap();
    let (_, rest) = file.split_once("[github]").unwrap();
    world.write("desk/agentd.toml", &format!("{entry}[github]{rest}"));
    for command in commands {
        let done = at_the_desk(world, command).await;
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(4), "{entry} {command:?}: {said}{}", text(&done.stdout));
        assert!(said.contains(told), "{entry} {command:?}: `{told}` is not in {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entry_whose_checkout_is_not_there_or_is_another_ones_is_told_by_every_command() {
    let world = desk(0).await;
    let check: &[&str] = &["config", "check"];
    let all: [&[&str]; 3] = [check, &["run", "--issue", "7", "--dry-run"], &["daemon", "--once"]];
    // What is around the place is a checkout of its own, and not the one that is meant.
    let absent =
        "[[repositories]]\nname = \"demo/shop\"\npath = \"../shop/nothing\"\norigin_branch = \"develop\"\n";
    wrong_entry(&world, absent, &all, "shop/nothing (`path` of a [[repositories]] entry) is no folder").await;
    let other = "[[repositories]]\nname = \"demo/other\"\npath = \"../shop\"\norigin_branch = \"develop\"\n";
    wrong_entry(&world, other, &[check], "is demo/shop, not demo/other").await;
    let remote = "[[repositories]]\nname = \"demo/shop\"\npath = \"../shop\"\nremote = \"upstream\"\norigin_branch = \"develop\"\n";
    wrong_entry(&world, remote, &[check], "has no remote \"upstream\", but origin").await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_an_app_that_is_none_is_told_before_anything_is_asked_of_github() {
    let world = desk(0).await;
    let file = std::fs::read_to_string(world.dir.path().join("desk/agentd.toml")).unwrap();
    let app = "[github.app]\nid = 1\ninstallation_id = 2\nprivate_key = \"${APP_KEY}\"\n";
    let file = file.replace("token = \"${GITHUB_TOKEN}\"\n", app);
    world.write("desk/agentd.toml", &file);
    world.write("desk/.agentd.env", "APP_KEY=not-a-key\n");
    for command in [&["config", "check"][..], &["daemon", "--once"]] {
        let done = at_the_desk(&world, command).await;
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(4), "{command:?}: {said}");
        assert!(said.contains("github.app.private_key is not an RSA private key"), "{command:?}: {said}");
    }
    world.finish().await;
}
