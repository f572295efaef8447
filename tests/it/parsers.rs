//! Parsers that see bytes of others (git, GitHub, models, MCP servers, repositories, issues), tried with bytes that nobody
//! would send: none panics, none takes long, none makes much of little.
//!
//! Some hundred inputs each with every run of the tests (`PROPTEST_CASES` sets how many); `AGENTD_FUZZ_SECONDS=600 cargo test
//! --test it parsers -- --nocapture` tries each for ten minutes, all at the same time, and tells how many inputs that were.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "how long to try is for whoever starts the tests to say, and they are told what was tried"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentd::agents;
use agentd::config::{Config, Env, ProviderKind, Request};
use agentd::definition::policy_file::{PolicySource, read_policies, read_question};
use agentd::domain::agent_program::Backend;
use agentd::domain::egress;
use agentd::domain::message::Message;
use agentd::domain::model_target::ModelTarget;
use agentd::domain::name::{BranchName, CommitId, RepoName};
use agentd::domain::{outgoing, output_schema, untrusted};
use agentd::engine::model::{ModelRequest, ToolChoice};
use agentd::engine::{arguments, policy_program};
use agentd::git::outgoing::Inspect;
use agentd::git::submodules::commit_in;
use agentd::git::{Checkout, GitProgram, Population, Worktree, WorktreePlan, output};
use agentd::prompt::{address::PromptAddress, frontmatter, template::Template};
use agentd::sys::paths::AbsPath;
use agentd::{definition, git, github, http, issue, llm, mcp};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use git2::{ObjectType, Oid, Repository};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Longest time of one input, on a machine that does much else.
const LONGEST: Duration = Duration::from_secs(10);
/// Most bytes that come of an input: so many times its own, and this beside.
const MOST: (usize, usize) = (64, 256 * 1024);
/// What makes parsers go another way.
const WORDS: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    "[[",
    "]]",
    "\"",
    "'",
    "'''",
    "\"\"\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "\0",
    "\r\n",
    "\n\n",
    "\t",
    "data: ",
    "event: ",
    ": ",
    "null",
    "1e999",
    "-0",
    "99999999999999999999",
    "${",
    "}}",
    "---\n",
    "```json\n",
    "```",
    "<!--",
    "-->",
    "</untrusted>",
    "\u{202e}",
    "\u{200b}",
    "\u{feff}",
    "\u{e0041}",
    "é",
    "__proto__",
    "refs/heads/",
    "../",
];

/// Reads an input, and gives the bytes that came of it.
type Read = Box<dyn Fn(&[u8]) -> usize + Send>;

/// A parser with what it reads when all is well.
struct Parser {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    read: Read,
}

fn parser(name: &'static str, seeds: &[&str], read: impl Fn(&[u8]) -> usize + Send + 'static) -> Parser {
    Parser { name, seeds: seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect(), read: Box::new(read) }
}

/// One that reads text, as it comes after what is no UTF-8 was replaced.
fn of_text(name: &'static str, seeds: &[&str], read: impl Fn(&str) -> usize + Send + 'static) -> Parser {
    parser(name, seeds, move |bytes| read(&String::from_utf8_lossy(bytes)))
}

/// Length of what is shown of a value.
fn size(value: &impl std::fmt::Debug) -> usize {
    format!("{value:?}").len()
}

/// One change of a seed.
#[derive(Debug, Clone)]
enum Change {
    Byte(usize, u8),
    Remove(usize, usize),
    Word(usize, usize),
    Again(usize, usize, usize),
    Nest(usize, usize, u8),
}

fn change() -> impl Strategy<Value = Change> {
    let at = 0..10_000_usize;
    prop_oneof![
        (at.clone(), any::<u8>()).prop_map(|(at, byte)| Change::Byte(at, byte)),
        (at.clone(), 1..64_usize).prop_map(|(at, length)| Change::Remove(at, length)),
        (at.clone(), 0..WORDS.len()).prop_map(|(at, word)| Change::Word(at, word)),
        (at.clone(), 1..64_usize, 2..40_usize)
            .prop_map(|(at, length, times)| Change::Again(at, length, times)),
        (at, 1..3000_usize, any::<u8>()).prop_map(|(at, deep, which)| Change::Nest(at, deep, which)),
    ]
}

