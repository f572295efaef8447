//! OpenAI Responses, without server-side state: every request carries the whole conversation, encrypted reasoning included.

use serde::Deserialize as _;
use serde_json::Value;

use super::calls::{self, RawCall};
use super::failure::{Refusal, cut_off, invalid};
use super::json;
use super::openai_responses_wire::{InputPart, Item, Reply, Request, Tool, Usage};
use super::reasoning::{self, Piece};
use super::wire::{self, tool_choice};
use crate::domain::message::{Message, TokenUsage, sent_arguments};
use crate::domain::model_wire::ProviderKind;
use crate::domain::sse::Event;
use crate::engine::model::{ModelError, ModelReply, ModelRequest, ReplyStop, Spent};

const WIRE: &str = ProviderKind::OpenaiResponses.as_str();

/// The wire.
pub(super) struct OpenaiResponses;

impl wire::Wire for OpenaiResponses {
    /// The base URL ends in `/v1`.
    fn path(&self, _request: &ModelRequest, _base_url: &str) -> String {
        "/responses".to_owned()
    }

    fn body(&self, request: &ModelRequest, _base_url: &str) -> Result<Vec<u8>, serde_json::Error> {
        body(request)
    }

    fn spent(&self, reply: &Value) -> Spent {
        wire::spent(false, Usage::deserialize(&reply["usage"]).ok().map(tokens), None)
    }

    fn read(&self, request: &ModelRequest, reply: Value) -> Result<ModelReply, ModelError> {
        if !reply["output"].is_array() && reply.get("error").is_none_or(Value::is_null) {
            return Err(invalid("not a response of the Responses API"));
        }
        assemble(request, reply)
    }

    fn fold(&self) -> Box<dyn wire::Fold> {
        Box::new(Fold::default())
    }
}

fn body(request: &ModelRequest) -> Result<Vec<u8>, serde_json::Error> {
    let instructions: Vec<&str> = request
        .messages
        .iter()
        .filter_map(|message| match message {
            Message::System { content } => Some(content.as_str()),
            _ => None,
        })
        .collect();
    serde_json::to_vec(&Request {
        model: &request.target.model,
        instructions: instructions.join("\n\n"),
        input: request.messages.iter().flat_map(|message| items(message, request)).collect(),
        tools: request
            .tools
            .iter()
            .map(|spec| Tool {
                kind: "function",
                name: &spec.name,
                description: &spec.description,
                parameters: &spec.parameters,
                strict: false,
            })
            .collect(),
        tool_choice: tool_choice(request, "required", "none"),
        max_output_tokens: request.target.max_output_tokens,
        temperature: request.target.temperature,
        store: false,
        include: if reasons(&request.target.model) { &["reasoning.encrypted_content"] } else { &[] },
        stream: request.stream,
    })
}

/// Models that do not reason refuse a request for reasoning. The older families are listed; new models reason.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    !["gpt-3", "gpt-4", "chatgpt-"].iter().any(|family| name.starts_with(family))
}

fn user<'a>(message: &'a Message, text: &'a str, request: &ModelRequest) -> Item<'a> {
    let images = wire::images_before(request, message);
    if images.is_empty() {
        return Item::Message { role: "user", content: text };
    }
    let images =
        images.iter().map(|image| InputPart::InputImage { image_url: wire::data_url(image), detail: "auto" });
    Item::Parts { role: "user", content: images.chain([InputPart::InputText { text }]).collect() }
}

fn items<'a>(message: &'a Message, request: &ModelRequest) -> Vec<Item<'a>> {
    match message {
        Message::System { .. } => Vec::new(),
        Message::User { content } => vec![user(message, content, request)],
        Message::Tool { tool_call_id, content } => vec![Item::FunctionCallOutput {
            kind: "function_call_output",
            call_id: calls::portable_id(tool_call_id),
            output: content,
        }],
        Message::Assistant { content, reasoning, tool_calls } => {
            let blocks = reasoning::recall(reasoning.as_ref(), WIRE, request);
            let mut items: Vec<Item<'a>> = reasoning::pieces(blocks, content, tool_calls)
                .into_iter()
                .filter_map(|piece| match piece {
                    Piece::Text(content, _) => Some(Item::Message { role: "assistant", content }),
                    Piece::Call(call, _) => Some(Item::FunctionCall {
                        kind: "function_call",
                        call_id: calls::portable_id(&call.id),
                        name: calls::portable_name(&call.name),
                        arguments: sent_arguments(&call.arguments),
                    }),
                    // Without its encrypted form an item is a reference to what the server did not store.
                    Piece::Reasoning(item) => {
                        item["encrypted_content"].is_string().then_some(Item::Verbatim(item))
                    }
                })
                .collect();
            // Reasoning that nothing followed is refused ("without its required following item").
            while matches!(items.last(), Some(Item::Verbatim(_))) {
                items.pop();
            }
            items
        }
    }
}

