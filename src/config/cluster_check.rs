//! Checks `[cluster]`, so that what cannot work is refused before any connection.

use url::{Host, Url};

use super::check::Checker;
use super::cluster_file::{ClusterTable, StoreKind};
use crate::domain::cluster::names::{LONGEST_CLUSTER_NAME, LONGEST_NODE_NAME, is_name};

/// How often a message may be kept.
const REPLICAS: [u32; 3] = [1, 3, 5];
/// Shortest lease: with a shorter one, a slow disk alone would lose it.
const SHORTEST_LEASE: std::time::Duration = std::time::Duration::from_secs(1);

/// Whether an address is of this host only.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        // An address is a name like any other in a scheme that is not of the web.
        Some(Host::Domain(name)) => match name.parse::<std::net::IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => name.eq_ignore_ascii_case("localhost"),
        },
        None => false,
    }
}

/// The address of a server; else what is wrong with it.
fn server(text: &str) -> Result<Url, String> {
    let wanted = "write for example \"tls://nats1.example.org:4222\"";
    let url =
        Url::parse(text).map_err(|error| format!("\"{text}\" is not an address ({error}); {wanted}"))?;
    if !matches!(url.scheme(), "nats" | "tls") {
        return Err(format!("\"{text}\" begins with neither tls:// nor nats://; {wanted}"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a name or a password in it; use cluster.credentials or cluster.nkey".to_owned());
    }
    let plain = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    match url.host().is_some_and(|host| !host.to_string().is_empty()) && plain {
        true => Ok(url),
        false => Err(format!("\"{text}\" is not a host and a port; {wanted}")),
    }
}

impl Checker<'_> {
    pub(super) fn cluster(&mut self, table: &ClusterTable) {
        self.require(
            is_name(&table.name, LONGEST_CLUSTER_NAME),
            "cluster.name",
            format!("must be 1 to {LONGEST_CLUSTER_NAME} of a-z, 0-9, _ and -, but is \"{}\"", table.name),
        );
        self.require(
            table.node.is_empty() || is_name(&table.node.replace('.', "-"), LONGEST_NODE_NAME),
            "cluster.node",
            format!("must be at most {LONGEST_NODE_NAME} of a-z, 0-9, ., _ and -, but is \"{}\"", table.node),
        );
        self.servers(table);
        self.secrets_of_a_node(table);
        self.require(
            REPLICAS.contains(&table.replicas),
            "cluster.replicas",
            format!("must be 1, 3 or 5, but is {}", table.replicas),
        );
        self.require(
            table.lease.0 >= SHORTEST_LEASE,
            "cluster.lease",
            format!("must be at least 1s, but is {}", table.lease),
        );
        self.positive(table.retention, "cluster.retention");
        self.positive(table.max_clock_skew, "cluster.max_clock_skew");
        self.positive(table.drain_timeout, "cluster.drain_timeout");
        self.at_least_one(table.checkpoint_max.0, "cluster.checkpoint_max");
    }

    fn servers(&mut self, table: &ClusterTable) {
        let named = table.store == StoreKind::Files || !table.urls.is_empty();
        self.require(named, "cluster.urls", "is empty; with store = \"nats\" it names the servers");
        for (index, text) in table.urls.iter().enumerate() {
            let key = format!("cluster.urls[{index}]");
            match server(text) {
                Err(message) => self.require(false, &key, message),
                Ok(url) => {
                    let open = url.scheme() == "nats" && !is_loopback(&url);
                    self.require(
                        !open || table.plaintext,
                        &key,
                        format!(
                            "\"{text}\" would send journals over the network in the open; write tls://, or set cluster.plaintext = \
                             true where the network is encrypted by itself"
                        ),
                    );
                }
            }
        }
        for (index, text) in table.monitor.iter().enumerate() {
            self.address(text, &format!("cluster.monitor[{index}]"));
        }
    }

    fn secrets_of_a_node(&mut self, table: &ClusterTable) {
        self.require(
            table.credentials.is_empty() || table.nkey.is_empty(),
            "cluster.nkey",
            "and cluster.credentials say both who this node is; leave one out",
        );
        self.require(
            table.tls_cert.is_empty() == table.tls_key.is_empty(),
            if table.tls_key.is_empty() { "cluster.tls_key" } else { "cluster.tls_cert" },
            "is empty: a certificate and its key come together",
        );
    }
}
