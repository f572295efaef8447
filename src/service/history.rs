//! What a host passes in, checked before anything is asked or made (S-002…S-006, S-049).

use serde_json::Value;
use uuid::Uuid;

use super::chat_format::{ChatMessage, ChatRole};
use crate::domain::run::{Principal, PrincipalSource};
use crate::domain::untrusted;

/// A wrong request: a defect of the host, and the only error that the calls raise (S-009).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Invalid request parameters: {0}")]
pub struct InvalidRequest(pub String);

/// The principal with a user's id, as `source` authenticated it. The id must be a UUID (S-005).
pub fn user(user_id: &str, source: PrincipalSource) -> Result<Principal, InvalidRequest> {
    match Uuid::parse_str(user_id.trim()) {
        Ok(id) => Ok(Principal { id, login: None, source }),
        Err(_) => Err(InvalidRequest("user_id is not a UUID".to_owned())),
    }
}

/// Reads a history from JSON: a list of `{"role": "user" | "assistant", "content": "…"}`, or an object with that list
/// under `messages`.
pub fn messages_of(value: &Value) -> Result<Vec<ChatMessage>, InvalidRequest> {
    let list = value.get("messages").unwrap_or(value);
    let Some(list) = list.as_array() else {
        return Err(InvalidRequest("the history is not a list of messages".to_owned()));
    };
    let read = list.iter().enumerate().map(|(index, message)| {
        let wrong = |what: &str| InvalidRequest(format!("messages[{index}] {what}"));
        let fields = message.as_object().ok_or_else(|| wrong("is not an object"))?;
        let role = match fields.get("role").and_then(Value::as_str) {
            Some("user") => ChatRole::User,
            Some("assistant") => ChatRole::Assistant,
            Some(_) => return Err(wrong("has a role other than user and assistant")),
            None => return Err(wrong("has no role")),
        };
        let content = fields.get("content").and_then(Value::as_str);
        let content = content.ok_or_else(|| wrong("has no content, or one that is not a string"))?;
        if let Some(other) = fields.keys().find(|key| !["role", "content"].contains(&key.as_str())) {
            return Err(wrong(&format!("has the member \"{other}\", which is not known here")));
        }
        Ok(ChatMessage { role, content: content.to_owned() })
    });
    let messages: Vec<ChatMessage> = read.collect::<Result<_, _>>()?;
    check(&messages)?;
    Ok(messages)
}

/// Holds a history to the contract: there is something, and nothing in it is blank.
pub(super) fn check(history: &[ChatMessage]) -> Result<(), InvalidRequest> {
    if history.is_empty() {
        return Err(InvalidRequest("the history is empty".to_owned()));
    }
    match history.iter().position(is_blank) {
        Some(index) => Err(InvalidRequest(format!("messages[{index}] has blank content"))),
        None => Ok(()),
    }
}

/// Whether nobody would see anything of a message.
pub(super) fn is_blank(message: &ChatMessage) -> bool {
    untrusted::is_blank(&message.content)
}

/// A message as the model sees it: what the user's screen shows, without hidden characters and not cut (S-041, S-050).
pub(super) fn sanitised(message: &ChatMessage) -> String {
    untrusted::visible(&message.content)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn s_002_s_003_s_004_s_005_s_049_what_breaks_the_contract_is_refused() {
        let bad = [
            (json!([]), "empty"),
            (json!("hi"), "not a list"),
            (json!({ "messages": 5 }), "not a list"),
            (json!(["hi"]), "not an object"),
            (json!([{ "content": "x" }]), "no role"),
            (json!([{ "role": "user" }]), "no content"),
            (json!([{ "role": "system", "content": "x" }]), "role other"),
            (json!([{ "role": "tool", "content": "x" }]), "role other"),
            (json!([{ "role": "user", "content": 5 }]), "not a string"),
            (json!([{ "role": "user", "content": " \u{200b}" }]), "blank"),
            (json!([{ "role": "assistant", "content": "x", "tool_calls": [] }]), "tool_calls"),
        ];
        for (history, what) in bad {
            let error = messages_of(&history).unwrap_err().to_string();
            assert!(error.starts_with("Invalid request parameters: "), "{error}");
            assert!(error.contains(what), "{error} should say {what}");
        }
        for id in ["", "7", "550e8400-e29b-41d4-a716-44665544000", "evil"] {
            assert!(user(id, PrincipalSource::Local).is_err(), "{id}");
        }
        let id = "550e8400-e29b-41d4-a716-446655440000";
        assert_eq!(user(id, PrincipalSource::Bearer).unwrap().id.to_string(), id);
    }

    #[test]
    fn s_050_hidden_text_is_taken_out_and_nothing_is_expanded() {
        let message = ChatMessage::user("a\u{1b}[31mb\u{202e}c {uv-x} ${GITHUB_TOKEN}\0 <!-- d -->");
        assert_eq!(sanitised(&message), "abc {uv-x} ${GITHUB_TOKEN} <!-- d -->");
        assert_eq!(
            messages_of(&json!({ "messages": [{ "role": "user", "content": "x" }] })).unwrap().len(),
            1
        );
    }
}
