//! What programs may reach on the network: hosts by name, and the record of the hosts that they asked for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The word in a list of hosts that means the whole network.
pub const EVERYTHING: &str = "*";

/// Package registries, which `"mode": "trusted"` allows besides the hosts that a definition lists. Forges are not among
/// them: only agentd sends to a forge.
pub const TRUSTED: [&str; 22] = [
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "jsr.io",
    "npm.jsr.io",
    "deno.land",
    "index.crates.io",
    "static.crates.io",
    "crates.io",
    "static.rust-lang.org",
    "pypi.org",
    "files.pythonhosted.org",
    "proxy.golang.org",
    "sum.golang.org",
    "rubygems.org",
    "index.rubygems.org",
    "repo.maven.apache.org",
    "repo1.maven.org",
    "plugins.gradle.org",
    "services.gradle.org",
    "api.nuget.org",
    "repo.packagist.org",
    "repo.hex.pm",
];

/// What a program reaches of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    /// None.
    Nothing,
    /// These hosts, through agentd's proxy.
    Hosts(Vec<HostRule>),
    /// The whole network, as outside.
    Everything,
}

impl Egress {
    /// The hosts of a list as people write it.
    ///
    /// # Errors
    /// The first entry that is no host.
    pub fn of<'a>(hosts: impl IntoIterator<Item = &'a str>) -> Result<Self, BadHost> {
        let mut rules = Vec::new();
        for host in hosts {
            if host.trim() == EVERYTHING {
                return Ok(Self::Everything);
            }
            rules.push(host.parse()?);
        }
        Ok(if rules.is_empty() { Self::Nothing } else { Self::Hosts(rules) })
    }
}

impl Egress {
    /// The list that says the same.
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Hosts(hosts) => hosts.iter().map(ToString::to_string).collect(),
            Self::Everything => vec![EVERYTHING.to_owned()],
        }
    }
}

impl Egress {
    /// The part of these hosts that another list allows too, and the words of the part that it does not.
    pub fn within(&self, most: &Self) -> (Self, Vec<String>) {
        match (self, most) {
            (_, Self::Everything) | (Self::Nothing, _) => (self.clone(), Vec::new()),
            (Self::Everything, most) => (most.clone(), self.words()),
            (Self::Hosts(hosts), most) => {
                let allowed: &[HostRule] = if let Self::Hosts(most) = most { most } else { &[] };
                let is_allowed = |host: &HostRule| allowed.iter().any(|most| most.includes(host));
                let (kept, left_out): (Vec<_>, Vec<_>) = hosts.iter().cloned().partition(is_allowed);
                let left_out = left_out.iter().map(ToString::to_string).collect();
                (if kept.is_empty() { Self::Nothing } else { Self::Hosts(kept) }, left_out)
            }
        }
    }
}

/// A host, or all hosts below a name, with one port or the usual ones (443 and 80).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRule {
    name: String,
    below: bool,
    port: Option<u16>,
}

/// An entry of a list of hosts that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a host: write a name such as example.org, *.example.org or example.org:8443")]
pub struct BadHost(pub String);

impl FromStr for HostRule {
    type Err = BadHost;

    fn from_str(text: &str) -> Result<Self, BadHost> {
        let bad = || BadHost(text.to_owned());
        let (below, rest) = match text.trim().strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text.trim()),
        };
        let (name, port) = split(rest).ok_or_else(bad)?;
        let letters = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_name = !name.is_empty()
            && name
                .split('.')
                .all(|label| !label.is_empty() && label.len() < 64 && label.chars().all(letters));
        let is_address = !below && name.parse::<std::net::IpAddr>().is_ok();
        if !is_name && !is_address {
            return Err(bad());
        }
        Ok(Self { name, below, port })
    }
}

impl HostRule {
    /// Whether the rule covers a host, as [`split`] gives it, and a port.
    pub fn covers(&self, host: &str, port: u16) -> bool {
        let named = if self.below {
            host.strip_suffix(&self.name).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        } else {
            host == self.name
        };
        named && self.port.map_or(port == 443 || port == 80, |own| own == port)
    }

