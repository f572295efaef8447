//! Attacks on rules: calls that look like allowed ones, and denied ones in disguise.

use agentd::definition::policy_file::{PolicySource, read_policies, read_question};
use agentd::domain::call_scope::CallScope;
use serde_json::{Value, json};

#[test]
fn p_038_no_disguised_call_slips_through_the_rules() {
    let source =
        PolicySource { name: "policy.toml".into(), text: include_str!("../data/attacks/policy.toml").into() };
    let rules = read_policies(&[source]).unwrap();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for line in include_str!("../data/attacks/policy.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let question = json!({ "kind": "tool", "tool": case["tool"], "arguments": case["arguments"] });
        let input = read_question(&question).unwrap();
        let verdict = rules.decide(&input, &CallScope::of(&input, None));
        let decision = serde_json::to_value(verdict.result.decision).unwrap();
        if decision != case["decision"] {
            wrong.push(format!(
                "{}: {} {} -> {decision} by {:?}",
                case["why"], case["tool"], case["arguments"], verdict.rule_id
            ));
        }
        seen += 1;
    }
    assert!(seen >= 100, "{seen} cases");
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
