//! Gemini: calls and results without ids of their own, thought signatures sent back on the parts that carried them.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::calls::{self, RawCall};
use super::failure::{Refusal, invalid};
use super::gemini_wire::{
    Content, FunctionCall, FunctionCallingConfig, FunctionDeclaration, FunctionResponse, GenerationConfig,
    Part, Reply, Request, ToolConfig, Tools, UsageMetadata,
};
use super::json;
use super::reasoning::{self, Piece};
use super::sse::Event;
use super::transport::cut_off;
use crate::domain::message::{Message, TokenUsage};
use crate::engine::model::{ModelError, ModelReply, ModelRequest, ReplyStop, ToolChoice};

const WIRE: &str = "gemini";
const SIGNATURE: &str = "thoughtSignature";
/// On a call's mark: the API gave the call an id, and wants it back.
const HAS_ID: &str = "hasId";

/// Path below the base URL, which may already end in a version (D51).
pub(super) fn path(request: &ModelRequest, base_url: &str) -> String {
    let version = if ["/v1", "/v1beta"].iter().any(|end| base_url.ends_with(end)) { "" } else { "/v1beta" };
    let model = request.target.model.trim_start_matches("models/");
    let method = if request.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
    format!("{version}/models/{model}:{method}")
}

/// The request's bytes; the same request gives the same bytes, and a longer conversation the same beginning.
pub(super) fn body(request: &ModelRequest) -> Result<Vec<u8>, serde_json::Error> {
    let system: Vec<Part<'_>> = request
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::System { content } if !content.is_empty() => Some(text(content)),
            _ => None,
        })
        .collect();
    let declarations: Vec<FunctionDeclaration<'_>> = request
        .tools
        .iter()
        .map(|spec| FunctionDeclaration {
            name: &spec.name,
            description: &spec.description,
            parameters_json_schema: &spec.parameters,
        })
        .collect();
    let with_tools = !declarations.is_empty();
    let mode = match request.tool_choice {
        ToolChoice::Required if with_tools => Some("ANY"),
        ToolChoice::None if with_tools => Some("NONE"),
        _ => None,
    };
    serde_json::to_vec(&Request {
        system_instruction: (!system.is_empty()).then_some(Content { role: None, parts: system }),
        tools: if with_tools { vec![Tools { function_declarations: declarations }] } else { Vec::new() },
        tool_config: mode.map(|mode| ToolConfig { function_calling_config: FunctionCallingConfig { mode } }),
        contents: contents(request),
        generation_config: GenerationConfig {
            max_output_tokens: request.target.max_output_tokens,
            temperature: request.target.temperature,
        },
    })
}

fn text(text: &str) -> Part<'_> {
    Part::Text { text, thought_signature: None }
}

fn contents(request: &ModelRequest) -> Vec<Content<'_>> {
    let mut contents: Vec<Content<'_>> = Vec::new();
    // Of each call: its name, and whether its id is the API's.
    let mut called: HashMap<&str, (&str, bool)> = HashMap::new();
    for message in &request.messages {
        let (role, parts) = match message {
            Message::System { .. } => continue,
            Message::User { content } if content.trim().is_empty() => continue,
            Message::User { content } => ("user", vec![text(content)]),
            Message::Tool { tool_call_id, content } => {
                let (name, has_id) = called.get(tool_call_id.as_str()).copied().unwrap_or_default();
                let function_response = FunctionResponse {
                    id: has_id.then_some(tool_call_id),
                    name,
                    response: Map::from_iter([("result".to_owned(), json!(content))]),
                };
                ("user", vec![Part::Response { function_response }])
            }
            Message::Assistant { content, reasoning, tool_calls } => {
                let kept = reasoning::recall(reasoning.as_ref(), WIRE, request);
                let mut parts = Vec::new();
                for piece in reasoning::pieces(kept, content, tool_calls) {
                    parts.push(match piece {
                        Piece::Text(text, mark) => {
                            Part::Text { text, thought_signature: mark.and_then(|mark| mark.get(SIGNATURE)) }
                        }
                        Piece::Call(call, mark) => {
                            let has_id = mark.is_some_and(|mark| mark[HAS_ID] == true);
                            called.insert(&call.id, (&call.name, has_id));
                            Part::Call {
                                function_call: FunctionCall {
                                    id: has_id.then_some(&call.id),
                                    name: &call.name,
                                    args: calls::arguments_object(&call.arguments),
                                },
                                thought_signature: mark.and_then(|mark| mark.get(SIGNATURE)),
                            }
                        }
                        Piece::Kept(part) => Part::Verbatim(part),
                    });
                }
                ("model", parts)
            }
        };
        match contents.last_mut() {
            Some(last) if last.role == Some(role) => last.parts.extend(parts),
            _ if parts.is_empty() => {}
            _ => contents.push(Content { role: Some(role), parts }),
        }
    }
    contents
}

/// Reads a whole reply.
pub(super) fn read(request: &ModelRequest, body: &[u8]) -> Result<ModelReply, ModelError> {
    let value: Value = json::read(body).map_err(|error| invalid(format!("not JSON: {error}")))?;
    let mut fold = Fold::default();
    fold.value(value)?;
    if !fold.began {
        return Err(invalid("a reply without candidates"));
    }
    fold.ended = true;
    fold.finish(request)
}

