//! OpenAI chat completions, and every compatible server. What is sent is strict; what is read is lenient.

use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::calls::{self, RawCall};
use super::failure::{Refusal, cut_off, invalid};
use super::json;
use super::openai_wire::{
    Call, CallFunction, Choice, Function, ImageUrl, Reply, ReplyCall, ReplyMessage, Request, StreamOptions,
    Tool, Turn, Usage, UserContent, UserPart,
};
use super::reasoning;
use super::wire::{self, tool_choice};
use crate::domain::message::{Message, TokenUsage, sent_arguments};
use crate::domain::model_wire::ProviderKind;
use crate::domain::money::Money;
use crate::domain::sse::Event;
use crate::engine::model::{ModelError, ModelReply, ModelRequest, ReplyStop, Spent};

const WIRE: &str = ProviderKind::Openai.as_str();

/// The wire.
pub(super) struct Openai;

impl wire::Wire for Openai {
    /// The base URL ends in `/v1`.
    fn path(&self, _request: &ModelRequest, _base_url: &str) -> String {
        "/chat/completions".to_owned()
    }

    fn body(&self, request: &ModelRequest, base_url: &str) -> Result<Vec<u8>, serde_json::Error> {
        body(request, base_url)
    }

    fn spent(&self, reply: &Value) -> Spent {
        let usage = Usage::deserialize(&reply["usage"]).ok();
        wire::spent(false, usage.as_ref().and_then(tokens), usage.as_ref().and_then(cost))
    }

    fn read(&self, request: &ModelRequest, reply: Value) -> Result<ModelReply, ModelError> {
        let mut fold = Fold { done: true, ..Fold::default() };
        fold.value(reply)?;
        wire::Fold::finish(Box::new(fold), request)
    }

    fn fold(&self) -> Box<dyn wire::Fold> {
        Box::new(Fold::default())
    }
}

/// The limit of a reply is sent as `max_tokens`, which every server knows, except to OpenAI itself, whose newer models
/// take `max_completion_tokens` alone.
fn body(request: &ModelRequest, base_url: &str) -> Result<Vec<u8>, serde_json::Error> {
    let limit = Some(request.target.max_output_tokens);
    let newer = is_openai(base_url);
    serde_json::to_vec(&Request {
        model: &request.target.model,
        messages: request.messages.iter().map(|message| turn(message, request)).collect(),
        tools: request
            .tools
            .iter()
            .map(|spec| Tool {
                kind: "function",
                function: Function {
                    name: &spec.name,
                    description: &spec.description,
                    parameters: &spec.parameters,
                },
            })
            .collect(),
        tool_choice: tool_choice(request, "required", "none"),
        max_tokens: limit.filter(|_| !newer),
        max_completion_tokens: limit.filter(|_| newer),
        temperature: request.target.temperature,
        stream: request.stream,
        stream_options: request.stream.then_some(StreamOptions { include_usage: true }),
    })
}

fn is_openai(base_url: &str) -> bool {
    let host = reqwest::Url::parse(base_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| host == "api.openai.com" || host.ends_with(".openai.azure.com"))
}

fn turn<'a>(message: &'a Message, request: &ModelRequest) -> Turn<'a> {
    match message {
        Message::System { content } => Turn::System { content },
        Message::User { content } => Turn::User { content: user_content(message, content, request) },
        Message::Tool { tool_call_id, content } => Turn::Tool { tool_call_id, content },
        Message::Assistant { content, reasoning, tool_calls } => {
            let blocks = reasoning::recall(reasoning.as_ref(), WIRE, request);
            let mut reasoning = blocks.first().and_then(Value::as_object).cloned().unwrap_or_default();
            if reasoning.contains_key("reasoning_details") {
                // The details are the whole of it; the text beside them is their copy.
                reasoning.retain(|key, _| key == "reasoning_details");
            }
            Turn::Assistant {
                content: (!content.is_empty() || tool_calls.is_empty()).then_some(content),
                tool_calls: tool_calls
                    .iter()
                    .map(|call| Call {
                        id: &call.id,
                        kind: "function",
                        function: CallFunction {
                            name: calls::portable_name(&call.name),
                            arguments: sent_arguments(&call.arguments),
                        },
                    })
                    .collect(),
                reasoning,
            }
        }
    }
}

