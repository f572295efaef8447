//! What goes over a connection of a program: one message of JSON-RPC on each line. What cannot be read as one is
//! answered here, so that nobody waits for an answer that never comes, and the conversation goes on.

use std::io;
use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Mutex;

use crate::sys::json_lines::{JsonLine, JsonLines, LONGEST};

/// Requests of one batch that are answered one by one.
const MOST_OF_A_BATCH: usize = 100;

/// Both directions of a connection.
pub(super) struct ToolWire<R, W> {
    lines: JsonLines<R>,
    write: Arc<Mutex<Option<W>>>,
    /// The answer to what could not be read, on its way. Before it is out nothing more is read.
    answering: Option<BoxFuture<'static, io::Result<()>>>,
    /// Whether a request has come. A conversation begins with one.
    begun: bool,
}

impl<R, W> ToolWire<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    pub(super) fn new(read: R, write: W) -> Self {
        let write = Arc::new(Mutex::new(Some(write)));
        Self { lines: JsonLines::new(read), write, answering: None, begun: false }
    }

    fn put(&self, lines: Vec<u8>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let write = Arc::clone(&self.write);
        async move {
            let mut write = write.lock().await;
            let write = write.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            write.write_all(&lines).await?;
            write.flush().await
        }
    }
}

impl<R, W> Transport<RoleServer> for ToolWire<R, W>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let line = serde_json::to_vec(&item).map(|mut line| {
            line.push(b'\n');
            line
        });
        let put = line.map(|line| self.put(line));
        async move { put?.await }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            // The wait may be cancelled and begun again at any of these points.
            if let Some(answering) = &mut self.answering {
                let sent = answering.await;
                self.answering = None;
                sent.ok()?;
            }
            let read = match self.lines.next().await? {
                JsonLine::Whole(line) if self.begun => read(&line),
                JsonLine::Whole(line) => read(&line).and_then(|message| beginning(message, &line)),
                JsonLine::TooLong(id) => {
                    let why = format!("a message may have {} MiB", LONGEST >> 20);
                    Err(refusal(id.into(), ErrorCode::INVALID_REQUEST, &why))
                }
            };
            match read {
                Ok(message @ JsonRpcMessage::Request(_)) => {
                    self.begun = true;
                    return Some(message);
                }
                Ok(message @ JsonRpcMessage::Notification(_)) if self.begun => return Some(message),
                // Nothing was asked of a program, and before the beginning there is nothing to tell.
                Ok(_) => {}
                Err(answers) if answers.is_empty() => {}
                Err(answers) => self.answering = Some(Box::pin(self.put(answers))),
            }
            tokio::task::consume_budget().await;
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.write.lock().await.take());
        Ok(())
    }
}

