//! An HTTP server that answers as a test says and keeps what it was asked, for what a simulator should not do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentd::config::Credentials;
use agentd::github::{Client, Settings};
use axum::body::{Body, to_bytes};
use http::{Request, Response};
use secrecy::SecretString;
use serde_json::{Value, json};

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub line: String,
    pub authorization: String,
    pub headers: http::HeaderMap,
    pub body: Value,
}

/// An answer: status, headers, body.
pub struct Answer(pub u16, pub Vec<(&'static str, String)>, pub Value);

pub fn ok(body: Value) -> Answer {
    Answer(200, vec![], body)
}

pub fn fails(status: u16, message: &str) -> Answer {
    Answer(status, vec![], json!({"message": message}))
}

impl Answer {
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.1.push((name, value.into()));
        self
    }
}

pub struct Double {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Double {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Double {
    /// Serves with `answer`, which gets the request and how many came before it.
    pub async fn serve(answer: impl Fn(&Seen, usize) -> Answer + Send + Sync + 'static) -> Self {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let log = Arc::clone(&seen);
        let answer = Arc::new(answer);
        let handle = move |request: Request<Body>| {
            let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
            async move {
                let (parts, body) = request.into_parts();
                let bytes = to_bytes(body, 1 << 20).await.unwrap();
                let path = parts.uri.path_and_query().unwrap().as_str().to_owned();
                let one = Seen {
                    line: format!("{} {path}", parts.method),
                    authorization: parts
                        .headers
                        .get("authorization")
                        .map(|value| value.to_str().unwrap().to_owned())
                        .unwrap_or_default(),
                    headers: parts.headers,
                    body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
                };
                let before = {
                    let mut log = log.lock().unwrap();
                    log.push(one.clone());
                    log.len() - 1
                };
                let Answer(status, headers, body) = answer(&one, before);
                let mut response = Response::builder().status(status);
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                let body = match body {
                    Value::Null => Body::empty(),
                    Value::String(text) => Body::from(text),
                    json => Body::from(json.to_string()),
                };
                response.body(body).unwrap()
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = axum::Router::new().fallback(handle);
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, seen, server }
    }

    pub fn lines(&self) -> Vec<String> {
        self.seen.lock().unwrap().iter().map(|seen| seen.line.clone()).collect()
    }

    pub fn seen(&self, at: usize) -> Seen {
        self.seen.lock().unwrap()[at].clone()
    }

    pub fn settings(&self) -> Settings {
        let token = Credentials::Token(SecretString::from("tok-canary-1234567890".to_owned()));
        Settings { retry_delay: Duration::from_millis(5), ..Settings::new(&self.url, token) }
    }

    pub fn client(&self) -> Client {
        Client::new(self.settings()).unwrap()
    }
}
