//! The shapes of the Gemini API.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::json;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_instruction: Option<Content<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tools<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_config: Option<ToolConfig>,
    pub contents: Vec<Content<'a>>,
    pub generation_config: GenerationConfig,
}

#[derive(Serialize)]
pub(super) struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    pub parts: Vec<Part<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Part<'a> {
    #[serde(rename_all = "camelCase")]
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a Value>,
    },
    #[serde(rename_all = "camelCase")]
    Call {
        function_call: FunctionCall<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        thought_signature: Option<&'a Value>,
    },
    #[serde(rename_all = "camelCase")]
    Response { function_response: FunctionResponse<'a> },
    #[serde(rename_all = "camelCase")]
    Image { inline_data: InlineData },
    /// A thought, as it came.
    Verbatim(&'a Value),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InlineData {
    pub mime_type: &'static str,
    pub data: String,
}

#[derive(Serialize)]
pub(super) struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    pub name: Cow<'a, str>,
    pub args: Value,
}

#[derive(Serialize)]
pub(super) struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    pub name: Cow<'a, str>,
    pub response: Map<String, Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tools<'a> {
    pub function_declarations: Vec<FunctionDeclaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FunctionDeclaration<'a> {
    pub name: &'a str,
    pub description: &'a str,
    pub parameters_json_schema: &'a Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolConfig {
    pub function_calling_config: FunctionCallingConfig,
}

#[derive(Serialize)]
pub(super) struct FunctionCallingConfig {
    pub mode: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GenerationConfig {
    pub max_output_tokens: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// A whole reply, or one event of a stream.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reply {
    #[serde(default)]
    pub candidates: Vec<Candidate>,
    pub prompt_feedback: Option<PromptFeedback>,
    #[serde(default, deserialize_with = "json::if_readable")]
    pub usage_metadata: Option<UsageMetadata>,
    pub model_version: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    pub content: Option<ReplyContent>,
    pub finish_reason: Option<String>,
    pub finish_message: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct ReplyContent {
    #[serde(default)]
    pub parts: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptFeedback {
    pub block_reason: Option<String>,
}

#[derive(Deserialize, Default, Clone, Copy)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct UsageMetadata {
    #[serde(deserialize_with = "json::count")]
    pub prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub tool_use_prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub cached_content_token_count: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub candidates_token_count: Option<u64>,
    #[serde(deserialize_with = "json::count")]
    pub thoughts_token_count: Option<u64>,
}
