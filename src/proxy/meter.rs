//! The meter on requests to models: it counts them and reads the tokens that their replies report as they pass.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, Response};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use serde_json::Value;
use tokio::sync::watch;

use super::forward::Body;
use super::usage_wire;
use crate::domain::message::TokenUsage;
use crate::domain::model_traffic::ModelTraffic;

/// The longest event, and the longest reply that is one JSON text, in bytes. The tokens of longer ones are not read.
const LONGEST: usize = 32 << 20;
/// Models of one launch that are told apart.
const MOST_MODELS: usize = 32;
/// The model of a reply that does not say.
const UNNAMED: &str = "unknown";

/// Counts for one program; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Meter(watch::Sender<ModelTraffic>);

impl Meter {
    /// Begins to count anew, for one launch.
    pub fn begin(&self) -> watch::Receiver<ModelTraffic> {
        let heard = self.0.subscribe();
        self.0.send_replace(ModelTraffic::default());
        heard
    }

    /// Takes one request from the number that is allowed. False = none is left.
    pub(super) fn admit(&self, most: Option<u32>) -> bool {
        let mut admitted = true;
        self.0.send_modify(|traffic| {
            admitted = most.is_none_or(|most| traffic.requests < most);
            if admitted {
                traffic.requests = traffic.requests.saturating_add(1);
            } else {
                traffic.refused = traffic.refused.saturating_add(1);
            }
        });
        admitted
    }

    fn add(&self, model: &str, more: TokenUsage) {
        self.0.send_modify(|traffic| {
            let room = traffic.by_model.len() < MOST_MODELS || traffic.by_model.contains_key(model);
            let known = traffic.by_model.entry(if room { model } else { UNNAMED }.to_owned()).or_default();
            *known = known.plus(more);
        });
    }

    /// The same response, its tokens counted before its reader sees them.
    pub(super) fn watch(&self, response: Response<Body>, path: &str) -> Response<Body> {
        if !response.status().is_success() {
            return response;
        }
        let (parts, inner) = response.into_parts();
        let reply = Reply::of(&parts.headers, usage_wire::model_of_path(path));
        let metered = Metered { inner, reply, meter: self.clone() };
        Response::from_parts(parts, metered.boxed())
    }
}

/// A body that is read while it passes.
struct Metered {
    inner: Body,
    reply: Reply,
    meter: Meter,
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
            None => this.reply.end(&this.meter),
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

/// What is known of one reply.
#[derive(Debug, Default)]
struct Reply {
    /// Whether it comes as lines of events.
    events: bool,
    /// Its length, where it says so before.
    length: Option<usize>,
    /// What came and was not read yet: the rest of a line, or all of it.
    buffer: Vec<u8>,
    /// It is too long to be read, up to the next line.
    skips: bool,
    model: Option<String>,
    counted: TokenUsage,
}

impl Reply {
    fn of(headers: &HeaderMap, model: Option<&str>) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            events: text(CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/event-stream")),
            length: text(CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            model: model.map(str::to_owned),
            ..Self::default()
        }
    }

    fn take(&mut self, data: &[u8], meter: &Meter) {
        if !self.events {
            self.keep(data);
            // Who knows the length does not wait for the end.
            if self.length.is_some_and(|length| self.buffer.len() >= length) {
                self.end(meter);
            }
            return;
        }
        let mut rest = data;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.keep(&rest[..end]);
            let line = std::mem::take(&mut self.buffer);
            if !std::mem::take(&mut self.skips) {
                self.event(&line, meter);
            }
            rest = &rest[end + 1..];
        }
        self.keep(rest);
    }

    fn keep(&mut self, data: &[u8]) {
        self.skips |= self.buffer.len() + data.len() > LONGEST;
        if self.skips {
            self.buffer = Vec::new();
        } else {
            self.buffer.extend_from_slice(data);
        }
    }

    fn end(&mut self, meter: &Meter) {
        let last = std::mem::take(&mut self.buffer);
        if self.skips || last.is_empty() {
            return;
        }
        if self.events {
            return self.event(&last, meter);
        }
        match serde_json::from_slice::<Value>(&last) {
            Ok(Value::Array(pieces)) => pieces.iter().for_each(|piece| self.heard(piece, meter)),
            Ok(reply) => self.heard(&reply, meter),
            Err(_) => {}
        }
    }

    /// One line of an event stream. Most say nothing of tokens.
    fn event(&mut self, line: &[u8], meter: &Meter) {
        let Some(data) = line.strip_prefix(b"data:") else { return };
        let tells = self.model.is_none() || data.windows(5).any(|word| word == b"usage");
        if tells && let Ok(piece) = serde_json::from_slice::<Value>(data) {
            self.heard(&piece, meter);
        }
    }

    fn heard(&mut self, piece: &Value, meter: &Meter) {
        if let Some(model) = usage_wire::model(piece) {
            self.model.get_or_insert_with(|| model.to_owned());
        }
        let Some(told) = usage_wire::tokens(piece) else { return };
        let counted = self.counted;
        // What is told only grows.
        let more = TokenUsage::new(
            told.input_tokens.saturating_sub(counted.input_tokens),
            told.output_tokens.saturating_sub(counted.output_tokens),
            told.cache_read_input_tokens.saturating_sub(counted.cache_read_input_tokens),
            told.cache_write_input_tokens.saturating_sub(counted.cache_write_input_tokens),
        );
        if more.total_tokens > 0 {
            self.counted = counted.plus(more);
            meter.add(self.model.as_deref().unwrap_or(UNNAMED), more);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply(events: bool) -> Reply {
        Reply { events, ..Reply::default() }
    }

    fn counted(meter: &Meter) -> Vec<(String, u64, u64)> {
        let traffic = meter.0.borrow().clone();
        let models = traffic.by_model.into_iter();
        models.map(|(model, used)| (model, used.input_tokens, used.output_tokens)).collect()
    }

    #[test]
    fn events_in_any_pieces_count_as_they_come_and_once() {
        let told = "event: message_start\n\
            data: {\"message\":{\"model\":\"m\",\"usage\":{\"input_tokens\":10,\"output_tokens\":1}}}\r\n\n\
            data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"usage\"}}\n\n\
            data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":30}}\n\ndata: [DONE]\n\n";
        for size in [1, 7, told.len()] {
            let (meter, mut reply) = (Meter::default(), reply(true));
            for piece in told.as_bytes().chunks(size) {
                reply.take(piece, &meter);
            }
            reply.end(&meter);
            assert_eq!(counted(&meter), [("m".to_owned(), 10, 30)], "in pieces of {size}");
        }
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
    fn an_endless_line_is_not_kept_and_the_next_one_is_read() {
        let (meter, mut reply) = (Meter::default(), reply(true));
        for _ in 0..(LONGEST / (1 << 20)) + 2 {
            reply.take(&vec![b'x'; 1 << 20], &meter);
        }
        assert!(reply.buffer.len() <= LONGEST);
        reply.take(b"\ndata: {\"usage\":{\"input_tokens\":3}}\n", &meter);
        assert_eq!(counted(&meter), [("unknown".to_owned(), 3, 0)]);
    }

    #[test]
    fn the_request_after_the_last_is_refused_and_a_launch_begins_at_zero() {
        let meter = Meter::default();
        let heard = meter.begin();
        assert!(meter.admit(Some(1)) && !meter.admit(Some(1)));
        assert_eq!((heard.borrow().requests, heard.borrow().refused), (1, 1));
        drop(meter.begin());
        assert!(meter.admit(Some(1)) && meter.admit(None));
    }
}
