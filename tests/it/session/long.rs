//! What a turn of a long conversation costs: what it adds, and not what was there.

use std::collections::HashSet;
use std::sync::Arc;

use agentd::domain::event::Event;
use agentd::domain::message::Messages;
use agentd::domain::name::RepoName;
use agentd::domain::run::RunId;
use agentd::engine::model::{Model, ModelError, ModelReply, ModelRequest};
use agentd::engine::session::{SessionWorld, run_session};
use agentd::store::journal_file::FileJournal;
use agentd::store::run_dir::StateDir;
use agentd::sys::clock::Clock;
use futures::future::BoxFuture;
use serde_json::json;
use uuid::Uuid;

#[cfg(target_os = "linux")]
use super::memory::{begin, grown, is_alone};
use super::scripted::reply;
use super::world::{Line, World, call, report};

const TURNS: u64 = 40;
/// Bytes of a tool's output.
const OUTPUT: u64 = 200_000;

/// A session that gets a long output in every turn but the last.
fn world(turns: u64) -> World {
    let calls = (0..turns).map(|turn| call("big", json!({ "bytes": OUTPUT + turn })));
    World::new(calls.chain([report("ok")]).collect()).settings(|settings| {
        settings.max_turns = 1_000;
        settings.tool_response_max_bytes = 1_000_000;
        settings.targets[0].context_window = 1_000_000_000;
        settings.targets[0].price = None;
    })
}

/// Where the texts of messages are in memory.
fn places(messages: &Messages) -> HashSet<*const u8> {
    messages.iter().map(|message| message.text().as_ptr()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_copies_no_text_of_the_requests_before_it() {
    let ran = world(TURNS).run().await;
    assert_eq!(ran.requests.len() as u64, TURNS + 1);
    let mut copied = 0;
    for pair in ran.requests.windows(2) {
        let before = places(&pair[0].messages);
        let same = pair[1].messages.iter().take(pair[0].messages.len());
        copied += same
            .map(|message| message.text())
            .filter(|text| !before.contains(&text.as_ptr()))
            .map(str::len)
            .sum::<usize>();
    }
    assert_eq!(copied, 0, "bytes of text that were in the request before and were copied for the next");
}

#[tokio::test(start_paused = true)]
async fn each_turn_adds_as_much_to_the_journal_as_the_one_before() {
    let world = world(TURNS);
    let journal = Arc::clone(&world.journal);
    world.run().await;
    let mut turns = vec![0];
    for event in journal.events.lock().unwrap().iter() {
        *turns.last_mut().unwrap() += serde_json::to_vec(event).unwrap().len();
        if matches!(event, Event::LlmAttempted { .. }) {
            turns.push(0);
        }
    }
    // From one request to the next, without the opening and the report.
    let turns = &turns[1..turns.len() - 2];
    let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
    assert_eq!(turns.len() as u64, TURNS - 1);
    // Longer are the figures in it.
    assert!(most * 10 < least * 11, "{least} to {most} bytes a turn");
}

/// A model that writes each request as JSON, as every wire does.
struct Writes;

impl Model for Writes {
    fn complete<'a>(&'a self, request: &'a ModelRequest) -> BoxFuture<'a, Result<ModelReply, ModelError>> {
        let body = serde_json::to_vec(&request.messages).unwrap();
        let turn = (request.messages.len() as u64 - 2) / 2;
        let line = match turn == TURNS * 2 {
            true => report("ok"),
            false => Line::Reply(reply("", &[("big", json!({ "bytes": OUTPUT + turn }))])),
        };
        Box::pin(async move {
            drop(body);
            match line {
                Line::Reply(reply) => Ok(reply),
                other => panic!("{other:?}"),
            }
        })
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_long_conversation_takes_less_than_three_times_its_text() {
    const THIS: &str = "session::long::a_long_conversation_takes_less_than_three_times_its_text";
    if !is_alone(THIS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let world = world(0).with(|world| world.provider = Some(Arc::new(Writes)));
    let session = world.session_world();
    let repo = RepoName::parse("o/n").unwrap();
    let dir = StateDir::new(folder.path().to_owned()).run(&repo, RunId(Uuid::now_v7()));
    let journal = FileJournal::open(dir, Clock::system(), Arc::clone(&session.redactor)).unwrap();
    let session = SessionWorld { journal: Arc::new(journal), ..session };
    // What any session needs is there before it is measured: the program's own code, too.
    let short = self::world(1);
    run_session(short.request(), &short.session_world()).await;
    let before = begin();
    let outcome = run_session(world.request(), &session).await;
    let most = grown(before);
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    let text: u64 = outcome.messages.iter().map(|message| message.text().len() as u64).sum();
    assert!(text > 2 * TURNS * OUTPUT, "{text}");
    println!("{text} bytes of text: {most} more in memory at most");
    assert!(most < 3 * text, "{most} bytes more for a conversation of {text}");
}
