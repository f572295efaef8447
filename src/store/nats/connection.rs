//! One connection to the servers, the thread that works on it, and what became of a message.

use std::collections::HashMap;
use std::future::Future;
use std::sync::mpsc;
use std::time::Duration;

use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event, HeaderMap, Request, RequestErrorKind, ServerError};
use bytes::Bytes;
use futures::TryStreamExt as _;
use secrecy::ExposeSecret as _;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{broadcast, watch};

use super::access::{Access, Credentials};
use super::answer_wire::Answer;
use crate::domain::causes::with_causes;
use crate::domain::cluster::rights::inbox;
use crate::store::port::StoreError;
use crate::sys::shutdown;

/// How often the client asks whether a server is there; it leaves one that missed two answers.
const PING: Duration = Duration::from_secs(2);
/// How long a request waits for its answer.
pub(super) const REQUEST: Duration = Duration::from_secs(3);
/// Longest attempt to reach a server.
const CONNECT: Duration = Duration::from_secs(3);

/// How long a write is tried again before it is given up as unknown: longer than a new leader takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// First pause before something is asked again; it doubles.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// How long the last word of a session, or of a lease that is dropped, is waited for.
pub(super) const LAST_WORD: Duration = Duration::from_secs(3);
/// The header that names the last sequence of the subject.
pub(super) const AFTER: &str = "Nats-Expected-Last-Subject-Sequence";

/// The last sequence of the subject is another one than the message named.
const WRONG_LAST_SEQUENCE: u32 = 10071;
/// The stream could not add the message; with "maximum" in its words because it is full.
const STORE_FAILED: u32 = 10077;

/// What a client uses: cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub client: Client,
    pub context: Context,
    denied: Denied,
    /// How often the connection was made.
    connects: watch::Sender<u64>,
}

/// What the server said that this user may not, beside the requests that it does not answer then.
#[derive(Debug, Clone)]
struct Denied {
    /// The subjects, as they are refused.
    subjects: broadcast::Sender<String>,
    /// The inbox to which every answer comes, and whether this user may not hear it: then no request is ever answered.
    deaf: watch::Sender<bool>,
    inbox: String,
}

/// The connection of one node, with the thread of the store.
#[derive(Debug)]
pub(super) struct Connection {
    runtime: Option<Runtime>,
    link: Link,
}

/// What became of a message that was to be kept.
#[derive(Debug)]
pub(super) enum Sent {
    /// It is kept, at this sequence.
    At(u64),
    /// The subject ends elsewhere than the message named.
    Elsewhere,
    /// It was not kept, and will not be.
    Refused(String),
    /// No answer, or one that leaves it open.
    Unknown(String),
}

impl Connection {
    pub(super) fn open(access: &Access) -> Result<Self, StoreError> {
        let failed =
            |words: String| StoreError::Failed { action: "connect to", place: access.urls.join(", "), words };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("agentd-nats")
            .enable_all()
            .build()
            .map_err(|error| failed(error.to_string()))?;
        let denied = Denied {
            subjects: broadcast::Sender::new(64),
            deaf: watch::Sender::new(false),
            inbox: inbox(&access.node),
        };
        let connects = watch::Sender::new(0);
        let (access, said, made) = (access.clone(), denied.clone(), connects.clone());
        let opened = waited(&runtime, async move { connected(&access, said, made).await });
        let client = opened?.map_err(failed)?;
        let context = {
            // It starts a task of its own.
            let _inside = runtime.enter();
            ContextBuilder::new().timeout(REQUEST).build(client.clone())
        };
        Ok(Self { runtime: Some(runtime), link: Link { client, context, denied, connects } })
    }

    pub(super) fn link(&self) -> Link {
        self.link.clone()
    }

