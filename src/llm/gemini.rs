//! Gemini: calls and results without ids of their own, thought signatures sent back on the parts that carried them.

use std::collections::HashMap;

use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::calls::{self, RawCall};
use super::failure::{Refusal, cut_off, invalid};
use super::gemini_wire::{
    Content, FunctionCall, FunctionCallingConfig, FunctionDeclaration, FunctionResponse, GenerationConfig,
    InlineData, Part, Reply, Request, ToolConfig, Tools, UsageMetadata,
};
use super::json;
use super::reasoning::{self, Piece};
use super::wire::{self, tool_choice};
use crate::domain::image::Image;
use crate::domain::message::{Message, TokenUsage};
use crate::domain::model_wire::ProviderKind;
use crate::domain::sse::Event;
use crate::engine::model::{ModelError, ModelReply, ModelRequest, ReplyStop, Spent};

const WIRE: &str = ProviderKind::Gemini.as_str();
const SIGNATURE: &str = "thoughtSignature";
/// On a call's mark: the API gave the call an id, and wants it back.
const HAS_ID: &str = "hasId";

/// The wire.
pub(super) struct Gemini;

impl wire::Wire for Gemini {
    /// The base URL may already end in a version.
    fn path(&self, request: &ModelRequest, base_url: &str) -> String {
        let version =
            if ["/v1", "/v1beta"].iter().any(|end| base_url.ends_with(end)) { "" } else { "/v1beta" };
        let model = request.target.model.trim_start_matches("models/");
        let method = if request.stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
        format!("{version}/models/{model}:{method}")
    }

    fn body(&self, request: &ModelRequest, _base_url: &str) -> Result<Vec<u8>, serde_json::Error> {
        body(request)
    }

    fn spent(&self, reply: &Value) -> Spent {
        wire::spent(false, UsageMetadata::deserialize(&reply["usageMetadata"]).ok().map(tokens), None)
    }

    fn read(&self, request: &ModelRequest, reply: Value) -> Result<ModelReply, ModelError> {
        let mut fold = Fold::default();
        fold.value(reply)?;
        if !fold.began {
            return Err(invalid("a reply without candidates"));
        }
        fold.ended = true;
        wire::Fold::finish(Box::new(fold), request)
    }

    fn fold(&self) -> Box<dyn wire::Fold> {
        Box::new(Fold::default())
    }
}

fn body(request: &ModelRequest) -> Result<Vec<u8>, serde_json::Error> {
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
    let mode = tool_choice(request, "ANY", "NONE");
    serde_json::to_vec(&Request {
        system_instruction: (!system.is_empty()).then_some(Content { role: None, parts: system }),
        tools: if declarations.is_empty() {
            Vec::new()
        } else {
            vec![Tools { function_declarations: declarations }]
        },
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

/// A kind that the API does not take is handed to nobody: the briefing has left it out.
fn image<'a>(image: &Image) -> Option<Part<'a>> {
    let (mime_type, data) = (image.kind.media_type(), wire::base64(image));
    let takes = ProviderKind::Gemini.wire().image_kinds.contains(&image.kind);
    takes.then_some(Part::Image { inline_data: InlineData { mime_type, data } })
}

fn contents(request: &ModelRequest) -> Vec<Content<'_>> {
    let mut contents: Vec<Content<'_>> = Vec::new();
    // Of each call: its name, and whether its id is the API's.
    let mut called: HashMap<&str, (&str, bool)> = HashMap::new();
    for message in &request.messages {
        let (role, parts) = match message {
            Message::System { .. } => continue,
            Message::User { content } if content.trim().is_empty() => continue,
            Message::User { content } => {
                let images = wire::images_before(request, message).iter().filter_map(image);
                ("user", images.chain([text(content)]).collect())
            }
            Message::Tool { tool_call_id, content } => {
                let (name, has_id) = called.get(tool_call_id.as_str()).copied().unwrap_or_default();
                let name = calls::portable_name(name);
                let function_response = FunctionResponse {
                    id: has_id.then_some(tool_call_id),
                    name,
                    response: Map::from_iter([("result".to_owned(), json!(content))]),
                };
                ("user", vec![Part::Response { function_response }])
            }
            Message::Assistant { content, reasoning, tool_calls } => {
                let blocks = reasoning::recall(reasoning.as_ref(), WIRE, request);
                let mut parts = Vec::new();
                for piece in reasoning::pieces(blocks, content, tool_calls) {
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
                                    name: calls::portable_name(&call.name),
                                    args: calls::arguments_object(&call.arguments),
                                },
                                thought_signature: mark.and_then(|mark| mark.get(SIGNATURE)),
                            }
                        }
                        Piece::Reasoning(part) => Part::Verbatim(part),
                    });
                }
                ("model", parts)
            }
        };
        if contents.is_empty() && role == "model" && !parts.is_empty() {
            contents.push(Content { role: Some("user"), parts: vec![text(wire::NOT_SHOWN)] });
        }
        match contents.last_mut() {
            Some(last) if last.role == Some(role) => last.parts.extend(parts),
            _ if parts.is_empty() => {}
            _ => contents.push(Content { role: Some(role), parts }),
        }
    }
    contents
}