/// Plain text where there is no image: many servers take nothing else.
fn user_content<'a>(message: &'a Message, text: &'a str, request: &ModelRequest) -> UserContent<'a> {
    let images = wire::images_before(request, message);
    if images.is_empty() {
        return UserContent::Text(text);
    }
    let images =
        images.iter().map(|image| UserPart::ImageUrl { image_url: ImageUrl { url: wire::data_url(image) } });
    UserContent::Parts(images.chain([UserPart::Text { text }]).collect())
}

/// A reply put together from a stream's chunks, or from the one chunk that a whole reply is.
#[derive(Default)]
struct Fold {
    began: bool,
    done: bool,
    text: String,
    refused: bool,
    calls: Vec<(Option<usize>, RawCall)>,
    reasoning: Map<String, Value>,
    finish_reason: Option<String>,
    usage: Option<Usage>,
    model: Option<String>,
    provider: Option<String>,
}

impl wire::Fold for Fold {
    fn event(&mut self, event: &Event) -> Result<bool, ModelError> {
        if event.data.trim() == "[DONE]" {
            self.done = true;
            return Ok(true);
        }
        self.value(json::parse(event.data.as_bytes(), "a chunk is not JSON")?)?;
        Ok(false)
    }

    fn spent(&self) -> Spent {
        let usage = self.usage.as_ref();
        wire::spent(self.began, usage.and_then(tokens), usage.and_then(cost))
    }

    fn written(&self) -> usize {
        let calls = self.calls.iter().map(|(_, call)| call.name.len() + call.arguments.len());
        let thoughts = self.reasoning.values().map(wire::bytes_of);
        self.text.len() + calls.chain(thoughts).sum::<usize>()
    }

    fn finish(self: Box<Self>, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        if !self.done && self.finish_reason.is_none() {
            return Err(cut_off());
        }
        if !self.began {
            return Err(invalid("a chat completion without choices"));
        }
        let stop = match self.finish_reason.as_deref() {
            _ if self.refused => ReplyStop::Refusal,
            Some("stop" | "eos" | "end_turn" | "stop_sequence") => ReplyStop::End,
            Some("tool_calls" | "function_call" | "tool_use") => ReplyStop::ToolCalls,
            Some("length" | "max_tokens") => ReplyStop::Length,
            Some("content_filter" | "refusal") => ReplyStop::Refusal,
            _ => ReplyStop::Other,
        };
        let named = |call: &RawCall| !call.name.is_empty();
        let any = !self.calls.is_empty();
        let calls: Vec<RawCall> = self.calls.into_iter().map(|(_, call)| call).filter(named).collect();
        if any && calls.is_empty() {
            return Err(invalid("a tool call without a name"));
        }
        let blocks = if self.reasoning.is_empty() { Vec::new() } else { vec![Value::Object(self.reasoning)] };
        Ok(ModelReply {
            text: self.text,
            reasoning: reasoning::wrap(WIRE, request, blocks, &[]),
            tool_calls: calls::identify(calls, request, stop),
            stop,
            stop_raw: self.finish_reason,
            cost: self.usage.as_ref().and_then(cost),
            usage: self.usage.as_ref().and_then(tokens),
            actual_provider: self.provider,
            actual_model: self.model,
        })
    }
}

impl Fold {
    fn value(&mut self, value: Value) -> Result<(), ModelError> {
        if value["object"] == "error" {
            return Err(Refusal::value(&value).into_error());
        }
        if let Some(refusal) = Refusal::inside(&value) {
            return Err(refusal.into_error());
        }
        let reply: Reply = json::shape(value, "not a chat completion")?;
        self.model = self.model.take().or(reply.model.filter(|model| !model.is_empty()));
        if let Some(Value::String(provider)) = reply.provider {
            self.provider = Some(provider);
        }
        // The last word may be one of zeros.
        let says =
            |usage: &Usage| usage.cost.is_some() || tokens(usage).is_some_and(|all| all.total_tokens > 0);
        self.usage = reply.usage.filter(says).or(self.usage.take());
        let first = |choice: &Choice| choice.index.unwrap_or_default() == 0;
        for choice in reply.choices.unwrap_or_default().into_iter().filter(first) {
            self.began = true;
            self.finish_reason = choice.finish_reason.or(self.finish_reason.take());
            for message in [choice.message, choice.delta].into_iter().flatten() {
                self.message(message);
            }
        }
        Ok(())
    }