    /// Begins something on the store's thread. It ends with the connection, wherever it is then.
    pub(super) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.runtime {
            runtime.spawn(work);
        }
    }

    /// Does something on the store's thread, and waits for it: also a thread of another runtime may. A process that is to end waits
    /// for a bounded time; then nothing is known of what was asked for.
    pub(super) fn call<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        match &self.runtime {
            Some(runtime) => waited(runtime, async move {
                tokio::select! {
                    done = work => Ok(done),
                    () = shutdown::too_long() => Err(StoreError::Failed {
                        action: "wait for",
                        place: "the store".into(),
                        words: "it does not answer, and this process is to end".into(),
                    }),
                }
            })?,
            None => Err(stopped()),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A runtime may not be waited for on a thread of another one.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn waited<T: Send + 'static>(
    runtime: &Runtime,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, StoreError> {
    let (give, take) = mpsc::sync_channel(1);
    runtime.spawn(async move {
        // Nobody waits any more only where the caller has panicked.
        let _gone = give.send(work.await);
    });
    take.recv().map_err(|_| stopped())
}

fn stopped() -> StoreError {
    StoreError::Failed { action: "use", place: "the store".into(), words: "its thread has ended".into() }
}

async fn connected(access: &Access, denied: Denied, connects: watch::Sender<u64>) -> Result<Client, String> {
    let mut options = ConnectOptions::new()
        .name(format!("agentd {}", access.node))
        .custom_inbox_prefix(inbox(&access.node))
        .ping_interval(PING)
        .request_timeout(Some(REQUEST))
        .connection_timeout(CONNECT)
        .require_tls(access.tls.required)
        .event_callback(move |event| {
            let (denied, connects) = (denied.clone(), connects.clone());
            async move {
                if matches!(event, Event::Connected) {
                    connects.send_modify(|times| *times += 1);
                }
                heard(&event, &denied);
            }
        });
    if let Some(ca) = &access.tls.ca {
        options = options.add_root_certificates(ca.clone());
    }
    if let Some((certificate, key)) = &access.tls.client {
        options = options.add_client_certificate(certificate.clone(), key.clone());
    }
    options = match &access.credentials {
        Credentials::None => options,
        Credentials::File(path) => options
            .credentials_file(path)
            .await
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
        Credentials::Nkey(seed) => options.nkey(seed.expose_secret().to_owned()),
    };
    options.connect(access.urls.clone()).await.map_err(|error| with_key(with_causes(&error)))
}

/// Which key of the configuration an error of TLS speaks of.
fn with_key(words: String) -> String {
    let key = match &words {
        words if words.contains("invalid peer certificate") => {
            "the server does not show a certificate that `cluster.tls_ca`, or this system, vouches for"
        }
        words if words.contains("received fatal alert") => {
            "the server does not take the certificate of this node (`cluster.tls_cert`), or misses one"
        }
        words if words.contains("received corrupt message") => {
            "it does not begin with TLS, and gets nothing in the open (`tls://` in `cluster.urls`)"
        }
        _ => return words,
    };
    format!("{words}; {key}")
}

/// A server does not answer a request without rights. It says so apart, and the request would only time out.
fn heard(event: &Event, denied: &Denied) {
    match event {
        Event::ServerError(ServerError::Other(words)) => {
            if let Some(subject) = denied_subject(words) {
                if subject.starts_with(&denied.inbox.to_ascii_lowercase()) {
                    denied.deaf.send_replace(true);
                }
                // Nobody may wait for it.
                let _unheard = denied.subjects.send(subject);
            } else {
                tracing::warn!("the store's server says: {words}");
            }
        }
        Event::ServerError(error) => tracing::warn!("the store's server says: {error}"),
        Event::Disconnected => tracing::warn!("the connection to the store is lost"),
        Event::Connected => {
            denied.deaf.send_replace(false);
            tracing::debug!("connected to the store");
        }
        _ => {}
    }
}

/// The subject in `Permissions Violation for Publish to "a.b"`, in lower case as well.
fn denied_subject(words: &str) -> Option<String> {
    let lower = words.to_ascii_lowercase();
    if !lower.contains("permissions violation") {
        return None;
    }
    words.split('"').nth(1).map(str::to_ascii_lowercase)
}

impl Link {
    /// Tells when the connection is made anew from now on.
    pub(super) fn connects(&self) -> watch::Receiver<u64> {
        self.connects.subscribe()
    }

    /// Whether this user may not hear the answers to what it asks.
    pub(super) fn is_deaf(&self) -> bool {
        *self.denied.deaf.borrow()
    }

    /// Waits for an answer, or for the server's word that this subject, or one below it, is not permitted.
    pub(super) async fn permitted<T>(
        &self,
        subject: &str,
        answer: impl Future<Output = T>,
    ) -> Result<T, String> {
        let mut denied = self.denied.subjects.subscribe();
        let mut deaf = self.denied.deaf.subscribe();
        let lower = subject.to_ascii_lowercase();
        let below = format!("{lower}.");
        let refused = async {
            loop {
                match denied.recv().await {
                    Ok(said) if said == lower || said.starts_with(&below) => return,
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => std::future::pending::<()>().await,
                }
            }
        };
        tokio::select! {
            answer = answer => Ok(answer),
            // The sender is in the link.
            Ok(_) = deaf.wait_for(|deaf| *deaf) => Err(format!(
                "not permitted: to hear {}.>, where answers to `cluster.node` come; this key is another user's: take the key of that node, or \
                 name the key's own user in `cluster.node`",
                self.denied.inbox
            )),
            () = refused => Err(format!(
                "not permitted: {subject}; add it to what this user may publish, or take a key that may (`agentd cluster account` writes the rights)"
            )),
        }
    }

    /// Asks a server to keep a message.
    pub(super) async fn send(&self, subject: &str, headers: HeaderMap, payload: Bytes) -> Sent {
        let request = Request::new().headers(headers).payload(payload).timeout(Some(REQUEST));
        let sent = self.permitted(subject, self.client.send_request(subject.to_owned(), request)).await;
        let message = match sent {
            Err(words) => return Sent::Refused(words),
            Ok(Ok(message)) => message,
            Ok(Err(error)) => {
                return match error.kind() {
                    RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
                        Sent::Refused(with_causes(&error))
                    }
                    RequestErrorKind::NoResponders => {
                        Sent::Unknown(format!("no stream takes {subject} at the moment"))
                    }
                    _ => Sent::Unknown(with_causes(&error)),
                };
            }
        };
        match serde_json::from_slice::<Answer>(&message.payload) {
            Ok(Answer { error: None, seq }) if seq > 0 => Sent::At(seq),
            Ok(Answer { error: Some(refusal), .. }) => {
                let words = format!("{} ({})", refusal.description, refusal.err_code);
                match refusal.err_code {
                    WRONG_LAST_SEQUENCE => Sent::Elsewhere,
                    STORE_FAILED if words.contains("maximum") => Sent::Refused(words),
                    code if FINAL.contains(&code) => Sent::Refused(words),
                    // Among them 10164: another write of the subject is under way, and how it ends decides.
                    _ => Sent::Unknown(words),
                }
            }
            Ok(_) => Sent::Unknown("the server's answer names no place".to_owned()),
            Err(error) => Sent::Unknown(format!("the server's answer cannot be read: {error}")),
        }
    }

    async fn stream(&self, name: &str) -> Result<Stream<()>, String> {
        self.context.get_stream_no_info(name).await.map_err(|error| with_causes(&error))
    }

    /// The last message of a subject, from the stream's leader.
    pub(super) async fn last(&self, stream: &str, subject: &str) -> Result<Option<StreamMessage>, String> {
        let handle = self.stream(stream).await?;
        let read = handle.raw_message_builder().last_by_subject(subject.to_owned()).send();
        self.read(stream, read).await
    }

    /// The first message of a subject at a sequence or behind it, from the stream's leader.
    pub(super) async fn next(
        &self,
        stream: &str,
        subject: &str,
        from: u64,
    ) -> Result<Option<StreamMessage>, String> {
        let handle = self.stream(stream).await?;
        let read = handle.raw_message_builder().next_by_subject(subject.to_owned()).sequence(from).send();
        self.read(stream, read).await
    }

    async fn read(
        &self,
        stream: &str,
        read: impl Future<Output = Result<StreamMessage, jetstream::stream::RawMessageError>>,
    ) -> Result<Option<StreamMessage>, String> {
        let api = format!("$JS.API.STREAM.MSG.GET.{stream}");
        match self.permitted(&api, read).await? {
            Ok(message) => Ok(Some(message)),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(format!("stream {stream}: {}", with_causes(&error))),
        }
    }

    /// The subjects of a stream that have a message, of those that match.
    pub(super) async fn subjects(&self, stream: &str, filter: &str) -> Result<Vec<String>, StoreError> {
        let api = format!("$JS.API.STREAM.INFO.{stream}");
        let list = async {
            let handle = self.context.get_stream(stream).await.map_err(|error| with_causes(&error))?;
            let found = handle.info_with_subjects(filter).await.map_err(|error| with_causes(&error))?;
            found.try_collect::<HashMap<String, usize>>().await.map_err(|error| with_causes(&error))
        };
        let found = self.permitted(&api, list).await.and_then(|found| found);
        let found =
            found.map_err(|words| StoreError::Failed { action: "list", place: filter.to_owned(), words })?;
        let mut subjects: Vec<String> = found.into_keys().collect();
        subjects.sort();
        Ok(subjects)
    }
}

/// Errors that stay what they are when the same is sent again: too large, no room, a header that the stream does not take.
const FINAL: [u32; 11] = [10002, 10047, 10054, 10060, 10097, 10122, 10166, 10174, 10175, 10177, 10199];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_refusal_is_found() {
        let words = r#"Permissions Violation for Publish to "agentd.main.log.o.n.R=2E""#;
        assert_eq!(denied_subject(words).as_deref(), Some("agentd.main.log.o.n.r=2e"));
        assert_eq!(denied_subject("Stale Connection"), None);
    }
}
