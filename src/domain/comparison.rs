//! Compares two runs: what each asked for, did and was allowed. It leaves out what differs between any two runs
//! (P-041).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::run_output::RunOutput;
use super::run_record::RunRecord;
use super::trace::{Item, RecordText};

/// One place where two runs differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// JSON path, `$.toolCalls[2].arguments.path`.
    pub path: String,
    /// What the first run has there; `None` = nothing.
    pub a: Option<Value>,
    /// What the second has.
    pub b: Option<Value>,
}

/// The first differences, at most `most`; none = the runs are equal.
pub fn compare(a: (&RunRecord, &RunOutput), b: (&RunRecord, &RunOutput), most: usize) -> Vec<Difference> {
    let (a, b) = (comparable(a.0, a.1), comparable(b.0, b.1));
    let mut found = Vec::new();
    differ("$", Some(&a), Some(&b), &mut found, most);
    found
}

/// The parts that are compared: response, steps, tool calls, handoffs, policy, guardrails, prompts. Times, ids,
/// latencies and money are left out, also inside of texts.
fn comparable(record: &RunRecord, output: &RunOutput) -> Value {
    let mut calls: Vec<Map<String, Value>> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut handoffs = Vec::new();
    let mut messages = Vec::new();
    for item in &record.items {
        match item {
            Item::ToolCallItem { call_id, name, arguments, .. } => {
                places.insert(call_id, calls.len());
                calls.push(Map::from_iter([
                    ("name".to_owned(), json!(name)),
                    ("arguments".to_owned(), arguments.clone()),
                ]));
            }
            Item::ToolCallOutputItem { call_id, output, .. } => {
                if let Some(call) = places.get(call_id.as_str()).and_then(|place| calls.get_mut(*place)) {
                    call.insert("output".to_owned(), json!(output));
                }
            }
            Item::HandoffItem { from, to, output, .. } => {
                handoffs.push(json!({ "from": from, "to": to, "output": output }));
            }
            Item::Message { role: super::trace::ItemRole::Assistant, content } => {
                messages.push(json!(content));
            }
            // The host's part of a prompt has the date in it. The templates of the prompts are compared below.
            Item::Message { .. } => {}
        }
    }
    let policy: Vec<Value> = record
        .policy_decisions
        .iter()
        .map(|decision| {
            // A replay proposes the recorded arguments, which are redacted. So arguments are compared and hashes are
            // not.
            let call = places.get(decision.call_id.as_str()).and_then(|place| calls.get(*place));
            let redacted = call.is_some_and(|call| call["arguments"].to_string().contains("[redacted:"));
            json!({
                "resource": decision.resource, "decision": decision.decision, "reason": decision.reason,
                "publicReason": decision.public_reason, "denyMode": decision.deny_mode,
                "policyVersion": decision.policy_version, "ruleId": decision.rule_id,
                "proposalHash": (!redacted).then_some(&decision.proposal_hash),
            })
        })
        .collect();
    let guardrails: Vec<Value> = record
        .guardrail_decisions
        .iter()
        .map(|decision| json!({ "name": decision.guardrail_name, "decision": decision.decision, "reason": decision.reason }))
        .collect();
    let mut prompts: Vec<Value> = Vec::new();
    for prompt in &record.prompt_snapshots {
        let told = json!({ "visit": prompt.step_visit, "step": prompt.step_id, "templateHash": prompt.template_hash, "version": prompt.prompt_version });
        if prompts.last() != Some(&told) {
            prompts.push(told);
        }
    }
    let steps: Vec<Value> = output
        .steps
        .iter()
        .map(|step| json!({ "step": step.step_id, "verdict": step.verdict, "next": step.next, "forcedFinal": step.forced_final, "outputSha256": step.output_sha256 }))
        .collect();
    let claims: Vec<Value> = output
        .claims
        .iter()
        .map(|claim| json!({ "id": claim.claim_id, "statement": claim.statement, "kind": claim.kind, "status": claim.status, "reason": claim.reason }))
        .collect();
    let response = match &record.response {
        RecordText::Inline(text) => json!(text),
        RecordText::Kept(kept) => json!({ "sha256": kept.sha256 }),
    };
    let mut value = json!({
        "metadata": { "agent": record.agent_name, "status": record.status, "stop_reason": output.stop_reason, "stop_detail": output.stop_detail },
        "prompts": prompts,
        "steps": steps,
        "messages": messages,
        "toolCalls": calls,
        "handoffs": handoffs,
        "policy": policy,
        "guardrails": guardrails,
        "claims": claims,
        "response": response,
    });
    level(&mut value);
    value
}

/// Takes what no two runs share out of every text.
fn level(value: &mut Value) {
    match value {
        Value::String(text) => *text = levelled(text),
        Value::Array(items) => items.iter_mut().for_each(level),
        Value::Object(members) => members.values_mut().for_each(level),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn levelled(text: &str) -> String {
    static CHANGING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
        let shapes = [
            (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>"),
            (r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
            (r"\b\d{8}T\d{6}Z\b", "<time>"),
            (r"\b[0-9a-f]{40}\b", "<commit>"),
            (r"\b\d+(\.\d+)? ?(ms|µs|ns|s|seconds?|milliseconds?)\b", "<span>"),
            (r"\[redacted:([a-z0-9_]+):[0-9a-f]{8}\]", "[redacted:$1]"),
        ];
        shapes.into_iter().filter_map(|(shape, mark)| Some((Regex::new(shape).ok()?, mark))).collect()
    });
    let mut text = text.to_owned();
    for (shape, mark) in CHANGING.iter() {
        if let std::borrow::Cow::Owned(changed) = shape.replace_all(&text, *mark) {
            text = changed;
        }
    }
    text
}

fn differ(path: &str, a: Option<&Value>, b: Option<&Value>, found: &mut Vec<Difference>, most: usize) {
    if found.len() >= most || a == b {
        return;
    }
    match (a, b) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            for key in keys {
                differ(&format!("{path}.{key}"), a.get(key), b.get(key), found, most);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for place in 0..a.len().max(b.len()) {
                differ(&format!("{path}[{place}]"), a.get(place), b.get(place), found, most);
            }
        }
        (a, b) => found.push(Difference { path: path.to_owned(), a: a.cloned(), b: b.cloned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_041_times_ids_and_latencies_are_levelled_and_nothing_else() {
        let one =
            "run 0199b1d2-0000-7000-8000-00000000000a at 2026-01-02T03:04:05.678Z took 12.5 ms (42 tests)";
        let two = "run 0199ffff-1111-7222-8333-44444444444b at 2026-05-06 07:08:09Z took 9 ms (42 tests)";
        assert_eq!(levelled(one), levelled(two));
        assert_ne!(levelled(one), levelled(&two.replace("42", "43")));
    }

    #[test]
    fn p_041_differences_have_json_paths_in_order() {
        let a = json!({ "toolCalls": [{ "name": "x", "arguments": { "path": "a" } }], "response": "r" });
        let b = json!({ "toolCalls": [{ "name": "x", "arguments": { "path": "b" } }, { "name": "y" }], "response": "r" });
        let mut found = Vec::new();
        differ("$", Some(&a), Some(&b), &mut found, 10);
        let paths: Vec<&str> = found.iter().map(|difference| difference.path.as_str()).collect();
        assert_eq!(paths, ["$.toolCalls[0].arguments.path", "$.toolCalls[1]"]);
        assert_eq!(found[1].a, None);
    }
}
