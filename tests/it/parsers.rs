//! Parsers that see bytes of others (git, GitHub, models, MCP servers, repositories, issues), tried with bytes that nobody
//! would send: none panics, none takes long, none makes much of little.
//!
//! Some hundred inputs each with every run of the tests (`PROPTEST_CASES` sets how many); `AGENTD_FUZZ_SECONDS=600 cargo test
//! --test it parsers` tries each for ten minutes.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "how long to try is for whoever starts the tests to say, and they are told what was tried"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agentd::config::{Config, Env, ProviderKind, Request};
use agentd::definition::policy_file::{PolicySource, read_policies, read_question};
use agentd::domain::egress;
use agentd::domain::message::Message;
use agentd::domain::name::{BranchName, CommitId, RepoName};
use agentd::domain::target::Target;
use agentd::domain::{outgoing, output_schema, untrusted};
use agentd::engine::model::{ModelRequest, ToolChoice};
use agentd::engine::{arguments, policy_program};
use agentd::prompt::{address::PromptAddress, frontmatter, template::Template};
use agentd::{definition, git, http, lifecycle, llm, mcp};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};
use serde_json::{Value, json};

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
type Read = Box<dyn Fn(&[u8]) -> usize>;

/// A parser with what it reads when all is well.
struct Parser {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    read: Read,
}

fn parser(name: &'static str, seeds: &[&str], read: impl Fn(&[u8]) -> usize + 'static) -> Parser {
    Parser { name, seeds: seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect(), read: Box::new(read) }
}

/// One that reads text, as it comes after what is no UTF-8 was replaced.
fn of_text(name: &'static str, seeds: &[&str], read: impl Fn(&str) -> usize + 'static) -> Parser {
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
    let target: Target = serde_json::from_value(target).unwrap_or_else(|error| panic!("{error}"));
    ModelRequest {
        target,
        messages: vec![Message::User { content: "hello".into() }],
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
fn in_folder(name: &'static str, read: impl Fn(&Path) -> usize + 'static) -> impl Fn(&[u8]) -> usize {
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
                size(&lifecycle::issue_file::read(&folder.join("7.md"), &repo).is_ok())
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

fn try_all(parsers: Vec<Parser>) {
    for Parser { name, seeds, read } in parsers {
        let begun = Instant::now();
        let (mut tried, mut longest) = (0_u64, Duration::ZERO);
        let inputs = inputs(seeds.clone());
        let wanted = Cases { failure_persistence: None, ..Cases::default() };
        loop {
            let cases = wanted.cases;
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
            if seconds().is_none_or(|wanted| begun.elapsed() >= wanted) || cases == 0 {
                break;
            }
        }
        println!("{name}: {tried} inputs in {:?}, the slowest {longest:?}", begun.elapsed());
    }
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
    try_all(of_outsiders());
}