fn changed(seed: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for change in changes {
        let length = bytes.len();
        let place = |at: usize| at % (length + 1);
        match *change {
            Change::Byte(at, byte) if length > 0 => bytes[at % length] = byte,
            Change::Remove(at, most) => {
                let from = place(at);
                bytes.drain(from..(from + most).min(length));
            }
            Change::Word(at, word) => {
                bytes.splice(place(at)..place(at), WORDS[word].bytes());
            }
            Change::Again(at, most, times) => {
                let from = place(at);
                let part = bytes[from..(from + most).min(length)].repeat(times);
                bytes.splice(from..from, part);
            }
            Change::Nest(at, deep, which) => {
                let open = ["[", "{\"a\":", "(", "<", "- ", "> "][usize::from(which) % 6];
                bytes.splice(place(at)..place(at), open.repeat(deep).into_bytes());
            }
            Change::Byte(..) => {}
        }
    }
    bytes
}

fn inputs(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let changed_seed = (0..seeds.len(), prop::collection::vec(change(), 0..8))
        .prop_map(move |(seed, changes)| changed(&seeds[seed], &changes));
    let words = prop::collection::vec(0..WORDS.len(), 0..60)
        .prop_map(|words| words.into_iter().map(|word| WORDS[word]).collect::<String>().into_bytes());
    prop_oneof![6 => changed_seed, 1 => words, 1 => prop::collection::vec(any::<u8>(), 0..600)]
}

fn request() -> ModelRequest {
    let target = json!({ "provider": "p", "model": "m", "context_window": 8000, "context_window_buffer": 256, "max_output_tokens": 1000, "temperature": null, "price": null });
    let target: ModelTarget = serde_json::from_value(target).unwrap_or_else(|error| panic!("{error}"));
    ModelRequest {
        target,
        messages: vec![Message::User { content: "hello".into() }].into(),
        images: Arc::from([]),
        tools: Arc::from([]),
        tool_choice: ToolChoice::Auto,
        stream: true,
        timeout: Duration::from_secs(1),
    }
}

const POLICY: &str = include_str!("../data/attacks/policy.toml");
const AGENT: &str = r#"{"version": "1.0.0", "name": "solo", "displayName": "Solo", "description": "Works.",
 "parameters": {"issue": {"type": "number", "description": "N", "required": true, "cli": "--issue"}},
 "runner": {"flow": {"systemPromptPath": "prompts/system.md", "prompts": {"registry": "steps_registry.json"}},
 "verdict": {"type": "count:iteration", "config": {"maxIterations": 1}},
 "boundaries": {"permissionMode": "acceptEdits", "sandbox": {"enabled": true, "network": {"mode": "custom", "trustedDomains": ["*.example.org:8443"]}}}}}"#;
const REGISTRY: &str = r#"{"agentId": "solo", "version": "1.0.0", "c1": "steps", "entryStep": "initial.issue",
 "steps": {"initial.issue": {"stepId": "initial.issue", "name": "Work", "stepKind": "work", "c2": "initial", "c3": "issue",
 "edition": "default", "uvVariables": ["issue"], "usesStdin": false}}}"#;
const CONFIG: &str = "version = \"1.0\"\n[[repositories]]\nname = \"o/n\"\nagent = \"solo\"\nsweep = \"0 3 * * 1-5\"\n[budgets]\nmax_wall_time = \"15m\"\n\
                      [policy]\nfiles = [\"p.toml\"]\n[redaction]\npatterns = [\"[a-z]+\"]\n[verify]\ncommands = [[\"make\", \"test\"]]\n";

/// A file in a folder of its own.
fn in_folder(
    name: &'static str,
    read: impl Fn(&Path) -> usize + Send + 'static,
) -> impl Fn(&[u8]) -> usize + Send {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    move |bytes| {
        let file = folder.path().join(name);
        let around = file.parent().unwrap_or(folder.path());
        std::fs::create_dir_all(around)
            .and_then(|()| std::fs::write(&file, bytes))
            .unwrap_or_else(|error| panic!("{error}"));
        read(folder.path())
    }
}

