//! Anthropic Messages: requests with a cached prefix, thinking blocks sent back as they came.

use std::borrow::Cow;

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::anthropic_wire::{
    Block, CacheControl, ImageSource, Reply, Request, Role, StreamEvent, Tool, ToolChoice as Choice, Turn,
    Usage,
};
use super::calls::{self, RawCall};
use super::failure::{Refusal, cut_off, invalid};
use super::json;
use super::reasoning::{self, Piece};
use super::wire;
use crate::domain::image::Image;
use crate::domain::message::{Message, TokenUsage, ToolSpec};
use crate::domain::model_wire::ProviderKind;
use crate::domain::sse::Event;
use crate::engine::model::{ModelError, ModelReply, ModelRequest, ReplyStop, Spent, ToolChoice};

const WIRE: &str = ProviderKind::Anthropic.as_str();

/// The wire.
pub(super) struct Anthropic;

impl wire::Wire for Anthropic {
    /// The base URL may already end in `/v1`.
    fn path(&self, _request: &ModelRequest, base_url: &str) -> String {
        if base_url.ends_with("/v1") { "/messages" } else { "/v1/messages" }.to_owned()
    }

    fn body(&self, request: &ModelRequest, _base_url: &str) -> Result<Vec<u8>, serde_json::Error> {
        body(request)
    }

    fn spent(&self, reply: &Value) -> Spent {
        let usage = Usage::deserialize(&reply["usage"]).ok();
        wire::spent(false, usage.map(tokens), None)
    }

    fn read(&self, request: &ModelRequest, reply: Value) -> Result<ModelReply, ModelError> {
        if reply["type"] == "error" {
            return Err(Refusal::value(&reply).into_error());
        }
        if let Some(refusal) = Refusal::inside(&reply) {
            return Err(refusal.into_error());
        }
        let reply: Reply = json::shape(reply, "not a reply of the Messages API")?;
        let blocks =
            reply.content.into_iter().map(|block| StreamedBlock { block, json: String::new() }).collect();
        Ok(assemble(request, blocks, reply.stop_reason, reply.usage, reply.model))
    }

    fn fold(&self) -> Box<dyn wire::Fold> {
        Box::new(Fold::default())
    }
}

fn body(request: &ModelRequest) -> Result<Vec<u8>, serde_json::Error> {
    let (tools, tool_choice) = tools(request);
    let mut system = Vec::new();
    for message in &request.messages {
        if let Message::System { content } = message
            && !content.is_empty()
        {
            system.push(Block::Text { text: content, cache_control: None });
        }
    }
    let mut messages = turns(request);
    // Two breakpoints: after tools and system, which stay the same for a session, and after the whole conversation, of
    // which the next request is a continuation.
    mark(system.last_mut());
    mark(messages.last_mut().and_then(|turn| turn.content.last_mut()));
    serde_json::to_vec(&Request {
        model: &request.target.model,
        max_tokens: request.target.max_output_tokens,
        tools,
        tool_choice,
        system,
        messages,
        temperature: request.target.temperature,
        stream: request.stream,
    })
}

fn mark(block: Option<&mut Block<'_>>) {
    if let Some(Block::Text { cache_control, .. } | Block::ToolResult { cache_control, .. }) = block {
        *cache_control = Some(CacheControl::Ephemeral);
    }
}

fn turns(request: &ModelRequest) -> Vec<Turn<'_>> {
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for message in &request.messages {
        let (role, content) = match message {
            Message::System { .. } => continue,
            Message::User { content } => {
                let images = wire::images_before(request, message).iter().map(image);
                (Role::User, images.chain(text(content)).collect())
            }
            Message::Tool { tool_call_id, content } => {
                let tool_use_id = calls::portable_id(tool_call_id).into_owned();
                (Role::User, vec![Block::ToolResult { tool_use_id, content, cache_control: None }])
            }
            Message::Assistant { content, reasoning, tool_calls } => {
                let marked = reasoning::recall(reasoning.as_ref(), WIRE, request);
                let pieces = reasoning::pieces(marked, content, tool_calls);
                (Role::Assistant, pieces.into_iter().map(block).collect())
            }
        };
        // A user begins here, also where a host passes on the end of a history alone.
        if turns.is_empty() && role == Role::Assistant && !content.is_empty() {
            turns.push(Turn { role: Role::User, content: text(wire::NOT_SHOWN) });
        }
        // Roles alternate in this protocol, so the results of one reply and the host's text after them are one message.
        match turns.last_mut() {
            Some(last) if last.role == role => last.content.extend(content),
            _ if content.is_empty() => {}
            _ => turns.push(Turn { role, content }),
        }
    }
    turns
}

