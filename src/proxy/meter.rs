//! The meter on requests to models: it counts them and reads the tokens that their replies report as they pass.

use std::any::Any;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use serde_json::Value;
use tokio::sync::watch;

use super::forward::Body;
use crate::domain::message::TokenUsage;
use crate::domain::model_traffic::ModelTraffic;
use crate::domain::model_wire::ProviderKind;
use crate::domain::reply_limit::{self, Asked, NotPaid};
use crate::domain::sse::Events;

/// The longest event, and the longest reply that is one JSON text, in bytes. The tokens of longer ones are not read.
const LONGEST: usize = 32 << 20;
/// Models of one launch that are told apart.
const MOST_MODELS: usize = 32;
/// Bytes of a token, for what reports no tokens.
const BYTES_PER_TOKEN: u64 = 4;
/// Bytes of an event around its text.
const OF_AN_EVENT: usize = 300;
/// Tokens of what may follow a reply's last count.
const OF_A_TAIL: u64 = 16;
/// Tokens of a reply that nobody saw and of which the request does not say how long it may be.
const USUAL_REPLY: u64 = 4_096;
/// The model of a reply that does not say.
const UNNAMED: &str = "unknown";

/// Sets aside what a request may cost. The second is what is counted so far.
pub type Purse = Arc<
    dyn Fn(Asked, watch::Receiver<ModelTraffic>) -> BoxFuture<'static, Result<Paid, NotPaid>> + Send + Sync,
>;
/// Money that is set aside for as long as this lives.
pub type SetAside = Box<dyn Any + Send + Sync>;

/// What a request may cost is set aside.
pub struct Paid {
    /// What holds that until its reply is counted.
    pub set_aside: SetAside,
    /// Most tokens of its replies, where that is less than it asks for.
    pub longest: Option<u64>,
}

/// Counts for one program; cheap to clone.
#[derive(Clone, Default)]
pub struct Meter {
    traffic: watch::Sender<ModelTraffic>,
    purse: Arc<Mutex<Option<Purse>>>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("traffic", &self.traffic).finish_non_exhaustive()
    }
}

impl Meter {
    /// Begins to count anew, for one launch, whose requests are paid from `purse`; `None` = nobody counts their money.
    /// `earlier`: the requests of earlier launches of the visit.
    pub fn begin(&self, earlier: u32, purse: Option<Purse>) -> watch::Receiver<ModelTraffic> {
        *self.purse.lock().unwrap_or_else(PoisonError::into_inner) = purse;
        let traffic = self.traffic.subscribe();
        self.traffic.send_replace(ModelTraffic { earlier, ..ModelTraffic::default() });
        traffic
    }

    /// Takes one request from the number that is allowed. False = none is left.
    pub(super) fn admit(&self, most: Option<u32>) -> bool {
        let mut admitted = true;
        self.traffic.send_modify(|traffic| {
            admitted = most.is_none_or(|most| traffic.earlier.saturating_add(traffic.requests) < most);
            if admitted {
                traffic.requests = traffic.requests.saturating_add(1);
            } else {
                traffic.refused = traffic.refused.saturating_add(1);
            }
        });
        admitted
    }

    /// Sets aside what a request may cost, and gives its body, in which its limit is lower where the money covers only that. Of one
    /// whose body `is_packed` nobody knows how long it is.
    pub(super) async fn pay(&self, body: Bytes, is_packed: bool) -> Result<(Bytes, SetAside), NotPaid> {
        let purse = self.purse.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(purse) = purse else { return Ok((body, Box::new(()))) };
        let mut question = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let bytes = if is_packed { usize::MAX } else { body.len() };
        let paid = purse(Asked::of(&question, bytes), self.traffic.subscribe()).await?;
        let Some(longest) = paid.longest else { return Ok((body, paid.set_aside)) };
        reply_limit::lower(&mut question, longest);
        Ok((question.to_string().into(), paid.set_aside))
    }