fn of_repositories() -> Vec<Parser> {
    let load = |folder: &Path| {
        let env = Env::new(folder, [("HOME", "/nowhere")]);
        let request = Request {
            explicit: None,
            base: folder,
            repo: None,
            agent: None,
            flags: &[],
            entry: None,
            env: &env,
        };
        match Config::load(request) {
            Ok(config) => config.explain().len(),
            Err(error) => error.to_string().len(),
        }
    };
    let of_clone = |folder: &Path| {
        let env = Env::new("/nowhere", [("HOME", "/nowhere")]);
        let request = Request {
            explicit: None,
            base: Path::new("/nowhere"),
            repo: None,
            agent: None,
            flags: &[],
            entry: None,
            env: &env,
        };
        let repo = RepoName::parse("o/n").unwrap_or_else(|error| panic!("{error}"));
        Config::load(request).map_or(0, |config| size(&config.in_clone(folder, &repo, &env).clone_file()))
    };
    let agent = |file: &'static str, other: (&'static str, &'static str)| {
        in_folder(file, move |folder| {
            let own = folder.join(".agent/solo");
            let beside = folder.join(other.0);
            std::fs::create_dir_all(&own)
                .and_then(|()| std::fs::write(beside, other.1))
                .unwrap_or_else(|error| panic!("{error}"));
            match definition::load(folder, &own, &BTreeSet::new()) {
                Ok(loaded) => size(&loaded.diagnostics),
                Err(refused) => refused.to_string().len(),
            }
        })
    };
    vec![
        parser("agentd.toml", &[CONFIG], in_folder("agentd.toml", load)),
        parser("agentd.toml of a clone", &[CONFIG], in_folder("agentd.toml", of_clone)),
        parser(
            "agent.json",
            &[AGENT],
            agent(".agent/solo/agent.json", (".agent/solo/steps_registry.json", REGISTRY)),
        ),
        parser(
            "steps_registry.json",
            &[REGISTRY],
            agent(".agent/solo/steps_registry.json", (".agent/solo/agent.json", AGENT)),
        ),
        of_text("policy files", &[POLICY], |text| {
            let source = PolicySource { name: "p".into(), text: text.to_owned() };
            match read_policies(&[source]) {
                Ok(rules) => rules.rules().len(),
                Err(error) => error.to_string().len(),
            }
        }),
        of_text(
            "prompts",
            &["---\ntitle: x\noptions:\n  edition: [default]\n---\n# {uv-issue} {input_text}\n", "plain"],
            |text| {
                let parts = frontmatter::split(text);
                size(&parts.is_ok()) + Template::parse(text).map_or(0, |template| template.body().len())
            },
        ),
        of_text("prompt addresses", &["steps/initial/issue"], |text| size(&PromptAddress::parse(text))),
    ]
}

fn of_models() -> Vec<Parser> {
    let mut all = vec![
        of_text(
            "arguments, repaired",
            &[r#"{"path": "a", "content": "b\n"}"#, "{'a': 1,}", "```json\n{\"a\":[1,2]}\n```"],
            |text| size(&arguments::parse(text).is_ok()),
        ),
        of_text(
            "JSON in prose",
            &["Here: {\"next_action\": {\"action\": \"next\"}} done", "```json\n{}\n```"],
            |text| size(&output_schema::extract(text, &json!({ "type": "object" })).is_ok()),
        ),
        of_text("Retry-After", &["120", "Fri, 31 Dec 1999 23:59:59 GMT", "0.5"], |text| {
            let mut headers = HeaderMap::new();
            for name in ["retry-after", "retry-after-ms", "date"] {
                let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(text)) else {
                    return 0;
                };
                headers.insert(name, value);
            }
            let now = chrono::DateTime::UNIX_EPOCH;
            let with_ms = size(&llm::retry_after(&headers, now));
            headers.remove("retry-after-ms");
            with_ms + size(&llm::retry_after(&headers, now))
        }),
        of_answers(
            "refusals of providers",
            &[
                "429\nretry-after: 7\n\n{\"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow\"}}",
                "400\n\n[{\"error\":{\"code\":429,\"status\":\"RESOURCE_EXHAUSTED\",\"details\":[{\"retryDelay\":\"7.5s\",\"reason\":\"x\"}]}}]",
            ],
            |answers| {
                let read = |(status, headers, body): &Answer| {
                    size(&llm::providers::read_refusal(*status, headers, body.as_bytes()))
                };
                answers.iter().map(read).sum()
            },
        ),
    ];
    let streams = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\nevent: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"b\",\"input\":{}}}\n\nevent: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
        "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"hi\",\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}}]}\n\ndata: [DONE]\n\n",
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"type\":\"message\",\"content\":[{\"type\":\"output_text\",\"text\":\"hi\"}]}],\"usage\":{\"input_tokens\":1}}}\n\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\",\"args\":{}}}]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":1}}\n\n",
    ];
    let kinds =
        [ProviderKind::Anthropic, ProviderKind::Openai, ProviderKind::OpenaiResponses, ProviderKind::Gemini];
    let names = [
        ("stream of Anthropic", "reply of Anthropic"),
        ("stream of OpenAI", "reply of OpenAI"),
        ("stream of OpenAI Responses", "reply of OpenAI Responses"),
        ("stream of Gemini", "reply of Gemini"),
    ];
    for (kind, (stream, reply)) in kinds.into_iter().zip(names) {
        all.push(parser(stream, &streams, move |bytes| {
            // In slices as a network cuts them, in the middle of anything.
            let step = 1 + bytes.first().map_or(0, |byte| usize::from(*byte) % 50);
            size(&llm::providers::read_stream(kind, &request(), bytes.chunks(step)))
        }));
        let bodies: Vec<String> = streams
            .iter()
            .flat_map(|stream| stream.lines().filter_map(|line| line.strip_prefix("data: ")))
            .map(str::to_owned)
            .collect();
        let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
        all.push(parser(reply, &bodies, move |bytes| {
            size(&llm::providers::read_reply(kind, &request(), bytes))
        }));
    }
    all
}

