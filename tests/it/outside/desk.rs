//! A directory with a configuration, a policy and an MCP server over stdio, and a scripted model: what a chat needs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use agentd::sim::{Scenario, SimOptions, Simulator};
use serde_json::{Value, json};

pub const USER: &str = "550e8400-e29b-41d4-a716-446655440000";
pub const KEY: &str = "sim-model-key-of-the-operator";
pub const ALLOW_ALL: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";

#[must_use = "finish() says whether the protocol was kept"]
pub struct Desk {
    pub sim: Simulator,
    pub dir: tempfile::TempDir,
}

impl Desk {
    /// `replies`: the model's, as TOML `[[model.replies]]` tables.
    pub async fn new(replies: &str) -> Self {
        let scenario = format!("[model]\napi_keys = [\"{KEY}\"]\n{replies}");
        let scenario = Scenario::from_text(&scenario, Path::new("scenario.toml")).unwrap();
        let sim = Simulator::start(scenario, SimOptions::default()).await.unwrap();
        let desk = Self { sim, dir: tempfile::tempdir().unwrap() };
        desk.write("policy.toml", ALLOW_ALL);
        desk.configure("", "");
        desk
    }

    /// Writes the configuration anew: `server` continues the MCP server's table, `rest` stands below it.
    pub fn configure(&self, server: &str, rest: &str) {
        self.configure_model(
            &format!("kind = \"openai\"\nbase_url = \"{}\"", self.sim.model_url_openai()),
            server,
            rest,
        );
    }

    pub fn configure_model(&self, provider: &str, server: &str, rest: &str) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/mcp_server.py");
        let notes = self.dir.path().join("notes");
        self.write(
            "agentd.toml",
            &format!(
                "[policy]\nfiles = [\"policy.toml\"]\n\
                 [session]\nretry_backoff = \"10ms\"\nretry_backoff_max = \"20ms\"\n\
                 [[session.targets]]\nprovider = \"sim\"\nmodel = \"model-1\"\n\
                 price = {{ input = 3.0, output = 15.0 }}\n\
                 [providers.sim]\napi_key = \"${{MODEL_KEY}}\"\n{provider}\n\
                 [mcp.servers.desk]\ncommand = \"python3\"\nargs = [{script:?}, \"--notes\", {notes:?}]\n\
                 env = {{ COUNT_FILE = {count:?} }}\n{server}\n{rest}\n",
                count = self.dir.path().join("count"),
            ),
        );
    }

    pub fn write(&self, path: &str, content: &str) {
        agentd::sys::files::write_public(&self.dir.path().join(path), content.as_bytes()).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_agentd")), args)
    }

    /// Another program in the same place.
    pub fn command_of(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path())
            .env("AGENTD_STATE_DIR", self.state())
            .env("MODEL_KEY", KEY);
        command
    }

    pub async fn agentd(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        for (stream, bytes) in [("stdout", &done.stdout), ("stderr", &done.stderr)] {
            assert!(!String::from_utf8_lossy(bytes).contains(KEY), "S-047: the key is on {stream}");
        }
        done
    }

    /// Exit code, the document on stdout, the log.
    pub async fn json(&self, args: &[&str]) -> (i32, Value, String) {
        let done = self.agentd(args).await;
        let log = String::from_utf8_lossy(&done.stderr).into_owned();
        let document = serde_json::from_slice(&done.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{log}", String::from_utf8_lossy(&done.stdout)));
        (done.status.code().unwrap(), document, log)
    }

    /// `agentd chat --json` with a history.
    pub async fn chat(&self, history: &Value, more: &[&str]) -> (i32, Value, String) {
        self.write("history.json", &history.to_string());
        let mut args = vec!["chat", "--user", USER, "--messages", "history.json", "--json"];
        args.extend(more);
        self.json(&args).await
    }

    /// A chat about one request.
    pub async fn ask(&self, request: &str, more: &[&str]) -> (i32, Value, String) {
        self.chat(&json!([{ "role": "user", "content": request }]), more).await
    }

    /// `agentd tools call`.
    pub async fn call(&self, tool: &str, args: &str) -> (i32, Value, String) {
        self.json(&["tools", "call", tool, "--args", args, "--user", USER]).await
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Lines that the tool `count` wrote.
    pub fn counted(&self) -> usize {
        std::fs::read_to_string(self.dir.path().join("count")).unwrap_or_default().lines().count()
    }

    /// The record of a response's run.
    pub fn run_dir(&self, response: &Value) -> PathBuf {
        let run = response["meta"]["run_id"].as_str().unwrap();
        self.state().join("users").join(USER).join("runs").join(run)
    }

    pub fn lines(&self, response: &Value, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.run_dir(response).join(file)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub fn events(&self, response: &Value, kind: &str) -> Vec<Value> {
        let all = self.lines(response, "events.jsonl");
        all.into_iter().filter(|line| line["kind"] == kind).map(|line| line["data"].clone()).collect()
    }

    /// Body of the model's n-th request, 0-based.
    pub fn request(&self, number: usize) -> Value {
        self.sim.model_requests()[number].body.read()
    }

    /// Every file below the state directory holds no key; every scripted reply was asked for; no request was wrong.
    pub async fn finish(self) {
        assert_eq!(self.sim.violations(), Vec::<String>::new());
        assert_eq!(self.sim.unused_replies(), Vec::<String>::new());
        no_key_below(&self.state());
        self.sim.shutdown().await;
    }
}

fn no_key_below(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            no_key_below(&path);
        } else {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains(KEY), "S-048: the key is in {}", path.display());
        }
    }
}
