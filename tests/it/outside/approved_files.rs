//! What a person approved of a protected file leaves, and what anything else made of it does not.

use agentd::sim::ReplyFile;
use serde_json::{Value, json};

use super::daemons::until;
use super::solo::{calls, left, newest, reports, run, solo_of};
use super::started::delayed;
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

/// The world in which a command that a person decides on runs a script of the repository.
async fn with_script(replies: Vec<ReplyFile>) -> World {
    let rule = "[[rule]]\nid = \"deploy\"\nkind = \"tool\"\nname = \"run_command\"\neffect = \"deny\"\nreason = \"approval_required\"\n\
                public_reason = \"A person decides.\"\nwhen = { argv = [[\"sh\", \"release/install.sh\"]] }\n\
                [[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"everything else\"\n";
    solo_of(replies, Some(rule), "", |scenario| {
        let files = &mut scenario.repositories[0].commits[0].files;
        files.insert(PATH.to_owned(), "echo good > ran.txt\n".to_owned());
    })
    .await
}

fn deploys() -> (&'static str, Value) {
    ("run_command", json!({ "argv": ["sh", PATH] }))
}

/// Approves what the newest run left to a person, and gives it.
async fn approves(world: &World) -> Value {
    let suspended = left(world, "run.json")["suspendedProposals"].clone();
    let asked = suspended.as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
    let (code, granted) =
        world.json(&["approvals", "approve", asked["proposalHash"].as_str().unwrap()]).await;
    assert_eq!(code, Some(0), "{granted:#}");
    asked
}