/// Status, headers and body of an answer over HTTP.
type Answer = (u16, HeaderMap, String);

/// One that reads answers of HTTP, which are told apart by a line with `===`.
fn of_answers(
    name: &'static str,
    seeds: &[&str],
    read: impl Fn(&[Answer]) -> usize + Send + 'static,
) -> Parser {
    of_text(name, seeds, move |text| {
        let answers = text.split("\n===\n").map(|answer| {
            let (head, body) = answer.split_once("\n\n").unwrap_or((answer, ""));
            let mut lines = head.lines();
            let status = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(429);
            let header = |line: &str| {
                let (name, value) = line.split_once(':')?;
                Some((HeaderName::try_from(name).ok()?, HeaderValue::from_str(value.trim()).ok()?))
            };
            (status, lines.filter_map(header).collect(), body.to_owned())
        });
        read(&answers.collect::<Vec<_>>())
    })
}

/// Runs to its end here.
fn wait<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap_or_else(|error| panic!("{error}")).block_on(work)
}

fn of_agent_programs() -> Vec<Parser> {
    let programs: [(&str, Backend, &[&str]); 5] = [
        (
            "events of Claude Code",
            Backend::ClaudeCode,
            &[concat!(
                r#"{"type":"system","session_id":"s","model":"m"}"#,
                "\n",
                r#"{"type":"assistant","message":{"id":"a","model":"m","usage":{"input_tokens":10,"output_tokens":1},"content":[{"type":"text","text":"x"}]}}"#,
                "\n",
                r#"{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s","num_turns":2,"total_cost_usd":0.5,"usage":{"input_tokens":30,"cache_read_input_tokens":9},"structured_output":{"a":1}}"#,
                "\n"
            )],
        ),
        (
            "events of Codex",
            Backend::Codex,
            &[concat!(
                r#"{"type":"thread.started","thread_id":"t"}"#,
                "\n",
                r#"{"type":"turn.started"}"#,
                "\n",
                r#"{"type":"item.completed","item":{"type":"agent_message","text":"x"}}"#,
                "\n",
                r#"{"type":"turn.completed","usage":{"input_tokens":300,"cached_input_tokens":80,"output_tokens":15}}"#,
                "\n"
            )],
        ),
        (
            "events of Gemini CLI",
            Backend::Gemini,
            &[concat!(
                r#"{"type":"init","session_id":"s","model":"m"}"#,
                "\n",
                r#"{"type":"message","role":"assistant","content":"x","delta":true}"#,
                "\n",
                r#"{"type":"tool_use"}"#,
                "\n",
                r#"{"type":"result","status":"error","error":{"message":"no"},"stats":{"input_tokens":100,"cached":40,"output_tokens":7}}"#,
                "\n"
            )],
        ),
        (
            "events of OpenCode",
            Backend::OpenCode,
            &[concat!(
                r#"{"type":"step_start","sessionID":"s"}"#,
                "\n",
                r#"{"type":"text","sessionID":"s","part":{"text":"x"}}"#,
                "\n",
                r#"{"type":"step_finish","sessionID":"s","part":{"cost":0.1,"tokens":{"input":1,"output":2,"reasoning":3,"cache":{"read":4,"write":5}}}}"#,
                "\n",
                r#"{"type":"error","error":{"data":{"message":"no"}}}"#,
                "\n"
            )],
        ),
        (
            "messages of ACP",
            Backend::Acp,
            &[concat!(
                r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"text":"x"}}}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":{"toolCall":{"kind":"edit","locations":[{"path":"a"}],"rawInput":{"command":["a"]}},"options":[{"kind":"reject_once","optionId":"n"}]}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"usage_update","cost":{"amount":0.5,"currency":"USD"}}}}"#,
                "\n",
                r#"{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2}}}"#,
                "\n"
            )],
        ),
    ];
    let parser_of = |(name, backend, seeds)| {
        parser(name, seeds, move |bytes| size(&wait(agents::read_output(backend, bytes))))
    };
    programs.into_iter().map(parser_of).collect()
}

