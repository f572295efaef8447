//! The answer of a server to a call, as text for the model, or as an error that says whom it is for.

use rmcp::ServiceError;
use rmcp::model::{CallToolResponse, CallToolResult, ContentBlock, ErrorCode, ErrorData, ResourceContents};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{HttpStatusError, StreamableHttpError};
use serde_json::Value;

use crate::domain::call_text::one_line;
use crate::engine::tool::{ToolError, ToolOutput};

/// Characters of what a server says beside an HTTP status.
const LONGEST_REFUSAL: usize = 300;

/// A call's answer. `isError` and JSON-RPC errors are for the model, with the tool's own class where it sent one (S-029).
pub fn read(server: &str, answer: Result<CallToolResponse, ServiceError>) -> Result<ToolOutput, ToolError> {
    match answer {
        Ok(CallToolResponse::Complete(result)) if result.is_error == Some(true) => Err(failure(result)),
        Ok(CallToolResponse::Complete(result)) => {
            Ok(ToolOutput::text(text(result.content, result.structured_content.as_ref())))
        }
        Ok(CallToolResponse::InputRequired(_)) => Err(ToolError::for_model(
            "the tool asks for an answer of a person, which it cannot get here; call it with all it needs",
        )),
        Ok(_) => Err(ToolError::for_model("the tool answered with a task instead of a result")),
        Err(ServiceError::McpError(error)) => Err(refused(&error)),
        Err(ServiceError::Timeout { .. }) => Err(ToolError::Timeout),
        Err(ServiceError::TransportClosed) => Err(ToolError::for_model(went_away(server))),
        Err(ServiceError::TransportSend(error)) => Err(ToolError::for_model(not_taken(server, &error))),
        Err(ServiceError::UnexpectedResponse) => Err(ToolError::for_model(format!(
            "the MCP server {server} answered with something that is not a tool result"
        ))),
        Err(_) => Err(ToolError::for_model(format!("the MCP server {server} did not finish the call"))),
    }
}

fn went_away(server: &str) -> String {
    format!("the MCP server {server} went away during the call; whether the call had an effect is unknown")
}

/// A call that did not come to an answer: over HTTP the server may have said why.
fn not_taken(server: &str, error: &DynamicTransportError) -> String {
    let Some(error) = error.error.downcast_ref::<StreamableHttpError<reqwest::Error>>() else {
        return went_away(server);
    };
    let refused = |what: &str| format!("the MCP server {server} refused the call: {what}");
    match error {
        StreamableHttpError::AuthRequired(_) => refused("HTTP 401"),
        StreamableHttpError::InsufficientScope(_) => refused("HTTP 403"),
        StreamableHttpError::HttpStatus(HttpStatusError { status: 429, retry_after, .. }) => {
            let after = retry_after.as_ref().map(|after| format!(", try again after {after}"));
            refused(&format!("HTTP 429{}", after.unwrap_or_default()))
        }
        StreamableHttpError::HttpStatus(HttpStatusError { status, .. }) => format!(
            "the MCP server {server} answered the call with HTTP {status}; whether the call had an effect is unknown"
        ),
        StreamableHttpError::UnexpectedServerResponse(said) => refused(&one_line(said, LONGEST_REFUSAL)),
        StreamableHttpError::ResponseBodyTooLarge { .. }
        | StreamableHttpError::UnexpectedContentType(_)
        | StreamableHttpError::Deserialize(_) => format!(
            "the MCP server {server} answered the call with something that cannot be taken ({}); whether the call had an effect is \
             unknown",
            one_line(&error.to_string(), LONGEST_REFUSAL)
        ),
        _ => went_away(server),
    }
}

/// All content blocks as text; structured content alone as compact JSON.
fn text(mut content: Vec<ContentBlock>, structured: Option<&Value>) -> String {
    match (content.pop(), structured) {
        (None, Some(structured)) => structured.to_string(),
        // A single long text is handed on, not copied.
        (Some(only), _) if content.is_empty() => block(only),
        (last, _) => content.into_iter().chain(last).map(block).collect::<Vec<_>>().join("\n"),
    }
}

fn block(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => left_out("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => left_out("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => format!("[resource {uri}]\n{text}"),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.as_deref().unwrap_or("application/octet-stream");
                left_out(&format!("resource {uri}"), kind, blob)
            }
            _ => "[resource]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => {
            let about = link.description.as_deref().or(link.title.as_deref()).unwrap_or(&link.name);
            format!("[resource {}] {about}", link.uri)
        }
        _ => "[content of an unknown kind]".to_owned(),
    }
}

/// Binary content is named, not shown.
fn left_out(what: &str, kind: &str, base64: &str) -> String {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    format!("[{what}: {kind}, {} bytes]", (base64.len() * 3 / 4).saturating_sub(padding))
}

