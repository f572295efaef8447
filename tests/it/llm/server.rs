//! A server that answers as scripted, and what the tests of providers ask it with.

use agentd::config::{Provider, ProviderKind};
use agentd::domain::message::{Message, ToolCall, ToolSpec};
use agentd::domain::model_target::ModelTarget;
use agentd::engine::model::{Model, ModelError, ModelReply, ModelRequest, ToolChoice};
use agentd::llm::Providers;
use agentd::sys::clock::Clock;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// How the server answers one request.
#[derive(Clone)]
pub enum Answer {
    /// Status, extra header lines, content type, body.
    Whole(u16, &'static str, &'static str, String),
    /// A stream in these pieces, then its end.
    Pieces(Vec<String>),
    /// These pieces, then the connection breaks.
    Cut(Vec<String>),
    /// These pieces, each after this long, then silence.
    Slow(Duration, Vec<String>),
    /// Nothing at all.
    Hang,
}

/// A server that answers as scripted, and keeps what it was asked.
pub struct Server {
    pub base: String,
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

#[derive(Clone)]
pub struct Seen {
    pub path: String,
    pub headers: String,
    pub body: String,
}

impl Seen {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

impl Server {
    pub async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let answers = Arc::new(Mutex::new(answers.into_iter().collect::<VecDeque<_>>()));
        let log = seen.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, answers.clone(), log.clone()));
            }
        });
        Self { base, seen }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

pub async fn serve(socket: TcpStream, answers: Arc<Mutex<VecDeque<Answer>>>, log: Arc<Mutex<Vec<Seen>>>) {
    let mut socket = BufReader::new(socket);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if socket.read_line(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let lower = head.to_ascii_lowercase();
    let length =
        lower.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    log.lock().unwrap().push(Seen { path, headers: lower, body: String::from_utf8(body).unwrap() });
    let answer = answers.lock().unwrap().pop_front().unwrap();
    let stream = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = |piece: &str| format!("{:x}\r\n{piece}\r\n", piece.len());
    let mut send = async |text: String| {
        let _ = socket.write_all(text.as_bytes()).await;
        let _ = socket.flush().await;
    };
    match answer {
        Answer::Whole(status, headers, kind, body) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n{headers}connection: close\r\n\r\n"
            );
            send(head + &body).await;
        }
        Answer::Pieces(pieces) => {
            let body: String = pieces.iter().map(|piece| chunk(piece)).collect();
            send(format!("{stream}{body}0\r\n\r\n")).await;
        }
        Answer::Cut(pieces) => {
            let body: String = pieces.iter().map(|piece| chunk(piece)).collect();
            send(format!("{stream}{body}")).await;
        }
        Answer::Slow(pause, pieces) => {
            send(stream.to_owned()).await;
            for piece in pieces {
                tokio::time::sleep(pause).await;
                send(chunk(&piece)).await;
            }
            std::future::pending::<()>().await;
        }
        Answer::Hang => std::future::pending().await,
    }
}

pub fn whole(body: Value) -> Answer {
    Answer::Whole(200, "", "application/json", body.to_string())
}

pub fn events(list: &[Value]) -> Vec<String> {
    list.iter()
        .map(|value| format!("event: {}\ndata: {value}\n\n", value["type"].as_str().unwrap_or("x")))
        .collect()
}

pub fn chunks(list: &[Value]) -> Vec<String> {
    list.iter().map(|value| format!("data: {value}\n\n")).chain(["data: [DONE]\n\n".to_owned()]).collect()
}

pub const KEY: &str = "sk-sentinel-0123456789";

pub fn providers(kind: ProviderKind, base_url: &str) -> Providers {
    let provider = Provider {
        name: "p".into(),
        kind,
        base_url: base_url.to_owned(),
        api_key: Some(KEY.into()),
        headers: vec![("x-extra".to_owned(), "sentinel-header".into())],
    };
    Providers::new([provider], &Clock::system()).unwrap()
}

pub fn spec() -> ToolSpec {
    ToolSpec {
        name: "echo".into(),
        description: "Says it again.".into(),
        parameters: json!({ "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] }),
    }
}

pub fn request(stream: bool) -> ModelRequest {
    ModelRequest {
        target: ModelTarget {
            provider: "p".into(),
            model: "m".into(),
            context_window: 8000,
            context_window_buffer: 256,
            max_output_tokens: 1000,
            temperature: None,
            images: false,
            price: None,
        },
        messages: vec![
            Message::System { content: "rules".into() },
            Message::User { content: "a private sentence that no error message may ever repeat".into() },
        ]
        .into(),
        images: [].into(),
        tools: vec![spec()].into(),
        tool_choice: ToolChoice::Auto,
        stream,
        timeout: Duration::from_secs(5),
    }
}

pub fn assistant(reply: &ModelReply) -> Message {
    Message::Assistant {
        content: reply.text.clone(),
        reasoning: reply.reasoning.clone(),
        tool_calls: reply.tool_calls.clone(),
    }
}

pub fn call(id: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.into(), name: "echo".into(), arguments: arguments.into() }
}

pub async fn ask(kind: ProviderKind, answer: Answer, stream: bool) -> Result<ModelReply, ModelError> {
    let server = Server::start([answer]).await;
    providers(kind, &server.base).complete(&request(stream)).await
}

/// Arguments may differ in spaces between the two forms of a reply; nothing else may.
pub fn compact(mut reply: ModelReply) -> ModelReply {
    for call in &mut reply.tool_calls {
        if let Ok(value) = serde_json::from_str::<Value>(&call.arguments) {
            call.arguments = value.to_string();
        }
    }
    reply
}
