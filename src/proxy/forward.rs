//! Plain requests: passed on to their host, or to an endpoint with the credentials that agentd adds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, HOST, HeaderMap, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use percent_encoding::percent_decode;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::rules::{Endpoint, HELD, Rules, resolve};
use crate::domain::model_wire::ProviderKind;

/// Longest wait for a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// What both sides' bodies are.
pub(super) type Body = BoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Headers that belong to one connection.
const HOP: [HeaderName; 7] =
    [CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
/// Headers by which a program says who it is, beside those of the wires: an endpoint's are agentd's to say.
pub(super) const CREDENTIALS: [&str; 3] = ["api-key", "authorization", "cookie"];
/// By these some servers take a request for another one than it is.
const OVERRIDES: [&str; 5] =
    ["x-http-method-override", "x-http-method", "x-method-override", "x-original-url", "x-rewrite-url"];

/// Names lead where the list allows.
pub(super) struct Guarded(pub Arc<Rules>);

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let rules = Arc::clone(&self.0);
        Box::pin(async move {
            let found = resolve(&rules, &name.as_str().to_ascii_lowercase(), 0).await?;
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// A short answer of the proxy itself.
pub(super) fn answer_text(status: StatusCode, text: impl Into<String>) -> Response<Body> {
    let body = Full::new(Bytes::from(text.into())).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let plain = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(http::header::CONTENT_TYPE, plain);
    response
}

/// Whether a path leads upwards for a server that reads it as some do: escapes first, also twice, and `;…` as no part of a name.
fn leads_up(path: &str) -> bool {
    let mut read = path.as_bytes().to_vec();
    for _ in 0..3 {
        read = percent_decode(&read).collect();
        let mut names = read.split(|byte| matches!(byte, b'/' | b'\\'));
        if names.any(|name| name.split(|byte| *byte == b';').next() == Some(b"..")) {
            return true;
        }
    }
    false
}

/// Where a request for an endpoint goes: always below the endpoint's own address.
pub(super) fn address(endpoint: &Endpoint, rest: &str) -> Option<Url> {
    if leads_up(rest.split(['?', '#']).next().unwrap_or_default()) {
        return None;
    }
    let base = endpoint.url.as_str().trim_end_matches('/');
    let mut url = Url::parse(&format!("{base}{rest}")).ok()?;
    let root = endpoint.url.path().trim_end_matches('/');
    let below = url.path().strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if url.origin() != endpoint.url.origin() || !below {
        return None;
    }
    // A key in the address is only what stands for one.
    if url.query_pairs().any(|(_, value)| value == HELD) {
        let others: Vec<(String, String)> = url
            .query_pairs()
            .filter(|(_, value)| value != HELD)
            .map(|(k, v)| (k.into_owned(), v.into_owned()))
            .collect();
        url.query_pairs_mut().clear().extend_pairs(others);
        if url.query() == Some("") {
            url.set_query(None);
        }
    }
    Some(url)
}

/// Sends a request on and gives the answer as it comes.
pub(super) async fn send<B>(
    client: &reqwest::Client,
    url: Url,
    request: Request<B>,
    added: Option<&HeaderMap>,
) -> Result<Response<Body>, reqwest::Error>
where
    B: http_body_util::BodyExt<Data = Bytes> + Send + Sync + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let mut headers = without_hops(parts.headers);
    headers.remove(HOST);
    if let Some(added) = added {
        let of_wires = ProviderKind::ALL.iter().map(|kind| kind.wire().key_header);
        for name in of_wires.chain(CREDENTIALS).chain(OVERRIDES) {
            headers.remove(name);
        }
        for (name, value) in added {
            headers.insert(name, value.clone());
        }
        // What replies say of tokens is read as they pass.
        headers.insert(ACCEPT_ENCODING, http::HeaderValue::from_static("identity"));
    }
    let mut sent = client.request(parts.method, url).headers(headers);
    if !body.is_end_stream() {
        sent = sent.body(reqwest::Body::wrap(body));
    }
    let answer: Response<reqwest::Body> = sent.send().await?.into();
    let (mut parts, body) = answer.into_parts();
    parts.headers = without_hops(parts.headers);
    parts.version = http::Version::HTTP_11;
    // Among them the words behind the status, which may repeat what was sent, and which nobody needs.
    parts.extensions.clear();
    Ok(Response::from_parts(parts, body.map_err(Into::into).boxed()))
}

fn without_hops(mut headers: HeaderMap) -> HeaderMap {
    let named: Vec<String> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(|name| name.trim().to_owned()))
        .collect();
    for name in named.iter().map(String::as_str).chain(["keep-alive", "proxy-connection"]) {
        headers.remove(name);
    }
    for name in HOP {
        headers.remove(name);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(url: &str) -> Endpoint {
        Endpoint {
            name: "x".into(),
            url: url.parse().unwrap(),
            headers: HeaderMap::new(),
            is_provider: false,
        }
    }

    #[test]
    fn an_endpoints_requests_stay_below_its_address() {
        let at = |url: &str, rest: &str| address(&endpoint(url), rest).map(|url| url.to_string());
        let below = |rest: &str| at("https://api.example.org/v1", rest);
        assert_eq!(below("/models?a=b").as_deref(), Some("https://api.example.org/v1/models?a=b"));
        assert_eq!(below("/models?key=held-by-agentd").as_deref(), Some("https://api.example.org/v1/models"));
        assert_eq!(below("/m?a=b&key=held-by-agentd").as_deref(), Some("https://api.example.org/v1/m?a=b"));
        assert_eq!(at("https://api.example.org", "").as_deref(), Some("https://api.example.org/"));
        assert!(below("/projects/group%2Fname/..name/a..b;v=1").is_some());
        for escape in ["/..%2fadmin", "/a/..%5cx", "/..;/x", "/%2e%2e%2fx", "/%252e%252e/x", "/.%2e;a=b/x"] {
            assert_eq!(below(escape), None, "{escape}");
        }
        for escape in ["/../admin", "/%2e%2e/admin", "@evil.org/", ".evil.org/", "5/x", "/..\\..\\x"] {
            assert_eq!(below(escape), None, "{escape}");
        }
        assert_eq!(at("https://api.example.org", "@evil.org/"), None);
    }
}
