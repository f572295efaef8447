//! The shapes of the OpenAI Responses API.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json;

#[derive(Serialize)]
pub(super) struct Request<'a> {
    pub model: &'a str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    pub input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<&'static str>,
    pub max_output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    pub store: bool,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub include: &'static [&'static str],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stream: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Item<'a> {
    Message {
        role: &'static str,
        content: &'a str,
    },
    Parts {
        role: &'static str,
        content: Vec<InputPart<'a>>,
    },
    FunctionCall {
        #[serde(rename = "type")]
        kind: &'static str,
        call_id: Cow<'a, str>,
        name: Cow<'a, str>,
        arguments: Cow<'a, str>,
    },
    FunctionCallOutput {
        #[serde(rename = "type")]
        kind: &'static str,
        call_id: Cow<'a, str>,
        output: &'a str,
    },
    /// A reasoning item, as it came.
    Verbatim(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum InputPart<'a> {
    InputImage { image_url: String, detail: &'static str },
    InputText { text: &'a str },
}

#[derive(Serialize)]
pub(super) struct Tool<'a> {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub name: &'a str,
    pub description: &'a str,
    pub parameters: &'a Value,
    /// The API rewrites schemas where this is not false.
    pub strict: bool,
}

#[derive(Deserialize, Default)]
pub(super) struct Reply {
    pub model: Option<String>,
    pub status: Option<String>,
    pub incomplete_details: Option<Incomplete>,
    #[serde(default)]
    pub output: Vec<Value>,
    #[serde(default, deserialize_with = "json::if_readable")]
    pub usage: Option<Usage>,
}

#[derive(Deserialize)]
pub(super) struct Incomplete {
    pub reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Usage {
    #[serde(deserialize_with = "json::count")]
    pub input_tokens: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub output_tokens: Option<u64>,
    #[serde(deserialize_with = "json::if_readable")]
    pub input_tokens_details: Option<InputDetails>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct InputDetails {
    #[serde(deserialize_with = "json::count")]
    pub cached_tokens: Option<u64>,
}
