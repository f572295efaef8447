//! The certificates that this system trusts. They are read once for all HTTP clients, which takes some milliseconds.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use rustls_platform_verifier::BuilderVerifierExt as _;

use super::clock::Stopwatch;

/// How long they are kept, because certificates change while a daemon runs.
const KEPT: Duration = Duration::from_secs(600);

static READ: Mutex<Option<(Stopwatch, ClientConfig)>> = Mutex::new(None);

/// Begins an HTTP client with the certificates of this system. Reads files if it is the first in a while. If the
/// certificates cannot be read, building the client says why.
pub fn http_client() -> reqwest::ClientBuilder {
    let client = reqwest::Client::builder();
    match trusted() {
        Ok(config) => client.tls_backend_preconfigured(config),
        Err(_) => client,
    }
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