/// Bytes of an object that git keeps.
type Object = (ObjectType, Vec<u8>);

/// A repository with a file, a folder, a link and a submodule, and a worktree of it; what is written for one input is taken
/// away again.
struct Objects {
    _folder: tempfile::TempDir,
    repository: Repository,
    checkout: Checkout,
    worktree: Worktree,
    base: CommitId,
    tree: Oid,
    blob: Oid,
}

impl Objects {
    fn new() -> Self {
        Self::make().unwrap_or_else(|error| panic!("{error}"))
    }

    fn make() -> Result<Self, Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let home = AbsPath::new(folder.path())?.canonical()?;
        let path = home.join("repo");
        let repository = Repository::init(path.as_path())?;
        repository.set_head("refs/heads/main")?;
        let blob = repository.blob(b"one\ntwo\nthree\n")?;
        let link = repository.blob(b"src")?;
        let folder_of = |entries: &[(&str, Oid, i32)]| {
            let mut made = repository.treebuilder(None)?;
            for (name, id, mode) in entries {
                made.insert(name, *id, *mode)?;
            }
            made.write()
        };
        let below = folder_of(&[("lib.rs", blob, 0o100_644)])?;
        let tree =
            folder_of(&[("a.txt", blob, 0o100_644), ("link", link, 0o120_000), ("src", below, 0o040_000)])?;
        let who = git2::Signature::new("Ada", "ada@example.org", &git2::Time::new(0, 0))?;
        let base = repository.commit(
            Some("refs/heads/main"),
            &who,
            &who,
            "base\n",
            &repository.find_tree(tree)?,
            &[],
        )?;
        repository.checkout_head(Some(git2::build::CheckoutBuilder::new().force()))?;
        let environment =
            ["HOME", "PATH"].map(|name| (name.into(), std::env::var_os(name).unwrap_or_default()));
        let program = GitProgram::new(environment, CancellationToken::new());
        let base = CommitId::parse(&base.to_string())?;
        let plan = WorktreePlan {
            root: path.join(".worktrees"),
            name: "issue-1".to_owned(),
            branch: BranchName::parse("feature/issue-1")?,
            base: base.clone(),
            remote: None,
            population: Population::default(),
        };
        let (checkout, prepared) = wait(async {
            let checkout = Checkout::open(program, &path, false).await?;
            let prepared = checkout.prepare_worktree(&plan).await;
            Ok::<_, Box<dyn std::error::Error>>((checkout, prepared.map_err(|error| error.to_string())?))
        })?;
        let worktree = prepared.worktree;
        Ok(Self { _folder: folder, repository, checkout, worktree, base, tree, blob })
    }

    /// Writes objects as they are, well made or not; what agentd tells of the last one, which is a commit or a tree.
    fn told(&self, objects: impl FnOnce(&dyn Fn(&Object) -> Oid) -> (Option<Oid>, Option<Oid>)) -> usize {
        let made = std::cell::RefCell::new(Vec::new());
        let write = |(kind, bytes): &Object| {
            let odb = self.repository.odb().unwrap_or_else(|error| panic!("{error}"));
            let id = Oid::hash_object(*kind, bytes).unwrap_or_else(|error| panic!("{error}"));
            if !odb.exists(id) {
                odb.write(*kind, bytes).unwrap_or_else(|error| panic!("{error}"));
                made.borrow_mut().push(id);
            }
            id
        };
        let (commit, tree) = objects(&write);
        let inspect: Inspect = Arc::new(|lines: &[(u32, &str)]| {
            lines.iter().take(3).map(|(number, line)| (*number, line.chars().take(20).collect())).collect()
        });
        let tree = tree.map(|tree| tree.to_string());
        let head = commit.and_then(|commit| CommitId::parse(&commit.to_string()).ok());
        let known = [self.base.clone()];
        let told = wait(async {
            let bringing = self
                .worktree
                .outgoing((head.as_ref().unwrap_or(&self.base), tree.as_deref()), &known, (1 << 20, inspect))
                .await
                .map(|bringing| size(&bringing));
            let diff = match &head {
                Some(head) => {
                    self.checkout.diff(&self.base, head, 64 * 1024).await.map(|diff| diff.text.len())
                }
                None => Ok(0),
            };
            [bringing, diff]
        });
        for id in made.into_inner() {
            let name = id.to_string();
            let file = self.repository.path().join("objects").join(&name[..2]).join(&name[2..]);
            std::fs::remove_file(file).unwrap_or_else(|error| panic!("{error}"));
        }
        told.into_iter()
            .map(|told| {
                told.unwrap_or_else(|error| {
                    let error = error.to_string();
                    assert!(!error.contains("panicked"), "{error}");
                    error.len()
                })
            })
            .sum()
    }
}

