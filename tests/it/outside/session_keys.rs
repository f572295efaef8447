//! The finer keys of `[session]` through the binary: loop guard, repairs, pages, what stands inline.

use serde_json::{Value, json};

use super::cases::{counted, done, finish, offered, reply, results, run, served};
use super::solo::{calls, left, newest};
use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn x_035_the_loop_guards_numbers_are_those_of_the_configuration() {
    let same = || calls(&[("desk__echo", json!({ "text": "same" }))]);
    let keys = "[session.loop_guard]\nwindow = 2\nthreshold = 2\noverrides = 2\n";
    let world = served(vec![same(), same(), same(), same(), same()], keys).await;
    let (code, output) = run(&world, &[]).await;
    assert_eq!((code, &output["stop_detail"]), (1, &json!("loop_detected")), "{output:#}");
    // The same again would end the same way.
    let next = world.json(&["runs", "report", "latest"]).await.1["next_steps"].to_string();
    assert!(next.contains("agentd runs log") && !next.starts_with("[\"Run again"), "{next}");
    let told = results(&world, 4);
    let refused: Vec<bool> =
        told.iter().map(|text| text.starts_with("(tool failed: the same call")).collect();
    assert_eq!(
        refused,
        [false, false, true, true],
        "two ran, two were refused, the fifth ended it: {told:?}"
    );
    finish(world).await;

    let world = served(Vec::new(), "[session.loop_guard]\nwindow = 2\n").await;
    let (code, output) = run(&world, &[]).await;
    assert_eq!((code, &output["stop_detail"]), (4, &json!("config_invalid")));
    let message = output["error"]["message"].as_str().unwrap();
    assert!(message.contains("session.loop_guard.threshold") && message.contains("window (2)"), "{message}");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_036_a_report_that_breaks_its_schema_is_sent_back_as_often_as_configured() {
    for (repairs, requests) in [(0, 2), (1, 4)] {
        let wrong = json!({ "final_report": { "report_format": "json", "content_json": { "no": 1 } }, "times": requests });
        let world = World::of(1, |scenario| scenario.model.replies = vec![reply(wrong)]).await;
        let overlay = std::fs::read_to_string(world.dir.path().join("overlay.toml")).unwrap();
        let keys = format!("[session]\nmax_retries = 5\nschema_repair_attempts = {repairs}\n");
        world.write("overlay.toml", &format!("{overlay}\n{keys}"));
        let (code, output) = world.json(&["run", "--issue", "7"]).await;
        assert_eq!((code, &output["stop_detail"]), (Some(5), &json!("schema_invalid")), "{output:#}");
        assert_eq!(
            world.sim.model_requests().len(),
            requests,
            "a turn and the last one, {repairs} repairs each"
        );
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x_032_pages_have_as_many_lines_as_configured() {
    let read = |more: Value| {
        let mut arguments = json!({ "path": "lib/cart.sh" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("read_file", arguments)
    };
    let replies = vec![calls(&[read(json!({})), read(json!({ "from_line": 4, "max_lines": 9 }))]), done()];
    let world = served(replies, "read_page_lines = 3\n").await;
    let lines = std::fs::read_to_string(world.shop().join("lib/cart.sh")).unwrap().lines().count();
    assert_eq!(run(&world, &[]).await.0, 0);
    let told = results(&world, 1);
    let facts: Value = serde_json::from_str(told[0].lines().next().unwrap()).unwrap();
    assert_eq!(
        (&facts["lines_shown"], &facts["lines_remaining"]),
        (&json!(3), &json!(lines - 3)),
        "{told:?}"
    );
    assert!(told[1].starts_with("(tool failed: ") && told[1].contains("max_lines"), "{told:?}");
    let tools = world.sim.model_requests()[0].body["tools"].clone();
    for tool in tools.as_array().unwrap() {
        let most = &tool["input_schema"]["properties"]["max_lines"]["maximum"];
        assert!(most.is_null() || *most == 3, "{tool:#}");
    }
    assert!(offered(&world, 0).contains(&"tool_output".to_owned()));
    finish(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x_031_what_stands_inline_in_a_record_is_as_long_as_configured() {
    let replies = vec![calls(&[("desk__big", json!({ "bytes": 900 })), ("desk__count", json!({}))]), done()];
    let world = served(replies, "inline_payload_max_bytes = 300\n").await;
    assert_eq!(run(&world, &[]).await.0, 0);
    assert_eq!((results(&world, 1)[0].len(), counted(&world)), (900, 1), "the model reads it all");
    let record = left(&world, "run.json");
    let outputs: Vec<&Value> = record["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["type"] == "tool_call_output_item")
        .map(|item| &item["output"]["data"])
        .collect();
    let (long, short) = (outputs[0], outputs[1]);
    assert_eq!(short["result"], "counted", "{short}");
    let kept = std::fs::read(newest(&world).join(long["$ref"].as_str().unwrap())).unwrap();
    assert_eq!(long["bytes"], json!(kept.len()));
    let (code, verified) = world.json(&["runs", "verify"]).await;
    assert_eq!(code, Some(0), "{verified:#}");
    finish(world).await;
}
