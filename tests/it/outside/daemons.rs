//! The daemon from outside: it starts what it should, once, goes on with what was killed, and stops when it is told.

use std::process::{Child, Output, Stdio};
use std::time::Duration;

use agentd::sim::{FaultFile, IssueFile};
use serde_json::json;

use super::world::{World, text};

/// A running `agentd daemon`; dropped, it is killed.
pub struct Running(Option<Child>);

impl Running {
    /// Starts it with the world's configuration, polling each second.
    pub fn start(world: &World, more: &[&str]) -> Self {
        Self::with(world, more, "state")
    }

    /// The first of its state directory, once it listens: what people wrote before that is not heard.
    pub async fn listening(world: &World) -> Self {
        let daemon = Self::start(world, &[]);
        let state = world.dir.path().join("state/daemon/state.json");
        let listens = || std::fs::read_to_string(&state).unwrap_or_default().contains("listens_since");
        until("it listens", listens).await;
        daemon
    }

    /// As `start` does, with a state directory of its own.
    pub fn with(world: &World, more: &[&str], state: &str) -> Self {
        Self::of(Self::command(world, more, state))
    }

    /// With hangups ignored, as `nohup` begins it.
    fn without_hangups(world: &World) -> Self {
        let daemon = Self::command(world, &[], "state");
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", "trap '' HUP; exec \"$0\" \"$@\""])
            .arg(daemon.get_program())
            .args(daemon.get_args());
        shell.current_dir(daemon.get_current_dir().unwrap()).env_clear();
        shell.envs(daemon.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Self::of(shell)
    }

    fn of(mut command: std::process::Command) -> Self {
        Self(Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()))
    }

    fn command(world: &World, more: &[&str], state: &str) -> std::process::Command {
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        if !overlay.contains("poll_interval") {
            world.write("overlay.toml", &format!("{overlay}\n[daemon]\npoll_interval = \"1s\"\n"));
        }
        let overlay = world.dir.path().join("overlay.toml").display().to_string();
        let mut args = vec!["--config", overlay.as_str(), "--json", "daemon"];
        args.extend(more);
        let mut command = world.command(&args);
        command.env("AGENTD_STATE_DIR", world.dir.path().join(state));
        command
    }

    pub fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        let mut child = self.0.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Asks it to stop, and waits.
    pub async fn stop(mut self) -> Output {
        self.signal("-TERM");
        let child = self.0.take().unwrap();
        tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for something that a person would wait for, on a busy machine for some minutes.
pub async fn until(what: &str, so: impl Fn() -> bool) {
    until_or(what, so, String::new).await;
}

/// The same; what is the case instead is told where it never comes so.
pub async fn until_or(what: &str, so: impl Fn() -> bool, instead: impl Fn() -> String) {
    let waiting = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let came = tokio::time::timeout(Duration::from_secs(180), waiting).await.is_ok();
    assert!(came, "never: {what}; {}", instead());
}

/// Answers of the model after the first `skip` take this long.
pub fn slow_model(world: &World, skip: u32, delay_ms: u64) {
    let fault: FaultFile = serde_json::from_value(
        json!({ "path": "/model/**", "kind": "delay", "delay_ms": delay_ms, "skip": skip, "times": 1 }),
    )
    .unwrap();
    world.sim.inject(&fault).unwrap();
}

fn labelled(world: &World) {
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
}

/// Two signals end the process with GitHub silent: what was paid for is published by the next one.
#[tokio::test(flavor = "multi_thread")]
async fn d37_a_second_signal_while_a_run_publishes_leaves_its_work_for_the_next_start() {
    let world = World::new(1).await;
    let silent = json!({ "method": "POST", "path": "/repos/**/pulls", "kind": "hang", "times": 0 });
    world.sim.inject(&serde_json::from_value(silent).unwrap()).unwrap();
    labelled(&world);
    let daemon = Running::start(&world, &[]);
    let publishes =
        || world.sim.requests().iter().any(|one| one.method == "POST" && one.target.ends_with("/pulls"));
    until_or("it publishes", publishes, || format!("{:?}", world.labels())).await;
    daemon.signal("-INT");
    let told = text(&daemon.stop().await.stderr);
    assert!(!told.contains("panicked") && !told.contains("defect"), "{told}");
    let paid = world.sim.model_requests().len();
    world.sim.world().faults.clear();
    let daemon = Running::start(&world, &[]);
    let done = || world.labels() == ["agentd:done"] && world.sim.pulls("demo/shop").len() == 1;
    until_or("it is published", done, || format!("{:?}\n{told}", world.labels())).await;
    daemon.stop().await;
    assert_eq!(world.sim.model_requests().len(), paid, "nothing is paid again");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_label_put_on_while_the_daemon_runs_becomes_a_pull_request() {
    let world = World::new(1).await;
    let daemon = Running::start(&world, &[]);
    works(world, daemon, |_| {}).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_was_begun_with_hangups_ignored_works_on_after_one() {
    let world = World::new(1).await;
    let daemon = Running::without_hangups(&world);
    works(world, daemon, |daemon| daemon.signal("-HUP")).await;
}

/// Something happens to a daemon after its first poll, and it does its work.
async fn works(world: World, daemon: Running, happens: impl FnOnce(&Running)) {
    until("a first poll", || world.sim.requests().iter().any(|request| request.target.contains("/issues")))
        .await;
    happens(&daemon);
    labelled(&world);
    until("done", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    let out = daemon.stop().await;
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d31_an_issue_without_a_title_is_told_so() {
    let world = World::new(0).await;
    world.sim.edit_issue("demo/shop", 7, |issue| issue.title = "   ".to_owned());
    labelled(&world);
    let daemon = Running::start(&world, &[]);
    until("it is told", || world.labels() == ["agentd:attention"]).await;
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    assert!(comments.len() == 1 && comments[0].body.contains("no title"), "{comments:#?}");
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn i51_why_knows_whether_a_daemon_works_and_which_runs_are_its_own() {
    let world = World::new(1).await;
    slow_model(&world, 1, 4_000);
    labelled(&world);
    let why = async || {
        let (_, why) = world.json(&["why", "7"]).await;
        let rules = why["rules"].as_array().unwrap().clone();
        let codes = rules.iter().filter(|rule| rule["code"] != "ok").map(|rule| rule["code"].clone());
        (why["starts"].clone(), codes.collect::<Vec<_>>())
    };
    assert_eq!(why().await, (json!(false), vec![json!("no_daemon")]));
    let daemon = Running::start(&world, &[]);
    until("work", || world.sim.model_requests().len() > 1).await;
    let (starts, codes) = why().await;
    assert_eq!((starts, &codes[0]), (json!(false), &json!("running")), "{codes:?}");
    until("done", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issue_that_is_closed_while_it_waits_no_longer_says_that_it_waits() {
    for daemon_is_there in [true, false] {
        let world = World::new(0).await;
        let other = serde_json::from_value(json!({ "number": 9, "title": "First this" })).unwrap();
        world.sim.add_issue("demo/shop", &other).unwrap();
        world.sim.edit_issue("demo/shop", 7, |issue| issue.blocked_by = vec![9]);
        let first = Running::start(&world, &[]);
        labelled(&world);
        until("it says that it waits", || world.labels().contains(&"agentd:queued".to_owned())).await;
        let close = || world.sim.close_issue("demo/shop", 7, "ada");
        let daemon = if daemon_is_there {
            close();
            first
        } else {
            let seen = || std::fs::read_to_string(world.dir.path().join("state/daemon/state.json"));
            until("the daemon keeps it", || seen().is_ok_and(|text| text.contains("agentd:queued"))).await;
            first.kill();
            close();
            Running::start(&world, &[])
        };
        until("it no longer does", || world.labels() == ["agentd"]).await;
        daemon.stop().await;
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_daemons_on_one_checkout_run_an_issue_once() {
    let world = World::new(1).await;
    slow_model(&world, 1, 2500);
    let one = Running::with(&world, &[], "state");
    let two = Running::with(&world, &[], "other-state");
    labelled(&world);
    until("done", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    assert_eq!(world.sim.unused_replies(), Vec::<String>::new());
    // Both have seen the end and none begins again.
    let seen = world.sim.requests().len();
    until("two more polls of each", || world.sim.requests().len() >= seen + 4).await;
    assert_eq!(world.labels(), ["agentd:done"]);
    for daemon in [one, two] {
        assert_eq!(daemon.stop().await.status.code(), Some(0));
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d37_a_killed_daemons_run_is_gone_on_with_by_the_next() {
    let world = World::new(2).await;
    labelled(&world);
    let first = Running::start(&world, &[]);
    until("the second visit", || world.sim.model_requests().len() >= 3).await;
    first.kill();
    let second = Running::start(&world, &[]);
    until("done", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    let (_, runs) = world.json(&["runs", "list"]).await;
    let runs = runs.to_string();
    assert!(runs.contains("interrupted"), "{runs}");
    second.stop().await;
    // The first visit was not asked again.
    let planned = world
        .sim
        .model_requests()
        .iter()
        .filter(|asked| asked.body.to_string().contains("Understand and plan"))
        .count();
    assert!(planned <= 2 + 1, "{planned}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d37_a_run_of_a_sweep_is_gone_on_with_by_the_next_daemon_however_the_first_one_ended() {
    for kill in [true, false] {
        let world = World::new(3).await;
        world.configure(&["sweep = \"0 0 1 1 *\"", "sweep_select = \"all\"", "sweep_limit = 9"]);
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        world.write("overlay.toml", &format!("{overlay}\n[budgets]\nmax_cost_per_day = 100.0\n"));
        // The sweep of the year was missed: it is due at the first daemon's start, and not at the next one's.
        let seen = json!({ "demo/shop": { "swept_at": "2020-01-01T00:00:00Z" } });
        let state = json!({ "schema_version": "agentd.daemon_state.v1", "repositories": seen });
        std::fs::create_dir_all(world.dir.path().join("state/daemon")).unwrap();
        world.write("state/daemon/state.json", &state.to_string());
        slow_model(&world, 1, 3_000);
        let first = Running::start(&world, &[]);
        until("work", || world.sim.model_requests().len() > 1).await;
        assert_eq!(world.labels(), ["agentd:running"]);
        match kill {
            true => first.kill(),
            false => drop(first.stop().await),
        }
        let second = Running::start(&world, &[]);
        until("done", || world.labels() == ["agentd:done"]).await;
        world.assert_one_of_each();
        second.stop().await;
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_that_is_new_missed_nothing_whenever_the_one_before_swept() {
    let world = World::new(1).await;
    world.configure(&["sweep = \"0 0 1 1 *\"", "sweep_select = \"all\""]);
    let seen =
        json!({ "demo/shop": { "swept_at": "2020-01-01T00:00:00Z", "sweep_schedule": "0 3 * * 6 UTC" } });
    let state = json!({ "schema_version": "agentd.daemon_state.v1", "repositories": seen });
    std::fs::create_dir_all(world.dir.path().join("state/daemon")).unwrap();
    world.write("state/daemon/state.json", &state.to_string());
    let (code, report) = world.json(&["daemon", "--once"]).await;
    assert_eq!((code, &report["ended"]), (Some(0), &json!([])), "{report:#}");
    assert_eq!(world.labels(), Vec::<String>::new());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d37_a_run_of_a_sweep_by_hand_that_was_killed_is_gone_on_with_by_the_next_daemon() {
    let world = World::new(2).await;
    slow_model(&world, 1, 3_000);
    let mut sweep = world
        .command_in(&["sweep", "--all", "--yes"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("work", || world.sim.model_requests().len() > 1).await;
    sweep.kill().unwrap();
    sweep.wait().unwrap();
    assert_eq!(world.labels(), ["agentd:running"]);
    let daemon = Running::start(&world, &[]);
    until("done", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    assert_eq!(world.sim.issue("demo/shop", 7).unwrap().comments.len(), 1);
    world.assert_one_of_each();
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d61_a_run_that_died_is_found_whatever_is_remembered_of_runs_that_ended() {
    for remembers in ["as it was", "nothing", "half a line", "that the dead run is over"] {
        let world = World::new(2).await;
        labelled(&world);
        let memory = world.shop().join(".git/agentd/ended-runs");
        let remembered = || std::fs::read_to_string(&memory).unwrap_or_default();
        let first = Running::start(&world, &[]);
        until("the first run's end", || world.labels() == ["agentd:done"]).await;
        first.stop().await;
        // What was just written is not remembered yet.
        let begin = std::time::Instant::now();
        while !remembered().contains("issue-7.json") {
            assert!(begin.elapsed() < Duration::from_secs(60), "{}", remembered());
            drop(world.agentd(&["--config", "../overlay.toml", "daemon", "--once"]).await);
        }
        let runs = || {
            let folder = world.dir.path().join("state/repos/demo/shop/runs");
            let names = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
            let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        let (ended, asked) = (runs(), world.sim.model_requests().len());
        assert_eq!(ended.len(), 1);
        slow_model(&world, 1, 3_000);
        labelled(&world);
        let second = Running::start(&world, &[]);
        until("the second run's work", || world.sim.model_requests().len() > asked + 1).await;
        second.kill();
        let died = runs().pop().unwrap();
        assert_ne!(died, ended[0]);
        match remembers {
            "nothing" => std::fs::remove_file(&memory).unwrap(),
            "half a line" => std::fs::write(&memory, &remembered()[..40]).unwrap(),
            "that the dead run is over" => {
                std::fs::write(&memory, remembered().replace(&ended[0], &died)).unwrap();
            }
            _ => assert!(remembered().contains(&ended[0]) && !remembered().contains(&died)),
        }
        // Only the lease tells of it: without its label no poll finds it.
        assert!(world.sim.remove_label("demo/shop", 7, "agentd", "ada"));
        let third = Running::start(&world, &[]);
        let instead = || format!("{remembers}: {:?}", world.labels());
        until_or("its end is shown", || world.labels() == ["agentd:failed"], instead).await;
        third.stop().await;
        let result = world.dir.path().join("state/repos/demo/shop/runs").join(&died).join("result.json");
        let result = std::fs::read_to_string(result).unwrap();
        assert!(result.contains("interrupted"), "{remembers}: {result}");
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d61_a_kill_before_a_run_has_taken_over_the_visits_of_another_loses_none_of_them() {
    let world = World::new(2).await;
    slow_model(&world, 2, 3_000);
    labelled(&world);
    let first = Running::start(&world, &[]);
    until("the second visit", || world.sim.model_requests().len() > 2).await;
    first.kill();
    let slow = json!({ "path": "/git/**", "kind": "delay", "delay_ms": 1_500, "times": 0 });
    world.sim.inject(&serde_json::from_value(slow).unwrap()).unwrap();
    let second = Running::start(&world, &[]);
    let runs = world.dir.path().join("state/repos/demo/shop/runs");
    let in_the_worktrees_room = || {
        let folders: Vec<_> = std::fs::read_dir(&runs).unwrap().flatten().collect();
        let newest = folders.iter().map(std::fs::DirEntry::path).max().unwrap();
        let journal = std::fs::read_to_string(newest.join("events.jsonl")).unwrap_or_default();
        folders.len() == 2 && journal.contains("worktree_planned")
    };
    until("the second run's worktree room", in_the_worktrees_room).await;
    second.kill();
    let clear = format!("{}/_sim/faults", world.sim.base_url());
    assert!(reqwest::Client::new().delete(clear).send().await.unwrap().status().is_success());
    let third = Running::start(&world, &[]);
    until("done", || world.labels() == ["agentd:done"]).await;
    third.stop().await;
    let plans = world.sim.model_requests().iter().filter(|one| asks_for_the_plan(&one.body)).count();
    assert_eq!(plans, 2, "the first visit's two turns, once");
    world.assert_one_of_each();
    world.sim.shutdown().await;
}

/// Whether a request is of the first visit.
fn asks_for_the_plan(body: &serde_json::Value) -> bool {
    body["messages"][0].to_string().contains("Understand and plan")
}

#[tokio::test(flavor = "multi_thread")]
async fn d39_a_run_that_its_daemon_cut_off_and_nobody_wants_any_more_is_not_running_for_ever() {
    for kill in [true, false] {
        let world = World::new(1).await;
        slow_model(&world, 1, 3_000);
        labelled(&world);
        let first = Running::start(&world, &[]);
        until("work", || world.sim.model_requests().len() > 1).await;
        match kill {
            true => first.kill(),
            false => drop(first.stop().await),
        }
        let asked = world.sim.model_requests().len();
        assert!(world.sim.remove_label("demo/shop", 7, "agentd", "ada"));
        let second = Running::start(&world, &[]);
        until(&format!("failed (killed: {kill})"), || world.labels() == ["agentd:failed"]).await;
        let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
        assert!(comments.iter().any(|one| one.body.contains("its trigger label was off")), "{comments:?}");
        assert_eq!(world.sim.model_requests().len(), asked);
        second.stop().await;
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d61_a_run_killed_three_times_has_failed_and_the_label_begins_anew() {
    let world = World::new(5).await;
    killed_three_times(&world).await;
    let edited = world.shop().join(".worktrees/issue-7/lib/half.sh");
    std::fs::write(&edited, "# half an edit\n").unwrap();
    let daemon = Running::start(&world, &[]);
    until("failed", || world.labels() == ["agentd:failed"]).await;
    let comment = only_comment(&world);
    assert!(comment.contains("was killed") && comment.contains("and in 2 more"), "{comment}");
    // What was being edited is committed here, nothing of it is public, and both are said.
    let head = world.git(&world.shop(), &["rev-parse", "--short=10", "feature/issue-7"]).await;
    let where_it_is = format!("committed on the local branch feature/issue-7 ({})", head.trim());
    assert!(comment.contains(&where_it_is) && comment.contains("not pushed"), "{head}{comment}");
    let kept = world.git(&world.shop(), &["show", "feature/issue-7:lib/half.sh"]).await;
    assert_eq!(kept, "# half an edit\n");
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    assert!(
        agentd::sim::bare::head(&git_dir, "feature/issue-7").is_none()
            && world.sim.pulls("demo/shop").is_empty()
    );
    // The labels say it before the run's result is written.
    until("written", || super::solo::newest(&world).join("result.json").exists()).await;
    let (_, last) = world.json(&["runs", "show", "latest"]).await;
    assert!(last["error"]["message"].as_str().unwrap().contains(&where_it_is), "{last:#}");
    labelled(&world);
    until("done", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    // Three that were killed, and the one that put an end to it.
    let (_, runs) = world.json(&["runs", "list"]).await;
    assert_eq!(runs.to_string().matches("\"interrupted\"").count(), 4, "{runs:#}");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d61_finished_work_of_a_run_that_was_killed_three_times_is_published() {
    let world = World::new(3).await;
    killed_at_work(&world, 2).await;
    let post =
        json!({ "method": "POST", "path": "/repos/demo/shop/pulls", "kind": "delay", "delay_ms": 600_000 });
    world.sim.inject(&serde_json::from_value(post).unwrap()).unwrap();
    let daemon = Running::start(&world, &[]);
    let posts = || {
        world
            .sim
            .requests()
            .iter()
            .any(|seen| seen.target == "/repos/demo/shop/pulls" && seen.method == "POST")
    };
    until("it is published", posts).await;
    daemon.kill();
    let asked = world.sim.model_requests().len();
    let daemon = Running::start(&world, &[]);
    until("done", || world.labels() == ["agentd:done"]).await;
    daemon.stop().await;
    assert_eq!(world.sim.model_requests().len(), asked, "no model is asked any more");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d66_last_edits_of_killed_runs_that_may_not_leave_stay_uncommitted_and_that_is_said() {
    let world = World::new(3).await;
    killed_three_times(&world).await;
    let worktree = world.shop().join(".worktrees/issue-7");
    let before = world.git(&world.shop(), &["rev-parse", "feature/issue-7"]).await;
    std::fs::create_dir_all(worktree.join(".github/workflows")).unwrap();
    std::fs::write(worktree.join(".github/workflows/own.yml"), "on: push\n").unwrap();
    std::fs::write(worktree.join("lib/half.sh"), "# half an edit\n").unwrap();
    for name in [".gitattributes", "lib/.gitattributes", ".gitmodules"] {
        std::fs::write(worktree.join(name), "# nothing in it\n").unwrap();
    }
    let asked = world.sim.model_requests().len();
    let daemon = Running::start(&world, &[]);
    until("failed", || world.labels() == ["agentd:failed"]).await;
    daemon.stop().await;
    let comment = only_comment(&world);
    for said in [
        "last edits are not committed",
        ".github/workflows/own.yml: the policy denies it",
        ".gitattributes: the policy denies it",
        "lib/.gitattributes: the policy denies it",
        ".gitmodules: the policy denies it",
        ".worktrees/issue-7",
    ] {
        assert!(comment.contains(said), "{said}: {comment}");
    }
    assert_eq!(world.git(&world.shop(), &["rev-parse", "feature/issue-7"]).await, before);
    assert_eq!(std::fs::read_to_string(worktree.join("lib/half.sh")).unwrap(), "# half an edit\n");
    assert!(worktree.join(".github/workflows/own.yml").exists());
    assert_eq!(world.sim.model_requests().len(), asked, "no model is asked any more");
    world.sim.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_program_is_asked_whether_a_run_of_the_daemon_may_be_at_all() {
    let world = World::new(1).await;
    let program = "case \"$(cat)\" in *'\"kind\":\"run\"'*) echo '{\"decision\":\"deny\",\"reason\":\"not_today\",\"publicReason\":\"Not today.\"}';; *) echo '{\"decision\":\"allow\",\"reason\":\"a\"}';; esac";
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let policy = format!("[policy]\nprogram = [\"sh\", \"-c\", {}]\n", json!(program));
    world.write("overlay.toml", &format!("{overlay}\n{policy}"));
    labelled(&world);
    let daemon = Running::start(&world, &[]);
    until("it is told", || world.labels() == ["agentd:attention"]).await;
    daemon.stop().await;
    assert!(only_comment(&world).contains("Not today."), "{}", only_comment(&world));
    assert!(world.sim.model_requests().is_empty() && !world.shop().join(".worktrees").exists());
    world.finish().await;
}

/// The issue's run is begun by a daemon that is killed, and killed twice more while others go on with it.
async fn killed_three_times(world: &World) {
    killed_at_work(world, 3).await;
}

async fn killed_at_work(world: &World, rounds: usize) {
    labelled(world);
    for round in 0..rounds {
        let asked = world.sim.model_requests().len();
        slow_model(world, 1, 2_000);
        let daemon = Running::start(world, &[]);
        until(&format!("work in round {round}"), || world.sim.model_requests().len() > asked).await;
        daemon.kill();
    }
}

/// The one comment of the issue.
fn only_comment(world: &World) -> String {
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    assert_eq!(comments.len(), 1, "{comments:?}");
    comments[0].body.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn d39_a_label_taken_off_in_a_run_allows_one_last_report_and_no_pull_request() {
    for close in [false, true] {
        let world = World::new(1).await;
        slow_model(&world, 0, 3000);
        labelled(&world);
        let daemon = Running::start(&world, &[]);
        until("work", || world.labels().contains(&"agentd:running".to_owned())).await;
        until("a request", || {
            world.sim.requests().iter().any(|request| request.target.starts_with("/model"))
        })
        .await;
        if close {
            world.sim.close_issue("demo/shop", 7, "ada");
        } else {
            world.sim.remove_label("demo/shop", 7, "agentd", "ada");
        }
        until("attention", || world.labels() == ["agentd:attention"]).await;
        assert!(world.sim.pulls("demo/shop").is_empty());
        let out = daemon.stop().await;
        let told = text(&out.stdout);
        let detail = if close { "issue_closed" } else { "label_removed" };
        assert!(told.contains(detail), "{told}{}", text(&out.stderr));
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d69_a_daemon_that_is_told_to_stop_lets_the_run_report_and_the_next_takes_the_issue_up() {
    let world = World::new(2).await;
    slow_model(&world, 0, 1500);
    labelled(&world);
    let daemon = Running::start(&world, &[]);
    until("work", || world.sim.requests().iter().any(|request| request.target.starts_with("/model"))).await;
    let out = daemon.stop().await;
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    assert!(text(&out.stdout).contains("\"shutdown\""), "{}", text(&out.stdout));
    assert!(world.labels().contains(&"agentd".to_owned()), "{:?}", world.labels());
    let next = Running::start(&world, &[]);
    until("done", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    next.stop().await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sweep_takes_every_open_issue_that_matches_within_its_cap() {
    let world = World::of(2, |scenario| {
        let issues = &mut scenario.repositories[0].issues;
        let seven = issues[0].clone();
        for number in [8, 9, 10] {
            let labels = if number == 9 { vec![] } else { vec!["bug".to_owned()] };
            issues.push(IssueFile { number: Some(number), labels, ..seven.clone() });
        }
        issues[0].labels = vec!["bug".to_owned()];
    })
    .await;
    world.configure(&["sweep_labels = [\"bug\"]", "sweep_limit = 2"]);
    let (code, report) = world.json(&["sweep", "--all", "--yes"]).await;
    assert_eq!(code, Some(0), "{report:#}");
    assert_eq!(report["ended"].as_array().map(Vec::len), Some(2), "{report:#}");
    let labels = |number| world.sim.issue("demo/shop", number).unwrap().labels;
    for number in [7, 8] {
        assert_eq!(labels(number), ["bug", "agentd:done"]);
    }
    assert_eq!((labels(9), labels(10)), (vec![], vec!["bug".to_owned()]));
    assert_eq!(world.sim.pulls("demo/shop").len(), 2);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn worktree_pool_is_filled_while_nothing_happens_and_the_run_works_in_one_of_it() {
    use std::os::unix::fs::MetadataExt as _;
    let world = World::new(1).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &format!("{overlay}\n[worktree]\npool = 2\n"));
    let worktrees = world.shop().join(".worktrees");
    let ready = || {
        let entries = std::fs::read_dir(world.shop().join(".git/worktrees")).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().join("agentd-pool-ready").exists()).count()
    };
    let daemon = Running::start(&world, &[]);
    until("a pool", || ready() == 2).await;
    let members = std::fs::read_dir(worktrees.join(".pool")).unwrap().flatten();
    let members: Vec<u64> = members.map(|entry| entry.metadata().unwrap().ino()).collect();
    labelled(&world);
    until("done", || world.labels() == ["agentd:done"]).await;
    world.assert_one_of_each();
    assert!(members.contains(&worktrees.join("issue-7").metadata().unwrap().ino()), "made anew");
    until("a full pool again", || ready() == 2).await;
    let (_, pruned) = world.json(&["worktrees", "prune"]).await;
    assert!(!pruned.to_string().contains("pool"), "{pruned:#}");
    assert_eq!(ready(), 2);
    let out = daemon.stop().await;
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    world.finish().await;
}