    fn message(&mut self, message: ReplyMessage) {
        match message.content {
            Some(Value::String(text)) => self.text.push_str(&text),
            Some(Value::Array(parts)) => {
                for part in parts.iter().filter(|part| part["type"] == "text") {
                    self.text.push_str(part["text"].as_str().unwrap_or_default());
                }
            }
            _ => {}
        }
        self.refused |= message.refusal.is_some_and(|refusal| !refusal.is_empty());
        for call in message.tool_calls.unwrap_or_default() {
            self.call(call);
        }
        for (field, value) in
            [("reasoning_content", message.reasoning_content), ("reasoning", message.reasoning)]
        {
            if let Some(Value::String(piece)) = value
                && !piece.is_empty()
            {
                append(&mut self.reasoning, field, &piece);
            }
        }
        if let Some(Value::Array(details)) = message.reasoning_details
            && !details.is_empty()
        {
            let all = self.reasoning.entry("reasoning_details").or_insert_with(|| json!([]));
            if let Value::Array(all) = all {
                details.into_iter().for_each(|detail| merge_detail(all, detail));
            }
        }
    }

    /// Pieces of a call have the same index. Servers that omit or repeat the index use ids.
    fn call(&mut self, piece: ReplyCall) {
        let id = match piece.id {
            Some(Value::String(id)) if !id.is_empty() => Some(id),
            Some(Value::Number(id)) => Some(id.to_string()),
            _ => None,
        };
        let function = piece.function.unwrap_or_default();
        let place = match piece.index {
            Some(index) => self.calls.iter().rposition(|(at, call)| {
                *at == Some(index) && (id.is_none() || call.id.is_none() || call.id == id)
            }),
            None if self.done || id.is_some() => {
                // Whole calls, or the first piece of one.
                id.as_ref()
                    .filter(|_| !self.done)
                    .and_then(|id| self.calls.iter().rposition(|(_, call)| call.id.as_ref() == Some(id)))
            }
            None => {
                let continues = function.name.as_deref().unwrap_or_default().is_empty();
                self.calls.len().checked_sub(1).filter(|_| continues)
            }
        };
        let place = place.unwrap_or_else(|| {
            self.calls.push((piece.index, RawCall::default()));
            self.calls.len() - 1
        });
        let Some((_, call)) = self.calls.get_mut(place) else { return };
        call.id = call.id.take().or(id);
        if call.name.is_empty() {
            call.name = function.name.unwrap_or_default();
        }
        match function.arguments {
            Some(Value::String(piece)) => call.arguments.push_str(&piece),
            None | Some(Value::Null) => {}
            Some(whole) => call.arguments.push_str(&whole.to_string()),
        }
    }
}

fn append(object: &mut Map<String, Value>, key: &str, piece: &str) {
    match object.get_mut(key) {
        Some(Value::String(so_far)) => so_far.push_str(piece),
        _ => {
            object.insert(key.to_owned(), json!(piece));
        }
    }
}

/// Streamed details with the same index are pieces of one; their texts are joined, the last of other fields stays.
fn merge_detail(all: &mut Vec<Value>, detail: Value) {
    let same = |other: &&mut Value| {
        detail.get("index").is_some()
            && other.get("index") == detail.get("index")
            && other.get("type") == detail.get("type")
    };
    let Some(Value::Object(so_far)) = all.iter_mut().find(same) else {
        all.push(detail);
        return;
    };
    let Value::Object(detail) = detail else { return };
    for (key, value) in detail {
        match value {
            Value::String(piece) if matches!(key.as_str(), "text" | "summary" | "data") => {
                append(so_far, &key, &piece);
            }
            Value::Null => {}
            value => {
                so_far.insert(key, value);
            }
        }
    }
}

fn cost(usage: &Usage) -> Option<Money> {
    let own = Money::from_dollars(usage.cost?)?;
    // With a key of one's own the router's cost is its fee alone.
    let details = usage.cost_details.as_ref().filter(|_| usage.is_byok == Some(true));
    let upstream = details.and_then(|details| Money::from_dollars(details.upstream_inference_cost?));
    Some(own + upstream.unwrap_or_default())
}

/// Prompt tokens include cached ones on this wire; output includes reasoning, also where only the total says so.
fn tokens(usage: &Usage) -> Option<TokenUsage> {
    let prompt = usage.prompt_tokens?;
    let details = usage.prompt_tokens_details.clone().unwrap_or_default();
    let read = details.cached_tokens.or(usage.prompt_cache_hit_tokens).unwrap_or_default().min(prompt);
    let write = details.cache_write_tokens.unwrap_or_default().min(prompt - read);
    let rest = usage.total_tokens.unwrap_or_default().saturating_sub(prompt);
    let output = usage.completion_tokens.unwrap_or_default().max(rest);
    Some(TokenUsage::new(prompt - read - write, output, read, write))
}