/// A reply put together from a stream's events, or from the one that a whole reply is.
#[derive(Default)]
struct Fold {
    began: bool,
    ended: bool,
    text: String,
    calls: Vec<RawCall>,
    blocks: Vec<Value>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
    usage: Option<UsageMetadata>,
    model: Option<String>,
}

impl wire::Fold for Fold {
    /// The end of the stream is the end of the reply, so there is always more to wait for.
    fn event(&mut self, event: &Event) -> Result<bool, ModelError> {
        self.value(json::parse(event.data.as_bytes(), "an event is not JSON")?)?;
        Ok(false)
    }

    fn spent(&self) -> Spent {
        wire::spent(self.began, self.usage.map(tokens), None)
    }

    fn written(&self) -> usize {
        let calls = self.calls.iter().map(|call| call.name.len() + call.arguments.len());
        self.text.len() + calls.chain(self.blocks.iter().map(wire::bytes_of)).sum::<usize>()
    }

    fn finish(self: Box<Self>, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        if !self.ended && self.finish_reason.is_none() {
            return Err(cut_off());
        }
        let reason = self.finish_reason.as_deref();
        if matches!(reason, Some("MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL")) {
            let message =
                self.finish_message.unwrap_or_else(|| "the model wrote no valid function call".into());
            return Err(invalid(message));
        }
        let stop = match reason {
            Some("STOP") if self.calls.is_empty() => ReplyStop::End,
            Some("STOP") => ReplyStop::ToolCalls,
            Some("MAX_TOKENS") => ReplyStop::Length,
            Some("SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "OTHER") => {
                ReplyStop::Refusal
            }
            _ => ReplyStop::Other,
        };
        let tool_calls = calls::identify(self.calls, request, stop);
        Ok(ModelReply {
            text: self.text,
            reasoning: reasoning::wrap(WIRE, request, self.blocks, &tool_calls),
            tool_calls,
            stop,
            stop_raw: self.finish_reason,
            usage: self.usage.map(tokens),
            cost: None,
            actual_provider: None,
            actual_model: self.model,
        })
    }
}

impl Fold {
    fn value(&mut self, value: Value) -> Result<(), ModelError> {
        if let Some(refusal) = Refusal::inside(value.get(0).unwrap_or(&value)) {
            return Err(refusal.into_error());
        }
        let reply: Reply = json::shape(value, "not a Gemini reply")?;
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
            self.blocks.push(signed(mark, signature));
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
        let Some(last) = self.blocks.last_mut().filter(open) else {
            self.blocks.push(part);
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
        match self.blocks.last_mut().filter(|last| last["said"] == "text") {
            Some(last) => {
                let mark = last.take();
                *last = signed(mark, signature);
            }
            None => self.blocks.push(signed(reasoning::text_mark(), signature)),
        }
    }
}

fn signed(mut mark: Value, signature: Option<Value>) -> Value {
    if let Some(signature) = signature {
        mark[SIGNATURE] = signature;
    }
    mark
}

fn tokens(usage: UsageMetadata) -> TokenUsage {
    let sum = |a: Option<u64>, b: Option<u64>| a.unwrap_or_default().saturating_add(b.unwrap_or_default());
    let prompt = sum(usage.prompt_token_count, usage.tool_use_prompt_token_count);
    let cached = usage.cached_content_token_count.unwrap_or_default().min(prompt);
    let output = sum(usage.candidates_token_count, usage.thoughts_token_count);
    TokenUsage::new(prompt - cached, output, cached, 0)
}
