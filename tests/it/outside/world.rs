//! A world seen from outside: the binary, real git, the simulator over HTTP, and the demo's recorded model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use agentd::sim::{RepositoryFile, Scenario, SimOptions, Simulator};
use serde_json::Value;
use tokio::sync::OnceCell;

const SCENARIO: &str = include_str!("../../../templates/demo/scenario.toml");
/// Verify commands that pass.
pub const GREEN: &str = r#"[["true"]]"#;
/// The demo's tests, which fail until somebody mends its repository.
pub const DEMO: &str = r#"[["sh", "tests/run.sh"]]"#;
pub const TOKEN: &str = "demo-token-of-the-simulator";

/// Another repository, `demo/lib`, on the same server.
pub fn with_library(scenario: &mut Scenario) {
    let library = serde_json::json!({
        "name": "demo/lib", "default_branch": "main",
        "commits": [{ "message": "First", "author": "Ada <ada@example.org>", "files": { "lib.txt": "lib\n" } }],
    });
    scenario.repositories.push(serde_json::from_value(library).unwrap());
}

/// A simulated GitHub and a checkout of its repository, as a person would have them.
#[must_use = "finish() says whether the protocol was kept"]
pub struct World {
    pub sim: Simulator,
    pub dir: tempfile::TempDir,
}

impl World {
    /// `rounds`: how many whole runs the model has replies for.
    pub async fn new(rounds: usize) -> Self {
        Self::of(rounds, |_| ()).await
    }

    /// The same, with the scenario changed first.
    pub async fn of(rounds: usize, change: impl FnOnce(&mut Scenario)) -> Self {
        let mut scenario = Scenario::from_text(SCENARIO, Path::new("scenario.toml")).unwrap();
        change(&mut scenario);
        let replies = scenario.model.replies.clone();
        for _ in 1..rounds {
            scenario.model.replies.extend(replies.clone());
        }
        let content = content(&scenario);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let sim = Simulator::start(scenario, SimOptions { path, ..SimOptions::default() }).await.unwrap();
        let world = Self { sim, dir: tempfile::tempdir().unwrap() };
        world.check_out(&content).await;
        world.write(
            "overlay.toml",
            &format!(
                "[github]\nmax_requests_per_minute = 100000\napi_url = \"{}\"\ntoken = \"${{GITHUB_TOKEN}}\"\n\
                 [providers.anthropic]\nkind = \"anthropic\"\nbase_url = \"{}\"\napi_key = \"${{MODEL_KEY}}\"\n\
                 [[session.targets]]\nprovider = \"anthropic\"\nmodel = \"recorded-model\"\n\
                 price = {{ input = 3.0, output = 15.0, cache_read = 0.3, cache_write = 3.75 }}\n\
                 [verify]\ncommands = [[\"sh\", \"tests/run.sh\"]]\n",
                world.sim.api_url(),
                world.sim.model_url_anthropic()
            ),
        );
        let policy = std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap();
        let rule = "[[rule]]\nid = \"tests\"\nkind = \"tool\"\nname = \"run_command\"\neffect = \"allow\"\n\
                    reason = \"verify command\"\nwhen = { argv = [[\"sh\", \"tests/run.sh\"]] }\n\n# --- Handoffs";
        world.write("shop/.agent/policy.toml", &policy.replacen("# --- Handoffs", rule, 1));
        world
    }

    /// The checkout as `git clone` and `agentd init` leave it. It is made once for each content, since that takes longer than
    /// many a test; the seeded commits are the same every time.
    async fn check_out(&self, content: &str) {
        let url = self.sim.remote_url("demo", "shop");
        let made = {
            let mut all = PREPARED.lock().unwrap();
            Arc::clone(all.entry(content.to_owned()).or_default())
        };
        let make = async {
            let header = format!("http.extraHeader=Authorization: Basic {}", basic());
            self.git(self.dir.path(), &["-c", &header, "clone", "-q", &url, "shop"]).await;
            let init = self.agentd(&["init"]).await;
            assert!(init.status.success(), "{}", text(&init.stderr));
            let prepared = prepared_dir().join(uuid::Uuid::new_v4().to_string());
            copy(&self.shop(), &prepared);
            prepared
        };
        let prepared = made.get_or_init(|| make).await;
        if !self.shop().exists() {
            copy(prepared, &self.shop());
            self.git(&self.shop(), &["config", "remote.origin.url", &url]).await;
            self.git(&self.shop(), &["update-index", "-q", "--refresh"]).await;
        }
    }

    /// What the model was told in a request: every text, unescaped.
    pub fn told(&self, request: usize) -> String {
        fn gather(value: &Value, into: &mut String) {
            match value {
                Value::String(text) => {
                    into.push_str(text);
                    into.push('\n');
                }
                Value::Array(items) => items.iter().for_each(|item| gather(item, into)),
                Value::Object(members) => members.values().for_each(|member| gather(member, into)),
                _ => {}
            }
        }
        let mut text = String::new();
        gather(&self.sim.model_requests()[request].body["messages"], &mut text);
        text
    }

    pub fn shop(&self) -> PathBuf {
        self.dir.path().join("shop")
    }

    pub fn write(&self, path: &str, content: &str) {
        let path = self.dir.path().join(path);
        agentd::sys::files::create_dir(path.parent().unwrap()).unwrap();
        agentd::sys::files::write_public(&path, content.as_bytes()).unwrap();
    }