/// Empty text blocks are refused by the API.
fn text(text: &str) -> Vec<Block<'_>> {
    if text.trim().is_empty() { Vec::new() } else { vec![Block::Text { text, cache_control: None }] }
}

fn image<'a>(image: &Image) -> Block<'a> {
    let (media_type, data) = (image.kind.media_type(), wire::base64(image));
    Block::Image { source: ImageSource::Base64 { media_type, data } }
}

fn block(piece: Piece<'_>) -> Block<'_> {
    match piece {
        Piece::Text(text, _) => Block::Text { text, cache_control: None },
        Piece::Call(call, _) => Block::ToolUse {
            id: calls::portable_id(&call.id).into_owned(),
            name: calls::portable_name(&call.name),
            input: calls::arguments_object(&call.arguments),
        },
        Piece::Reasoning(block) => Block::Verbatim(block),
    }
}

fn tools(request: &ModelRequest) -> (Vec<Tool<'_>>, Option<Choice>) {
    if !request.tools.is_empty() {
        let choice = match request.tool_choice {
            ToolChoice::Auto => None,
            ToolChoice::Required => Some(Choice::Any),
            ToolChoice::None => Some(Choice::None),
        };
        return (request.tools.iter().map(tool).collect(), choice);
    }
    // The API refuses a conversation with calls but without tools. So the tools of these calls are listed, and calling
    // them is forbidden.
    let mut tools: Vec<Tool<'_>> = Vec::new();
    for message in &request.messages {
        let Message::Assistant { tool_calls, .. } = message else { continue };
        for call in tool_calls {
            let name = calls::portable_name(&call.name);
            if !tools.iter().any(|tool| tool.name == name) {
                let input_schema = json!({ "type": "object" });
                tools.push(Tool { name, description: "", input_schema });
            }
        }
    }
    let choice = (!tools.is_empty()).then_some(Choice::None);
    (tools, choice)
}

fn tool(spec: &ToolSpec) -> Tool<'_> {
    let mut input_schema = spec.parameters.clone();
    if let Value::Object(schema) = &mut input_schema {
        // The API refuses these at the top level. The gate still checks the call against the whole schema.
        schema.retain(|key, _| !matches!(key.as_str(), "oneOf" | "allOf" | "anyOf"));
    }
    Tool { name: Cow::Borrowed(&spec.name), description: &spec.description, input_schema }
}

/// A reply that is put together from a stream's events.
#[derive(Default)]
struct Fold {
    blocks: Vec<StreamedBlock>,
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<Usage>,
    stopped: bool,
}

/// A block, and the argument text that came in pieces.
struct StreamedBlock {
    block: Value,
    json: String,
}

impl wire::Fold for Fold {
    fn event(&mut self, event: &Event) -> Result<bool, ModelError> {
        if event.data == "[DONE]" {
            // Gateways that translate add it.
            return Ok(true);
        }
        let event: StreamEvent = json::parse(event.data.as_bytes(), "not an event of the Messages API")?;
        match event {
            StreamEvent::MessageStart { message } => {
                self.model = message["model"].as_str().map(str::to_owned);
                self.usage = serde_json::from_value(message["usage"].clone()).ok();
            }
            StreamEvent::ContentBlockStart { index, content_block } => {
                if index != self.blocks.len() {
                    return Err(invalid(format!("content block {index} came out of order")));
                }
                self.blocks.push(StreamedBlock { block: content_block, json: String::new() });
            }
            StreamEvent::ContentBlockDelta { index, delta } => self.delta(index, &delta)?,
            StreamEvent::MessageDelta { delta, usage } => {
                if let Some(reason) = delta["stop_reason"].as_str() {
                    self.stop_reason = Some(reason.to_owned());
                }
                if let Some(new) = usage {
                    let old = self.usage.unwrap_or_default();
                    self.usage = Some(Usage {
                        input_tokens: new.input_tokens.or(old.input_tokens),
                        output_tokens: new.output_tokens.or(old.output_tokens),
                        cache_read_input_tokens: new.cache_read_input_tokens.or(old.cache_read_input_tokens),
                        cache_creation_input_tokens: new
                            .cache_creation_input_tokens
                            .or(old.cache_creation_input_tokens),
                    });
                }
            }
            StreamEvent::MessageStop => self.stopped = true,
            StreamEvent::Error { error } => return Err(Refusal::value(&error).into_error()),
            StreamEvent::Other => {}
        }
        Ok(self.stopped)
    }

