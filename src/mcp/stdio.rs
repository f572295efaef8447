//! The standard streams of a server: one message on each line, limited in length. A message that cannot be read fails
//! its own call at once, and a line that is none is passed over.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::RoleClient;
use rmcp::model::{
    CustomResult, ErrorCode, ErrorData, JsonRpcMessage, JsonRpcResponse, RequestId, ServerNotification,
    ServerResult,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, Empty};

use super::odd_lines::OddLines;
use crate::sys::json_lines::{self, JsonLine, JsonLines, LONGEST};

/// How many of a server's own requests are answered. It has no reason to ask, and each answer takes memory.
const MOST_REQUESTS: usize = 1000;

/// Both streams of a child.
pub(super) struct Stdio<R, W: AsyncWrite> {
    lines: JsonLines<R>,
    requests: usize,
    write: AsyncRwTransport<RoleClient, Empty, W>,
    /// Set where the server says that its tools changed.
    changed: Arc<AtomicBool>,
    odd: Arc<OddLines>,
}

impl<R, W> Stdio<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    pub fn new(read: R, write: W, changed: Arc<AtomicBool>, odd: Arc<OddLines>) -> Self {
        let write = AsyncRwTransport::new_client(tokio::io::empty(), write);
        Self { lines: JsonLines::new(read), requests: 0, write, changed, odd }
    }
}

impl<R, W> Transport<RoleClient> for Stdio<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.write.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = match self.lines.next().await? {
                JsonLine::Whole(line) if line.is_empty() => None,
                JsonLine::Whole(line) => {
                    let message = read(&line);
                    if message.is_none() {
                        self.odd.note(&line);
                    }
                    message
                }
                JsonLine::TooLong(id) => {
                    failed(id, format!("the MCP server's answer is longer than {} MiB", LONGEST >> 20))
                }
            };
            match message {
                // Of what a server tells by itself one thing is needed, and however often it is told it costs no more.
                Some(JsonRpcMessage::Notification(told)) => {
                    if let ServerNotification::ToolListChangedNotification(_) = told.notification {
                        self.changed.store(true, Ordering::Relaxed);
                    }
                }
                None => {}
                Some(JsonRpcMessage::Request(_)) if self.requests >= MOST_REQUESTS => {
                    tracing::warn!("an MCP server asks without end; it is left");
                    return None;
                }
                Some(request @ JsonRpcMessage::Request(_)) => {
                    self.requests += 1;
                    return Some(request);
                }
                other => return other,
            }
            tokio::task::consume_budget().await;
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        self.write.close().await
    }
}

/// A message; one that cannot be read is the failure of the call that it answers, and `None` if it answers none.
fn read(line: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
    let mended;
    let (line, read) = match serde_json::from_slice(line) {
        // A text in it may have been cut within a character.
        Err(error) if !error.is_data() => {
            mended = json_lines::mended(line);
            (&mended[..], serde_json::from_slice(&mended))
        }
        read => (line, read),
    };
    let value = || serde_json::from_slice::<Value>(line);
    match read {
        // This result has nothing but that it is complete, so anything that is complete may be taken for it.
        Ok(JsonRpcMessage::Response(JsonRpcResponse {
            id, result: ServerResult::TaskAckResult(_), ..
        })) => Some(JsonRpcMessage::response(
            ServerResult::CustomResult(CustomResult(value().ok()?["result"].take())),
            id,
        )),
        Ok(message) => Some(message),
        Err(error) => {
            tracing::debug!(%error, "an MCP server wrote something that is no message");
            let id = match value() {
                Ok(value) => value.get("result").or(value.get("error")).and(value["id"].as_i64()),
                Err(_) => json_lines::id_at_the_ends(line),
            };
            failed(id, format!("the MCP server's answer cannot be read: {error}"))
        }
    }
}

fn failed(id: Option<i64>, message: String) -> Option<RxJsonRpcMessage<RoleClient>> {
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None);
    id.map(|id| JsonRpcMessage::error(error, Some(RequestId::Number(id))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_its_own_calls_failure() {
        let deep = format!(r#"{{"jsonrpc":"2.0","id":3,"result":{}{}}}"#, "[".repeat(5000), "]".repeat(5000));
        let Some(JsonRpcMessage::Error(error)) = read(deep.as_bytes()) else { panic!() };
        assert_eq!(error.id, Some(RequestId::Number(3)));
        assert!(read(b"Listening on stdio").is_none());
        assert!(read(br#"{"id":3,"level":"info"}"#).is_none());
        // A tool's words are nobody's id.
        assert!(read(br#"{"result":{"text":"\"id\":4"#).is_none());
        let cut =
            read(br#"{"jsonrpc":"2.0","id":5,"result":{"content":[{"type":"text","text":"a \ud83d"}]}}"#);
        let Some(JsonRpcMessage::Response(response)) = cut else { panic!() };
        let ServerResult::CallToolResult(result) = response.result else { panic!() };
        assert_eq!(result.content[0].as_text().unwrap().text, "a \u{fffd}");
        let complete = br#"{"jsonrpc":"2.0","id":6,"result":{"resultType":"complete","content":[7]}}"#;
        let Some(JsonRpcMessage::Response(response)) = read(complete) else { panic!() };
        assert!(matches!(response.result, ServerResult::CustomResult(_)), "{:?}", response.result);
    }
}
