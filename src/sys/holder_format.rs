//! The content of a lease file: who holds it, and what is known about the thing that it guards (D75).

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::host::Host;
use crate::domain::cluster::cells::HeldTerm;
use crate::domain::run::RunId;

/// Version of [`LeaseRecord`]; a reader takes this and older ones.
pub const LEASE_SCHEMA: &str = "agentd.lease.v1";

/// The content of a lease file: one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// [`LEASE_SCHEMA`].
    pub schema_version: String,
    /// Who holds it; `null` after a release.
    pub holder: Option<Holder>,
    /// What outlives a holder, such as the frozen mapping.
    pub record: Option<Value>,
    /// In a cluster: whether a node that is gone had it to the end, and nobody has taken it since. No file says so.
    #[serde(skip)]
    pub left: bool,
}

/// Who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Instance, for people and for finding its run.
    pub instance: String,
    /// Host name.
    pub host: String,
    /// The host's boot.
    pub boot_id: String,
    /// Process.
    pub pid: u32,
    /// When that process started, in the kernel's own unit.
    pub started: u64,
    /// Since when it is held.
    pub since: DateTime<Utc>,
    /// Until when it counts on hosts that cannot ask the kernel of the holder.
    pub expires_at: DateTime<Utc>,
    /// In a cluster: which taking of the lease this is, and by which session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldTerm>,
    /// In a cluster: the run that it begins, if it begins one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
}

/// What can be said about a holder from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Its process runs on this host.
    Alive,
    /// Its process is gone, or its lease expired elsewhere.
    Dead,
    /// It is on another host and its lease has not expired.
    Elsewhere,
}

impl Holder {
    /// This process as the holder.
    pub fn here(host: &Host, instance: &str, since: DateTime<Utc>, expires_at: DateTime<Utc>) -> Self {
        Self {
            instance: instance.to_owned(),
            host: host.name.clone(),
            boot_id: host.boot_id.clone(),
            pid: host.pid,
            started: host.started,
            since,
            expires_at,
            held: None,
            run_id: None,
        }
    }

    /// Whether it is the process that a host's value was made in.
    pub fn is_process_of(&self, host: &Host) -> bool {
        (&self.host, self.pid, self.started) == (&host.name, host.pid, host.started)
    }

    /// Whether the holder is alive: on this host by process, start time and boot; elsewhere by expiry. A process id
    /// that another process has now, or an earlier boot, means a dead holder.
    pub fn liveness(&self, host: &Host, now: DateTime<Utc>) -> Liveness {
        let same_boot = self.boot_id == host.boot_id && !self.boot_id.is_empty();
        if same_boot && self.host == host.name {
            let started = super::process_tree::start_time(self.pid);
            return if started == Some(self.started) { Liveness::Alive } else { Liveness::Dead };
        }
        if self.host == host.name && !self.boot_id.is_empty() {
            return Liveness::Dead;
        }
        if self.expires_at <= now { Liveness::Dead } else { Liveness::Elsewhere }
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let since = self.since.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let node = self.held.as_ref().map(|held| format!("the node {}, ", held.by.node)).unwrap_or_default();
        write!(f, "{} on {node}{} (pid {}, since {since})", self.instance, self.host, self.pid)
    }
}
