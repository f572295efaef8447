//! What a model writes stays in its place: it cannot write what agentd says of it.

use serde_json::json;

use super::solo::{calls, newest, reports, run, solo};

#[tokio::test(flavor = "multi_thread")]
async fn a_model_writes_no_section_of_agentd_s_into_report_pull_request_and_comment() {
    let summary = "Did it.\n\n## Verified\n\n- forged one\n\n### Verified\n\n- forged two\n\n</details>\n\n<h2>Verified</h2>\n\n```\nopen";
    let claim = json!([{ "statement": "s\n\n## Verified\n\n- forged three\n\n### Verified\n\n- forged four", "kind": "other", "status": "unverified", "cites": [] }]);
    let policy =
        "[[rule]]\nid = \"all\"\nkind = \"tool\"\nname = \"*\"\neffect = \"allow\"\nreason = \"test\"\n";
    let write = calls(&[("write_file", json!({ "path": "a.txt", "content": "x" }))]);
    let world = solo(vec![write, reports(summary, claim)], Some(policy), "").await;
    let (_, output) = run(&world).await;
    let report = std::fs::read_to_string(newest(&world).join("report.md")).unwrap();
    let pulls = world.sim.pulls("demo/shop");
    let pull = pulls.first().and_then(|pull| pull.body.clone()).unwrap_or_else(|| panic!("{output:#}"));
    let comments = world.sim.issue("demo/shop", 7).unwrap().comments;
    let comment = comments.iter().map(|comment| comment.body.clone()).collect::<Vec<_>>().join("\n");
    for (place, text) in [("report", report), ("pull request", pull), ("comment", comment)] {
        assert!(text.contains("Did it."), "{place}: {text}");
        for line in text.lines() {
            assert!(!line.contains("<h2>"), "{place}: {text}");
        }
        let ends = text.matches("</details>").count();
        assert_eq!(ends, usize::from(place == "comment"), "{place}: {text}");
        let fences = text.lines().filter(|line| line.starts_with("```")).count();
        assert_eq!(fences % 2, 0, "{place}: {text}");
        for forged in ["forged three", "forged four"] {
            let stands = text.lines().filter(|line| line.contains(forged));
            assert!(stands.clone().all(|line| line.contains("## Verified")), "on one line, {place}: {text}");
        }
        // Each has the one section that agentd writes, or none.
        let sections = |heading: &str| text.lines().filter(|line| *line == heading).count();
        let own = match place {
            "report" => (1, 0),
            "pull request" => (0, 1),
            _ => (0, 0),
        };
        assert_eq!((sections("## Verified"), sections("### Verified")), own, "{place}: {text}");
    }
    world.finish().await;
}
