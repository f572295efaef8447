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
    /// Whether models are asked there. Then it passes what is counted and what costs nothing, and no other order.
    pub is_provider: bool,
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
    /// The cluster's servers, host and port, which no program of a run reaches, whatever the hosts say.
    pub servers: Vec<(String, u16)>,
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
        if self.is_server(host, port) {
            return None;
        }
        let is_address = host.parse::<IpAddr>().is_ok();
        self.hosts.iter().find(|rule| rule.covers(host, port) && (!is_address || rule.name() == host))
    }

    /// Whether it is a server of the cluster. On this machine, which has other servers too, the port says so.
    fn is_server(&self, host: &str, port: u16) -> bool {
        let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| is_own(&address));
        self.servers.iter().any(|(name, own)| name == host && (!is_here || *own == port))
    }

    /// Whether a name may lead to an address. It may lead to this machine only if the list says so, and never to a server of the cluster.
    pub(super) fn may_be(&self, host: &str, address: &IpAddr, port: u16) -> bool {
        if self.is_server(&address.to_string(), port) {
            return false;
        }
        !is_own(address) || self.hosts.iter().any(|rule| rule.name() == host && rule.is_this_machine())
    }

    /// Why a host is not reached, in a few words.
    pub(super) fn why_refused(&self, host: &str, port: u16) -> &'static str {
        match self.is_server(host, port) {
            true => "it is a server of the cluster",
            false => "it is not among the allowed hosts",
        }
    }

    /// The answer where a host is not reached.
    pub(super) fn refusal(&self, host: &str, port: u16) -> String {
        if self.is_server(host, port) {
            return format!(
                "agentd: {host}:{port} is one of the cluster's servers, which no program of a run reaches.\n"
            );
        }
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
    let usable: Vec<_> =
        found.into_iter().filter(|address| rules.may_be(host, &address.ip(), port)).collect();
    match usable.is_empty() {
        true if all > 0 => {
            Err("its name leads to this machine, which the list does not name, or to a server of the cluster"
                .to_owned())
        }
        true => Err("its name leads nowhere".to_owned()),
        false => Ok(usable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_the_cluster_is_reached_by_no_name_on_no_list() {
        let hosts =
            ["*.example.org", "10.0.0.5", "nats.example.org:4222", "127.0.0.1:4222", "127.0.0.1:8080"];
        let servers = [("nats.example.org", 4222), ("10.0.0.5", 4222), ("127.0.0.1", 4222)];
        let rules = Rules {
            hosts: hosts.map(|host| host.parse().unwrap()).to_vec(),
            servers: servers.map(|(host, port)| (host.to_owned(), port)).to_vec(),
            endpoints: Vec::new(),
            max_requests: None,
            list: "the list".to_owned(),
        };
        for (host, port, reached) in [
            ("nats.example.org", 4222, false),
            ("nats.example.org", 443, false),
            ("10.0.0.5", 443, false),
            ("127.0.0.1", 4222, false),
            // This machine has other servers, too.
            ("127.0.0.1", 8080, true),
            ("www.example.org", 443, true),
        ] {
            assert_eq!(rules.rule(host, port).is_some(), reached, "{host}:{port}");
        }
        let leads = |address: &str, port| rules.may_be("www.example.org", &address.parse().unwrap(), port);
        assert!(!leads("10.0.0.5", 443) && leads("10.0.0.6", 443), "another name of the same server");
    }
}
