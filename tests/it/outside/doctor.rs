//! `agentd doctor` against a whole world: everything in order, then one thing after the other wrong.

use serde_json::Value;

use super::world::World;

/// What doctor finds of `what`: state and text.
fn of<'a>(told: &'a Value, what: &str) -> Vec<(&'a str, String)> {
    let findings = told["findings"].as_array().unwrap().iter();
    let of = findings.filter(|finding| finding["what"] == what);
    of.map(|finding| {
        (finding["state"].as_str().unwrap(), format!("{} → {}", finding["told"], finding["remedy"]))
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_asks_everyone_and_names_a_remedy_for_what_is_wrong() {
    let world = World::new(1).await;
    let (code, told) = world.json(&["doctor"]).await;
    assert_eq!(code, Some(0), "{told:#}");
    for what in
        ["git", "repository", "configuration", "credentials", "models", "agent", "github", "origin", "policy"]
    {
        assert_eq!(of(&told, what)[0].0, "ok", "{what}: {told:#}");
    }
    assert_eq!(of(&told, "labels")[0].0, "warning", "{told:#}");
    assert!(of(&told, "labels")[0].1.contains("gh label create agentd"), "{told:#}");
    assert!(world.sim.model_requests().is_empty(), "looking costs nothing");

    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let wrong = [
        ("${GITHUB_TOKEN}", "${MODEL_KEY}", "github", "401"),
        ("recorded-model", "other-model", "models", "recorded-model"),
        (world.sim.model_url_anthropic().as_str(), "http://127.0.0.1:9", "models", "does not answer"),
    ]
    .map(|(from, to, what, told)| (overlay.replace(from, to), what, told));
    for (text, what, expected) in wrong {
        world.write("overlay.toml", &text);
        let (code, told) = world.json(&["doctor"]).await;
        let found = of(&told, what);
        assert!(
            found.iter().any(|(state, text)| *state != "ok" && text.contains(expected)),
            "{what}: {told:#}"
        );
        assert_eq!(code == Some(0), found.iter().all(|(state, _)| *state != "problem"), "{told:#}");
    }
    world.write("overlay.toml", &overlay);
    let config = std::fs::read_to_string(world.shop().join(".agent/agentd.toml")).unwrap();
    world.write(
        "shop/.agent/agentd.toml",
        &config.replace("origin_branch = \"develop\"", "origin_branch = \"gone\""),
    );
    std::fs::remove_dir_all(world.shop().join(".agent/resolver")).unwrap();
    let (code, told) = world.json(&["doctor"]).await;
    assert_eq!(code, Some(1));
    assert!(of(&told, "origin")[0].1.contains("no branch gone"), "{told:#}");
    assert!(of(&told, "agent")[0].1.contains("agentd init"), "{told:#}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_the_mcp_tools_that_a_run_would_go_without() {
    let world = World::new(1).await;
    let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/attacks/mcp_server.py");
    let server = |name: &str, mode: &str, more: &str| {
        let notes = world.dir.path().join("answers");
        format!(
            "[mcp.servers.{name}]\ncommand = \"python3\"\nargs = [{script:?}, \"{mode}\", {notes:?}]\n{more}\n"
        )
    };
    let servers = [
        server("half", "no-schema", ""),
        server("optional", "null-tools", "required = false"),
        server("whole", "notices", ""),
    ];
    world.write("overlay.toml", &format!("{overlay}\n{}", servers.concat()));
    let (code, told) = world.json(&["doctor"]).await;
    assert_eq!(code, Some(0), "{told:#}");
    let found = of(&told, "mcp");
    for (state, words) in [
        ("warning", "its tool bad is left out: it has no inputSchema"),
        ("warning", "MCP server optional did not list its tools"),
        ("ok", "half: 1 tool"),
        ("ok", "whole: 1 tool"),
    ] {
        assert!(found.iter().any(|(is, text)| *is == state && text.contains(words)), "{words}: {found:#?}");
    }
    assert!(!found.iter().any(|(is, text)| *is == "ok" && text.contains("optional")), "{found:#?}");
    // What a run could not even begin with is a problem.
    world.write("overlay.toml", &format!("{overlay}\n{}", server("broken", "null-tools", "")));
    let (code, told) = world.json(&["doctor"]).await;
    assert_eq!(code, Some(1), "{told:#}");
    let found = of(&told, "mcp");
    assert!(found[0].0 == "problem" && found[0].1.contains("did not list its tools"), "{found:#?}");
    world.finish().await;
}