    fn add(&self, reply: &Reply, more: TokenUsage) {
        self.traffic.send_modify(|traffic| {
            let name = add(&mut traffic.by_model, reply.name(), more);
            if let Some(asked) = reply.model.as_ref().filter(|asked| **asked != name) {
                traffic.asked_as.insert(name, asked.clone());
            }
        });
    }

    /// A request that is on its way now, with the money that is set aside for it.
    pub(super) fn sent(&self, path: &str, body: &[u8], set_aside: SetAside) -> Sent {
        self.traffic.send_modify(|traffic| traffic.under_way += 1);
        let question = serde_json::from_slice(body).unwrap_or(Value::Null);
        let model = question["model"].as_str().or(model_of_path(path)).map(str::to_owned);
        Sent {
            meter: self.clone(),
            asked: body.len() as u64,
            unseen: unseen(path, &question),
            model,
            is_answered: false,
            set_aside: Some(set_aside),
        }
    }
}

/// A request under way; left before its answer, it counts by an estimate.
pub(super) struct Sent {
    meter: Meter,
    /// Bytes.
    asked: u64,
    /// Tokens that are taken for the reply where nobody sees how long it is.
    unseen: u64,
    model: Option<String>,
    is_answered: bool,
    set_aside: Option<SetAside>,
}

impl Sent {
    /// The answer, its tokens counted before its reader sees them. A refusal costs nothing.
    pub(super) fn answered(mut self, response: Response<Body>) -> Response<Body> {
        self.is_answered = true;
        if !response.status().is_success() {
            return response;
        }
        let (parts, inner) = response.into_parts();
        let told = Reply::of(&parts.headers, self.model.as_deref());
        let reply = Reply { asked: self.asked, unseen: self.unseen, ..told };
        self.meter.traffic.send_modify(|traffic| traffic.under_way += 1);
        let metered = Metered { inner, reply, meter: self.meter.clone(), _set_aside: self.set_aside.take() };
        Response::from_parts(parts, metered.boxed())
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        let left =
            (!self.is_answered).then(|| TokenUsage::new(self.asked / BYTES_PER_TOKEN, self.unseen, 0, 0));
        self.meter.traffic.send_modify(|traffic| {
            traffic.under_way = traffic.under_way.saturating_sub(1);
            if let Some(left) = left {
                traffic.left = traffic.left.saturating_add(1);
                let _name = add(&mut traffic.untold, self.model.as_deref().unwrap_or(UNNAMED), left);
            }
        });
    }
}

/// What a reply is taken for that nobody waits for: as long as its request lets it be. Of a stream only what came is made.
fn unseen(path: &str, question: &Value) -> u64 {
    if question["stream"] == true || path.ends_with(":streamGenerateContent") {
        return 0;
    }
    reply_limit::longest_of(question).unwrap_or(USUAL_REPLY)
}

/// Adds to the model's tokens, and gives the name that they stand under.
fn add(models: &mut BTreeMap<String, TokenUsage>, model: &str, more: TokenUsage) -> String {
    let room = models.len() < MOST_MODELS || models.contains_key(model);
    let name = if room { model } else { UNNAMED }.to_owned();
    let known = models.entry(name.clone()).or_default();
    *known = known.plus(more);
    name
}

/// A body that is read while it passes.
struct Metered {
    inner: Body,
    reply: Reply,
    meter: Meter,
    _set_aside: Option<SetAside>,
}