    /// Whether it covers everything that another rule covers.
    fn includes(&self, other: &Self) -> bool {
        let names = match (self.below, other.below) {
            (true, _) => {
                let below = other.name.strip_suffix(&self.name).is_some_and(|rest| rest.ends_with('.'));
                below || (other.below && other.name == self.name)
            }
            (false, below) => !below && other.name == self.name,
        };
        let usual = |port: Option<u16>| matches!(port, None | Some(80 | 443));
        names && (self.port == other.port || (self.port.is_none() && usual(other.port)))
    }

    /// Whether it names this machine. Only a rule that names it in full leads there.
    pub fn is_this_machine(&self) -> bool {
        let address = self.name.parse::<std::net::IpAddr>();
        !self.below && (self.name == "localhost" || address.is_ok_and(|address| is_own(&address)))
    }

    /// Its name, without port.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.below { "*." } else { "" };
        let (open, close) = if self.name.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{star}{open}{}{close}", self.name)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

/// Host in lower case without brackets and final dot, and port, of `host`, `host:port` or `[address]:port`.
pub fn split(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            address.parse::<std::net::Ipv6Addr>().ok()?;
            (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let port = match port {
        Some(port) if port.bytes().all(|byte| byte.is_ascii_digit()) => Some(port.parse().ok()?),
        Some(_) => return None,
        None => None,
    };
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    (!host.is_empty()).then_some((host, port))
}

/// Whether an address is the machine's own, or one where a cloud hands out credentials.
pub fn is_own(address: &std::net::IpAddr) -> bool {
    match address {
        std::net::IpAddr::V4(v4) => {
            v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || v4.is_broadcast()
        }
        std::net::IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_unicast_link_local()
                || v6.segments()[..2] == [0xfd00, 0x0ec2]
                || v6.to_ipv4_mapped().is_some_and(|v4| is_own(&std::net::IpAddr::V4(v4)))
        }
    }
}

/// One host that programs of a run asked the proxy for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AskedHost {
    /// Its name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The endpoint that was used; agentd added the credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Why it was not reached; `None` = it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// How often.
    pub times: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(rule: &str, host: &str, port: u16) -> bool {
        rule.parse::<HostRule>().unwrap().covers(&split(host).unwrap().0, port)
    }

    #[test]
    fn a_host_is_covered_by_its_own_name_and_by_no_other() {
        assert!(covers("Example.org", "example.ORG.", 443) && covers("example.org", "example.org", 80));
        assert!(!covers("example.org", "example.org", 22) && covers("example.org:22", "example.org", 22));
        assert!(!covers("example.org:22", "example.org", 443));
        assert!(
            !covers("example.org", "a.example.org", 443) && !covers("example.org", "notexample.org", 443)
        );
        assert!(covers("*.example.org", "a.b.example.org", 443));
        assert!(
            !covers("*.example.org", "example.org", 443) && !covers("*.example.org", "evilexample.org", 443)
        );
        assert!(!covers("*.example.org", "example.org.evil.com", 443));
        assert!(covers("[::1]:8080", "[::1]:8080", 8080) && covers("127.0.0.1:9", "127.0.0.1:9", 9));
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for bad in [
            "",
            "https://example.org",
            "example.org/path",
            "user@host",
            "a b",
            "*",
            "*.",
            "a.*.b",
            "h:port",
            "..",
            "h:99999",
        ] {
            assert!(bad.parse::<HostRule>().is_err(), "{bad}");
        }
        assert_eq!(Egress::of(["a.b", "*"]), Ok(Egress::Everything));
        assert_eq!(Egress::of([]), Ok(Egress::Nothing));
        for trusted in TRUSTED {
            trusted.parse::<HostRule>().unwrap();
        }
    }

    #[test]
    fn the_machines_own_addresses_are_known_in_every_form() {
        for own in [
            "127.0.0.1",
            "127.8.9.10",
            "0.0.0.0",
            "169.254.169.254",
            "::1",
            "::",
            "fe80::1",
            "::ffff:127.0.0.1",
            "fd00:ec2::254",
        ] {
            assert!(is_own(&own.parse().unwrap()), "{own}");
        }
        assert!(!is_own(&"10.0.0.1".parse().unwrap()) && !is_own(&"1.1.1.1".parse().unwrap()));
        assert!("localhost:80".parse::<HostRule>().unwrap().is_this_machine());
        assert!(!"*.localhost".parse::<HostRule>().unwrap().is_this_machine());
    }
}
