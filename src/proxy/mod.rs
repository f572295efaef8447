//! The egress proxy of a sandbox. It lets programs reach the allowed hosts and adds credentials that they must not
//! have.
//!
//! It serves one sandbox over one socket. `CONNECT` makes a tunnel. Only its beginning is looked at: it must name the
//! host of the tunnel, or the tunnel ends. Plain requests are passed on. A path that begins with the name of an
//! endpoint goes to that endpoint with agentd's credentials.

mod forward;
#[cfg(unix)]
mod hello;
#[cfg(unix)]
mod kept_keys;
pub mod meter;
pub mod rules;
#[cfg(unix)]
mod server;

#[cfg(unix)]
pub use server::Proxy;

/// There is no sandbox here, so nothing is opened.
#[cfg(not(unix))]
#[derive(Debug)]
pub struct Proxy {
    socket: AbsPath,
    asked: std::sync::Arc<crate::sys::egress_log::EgressLog>,
    meter: meter::Meter,
}

#[cfg(not(unix))]
#[expect(missing_docs, reason = "as where there is one")]
impl Proxy {
    pub fn open(folder: &AbsPath, name: &str, _rules: rules::Rules) -> Result<Self, ProxyError> {
        Err(ProxyError { path: folder.join(name), why: "it exists where there are sandboxes".to_owned() })
    }

    pub fn socket(&self) -> &AbsPath {
        &self.socket
    }

    pub fn asked(&self) -> &std::sync::Arc<crate::sys::egress_log::EgressLog> {
        &self.asked
    }

    pub fn meter(&self) -> &meter::Meter {
        &self.meter
    }
}

use crate::sys::paths::AbsPath;

/// A proxy that cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the proxy at {path} cannot be opened: {why}")]
pub struct ProxyError {
    /// Its socket.
    pub path: AbsPath,
    /// What the operating system said.
    pub why: String,
}
