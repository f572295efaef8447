//! The shapes of OpenAI chat completions, read leniently, because many servers differ in details.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::json;

#[derive(Serialize)]
pub(super) struct Request<'a> {
    pub model: &'a str,
    pub messages: Vec<Turn<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
}

#[derive(Serialize)]
pub(super) struct StreamOptions {
    pub include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
pub(super) enum Turn<'a> {
    System {
        content: &'a str,
    },
    User {
        content: UserContent<'a>,
    },
    Assistant {
        content: Option<&'a str>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
        /// Reasoning fields, under the names the server gave them.
        #[serde(flatten)]
        reasoning: Map<String, Value>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum UserContent<'a> {
    Text(&'a str),
    Parts(Vec<UserPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum UserPart<'a> {
    ImageUrl { image_url: ImageUrl },
    Text { text: &'a str },
}

#[derive(Serialize)]
pub(super) struct ImageUrl {
    pub url: String,
}

#[derive(Serialize)]
pub(super) struct Call<'a> {
    pub id: &'a str,
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: CallFunction<'a>,
}

#[derive(Serialize)]
pub(super) struct CallFunction<'a> {
    pub name: Cow<'a, str>,
    pub arguments: Cow<'a, str>,
}

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub function: Function<'a>,
}

#[derive(Serialize)]
pub(super) struct Function<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub parameters: &'a Value,
}

/// A whole reply, or one chunk of a stream.
#[derive(Deserialize, Default)]
pub(super) struct Reply {
    pub model: Option<String>,
    /// A router's word for who answered.
    pub provider: Option<Value>,
    pub choices: Option<Vec<Choice>>,
    #[serde(default, deserialize_with = "json::if_readable")]
    pub usage: Option<Usage>,
}

#[derive(Deserialize, Default)]
pub(super) struct Choice {
    pub index: Option<u64>,
    /// In a whole reply.
    pub message: Option<ReplyMessage>,
    /// In a chunk.
    pub delta: Option<ReplyMessage>,
    pub finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
pub(super) struct ReplyMessage {
    /// Text, null, or an array of parts.
    pub content: Option<Value>,
    pub refusal: Option<String>,
    pub tool_calls: Option<Vec<ReplyCall>>,
    pub reasoning_content: Option<Value>,
    pub reasoning: Option<Value>,
    pub reasoning_details: Option<Value>,
}

#[derive(Deserialize, Default)]
pub(super) struct ReplyCall {
    pub index: Option<usize>,
    /// Text; some servers count.
    pub id: Option<Value>,
    pub function: Option<ReplyFunction>,
}

#[derive(Deserialize, Default)]
pub(super) struct ReplyFunction {
    pub name: Option<String>,
    /// JSON text; some servers give the object itself.
    pub arguments: Option<Value>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub(super) struct Usage {
    #[serde(deserialize_with = "json::count")]
    pub prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub completion_tokens: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub total_tokens: Option<u64>,
    #[serde(deserialize_with = "json::if_readable")]
    pub prompt_tokens_details: Option<PromptDetails>,
    /// Where the server has no details.
    #[serde(deserialize_with = "json::count")]
    pub prompt_cache_hit_tokens: Option<u64>,
    /// US dollars, where a router tells.
    #[serde(deserialize_with = "json::if_readable")]
    pub cost: Option<f64>,
    /// Whether the router asked with a key of one's own.
    #[serde(deserialize_with = "json::if_readable")]
    pub is_byok: Option<bool>,
    #[serde(deserialize_with = "json::if_readable")]
    pub cost_details: Option<CostDetails>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub(super) struct CostDetails {
    /// US dollars that whoever answered the router bills.
    #[serde(deserialize_with = "json::if_readable")]
    pub upstream_inference_cost: Option<f64>,
}

#[derive(Deserialize, Default, Clone)]
#[serde(default)]
pub(super) struct PromptDetails {
    #[serde(deserialize_with = "json::count")]
    pub cached_tokens: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub cache_write_tokens: Option<u64>,
}
