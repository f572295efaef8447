//! The standard streams of a server: one message on each line, limited in length. A message that cannot be read fails
//! its own call at once.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use regex::bytes::Regex;
use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId, ServerNotification};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, BufReader, Empty};

/// Longest message, in bytes; as over HTTP.
const LONGEST: usize = 16 * 1024 * 1024;
/// What is kept of the beginning and the end of a message that is longer.
const ENDS: usize = 256;
/// How many of a server's own requests are answered. It has no reason to ask, and each answer takes memory.
const MOST_REQUESTS: usize = 1000;

/// The id at the start or end of a message. Elsewhere it may be the text of a tool.
static FIRST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"^\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*([0-9]{1,18})\s*,"#).ok()
});
static LAST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#""id"\s*:\s*([0-9]{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$"#).ok()
});

/// Both streams of a child.
pub(super) struct Stdio<R, W: AsyncWrite> {
    lines: Lines<R>,
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
        Self { lines: Lines::new(read), requests: 0, write, changed }
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
                Line::Whole(line) => read(&line),
                Line::TooLong { first, last } => {
                    let words = format!("the MCP server's answer is longer than {} MiB", LONGEST >> 20);
                    failed(id(&first, &last), words)
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
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).trim_ascii();
    if line.is_empty() {
        return None;
    }
    serde_json::from_slice(line).map_or_else(
        |error| {
            tracing::debug!(%error, "an MCP server wrote something that is no message");
            let (first, last) = (&line[..line.len().min(ENDS)], &line[line.len().saturating_sub(ENDS)..]);
            failed(id(first, last), format!("the MCP server's answer cannot be read: {error}"))
        },
        Some,
    )
}

fn id(first: &[u8], last: &[u8]) -> Option<RequestId> {
    let found = |pattern: &Option<Regex>, text| {
        let digits = pattern.as_ref()?.captures(text)?.get(1)?.as_bytes();
        std::str::from_utf8(digits).ok()?.parse::<i64>().ok()
    };
    found(&FIRST, first).or_else(|| found(&LAST, last)).map(RequestId::Number)
}

fn failed(id: Option<RequestId>, message: String) -> Option<RxJsonRpcMessage<RoleClient>> {
    let error = ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None);
    id.map(|id| JsonRpcMessage::error(error, Some(id)))
}

/// One line.
enum Line {
    Whole(Vec<u8>),
    /// Its ends.
    TooLong {
        first: Vec<u8>,
        last: Vec<u8>,
    },
}

/// Lines of limited length. A wait for a line may be cancelled and begun again, because what was read is kept.
struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// The beginning of a line that is too long; the line then holds its last bytes.
    first: Option<Vec<u8>>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    fn new(read: R) -> Self {
        Self { read: BufReader::new(read), line: Vec::new(), first: None }
    }

    /// `None` = there are no more.
    async fn next(&mut self) -> Option<Line> {
        loop {
            let available = self.read.fill_buf().await.ok()?;
            if available.is_empty() {
                return None;
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            self.line.extend_from_slice(&available[..end.unwrap_or(available.len())]);
            let read = end.map_or(available.len(), |end| end + 1);
            self.read.consume(read);
            if self.first.is_none() && self.line.len() > LONGEST {
                self.first = Some(self.line[..ENDS].to_vec());
            }
            if self.first.is_some() && self.line.len() > 2 * ENDS {
                let last = self.line.split_off(self.line.len() - ENDS);
                self.line = last;
            }
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                return Some(match self.first.take() {
                    Some(first) => Line::TooLong { first, last: line },
                    None => Line::Whole(line),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_costs_itself_and_what_follows_is_read() {
        let long = format!(r#"{{"result":"{}","jsonrpc":"2.0","id":7}}"#, "x".repeat(LONGEST));
        let text = format!("{long}\nshort\n{}", r#"{"jsonrpc":"2.0","id":8,"result":"#);
        let text = format!("{text}\"{}\"}}\n", "y".repeat(LONGEST));
        let mut lines = Lines::new(text.as_bytes());
        let Some(Line::TooLong { first, last }) = lines.next().await else { panic!() };
        assert_eq!(id(&first, &last), Some(RequestId::Number(7)));
        assert!(matches!(lines.next().await, Some(Line::Whole(line)) if line == b"short"));
        let Some(Line::TooLong { first, last }) = lines.next().await else { panic!() };
        assert_eq!(id(&first, &last), Some(RequestId::Number(8)));
        assert!(lines.next().await.is_none());
    }

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
