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

mod agent_programs;
mod git_output;
mod models;
mod outsiders;
mod repositories;

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
use agentd::domain::{outgoing, output_schema, shown_markdown, untrusted};
use agentd::engine::model::{ModelRequest, ToolChoice};
use agentd::engine::{arguments, policy_program};
use agentd::git::outgoing::Inspect;
use agentd::git::plain_head::commit_in;
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
    try_all(repositories::parsers());
}

#[test]
fn what_models_and_their_providers_say_is_read_or_refused_and_never_more() {
    try_all(models::parsers());
}

#[test]
fn what_outsiders_servers_and_git_say_is_read_or_refused_and_never_more() {
    try_all(outsiders::parsers().into_iter().chain([outsiders::limits_of_github()]).collect());
}

#[test]
fn what_agent_programs_say_is_read_or_refused_and_never_more() {
    try_all(agent_programs::parsers());
}

#[test]
fn what_git_prints_and_keeps_is_read_or_refused_and_never_more() {
    try_all(git_output::printed().into_iter().chain(git_output::objects()).collect());
}
