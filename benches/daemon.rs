//! What the daemon costs and how soon it begins, measured from outside; a limit that is missed is a failure.
//!
//! `cargo bench --bench daemon [-- idle | label | metrics | worktrees]`, all of them without an argument:
//! - `idle`: the 120 polls of an hour with 50 repositories: counted requests, resident memory, processor time;
//! - `label`: from a label put on to the first request to the model, on a repository of 2,300 files;
//! - `metrics`: the 99th of 100 answers of `/metrics` to eight that ask without a pause, over 600 runs, while others go on;
//! - `worktrees`: 16 at a time on that repository, 20 rounds, against git making them one after the other.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark prints what it measured, and has programs and an environment of its own"
)]

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agentd::domain::name::{BranchName, CommitId};
use agentd::git::{Checkout, GitProgram, Population, WorktreePlan};
use agentd::sim::{Scenario, SimOptions, Simulator};
use agentd::sys::files;
use agentd::sys::paths::AbsPath;
use serde_json::json;
use tokio_util::sync::CancellationToken;

const FILES: usize = 2_300;
const REPOSITORIES: usize = 50;
/// Of the 120 polls of an hour at the default interval of 30 s, so many are made, five seconds apart, and count for all.
const POLLS: usize = 24;
/// How often they go into an hour's.
const PART: u32 = 5;
const LABELS: u64 = 10;
const AT_A_TIME: usize = 16;
const ROUNDS: usize = 20;
const TOKEN: &str = "a-token-of-the-simulator";

fn main() {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|one| one == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if wanted("worktrees") {
        runtime.block_on(worktrees());
    }
    if wanted("label") {
        runtime.block_on(label());
    }
    if wanted("metrics") {
        runtime.block_on(metrics());
    }
    if wanted("idle") {
        runtime.block_on(idle());
    }
}