/// Objects that an agent can have made in its own git directory.
fn of_git_objects() -> Vec<Parser> {
    let with =
        |name: &'static str, seeds: fn(&Objects) -> Vec<Vec<u8>>, read: fn(&Objects, &[u8]) -> usize| {
            let objects = Objects::new();
            Parser { name, seeds: seeds(&objects), read: Box::new(move |bytes| read(&objects, bytes)) }
        };
    vec![
        with(
            "diffs",
            |_| vec![b"one\n2\nthree\n".to_vec(), b"\xff\xfeo\0n\0e\0".to_vec(), b"a\r\nb".to_vec()],
            |objects, bytes| {
                objects.told(|write| {
                    let blob = write(&(ObjectType::Blob, bytes.to_vec()));
                    let tree = write(&(ObjectType::Tree, entry("100644 a.txt", blob)));
                    (Some(write(&(ObjectType::Commit, commit(tree, &objects.base, "m")))), Some(tree))
                })
            },
        ),
        with(
            "links",
            |_| [&b"src"[..], b"../src/./lib.rs", b"/etc", b""].map(<[u8]>::to_vec).into(),
            |objects, bytes| {
                objects.told(|write| {
                    let link = write(&(ObjectType::Blob, bytes.to_vec()));
                    let around = raw_of(objects, objects.tree);
                    let tree = [entry("120000 a", link), around].concat();
                    (None, Some(write(&(ObjectType::Tree, tree))))
                })
            },
        ),
        with(
            "trees",
            |objects| {
                let odd = |what| entry(what, objects.blob);
                vec![
                    raw_of(objects, objects.tree),
                    odd("160000 vendor"),
                    odd("60000 a.txt"),
                    [odd("60000 a"), odd("100644 a")].concat(),
                ]
            },
            |objects, bytes| {
                objects.told(|write| {
                    let tree = write(&(ObjectType::Tree, bytes.to_vec()));
                    (Some(write(&(ObjectType::Commit, commit(tree, &objects.base, "m")))), Some(tree))
                })
            },
        ),
        with(
            "commits",
            |objects| vec![commit(objects.tree, &objects.base, "subject\n\nbody\n")],
            |objects, bytes| objects.told(|write| (Some(write(&(ObjectType::Commit, bytes.to_vec()))), None)),
        ),
    ]
}

/// The bytes of an object.
fn raw_of(objects: &Objects, id: Oid) -> Vec<u8> {
    let odb = objects.repository.odb().unwrap_or_else(|error| panic!("{error}"));
    odb.read(id).map_or_else(|error| panic!("{error}"), |object| object.data().to_vec())
}

/// An entry of a tree; `what`: mode and name.
fn entry(what: &str, id: Oid) -> Vec<u8> {
    [what.as_bytes(), b"\0", id.as_bytes()].concat()
}

fn commit(tree: Oid, parent: &CommitId, message: &str) -> Vec<u8> {
    let who = "Ada <ada@example.org> 1700000000 +0100";
    format!("tree {tree}\nparent {parent}\nauthor {who}\ncommitter {who}\n\n{message}").into_bytes()
}

