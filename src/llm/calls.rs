//! Tool calls between the wires and the engine: ids that are unique, arguments that stay as the model wrote them.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::json;
use crate::domain::message::{Message, ToolCall, sent_arguments};
use crate::engine::model::{ModelRequest, ReplyStop};

/// Most characters of an id and of a name that every wire accepts.
const LONGEST_NAME: usize = 64;

/// A call as the provider sent it. Some servers omit the id or repeat it.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct RawCall {
    pub id: Option<String>,
    pub name: String,
    pub arguments: String,
}

/// Gives each call an id that is unique in the conversation, and `{}` as the arguments of a call that needs none. The last
/// call of a reply that its limit cut may have been cut before its arguments: these stay empty, which is no object. An id
/// that is made up depends on the place in the conversation alone, so that the same replies give the same ids. Nothing else
/// is repaired.
pub(super) fn identify(raw: Vec<RawCall>, request: &ModelRequest, stop: ReplyStop) -> Vec<ToolCall> {
    let mut taken: HashSet<String> = HashSet::new();
    for message in &request.messages {
        if let Message::Assistant { tool_calls, .. } = message {
            taken.extend(tool_calls.iter().map(|call| call.id.clone()));
        }
    }
    let place = request.messages.len();
    let cut = raw.len().checked_sub(1).filter(|_| stop == ReplyStop::Length);
    let mut calls = Vec::with_capacity(raw.len());
    for (index, call) in raw.into_iter().enumerate() {
        let given = call.id.filter(|id| !id.is_empty() && !taken.contains(id));
        let id = given.unwrap_or_else(|| free_id(&taken, place, index));
        taken.insert(id.clone());
        let arguments = match call.arguments.trim().is_empty() {
            true if cut == Some(index) => String::new(),
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
    if !id.is_empty() && id.len() <= LONGEST_NAME && id.chars().all(plain) {
        return Cow::Borrowed(id);
    }
    Cow::Owned(format!("call_{}", &hex::encode(Sha256::digest(id.as_bytes()))[..24]))
}

/// The name of a call as every wire accepts it: letters, digits, `_` and `-`, no digit first, at most 64 characters. Models also call what
/// there is not, by names that their own API refuses when it gets the conversation back.
pub(super) fn portable_name(name: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts && name.len() <= LONGEST_NAME && name.chars().all(plain) {
        return Cow::Borrowed(name);
    }
    let name: String = name.chars().take(LONGEST_NAME - 1).map(|c| if plain(c) { c } else { '_' }).collect();
    let before = if name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') { "" } else { "_" };
    Cow::Owned(if name.is_empty() { "unknown".to_owned() } else { format!("{before}{name}") })
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
                ReplyStop::ToolCalls,
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
        let calls = identify(vec![raw(Some("call_3_0"), "{}")], &request, ReplyStop::ToolCalls);
        assert_eq!(calls[0].id, "call_3_0_1");
    }

    #[test]
    fn a_047_malformed_arguments_stay_as_they_were_written() {
        let calls = identify(vec![raw(Some("a"), r#"{"a":"#)], &request(), ReplyStop::ToolCalls);
        assert_eq!(calls[0].arguments, r#"{"a":"#);
    }

    #[test]
    fn malformed_arguments_go_back_inside_an_object_and_sound_ones_verbatim() {
        assert_eq!(sent_arguments(r#"{ "a" : 1.0, "a": 2 }"#), r#"{ "a" : 1.0, "a": 2 }"#);
        assert_eq!(sent_arguments(r#"{"a":"#), r#"{"malformed_arguments":"{\"a\":"}"#);
        assert_eq!(arguments_object("[1]"), json!({ "malformed_arguments": "[1]" }));
    }

    #[test]
    fn a_call_that_the_limit_cut_before_its_arguments_has_none_and_the_others_need_none() {
        let two = || vec![raw(Some("a"), ""), raw(Some("b"), " ")];
        let arguments = |stop| identify(two(), &request(), stop).into_iter().map(|call| call.arguments);
        assert_eq!(arguments(ReplyStop::Length).collect::<Vec<_>>(), ["{}", ""]);
        assert_eq!(arguments(ReplyStop::ToolCalls).collect::<Vec<_>>(), ["{}", "{}"]);
    }

    #[test]
    fn a_name_that_no_api_takes_back_gets_a_stand_in() {
        for (name, sent) in [
            ("read_file", "read_file"),
            ("functions.read_file", "functions_read_file"),
            ("read file\n", "read_file_"),
            ("", "unknown"),
            ("7up", "_7up"),
            ("écrire", "_crire"),
        ] {
            assert_eq!(portable_name(name), sent);
        }
        assert_eq!(portable_name(&"é".repeat(100_000)).len(), 63);
        assert_eq!(portable_name(&"1".repeat(100)).len(), 64);
    }

    #[test]
    fn an_id_with_foreign_characters_gets_a_portable_stand_in() {
        assert_eq!(portable_id("toolu_01-x"), "toolu_01-x");
        let stand_in = portable_id("functions.echo:0");
        assert!(stand_in.starts_with("call_") && stand_in.len() == 29, "{stand_in}");
        assert_eq!(stand_in, portable_id("functions.echo:0"));
    }
}
