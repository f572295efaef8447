//! What the programs of a run reach on the network: a proxy for each sandbox, its endpoints, and the variables that
//! lead there.

use std::ffi::OsString;

use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret as _;

use crate::config::{self, Config};
use crate::domain::egress::{Egress, HostRule};
use crate::domain::refusal::Refusal;
use crate::domain::stop::StopDetail;
use crate::proxy::rules::{Endpoint, HELD, Rules};
use crate::proxy::{Proxy, ProxyError};
use crate::sys::paths::AbsPath;
use crate::sys::sandbox::{Network, PROXY_PORT};

/// Names that programs reach without a proxy: their own.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// What one sandbox may reach of the network.
#[derive(Debug, Clone, Copy)]
pub struct NetworkReach<'a> {
    /// Hosts.
    pub egress: &'a Egress,
    /// The cluster's servers, which it does not reach even so.
    pub servers: &'a [(String, u16)],
    /// Addresses with credentials added on the way.
    pub endpoints: &'a [NamedEndpoint],
    /// Most requests to models by the endpoints in one launch.
    pub max_requests: Option<u32>,
}

impl<'a> NetworkReach<'a> {
    /// These hosts, and no endpoints.
    pub fn of(egress: &'a Egress, servers: &'a [(String, u16)]) -> Self {
        Self { egress, servers, endpoints: &[], max_requests: None }
    }
}

/// An endpoint, checked, with the variables that tell a program of it.
#[derive(Debug, Clone)]
pub struct NamedEndpoint {
    endpoint: Endpoint,
    variables: Vec<(String, String)>,
}

/// The egress proxy of one sandbox.
#[derive(Debug)]
pub struct EgressProxy {
    /// What is left of the network.
    pub network: Network,
    /// Variables that lead to the proxy.
    pub environment: Vec<(OsString, OsString)>,
    /// The proxy; closed when this is dropped.
    pub proxy: Option<Proxy>,
}

impl EgressProxy {
    /// No network at all.
    pub fn closed() -> Self {
        Self { network: Network::None, environment: Vec::new(), proxy: None }
    }

    /// Opens what is allowed. `list` names the list of hosts for people.
    pub fn open(
        folder: &AbsPath,
        name: &str,
        reach: NetworkReach<'_>,
        list: String,
    ) -> Result<Self, ProxyError> {
        let NetworkReach { egress, servers, endpoints, max_requests } = reach;
        let hosts = match egress {
            Egress::Nothing if endpoints.is_empty() => return Ok(Self::closed()),
            Egress::Everything if endpoints.is_empty() => {
                return Ok(Self { network: Network::All, ..Self::closed() });
            }
            Egress::Nothing | Egress::Everything => Vec::new(),
            Egress::Hosts(hosts) => hosts.clone(),
        };
        let environment = environment(&hosts, endpoints);
        let endpoints = endpoints.iter().map(|named| named.endpoint.clone()).collect();
        let rules = Rules { hosts, servers: servers.to_vec(), endpoints, max_requests, list };
        let proxy = Proxy::open(folder, name, rules)?;
        Ok(Self { network: Network::Proxy(proxy.socket().clone()), environment, proxy: Some(proxy) })
    }
}

/// How programs are told: the names that tools look for, in both spellings.
fn environment(hosts: &[HostRule], endpoints: &[NamedEndpoint]) -> Vec<(OsString, OsString)> {
    let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
    // Names of this machine in a list mean the machine outside of the sandbox.
    let direct: Vec<&str> =
        OWN_NAMES.into_iter().filter(|own| !hosts.iter().any(|rule| rule.name() == *own)).collect();
    let direct = direct.join(",");
    let mut all: Vec<(OsString, OsString)> = Vec::new();
    for (name, value) in
        [("http_proxy", &proxy), ("https_proxy", &proxy), ("all_proxy", &proxy), ("no_proxy", &direct)]
    {
        all.push((name.into(), value.into()));
        all.push((name.to_ascii_uppercase().into(), value.into()));
    }
    all.push(("NODE_USE_ENV_PROXY".into(), "1".into()));
    let variables = endpoints.iter().flat_map(|named| &named.variables);
    all.extend(variables.map(|(name, value)| (name.into(), value.into())));
    all
}

/// The endpoints of those names; what cannot be used is refused.
pub fn endpoints(config: &Config, names: &[String]) -> Result<Vec<NamedEndpoint>, Refusal> {
    names.iter().map(|name| endpoint(config, name)).collect()
}

fn endpoint(config: &Config, name: &str) -> Result<NamedEndpoint, Refusal> {
    let refused = |message: String| Refusal::new(StopDetail::ConfigInvalid, message);
    let Some(config::Endpoint { url, headers, is_provider, url_variable, key_variable, .. }) =
        config.endpoint(name)?
    else {
        return Err(refused(format!(
            "program.endpoints names \"{name}\", and there is no [sandbox.endpoints.{name}] and no [providers.{name}]."
        ))
        .hint("add the table to agentd.toml, or take the name out of the agent's definition"));
    };
    let parsed = reqwest::Url::parse(&url).ok();
    let parsed = parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.query().is_none());
    let Some(parsed) = parsed else {
        return Err(refused(format!(
            "The address of the endpoint \"{name}\" is not a plain http(s) address."
        )));
    };
    let mut added = HeaderMap::new();
    for (header, value) in &headers {
        let header_name = HeaderName::try_from(header.as_str());
        let value = HeaderValue::try_from(value.expose_secret());
        let (Ok(header_name), Ok(mut value)) = (header_name, value) else {
            return Err(refused(format!(
                "The header {header} of the endpoint \"{name}\" is not allowed in HTTP."
            )));
        };
        value.set_sensitive(true);
        added.insert(header_name, value);
    }
    let endpoint = Endpoint { name: name.to_owned(), url: parsed, headers: added, is_provider };
    let mut variables = Vec::new();
    variables.extend(url_variable.map(|variable| (variable, endpoint.inside())));
    variables.extend(key_variable.map(|variable| (variable, HELD.to_owned())));
    Ok(NamedEndpoint { endpoint, variables })
}
