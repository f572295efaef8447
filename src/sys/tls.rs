//! What every HTTP client has: the certificates that this system trusts, which are read once, for that takes some milliseconds, and the
//! proxies that the environment names.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::{ClientBuilder, NoProxy, Proxy};
use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::clock::Stopwatch;

/// How long they are kept, because certificates change while a daemon runs.
const KEPT: Duration = Duration::from_secs(600);

static READ: Mutex<Option<(Stopwatch, ClientConfig)>> = Mutex::new(None);

/// What no proxy reaches: this machine. The demo's GitHub and local models are there.
pub const NOT_PROXIED: &str = "localhost,127.0.0.0/8,127.0.0.1,::1";

/// Begins an HTTP client with the certificates of this system and the proxies of the environment. Reads files if it is the first in a
/// while. If the certificates cannot be read, building the client says why.
pub fn http_client() -> ClientBuilder {
    let client = proxied(reqwest::Client::builder());
    match trusted() {
        Ok(config) => client.tls_backend_preconfigured(config),
        Err(_) => client,
    }
}

/// With the proxies that the environment names for each protocol. What is no address is passed over.
fn proxied(client: ClientBuilder) -> ClientBuilder {
    let direct = [set("no_proxy").unwrap_or_default(), NOT_PROXIED.to_owned()].join(",");
    let named = [
        set("http_proxy").and_then(|address| Proxy::http(address).ok()),
        set("https_proxy").and_then(|address| Proxy::https(address).ok()),
        set("all_proxy").and_then(|address| Proxy::all(address).ok()),
    ];
    // Where none is named here, the client would look in the environment itself.
    named
        .into_iter()
        .flatten()
        .fold(client.no_proxy(), |client, proxy| client.proxy(proxy.no_proxy(NoProxy::from_string(&direct))))
}

/// A variable that other programs read in both spellings.
fn set(name: &str) -> Option<String> {
    #[expect(clippy::disallowed_methods, reason = "these belong to the protocol, as the certificates do")]
    let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    read(name).or_else(|| read(&name.to_uppercase()))
}

fn trusted() -> Result<ClientConfig, rustls::Error> {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, config)) = read.as_ref().filter(|(watch, _)| watch.elapsed() < KEPT) {
        return Ok(config.clone());
    }
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_platform_verifier()?.with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    *read = Some((Stopwatch::start(), config.clone()));
    Ok(config)
}
