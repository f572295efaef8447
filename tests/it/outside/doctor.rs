//! `agentd doctor` against a whole world: everything in order, then one thing after the other wrong.

use std::os::unix::fs::PermissionsExt as _;

use agentd::sim::{ReplyFile, Scenario};
use serde_json::{Value, json};

use super::world::{DEMO, GREEN, TOKEN, World, text};

/// The reply to doctor's smallest request.
pub fn answers() -> ReplyFile {
    serde_json::from_value(json!({
        "when": { "contains": "Answer with the word ok." }, "times": 0, "text": "ok",
        "usage": { "input": 12, "output": 1 },
    }))
    .unwrap()
}

/// A world in which everything is well, changed.
async fn world_of(change: impl FnOnce(&mut Scenario)) -> World {
    let world = World::of(1, |scenario| {
        scenario.model.replies.push(answers());
        change(scenario);
    })
    .await;
    world.verify(GREEN);
    world
}

/// What doctor finds of `what`: state and text.
fn of<'a>(told: &'a Value, what: &str) -> Vec<(&'a str, String)> {
    let findings = told["findings"].as_array().unwrap().iter();
    let of = findings.filter(|finding| finding["what"] == what);
    of.map(|finding| {
        (finding["state"].as_str().unwrap(), format!("{} → {}", finding["told"], finding["remedy"]))
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_asks_everyone_and_names_a_remedy_for_what_is_wrong() {
    let world = world_of(|_| ()).await;
    let (code, told) = world.json(&["doctor"]).await;
    assert_eq!(code, Some(0), "{told:#}");
    for what in [
        "git",
        "repository",
        "configuration",
        "credentials",
        "models",
        "agent",
        "github",
        "origin",
        "policy",
        "permissions",
        "push",
        "verify",
        "disk",
    ] {
        assert_eq!(of(&told, what)[0].0, "ok", "{what}: {told:#}");
    }
    assert!(of(&told, "disk")[0].1.contains("demo/shop: "), "{told:#}");
    assert_eq!(of(&told, "labels")[0].0, "warning", "{told:#}");
    assert!(of(&told, "labels")[0].1.contains("gh label create agentd --repo demo/shop"), "{told:#}");
    assert_eq!(world.sim.model_requests().len(), 1, "the smallest request, once");
    assert_eq!((&told["problems"], &told["ok"]), (&json!(0), &json!(true)), "{told:#}");
    assert!(of(&told, "verify")[0].1.contains("`true` passes on develop, in "), "{told:#}");
    assert!(world.sim.pulls("demo/shop").is_empty() && world.labels().is_empty(), "nothing is written");
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    assert!(agentd::sim::bare::head(&git_dir, "agentd-doctor/never-pushed").is_none(), "nothing is pushed");

    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let wrong = [
        ("${GITHUB_TOKEN}", "${MODEL_KEY}", "github", "401"),
        (world.sim.api_url().as_str(), "http://127.0.0.1:9", "github", "(asked: http://127.0.0.1:9"),
        ("recorded-model", "other-model", "models", "recorded-model"),
        (world.sim.model_url_anthropic().as_str(), "http://127.0.0.1:9", "models", "does not answer"),
    ]
    .map(|(from, to, what, told)| (overlay.replace(from, to), what, told));
    for (text, what, expected) in wrong {
        world.write("overlay.toml", &text);
        let (code, told) = world.json(&["doctor"]).await;
        let found = of(&told, what);
        assert!(
            found.iter().any(|(state, text)| *state != "ok" && text.contains(expected)),
            "{what}: {told:#}"
        );
        assert_eq!(code == Some(0), found.iter().all(|(state, _)| *state != "problem"), "{told:#}");
        // Of whoever cannot read the repository it is not known what else they may do.
        assert_eq!(of(&told, "permissions").is_empty(), what == "github", "{told:#}");
    }
    world.write("overlay.toml", &overlay);
    let config = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    world.write(
        "shop/.agent/agentd.toml",
        &config.replace("origin_branch = \"develop\"", "origin_branch = \"gone\""),
    );
    std::fs::remove_dir_all(world.shop().join(".agent/resolver")).unwrap();
    let (code, told) = world.json(&["doctor"]).await;
    assert_eq!(code, Some(1));
    assert!(of(&told, "origin")[0].1.contains("no branch gone"), "{told:#}");
    assert!(of(&told, "agent")[0].1.contains("agentd init"), "{told:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_mcp_tools_that_a_run_would_go_without() {
    let world = world_of(|_| ()).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/attacks/mcp_server.py");
    let server = |name: &str, mode: &str, more: &str| {
        let notes = world.dir.path().join("answers");
        format!(
            "[mcp.servers.{name}]\ncommand = \"python3\"\nargs = [{script:?}, \"{mode}\", {notes:?}]\n{more}\n"
        )
    };
    let servers = [
        server("half", "no-schema", ""),
        server("optional", "null-tools", "required = false"),
        server("whole", "notices", ""),
    ];
    world.write("overlay.toml", &format!("{overlay}\n{}", servers.concat()));
    let (code, told) = world.json(&["doctor"]).await;
    assert_eq!(code, Some(0), "{told:#}");
    let found = of(&told, "mcp");
    for (state, words) in [
        ("warning", "its tool bad is left out: it has no inputSchema"),
        ("warning", "MCP server optional did not list its tools"),
        ("ok", "half: 1 tool"),
        ("ok", "whole: 1 tool"),
    ] {
        assert!(found.iter().any(|(is, text)| *is == state && text.contains(words)), "{words}: {found:#?}");
    }
    assert!(!found.iter().any(|(is, text)| *is == "ok" && text.contains("optional")), "{found:#?}");
    // What a run could not even begin with is a problem.
    world.write("overlay.toml", &format!("{overlay}\n{}", server("broken", "null-tools", "")));
    let (code, told) = world.json(&["doctor"]).await;
    assert_eq!(code, Some(1), "{told:#}");
    let found = of(&told, "mcp");
    assert!(found[0].0 == "problem" && found[0].1.contains("did not list its tools"), "{found:#?}");
    world.finish().await;
}

/// A run does not start then, so that no word about commands without a sandbox is true.
#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_is_asked_for_and_not_there_is_a_problem() {
    let world = world_of(|_| ()).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[sandbox]\nmode = \"bubblewrap\"\n"));
    let bin = world.dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for program in ["git", "sh", "env", "true"] {
        let found =
            std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
        std::os::unix::fs::symlink(found.unwrap(), bin.join(program)).unwrap();
    }
    let mut command = world.command_in(&["--json", "doctor"]);
    command.env("PATH", &bin);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let told: Value = serde_json::from_slice(&done.stdout).unwrap();
    let (state, words) = of(&told, "sandbox")[0].clone();
    assert!(done.status.code() == Some(1) && state == "problem", "{told:#}");
    assert!(words.contains("no run starts") && !words.contains("your own rights"), "{words}");
    world.finish().await;
}

/// What each run needs of this machine is looked for, and nothing of it is started.
#[tokio::test(flavor = "multi_thread")]
async fn keys_and_programs_of_the_operator_that_are_not_there_are_named_by_doctor_and_config_check() {
    let world = world_of(|_| ()).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("program", "#!/bin/sh\nexit 1\n");
    world.write("seal.pem", "no key\n");
    let place = |name: &str| world.dir.path().join(name).display().to_string();
    for (table, key, what) in [
        (format!("[record]\nseal_key = \"{}\"", place("seal.pem")), "record.seal_key", "seal key"),
        (format!("[record]\nseal_key = \"{}\"", place("gone.pem")), "record.seal_key", "seal key"),
        ("[policy]\nprogram = [\"no-such-program-here\"]".to_owned(), "policy.program", "program"),
        (format!("[policy]\nprogram = [\"{}\", \"x\"]", place("program")), "policy.program", "program"),
        ("[redaction]\nprogram = [\"./no-such-program\"]".to_owned(), "redaction.program", "program"),
        (
            "[record]\nsinks = [[\"true\"], [\"no-such-program-here\"]]".to_owned(),
            "record.sinks[1]",
            "program",
        ),
    ] {
        world.write("overlay.toml", &format!("{overlay}\n{table}\n"));
        let (code, told) = world.json(&["doctor"]).await;
        assert_eq!((code, &told["problems"]), (Some(1), &json!(1)), "{table}: {told:#}");
        let found = of(&told, what);
        assert!(found[0].0 == "problem" && found[0].1.contains(key), "{table}: {found:#?}");
        let (code, told) = world.json(&["config", "check"]).await;
        let message = told["error"]["message"].as_str().unwrap_or_default();
        assert!(code == Some(4) && message.contains(key), "{table}: {told:#}");
    }
    let sh = "[policy]\nprogram = [\"sh\"]\n[redaction]\nprogram = [\"/bin/cat\"]";
    world.write("overlay.toml", &format!("{overlay}\n{sh}\n"));
    for command in [&["doctor"][..], &["config", "check"]] {
        let (code, told) = world.json(command).await;
        assert_eq!(code, Some(0), "{told:#}");
    }
    // One that is there and fails would have every text withheld.
    world.write("overlay.toml", &format!("{overlay}\n[redaction]\nprogram = [\"/bin/false\"]\n"));
    let (code, told) = world.json(&["doctor"]).await;
    assert_eq!((code, &told["problems"]), (Some(1), &json!(1)), "{told:#}");
    assert!(of(&told, "redaction")[0].1.contains("would be withheld"), "{told:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_tries_the_verify_commands_on_the_origin_branch_in_the_sandbox() {
    let world = world_of(|_| ()).await;
    for (commands, words) in [
        (DEMO, "`sh tests/run.sh` fails on develop, in "),
        (DEMO, "FAIL  ten percent of twenty euros: expected 1800, got 1990"),
        (DEMO, "a run is a success only once it passes"),
        ("[[\"sh\", \"-c\", \"exit 126\"]]", "could not run on develop"),
        ("[[\"no-such-program-here\"]]", "could not run on develop"),
        ("[[\"sh\", \"-c\", \"test -e $HOME/../shop\"]]", "fails on develop"),
    ] {
        world.verify(commands);
        let (code, told) = world.json(&["doctor"]).await;
        let found = of(&told, "verify");
        assert!(found[0].0 == "problem" && found[0].1.contains(words), "{words}: {found:#?}");
        assert_eq!((code, &told["problems"]), (Some(1), &json!(1)), "{told:#}");
    }
    world.verify("[[\"sh\", \"-c\", \"echo > left-behind\"]]");
    let (code, told) = world.json(&["doctor"]).await;
    let found = of(&told, "verify");
    assert!(code == Some(0) && found[1].0 == "warning" && found[1].1.contains(".gitignore"), "{told:#}");
    world.verify(DEMO);
    let mut command = world.command_in(&["doctor"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let shown = text(&done.stdout);
    let last = shown.trim_end().lines().last().unwrap().to_owned();
    assert!(last.starts_with("1 problem, ") && last.ends_with("warnings."), "{shown}");
    let left = world.dir.path().join("state/repos/demo/shop/doctor");
    assert_eq!(std::fs::read_dir(left).unwrap().count(), 0, "what was tried in is gone");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_finds_out_each_right_by_the_request_that_needs_it() {
    for (lacks, expected, what) in [
        ("issues", "issues: write", "permissions"),
        ("pull_requests", "pull", "permissions"),
        ("contents", "a push would fail", "push"),
    ] {
        let world = world_of(|scenario| {
            let token = scenario.tokens.iter_mut().find(|token| token.token == TOKEN).unwrap();
            let rights = ["contents", "issues", "pull_requests", "metadata"].into_iter();
            let levels = rights.map(|right| (right, if right == lacks { "read" } else { "write" }));
            token.permissions = Some(levels.map(|(a, b)| (a.to_owned(), b.to_owned())).collect());
        })
        .await;
        let (code, told) = world.json(&["doctor"]).await;
        assert_eq!((code, &told["problems"]), (Some(1), &json!(1)), "{lacks}: {told:#}");
        let found = of(&told, what);
        let is = |(state, text): &(&str, String)| *state == "problem" && text.contains(expected);
        assert!(found.iter().any(is), "{lacks}: {found:#?}");
        world.finish().await;
    }
}

/// As after a loss of power, and after a backup was put back without its modes.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_others_can_read_and_a_damaged_file_of_what_was_spent_today_are_named() {
    let world = World::of(2, |scenario| scenario.model.replies.push(answers())).await;
    world.verify(GREEN);
    assert_eq!(world.json(&["run", "--issue", "7"]).await.0, Some(0));
    let key = world.dir.path().join("state/seal.key");
    let mode = |mode| std::fs::set_permissions(&key, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o644);
    let (code, told) = world.json(&["doctor"]).await;
    let (state, words) = of(&told, "state")[0].clone();
    assert!(
        code == Some(0) && state == "warning" && words.contains("seal.key can be read by others (mode 0644)"),
        "{told:#}"
    );
    // Others could have put another in its place.
    mode(0o666);
    let (code, told) = world.json(&["doctor"]).await;
    let (state, words) = of(&told, "state")[0].clone();
    assert!(
        code == Some(1) && state == "problem" && words.contains("seal.key: can be read by others"),
        "{told:#}"
    );
    mode(0o644);
    let mut again = world.command_in(&["run", "--issue", "7"]);
    let done = tokio::task::spawn_blocking(move || again.output().unwrap()).await.unwrap();
    assert!(text(&done.stderr).contains("now it is yours alone (mode 0600)"), "{}", text(&done.stderr));
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, told) = world.json(&["runs", "verify", "latest"]).await;
    assert_eq!((code, &told["proof"]["signature"]), (Some(0), &json!("valid")), "{told:#}");
    let spend = world.dir.path().join("state/spend");
    for file in std::fs::read_dir(&spend).unwrap() {
        std::fs::write(file.unwrap().path(), "").unwrap();
    }
    let (code, told) = world.json(&["doctor"]).await;
    let (state, words) = of(&told, "state")[0].clone();
    assert!(code == Some(1) && state == "problem" && words.contains("spend"), "{told:#}");
    world.sim.shutdown().await;
}

/// A submodule beside the repository on the same server: the tree of the origin branch has it as a run has it.
#[tokio::test(flavor = "multi_thread")]
async fn a_submodule_with_a_relative_address_is_there_for_doctor_for_the_origin_and_for_a_replay() {
    let replies = vec![
        super::solo::calls(&[("write_file", json!({ "path": "z.txt", "content": "z\n" }))]),
        super::solo::reports("Done.", json!([])),
    ];
    let allow =
        "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";
    let world = super::solo::solo_of(replies, Some(allow), "", |scenario| {
        scenario.model.replies.push(answers());
        super::world::with_library(scenario);
    })
    .await;
    world.take_library_in().await;

    world.verify("[[\"sh\", \"-c\", \"cat vendor/lib.txt\"]]");
    world.configure(&["agent = \"solo\""]);
    let (_, told) = world.json(&["doctor"]).await;
    assert_eq!(of(&told, "verify")[0].0, "ok", "{told:#}");
    // A check that fails on the origin as well: that can be told.
    world.verify("[[\"sh\", \"-c\", \"cat vendor/lib.txt && false\"]]");
    let (_, output) = super::solo::run(&world).await;
    let text = output.to_string();
    assert!(text.contains("verify_failed") && !text.contains("is not known"), "{output:#}");
    let (code, replayed) = world.json(&["runs", "replay", "latest"]).await;
    assert_eq!((code, &replayed["equal"]), (Some(0), &json!(true)), "{replayed:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stands_where_branches_and_worktrees_of_issues_are_to_be_is_named_before_a_run_meets_it() {
    let world = World::new(0).await;
    fn problems(told: &Value) -> Vec<(&str, String)> {
        [of(told, "worktrees"), of(told, "branches")].concat()
    }
    let (_, told) = world.json(&["doctor"]).await;
    assert_eq!(problems(&told), [], "{told:#}");
    world.git(&world.shop(), &["branch", "feature", "develop"]).await;
    let header = format!("http.extraHeader=Authorization: Basic {}", super::world::basic());
    world.git(&world.shop(), &["-c", &header, "push", "--quiet", "origin", "develop:feature"]).await;
    world.write("shop/.worktrees", "x\n");
    let (code, told) = world.json(&["doctor"]).await;
    let found = problems(&told);
    assert_eq!((code, found.len()), (Some(1), 3), "{told:#}");
    assert!(found.iter().all(|(level, _)| *level == "problem"), "{found:?}");
    assert!(found[0].1.contains(".worktrees is no folder"), "{found:?}");
    assert!(
        found[1].1.contains("git branch -m feature") && found[2].1.contains("on the remote"),
        "{found:?}"
    );
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d28_a_remote_on_another_host_gets_the_token_only_where_it_is_named() {
    let (world, other) = (world_of(|_| ()).await, World::new(1).await);
    let url = other.sim.remote_url("demo", "shop").replace("127.0.0.1", "localhost");
    world.git(&world.shop(), &["remote", "set-url", "origin", &url]).await;
    let with_token = || {
        let asked = other.sim.requests().into_iter();
        let named = |name: &str| name.eq_ignore_ascii_case("authorization");
        asked
            .filter(|one| one.login.is_some() || one.headers.iter().any(|(name, _)| named(name)))
            .collect::<Vec<_>>()
    };
    // The entry that `init` writes names no remote.
    let (_, told) = world.json(&["run", "7", "--dry-run"]).await;
    let (code, found) = world.json(&["doctor"]).await;
    assert!(!other.sim.requests().is_empty(), "{told:#} {found:#}");
    assert!(with_token().is_empty(), "{:#?}", with_token());
    let (state, words) = &of(&found, "remote")[0];
    assert_eq!((*state, code), ("warning", Some(1)), "{found:#}");
    assert!(words.contains("github.token is not sent to it") && words.contains("remote = "), "{words}");
    world.configure(&["remote = \"origin\""]);
    let (_, found) = world.json(&["doctor"]).await;
    assert!(of(&found, "remote").is_empty(), "{found:#}");
    assert!(!with_token().is_empty(), "{found:#}");
    other.finish().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_a_sweep_asks_for_and_that_the_repository_has_not_is_named() {
    let world = world_of(|_| ()).await;
    world.configure(&["sweep_labels = [\"agentdd\"]"]);
    let (_, told) = world.json(&["doctor"]).await;
    let found = of(&told, "sweep");
    assert_eq!(found.len(), 1, "{told:#}");
    let (state, words) = &found[0];
    assert!(*state == "warning" && words.contains("has no label") && words.contains("agentdd"), "{words}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_that_git_has_or_would_take_are_named() {
    let world = world_of(|_| ()).await;
    let secrets = async || {
        let (_, told) = world.json(&["doctor"]).await;
        of(&told, "secrets").first().map(|(state, words)| ((*state).to_owned(), words.clone()))
    };
    let shop = world.shop();
    let closed = |name: &str| {
        world.write(&format!("shop/{name}"), "KEY=value\n");
        std::fs::set_permissions(shop.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    // Where `init` wrote the configuration, git does not see them.
    closed(".agent/.agentd.env");
    assert_eq!(secrets().await, None);
    // A configuration in the root has its secrets there.
    std::fs::rename(shop.join(".agent/agentd.toml"), shop.join("agentd.toml")).unwrap();
    closed(".agentd.env");
    let (state, words) = secrets().await.unwrap();
    assert!(state == "warning" && words.contains("is not ignored by git"), "{state}: {words}");
    world.git(&shop, &["add", ".agentd.env"]).await;
    let (state, words) = secrets().await.unwrap();
    assert!(state == "problem" && words.contains("git rm --cached"), "{state}: {words}");
    world.git(&shop, &["rm", "-q", "--cached", ".agentd.env"]).await;
    let init = world.agentd(&["init"]).await;
    assert!(init.status.success(), "{}", text(&init.stderr));
    let ignored = std::fs::read_to_string(shop.join(".gitignore")).unwrap();
    assert!(ignored.lines().any(|line| line == "/.agentd.env"), "{ignored}");
    assert_eq!(secrets().await, None);
    world.finish().await;
}

/// What needs no checkout is asked before agentd has cloned it.
#[tokio::test(flavor = "multi_thread")]
async fn of_a_repository_that_agentd_is_to_clone_doctor_asks_github_what_it_can() {
    let world = world_of(|scenario| {
        super::world::with_library(scenario);
        scenario.repositories[1].archived = true;
    })
    .await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let look = async |entry: &str, token: &str| {
        let entry = format!("[[repositories]]\n{entry}\n");
        world.write("elsewhere/agentd.toml", &format!("{overlay}\n{entry}"));
        let mut command = world.command(&["--json", "doctor"]);
        command.current_dir(world.dir.path().join("elsewhere")).env("GITHUB_TOKEN", token);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let told: Value = serde_json::from_slice(&done.stdout).unwrap();
        (done.status.code(), told)
    };
    let shop = "name = \"demo/shop\"\norigin_branch = \"develop\"";
    let (_, told) = look(shop, TOKEN).await;
    assert_eq!(of(&told, "github")[0].0, "ok", "{told:#}");
    assert_eq!(of(&told, "permissions")[0].0, "ok", "{told:#}");
    assert!(of(&told, "labels")[0].1.contains("gh label create agentd --repo demo/shop"), "{told:#}");
    assert!(of(&told, "origin").is_empty(), "{told:#}");
    for (entry, token, what, words) in [
        (&*shop.replace("shop", "shpo"), TOKEN, "github", "demo/shpo"),
        (&*shop.replace("shop", "lib"), TOKEN, "github", "is archived"),
        (shop, "a-token-of-yesterday", "github", "401"),
        ("name = \"demo/shop\"", TOKEN, "origin", "origin_branch"),
    ] {
        let (code, told) = look(entry, token).await;
        let found = of(&told, what);
        let is = |(state, text): &(&str, String)| *state == "problem" && text.contains(words);
        assert!(code == Some(1) && found.iter().any(is), "{entry} {words}: {told:#}");
    }
    assert!(!world.dir.path().join("state/repos/demo/shop/checkout").exists(), "nothing is cloned");
    world.finish().await;
}

/// What is there `agentd init` leaves as it is.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_sent_to_init_for_what_a_configuration_that_is_there_lacks() {
    let world = world_of(|_| ()).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let without: Vec<&str> = overlay.lines().filter(|line| !line.starts_with("price = ")).collect();
    world.write("overlay.toml", &format!("{}\n[budgets]\nmax_cost = 5.0\n", without.join("\n")));
    let (code, told) = world.json(&["doctor"]).await;
    let (state, told) = of(&told, "models")[0].clone();
    assert_eq!((code, state), (Some(1), "problem"), "{told}");
    assert!(
        told.contains("price") && told.contains("agentd.toml") && !told.contains("agentd init"),
        "{told}"
    );
    world.finish().await;
}
