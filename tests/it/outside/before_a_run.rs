//! What a run would stumble over is said before a model is paid for.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::doctor::answers;
use super::world::{GREEN, World, text};

/// A step between planning and changing, as somebody would add it to the agent that `agentd init` writes.
const ADDED: &str = "continuation.review";

/// The world after `agentd init`, its agent with one step more, which the policy does not know.
async fn with_a_step_more() -> World {
    let world = world_of().await;
    let file = ".agent/resolver/steps_registry.json";
    let mut registry: Value =
        serde_json::from_slice(&std::fs::read(world.shop().join(file)).unwrap()).unwrap();
    let steps = &mut registry["steps"];
    let mut added = steps["initial.issue"].clone();
    added["stepId"] = json!(ADDED);
    added.as_object_mut().unwrap().remove("gate");
    added["transitions"] =
        json!({ "next": { "target": "continuation.issue" }, "repeat": { "target": ADDED } });
    steps[ADDED] = added;
    steps["initial.issue"]["transitions"]["next"]["target"] = json!(ADDED);
    world.write(&format!("shop/{file}"), &registry.to_string());
    world
}

async fn world_of() -> World {
    let world = World::of(1, |scenario| scenario.model.replies.push(answers())).await;
    world.verify(GREEN);
    world
}

fn overlay(world: &World, more: &str) {
    let file = world.dir.path().join("overlay.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    let own = text.split("# more\n").next().unwrap();
    world.write("overlay.toml", &format!("{own}# more\n{more}\n"));
}

fn policy(world: &World) -> String {
    std::fs::read_to_string(world.shop().join(".agent/policy.toml")).unwrap()
}

/// What doctor says of `what`, with its state.
async fn doctor(world: &World, what: &str) -> Vec<String> {
    let (_, told) = world.json(&["doctor"]).await;
    let findings = told["findings"].as_array().unwrap().iter().filter(|finding| finding["what"] == what);
    findings
        .map(|finding| format!("{}: {} → {}", finding["state"], finding["told"], finding["remedy"]))
        .collect()
}

/// A dry run and a run are refused with these words, and nothing is made or paid for.
async fn refused(world: &World, words: &[&str]) {
    let asked = world.sim.model_requests().len();
    for args in [&["run", "--issue", "7", "--dry-run"][..], &["run", "--issue", "7"]] {
        let (code, output) = world.json(args).await;
        assert_eq!((code, &output["stop_detail"]), (Some(4), &json!("config_invalid")), "{output:#}");
        let said = output["error"]["message"].as_str().unwrap_or_default();
        for word in words {
            assert!(said.contains(word), "{word}: {output:#}");
        }
    }
    assert_eq!(world.sim.model_requests().len(), asked, "no model was asked");
    assert!(!world.shop().join(".worktrees/issue-7").exists(), "nothing was made");
}

async fn checked(world: &World) -> (Option<i32>, Vec<Value>) {
    let (code, told) = world.json(&["agents", "check", "resolver"]).await;
    let found = told["agents"][0]["findings"].as_array().unwrap().clone();
    (code, found.into_iter().filter(|found| found["code"] == "SR-POLICY-001").collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_the_policy_of_init_does_not_know_is_told_before_a_model_is_paid_for() {
    let world = with_a_step_more().await;
    let edge = "handoff from \"initial.issue\" to \"continuation.review\": its rule \"no-other-handoff\"";
    let (code, found) = checked(&world).await;
    assert_eq!((code, found.len()), (Some(0), 1), "{found:#?}");
    assert_eq!((&found[0]["severity"], &found[0]["file"]), (&json!("warning"), &json!(".agent/policy.toml")));
    assert!(found[0]["message"].as_str().unwrap().contains(edge), "{found:#?}");
    let (code, planned) = world.json(&["run", "--issue", "7", "--dry-run"]).await;
    assert!(code == Some(0) && planned["warnings"][0].as_str().unwrap().contains(edge), "{planned:#}");
    let told = doctor(&world, "policy").await;
    let edge = edge.replace('"', "\\\"");
    assert!(told.iter().any(|told| told.starts_with("\"problem\"") && told.contains(&edge)), "{told:#?}");

    // What it says helps.
    let rule = "[[rule]]\nid = \"to-continuation.review\"\nkind = \"handoff\"\nname = \"continuation.review\"\n\
                effect = \"allow\"\nreason = \"a step of this flow\"\n\n";
    let fix = found[0]["fix"].as_str().unwrap();
    for line in rule.lines().filter(|line| !line.is_empty()) {
        assert!(fix.contains(line), "{line}: {fix}");
    }
    let other = "[[rule]]\nid = \"no-other-handoff\"";
    world.write("shop/.agent/policy.toml", &policy(&world).replace(other, &format!("{rule}{other}")));
    assert_eq!(checked(&world).await, (Some(0), Vec::new()));
    let (code, planned) = world.json(&["run", "--issue", "7", "--dry-run"]).await;
    assert_eq!((code, &planned["warnings"]), (Some(0), &json!([])), "{planned:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_names_programs_of_the_work_that_are_not_there() {
    let world = World::new(0).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let servers =
        "[mcp.servers.away]\ncommand = \"/nowhere/server\"\n[mcp.servers.there]\ncommand = \"sh\"\n";
    let work = "[worktree]\nsetup = [[\"no-such-program-at-all\", \"x\"], [\"./of-the-worktree\"]]\n";
    world.write("overlay.toml", &format!("{overlay}\n{servers}{work}"));
    let (code, planned) = world.json(&["run", "--issue", "7", "--dry-run"]).await;
    let warned = planned["warnings"].to_string();
    assert_eq!(code, Some(0), "{planned:#}");
    for told in [
        "mcp.servers.away: there is no program /nowhere/server",
        "worktree.setup: there is no program no-such-program-at-all in the PATH",
    ] {
        assert!(warned.contains(told), "{told}: {planned:#}");
    }
    assert!(!warned.contains("servers.there") && !warned.contains("of-the-worktree"), "{planned:#}");
    world.finish().await;
}

/// Its first step would fail with a comment on the issue.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_program_that_is_not_there_is_told_before_a_run() {
    let world = World::new(0).await;
    let file = world.shop().join(".agent/resolver/agent.json");
    let mut agent: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    agent["runner"]["agentd"]["backend"] = json!("acp");
    agent["runner"]["agentd"]["program"] = json!({ "argv": ["no-such-agent"], "sandbox": "off" });
    world.write("shop/.agent/resolver/agent.json", &agent.to_string());
    let told = "acp: there is no program no-such-agent in the PATH";
    let (code, planned) = world.json(&["run", "--issue", "7", "--dry-run"]).await;
    assert!(code == Some(0) && planned["warnings"].to_string().contains(told), "{planned:#}");
    let (code, checked) = world.json(&["config", "check"]).await;
    assert!(code == Some(0) && checked["warnings"].to_string().contains(told), "{checked:#}");
    let (code, found) = world.json(&["agents", "check", "resolver"]).await;
    let found = &found["agents"][0]["findings"];
    assert!(code == Some(0) && found.to_string().contains(told), "{found:#}");
    assert_eq!(found[0]["severity"], "warning", "{found:#}");
    // One that is there is not told of.
    agent["runner"]["agentd"]["program"]["argv"] = json!(["sh"]);
    world.write("shop/.agent/resolver/agent.json", &agent.to_string());
    for args in [&["run", "--issue", "7", "--dry-run"][..], &["config", "check"]] {
        let (code, told) = world.json(args).await;
        assert_eq!((code, &told["warnings"]), (Some(0), &json!([])), "{args:?}: {told:#}");
    }
    world.finish().await;
}

/// The work would be paid for, and could not be published.
#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_says_that_a_push_would_fail_where_branches_are_pushed() {
    let world = World::of(0, |scenario| {
        let may =
            json!({ "contents": "read", "issues": "write", "pull_requests": "write", "metadata": "read" });
        scenario.tokens[0].permissions = Some(serde_json::from_value(may).unwrap());
    })
    .await;
    let text = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    world.write("overlay.toml", &text.replacen("[github]\n", "[github]\nproject_field = \"\"\n", 1));
    let (code, planned) = world.json(&["run", "--issue", "7", "--dry-run"]).await;
    let warned = planned["warnings"].to_string();
    assert!(code == Some(0) && warned.contains("a push would fail"), "{planned:#}");
    assert!(warned.contains("contents, read and write"), "{planned:#}");
    let (code, planned) = world.json(&["run", "--issue", "7", "--dry-run", "--publish", "none"]).await;
    assert_eq!((code, &planned["warnings"]), (Some(0), &json!([])), "{planned:#}");
    world.finish().await;
}

/// Somebody wants it so, and the flow may have other ways.
#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_denies_a_handoff_by_name_is_a_warning_and_one_that_asks_a_person_is_none() {
    let world = with_a_step_more().await;
    let of_init = policy(&world);
    let rule = |reason: &str| {
        let rule = format!(
            "[[rule]]\nid = \"later\"\nkind = \"handoff\"\nname = \"{ADDED}\"\neffect = \"deny\"\nreason = \"{reason}\"\n\n"
        );
        world.write("shop/.agent/policy.toml", &format!("{rule}{of_init}"));
    };
    rule("not_yet");
    let (code, found) = checked(&world).await;
    assert_eq!((code, &found[0]["severity"]), (Some(0), &json!("warning")), "{found:#?}");
    let (code, planned) = world.json(&["run", "--issue", "7", "--dry-run"]).await;
    let warned = planned["warnings"][0].as_str().unwrap_or_default();
    assert!(code == Some(0) && warned.contains("its rule \"later\" does (not_yet)"), "{planned:#}");
    let told = doctor(&world, "policy").await;
    assert!(told.iter().any(|told| told.starts_with("\"warning\"") && told.contains("later")), "{told:#?}");
    rule("approval_required");
    assert_eq!(checked(&world).await, (Some(0), Vec::new()));
    world.finish().await;
}

/// Such a run begins, and ends at its first handoff (P-003); who asks before hears it.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_without_rules_about_handoffs_is_told_and_a_program_may_allow_them() {
    let world = world_of().await;
    let text = policy(&world);
    let tools: Vec<&str> =
        text.split("[[rule]]").filter(|rule| !rule.contains("kind = \"handoff\"")).collect();
    world.write("shop/.agent/policy.toml", &tools.join("[[rule]]"));
    let (code, found) = checked(&world).await;
    let edges: Vec<&str> = found.iter().filter_map(|found| found["message"].as_str()).collect();
    assert_eq!((code, edges.len()), (Some(0), 5), "{edges:#?}");
    let words = "none of its rules is about handoffs (policy_not_configured)";
    assert!(edges.iter().all(|edge| edge.contains(words)), "{edges:#?}");
    let told = doctor(&world, "policy").await;
    assert!(told.iter().any(|told| told.starts_with("\"problem\"") && told.contains(words)), "{told:#?}");
    let (code, planned) = world.json(&["run", "--issue", "7", "--dry-run"]).await;
    assert!(code == Some(0) && planned["warnings"][4].to_string().contains(words), "{planned:#}");
    overlay(&world, "[policy]\nprogram = [\"true\"]");
    assert_eq!(checked(&world).await, (Some(0), Vec::new()));
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rest_tool_that_could_not_be_offered_is_told_before_a_run() {
    let world = world_of().await;
    let tool = |name: &str, url: &str| {
        format!("[rest.tools.{name}]\nurl = \"{url}\"\ndescription = \"Says the time.\"\n")
    };
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = format!("http://{}/time", server.local_addr().unwrap());
    let asked = tokio::spawn(async move {
        let (mut client, _) = server.accept().await.unwrap();
        let mut request = vec![0; 4096];
        let length = client.read(&mut request).await.unwrap();
        client.write_all(b"HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n").await.unwrap();
        text(&request[..length])
    });
    let tools = [tool("good", &here), tool("silent", "http://127.0.0.1:9/x"), tool("bad", "example.org/x")];
    overlay(&world, &tools.concat());
    let told = doctor(&world, "rest").await;
    for (state, words) in [
        ("problem", "rest.tools.bad.url: does not begin with a fixed address"),
        ("warning", "silent: 127.0.0.1:9 does not answer"),
        ("ok", "good: 127.0.0.1:"),
    ] {
        let is = |told: &String| told.starts_with(&format!("\"{state}\"")) && told.contains(words);
        assert!(told.iter().any(is), "{words}: {told:#?}");
    }
    let asked = asked.await.unwrap();
    assert!(asked.starts_with("HEAD / HTTP/1.1\r\n"), "no tool is called: {asked}");
    refused(&world, &["rest.tools.bad.url"]).await;
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_template_that_is_not_there_is_told_before_a_run() {
    let world = world_of().await;
    for named in ["docs/GONE.md", "tests"] {
        overlay(&world, &format!("[conversation]\npull_request_template = \"{named}\""));
        let words = format!("There is no text file {named} in the origin branch develop at ");
        let told = doctor(&world, "template").await;
        assert!(told.len() == 1 && told[0].starts_with("\"problem\""), "{told:#?}");
        assert!(told[0].contains(&words) && told[0].contains("set conversation.pull_request_template"));
        refused(&world, &[&words]).await;
    }
    overlay(&world, "[conversation]\npull_request_template = \"./README.md\"");
    let told = doctor(&world, "template").await;
    assert_eq!(told, ["\"ok\": \"README.md is on develop\" → null"]);
    let (code, planned) = world.json(&["run", "--issue", "7", "--dry-run"]).await;
    assert_eq!(code, Some(0), "{planned:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_the_operator_that_are_not_there_are_told_before_a_run() {
    let world = world_of().await;
    for key in ["redaction", "policy"] {
        overlay(&world, &format!("[{key}]\nprogram = [\"no-such-program-here\"]"));
        let words = format!("{key}.program: there is no program no-such-program-here in the PATH");
        refused(&world, &[&words]).await;
        let told = doctor(&world, "program").await;
        assert!(told.iter().any(|told| told.contains(&words)), "{told:#?}");
    }
    world.finish().await;
}

/// The word that says where the flow goes is withheld then: no model is to blame for that.
#[tokio::test(flavor = "multi_thread")]
async fn a_redaction_program_that_fails_is_named_and_not_the_model() {
    let world = world_of().await;
    overlay(&world, "[redaction]\nprogram = [\"sh\", \"-c\", \"exit 3\"]");
    let (code, output) = world.json(&["run", "--issue", "7"]).await;
    assert_eq!((code, &output["stop_detail"]), (Some(4), &json!("config_invalid")), "{output:#}");
    let said = output["error"]["message"].as_str().unwrap();
    assert!(said.starts_with("redaction.program (`sh -c 'exit 3'`) failed: exit 3."), "{said}");
    assert!(said.contains("mend the program, or take it out of agentd.toml"), "{said}");
    let warnings = output["warnings"].as_array().unwrap().iter();
    assert_eq!(warnings.filter(|warning| warning["code"] == "redaction_failed").count(), 1, "{output:#}");
    let told = doctor(&world, "redaction").await;
    assert!(told[0].contains("redaction.program (`sh -c 'exit 3'`) failed: exit 3"), "{told:#?}");
    world.finish().await;
}
