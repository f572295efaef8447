//! What a person approved of a protected file leaves, and what anything else made of it does not.

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::solo::{calls, left, reports, run, solo_of};
use super::world::World;

const PATH: &str = "release/install.sh";

/// A person decides on whatever touches `release`.
fn asks() -> String {
    let ask = |tool: &str| {
        format!(
            "[[rule]]\nid = \"ask-{tool}\"\nkind = \"tool\"\nname = \"{tool}\"\neffect = \"deny\"\nreason = \"approval_required\"\n\
             public_reason = \"A person decides on this file.\"\nwhen = {{ path = [\"release/**\"] }}\n"
        )
    };
    let all = "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"everything else\"\n";
    ["write_file", "edit_file", "read_file"].map(ask).concat() + all
}

fn edit() -> (&'static str, Value) {
    ("edit_file", json!({ "path": PATH, "old": "# version 1", "new": "# version 2" }))
}

fn read() -> (&'static str, Value) {
    ("read_file", json!({ "path": PATH }))
}

fn command(line: &str) -> (&'static str, Value) {
    ("run_command", json!({ "argv": ["sh", "-c", line] }))
}

/// The world in which somebody approved the first call, with the replies of what comes after.
async fn with_approved(first: (&'static str, Value), more: Vec<ReplyFile>) -> World {
    let replies = [vec![calls(&[first])], more].concat();
    let world = solo_of(replies, Some(&asks()), "", |scenario| {
        let files = &mut scenario.repositories[0].commits[0].files;
        files.insert(PATH.to_owned(), "echo install\n# version 1\n".to_owned());
    })
    .await;
    let (_, output) = run(&world).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    let suspended = left(&world, "run.json")["suspendedProposals"].clone();
    let hash = suspended[0]["proposalHash"].as_str().unwrap().to_owned();
    let (code, granted) = world.json(&["approvals", "approve", &hash]).await;
    assert_eq!(code, Some(0), "{granted:#}");
    world
}

/// What of the file is on the remote.
fn published(world: &World) -> Option<String> {
    let git_dir = world.sim.git_dir("demo/shop").unwrap();
    let file = agentd::sim::bare::file(&git_dir, "feature/issue-7", PATH)?;
    Some(String::from_utf8_lossy(&file).into_owned())
}

async fn is_refused(world: World, what: &str) {
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("policy_denied")), "{what}: {output:#}");
    assert!(output.to_string().contains(PATH), "{what}: {output:#}");
    assert!(world.sim.pulls("demo/shop").is_empty() && published(&world).is_none(), "{what}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d86_an_approved_edit_leaves_as_it_was_approved() {
    let world = with_approved(edit(), vec![calls(&[edit()]), reports("Done.", json!([]))]).await;
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    assert_eq!(published(&world).as_deref(), Some("echo install\n# version 2\n"));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d86_an_approval_covers_the_edit_and_nothing_that_a_command_wrote_beside_it() {
    let evil = "echo 'echo evil' >> release/install.sh";
    let done = || reports("Done.", json!([]));
    let cases = [
        ("before the edit", edit(), vec![calls(&[command(evil)]), calls(&[edit()]), done()]),
        ("instead of an edit that fails", edit(), {
            let all = calls(&[command("echo 'echo evil' > release/install.sh")]);
            vec![all, calls(&[edit()]), done()]
        }),
        ("after a look at it", read(), vec![calls(&[read()]), calls(&[command(evil)]), done()]),
        ("before a look at it", read(), vec![calls(&[command(evil)]), calls(&[read()]), done()]),
        ("that makes it a program", edit(), {
            vec![calls(&[edit()]), calls(&[command("chmod +x release/install.sh")]), done()]
        }),
    ];
    for (what, first, more) in cases {
        is_refused(with_approved(first, more).await, what).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn d86_a_trailer_that_an_agent_writes_brings_no_approval_of_an_earlier_run_back() {
    let write = ("write_file", json!({ "path": PATH, "content": "echo once\n" }));
    let back = "id=$(git log --format=%B | sed -n 's/^Agentd-Run: //p' | head -1); test -n \"$id\" || exit 1; \
                mkdir -p release; echo 'echo once' > release/install.sh; git add -A; \
                git commit -q -m \"Tidy\n\nAgentd-Run: $id\"";
    let more = vec![
        calls(std::slice::from_ref(&write)),
        reports("Done.", json!([])),
        calls(&[command(back)]),
        reports("Done.", json!([])),
    ];
    let world = with_approved(write, more).await;
    let (code, output) = run(&world).await;
    assert_eq!((code, published(&world).as_deref()), (Some(0), Some("echo once\n")), "{output:#}");
    // A person takes it away again.
    let removed = json!({ "branch": "feature/issue-7", "message": "Not now", "author": "Ada L. <7+ada@users.noreply.github.com>",
        "remove": [PATH] });
    world.sim.admin("POST", "repos/demo/shop/commits", &removed).unwrap();
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("policy_denied")), "{output:#}");
    assert_eq!(published(&world), None);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_command_that_executes_what_the_run_changed_is_told() {
    let deploy = || calls(&[("run_command", json!({ "argv": ["sh", "deploy.sh"] }))]);
    let rewrite = ("write_file", json!({ "path": "deploy.sh", "content": "echo other\n" }));
    let policy = "[[rule]]\nid = \"ask\"\nkind = \"tool\"\nname = \"run_command\"\neffect = \"deny\"\nreason = \"approval_required\"\n\
                  [[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"everything else\"\n";
    let replies = vec![deploy(), calls(&[rewrite]), deploy(), reports("Done.", json!([]))];
    let world = solo_of(replies, Some(policy), "", |scenario| {
        let files = &mut scenario.repositories[0].commits[0].files;
        files.insert("deploy.sh".to_owned(), "echo deploy\n".to_owned());
    })
    .await;
    let (_, output) = run(&world).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    let hash = left(&world, "run.json")["suspendedProposals"][0]["proposalHash"].as_str().unwrap().to_owned();
    assert_eq!(world.json(&["approvals", "approve", &hash]).await.0, Some(0));
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap();
    let comment = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
    for told in [&body, &comment] {
        assert!(told.contains("it executes `deploy.sh`, which this run changed"), "{told}");
    }
    world.finish().await;
}