/// A reply put together from a stream's events, or from the one that a whole reply is.
#[derive(Default)]
pub(super) struct Fold {
    began: bool,
    ended: bool,
    text: String,
    calls: Vec<RawCall>,
    kept: Vec<Value>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
    usage: Option<UsageMetadata>,
    model: Option<String>,
}

impl Fold {
    /// Takes one event. The end of the stream is the end of the reply, so there is always more to wait for.
    pub(super) fn event(&mut self, event: &Event) -> Result<bool, ModelError> {
        let value: Value = json::read(event.data.as_bytes())
            .map_err(|error| invalid(format!("an event is not JSON: {error}")))?;
        self.value(value)?;
        Ok(false)
    }

    fn value(&mut self, value: Value) -> Result<(), ModelError> {
        let inner = value.get(0).unwrap_or(&value);
        if inner.get("error").is_some_and(|error| !error.is_null()) {
            return Err(Refusal::value(&value).into_error());
        }
        let reply: Reply =
            serde_json::from_value(value).map_err(|error| invalid(format!("not a Gemini reply: {error}")))?;
        self.model = reply.model_version.or(self.model.take());
        self.usage = reply.usage_metadata.or(self.usage);
        if let Some(reason) = reply.prompt_feedback.and_then(|feedback| feedback.block_reason) {
            self.began = true;
            self.finish_reason = Some(reason);
        }
        if let Some(candidate) = reply.candidates.into_iter().next() {
            self.began = true;
            self.finish_reason = candidate.finish_reason.or(self.finish_reason.take());
            self.finish_message = candidate.finish_message.or(self.finish_message.take());
            candidate.content.into_iter().flat_map(|content| content.parts).for_each(|part| self.part(part));
        }
        Ok(())
    }

    fn part(&mut self, part: Value) {
        let signature = part.get(SIGNATURE).cloned();
        if part["thought"] == true {
            self.thought(part);
        } else if let Some(call) = part.get("functionCall") {
            let id = call["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
            let arguments = call.get("args").filter(|args| !args.is_null());
            let mut mark = reasoning::call_mark();
            if id.is_some() {
                mark[HAS_ID] = json!(true);
            }
            self.calls.push(RawCall {
                id,
                name: call["name"].as_str().unwrap_or_default().to_owned(),
                arguments: arguments.map(Value::to_string).unwrap_or_default(),
            });
            self.kept.push(signed(mark, signature));
        } else if let Some(text) = part["text"].as_str() {
            self.text.push_str(text);
            if signature.is_some() || !text.is_empty() {
                self.text_mark(signature);
            }
        }
    }

    /// Thoughts come in pieces, up to the one that carries their signature.
    fn thought(&mut self, part: Value) {
        let open = |last: &&mut Value| last["thought"] == true && last.get(SIGNATURE).is_none();
        let Some(last) = self.kept.last_mut().filter(open) else {
            self.kept.push(part);
            return;
        };
        if let (Some(Value::String(so_far)), Some(piece)) = (last.get_mut("text"), part["text"].as_str()) {
            so_far.push_str(piece);
        }
        if let Some(signature) = part.get(SIGNATURE) {
            last[SIGNATURE] = signature.clone();
        }
    }

    /// Text comes in pieces. It has one mark, and the signature of whichever piece has one.
    fn text_mark(&mut self, signature: Option<Value>) {
        match self.kept.last_mut().filter(|last| last["said"] == "text") {
            Some(last) => {
                let mark = last.take();
                *last = signed(mark, signature);
            }
            None => self.kept.push(signed(reasoning::text_mark(), signature)),
        }
    }

    /// The reply, once the stream is over.
    pub(super) fn finish(self, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        if !self.ended && self.finish_reason.is_none() {
            return Err(cut_off());
        }
        let reason = self.finish_reason.as_deref();
        if matches!(reason, Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL")) {
            let message =
                self.finish_message.unwrap_or_else(|| "the model wrote no valid function call".into());
            return Err(invalid(message));
        }
        let tool_calls = calls::settle(self.calls, request);
        let stop = match reason {
            Some("STOP") if tool_calls.is_empty() => ReplyStop::End,
            Some("STOP") => ReplyStop::ToolCalls,
            Some("MAX_TOKENS") => ReplyStop::Length,
            Some("SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "OTHER") => {
                ReplyStop::Refusal
            }
            _ => ReplyStop::Other,
        };
        Ok(ModelReply {
            text: self.text,
            reasoning: reasoning::keep(WIRE, request, self.kept, &tool_calls),
            tool_calls,
            stop,
            stop_raw: self.finish_reason,
            usage: self.usage.map(|usage| {
                let prompt = usage.prompt_token_count + usage.tool_use_prompt_token_count;
                let cached = usage.cached_content_token_count.min(prompt);
                let output = usage.candidates_token_count + usage.thoughts_token_count;
                TokenUsage::new(prompt - cached, output, cached, 0)
            }),
            cost: None,
            actual_provider: None,
            actual_model: self.model,
        })
    }
}

fn signed(mut mark: Value, signature: Option<Value>) -> Value {
    if let Some(signature) = signature {
        mark[SIGNATURE] = signature;
    }
    mark
}
