//! Pull requests that agentd did not open: whatever they look like, nothing is started, labelled or written for them.

use agentd::sim::World as Sim;
use agentd::sim::world::{Check, Comment, HeadRepository, Pull, Review};

use super::{daemon, issue, label, labels, of, polled, said, told, world};
use crate::outside::daemons::until;

/// How a pull request differs from one that agentd opened for the issue of this number.
pub struct Looks {
    head: fn(u64) -> String,
    repository: fn() -> HeadRepository,
    body: fn(u64) -> String,
    author: &'static str,
}

fn branch(issue: u64) -> String {
    format!("feature/issue-{issue}")
}

fn marked(issue: u64) -> String {
    format!("<!-- agentd:issue-{issue} -->\nDone.\n\nCloses #{issue}")
}

fn here() -> HeadRepository {
    HeadRepository::Here
}

fn fork() -> HeadRepository {
    HeadRepository::Fork("mallory".into())
}

fn deleted() -> HeadRepository {
    HeadRepository::Deleted("mallory".into())
}

/// Somebody who has the repository's owner's name, as GitHub's `label` shows it.
fn deleted_of_owner() -> HeadRepository {
    HeadRepository::Deleted("demo".into())
}

const OWN: Looks = Looks { head: branch, repository: here, body: marked, author: "mallory" };

pub const ROWS: &[(&str, Looks)] = &[
    ("from a fork", Looks { repository: fork, ..OWN }),
    ("from a fork, without the marker", Looks { repository: fork, body: |_| "Done.".into(), ..OWN }),
    ("from a deleted fork", Looks { repository: deleted, ..OWN }),
    (
        "from a deleted fork, without the marker",
        Looks { repository: deleted, body: |_| "Done.".into(), ..OWN },
    ),
    ("from a deleted fork of the owner's name", Looks { repository: deleted_of_owner, ..OWN }),
    (
        "from a deleted fork, by agentd's own account",
        Looks { repository: deleted, author: "agentd-demo", ..OWN },
    ),
    (
        "from the branch, by hand, without the marker",
        Looks { body: |_| "By hand.".into(), author: "wes", ..OWN },
    ),
    (
        "from the branch, with the marker of another issue",
        Looks { body: |_| marked(7), author: "wes", ..OWN },
    ),
    (
        "from the branch, with the marker further down",
        Looks { body: |n| format!("Hi.\n{}", marked(n)), ..OWN },
    ),
    (
        "from the branch, with the marker in a code block",
        Looks { body: |n| format!("```\n{}", marked(n)), ..OWN },
    ),
    (
        "from the branch, with a marker of another kind",
        Looks { body: |n| format!("<!-- agentd:issue-{n}:x -->"), ..OWN },
    ),
    ("from a branch with a leading zero", Looks { head: |n| format!("feature/issue-0{n}"), ..OWN }),
    ("from a branch with a plus sign", Looks { head: |n| format!("feature/issue-+{n}"), ..OWN }),
    ("from a branch below the issue's", Looks { head: |n| format!("feature/issue-{n}/x"), ..OWN }),
    ("from a branch in another case", Looks { head: |n| format!("Feature/issue-{n}"), ..OWN }),
];

/// A pull request whose check fails.
fn open(sim: &mut Sim, number: u64, for_issue: u64, looks: &Looks) {
    let base = agentd::sim::bare::head(&sim.repositories[0].git_dir, "develop").unwrap();
    issue(sim, number, looks.author);
    let (id, at) = (sim.new_id(), sim.now());
    let own = of(sim, number);
    own.body = Some((looks.body)(for_issue));
    own.updated_at = at;
    own.pull = Some(Pull {
        head: (looks.head)(for_issue),
        head_repository: (looks.repository)(),
        base: "develop".into(),
        head_sha: base.clone(),
        base_sha: base.clone(),
        ..Pull::default()
    });
    sim.repositories[0].checks.push(Check {
        id,
        on: base,
        name: "lint".into(),
        run: true,
        outcome: Some("failure".into()),
        description: Some("EVIL".into()),
        at,
        ..Check::default()
    });
}

/// Somebody with rights wants a pull request changed.
fn review(sim: &mut Sim, number: u64) {
    let (id, at) = (sim.new_id(), sim.now());
    let comment = Comment {
        id,
        author: "ada".into(),
        body: "EVIL".into(),
        created_at: at,
        updated_at: at,
        ..Comment::default()
    };
    let own = of(sim, number);
    own.updated_at = at;
    let pull = own.pull.as_mut().unwrap();
    let commit = pull.head_sha.clone();
    pull.reviews.push(Review { comment, state: "CHANGES_REQUESTED".into(), commit });
}

/// An issue that a maintainer asked for and that is done.
fn delivered(sim: &mut Sim, number: u64) {
    label(sim, number, "agentd", "ada");
    sim.set_label(0, number, "agentd", "agentd-demo", false);
    label(sim, number, "agentd:done", "agentd-demo");
}

const FIRST: u64 = 300;
const PULLS: u64 = 400;

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_agentd_did_not_open_starts_labels_and_writes_nothing() {
    let world = world().await;
    {
        let mut sim = world.sim.world();
        for (place, (_, looks)) in ROWS.iter().enumerate() {
            let number = FIRST + place as u64;
            issue(&mut sim, number, "nina");
            delivered(&mut sim, number);
            open(&mut sim, PULLS + place as u64, number, looks);
        }
        // The one that agentd could have opened.
        issue(&mut sim, 99, "nina");
        delivered(&mut sim, 99);
        open(&mut sim, 98, 99, &Looks { author: "agentd-demo", ..OWN });
    }
    let daemon = daemon(&world).await;
    polled(&world, 2).await;
    {
        let mut sim = world.sim.world();
        (0..ROWS.len() as u64).for_each(|place| review(&mut sim, PULLS + place));
        review(&mut sim, 98);
    }
    until("what is agentd's own is followed", || !told(&world, 99).is_empty()).await;
    {
        let mut sim = world.sim.world();
        for place in 0..ROWS.len() as u64 {
            sim.add_comment(0, PULLS + place, "ada", "/agentd run");
            sim.add_comment(0, PULLS + place, "mallory", "/agentd run");
        }
    }
    polled(&world, 5).await;
    let mut wrong = Vec::new();
    for (place, (name, _)) in ROWS.iter().enumerate() {
        let (issue, pull) = (FIRST + place as u64, PULLS + place as u64);
        let said = [said(&world, issue), said(&world, pull)].concat();
        let (on_issue, on_pull) = (labels(&world, issue), labels(&world, pull));
        let runs = told(&world, issue).len();
        if runs > 0 || !said.is_empty() || on_issue != ["agentd:done"] || !on_pull.is_empty() {
            wrong.push(format!("{name}: {runs} requests to the model, {on_issue:?}, {on_pull:?}, {said:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    daemon.stop().await;
    world.finish().await;
}