/// A result that says it is an error: its own class and message where it has the shape of S-024, else its text.
fn failure(result: CallToolResult) -> ToolError {
    let text = text(result.content, result.structured_content.as_ref());
    let in_text = serde_json::from_str::<Value>(&text).ok();
    let in_meta = result.meta.as_ref().and_then(|meta| serde_json::to_value(meta).ok());
    let told: Vec<&Value> = [result.structured_content.as_ref(), in_text.as_ref(), in_meta.as_ref()]
        .into_iter()
        .flatten()
        .collect();
    let class = told.iter().find_map(|value| class(value));
    let message = told.iter().find_map(|value| message(value)).unwrap_or(text);
    let message =
        if message.trim().is_empty() { "the tool failed without a reason".to_owned() } else { message };
    ToolError::ForModel { error_type: class.unwrap_or_else(|| "ToolExecutionError".to_owned()), message }
}

fn refused(error: &ErrorData) -> ToolError {
    let message = error.message.clone().into_owned();
    let unknown_tool = message.to_ascii_lowercase().contains("unknown tool");
    let own = error.data.as_ref().and_then(class);
    let error_type = own.unwrap_or_else(|| {
        match error.code {
            ErrorCode::METHOD_NOT_FOUND => "ToolNotFound",
            ErrorCode::INVALID_PARAMS if unknown_tool => "ToolNotFound",
            ErrorCode::INVALID_PARAMS | ErrorCode::INVALID_REQUEST => "Validation",
            ErrorCode::RESOURCE_NOT_FOUND => "ResourceNotFound",
            _ => "ToolExecutionError",
        }
        .to_owned()
    });
    ToolError::ForModel { error_type, message }
}

/// The class a tool gives its error: a plain word under one of the usual names.
fn class(value: &Value) -> Option<String> {
    let inner = value.get("error").filter(|inner| inner.is_object()).unwrap_or(value);
    let names = ["error_type", "errorType", "error_class", "class"];
    let given = names.iter().find_map(|name| inner.get(name)?.as_str())?;
    let word = given.len() <= 64
        && given.starts_with(|c: char| c.is_ascii_alphabetic())
        && given.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'));
    word.then(|| given.to_owned())
}

fn message(value: &Value) -> Option<String> {
    let inner = value.get("error").filter(|inner| inner.is_object()).unwrap_or(value);
    ["message", "error"].iter().find_map(|name| inner.get(name)?.as_str()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(result: Value) -> Result<ToolOutput, ToolError> {
        read("s", Ok(CallToolResponse::Complete(serde_json::from_value(result).unwrap())))
    }

    #[test]
    fn every_kind_of_content_becomes_text() {
        let result = json!({ "content": [
            { "type": "text", "text": "hello" },
            { "type": "image", "mimeType": "image/png", "data": "AAAAAA==" },
            { "type": "audio", "mimeType": "audio/wav", "data": "AAAA" },
            { "type": "resource", "resource": { "uri": "file:///a", "text": "inside" } },
            { "type": "resource", "resource": { "uri": "file:///b", "blob": "AAAA" } },
            { "type": "resource_link", "uri": "file:///c", "name": "c", "description": "a file" },
        ], "structuredContent": { "x": 1 } });
        let lines = [
            "hello",
            "[image: image/png, 4 bytes]",
            "[audio: audio/wav, 3 bytes]",
            "[resource file:///a]",
            "inside",
            "[resource file:///b: application/octet-stream, 3 bytes]",
            "[resource file:///c] a file",
        ];
        assert_eq!(answer(result).unwrap().text, lines.join("\n"));
        assert_eq!(
            answer(json!({ "content": [], "structuredContent": { "x": 1 } })).unwrap().text,
            r#"{"x":1}"#
        );
    }

    #[test]
    fn s_029_the_class_a_tool_gives_its_error_is_kept() {
        let own = json!({ "error_type": "TaskNotFoundError", "message": "no task 7" });
        let shapes = [
            json!({ "isError": true, "content": [{ "type": "text", "text": own.to_string() }] }),
            json!({ "isError": true, "content": [], "structuredContent": own.clone() }),
            json!({ "isError": true, "content": [], "structuredContent": { "error": own.clone() } }),
        ];
        for shape in shapes {
            let expected =
                ToolError::ForModel { error_type: "TaskNotFoundError".into(), message: "no task 7".into() };
            assert_eq!(answer(shape).unwrap_err(), expected);
        }
        let plain = json!({ "isError": true, "content": [{ "type": "text", "text": "it broke" }] });
        assert_eq!(answer(plain).unwrap_err(), ToolError::for_model("it broke"));
    }

    #[test]
    fn s_026_json_rpc_errors_get_a_class_by_their_code() {
        let class = |code: i32, message: &'static str, data: Option<Value>| {
            let error = ErrorData { code: ErrorCode(code), message: message.into(), data };
            match read("s", Err(ServiceError::McpError(error))) {
                Err(ToolError::ForModel { error_type, .. }) => error_type,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(class(-32602, "Unknown tool: x", None), "ToolNotFound");
        assert_eq!(class(-32602, "path is required", None), "Validation");
        assert_eq!(class(-32601, "no such method", None), "ToolNotFound");
        assert_eq!(class(-32002, "no such file", None), "ResourceNotFound");
        assert_eq!(class(-32603, "oops", None), "ToolExecutionError");
        assert_eq!(class(-32603, "oops", Some(json!({ "error_type": "Own" }))), "Own");
    }
}