impl hyper::body::Body for Metered {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.reply.take(data, &this.meter);
                }
            }
            Some(Err(_)) => {}
            None => {
                this.reply.whole = true;
                this.reply.close(&this.meter);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for Metered {
    /// Its reader may leave before the end, and not every reader asks for what comes after the last byte.
    fn drop(&mut self) {
        self.reply.close(&self.meter);
    }
}

/// What is known of one reply.
#[derive(Debug, Default)]
struct Reply {
    /// What cuts it into events, where it comes as such.
    events: Option<Events>,
    /// Its length, where it says so before.
    length: Option<usize>,
    /// What came of a reply that is one JSON text.
    buffer: Vec<u8>,
    /// It is too long to be read.
    skips: bool,
    /// The model that its request names.
    model: Option<String>,
    /// The model that answers, as it says itself: a service may ask another one than it was asked for.
    answers: Option<String>,
    counted: TokenUsage,
    /// Bytes of its request.
    asked: u64,
    /// Tokens that are taken for it where it is left before its end.
    unseen: u64,
    /// What came of it since its last count: bytes of a text, tokens of a stream by an estimate.
    came: u64,
    /// All of it came.
    whole: bool,
    /// Its end is known.
    closed: bool,
}

impl Reply {
    fn of(headers: &HeaderMap, model: Option<&str>) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let events = text(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/event-stream"));
        Self {
            events: events.then(Events::default),
            length: text(CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            model: model.map(str::to_owned),
            ..Self::default()
        }
    }

    fn take(&mut self, data: &[u8], meter: &Meter) {
        if let Some(events) = &mut self.events {
            for event in events.push(data) {
                // Services send about one event for each token; longer ones have more.
                let more = event.data.len().saturating_sub(OF_AN_EVENT) as u64 / BYTES_PER_TOKEN;
                self.came += more.max(1);
                self.event(&event.data, meter);
            }
            return;
        }
        self.came += data.len() as u64;
        self.skips |= self.buffer.len() + data.len() > LONGEST;
        if self.skips {
            self.buffer = Vec::new();
            return;
        }
        self.buffer.extend_from_slice(data);
        // Who knows the length does not wait for the end.
        if self.length.is_some_and(|length| self.buffer.len() >= length) {
            self.whole = true;
            self.end(meter);
        }
    }

    fn end(&mut self, meter: &Meter) {
        if let Some(last) = self.events.as_mut().and_then(Events::finish) {
            self.event(&last.data, meter);
        }
        match serde_json::from_slice::<Value>(&std::mem::take(&mut self.buffer)) {
            Ok(Value::Array(pieces)) => pieces.iter().for_each(|piece| self.count(piece, meter)),
            Ok(reply) => self.count(&reply, meter),
            // Nothing came, it was too long, or it is compressed although it was asked not to be.
            Err(_) => {}
        }
    }

    /// Nothing more comes. A reply that reported no tokens is estimated, as it is not free for that.
    fn close(&mut self, meter: &Meter) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.end(meter);
        let said = match (self.events.is_some(), self.whole) {
            (true, _) => self.came,
            (false, true) => self.came / BYTES_PER_TOKEN,
            (false, false) => self.unseen.max(self.came / BYTES_PER_TOKEN),
        };
        let estimate = match self.counted.total_tokens {
            0 => Some(TokenUsage::new(self.asked / BYTES_PER_TOKEN, said, 0, 0)),
            // Left before its end: some services count at the beginning, and what was written since is in no count.
            _ if !self.whole && self.came > OF_A_TAIL => Some(TokenUsage::new(0, self.came, 0, 0)),
            _ => None,
        };
        meter.traffic.send_modify(|traffic| {
            traffic.under_way = traffic.under_way.saturating_sub(1);
            if let Some(estimate) = estimate {
                traffic.left = traffic.left.saturating_add(u32::from(!self.whole));
                let _name = add(&mut traffic.untold, self.name(), estimate);
            }
        });
    }

    /// One event of a stream. Most say nothing of tokens.
    fn event(&mut self, data: &str, meter: &Meter) {
        let counts = self.answers.is_none() || data.contains("usage");
        if counts && let Ok(piece) = serde_json::from_str::<Value>(data) {
            self.count(&piece, meter);
        }
    }

    fn count(&mut self, piece: &Value, meter: &Meter) {
        if let Some(model) = ProviderKind::model_of(piece) {
            self.answers.get_or_insert_with(|| model.to_owned());
        }
        let Some(usage) = ProviderKind::tokens_of(piece) else { return };
        let counted = self.counted;
        // Counts only grow.
        let more = TokenUsage::new(
            usage.input_tokens.saturating_sub(counted.input_tokens),
            usage.output_tokens.saturating_sub(counted.output_tokens),
            usage.cache_read_input_tokens.saturating_sub(counted.cache_read_input_tokens),
            usage.cache_write_input_tokens.saturating_sub(counted.cache_write_input_tokens),
        );
        if more.total_tokens > 0 {
            self.counted = counted.plus(more);
            self.came = 0;
            meter.add(self, more);
        }
    }

    fn name(&self) -> &str {
        self.answers.as_deref().or(self.model.as_deref()).unwrap_or(UNNAMED)
    }
}

/// Whether a request asks a model for words.
pub(super) fn asks_a_model(method: &Method, path: &str) -> bool {
    method == Method::POST && ProviderKind::asks(path)
}

/// Whether a request orders something of a provider that is neither counted nor free, as batches do.
pub(super) fn is_uncounted(method: &Method, path: &str) -> bool {
    match *method {
        Method::GET | Method::HEAD | Method::OPTIONS => false,
        Method::POST => !ProviderKind::asks(path) && !ProviderKind::counts_tokens(path),
        _ => true,
    }
}

/// The model that a path names, as Gemini's do: `…/models/NAME:generateContent`.
fn model_of_path(path: &str) -> Option<&str> {
    let (_, named) = path.rsplit_once("/models/")?;
    named.split(':').next().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(events: bool) -> Reply {
        Reply { events: events.then(Events::default), ..Reply::default() }
    }

    fn counted(meter: &Meter) -> Vec<(String, u64, u64)> {
        let traffic = meter.traffic.borrow().clone();
        let models = traffic.by_model.into_iter();
        models.map(|(model, used)| (model, used.input_tokens, used.output_tokens)).collect()
    }

    #[test]
    fn events_in_any_pieces_count_as_they_come_and_once() {
        let stream = "event: message_start\n\
            data: {\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\r\n\n\
            data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"usage\"}}\n\n\
            data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":30}}\n\ndata: [DONE]\n\n";
        for size in [1, 7, stream.len()] {
            let (meter, mut reply) = (Meter::default(), reply(true));
            for piece in stream.as_bytes().chunks(size) {
                reply.take(piece, &meter);
            }
            reply.end(&meter);
            assert_eq!(counted(&meter), [("m".to_owned(), 10, 30)], "in pieces of {size}");
        }
    }

    #[test]
    fn a_reply_counts_for_the_model_that_answers() {
        let (meter, mut known) =
            (Meter::default(), Reply { model: Some("cheap".to_owned()), ..reply(false) });
        known.take(json!({"model": "dear", "usage": {"prompt_tokens": 5}}).to_string().as_bytes(), &meter);
        known.end(&meter);
        assert_eq!(counted(&meter), [("dear".to_owned(), 5, 0)]);
        assert_eq!(meter.traffic.borrow().asked_as["dear"], "cheap");
    }

    #[test]
    fn a_whole_reply_counts_when_its_last_byte_is_there() {
        let text = json!({"model": "m", "usage": {"prompt_tokens": 5, "completion_tokens": 2}}).to_string();
        let (meter, mut known) = (Meter::default(), Reply { length: Some(text.len()), ..reply(false) });
        known.take(&text.as_bytes()[..10], &meter);
        assert_eq!(counted(&meter), []);
        known.take(&text.as_bytes()[10..], &meter);
        assert_eq!(counted(&meter), [("m".to_owned(), 5, 2)]);
        known.end(&meter);
        assert_eq!(counted(&meter), [("m".to_owned(), 5, 2)], "once");
        let (meter, mut open) = (Meter::default(), reply(false));
        open.take(
            b"[{\"usageMetadata\":{\"promptTokenCount\":4}},{\"usageMetadata\":{\"promptTokenCount\":4,",
            &meter,
        );
        open.take(b"\"candidatesTokenCount\":3}}]", &meter);
        open.end(&meter);
        assert_eq!(counted(&meter), [("unknown".to_owned(), 4, 3)]);
    }

    #[test]
    fn only_requests_for_words_ask_a_model() {
        let post = |path: &str| asks_a_model(&Method::POST, path);
        assert!(
            post("/v1/messages") && post("/v1/responses") && post("/v1beta/models/g:streamGenerateContent")
        );
        assert!(!post("/v1/messages/count_tokens") && !asks_a_model(&Method::GET, "/v1/messages"));
        let uncounted = |method: Method, path: &str| is_uncounted(&method, path);
        assert!(uncounted(Method::POST, "/v1/messages/batches") && uncounted(Method::PUT, "/v1/messages"));
        assert!(uncounted(Method::DELETE, "/v1/files/1") && uncounted(Method::POST, "/v1/complete"));
        assert!(!uncounted(Method::POST, "/v1/messages") && !uncounted(Method::GET, "/v1/models"));
        assert!(!uncounted(Method::POST, "/v1/messages/count_tokens"));
        assert_eq!(model_of_path("/v1beta/models/gemini-2.5-pro:generateContent"), Some("gemini-2.5-pro"));
        assert_eq!(model_of_path("/v1/messages"), None);
    }

    fn untold(meter: &Meter) -> Vec<(String, u64, u64)> {
        let models = meter.traffic.borrow().untold.clone().into_iter();
        models.map(|(model, used)| (model, used.input_tokens, used.output_tokens)).collect()
    }

    #[test]
    fn what_is_left_before_its_end_counts_by_an_estimate() {
        let question =
            json!({"model": "m", "max_tokens": 9_000, "messages": ["x".repeat(4_000)]}).to_string();
        let leaves = |question: &str| {
            let meter = Meter::default();
            drop(meter.sent("/v1/messages", question.as_bytes(), Box::new(())));
            assert_eq!(meter.traffic.borrow().under_way, 0);
            untold(&meter)
        };
        let input = question.len() as u64 / 4;
        assert_eq!(leaves(&question), [("m".to_owned(), input, 9_000)], "the whole reply may be made");
        let streamed = question.replacen('{', "{\"stream\":true,", 1);
        assert_eq!(leaves(&streamed)[0].2, 0, "of a stream only what came is made");
        // A stream of which the beginning was counted.
        let (meter, mut reply) = (Meter::default(), reply(true));
        reply.take(
            b"data: {\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\n\n",
            &meter,
        );
        let long = format!("data: {{\"delta\":\"{}\"}}\n\n", "word ".repeat(1_000));
        reply.take(long.as_bytes(), &meter);
        reply.close(&meter);
        assert_eq!(counted(&meter), [("m".to_owned(), 10, 1)]);
        assert!((1_000..1_300).contains(&untold(&meter)[0].2), "{:?}", untold(&meter));
        // A refusal costs nothing.
        let meter = Meter::default();
        let mut refused =
            Response::new(super::super::forward::answer_text(http::StatusCode::OK, "").into_body());
        *refused.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
        drop(meter.sent("/v1/messages", question.as_bytes(), Box::new(())).answered(refused));
        assert!(untold(&meter).is_empty() && meter.traffic.borrow().under_way == 0);
    }

    #[test]
    fn the_request_after_the_last_is_refused_and_a_launch_begins_at_zero() {
        let meter = Meter::default();
        let traffic = meter.begin(0, None);
        assert!(meter.admit(Some(1)) && !meter.admit(Some(1)));
        assert_eq!((traffic.borrow().requests, traffic.borrow().refused), (1, 1));
        drop(meter.begin(0, None));
        assert!(meter.admit(Some(1)) && meter.admit(None));
        // Launches of one visit share its limit.
        drop(meter.begin(2, None));
        assert!(meter.admit(Some(3)) && !meter.admit(Some(3)));
    }
}
