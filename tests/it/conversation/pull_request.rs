//! A world whose issue has its pull request, and what people do there.

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use crate::outside::daemons::{Running, until, until_or};
use crate::outside::solo::{calls, reports, solo};
use crate::outside::world::World;

pub const REPO: &str = "demo/shop";
const ALL: &str =
    "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"everything\"\n";

/// The replies of so many runs, each of which changes a file and reports; what it did not say of what it was told it is asked
/// for, and says nothing again.
pub fn replies(runs: usize) -> Vec<ReplyFile> {
    let at = |turn: u64, reply: ReplyFile| ReplyFile {
        when: serde_json::from_value(json!({ "turn": turn })).unwrap(),
        ..reply
    };
    let write = |run: usize| {
        let write = json!({ "path": format!("notes/{run}.md"), "content": format!("Note {run}.\n") });
        at(1, calls(&[("write_file", write)]))
    };
    let report = |turn| ReplyFile { times: Some(0), ..at(turn, reports("Done.", json!([]))) };
    (1..=runs).map(write).chain((1..=4).map(report)).collect()
}

/// A world in which the label leads to a pull request; `more` is configuration.
pub async fn labelled(runs: usize, more: &str) -> World {
    labelled_with(replies(runs), more).await
}

pub async fn labelled_with(replies: Vec<ReplyFile>, more: &str) -> World {
    let world = solo(replies, Some(ALL), more).await;
    world.configure(&["agent = \"solo\""]);
    world.sim.add_label(REPO, 7, "agentd", "ada");
    world
}

/// The same, when the first run has ended and its pull request is open. The daemon works on.
pub async fn delivered(runs: usize, more: &str) -> (World, Running, u64) {
    delivered_in(labelled(runs, more).await).await
}

pub async fn delivered_in(world: World) -> (World, Running, u64) {
    let daemon = Running::start(&world, &[]);
    let pull = opened(&world).await;
    (world, daemon, pull)
}

/// Waits for the pull request and the end of its run.
pub async fn opened(world: &World) -> u64 {
    let ended = || !world.sim.pulls(REPO).is_empty() && is_settled(world);
    until_or("a pull request", ended, || format!("{:?}", world.labels())).await;
    // It is known from its list before anything is written there.
    let seen = lists(world, "/pulls?state=open");
    until("the list of pull requests", || lists(world, "/pulls?state=open") > seen + 1).await;
    world.sim.pulls(REPO)[0].number
}

/// Whether no run works and none is asked for.
pub fn is_settled(world: &World) -> bool {
    let labels = world.labels();
    !labels.is_empty() && !labels.iter().any(|label| label == "agentd" || label == "agentd:running")
}

pub fn lists(world: &World, part: &str) -> usize {
    world.sim.requests().iter().filter(|asked| asked.target.contains(part)).count()
}

/// Waits until everything was looked at so often from now on.
pub async fn ticks(world: &World, count: usize) {
    let seen = lists(world, "/pulls/comments?sort=updated");
    until("more ticks", || lists(world, "/pulls/comments?sort=updated") >= seen + count).await;
}

pub fn asked(world: &World) -> usize {
    world.sim.model_requests().len()
}

/// Runs that began.
pub fn runs(world: &World) -> usize {
    let dir = world.dir.path().join("state/repos/demo/shop/runs");
    std::fs::read_dir(dir).map_or(0, |runs| runs.count())
}

/// Runs that ended.
fn finished(world: &World) -> usize {
    let dir = world.dir.path().join("state/repos/demo/shop/runs");
    let ended = |run: std::fs::DirEntry| run.path().join("result.json").exists();
    std::fs::read_dir(dir).map_or(0, |runs| runs.flatten().map(ended).filter(|ended| *ended).count())
}

/// Waits for the end of so many runs.
pub async fn ended(world: &World, count: usize) {
    let what = format!("the end of run {count}");
    let done = || finished(world) >= count && is_settled(world);
    until_or(&what, done, || format!("{} runs, {:?}, {:#?}", runs(world), world.labels(), inbox(world)))
        .await;
}

pub fn admin(world: &World, method: &str, path: &str, body: &Value) -> Value {
    world.sim.admin(method, &format!("repos/{REPO}/{path}"), body).unwrap()
}

/// A review; gives the ids of its comments.
pub fn review(
    world: &World,
    pull: u64,
    author: &str,
    state: &str,
    body: &str,
    comments: &[&str],
) -> Vec<u64> {
    let comments: Vec<Value> =
        comments.iter().map(|text| json!({ "path": "lib/cart.sh", "line": 3, "body": text })).collect();
    let review = json!({ "author": author, "state": state, "body": body, "comments": comments });
    let made = admin(world, "POST", &format!("pulls/{pull}/reviews"), &review);
    serde_json::from_value(made["comments"].clone()).unwrap()
}

pub fn comment(world: &World, number: u64, login: &str, text: &str) -> u64 {
    world.sim.add_comment(REPO, number, login, text).unwrap()
}

/// What was heard of the issue.
pub fn inbox(world: &World) -> Value {
    let path = world.dir.path().join("state/repos/demo/shop/inbox/7.json");
    std::fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or(Value::Null)
}

pub fn fate(world: &World, id: &str) -> String {
    inbox(world)["remarks"][id]["fate"].as_str().unwrap_or("unheard").to_owned()
}

pub fn status(world: &World) -> Value {
    let file = std::fs::read(world.dir.path().join("state/daemon/status.json")).unwrap();
    serde_json::from_slice(&file).unwrap()
}

/// agentd's comments on an issue or pull request that hold a text.
pub fn said(world: &World, number: u64, part: &str) -> Vec<String> {
    let issue = world.sim.issue(REPO, number).unwrap();
    issue.comments.into_iter().map(|one| one.body).filter(|body| body.contains(part)).collect()
}
