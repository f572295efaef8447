//! Results of calls that are not all as they should be: what can be read of one is read, and what cannot is named.

use rmcp::RoleClient;
use rmcp::model::{CallToolResult, ContentBlock, JsonRpcMessage, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;

use crate::domain::call_text::one_line;

/// Characters of a kind or an address that is named.
const LONGEST_NAME: usize = 200;

/// A transport whose odd results are read.
pub(super) struct Readable<T>(pub(super) T);

impl<T: Transport<RoleClient>> Transport<RoleClient> for Readable<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), T::Error>> + Send + 'static {
        self.0.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        let mut message = self.0.receive().await?;
        if let JsonRpcMessage::Response(response) = &mut message
            && let ServerResult::CustomResult(custom) = &response.result
            && let Some(result) = read(&custom.0)
        {
            response.result = ServerResult::CallToolResult(result);
        }
        Some(message)
    }

    async fn close(&mut self) -> Result<(), T::Error> {
        self.0.close().await
    }
}

/// A result of a call; `None` = it has nothing of one.
pub(super) fn read(result: &Value) -> Option<CallToolResult> {
    let known = ["content", "structuredContent", "isError"];
    if !known.iter().any(|name| result.get(name).is_some()) {
        return None;
    }
    let content = match result.get("content") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(blocks)) => blocks.iter().map(block).collect(),
        Some(one) => vec![block(one)],
    };
    let mut read = CallToolResult::success(content);
    read.structured_content = result.get("structuredContent").cloned();
    read.is_error = result
        .get("isError")
        .map(|is| !matches!(is, Value::Null | Value::Bool(false)) && *is != 0 && *is != "false");
    read.meta = result.get("_meta").and_then(|meta| serde_json::from_value(meta.clone()).ok());
    Some(read)
}

fn block(block: &Value) -> ContentBlock {
    serde_json::from_value(block.clone()).unwrap_or_else(|_| ContentBlock::text(named(block)))
}

/// The text of a block, wherever it has one, below what the block is; a text needs no such line.
fn named(block: &Value) -> String {
    let at = |places: &[&str]| places.iter().find_map(|place| block.pointer(place)?.as_str());
    let text = block.as_str().or_else(|| at(&["/text", "/resource/text"]));
    let kind = at(&["/type"]);
    if let (Some(text), None | Some("text")) = (text, kind) {
        return text.to_owned();
    }
    let mut what = match kind {
        Some(kind) => format!("content of the type \"{}\"", one_line(kind, LONGEST_NAME)),
        None => "content without a type".to_owned(),
    };
    if let Some(uri) = at(&["/uri", "/resource/uri"]) {
        what = format!("{what}, {}", one_line(uri, LONGEST_NAME));
    }
    match text {
        Some(text) => format!("[{what}]\n{text}"),
        None => format!("[{what}: it cannot be shown]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_odd_block_costs_nothing_of_the_others_and_is_named() {
        let rows = [
            (json!({"type": "text", "text": "as it should be"}), "as it should be"),
            (json!({"type": "text", "text": "a", "annotations": {"priority": "high"}, "_meta": 7}), "a"),
            (json!({"type": "text"}), "[content of the type \"text\": it cannot be shown]"),
            (json!({"type": "text", "text": 7}), "[content of the type \"text\": it cannot be shown]"),
            (json!({"type": "chart", "text": "b"}), "[content of the type \"chart\"]\nb"),
            (json!({"type": "chart\n", "data": [1]}), "[content of the type \"chart\": it cannot be shown]"),
            (json!({"text": "c"}), "c"),
            (json!("d"), "d"),
            (json!(7), "[content without a type: it cannot be shown]"),
            (
                json!({"type": "resource_link", "uri": "file:///e"}),
                "[content of the type \"resource_link\", file:///e: it cannot be shown]",
            ),
            (
                json!({"type": "resource", "resource": {"uri": "file:///f", "text": "f", "mimeType": 7}}),
                "[content of the type \"resource\", file:///f]\nf",
            ),
        ];
        let blocks: Vec<Value> = rows.iter().map(|(block, _)| block.clone()).collect();
        let result = read(&json!({"content": blocks})).unwrap();
        for (read, (block, text)) in result.content.iter().zip(&rows) {
            assert_eq!(read.as_text().map(|read| read.text.as_str()), Some(*text), "{block}");
        }
        assert_eq!(result.content.len(), rows.len());
    }

    #[test]
    fn what_is_around_the_content_may_be_odd_too() {
        let texts = |result: Value| {
            let result = read(&result).unwrap();
            let texts = result.content.iter().map(|block| block.as_text().unwrap().text.clone());
            (texts.collect::<Vec<_>>(), result.is_error)
        };
        assert_eq!(texts(json!({"content": "plain", "isError": "true"})), (vec!["plain".into()], Some(true)));
        assert_eq!(texts(json!({"content": {"type": "text", "text": "one"}})), (vec!["one".into()], None));
        assert_eq!(texts(json!({"content": null, "isError": "false"})), (vec![], Some(false)));
        let structured = read(&json!({"structuredContent": [1], "isError": 0.5})).unwrap();
        assert_eq!(structured.structured_content, Some(json!([1])));
        assert!(read(&json!({"tools": []})).is_none() && read(&json!("content")).is_none());
    }
}