fn of_git() -> Vec<Parser> {
    let id = "0123456789012345678901234567890123456789";
    let seeds = [
        format!("{id}\trefs/heads/main\n{id}\trefs/heads/feature/issue-1\n"),
        format!(
            "To x\n!\t{id}:refs/heads/feature/issue-1\t[remote rejected] (hook)\n=\ta:refs/heads/b\t[up to date]\nDone\n"
        ),
        "a.bin\0filter\0lfs\0b\0filter\0unset\0".to_owned(),
        "vendor/\0a.txt\0b/c\0".to_owned(),
        format!("100644 {id} 1\ta.txt\x00100644 {id} 2\ta.txt\x00160000 {id} 0\tvendor\0"),
        "submodule.a.b.url\n../x\0submodule.c.path\nc\0".to_owned(),
    ];
    let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
    let branch = BranchName::parse("feature/issue-1").unwrap_or_else(|error| panic!("{error}"));
    let heads = [&format!("{id}\n"), "ref: refs/heads/main\n", "gitdir: ../elsewhere\n"];
    let folder = |bytes: &[u8], folder: &Path, name: &str| {
        let file = folder.join(name);
        let around = file.parent().unwrap_or(folder);
        std::fs::create_dir_all(around)
            .and_then(|()| std::fs::write(&file, bytes))
            .unwrap_or_else(|error| panic!("{error}"));
    };
    vec![
        of_text("lists of git", &seeds, move |text| {
            size(&output::heads(text))
                + size(&output::pushed(text, &branch))
                + size(&output::under_lfs(text))
                + size(&output::others(text))
                + size(&output::unmerged(text))
                + size(&output::submodule_entries(text))
                + size(&output::declared(text.as_bytes()))
                + size(&output::submodules(text.as_bytes()))
        }),
        parser(
            "HEAD of a repository in a submodule's folder",
            &heads,
            in_folder("HEAD", move |place| {
                let bytes = std::fs::read(place.join("HEAD")).unwrap_or_default();
                let place = place.join("submodule");
                let read = || AbsPath::new(&place).map_or(0, |place| size(&commit_in(&place)));
                // As the link to the repository, as its HEAD, as a ref of it, and as all of its refs.
                folder(&bytes, &place, ".git");
                let mut made = read();
                std::fs::remove_file(place.join(".git")).unwrap_or_else(|error| panic!("{error}"));
                folder(&bytes, &place, ".git/HEAD");
                made += read();
                folder(b"ref: refs/heads/main\n", &place, ".git/HEAD");
                folder(&bytes, &place, ".git/packed-refs");
                made += read();
                folder(&bytes, &place, ".git/refs/heads/main");
                made += read();
                std::fs::remove_dir_all(place.join(".git")).unwrap_or_else(|error| panic!("{error}"));
                made
            }),
        ),
    ]
}

fn limits_of_github() -> Parser {
    of_answers(
        "limits of GitHub",
        &[
            "403\ndate: Sat, 21 Nov 2026 08:00:00 GMT\nx-ratelimit-limit: 5000\nx-ratelimit-remaining: 0\nx-ratelimit-reset: 1795248090\nx-ratelimit-resource: core\n\nAPI rate limit exceeded",
            "429\nretry-after: 99999999999999999\n\nslow\n===\n429\n\nsecondary rate limit\n===\n200\n\n",
        ],
        |answers| {
            let answers = answers.iter().map(|(status, headers, body)| (*status, headers, body.as_str()));
            size(&github::read_limits(answers))
        },
    )
}

fn of_outsiders() -> Vec<Parser> {
    let mut all = vec![
        parser(
            "signatures of webhooks",
            &[
                "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
                "{\"action\":\"labeled\"}",
            ],
            |bytes| {
                let header = String::from_utf8_lossy(bytes);
                usize::from(http::is_signed(b"a secret of sixteen", bytes, &header))
            },
        ),
        parser(
            "MCP messages",
            &[
                r#"{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"x"}],"isError":false,"structuredContent":{"a":1}}}"#,
                r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"t","description":"d","inputSchema":{"type":"object","properties":{"a":{"$ref":"other"}}}}]}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}"#,
            ],
            |bytes| {
                let message = serde_json::from_slice::<rmcp::model::ServerJsonRpcMessage>(bytes);
                let whole = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
                let result = serde_json::from_value(whole["result"].clone())
                    .map(rmcp::model::CallToolResponse::Complete);
                let read = result.ok().map(|result| size(&mcp::read_answer("server", Ok(result))));
                size(&message.is_ok()) + read.unwrap_or(0)
            },
        ),
        parser("answers of policy programs", &[r#"{"decision":"allow","reason":"r"}"#], |bytes| {
            size(&policy_program::read_answer(bytes))
        }),
        parser("policy questions", &[r#"{"kind":"tool","tool":"x","arguments":{"path":"a"}}"#], |bytes| {
            serde_json::from_slice::<Value>(bytes).map_or(0, |value| size(&read_question(&value)))
        }),
    ];
    all.extend([
        of_text(
            "issue text",
            &["# Title\n\n- [ ] a\n<!-- b -->\n### What happened?\n\n_No response_\n", "@you closes #1 /cmd"],
            |text| {
                let incoming = untrusted::incoming(text, 65_536);
                let line = untrusted::incoming_line(text, 256);
                untrusted::fence("issue", &incoming).len()
                    + untrusted::fence("title", &line).len()
                    + untrusted::visible(text).len()
            },
        ),
        of_text(
            "text for GitHub",
            &["fixes #12, see @org/team <b>x</b> `a`", "/deploy\n\n```\nx\n```"],
            |text| {
                outgoing::body(text, Some(1)).len()
                    + outgoing::title(text).len()
                    + outgoing::commit_text(text, None).len()
                    + outgoing::plain_line(text, 100).len()
                    + outgoing::cut(text, 100, "cut").len()
            },
        ),
        parser(
            "issues from files",
            &["# Title\n\nBody\n", "Title\n=====\n\n```\n# no\n```\n"],
            in_folder("7.md", |folder| {
                let repo = RepoName::parse("o/n").unwrap_or_else(|error| panic!("{error}"));
                size(&issue::file::read(&folder.join("7.md"), &repo).is_ok())
            }),
        ),
        parser(
            "git's configuration",
            &[
                "local\0core.hookspath\n/x\0global\0filter.lfs.clean\ngit-lfs\0",
                "worktree\0url.x.insteadof\ny\0",
            ],
            |bytes| size(&git::hardening::judge(bytes)),
        ),
        of_text("what git says when it fails", &["fatal: x\nremote: y\n", "error: a\r\nhint: b"], |text| {
            git::error::last_lines(text).len()
        }),
        of_text(
            "names of git",
            &[
                "refs/heads/x",
                "0123456789012345678901234567890123456789",
                "git@github.com:o/n.git",
                "https://u:p@h:1/o/n.git",
                "[::1]:80",
            ],
            |text| {
                size(&BranchName::parse(text))
                    + size(&CommitId::parse(text))
                    + size(&RepoName::from_remote_url(text))
                    + size(&egress::split(text))
            },
        ),
    ]);
    all
}