/// A message; else the lines that answer what is none.
fn read(line: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, Vec<u8>> {
    if line.is_empty() {
        return Err(Vec::new());
    }
    serde_json::from_slice(line).map_err(|error| {
        tracing::debug!(%error, "an agent program wrote something that is no message");
        answers(line, &error)
    })
}

/// The first request, if a conversation may begin with it: a protocol's version is in it.
fn beginning(
    message: RxJsonRpcMessage<RoleServer>,
    line: &[u8],
) -> Result<RxJsonRpcMessage<RoleServer>, Vec<u8>> {
    if !matches!(message, JsonRpcMessage::Request(_)) {
        return Ok(message);
    }
    let Ok(said) = serde_json::from_slice::<Value>(line) else { return Ok(message) };
    let is_beginning = ["initialize", "ping"].iter().any(|method| said["method"] == *method);
    if is_beginning || !said["params"]["_meta"][VERSION].is_null() {
        return Ok(message);
    }
    Err(refusal(said["id"].clone(), ErrorCode::INVALID_REQUEST, "send initialize first"))
}

/// Where a request names the protocol's version itself.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";

fn answers(line: &[u8], error: &serde_json::Error) -> Vec<u8> {
    match line[0] {
        b'{' => {
            if let Ok(outline) = serde_json::from_slice::<Outline>(line) {
                return outline.refused(error);
            }
        }
        b'[' => {
            let batch = serde_json::from_slice::<Vec<Value>>(line).unwrap_or_default();
            if (1..=MOST_OF_A_BATCH).contains(&batch.len()) {
                return batch.into_iter().flat_map(refused_in_batch).collect();
            }
        }
        _ => {}
    }
    match serde_json::from_slice::<IgnoredAny>(line) {
        Ok(_) => refusal(Value::Null, ErrorCode::INVALID_REQUEST, NO_REQUEST),
        Err(error) => refusal(Value::Null, ErrorCode::PARSE_ERROR, &format!("the line is no JSON: {error}")),
    }
}

const NO_REQUEST: &str = "this is no request of JSON-RPC 2.0";

fn refused_in_batch(message: Value) -> Vec<u8> {
    let outline = if message.is_object() { Outline::deserialize(message).ok() } else { None };
    let id = match outline {
        Some(outline) if !outline.wants_answer() => return Vec::new(),
        Some(outline) => outline.id.unwrap_or_default(),
        None => Value::Null,
    };
    refusal(id, ErrorCode::INVALID_REQUEST, "batches are not served: send each message on a line of its own")
}

fn refusal(id: Value, code: ErrorCode, why: &str) -> Vec<u8> {
    let id = if id.is_string() || id.is_number() { id } else { Value::Null };
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": why}})).into_bytes()
}

/// What can be read of a message of which the rest cannot: its other members are passed over, whatever is in them.
#[derive(Deserialize)]
struct Outline {
    /// Also one that is null.
    #[serde(default, deserialize_with = "present")]
    id: Option<Value>,
    method: Option<IgnoredAny>,
    result: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

impl Outline {
    /// Whether somebody waits for an answer: not to a notification, and not to an answer.
    fn wants_answer(&self) -> bool {
        match self.method {
            Some(_) => self.id.is_some(),
            None => self.result.is_none() && self.error.is_none(),
        }
    }

    fn refused(self, error: &serde_json::Error) -> Vec<u8> {
        if !self.wants_answer() {
            return Vec::new();
        }
        let id = self.id.unwrap_or_default();
        match error.classify() {
            Category::Data => refusal(id, ErrorCode::INVALID_REQUEST, NO_REQUEST),
            // Half of a surrogate pair, no UTF-8, too many levels: there is no such value.
            _ => refusal(id, ErrorCode::INVALID_PARAMS, &format!("the parameters cannot be read: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(line: &[u8]) -> Vec<(Value, Value)> {
        let lines = read(line).map(|_| "a message").unwrap_err();
        let answers = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let answers = answers.map(|line| serde_json::from_slice::<Value>(line).unwrap());
        answers.map(|answer| (answer["id"].clone(), answer["error"]["code"].clone())).collect()
    }

    #[test]
    fn who_asks_before_it_begins_is_told_how_to_begin() {
        let begins = |line: &str| {
            read(line.as_bytes()).and_then(|message| beginning(message, line.as_bytes())).map(drop)
        };
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let answer: Value = serde_json::from_slice(&begins(list).unwrap_err()).unwrap();
        assert_eq!(
            (&answer["id"], &answer["error"]["message"]),
            (&json!(1), &json!("send initialize first"))
        );
        for line in [
            r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list",
                "params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-06-30"}}}"#,
        ] {
            assert_eq!(begins(line), Ok(()), "{line}");
        }
    }

    #[test]
    fn each_request_that_cannot_be_read_has_its_answer_and_nothing_else_has() {
        let call = |id: &str, rest: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"x","arguments":{{{rest}}}}}}}"#
            )
        };
        let deep = format!(r#""a":{}{}"#, "[".repeat(500), "]".repeat(500));
        let mut bytes = call("4", r#""a":"@""#).into_bytes();
        let at = bytes.iter().position(|byte| *byte == b'@').unwrap();
        bytes[at] = 0xff;
        let rows = [
            (Vec::new(), vec![]),
            (b"no JSON".to_vec(), vec![(json!(null), json!(-32700))]),
            (br#"{"jsonrpc":"2.0","id":3,"method":"#.to_vec(), vec![(json!(null), json!(-32700))]),
            (b"7".to_vec(), vec![(json!(null), json!(-32600))]),
            (b"{}".to_vec(), vec![(json!(null), json!(-32600))]),
            (b"[]".to_vec(), vec![(json!(null), json!(-32600))]),
            (call("3", r#""a":"\ud800""#).into_bytes(), vec![(json!(3), json!(-32602))]),
            (call("\"s\"", &deep).into_bytes(), vec![(json!("s"), json!(-32602))]),
            (bytes, vec![(json!(4), json!(-32602))]),
            (call("1.5", "").into_bytes(), vec![(json!(1.5), json!(-32600))]),
            (call("null", "").into_bytes(), vec![(json!(null), json!(-32600))]),
            (call("{}", "").into_bytes(), vec![(json!(null), json!(-32600))]),
            (br#"{"id":5,"method":"ping"}"#.to_vec(), vec![(json!(5), json!(-32600))]),
            (
                br#"[{"id":6,"method":"ping"},{"method":"told"},8,{"id":7,"result":{}}]"#.to_vec(),
                vec![(json!(6), json!(-32600)), (json!(null), json!(-32600))],
            ),
            (br#"{"jsonrpc":"2.0","method":"told","params":"\udc00"}"#.to_vec(), vec![]),
            (br#"{"jsonrpc":"2.0","id":9,"error":"\udc00"}"#.to_vec(), vec![]),
        ];
        for (line, answers) in rows {
            assert_eq!(refused(&line), answers, "{}", String::from_utf8_lossy(&line));
        }
        let read = read(call("3", r#""a":"\ud83d\ude00""#).as_bytes());
        assert!(matches!(read, Ok(JsonRpcMessage::Request(_))));
    }
}