fn sh(dir: &Path, program: &str, args: &[&str]) -> String {
    let done = Command::new(program).args(args).current_dir(dir).envs(environment(dir)).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {said}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

fn environment(home: &Path) -> Vec<(OsString, OsString)> {
    let identity = ["GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = vec![("HOME".into(), home.into()), ("PATH".into(), path)];
    all.extend(identity.map(|name| (name.into(), "a@example.org".into())));
    all
}

/// A folder with `count` files of about a kilobyte, and the agent that `agentd init` writes.
fn project(dir: &Path, count: usize) {
    for n in 0..count {
        let place = dir.join(format!("src/part-{:02}/file-{n:04}.txt", n % 60));
        files::create_dir(place.parent().unwrap()).unwrap();
        let text = format!("line of file {n}\n").repeat(60);
        files::write_public(&place, text.as_bytes()).unwrap();
    }
    files::write_public(&dir.join("README.md"), b"a project\n").unwrap();
    sh(dir, "git", &["init", "-q", "-b", "main"]);
    sh(dir, "git", &["remote", "add", "origin", "https://github.com/bench/one.git"]);
    let mut init = agentd(dir, &dir.join("../home"));
    assert!(init.arg("init").output().unwrap().status.success());
}

fn agentd(dir: &Path, home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agentd"));
    command.current_dir(dir).env_clear().envs(environment(home));
    command.env("AGENTD_STATE_DIR", home.join("state")).env("GITHUB_TOKEN", TOKEN).env("MODEL_KEY", "a-key");
    command
}

/// `count` repositories with the project's files, and ten issues in each.
async fn simulator(project: &Path, count: usize) -> Simulator {
    let issues: Vec<_> = (1..=LABELS).map(|n| json!({ "title": format!("Issue {n}") })).collect();
    let of = |n: usize| json!({ "name": format!("bench/repo-{n}"), "from_directory": project, "collaborators": { "bot": "write" }, "issues": issues });
    let scenario = json!({
        "tokens": [{ "token": TOKEN, "login": "bot" }],
        "repositories": (0..count).map(of).collect::<Vec<_>>(),
        "model": { "replies": [{ "times": 0, "text": "I cannot tell." }] },
    });
    let scenario: Scenario = serde_json::from_value(scenario).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    Simulator::start(scenario, SimOptions { path, ..SimOptions::default() }).await.unwrap()
}

/// A daemon with these repositories, each a clone that it manages.
fn daemon(home: &Path, sim: &Simulator, count: usize, poll: &str) -> Daemon {
    let entries: String = (0..count)
        .map(|n| format!("[[repositories]]\nname = \"bench/repo-{n}\"\norigin_branch = \"main\"\n"))
        .collect();
    let toml = format!(
        "[github]\napi_url = \"{}\"\ntoken = \"${{GITHUB_TOKEN}}\"\n[daemon]\npoll_interval = \"{poll}\"\n\
         [providers.anthropic]\nkind = \"anthropic\"\nbase_url = \"{}\"\napi_key = \"${{MODEL_KEY}}\"\n\
         [[session.targets]]\nprovider = \"anthropic\"\nmodel = \"m\"\nprice = {{ input = 3.0, output = 15.0 }}\n\
         [policy]\nfiles = [\".agent/policy.toml\"]\n{entries}",
        sim.api_url(),
        sim.model_url_anthropic()
    );
    files::create_dir(home).unwrap();
    files::write_public(&home.join("agentd.toml"), toml.as_bytes()).unwrap();
    let mut command = agentd(home, home);
    Daemon(command.args(["-q", "daemon"]).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn().unwrap())
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    /// Kibibytes in memory, of this program's own and shared with files.
    fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// Processor time so far, user and system.
    fn worked(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }
}

async fn until(mut so: impl FnMut() -> bool) {
    while !so() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn idle() {
    let dir = tempfile::tempdir().unwrap();
    project(&dir.path().join("project"), 20);
    let sim = simulator(&dir.path().join("project"), REPOSITORIES).await;
    let daemon = daemon(&dir.path().join("home"), &sim, REPOSITORIES, "5s");
    let last = format!("/repos/bench/repo-{}/pulls?", REPOSITORIES - 1);
    let polls = || sim.requests().iter().filter(|asked| asked.target.starts_with(&last)).count();
    until(|| polls() >= 3).await;
    let counted = || sim.requests().iter().filter(|asked| asked.counted).count();
    let (before, asked, worked, seen) = (counted(), sim.requests().len(), daemon.worked(), polls());
    let mut resident = Vec::new();
    while polls() < seen + POLLS {
        resident.push(daemon.resident());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let worked = (daemon.worked() - worked) * PART;
    let part = usize::try_from(PART).unwrap();
    let (counted, asked) = (counted() - before, (sim.requests().len() - asked) * part);
    resident.sort_unstable();
    // Most of the time is between two polls, here as in that hour.
    let (at_rest, most) = (resident[resident.len() / 2], resident[resident.len() - 1]);
    let megabytes = |kibibytes: u64| kibibytes as f64 * 1024.0 / 1e6;
    // Of the hour that these polls are.
    let share = worked.as_secs_f64() / 36.0;
    println!(
        "idle hour, {REPOSITORIES} repositories: {counted} counted requests of {asked}, {:.1} MB resident \
         (at most {:.1} in a poll), {worked:.1?} of processor ({share:.2} %)",
        megabytes(at_rest),
        megabytes(most)
    );
    assert_eq!(counted, 0);
    // Limits of the program that is given to people; a debug build is larger and slower.
    let place = std::env::current_exe().unwrap_or_default();
    if place.components().any(|part| part.as_os_str() == "release") {
        assert!(megabytes(at_rest) < 20.0, "{at_rest} KiB");
        assert!(share < 0.5, "{share} %");
    }
}

async fn label() {
    let poll = Duration::from_secs(2);
    let dir = tempfile::tempdir().unwrap();
    project(&dir.path().join("project"), FILES);
    let sim = simulator(&dir.path().join("project"), 1).await;
    let _daemon = daemon(&dir.path().join("home"), &sim, 1, "2s");
    until(|| sim.requests().iter().any(|asked| asked.target.contains("/pulls?"))).await;
    let mut times = Vec::new();
    for issue in 1..=LABELS {
        // At another moment between two polls each time.
        tokio::time::sleep(poll * u32::try_from(issue).unwrap() / 10).await;
        let before = sim.model_requests().len();
        let began = Instant::now();
        sim.add_label("bench/repo-0", issue, "agentd", "bench");
        until(|| sim.model_requests().len() > before).await;
        times.push(began.elapsed());
        until(|| !sim.issue("bench/repo-0", issue).unwrap().labels.iter().any(|one| one == "agentd")).await;
    }
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!(
        "label to first model request, {FILES} files, polls {poll:?} apart: median {median:.2?}, worst {worst:.2?}"
    );
    assert!(worst <= poll + Duration::from_millis(1500), "{times:?}");
}

/// A run directory as a run leaves it, or as one does that was killed: without a result, with a long journal.
fn left_run(home: &Path, ended: bool) {
    let place = home.join("state/repos/bench/repo-0/runs").join(uuid::Uuid::now_v7().to_string());
    files::create_dir(&place).unwrap();
    let journal = "{\"seq\":1}\n".repeat(if ended { 100 } else { 100_000 });
    files::write_public(&place.join("events.jsonl"), journal.as_bytes()).unwrap();
    if ended {
        let result = json!({
            "mapping": { "issue": 1, "instance": "i" }, "objective": { "title": "t" }, "started_at": "2026-01-01T00:00:00Z",
            "success": true, "stop_reason": "OBJECTIVE_ACHIEVED", "totals": { "cost_usd": 0.01 },
            "final_report": { "content": "x".repeat(20_000) },
        });
        files::write_public(&place.join("result.json"), result.to_string().as_bytes()).unwrap();
    }
}

async fn metrics() {
    let dir = tempfile::tempdir().unwrap();
    project(&dir.path().join("project"), 20);
    let sim = simulator(&dir.path().join("project"), 2).await;
    let home = dir.path().join("home");
    for n in 0..600 {
        left_run(&home, n % 12 > 0);
    }
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let _daemon = daemon(&home, &sim, 2, &format!("1s\"\nlisten = \"{address}"));
    let (http, url) = (reqwest::Client::new(), format!("http://{address}/metrics"));
    while http.get(&url).send().await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for issue in 1..=LABELS {
        for n in 0..2 {
            sim.add_label(&format!("bench/repo-{n}"), issue, "agentd", "bench");
        }
    }
    let before = sim.requests().len();
    until(|| sim.requests().len() > before + 10).await;
    let before = sim.requests().len();
    let asking = (0..8).map(|_| {
        let (http, url) = (http.clone(), url.clone());
        tokio::spawn(async move {
            let (mut times, began) = (Vec::new(), Instant::now());
            while began.elapsed() < Duration::from_secs(6) {
                let asked = Instant::now();
                let answer = http.get(&url).send().await.unwrap().text().await.unwrap();
                assert!(answer.contains("agentd_runs_total"), "{answer}");
                times.push(asked.elapsed());
            }
            times
        })
    });
    let mut times: Vec<Duration> =
        futures::future::join_all(asking).await.into_iter().flat_map(Result::unwrap).collect();
    times.sort_unstable();
    let at = |share: usize| times[times.len() * share / 100];
    println!(
        "/metrics over 600 runs, eight ask without a pause while runs begin and end with {} requests to GitHub: {} answers, median {:.1?}, \
         99 % within {:.1?}, worst {:.1?}",
        sim.requests().len() - before,
        times.len(),
        at(50),
        at(99),
        times[times.len() - 1]
    );
    assert!(at(99) <= Duration::from_millis(50), "{:?}", at(99));
}

async fn worktrees() {
    let dir = tempfile::tempdir().unwrap();
    let home = AbsPath::new(dir.path()).unwrap().canonical().unwrap();
    let repo = home.join("project");
    project(repo.as_path(), FILES);
    sh(repo.as_path(), "git", &["add", "-A"]);
    sh(repo.as_path(), "git", &["commit", "-qm", "all"]);
    let base = CommitId::parse(&sh(repo.as_path(), "git", &["rev-parse", "HEAD"])).unwrap();
    let checkout =
        Checkout::open(GitProgram::new(environment(home.as_path()), CancellationToken::new()), &repo, false)
            .await
            .unwrap();
    let (mut serial, mut parallel, mut lost) = (Duration::ZERO, Duration::ZERO, 0);
    for round in 0..ROUNDS {
        let began = Instant::now();
        for n in 0..AT_A_TIME {
            let branch = format!("serial-{round}-{n}");
            let place = home.join("serial").join(&branch).to_string();
            sh(repo.as_path(), "git", &["worktree", "add", "-q", "-b", &branch, &place, base.as_str()]);
        }
        serial += began.elapsed();
        let began = Instant::now();
        let made = (0..AT_A_TIME).map(|n| {
            let issue = 1 + round * AT_A_TIME + n;
            let (checkout, root, base) = (checkout.clone(), repo.join(".worktrees"), base.clone());
            tokio::spawn(async move {
                let plan = WorktreePlan {
                    root,
                    name: format!("issue-{issue}"),
                    branch: BranchName::parse(&format!("feature/issue-{issue}")).unwrap(),
                    base,
                    remote: None,
                    population: Population::default(),
                    elsewhere: None,
                };
                checkout.prepare_worktree(&plan).await.map(|ready| ready.worktree.path().clone())
            })
        });
        let made = futures::future::join_all(made).await;
        parallel += began.elapsed();
        for one in made {
            let whole = one.unwrap().is_ok_and(|path| {
                sh(path.as_path(), "git", &["status", "--porcelain"]).is_empty()
                    && sh(path.as_path(), "git", &["ls-files"]).lines().count() > FILES
            });
            lost += usize::from(!whole);
        }
        for place in [home.join("serial"), repo.join(".worktrees")] {
            std::fs::remove_dir_all(place.as_path()).unwrap();
        }
        sh(repo.as_path(), "git", &["worktree", "prune"]);
    }
    let ratio = parallel.as_secs_f64() / serial.as_secs_f64();
    println!(
        "{AT_A_TIME} worktrees of {FILES} files at a time, {ROUNDS} rounds: {lost} lost, {parallel:.1?} in all; \
         git one after the other {serial:.1?}; ratio {ratio:.2}"
    );
    assert_eq!(lost, 0);
    assert!(ratio <= 1.1, "{ratio}");
}