/// How long each parser is tried; `None` = so many inputs as proptest is told.
fn seconds() -> Option<Duration> {
    std::env::var("AGENTD_FUZZ_SECONDS").ok()?.parse().ok().map(Duration::from_secs)
}

/// All of them at the same time where each has minutes.
fn try_all(parsers: Vec<Parser>) {
    if seconds().is_none() {
        return parsers.into_iter().for_each(try_one);
    }
    let tried: Vec<_> =
        parsers.into_iter().map(|one| (one.name, std::thread::spawn(move || try_one(one)))).collect();
    let wrong: Vec<&str> =
        tried.into_iter().filter_map(|(name, tried)| tried.join().is_err().then_some(name)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn try_one(Parser { name, seeds, read }: Parser) {
    let begun = Instant::now();
    let (mut tried, mut longest) = (0_u64, Duration::ZERO);
    let inputs = inputs(seeds);
    let wanted = Cases { failure_persistence: None, ..Cases::default() };
    loop {
        let (count, slowest) = (std::cell::Cell::new(0_u64), std::cell::Cell::new(Duration::ZERO));
        let outcome = TestRunner::new(wanted.clone()).run(&inputs, |bytes| {
            let watch = Instant::now();
            let made = read(&bytes);
            count.set(count.get() + 1);
            slowest.set(slowest.get().max(watch.elapsed()));
            prop_assert!(watch.elapsed() < LONGEST, "{} bytes took {:?}", bytes.len(), watch.elapsed());
            let most = bytes.len() * MOST.0 + MOST.1;
            prop_assert!(made <= most, "{} bytes became {made}", bytes.len());
            Ok(())
        });
        (tried, longest) = (tried + count.get(), longest.max(slowest.get()));
        if let Err(error) = outcome {
            panic!("{name}: {error}");
        }
        if seconds().is_none_or(|wanted| begun.elapsed() >= wanted) {
            break;
        }
    }
    println!("{name}: {tried} inputs in {:?}, the slowest {longest:?}", begun.elapsed());
}

#[test]
fn what_repositories_hold_is_read_or_refused_and_never_more() {
    try_all(of_repositories());
}

#[test]
fn what_models_and_their_providers_say_is_read_or_refused_and_never_more() {
    try_all(of_models());
}

#[test]
fn what_outsiders_servers_and_git_say_is_read_or_refused_and_never_more() {
    try_all(of_outsiders().into_iter().chain([limits_of_github()]).collect());
}

#[test]
fn what_agent_programs_say_is_read_or_refused_and_never_more() {
    try_all(of_agent_programs());
}

#[test]
fn what_git_prints_and_keeps_is_read_or_refused_and_never_more() {
    try_all(of_git().into_iter().chain(of_git_objects()).collect());
}