fn ran(world: &World) -> Option<String> {
    std::fs::read_to_string(world.shop().join(".worktrees/issue-7/ran.txt")).ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn p_037_an_approved_command_runs_while_the_files_that_it_names_are_as_they_were() {
    let replies = vec![calls(&[deploys()]), calls(&[deploys()]), reports("Done.", json!([]))];
    let world = with_script(replies).await;
    let (_, output) = run(&world).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    let asked = approves(&world).await;
    assert_eq!(asked["files"][0]["path"], PATH, "{asked:#}");
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!((code, ran(&world).as_deref()), (Some(0), Some("good\n")), "{output:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_037_an_approved_command_whose_script_was_changed_since_is_asked_again_as_it_is_now() {
    let evil = ("write_file", json!({ "path": PATH, "content": "echo evil > ran.txt\n" }));
    let replies = vec![
        calls(&[deploys()]),
        calls(std::slice::from_ref(&evil)),
        calls(&[deploys()]),
        calls(&[evil]),
        calls(&[deploys()]),
        reports("Done.", json!([])),
    ];
    let world = with_script(replies).await;
    let (_, output) = run(&world).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    let before = approves(&world).await;
    let (_, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!((&output["stop_detail"], ran(&world)), (&json!("approval_pending"), None), "{output:#}");
    assert!(output.to_string().contains("since then release/install.sh has changed"), "{output:#}");
    // Nothing is approved any more: a daemon would begin it again and again.
    let (_, waits) = world.json(&["approvals", "list"]).await;
    assert_eq!((waits.as_array().unwrap().len(), &waits[0]["state"]), (1, &json!("waiting")), "{waits:#}");
    let asked = approves(&world).await;
    assert_eq!(asked["proposalHash"], before["proposalHash"]);
    assert_ne!(asked["files"], before["files"], "{asked:#}");
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!((code, ran(&world).as_deref()), (Some(0), Some("evil\n")), "a person wanted it: {output:#}");
    let warned = output["warnings"].to_string();
    assert!(warned.contains("approved_script_changed") && warned.contains(PATH), "{warned}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn p_037_a_script_that_an_earlier_call_of_the_same_reply_changes_does_not_run_on_the_approval() {
    let evil = ("write_file", json!({ "path": PATH, "content": "echo evil > ran.txt\n" }));
    let replies = vec![
        calls(&[deploys()]),
        calls(&[("read_file", json!({ "path": PATH })), evil, deploys()]),
        reports("Done.", json!([])),
    ];
    let world = with_script(replies).await;
    let (_, output) = run(&world).await;
    assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
    approves(&world).await;
    let (code, output) = world.json(&["runs", "resume", "latest"]).await;
    assert_eq!((code, ran(&world)), (Some(0), None), "{output:#}");
    let told = super::solo::asked(&world).last().unwrap().clone();
    assert!(told.contains("since then release/install.sh has changed. It did not run."), "{told}");
    world.finish().await;
}

/// A person decides on what the call names, and nobody may write where the link leads.
#[tokio::test(flavor = "multi_thread")]
async fn p_036_a_path_whose_link_leads_where_nobody_may_write_is_not_left_to_a_person() {
    let never = "[[rule]]\nid = \"never\"\nkind = \"tool\"\nname = \"write_file\"\neffect = \"deny\"\nreason = \"protected\"\n\
                 when = { path = [\".github/**\"] }\n";
    let (asks, all) = asks()
        .split_once("[[rule]]\nid = \"all\"")
        .map(|(asks, all)| (asks.to_owned(), all.to_owned()))
        .unwrap();
    let policy = format!("{asks}{never}[[rule]]\nid = \"all\"{all}");
    let link = command("mkdir -p .github && ln -s .github release");
    let write = ("write_file", json!({ "path": "release/ci.yml", "content": "on: push\n" }));
    let world = solo_of(vec![calls(&[link]), calls(&[write])], Some(&policy), "", |_| ()).await;
    let (code, output) = run(&world).await;
    assert_eq!((code, &output["stop_detail"]), (Some(1), &json!("policy_denied")), "{output:#}");
    let (_, waits) = world.json(&["approvals", "list"]).await;
    assert_eq!(waits, json!([]));
    world.finish().await;
}

/// Its effect is out, or may be, although the visit that made it is made again.
#[tokio::test(flavor = "multi_thread")]
async fn p_037_a_call_of_a_visit_that_was_cut_off_is_asked_again_with_what_is_known_of_it() {
    let rule = "[[rule]]\nid = \"ask\"\nkind = \"tool\"\nname = \"run_command\"\neffect = \"deny\"\nreason = \"approval_required\"\n\
                public_reason = \"A person decides.\"\n";
    for (line, event, known) in [
        ("sleep 60", "tool_started", "was killed in the middle of it: how it ended is not known"),
        ("true", "tool_finished", " made this call already, at "),
    ] {
        let call = || calls(&[command(line)]);
        let world = solo_of(vec![call(), call(), call(), call()], Some(rule), "", |_| ()).await;
        let (_, output) = run(&world).await;
        assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
        assert!(!output.to_string().contains("The interrupted run"), "{output:#}");
        approves(&world).await;
        // The reply after the call does not come before the kill.
        world.sim.inject(&delayed(1, 60_000)).unwrap();
        let mut resumes = world.command_in(&["runs", "resume", "latest"]);
        resumes.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut resumed = resumes.spawn().unwrap();
        let told = || {
            std::fs::read_to_string(newest(&world).join("events.jsonl"))
                .is_ok_and(|text| text.contains(event))
        };
        until(event, told).await;
        let killed = newest(&world).file_name().unwrap().to_str().unwrap().to_owned();
        resumed.kill().unwrap();
        resumed.wait().unwrap();
        world.sim.admin("DELETE", "faults", &json!({})).unwrap();
        let (_, output) = world.json(&["runs", "resume", "latest"]).await;
        assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
        let (_, waits) = world.json(&["approvals", "list"]).await;
        let because = waits[0]["public_reason"].as_str().unwrap();
        let whose = format!("The interrupted run {killed}");
        assert!(because.contains(&whose) && because.contains(known), "{because}");
        assert_eq!(because.contains("(exit code 0)"), event == "tool_finished", "{because}");
        assert!(because.contains("A person decides."), "{because}");
        let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
        assert!(comments.iter().any(|comment| comment.body.contains(known)), "{comments:#?}");
        world.sim.shutdown().await;
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
    let rewrite = || calls(std::slice::from_ref(&rewrite));
    let replies = vec![deploy(), rewrite(), deploy(), rewrite(), deploy(), reports("Done.", json!([]))];
    let world = solo_of(replies, Some(policy), "", |scenario| {
        let files = &mut scenario.repositories[0].commits[0].files;
        files.insert("deploy.sh".to_owned(), "echo deploy\n".to_owned());
    })
    .await;
    for _ in ["as it was", "as the run made it"] {
        let (_, output) = run(&world).await;
        assert_eq!(output["stop_detail"], "approval_pending", "{output:#}");
        approves(&world).await;
    }
    let (code, output) = run(&world).await;
    assert_eq!(code, Some(0), "{output:#}");
    let body = world.sim.pulls("demo/shop")[0].body.clone().unwrap();
    let comment = world.sim.issue("demo/shop", 7).unwrap().comments[0].body.clone();
    for told in [&body, &comment] {
        assert!(told.contains("it executes `deploy.sh`, which this run changed"), "{told}");
    }
    world.finish().await;
}
