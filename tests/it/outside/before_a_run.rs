//! What a run would stumble over is said before a model is paid for.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::doctor::answers;
use super::world::{GREEN, World, text};

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
