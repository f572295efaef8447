//! `[cluster]` as people write it: several nodes that share their work over NATS JetStream.

use std::time::Duration;

use reqwest::Url;
use serde::Serialize;

use super::duration::Span;
use super::size_file::Size;
use super::table_file::table;
use crate::domain::words::{words, words_of_a_format};

/// The port of a server that names none.
const USUAL_PORT: u16 = 4222;

table! {
    /// `[cluster]`.
    #[derive(PartialEq, Eq)]
    pub struct ClusterTable {
        /// Where the state is. `files`: In the state directory, for one node. `nats`: On NATS servers with JetStream, which several
        /// nodes share.
        pub store: StoreKind = StoreKind::Files,
        /// Name of the cluster; every stream and subject has it.
        pub name: String = "main".into(),
        /// Name of this node, which no other has; empty = the host's name in lower case.
        pub node: String = String::new(),
        /// Addresses of the servers, such as `tls://a:4222`.
        pub urls: Vec<String> = Vec::new(),
        /// A creds file, with this node's JWT and key; for nobody but its owner to read.
        pub credentials: String = String::new(),
        /// Placeholder of the seed of this node's nkey, instead of `credentials`.
        pub nkey: String = String::new(),
        /// A file with the certificates of those who sign the servers'; empty = the system's.
        pub tls_ca: String = String::new(),
        /// A file with this node's certificate.
        pub tls_cert: String = String::new(),
        /// A file with its key; for nobody but its owner to read.
        pub tls_key: String = String::new(),
        /// Whether `nats://`, which is not encrypted, may go beyond loopback.
        pub plaintext: bool = false,
        /// Monitoring addresses of the servers, such as `http://a:8222`; `agentd cluster doctor` asks them how they keep data.
        pub monitor: Vec<String> = Vec::new(),
        /// On how many servers each message is: 1, 3 or 5.
        pub replicas: u32 = 3,
        /// How long a node that gives no sign of life keeps what it holds.
        pub lease: Span = Span(Duration::from_secs(30)),
        /// Runs at a time over all nodes, the same on each of them; 0 = as many as the nodes take.
        pub max_runs: u32 = 0,
        /// How long journals, rows and blobs of runs are kept.
        pub retention: Span = Span(Duration::from_secs(90 * 86_400)),
        /// Largest bundle of a checkpoint, or of commits that a run leaves unpushed; work with a larger one stays on its node.
        pub checkpoint_max: Size = Size(256 << 20),
        /// How far a node's clock may be off the servers'.
        pub max_clock_skew: Span = Span(Duration::from_secs(30)),
        /// How long runs may take to their next border when their node is drained.
        pub drain_timeout: Span = Span(Duration::from_secs(15 * 60)),
    }
}

impl ClusterTable {
    /// Host, in lower case, and port of each server; none without a cluster.
    pub fn servers(&self) -> Vec<(String, u16)> {
        let urls = self.urls.iter().filter(|_| self.store == StoreKind::Nats);
        let place = |url: Url| {
            let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
            Some((host, url.port().unwrap_or(USUAL_PORT)))
        };
        urls.filter_map(|text| place(Url::parse(text).ok()?)).collect()
    }
}

words! {
    /// Where the state is that several nodes share.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum StoreKind {
        /// In the state directory, for one node.
        #[default]
        Files = "files",
        /// On NATS servers with JetStream.
        Nats = "nats",
    }
}
words_of_a_format!(StoreKind, "StoreKind", "Where the state is that several nodes share.");
