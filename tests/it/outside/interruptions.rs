//! A run that is stopped, killed, doubled, or has no room to write: one branch, one pull request, one comment.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;

use agentd::domain::event::Event;
use agentd::domain::name::RepoName;
use agentd::domain::redaction::Redactor;
use agentd::domain::run::{RunId, Warning};
use agentd::engine::journal::Journal as _;
use agentd::store::journal_file::{self, FileJournal};
use agentd::store::run_dir::StateDir;
use agentd::sys::clock::Clock;
use serde_json::{Value, json};
use uuid::Uuid;

use super::daemons::Running;
use super::solo::{calls, reports, solo};
use super::started::{delayed, ended, start, until};
use super::world::{World, basic, text};

/// Twice, the second time when the first was heard: two of the same signal at once are one.
fn interrupt_twice(child: &mut Child) {
    interrupt(child);
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("once more"))).unwrap().unwrap();
    interrupt(child);
    // Nobody may wait for a reader.
    std::thread::spawn(move || lines.count());
}

fn interrupt(child: &Child) {
    let sent = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Nothing is lost of what is done before an agent works: whoever stops a run does not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn d69_a_run_that_is_stopped_before_its_agent_works_ends_soon_and_is_gone_on_with() {
    for waits in [
        "[worktree]\nsetup = [[\"sh\", \"-c\", \"touch $BEGUN; [ -e $GO ] || exec sleep 600\"]]\n",
        "[mcp.servers.mute]\ncommand = \"sh\"\nargs = [\"-c\", \"touch $BEGUN; [ -e $GO ] || exec sleep 600\"]\nrequired = false\n",
    ] {
        let world = World::new(1).await;
        let at = |name: &str| world.dir.path().join(name).display().to_string();
        let overlay = std::fs::read_to_string(at("overlay.toml")).unwrap();
        let waits = waits.replace("$BEGUN", &at("begun")).replace("$GO", &at("go"));
        world.write("overlay.toml", &format!("{overlay}\n{waits}"));
        let mut run = start(&world);
        until(&mut run, || world.dir.path().join("begun").exists()).await;
        let asked = std::time::Instant::now();
        interrupt(&run);
        let (code, output) = ended(run).await;
        assert!(asked.elapsed().as_secs() < 60, "{waits}: {:?}", asked.elapsed());
        assert_eq!(
            (code, output["stop_reason"].as_str(), output["stop_detail"].as_str()),
            (Some(1), Some("HUMAN_REQUESTED"), Some("shutdown")),
            "{waits}: {output:#}"
        );
        assert_eq!(world.sim.model_requests().len(), 0, "nothing was paid for");
        world.write("go", "");
        let (code, output) = world.json(&["runs", "resume", "latest"]).await;
        assert_eq!(code, Some(0), "{waits}: {output:#}");
        world.assert_one_of_each();
        world.finish().await;
    }
}

/// Lines of the newest run's journal.
fn entries(world: &World) -> usize {
    let runs = world.dir.path().join("state/repos/demo/shop/runs");
    let newest = std::fs::read_dir(runs).ok().and_then(|runs| runs.flatten().map(|run| run.path()).max());
    let journal = newest.and_then(|run: PathBuf| std::fs::read(run.join("events.jsonl")).ok());
    journal.map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

#[tokio::test(flavor = "multi_thread")]
async fn e24_a_second_start_is_refused_and_names_the_holder() {
    let world = World::new(1).await;
    world.sim.inject(&delayed(2, 4000)).unwrap();
    let mut first = start(&world);
    until(&mut first, || world.sim.model_requests().len() >= 2).await;
    for args in [&["run", "--issue", "7"][..], &["run", "--issue", "7", "--dry-run"]] {
        let (code, output) = world.json(args).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("branch_busy")), "{output:#}");
        let summary = output["summary"].as_str().unwrap();
        for told in ["agent-issue-7-", &first.id().to_string(), "since"] {
            assert!(summary.contains(told), "`{told}` is not in: {summary}");
        }
    }
    let (code, output) = ended(first).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    world.finish().await;
}

