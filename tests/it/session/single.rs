//! Single calls and handoffs: the same gate without a session (S-023…S-031, P-003, P-046, C-27).

use agentd::domain::event::Event;
use agentd::engine::single_call::SingleCall;
use agentd::engine::tool::BoundParameter;
use serde_json::{Value, json};

use super::world::{Does, TestTool, World};

fn world() -> World {
    World::new(Vec::new())
}

#[tokio::test(start_paused = true)]
async fn s_023_s_024_s_025_every_end_of_a_call_is_an_answer() {
    let world = world();
    let done = world.call("echo", "{\"a\":1}").await.unwrap();
    assert_eq!(done.answer().envelope().data, Some(json!({ "status": "success", "result": "{\"a\":1}" })));
    let failed = world.call("fail", "{}").await.unwrap().answer().envelope().data.clone().unwrap();
    assert_eq!((&failed["status"], &failed["message"]), (&"error".into(), &"boom".into()));
    let unknown = world.call("nope", "{}").await.unwrap();
    assert_eq!(unknown.answer().envelope().code.as_deref(), Some("unknown_tool"), "S-026");
    let wrong = world.call("big", "{\"bytes\":\"x\"}").await.unwrap();
    assert_eq!(wrong.answer().envelope().code.as_deref(), Some("invalid_arguments"), "S-029");
    let broken = world.call("big", "{").await.unwrap();
    assert_eq!(broken.answer().envelope().code.as_deref(), Some("invalid_arguments"));
    let ledger = world.journal.events.lock().unwrap();
    assert_eq!(ledger.iter().filter(|event| matches!(event, Event::ToolFinished { .. })).count(), 2, "A-077");
}

#[tokio::test(start_paused = true)]
async fn s_025_a_denied_call_does_not_run() {
    let world = world().with(|world| world.policy.clear());
    let denied = world.call("count", "{}").await.unwrap();
    assert!(matches!(denied, SingleCall::Denied(_)), "{denied:?}");
    assert_eq!(denied.answer().envelope().code.as_deref(), Some("policy_not_configured"));
    assert_eq!(world.tools["count"].runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn s_031_the_principal_is_the_callers_whatever_the_arguments_say() {
    let schema = json!({ "type": "object", "properties": { "user_id": { "type": "string" } } });
    let whoami = TestTool::with_schema("whoami", Does::Echo, schema).bound(&[BoundParameter::UserId]);
    let answer = world().tool(whoami).call("whoami", "{\"user_id\":\"evil\"}").await.unwrap();
    assert!(!answer.answer().text().contains("evil"), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn p_003_p_046_a_handoff_passes_the_same_gate_and_carries_its_payload() {
    let rule =
        "[[rule]]\nid = \"h\"\nkind = \"handoff\"\nname = \"b\"\neffect = \"allow\"\nreason = \"ok\"\n";
    let soft = "[[rule]]\nid = \"s\"\nkind = \"handoff\"\nname = \"c\"\neffect = \"deny\"\nreason = \"later\"\ndeny_mode = \"tool_result\"\n";
    let world = world().with(|world| world.policy = format!("{rule}{soft}"));
    let accepted = world.hand_off("a", "b", &json!({ "x": 1 })).await.unwrap();
    let expected = json!({ "handoffTo": "b", "accepted": true, "payload": { "x": 1 } });
    assert_eq!(accepted.envelope().data, Some(expected));
    let denied = world.hand_off("a", "c", &json!({})).await.unwrap();
    assert_eq!(denied.envelope().code.as_deref(), Some("later"));
    let halt = world.hand_off("a", "d", &json!({})).await.unwrap_err();
    assert_eq!(halt.failure().error_name, "HandoffPolicyDenied");
    let items: Vec<Value> = world
        .journal
        .events
        .lock()
        .unwrap()
        .iter()
        .filter_map(|event| match event {
            Event::ItemRecorded { item, .. } => Some(serde_json::to_value(item).unwrap()),
            _ => None,
        })
        .collect();
    let places: Vec<(&Value, &Value)> = items.iter().map(|item| (&item["type"], &item["to"])).collect();
    let handoff = Value::from("handoff_item");
    assert_eq!(places, [(&handoff, &"b".into()), (&handoff, &"c".into()), (&handoff, &"d".into())]);
}