/// A reply that is taken from a stream's events: the last one holds it whole.
#[derive(Default)]
struct Fold {
    began: bool,
    items: Vec<Value>,
    response: Option<Value>,
    written: usize,
}

impl wire::Fold for Fold {
    fn event(&mut self, event: &Event) -> Result<bool, ModelError> {
        if event.data.trim() == "[DONE]" {
            return Ok(true);
        }
        let mut value: Value = json::parse(event.data.as_bytes(), "an event is not JSON")?;
        self.began |= value["type"].as_str().is_some_and(|kind| kind.starts_with("response.output_"));
        self.written += value["delta"].as_str().map_or(0, str::len);
        match value["type"].as_str() {
            Some("response.output_item.done") => self.items.push(value["item"].take()),
            Some("response.completed" | "response.incomplete" | "response.failed") => {
                self.response = Some(value["response"].take());
                return Ok(true);
            }
            Some("error") => return Err(Refusal::value(&value).into_error()),
            _ => {
                if let Some(refusal) = Refusal::inside(&value) {
                    return Err(refusal.into_error());
                }
            }
        }
        Ok(false)
    }

    fn spent(&self) -> Spent {
        let usage = self.response.as_ref().and_then(|response| Usage::deserialize(&response["usage"]).ok());
        wire::spent(self.began, usage.map(tokens), None)
    }

    fn written(&self) -> usize {
        // Some servers tell items whole, without their pieces.
        self.written.max(self.items.iter().map(wire::bytes_of).sum())
    }

    fn finish(self: Box<Self>, request: &ModelRequest) -> Result<ModelReply, ModelError> {
        let Some(mut response) = self.response else { return Err(cut_off()) };
        if response["output"].as_array().is_none_or(Vec::is_empty) {
            // Some servers leave the items to their own events.
            response["output"] = Value::Array(self.items);
        }
        assemble(request, response)
    }
}

fn assemble(request: &ModelRequest, value: Value) -> Result<ModelReply, ModelError> {
    if value["status"] == "failed" {
        return Err(Refusal::value(&value).into_error());
    }
    if let Some(refusal) = Refusal::inside(&value) {
        return Err(refusal.into_error());
    }
    let reply: Reply = json::shape(value, "not a response")?;
    let mut text = String::new();
    let mut refused = false;
    let mut raw = Vec::new();
    let mut blocks = Vec::new();
    for item in reply.output {
        match item["type"].as_str() {
            Some("message") => {
                for part in item["content"].as_array().into_iter().flatten() {
                    text.push_str(part["text"].as_str().unwrap_or_default());
                    refused |= part["type"] == "refusal";
                }
                blocks.push(reasoning::text_mark());
            }
            Some("function_call") => {
                raw.push(RawCall {
                    id: item["call_id"].as_str().map(str::to_owned),
                    name: item["name"].as_str().unwrap_or_default().to_owned(),
                    arguments: match &item["arguments"] {
                        Value::String(text) => text.clone(),
                        Value::Null => String::new(),
                        whole => whole.to_string(),
                    },
                });
                blocks.push(reasoning::call_mark());
            }
            Some("reasoning") => blocks.push(item),
            _ => {}
        }
    }
    let incomplete = reply.incomplete_details.and_then(|details| details.reason);
    let stop = match (incomplete.as_deref(), reply.status.as_deref()) {
        _ if refused => ReplyStop::Refusal,
        (Some("max_output_tokens"), _) => ReplyStop::Length,
        (Some("content_filter"), _) => ReplyStop::Refusal,
        (None, Some("completed")) if raw.is_empty() => ReplyStop::End,
        (None, Some("completed")) => ReplyStop::ToolCalls,
        _ => ReplyStop::Other,
    };
    let tool_calls = calls::identify(raw, request, stop);
    Ok(ModelReply {
        text,
        reasoning: reasoning::wrap(WIRE, request, blocks, &tool_calls),
        tool_calls,
        stop,
        stop_raw: incomplete.or(reply.status),
        usage: reply.usage.map(tokens),
        cost: None,
        actual_provider: None,
        actual_model: reply.model,
    })
}

fn tokens(usage: Usage) -> TokenUsage {
    let (input, output) = (usage.input_tokens.unwrap_or_default(), usage.output_tokens.unwrap_or_default());
    let cached = usage.input_tokens_details.and_then(|details| details.cached_tokens);
    let cached = cached.unwrap_or_default().min(input);
    TokenUsage::new(input - cached, output, cached, 0)
}