/// Another clone of the repository with the same agent, and a state of its own: `agentd run --issue 7 --json` there.
async fn run_in_another_clone(world: &World) -> (Option<i32>, Value) {
    let clone = world.dir.path().join("clone");
    if !clone.exists() {
        let header = format!("http.extraHeader=Authorization: Basic {}", basic());
        let url = world.sim.remote_url("demo", "shop");
        world.git(world.dir.path(), &["-c", &header, "clone", "-q", &url, "clone"]).await;
        let mut copy = std::process::Command::new("cp");
        copy.arg("-r").arg(world.shop().join(".agent")).arg(&clone);
        assert!(copy.status().unwrap().success());
    }
    let mut command = world.command_in(&["--json", "run", "--issue", "7"]);
    command.current_dir(&clone).env("AGENTD_STATE_DIR", world.dir.path().join("other-state"));
    let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    (done.status.code(), serde_json::from_slice(&done.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn d75_an_issue_that_another_clone_works_on_is_busy_until_that_run_ends() {
    let world = World::new(2).await;
    world.sim.inject(&delayed(2, 3000)).unwrap();
    let mut first = start(&world);
    until(&mut first, || world.sim.model_requests().len() >= 2).await;
    let comments = || world.sim.issue("demo/shop", 7).unwrap().comments;
    let shown = comments().remove(0).body;
    assert!(shown.contains("agentd is working on this issue"), "{shown}");
    let (code, output) = run_in_another_clone(&world).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(4), Some("branch_busy")), "{output:#}");
    assert_eq!(output["mapping"], json!(null));
    let summary = output["summary"].as_str().unwrap();
    assert!(summary.contains(&format!("pid {}", first.id())), "{summary}");
    assert_eq!(comments()[0].body, shown, "who is refused writes nothing");
    let (_, status) = world.json(&["status"]).await;
    assert_eq!(status["foreground"][0]["issue"], 7, "{status:#}");
    let (code, run) = world.json(&["runs", "show", "latest"]).await;
    assert_eq!((code, &run["running"]), (Some(0), &json!(true)), "{run:#}");
    let (code, output) = ended(first).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert!(!comments()[0].body.contains("agentd:lease"));
    let (_, status) = world.json(&["status"]).await;
    assert_eq!(status["foreground"], json!([]));
    let (code, output) = run_in_another_clone(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d75_another_hosts_lease_counts_until_it_expires() {
    for (until, code) in [("2999-01-01T00:00:00Z", 4), ("2020-01-01T00:00:00Z", 0)] {
        let world = World::new(1).await;
        let holder = json!({"instance": "agent-issue-7-20200101T000000Z", "host": "far-away", "boot_id": "b", "pid": 1,
            "started": 1, "since": "2020-01-01T00:00:00Z", "expires_at": until});
        let body = format!("<!-- agentd:issue-7 -->\n<!-- agentd:lease {holder} -->\n**Working.**\n");
        world.sim.add_comment("demo/shop", 7, "agentd-demo", &body).unwrap();
        let (_, why) = world.json(&["why", "7"]).await;
        assert_eq!(why["summary"].as_str().unwrap().contains("far-away (pid 1, since"), code == 4, "{why:#}");
        let (ended, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!(ended, Some(code), "{output:#}");
        assert_eq!(output["summary"].as_str().unwrap().contains("far-away"), code == 4, "{output:#}");
        assert_eq!(world.sim.issue("demo/shop", 7).unwrap().comments.len(), 1);
        if code == 0 {
            world.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x_016_d69_the_first_signal_asks_for_a_last_report_and_the_issue_can_be_run_again() {
    let world = World::new(2).await;
    world.sim.inject(&delayed(3, 1000)).unwrap();
    let mut run = start(&world);
    until(&mut run, || world.sim.model_requests().len() >= 4).await;
    interrupt(&run);
    let (code, output) = ended(run).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("shutdown")), "{output:#}");
    assert_eq!(output["stop_reason"], "HUMAN_REQUESTED");
    assert_eq!(world.labels(), ["agentd:attention"], "nobody goes on with it by themselves");
    let (_, runs) = world.json(&["runs", "list"]).await;
    assert!(runs.to_string().contains("shutdown"), "{runs:#}");
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_016_what_a_person_resumed_and_stopped_is_theirs_and_no_daemon_goes_on_with_it() {
    let world = World::new(4).await;
    world.sim.inject(&delayed(1, 1500)).unwrap();
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    let asked = || world.sim.model_requests().len();
    super::daemons::until("work", || asked() >= 2).await;
    let (code, stopped) = world.json(&["runs", "stop", "latest"]).await;
    assert_eq!(code, Some(0), "{stopped:#}");
    super::daemons::until("it has ended", || world.labels() == ["agentd:attention"]).await;
    let before = asked();
    let mut command = world.command_in(&["--json", "runs", "resume", "latest"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = command.spawn().unwrap();
    until(&mut run, || asked() > before).await;
    assert_eq!(world.labels(), ["agentd:running"]);
    let sent = std::process::Command::new("kill").args(["-TERM", &run.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let (code, output) = ended(run).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("shutdown")), "{output:#}");
    assert_eq!(world.labels(), ["agentd:attention"], "it waits for whoever stopped it");
    daemon.stop().await;
    // Neither does the next daemon.
    let (asked_before, looked) = (asked(), world.sim.requests().len());
    let next = Running::start(&world, &[]);
    let lists = || {
        let later = world.sim.requests().into_iter().skip(looked);
        later.filter(|request| request.target.contains("/repos/demo/shop/issues?")).count()
    };
    super::daemons::until("three looks", || lists() > 3).await;
    assert_eq!((asked(), world.labels()), (asked_before, vec!["agentd:attention".to_owned()]));
    next.stop().await;
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    world.finish().await;
}

/// A world whose tests never end, and leave a detached process behind; its process ids are in two files.
async fn endless(rounds: usize) -> World {
    let world = World::of(rounds, |scenario| {
        let files = &mut scenario.repositories[0].commits[0].files;
        let script = "setsid sleep 1000 & echo $! > setsid.pid; echo $$ > sh.pid; sleep 1000\n";
        files.insert("tests/run.sh".to_owned(), serde_json::from_value(json!(script)).unwrap());
        for reply in &mut scenario.model.replies {
            // The script is another than the one that the recorded edit is for.
            reply.tool_calls.retain(|call| {
                !(call.name == "edit_file" && format!("{:?}", call.arguments).contains("run.sh"))
            });
        }
    })
    .await;
    // In the cage the process ids are others, and its end is the end of everything in it.
    let agent = std::fs::read_to_string(world.shop().join(".agent/resolver/agent.json")).unwrap();
    let uncaged =
        agent.replace("\"permissionMode\"", "\"sandbox\": {\"enabled\": false}, \"permissionMode\"");
    assert_ne!(uncaged, agent);
    world.write("shop/.agent/resolver/agent.json", &uncaged);
    world
}

fn assert_ended(pids: &[(&str, String)]) {
    for (name, pid) in pids {
        let alive = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        assert!(alive.is_err() || alive.is_ok_and(|stat| stat.contains(") Z ")), "{name} {pid} lives");
    }
}

async fn pids(world: &World, run: &mut Child) -> Vec<(&'static str, String)> {
    let read = |name: &'static str| {
        let text = std::fs::read_to_string(world.shop().join(".worktrees/issue-7").join(name));
        (name, text.unwrap_or_default().trim().to_owned())
    };
    until(run, || !read("sh.pid").1.is_empty()).await;
    // Until `setsid` has become `sleep`, it may still belong to the command's own group, and ends with it.
    let detached = read("setsid.pid");
    let named = format!("/proc/{}/comm", detached.1);
    until(run, || std::fs::read_to_string(&named).is_ok_and(|name| name.trim() == "sleep")).await;
    vec![read("sh.pid"), detached]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_signal_kills_every_process_of_the_run() {
    let world = endless(1).await;
    let mut run = start(&world);
    let pids = pids(&world, &mut run).await;
    interrupt_twice(&mut run);
    let (code, output) = ended(run).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("user_abort")), "{output:#}");
    assert_ended(&pids);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c_08_an_abort_while_the_work_is_verified_is_the_runs_end_and_says_what_was_cancelled() {
    for by_signal in [true, false] {
        let write = calls(&[("write_file", json!({ "path": "lib/new.sh", "content": "true\n" }))]);
        let world = solo(vec![write, reports("Done.", json!([]))], None, "").await;
        world.verify("[[\"sh\", \"-c\", \"echo > begun; sleep 1000\"]]");
        let mut command = world.command_in(&["--json", "run", "--issue", "7", "--agent", "solo"]);
        let mut run = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until(&mut run, || world.shop().join(".worktrees/issue-7/begun").exists()).await;
        if by_signal {
            interrupt_twice(&mut run);
        } else {
            let (code, told) = world.json(&["runs", "stop", "latest", "--abort"]).await;
            assert_eq!(code, Some(0), "{told:#}");
        }
        let (code, output) = ended(run).await;
        assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("user_abort")), "{output:#}");
        assert_eq!(output["stop_reason"], "HUMAN_REQUESTED");
        let warnings = output["warnings"].to_string();
        assert!(warnings.contains("verification_cancelled") && warnings.contains("sleep 1000"), "{warnings}");
        assert!(world.sim.pulls("demo/shop").is_empty(), "nothing is offered for merging");
        // A signal ends git's programs, too; a wish from another process leaves them alone (D66).
        let git_dir = world.sim.git_dir("demo/shop").unwrap();
        let pushed = agentd::sim::bare::head(&git_dir, "feature/issue-7").is_some();
        assert_eq!(pushed, !by_signal);
        let report = std::fs::read_to_string(super::solo::newest(&world).join("report.md")).unwrap();
        let words = "Push failed: The run was aborted before its work was pushed.";
        assert_eq!(report.contains(words), by_signal, "{report}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_at_once_what_waits_for_github_before_anything_was_begun() {
    let hangs = json!({ "path": "/repos/**", "kind": "hang", "times": 0 });
    for args in [&["run", "--issue", "7"][..], &["run", "--issue", "7", "--dry-run"], &["sweep"]] {
        let world = World::new(0).await;
        world.sim.inject(&serde_json::from_value(hangs.clone()).unwrap()).unwrap();
        let mut command = world.command_in(args);
        let mut waits = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until(&mut waits, || !world.sim.requests().is_empty()).await;
        interrupt(&waits);
        let begun = std::time::Instant::now();
        let ended = tokio::task::spawn_blocking(move || waits.wait().unwrap()).await.unwrap();
        assert!(begun.elapsed().as_secs() < 20, "{args:?} took {:?}", begun.elapsed());
        assert!(!ended.success(), "{args:?}");
        assert!(!world.shop().join(".worktrees").exists());
        world.sim.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_072_a_077_what_a_killed_run_had_in_flight_has_its_ledger_line() {
    let request = World::new(1).await;
    request.sim.inject(&delayed(1, 8_000)).unwrap();
    let mut run = start(&request);
    until(&mut run, || request.sim.model_requests().len() >= 2).await;
    run.kill().unwrap();
    run.wait().unwrap();
    let tool = endless(1).await;
    let mut run = start(&tool);
    pids(&tool, &mut run).await;
    run.kill().unwrap();
    run.wait().unwrap();
    for (world, kind) in [(request, "llm"), (tool, "tool")] {
        let (_, output) = world.json(&["runs", "show", "latest"]).await;
        let (_, ledger) = world.json(&["runs", "accounting", "latest"]).await;
        let (_, events) = world.json(&["runs", "events", "latest"]).await;
        let count =
            |kind: &str| events.as_array().unwrap().iter().filter(|line| line["kind"] == kind).count();
        let interrupted: Vec<&Value> =
            ledger.as_array().unwrap().iter().filter(|line| line["error"] == "interrupted").collect();
        assert_eq!((interrupted.len(), &interrupted[0]["type"]), (1, &json!(kind)), "{ledger:#}");
        let totals = &output["totals"];
        assert_eq!(
            (totals["llm_requests"].as_u64(), totals["tools_run"].as_u64()),
            (Some(count("request_fingerprinted") as u64), Some(count("tool_started") as u64)),
            "{output:#}"
        );
        assert_eq!(totals["llm_requests"], json!(world.sim.model_requests().len()));
        // What a request cost is not known, and its provider may bill it.
        assert_eq!(interrupted[0]["brokeOff"] == true, kind == "llm", "{ledger:#}");
        let (code, verified) = world.json(&["runs", "verify", "latest"]).await;
        assert_eq!(code, Some(0), "{verified:#}");
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_run_left_running_is_ended_before_the_next_one_works() {
    let world = endless(2).await;
    let mut run = start(&world);
    let pids = pids(&world, &mut run).await;
    run.kill().unwrap();
    run.wait().unwrap();
    // The command itself dies with agentd; what it detached does not.
    assert!(Path::new(&format!("/proc/{}", pids[1].1)).exists(), "nothing was left running");
    let mut next = start(&world);
    let asked = world.sim.model_requests().len();
    until(&mut next, || world.sim.model_requests().len() > asked).await;
    assert_ended(&pids);
    interrupt_twice(&mut next);
    let (code, output) = ended(next).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("user_abort")), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_ten_random_moments_and_run_again_there_is_one_of_each() {
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let mut random = seed;
    for moment in 0..10 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let entry = 1 + (random >> 33) as usize % 150;
        let world = World::new(2).await;
        let mut run = start(&world);
        // The journal's length is the moment; a run that ends before it has been seen whole.
        while entries(&world) < entry && run.try_wait().unwrap().is_none() {
            tokio::task::yield_now().await;
        }
        let _ = run.kill();
        run.wait().unwrap();
        let before = entries(&world);
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!(code, Some(0), "seed {seed}, moment {moment}, killed at entry {before}: {output:#}");
        world.assert_one_of_each();
        assert_eq!(world.labels(), ["agentd:done"], "seed {seed}, killed at entry {before}");
        let worktrees = world.git(&world.shop(), &["worktree", "list", "--porcelain"]).await;
        assert_eq!(worktrees.matches("worktree ").count(), 2, "seed {seed}, entry {before}: {worktrees}");
        world.finish().await;
    }
}

/// A file system of so many KiB.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    #[expect(clippy::print_stdout, reason = "a test that cannot run here says so")]
    pub fn at(place: &Path, kib: usize) -> Option<Self> {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={kib}k,mode=700"), "agentd-test"]).arg(place);
        let mounted = mount.output().is_ok_and(|done| done.status.success());
        if !mounted {
            println!("skipped: a file system of {kib} KiB cannot be mounted here (it needs root)");
        }
        mounted.then(|| Self(place.to_owned()))
    }

    /// Has more room from now on.
    pub fn grows_to(&self, kib: usize) {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-o", &format!("remount,size={kib}k")]).arg(&self.0);
        assert!(mount.status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // At once, though a process that another test just forked may still hold what is open here.
        let unmounted = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(std::thread::panicking() || unmounted.is_ok_and(|status| status.success()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_under_the_state_directory_is_said_and_loses_nothing() {
    let world = World::new(2).await;
    let state = world.dir.path().join("small");
    std::fs::create_dir(&state).unwrap();
    let Some(disk) = SmallDisk::at(&state, 48) else { return world.finish().await };
    let state_dir = state.display().to_string();
    // Without any room no run begins, and none is listed.
    let filler = state.join("filler");
    let filled = std::fs::write(&filler, [0; 64 * 1024]);
    assert!(filled.is_err(), "48 KiB is all there is");
    let (code, output) = world.json(&["--state-dir", &state_dir, "run", "--issue", "7"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("output_write_failed")), "{output:#}");
    std::fs::remove_file(&filler).unwrap();
    let (_, listed) = world.json(&["--state-dir", &state_dir, "runs", "list"]).await;
    assert_eq!(listed, serde_json::json!([]), "{listed:#}");
    let (code, output) = world.json(&["--state-dir", &state_dir, "run", "--issue", "7"]).await;
    drop(disk);
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("output_write_failed")), "{output:#}");
    assert!(text(output.to_string().as_bytes()).contains("space"), "{output:#}");
    // With room again, the same issue is worked out.
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!(code, Some(0), "{output:#}");
    world.assert_one_of_each();
    world.finish().await;
}

/// Takes all room that is left where `filler` is.
fn fill(filler: &Path) {
    use std::io::Write as _;
    let mut file = std::fs::File::create(filler).unwrap();
    for piece in [1 << 20, 1 << 12, 1] {
        while file.write_all(&vec![b'x'; piece]).is_ok() {}
    }
}

/// A run whose first call is answered by the model only when the disk of its worktree is full.
async fn writes_on_a_small_disk(kib: usize) -> Option<(World, SmallDisk, PathBuf)> {
    let write = || calls(&[("write_file", json!({ "path": "lib/new.sh", "content": "x\n".repeat(50_000) }))]);
    let world = solo(vec![write(), write(), reports("Made.", json!([]))], None, "").await;
    let place = world.shop().join(".worktrees");
    std::fs::create_dir_all(&place).unwrap();
    let Some(disk) = SmallDisk::at(&place, kib) else {
        world.sim.shutdown().await;
        return None;
    };
    world.sim.inject(&delayed_once()).unwrap();
    Some((world, disk, place.join("filler")))
}

fn delayed_once() -> agentd::sim::FaultFile {
    let fault = json!({ "path": "/model/**", "kind": "delay", "delay_ms": 4000, "times": 1 });
    serde_json::from_value(fault).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_under_the_worktree_is_no_answer_for_the_model_and_the_run_is_gone_on_with_later() {
    let Some((world, _disk, filler)) = writes_on_a_small_disk(1024).await else { return };
    let fills = async {
        super::daemons::until("it works", || !world.sim.model_requests().is_empty()).await;
        fill(&filler);
    };
    let run = world.json(&["run", "--issue", "7", "--agent", "solo"]);
    let ((code, output), ()) = futures::future::join(run, fills).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(1), Some("output_write_failed")), "{output:#}");
    assert!(output["error"]["message"].as_str().unwrap().contains("the disk of the worktree"), "{output:#}");
    assert_eq!(world.sim.model_requests().len(), 1, "no model is asked about it");
    assert_eq!(world.labels(), ["agentd:failed"], "nobody goes on with it by itself");
    std::fs::remove_file(&filler).unwrap();
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!((code, output["stop_detail"].as_str()), (Some(0), Some("completed")), "{output:#}");
    assert!(world.shop().join(".worktrees/issue-7/lib/new.sh").exists());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemons_run_whose_worktree_has_no_room_waits_for_it_and_its_labels_stay() {
    // Starts want 256 MiB.
    let Some((world, _disk, filler)) = writes_on_a_small_disk(300 * 1024).await else { return };
    world.configure(&["agent = \"solo\""]);
    world.sim.add_label("demo/shop", 7, "agentd", "ada");
    let daemon = Running::start(&world, &[]);
    super::daemons::until("it works", || !world.sim.model_requests().is_empty()).await;
    fill(&filler);
    let waits = || {
        let status = std::fs::read_to_string(world.dir.path().join("state/daemon/status.json"));
        status.is_ok_and(|status| status.contains("\"disk_full\""))
    };
    super::daemons::until_or("it waits for room", waits, || format!("{:?}", world.labels())).await;
    assert!(world.labels().contains(&"agentd".to_owned()), "{:?}", world.labels());
    assert!(!world.labels().contains(&"agentd:failed".to_owned()), "{:?}", world.labels());
    assert_eq!(world.sim.model_requests().len(), 1, "no model is asked about it");
    std::fs::remove_file(&filler).unwrap();
    super::daemons::until_or(
        "done",
        || world.labels() == ["agentd:done"],
        || format!("{:?}", world.labels()),
    )
    .await;
    assert_eq!(world.sim.pulls("demo/shop").len(), 1);
    daemon.stop().await;
    world.finish().await;
}

#[test]
fn a_099_a_line_that_a_full_disk_cuts_is_taken_back_and_what_comes_later_follows_the_last_whole_one() {
    let place = tempfile::tempdir().unwrap();
    let Some(_disk) = SmallDisk::at(place.path(), 64) else { return };
    let filler = place.path().join("filler");
    std::fs::write(&filler, [0; 20_000]).unwrap();
    let run =
        StateDir::new(place.path().to_owned()).run(&RepoName::parse("o/n").unwrap(), RunId(Uuid::nil()));
    let redactor = Arc::new(Redactor::new([7; 32], Vec::new(), &[]).unwrap());
    let journal = FileJournal::open(run.clone(), Clock::system(), redactor).unwrap();
    let note = |text: &str| Event::Warned(Warning { code: "note".into(), at: 1, text: text.into() });
    let long = "x".repeat(6_000);
    let mut kept = 0;
    loop {
        journal.append_with_next(note("waits")).unwrap();
        if journal.append(note(&long)).is_err() {
            break;
        }
        kept += 2;
    }
    assert!(kept > 0, "some had room");
    assert!(journal.append(note(&long)).is_err(), "there is no room for it still");
    std::fs::remove_file(&filler).unwrap();
    journal.append(note("after")).unwrap();
    let lines = journal_file::read(&run).unwrap().lines;
    drop(journal);
    let told: Vec<_> = lines.iter().skip(kept).filter_map(|line| line.event()).collect();
    assert_eq!(told, [note("waits"), note("after")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn d39_d103_a_run_in_the_foreground_whose_issue_is_closed_or_unlabelled_makes_no_visit_more() {
    for (closes, detail) in [(true, "issue_closed"), (false, "label_removed")] {
        let mut writes = calls(&[("write_file", json!({ "path": "lib/one.sh", "content": "echo new\n" }))]);
        writes.delay_ms = 1_500;
        let world = solo(vec![writes, reports("Half of it.", json!([]))], None, "").await;
        let agent = std::fs::read_to_string(world.shop().join(".agent/solo/agent.json")).unwrap();
        let twice = agent.replace("\"maxIterations\": 1", "\"maxIterations\": 2");
        world.write("shop/.agent/solo/agent.json", &twice);
        world.sim.add_label("demo/shop", 7, "agentd", "ada");
        let mut command = world.command_in(&["run", "--issue", "7", "--agent", "solo", "--json"]);
        let running = tokio::task::spawn_blocking(move || command.output().unwrap());
        super::daemons::until("a request", || !world.sim.model_requests().is_empty()).await;
        if closes {
            assert!(world.sim.close_issue("demo/shop", 7, "ada"));
        } else {
            world.sim.remove_label("demo/shop", 7, "agentd", "ada");
        }
        let done = running.await.unwrap();
        let output: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert_eq!(
            (done.status.code(), output["stop_detail"].as_str()),
            (Some(1), Some(detail)),
            "{output:#}"
        );
        assert_eq!(output["iterations"], 1, "{output:#}");
        let branch = agentd::sim::bare::head(&world.sim.git_dir("demo/shop").unwrap(), "feature/issue-7");
        assert!(
            branch.is_some() && world.sim.pulls("demo/shop").is_empty(),
            "the branch and no pull request"
        );
        world.finish().await;
    }
}