    /// Keys of the repository, a line each, in its own file; one that stands there is replaced.
    pub fn configure(&self, keys: &[&str]) {
        let file = "shop/.agent/agentd.toml";
        let toml = std::fs::read_to_string(self.dir.path().join(file)).unwrap();
        let given = |line: &str| {
            let key = |line: &str| line.split('=').next().unwrap_or_default().trim().to_owned();
            line.contains('=') && keys.iter().any(|given| key(given) == key(line))
        };
        let kept: Vec<&str> = toml.lines().filter(|line| !given(line)).collect();
        let with = format!("path = \".\"\n{}", keys.join("\n"));
        self.write(file, &kept.join("\n").replacen("path = \".\"", &with, 1));
    }

    /// Other verify commands, as `verify.commands` has them.
    pub fn verify(&self, commands: &str) {
        let overlay = std::fs::read_to_string(self.dir.path().join("overlay.toml")).unwrap();
        let is_key = |line: &&str| line.starts_with("commands = ");
        let old = overlay.lines().find(is_key).unwrap();
        self.write("overlay.toml", &overlay.replacen(old, &format!("commands = {commands}"), 1));
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agentd"));
        command
            .args(args)
            .current_dir(self.shop())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path())
            .env("AGENTD_STATE_DIR", self.dir.path().join("state"))
            .env("GITHUB_TOKEN", TOKEN)
            .env("MODEL_KEY", "a-key-of-the-simulator");
        command
    }

    /// The same with the world's configuration laid over the repository's.
    pub fn command_in(&self, args: &[&str]) -> Command {
        let mut command = self.command(&["--config"]);
        command.arg(self.dir.path().join("overlay.toml")).args(args);
        command
    }

    /// Has the repository on GitHub the one of [`with_library`] as a submodule, in `vendor`.
    pub async fn take_library_in(&self) {
        let shop = self.shop();
        let library = agentd::sim::bare::head(&self.sim.git_dir("demo/lib").unwrap(), "main").unwrap();
        self.write("shop/.gitmodules", "[submodule \"vendor\"]\n\tpath = vendor\n\turl = ../lib.git\n");
        self.git(&shop, &["add", ".gitmodules"]).await;
        let link = format!("160000,{library},vendor");
        self.git(&shop, &["update-index", "--add", "--cacheinfo", &link]).await;
        self.git(&shop, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "vendor"]).await;
        let header = format!("http.extraHeader=Authorization: Basic {}", basic());
        self.git(&shop, &["-c", &header, "push", "-q", "origin", "HEAD:develop"]).await;
    }

    /// A new branch on the remote.
    pub async fn push_branch(&self, from: &str, branch: &str) {
        let header = format!("http.extraHeader=Authorization: Basic {}", basic());
        let refs = format!("refs/remotes/origin/{from}:refs/heads/{branch}");
        self.git(&self.shop(), &["-c", &header, "push", "-q", "origin", &refs]).await;
    }

    pub async fn agentd(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
    }

    /// `agentd --config overlay … --json`, and the document it prints.
    pub async fn json(&self, args: &[&str]) -> (Option<i32>, Value) {
        let overlay = self.dir.path().join("overlay.toml").display().to_string();
        let mut all = vec!["--config", overlay.as_str(), "--json"];
        all.extend(args);
        let done = self.agentd(&all).await;
        let document = serde_json::from_slice(&done.stdout);
        let document = document.unwrap_or_else(|error| panic!("{error}: {}", text(&done.stderr)));
        (done.status.code(), document)
    }

    pub async fn git(&self, dir: &Path, args: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(args).current_dir(dir).env("HOME", self.dir.path()).env("GIT_CONFIG_NOSYSTEM", "1");
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout)
    }

    /// Labels of the issue.
    pub fn labels(&self) -> Vec<String> {
        self.sim.issue("demo/shop", 7).unwrap().labels
    }

    /// One branch, one open pull request, one comment.
    pub fn assert_one_of_each(&self) {
        assert_eq!(self.sim.pulls("demo/shop").len(), 1);
        assert_eq!(self.sim.issue("demo/shop", 7).unwrap().comments.len(), 1);
        let git_dir = self.sim.git_dir("demo/shop").unwrap();
        assert!(agentd::sim::bare::head(&git_dir, "feature/issue-7").is_some());
        let fixed = agentd::sim::bare::file(&git_dir, "feature/issue-7", "lib/cart.sh").unwrap();
        assert!(text(&fixed).contains("$1 * (100 - $2) / 100"));
    }

    pub async fn finish(self) {
        assert_eq!(self.sim.violations(), Vec::<String>::new());
        self.sim.shutdown().await;
    }
}

/// Checkouts by what their repository holds.
static PREPARED: Mutex<BTreeMap<String, Arc<OnceCell<PathBuf>>>> = Mutex::new(BTreeMap::new());

/// What of a scenario decides about the checkout.
fn content(scenario: &Scenario) -> String {
    let bare = |repository: &RepositoryFile| RepositoryFile {
        issues: Vec::new(),
        pulls: Vec::new(),
        checks: Vec::new(),
        ..repository.clone()
    };
    format!("{:?}", scenario.repositories.iter().map(bare).collect::<Vec<_>>())
}

/// A folder of this process; those of ended ones go.
fn prepared_dir() -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prepared");
    for left in std::fs::read_dir(&root).into_iter().flatten().flatten() {
        if !Path::new("/proc").join(left.file_name()).exists() {
            drop(std::fs::remove_dir_all(left.path()));
        }
    }
    root.join(std::process::id().to_string())
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy(&from, &to),
            kind if kind.is_symlink() => {
                std::os::unix::fs::symlink(std::fs::read_link(from).unwrap(), to).unwrap();
            }
            _ => drop(std::fs::copy(from, to).unwrap()),
        }
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn basic() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(format!("x-access-token:{TOKEN}"))
}