    fn spent(&self) -> Spent {
        wire::spent(!self.blocks.is_empty(), self.usage.map(tokens), None)
    }

    fn written(&self) -> usize {
        self.blocks.iter().map(|one| wire::bytes_of(&one.block) + one.json.len()).sum()
    }

    fn finish(self: Box<Self>, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        if !self.stopped && self.stop_reason.is_none() {
            return Err(cut_off());
        }
        Ok(assemble(request, self.blocks, self.stop_reason, self.usage, self.model))
    }
}

impl Fold {
    fn delta(&mut self, index: usize, delta: &Value) -> Result<(), ModelError> {
        let Some(StreamedBlock { block, json }) = self.blocks.get_mut(index) else {
            return Err(invalid(format!("a piece of content block {index}, which was never begun")));
        };
        let mut append = |key: &str| {
            let piece = delta[key].as_str().unwrap_or_default();
            match block.get_mut(key) {
                Some(Value::String(so_far)) => so_far.push_str(piece),
                _ => block[key] = json!(piece),
            }
        };
        match delta["type"].as_str() {
            Some("text_delta") => append("text"),
            Some("thinking_delta") => append("thinking"),
            Some("signature_delta") => append("signature"),
            Some("input_json_delta") => json.push_str(delta["partial_json"].as_str().unwrap_or_default()),
            _ => {}
        }
        Ok(())
    }
}

fn assemble(
    request: &ModelRequest,
    blocks: Vec<StreamedBlock>,
    stop_raw: Option<String>,
    usage: Option<Usage>,
    actual_model: Option<String>,
) -> ModelReply {
    let stop = match stop_raw.as_deref() {
        Some("end_turn" | "stop_sequence") => ReplyStop::End,
        Some("tool_use") => ReplyStop::ToolCalls,
        Some("max_tokens" | "model_context_window_exceeded") => ReplyStop::Length,
        Some("refusal") => ReplyStop::Refusal,
        _ => ReplyStop::Other,
    };
    let mut text = String::new();
    let mut raw = Vec::new();
    let mut marked = Vec::new();
    for StreamedBlock { block, json } in blocks {
        match block["type"].as_str() {
            Some("text") => {
                text.push_str(block["text"].as_str().unwrap_or_default());
                marked.push(reasoning::text_mark());
            }
            Some("tool_use") => {
                let arguments = match &block["input"] {
                    _ if !json.is_empty() => json,
                    Value::Null => String::new(),
                    // What a call begins with. Its arguments come in pieces.
                    Value::Object(input) if input.is_empty() => String::new(),
                    // Gateways that cannot parse what the model wrote pass it on as text.
                    Value::String(raw) => raw.clone(),
                    input => input.to_string(),
                };
                let id = block["id"].as_str().map(str::to_owned);
                let name = block["name"].as_str().unwrap_or_default().to_owned();
                raw.push(RawCall { id, name, arguments });
                marked.push(reasoning::call_mark());
            }
            Some("thinking" | "redacted_thinking") => marked.push(block),
            _ => {}
        }
    }
    let tool_calls = calls::identify(raw, request, stop);
    ModelReply {
        text,
        reasoning: reasoning::wrap(WIRE, request, marked, &tool_calls),
        tool_calls,
        stop,
        stop_raw,
        usage: usage.map(tokens),
        cost: None,
        actual_provider: None,
        actual_model,
    }
}

fn tokens(usage: Usage) -> TokenUsage {
    TokenUsage::new(
        usage.input_tokens.unwrap_or_default(),
        usage.output_tokens.unwrap_or_default(),
        usage.cache_read_input_tokens.unwrap_or_default(),
        usage.cache_creation_input_tokens.unwrap_or_default(),
    )
}
