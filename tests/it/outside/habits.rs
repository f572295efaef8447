//! What people type without having read anything, and what they are answered.

use serde_json::json;

use super::solo::{calls, reports, solo};
use super::world::{World, text};

async fn world() -> World {
    let writes = |path: &str| calls(&[("write_file", json!({ "path": path, "content": "echo new\n" }))]);
    let replies = vec![
        writes("lib/one.sh"),
        reports("Written.", json!([])),
        writes("lib/two.sh"),
        reports("Written.", json!([])),
    ];
    solo(replies, None, "").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_is_named_as_people_name_it() {
    let world = world().await;
    let address = format!("{}/demo/shop/issues/7", world.sim.base_url());
    for name in [
        &["7"][..],
        &["#7"],
        &["demo/shop#7"],
        &[address.as_str()],
        &["--issue", "7"],
        &["--issue", "#7"],
        &["--issue", &address],
    ] {
        let args = [&["run", "--agent", "solo", "--dry-run"][..], name].concat();
        let (code, plan) = world.json(&args).await;
        assert_eq!((code, &plan["branch"]), (Some(0), &json!("feature/issue-7")), "{name:?}: {plan:#}");
        assert_eq!(plan["repository"], "demo/shop", "{name:?}: {plan:#}");
    }
    for (name, told) in [
        (&["https://github.com/demo/shop/issues/7"][..], "is not on the GitHub that is configured"),
        (&["https://github.com/demo/shop/pull/7"], "the address of a pull request"),
        (&["seven"], "is not an issue's number"),
        (&["demo/shop#7", "--repo", "demo/else"], "--repo says demo/else"),
        (&["7", "--issue", "7"], "cannot be used with"),
        (&[], "required"),
    ] {
        let args = [&["run", "--agent", "solo", "--dry-run"][..], name].concat();
        let (code, refused) = world.json(&args).await;
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(code == Some(4) && message.contains(told), "{name:?}: {code:?} {refused:#}");
    }
    let (code, why) = world.json(&["why", "demo/shop#7"]).await;
    assert_eq!((code, &why["issue"]), (Some(0), &json!(7)), "{why:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn why_begins_with_what_becomes_of_the_issue_and_what_to_do() {
    let world = world().await;
    let first = async |args: &[&str]| {
        let mut command = world.command_in(args);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        (done.status.code(), text(&done.stdout).lines().next().unwrap_or_default().to_owned())
    };
    let (code, line) = first(&["why", "7"]).await;
    assert_eq!(code, Some(0), "{line}");
    let label = "Do: gh issue edit 7 --repo demo/shop --add-label agentd";
    assert!(
        line.starts_with("Needs you: the label \"agentd\" is not on it. ") && line.ends_with(label),
        "{line}"
    );
    assert_eq!(first(&["why", "7", "--exit-status"]).await.0, Some(1));
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let (_, line) = first(&["why", "7"]).await;
    let overlay = world.dir.path().join("overlay.toml");
    let agentd = format!("agentd --config {}", overlay.display());
    assert!(
        line.starts_with("Needs you: no daemon of this state directory watches the repository")
            && line.ends_with(&format!("Do: {agentd} daemon, or {agentd} run 7")),
        "{line}"
    );
    let (_, line) = first(&["why", "99"]).await;
    assert!(line.starts_with("Needs you: there is no such issue"), "{line}");
    world.sim.close_issue("demo/shop", 7, "ada");
    let (_, line) = first(&["why", "7"]).await;
    assert_eq!(line, "Needs you: the issue is closed. Do: gh issue reopen 7 --repo demo/shop");
    let (_, told) = world.json(&["why", "7"]).await;
    assert_eq!(
        (&told["outlook"], &told["do"]),
        (&json!("needs_you"), &json!("gh issue reopen 7 --repo demo/shop"))
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_that_works_has_changed_so_far_is_shown() {
    let mut slow = reports("Written.", json!([]));
    slow.delay_ms = 60_000;
    let writes = calls(&[("write_file", json!({ "path": "lib/one.sh", "content": "echo new\n" }))]);
    let world = solo(vec![writes, slow], None, "").await;
    let mut run = world.command_in(&["run", "7", "--agent", "solo"]);
    let mut run =
        run.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    super::daemons::until("the second turn", || world.sim.model_requests().len() > 1).await;
    let (code, diff) = world.json(&["runs", "diff"]).await;
    assert_eq!((code, &diff["head"]), (Some(0), &json!(null)), "{diff:#}");
    assert_eq!(diff["files"], json!([{ "path": "lib/one.sh", "added": 1, "removed": 0 }]), "{diff:#}");
    assert!(diff["patch"].as_str().unwrap().contains("+echo new"), "{diff:#}");
    let shown = world.agentd(&["runs", "diff"]).await;
    assert!(
        text(&shown.stderr).contains("is committed yet; this stands in .worktrees/issue-7"),
        "{}",
        text(&shown.stderr)
    );
    run.kill().unwrap();
    run.wait().unwrap();
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_daemon_names_the_first() {
    let world = world().await;
    let first = super::daemons::Running::start(&world, &[]);
    super::daemons::until("a poll", || !world.sim.requests().is_empty()).await;
    let mut second = world.command_in(&["daemon", "--once"]);
    let told = tokio::task::spawn_blocking(move || second.output().unwrap()).await.unwrap();
    let said = text(&told.stderr);
    assert_ne!(told.status.code(), Some(0), "{said}");
    assert!(said.contains("pid ") && said.contains("daemon"), "{said}");
    assert!(!said.contains("watching"), "it watches nothing: {said}");
    first.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_whose_output_is_closed_leaves_nothing_behind() {
    let world = world().await;
    let temporary = world.dir.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    for closed in [true, false] {
        let mut command = world.command(&["demo"]);
        command.env("TMPDIR", &temporary).stderr(std::process::Stdio::null());
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = Some(reader).filter(|_| !closed);
        command.stdout(writer);
        let mut child = command.spawn().unwrap();
        drop(command);
        let told = tokio::task::spawn_blocking(move || {
            let mut told = String::new();
            if let Some(mut reader) = reader {
                std::io::Read::read_to_string(&mut reader, &mut told).unwrap();
            }
            (child.wait().unwrap(), told)
        });
        let (status, told) = told.await.unwrap();
        let left = std::fs::read_dir(&temporary).unwrap().flatten();
        let left: Vec<_> =
            left.filter(|one| one.file_name().to_string_lossy().starts_with("agentd-demo-")).collect();
        assert_eq!((status.success(), left.len()), (true, usize::from(!closed)), "{told}");
        // What stays is said.
        assert!(left.iter().all(|one| told.contains(&one.path().display().to_string())), "{told}");
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn help_is_there_where_it_is_looked_for() {
    let world = world().await;
    for (args, told) in [
        (&[][..], "Usage: agentd [OPTIONS] <COMMAND>"),
        (&["help"], "Usage: agentd [OPTIONS] <COMMAND>"),
        (&["help", "run"], "--dry-run"),
        (&["help", "runs", "list"], "--since"),
    ] {
        let done =
            tokio::process::Command::new(env!("CARGO_BIN_EXE_agentd")).args(args).output().await.unwrap();
        let shown = text(&done.stdout);
        assert!(
            done.status.code() == Some(0) && shown.contains(told),
            "{args:?}: {shown}{}",
            text(&done.stderr)
        );
    }
    let done = world.agentd(&["runs"]).await;
    assert_eq!(done.status.code(), Some(4));
    assert!(text(&done.stderr).contains("a command is missing"), "{}", text(&done.stderr));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_listed_by_what_is_asked_for_and_a_page_at_a_time() {
    let world = world().await;
    let mut command = world.command_in(&["run", "#7", "--agent", "solo", "--diff"]);
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let shown = text(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{shown}{}", text(&done.stderr));
    assert!(shown.contains("+++ b/lib/one.sh") && shown.contains("+echo new"), "the change: {shown}");
    // One document is one document.
    let (code, refused) = world.json(&["run", "7", "--agent", "solo", "--diff"]).await;
    assert_eq!((code, &refused["success"]), (Some(4), &json!(false)), "{refused:#}");
    let (code, output) = world.json(&["run", "7", "--agent", "solo"]).await;
    assert_eq!(code, Some(0), "{output:#}");

    let ids = async |args: &[&str]| {
        let (code, listed) = world.json(&[&["runs", "list"], args].concat()).await;
        assert_eq!(code, Some(0), "{args:?}: {listed:#}");
        let runs = listed.as_array().unwrap().iter();
        runs.map(|run| run["run_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all = ids(&[]).await;
    assert_eq!(all.len(), 2);
    assert_eq!(ids(&["--limit", "1"]).await, all[..1]);
    assert_eq!(ids(&["--limit", "1", "--cursor", &all[0]]).await, all[1..]);
    assert_eq!(ids(&["--cursor", &all[1]]).await.len(), 0);
    for (args, expected) in [
        (&["--limit", "0"][..], 2),
        (&["--state", "achieved"], 2),
        (&["--state", "objective_achieved"], 2),
        (&["--state", "completed"], 2),
        (&["--state", "failed"], 0),
        (&["--state", "waiting"], 0),
        (&["--state", "running"], 0),
        (&["--issue", "#7"], 2),
        (&["--issue", "demo/shop#7"], 2),
        (&["--issue", "demo/else#7"], 0),
        (&["--issue", "8"], 0),
        (&["--since", "1h"], 2),
        (&["--since", "2001-01-01"], 2),
        (&["--since", "2999-01-01T00:00:00Z"], 0),
    ] {
        assert_eq!(ids(args).await.len(), expected, "{args:?}");
    }
    let page = world.agentd(&["runs", "list", "--limit", "1"]).await;
    assert!(text(&page.stderr).contains(&format!("--cursor {}", all[0])), "{}", text(&page.stderr));
    let last = world.agentd(&["runs", "list", "--limit", "2"]).await;
    assert!(!text(&last.stderr).contains("--cursor"), "{}", text(&last.stderr));
    for args in [["--state", "odd"], ["--since", "soon"], ["--cursor", "nobody"]] {
        let (code, refused) = world.json(&[&["runs", "list"], &args[..]].concat()).await;
        assert_eq!(code, Some(4), "{args:?}: {refused:#}");
    }
    world.finish().await;
}

const PROXIES: [&str; 3] = ["http_proxy", "HTTPS_PROXY", "all_proxy"];

#[tokio::test(flavor = "multi_thread")]
async fn what_is_on_this_machine_is_reached_without_the_proxy() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let world = world().await;
    for args in [&["demo"][..], &["run", "--agent", "solo", "--issue", "7"]] {
        let mut command = world.command_in(args);
        command.envs(PROXIES.map(|name| (name, format!("http://{nobody}")))).env_remove("no_proxy");
        let ran = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert_eq!(ran.status.code(), Some(0), "{args:?}: {}", text(&ran.stderr));
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_machine_is_reached_through_the_proxy() {
    let world = world().await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let elsewhere = overlay.replace(&world.sim.api_url(), "https://github.invalid");
    assert_ne!(overlay, elsewhere);
    world.write("overlay.toml", &elsewhere);
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = proxy.local_addr().unwrap();
    let mut command = world.command_in(&["run", "--issue", "7"]);
    command.envs(PROXIES.map(|name| (name, format!("http://{address}"))));
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    let mut running = command.spawn().unwrap();
    let mut first = [0; 64];
    let asked = tokio::time::timeout(std::time::Duration::from_secs(60), async {
        let (mut stream, _) = proxy.accept().await.unwrap();
        tokio::io::AsyncReadExt::read(&mut stream, &mut first).await.unwrap()
    });
    let read = asked.await;
    running.kill().unwrap();
    running.wait().unwrap();
    let asked = text(&first[..read.expect("nothing came to the proxy")]);
    assert!(asked.starts_with("CONNECT github.invalid:443 "), "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_remotes_that_are_not_called_origin_it_is_said_how_one_is_named() {
    let world = world().await;
    world.git(&world.shop(), &["remote", "rename", "origin", "fork"]).await;
    world.git(&world.shop(), &["remote", "add", "upstream", "https://github.com/others/shop.git"]).await;
    // As init writes it where no remote is called origin.
    let file = world.shop().join(".agent/agentd.toml");
    let configured = std::fs::read_to_string(&file).unwrap();
    let nameless: Vec<&str> = configured.lines().filter(|line| !line.starts_with("name = ")).collect();
    std::fs::write(&file, nameless.join("\n")).unwrap();
    let told = |output: std::process::Output| text(&output.stdout) + &text(&output.stderr);
    let init = told(world.agentd(&["init"]).await);
    assert!(
        init.contains("None of the remotes (fork, upstream)") && init.contains("remote = \"fork\""),
        "{init}"
    );
    let doctor = told(world.agentd(&["doctor"]).await);
    assert!(doctor.contains("has the remotes fork, upstream, and none of them is called origin"), "{doctor}");
    let refused = told(world.agentd(&["run", "7"]).await);
    assert!(refused.contains("there is no remote \"origin\", but fork, upstream"), "{refused}");
    world.configure(&["remote = \"fork\""]);
    let (_, found) = world.json(&["doctor"]).await;
    let findings = found["findings"].as_array().unwrap();
    let ok = findings.iter().any(|one| one["what"] == "repository" && one["state"] == "ok");
    assert!(ok, "{found:#}");
    world.finish().await;
}
