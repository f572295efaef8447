//! The standard streams of a server: one message on each line, limited in length. A message that cannot be read fails
//! its own call at once.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite, Empty};

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
}

impl<R, W> Stdio<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    pub fn new(read: R, write: W, changed: Arc<AtomicBool>) -> Self {
        let write = AsyncRwTransport::new_client(tokio::io::empty(), write);
        Self { lines: JsonLines::new(read), requests: 0, write, changed }
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
                JsonLine::Whole(line) => read(&line),
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

/// A message; one that cannot be read is the failure of the call that it answers.
fn read(line: &[u8]) -> Option<RxJsonRpcMessage<RoleClient>> {
    if line.is_empty() {
        return None;
    }
    serde_json::from_slice(line).map_or_else(
        |error| {
            tracing::debug!(%error, "an MCP server wrote something that is no message");
            let id = json_lines::id_at_the_ends(line);
            failed(id, format!("the MCP server's answer cannot be read: {error}"))
        },
        Some,
    )
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
        assert!(read(b"Listening on stdio\r").is_none() && read(b"").is_none());
        // A tool's words are nobody's id.
        assert!(read(br#"{"result":{"text":"\"id\":4"#).is_none());
    }
}
