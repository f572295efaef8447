//! Attacks by people and by what they write on GitHub: who × what, on one running daemon a table; what comes of it is seen
//! in the simulator.

mod pulls;
mod rights;
mod storms;
mod texts;

use agentd::sim::World as Sim;
use agentd::sim::world::{Issue, Role};
use serde_json::json;

use crate::outside::daemons::{Running, until};
use crate::outside::solo::{reports, solo_of};
use crate::outside::world::World;

/// The attacks of this surface.
pub const CASES: usize =
    rights::ROWS.len() + texts::ROWS.len() + pulls::ROWS.len() + storms::FORGED.len() + storms::STORMS.len();

const _: () = assert!(CASES >= 50, "at least fifty attacks by people");

/// Who there is, beside `ada` (maintain) and agentd's own account (write).
const PEOPLE: [(&str, Option<Role>); 9] = [
    ("mallory", None),
    ("nina", None),
    ("rita", Some(Role::Read)),
    ("tom", Some(Role::Triage)),
    ("wes", Some(Role::Write)),
    ("rex", Some(Role::Write)),
    ("helper[bot]", None),
    ("ada[bot]", None),
    ("ghost", None),
];

/// A world where whatever is started ends after one request to the model, and a person of each kind.
async fn world() -> World {
    let mut done = reports("Done.", json!([]));
    done.times = Some(0);
    let more = "[daemon]\npoll_interval = \"1s\"\nmax_concurrent_runs = 8\nmax_runs_per_repository = 8\n";
    let world = solo_of(vec![done], None, more, |_| ()).await;
    let file = "shop/.agent/agentd.toml";
    let toml = std::fs::read_to_string(world.dir.path().join(file)).unwrap();
    world.write(file, &toml.replace("agent = \"resolver\"", "agent = \"solo\""));
    let mut sim = world.sim.world();
    for (login, role) in PEOPLE {
        sim.user(login);
        if let Some(role) = role {
            sim.repositories[0].collaborators.insert(login.to_owned(), role);
        }
    }
    drop(sim);
    world
}

/// An old issue of somebody's whose title and body name it.
fn issue(sim: &mut Sim, number: u64, author: &str) {
    let (id, opened) = (sim.new_id(), sim.now() - chrono::TimeDelta::hours(10));
    let (title, body) = (format!("TITLE-{number}."), format!("BODY-{number}."));
    let issue = Issue::new(id, number, author, &title, Some(body), opened);
    sim.repositories[0].issues.insert(number, issue);
}

fn of(sim: &mut Sim, number: u64) -> &mut Issue {
    sim.repositories[0].issues.get_mut(&number).unwrap()
}

fn label(sim: &mut Sim, number: u64, name: &str, by: &str) {
    sim.set_label(0, number, name, by, true);
}

/// What the model was told in the runs of an issue.
fn told(world: &World, number: u64) -> Vec<String> {
    let named = format!("Work on issue {number}.");
    let asked = world.sim.model_requests();
    asked.iter().map(|one| one.body.to_string()).filter(|body| body.contains(&named)).collect()
}

/// Comments of agentd's on an issue or pull request.
fn said(world: &World, number: u64) -> Vec<String> {
    let comments = world.sim.issue("demo/shop", number).unwrap().comments;
    comments.into_iter().filter(|one| one.author == "agentd-demo").map(|one| one.body).collect()
}

fn labels(world: &World, number: u64) -> Vec<String> {
    world.sim.issue("demo/shop", number).unwrap().labels
}

/// Polls of the comments, which end a tick's reading.
fn polls(world: &World) -> usize {
    let requests = world.sim.requests();
    requests.iter().filter(|asked| asked.target.contains("/issues/comments?")).count()
}

async fn polled(world: &World, times: usize) {
    let seen = polls(world);
    until("more polls", || polls(world) >= seen + times).await;
}

/// A running daemon that has read what there was.
async fn daemon(world: &World) -> Running {
    let daemon = Running::start(world, &[]);
    until("a first reading", || polls(world) >= 2).await;
    daemon
}
