//! What one sandbox may reach, and how a refusal is worded.

use std::net::IpAddr;

use http::HeaderMap;
use reqwest::Url;

use crate::domain::egress::{HostRule, is_own};
use crate::sys::sandbox::PROXY_PORT;

/// What programs are given in the place of a key.
pub const HELD: &str = "held-by-agentd";

/// An address that programs reach by name, credentials added on the way.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Its name: the first part of the path.
    pub name: String,
    /// Where it is, without a slash at its end.
    pub url: Url,
    /// What is added to each request.
    pub headers: HeaderMap,
}

impl Endpoint {
    /// Where programs in the sandbox find it.
    pub fn inside(&self) -> String {
        format!("http://127.0.0.1:{PROXY_PORT}/{}", self.name)
    }
}

/// What one sandbox may reach.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Hosts.
    pub hosts: Vec<HostRule>,
    /// Endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Most requests to models by the endpoints in one launch.
    pub max_requests: Option<u32>,
    /// The key of the list of hosts, with its place, for people.
    pub list: String,
}

impl Rules {
    /// The rule that covers a host.
    pub(super) fn rule(&self, host: &str, port: u16) -> Option<&HostRule> {
        let is_address = host.parse::<IpAddr>().is_ok();
        self.hosts.iter().find(|rule| rule.covers(host, port) && (!is_address || rule.name() == host))
    }

    /// Whether a name may lead to an address. It may lead to this machine only if the list says so.
    pub(super) fn may_be(&self, host: &str, address: &IpAddr) -> bool {
        !is_own(address) || self.hosts.iter().any(|rule| rule.name() == host && rule.is_this_machine())
    }

    /// The answer where a host is not on the list.
    pub(super) fn refusal(&self, host: &str, port: u16) -> String {
        let known: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let entry = if port == 443 || port == 80 { host.to_owned() } else { format!("{host}:{port}") };
        format!(
            "agentd: {host}:{port} is not among the hosts that programs of this run may reach.\n\
             Allowed: {known}.\n\
             To allow it, a person adds \"{entry}\" to {}.\n",
            self.list
        )
    }
}

/// Where a name leads, without what it may not lead to.
pub(super) async fn resolve(
    rules: &Rules,
    host: &str,
    port: u16,
) -> Result<Vec<std::net::SocketAddr>, String> {
    let found = tokio::net::lookup_host((host, port)).await;
    let found: Vec<_> = found.map_err(|error| format!("its name is not known: {error}"))?.collect();
    let all = found.len();
    let usable: Vec<_> = found.into_iter().filter(|address| rules.may_be(host, &address.ip())).collect();
    match usable.is_empty() {
        true if all > 0 => Err("its name leads to this machine, which the list does not name".to_owned()),
        true => Err("its name leads nowhere".to_owned()),
        false => Ok(usable),
    }
}
