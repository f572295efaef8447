//! Tool calls between the wires and the engine: ids that are unique, arguments that stay as the model wrote them.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::json;
use crate::domain::message::{Message, ToolCall, sent_arguments};
use crate::engine::model::ModelRequest;

/// A call as the provider sent it. Some servers omit the id or repeat it.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct RawCall {
    pub id: Option<String>,
    pub name: String,
    pub arguments: String,
}

/// Gives each call an id that is unique in the conversation, and `{}` as the arguments of a call that needs none.
/// An id that is made up depends on the place in the conversation alone, so that the same replies give the same ids.
/// Nothing else is repaired.
pub(super) fn identify(raw: Vec<RawCall>, request: &ModelRequest) -> Vec<ToolCall> {
    let mut taken: HashSet<String> = HashSet::new();
    for message in &request.messages {
        if let Message::Assistant { tool_calls, .. } = message {
            taken.extend(tool_calls.iter().map(|call| call.id.clone()));
        }
    }
    let place = request.messages.len();
    let mut calls = Vec::with_capacity(raw.len());
    for (index, call) in raw.into_iter().enumerate() {
        let given = call.id.filter(|id| !id.is_empty() && !taken.contains(id));
        let id = given.unwrap_or_else(|| free_id(&taken, place, index));
        taken.insert(id.clone());
        let arguments = match call.arguments.trim().is_empty() {
            true => "{}".to_owned(),
            false => json::arguments(call.arguments),
        };
        calls.push(ToolCall { id, name: call.name, arguments });
    }
    calls
}

fn free_id(taken: &HashSet<String>, place: usize, index: usize) -> String {
    let plain = format!("call_{place}_{index}");
    if !taken.contains(&plain) {
        return plain;
    }
    (1u32..).map(|n| format!("{plain}_{n}")).find(|id| !taken.contains(id)).unwrap_or(plain)
}

/// The arguments as an object, for wires that have no text form.
pub(super) fn arguments_object(raw: &str) -> Value {
    // A number that no computer holds is JSON, and yet no value.
    serde_json::from_str(&sent_arguments(raw)).unwrap_or_else(|_| json!({ "malformed_arguments": raw }))
}

/// An id that every wire accepts: kept where it has only `[A-Za-z0-9_-]` and at most 64 of them, else a stable
/// stand-in. It is needed when a conversation continues with another provider.
pub(super) fn portable_id(id: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !id.is_empty() && id.len() <= 64 && id.chars().all(plain) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(format!("call_{}", &hex::encode(Sha256::digest(id.as_bytes()))[..24]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llm::fixtures::request;

    fn raw(id: Option<&str>, arguments: &str) -> RawCall {
        RawCall { id: id.map(str::to_owned), name: "echo".into(), arguments: arguments.into() }
    }

    #[test]
    fn a_missing_or_repeated_id_gets_a_stable_one_of_its_own() {
        let calls = || {
            identify(
                vec![raw(None, "{}"), raw(Some("a"), "{}"), raw(Some("a"), "{}"), raw(Some(""), "{}")],
                &request(),
            )
        };
        let ids: Vec<String> = calls().into_iter().map(|call| call.id).collect();
        assert_eq!(ids, ["call_2_0", "a", "call_2_2", "call_2_3"]);
        assert_eq!(calls(), calls());
    }

    #[test]
    fn an_id_of_an_earlier_reply_is_not_used_again() {
        let mut request = request();
        let earlier = ToolCall { id: "call_3_0".into(), name: "echo".into(), arguments: "{}".into() };
        request.messages.push(Message::Assistant {
            content: String::new(),
            reasoning: None,
            tool_calls: vec![earlier],
        });
        let calls = identify(vec![raw(Some("call_3_0"), "{}")], &request);
        assert_eq!(calls[0].id, "call_3_0_1");
    }

    #[test]
    fn a_047_malformed_arguments_stay_as_they_were_written() {
        let calls = identify(vec![raw(Some("a"), r#"{"a":"#)], &request());
        assert_eq!(calls[0].arguments, r#"{"a":"#);
    }

    #[test]
    fn malformed_arguments_go_back_inside_an_object_and_sound_ones_verbatim() {
        assert_eq!(sent_arguments(r#"{ "a" : 1.0, "a": 2 }"#), r#"{ "a" : 1.0, "a": 2 }"#);
        assert_eq!(sent_arguments(r#"{"a":"#), r#"{"malformed_arguments":"{\"a\":"}"#);
        assert_eq!(arguments_object("[1]"), json!({ "malformed_arguments": "[1]" }));
    }

    #[test]
    fn an_id_with_foreign_characters_gets_a_portable_stand_in() {
        assert_eq!(portable_id("toolu_01-x"), "toolu_01-x");
        let stand_in = portable_id("functions.echo:0");
        assert!(stand_in.starts_with("call_") && stand_in.len() == 29, "{stand_in}");
        assert_eq!(stand_in, portable_id("functions.echo:0"));
    }
}
