//! The shapes of the Anthropic Messages API.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json;

#[derive(Serialize)]
pub(super) struct Request<'a> {
    pub model: &'a str,
    pub max_tokens: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<Block<'a>>,
    pub messages: Vec<Turn<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
}

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    pub name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub description: &'a str,
    pub input_schema: Value,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ToolChoice {
    Any,
    None,
}

#[derive(Serialize)]
pub(super) struct Turn<'a> {
    pub role: Role,
    pub content: Vec<Block<'a>>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    User,
    Assistant,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Block<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: ImageSource,
    },
    ToolUse {
        id: String,
        name: Cow<'a, str>,
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        content: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    /// A thinking block, as it came.
    #[serde(untagged)]
    Verbatim(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ImageSource {
    Base64 { media_type: &'static str, data: String },
}

#[derive(Serialize, Clone, Copy)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CacheControl {
    Ephemeral,
}

#[derive(Deserialize, Default)]
pub(super) struct Reply {
    pub model: Option<String>,
    pub content: Vec<Value>,
    pub stop_reason: Option<String>,
    #[serde(default, deserialize_with = "json::if_readable")]
    pub usage: Option<Usage>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(default)]
pub(super) struct Usage {
    #[serde(deserialize_with = "json::count")]
    pub input_tokens: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub output_tokens: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub cache_creation_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum StreamEvent {
    MessageStart {
        message: Value,
    },
    ContentBlockStart {
        index: usize,
        content_block: Value,
    },
    ContentBlockDelta {
        index: usize,
        delta: Value,
    },
    MessageDelta {
        delta: Value,
        #[serde(default, deserialize_with = "json::if_readable")]
        usage: Option<Usage>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    /// `ping`, `content_block_stop`, and what is not invented yet.
    #[serde(other)]
    Other,
}
