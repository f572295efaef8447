//! Keys that stay with agentd although a server gives them back: pages for finding faults and `…/echo` repeat what they were asked
//! with. An answer that has one ends before it.

use aho_corasick::AhoCorasick;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::{HeaderMap, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyStream, StreamBody};
use hyper::body::Frame;

use super::forward::{Body, CREDENTIALS};
use crate::domain::model_wire::ProviderKind;

/// What is shorter is no key, unless its header says so: versions, formats.
const SHORTEST: usize = 16;
/// What is shorter stands in any text.
const SHORTEST_NAMED: usize = 8;
/// Headers whose values are no keys, however long.
const NO_KEYS: [&str; 3] = ["accept", "content-type", "user-agent"];

/// The keys of one endpoint.
#[derive(Debug)]
pub(super) struct KeptKeys {
    keys: Vec<Vec<u8>>,
    /// `None`: there are none.
    search: Option<AhoCorasick>,
}

impl KeptKeys {
    /// Of the headers that are added to its requests: the last word of each, as `Bearer` is no secret.
    pub(super) fn of(added: &HeaderMap) -> Self {
        let is_named = |name: &str| {
            CREDENTIALS.contains(&name) || ProviderKind::ALL.iter().any(|kind| kind.wire().key_header == name)
        };
        let keys = added.iter().filter_map(|(name, value)| {
            let key = value.as_bytes().rsplit(|byte| *byte == b' ').next()?;
            let shortest = if is_named(name.as_str()) { SHORTEST_NAMED } else { SHORTEST };
            (key.len() >= shortest && !NO_KEYS.contains(&name.as_str())).then(|| key.to_vec())
        });
        let keys: Vec<Vec<u8>> = keys.collect();
        // Header lines are short, so that no automaton of them is too large.
        let search = AhoCorasick::new(&keys).ok().filter(|_| !keys.is_empty());
        Self { keys, search }
    }

    /// The answer without any of them: headers that have one are left out, and the body ends before it with an error.
    pub(super) fn keep(self, mut response: Response<Body>) -> Response<Body> {
        if self.search.is_none() {
            return response;
        }
        let headers = response.headers_mut();
        let names: Vec<_> = headers
            .iter()
            .filter(|(_, value)| self.are_in(value.as_bytes()))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            headers.remove(name);
        }
        response.map(|body| {
            let passing = Passing { keys: self, body: BodyStream::new(body), held: Vec::new(), ended: false };
            let frames = stream::unfold(passing, |mut passing| async move {
                let frame = passing.next().await?;
                Some((frame, passing))
            });
            BoxBody::new(StreamBody::new(Box::pin(frames)))
        })
    }

    fn are_in(&self, bytes: &[u8]) -> bool {
        self.search.as_ref().is_some_and(|search| search.is_match(bytes))
    }

    /// How many of the last bytes may be the beginning of one.
    fn may_begin(&self, bytes: &[u8]) -> usize {
        let begins = |key: &Vec<u8>| {
            let most = (key.len() - 1).min(bytes.len());
            (1..=most).rev().find(|length| bytes.ends_with(&key[..*length])).unwrap_or_default()
        };
        self.keys.iter().map(begins).max().unwrap_or_default()
    }
}

type Passed = Result<Frame<Bytes>, Box<dyn std::error::Error + Send + Sync>>;

/// A body on its way to the program.
struct Passing {
    keys: KeptKeys,
    body: BodyStream<Body>,
    /// Came, and may be the beginning of a key.
    held: Vec<u8>,
    ended: bool,
}

impl Passing {
    async fn next(&mut self) -> Option<Passed> {
        while !self.ended {
            let data = match self.body.next().await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => data,
                    // Trailers may have one, too, and nobody needs them.
                    Err(_trailers) => continue,
                },
                Some(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                None => {
                    self.ended = true;
                    let rest = std::mem::take(&mut self.held);
                    return (!rest.is_empty()).then(|| Ok(Frame::data(rest.into())));
                }
            };
            self.held.extend_from_slice(&data);
            if self.keys.are_in(&self.held) {
                self.ended = true;
                tracing::warn!(
                    "an endpoint gave back the key that agentd had sent it; its answer was cut off"
                );
                return Some(Err("the answer has a key of agentd's".into()));
            }
            let rest = self.held.split_off(self.held.len() - self.keys.may_begin(&self.held));
            let passed = std::mem::replace(&mut self.held, rest);
            if !passed.is_empty() {
                return Some(Ok(Frame::data(passed.into())));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> KeptKeys {
        let added = [("authorization", "Bearer abcabcabd"), ("x-version", "2023-06-01")];
        KeptKeys::of(&added.iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect())
    }

    async fn passed(parts: &[&str]) -> (String, bool) {
        let parts: Vec<Passed> =
            parts.iter().map(|part| Ok(Frame::data(Bytes::copy_from_slice(part.as_bytes())))).collect();
        let body: Body = BoxBody::new(StreamBody::new(stream::iter(parts)));
        let mut body = BodyStream::new(keys().keep(Response::new(body)).into_body());
        let mut whole = String::new();
        while let Some(frame) = body.next().await {
            match frame {
                Ok(frame) => whole.push_str(std::str::from_utf8(&frame.into_data().unwrap()).unwrap()),
                Err(_) => return (whole, true),
            }
        }
        (whole, false)
    }

    #[tokio::test]
    async fn a_key_does_not_pass_however_it_is_cut_and_all_else_does() {
        let text = "before abcabcabd after";
        for cut in 0..text.len() {
            let (came, cut_off) = passed(&[&text[..cut], &text[cut..]]).await;
            assert!(cut_off && "before ".starts_with(&came), "{cut}: {came}");
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(passed(&letters).await, ("before ".to_owned(), true));
        for harmless in [&["abcabca", "bcab"][..], &["2023-06-01 Bearer abcabcab"], &["", "x", ""]] {
            assert_eq!(passed(harmless).await, (harmless.concat(), false));
        }
    }

    #[test]
    fn a_header_with_a_key_is_left_out() {
        let mut response = Response::new(BoxBody::new(StreamBody::new(stream::iter(Vec::<Passed>::new()))));
        response.headers_mut().insert("x-echo", "Bearer abcabcabd".parse().unwrap());
        response.headers_mut().insert("x-other", "abcabc".parse().unwrap());
        let kept = keys().keep(response);
        assert!(!kept.headers().contains_key("x-echo") && kept.headers().contains_key("x-other"));
    }
}
