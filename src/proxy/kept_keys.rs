//! Keys that stay with agentd although a server gives them back: pages for finding faults and `…/echo` repeat what they were asked
//! with. An answer that has one ends before it.

use aho_corasick::AhoCorasick;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::body::Frame;

use super::forward::{Body, CREDENTIALS};
use crate::domain::model_wire::ProviderKind;
use crate::domain::secret_forms;

/// What is shorter is no key, unless its header says so: versions, formats.
const SHORTEST: usize = 16;
/// What is shorter stands in any text.
const SHORTEST_NAMED: usize = 8;
/// Headers whose values are no keys, however long.
const NO_KEYS: [&str; 3] = ["accept", "content-type", "user-agent"];
/// What comes in place of an answer that nobody can look through.
const COMPRESSED: &str = "agentd: the endpoint's answer is compressed although it was asked not to be, and is not passed on, because it \
                          cannot be looked through for the key\n";

/// The keys of one endpoint.
#[derive(Debug)]
pub(super) struct KeptKeys {
    /// Each in the forms in which it may come back.
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
        let keys: Vec<Vec<u8>> = keys.flat_map(forms).collect();
        // Header lines are short, so that no automaton of them is too large.
        let search = AhoCorasick::new(&keys).ok().filter(|_| !keys.is_empty());
        Self { keys, search }
    }

    /// The answer without any of them: headers that have one are left out, and the body ends before it with an error. A compressed one
    /// is not passed on.
    pub(super) fn keep(self, mut response: Response<Body>) -> Response<Body> {
        if self.search.is_none() {
            return response;
        }
        let headers = response.headers_mut();
        let is_plain = |value: &http::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"identity");
        if !headers.get_all(CONTENT_ENCODING).iter().all(is_plain) {
            headers.clear();
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            return response.map(|_| {
                Full::new(Bytes::from_static(COMPRESSED.as_bytes())).map_err(|never| match never {}).boxed()
            });
        }
        let names: Vec<_> = headers
            .iter()
            .filter(|(name, value)| self.name(name.as_str()) || self.are_in(value.as_bytes()))
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
        let Some(search) = &self.search else { return false };
        search.is_match(bytes) || search.is_match(&Unescaped::of(bytes).bytes)
    }

    /// Whether the name of a header has one. Names come in small letters, whatever they were.
    fn name(&self, name: &str) -> bool {
        let small = |key: &Vec<u8>| key.to_ascii_lowercase();
        let is_in = |key: Vec<u8>| name.as_bytes().windows(key.len().max(1)).any(|part| part == key);
        self.keys.iter().map(small).any(is_in)
    }

    /// How many of the last bytes may be the beginning of one.
    fn may_begin(&self, bytes: &[u8]) -> usize {
        let last = |bytes: &[u8]| {
            let begins = |key: &Vec<u8>| {
                let most = (key.len() - 1).min(bytes.len());
                (1..=most).rev().find(|length| bytes.ends_with(&key[..*length])).unwrap_or_default()
            };
            self.keys.iter().map(begins).max().unwrap_or_default()
        };
        let unescaped = Unescaped::of(bytes);
        let first = unescaped.bytes.len() - last(&unescaped.bytes);
        let of_unescaped = bytes.len() - unescaped.starts.get(first).copied().unwrap_or(unescaped.end);
        last(bytes).max(of_unescaped)
    }
}

/// A key, and what copying, escaping or encoding makes of it.
fn forms(key: Vec<u8>) -> Vec<Vec<u8>> {
    match std::str::from_utf8(&key) {
        Ok(text) => secret_forms::of(text, SHORTEST_NAMED).into_iter().map(String::into_bytes).collect(),
        Err(_) => vec![key],
    }
}

/// Bytes without the escapes of JSON (`\u0041`) and of addresses (`%41`), of which any letter may be written as one.
struct Unescaped {
    bytes: Vec<u8>,
    /// Where each of them began.
    starts: Vec<usize>,
    /// Up to where they were read: an escape may be cut off at the end.
    end: usize,
}

impl Unescaped {
    fn of(escaped: &[u8]) -> Self {
        let (mut bytes, mut starts, mut at) = (Vec::with_capacity(escaped.len()), Vec::new(), 0);
        while let Some(first) = escaped.get(at) {
            let rest = &escaped[at..];
            let (opens, length): (&[u8], usize) = match first {
                b'\\' => (b"\\u", 6),
                b'%' => (b"%", 3),
                _ => (b"", 1),
            };
            let may_be_cut = rest.len() < length
                && (opens.starts_with(rest)
                    || rest
                        .strip_prefix(opens)
                        .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)));
            if may_be_cut {
                break;
            }
            let digits =
                rest.get(..length).and_then(|whole| whole.strip_prefix(opens)).filter(|_| length > 1);
            let read =
                digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
            bytes.push(read.unwrap_or(*first));
            starts.push(at);
            at += if read.is_some() { length } else { 1 };
        }
        Self { bytes, starts, end: at }
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

    #[tokio::test]
    async fn a_key_passes_in_no_form_however_that_is_cut_and_escapes_of_other_texts_do() {
        let forms = [
            "before \\u0061bc\\u0061bc\\u0061bd after",
            "before %61b%63abcab%64 after",
            "before 616263616263616264 after",
            "before YWJjYWJjYWJk after",
        ];
        for text in forms {
            for cut in 0..text.len() {
                let (came, cut_off) = passed(&[&text[..cut], &text[cut..]]).await;
                assert!(cut_off && "before ".starts_with(&came), "{text} {cut}: {came}");
            }
        }
        for harmless in [&["\\", "u00"][..], &["100 %", " of \\u0061"], &["a\\n%zz", "%6", "1"]] {
            assert_eq!(passed(harmless).await, (harmless.concat(), false));
        }
    }

    #[test]
    fn a_header_with_a_key_is_left_out() {
        let mut response = Response::new(BoxBody::new(StreamBody::new(stream::iter(Vec::<Passed>::new()))));
        response.headers_mut().insert("x-echo", "Bearer abcabcabd".parse().unwrap());
        response.headers_mut().insert("x-other", "abcabc".parse().unwrap());
        response.headers_mut().insert("x-abcabcabd", "1".parse().unwrap());
        let kept = keys().keep(response);
        assert!(!kept.headers().contains_key("x-echo") && kept.headers().contains_key("x-other"));
        assert!(!kept.headers().contains_key("x-abcabcabd"));
    }
}
