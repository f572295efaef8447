//! `agentd cluster status`: what the servers have, as they say it now.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;

use super::configured_nodes;
use crate::cli::cluster_access::{configured, connect, failed};
use crate::cli::context::Context;
use crate::cli::error::CommandError;
use crate::domain::cluster::cells::{Hold, IssueCell, RepoCell};
use crate::domain::cluster::configuration::others;
use crate::domain::cluster::names::StreamKind;
use crate::domain::name::RepoName;
use crate::domain::run_output::rfc3339;
use crate::store::nats::streams::FoundStream;
use crate::store::nats::{NatsStore, NodeSeen, ServerSeen};
use crate::store::port::StoreError;

struct Seen {
    server: ServerSeen,
    as_of: Option<DateTime<Utc>>,
    schema: Option<u32>,
    streams: Vec<(StreamKind, Option<FoundStream>)>,
    nodes: Vec<NodeSeen>,
    pollers: Vec<(RepoName, RepoCell)>,
    issues: Vec<(RepoName, String, IssueCell)>,
    /// How long a node counts as living without a sign.
    lease: Duration,
}

impl Seen {
    /// Whether a node that says that it lives has given no sign for so long that its process is gone, or cut off.
    fn is_silent(&self, one: &NodeSeen) -> bool {
        let age = self.as_of.map(|now| (now - one.written).to_std().unwrap_or_default());
        one.cell.state.lives() && age.is_some_and(|age| age > self.lease)
    }
}

/// Shows it.
pub fn status(context: &Context) -> Result<(), CommandError> {
    let config = configured(context)?;
    let store = connect(context, &config)?;
    let server = store.server().map_err(|error| failed(&error))?;
    let mut streams = Vec::new();
    for kind in StreamKind::ALL {
        streams.push((kind, store.stream(kind).map_err(|error| failed(&error))?));
    }
    // Without its cells a cluster has no nodes; which streams are missing is told all the same.
    let has_cells = streams.iter().any(|(kind, found)| *kind == StreamKind::Cells && found.is_some());
    let mut seen = Seen {
        server,
        as_of: None,
        schema: None,
        streams,
        nodes: Vec::new(),
        pollers: Vec::new(),
        issues: Vec::new(),
        lease: config.cluster.lease.0,
    };
    if has_cells && let Err(error) = read_cells(&store, &mut seen) {
        if !error.is_for_want_of_a_right() {
            return Err(failed(&error));
        }
        if !context.output.json() {
            tell_streams(context, &config.cluster.name, &seen)?;
        }
        return Err(not_read(&store, &error));
    }
    if context.output.json() {
        return context.output.document(&document(&config.cluster.name, &seen));
    }
    tell(context, &config.cluster.name, &seen)
}

/// What the nodes hold.
fn read_cells(store: &NatsStore, seen: &mut Seen) -> Result<(), StoreError> {
    seen.as_of = store.servers_time()?.map(|(time, _)| time);
    seen.schema = Some(store.form()?);
    seen.nodes = store.nodes()?;
    seen.pollers = store.pollers()?;
    seen.issues = store.issues()?;
    Ok(())
}

/// What a key may that may not read cells, and what it may not.
fn not_read(store: &NatsStore, error: &StoreError) -> CommandError {
    let whose = match store.role() {
        Some(role) => format!("this key is {}: {}", role.owner(), role.may()),
        None => "this key may not read what is in the streams".to_owned(),
    };
    CommandError::invalid(format!("{whose}; {error}"))
        .hint("take a node's, an operator's or a reader's key to see nodes, pollers and issues")
}

fn document(cluster: &str, seen: &Seen) -> serde_json::Value {
    let streams = seen.streams.iter().map(|(kind, found)| {
        let peers = found.as_ref().map(|found| {
            found
                .peers
                .iter()
                .map(|(name, current)| json!({ "server": name, "current": current }))
                .collect::<Vec<_>>()
        });
        json!({
            "stream": kind.word(),
            "present": found.is_some(),
            "messages": found.as_ref().map(|found| found.state.messages),
            "bytes": found.as_ref().map(|found| found.state.bytes),
            "made_at": found.as_ref().map(|found| rfc3339(found.made_at)),
            "peers": peers,
        })
    });
    let streams: Vec<_> = streams.collect();
    let nodes = seen.nodes.iter().map(|one| {
        json!({
            "node": one.node, "state": one.cell.state, "silent": seen.is_silent(one), "session": one.cell.session, "host": one.cell.host, "pid": one.cell.pid,
            "version": one.cell.version, "schemas": one.cell.schemas, "configuration": one.cell.configuration, "written_at": rfc3339(one.written),
        })
    });
    let nodes: Vec<_> = nodes.collect();
    let issues = seen.issues.iter().map(
        |(repo, key, cell)| json!({ "repository": repo, "issue": key, "term": cell.term, "hold": cell.hold }),
    );
    let issues: Vec<_> = issues.collect();
    let pollers: Vec<_> = seen
        .pollers
        .iter()
        .map(|(repo, cell)| json!({ "repository": repo, "poller": cell.poller }))
        .collect();
    json!({
        "cluster": cluster, "server": seen.server.name, "server_version": seen.server.version,
        "round_trip_ms": seen.server.round_trip.as_millis() as u64, "as_of": seen.as_of.map(rfc3339),
        "schema": seen.schema,
        "streams": streams, "nodes": nodes, "pollers": pollers, "issues": issues,
    })
}

/// The servers and their streams, for people.
fn tell_streams(context: &Context, cluster: &str, seen: &Seen) -> Result<(), CommandError> {
    let out = context.output;
    let trip = seen.server.round_trip.as_secs_f64() * 1000.0;
    out.line(format!(
        "Cluster {cluster} on {} (nats-server {}), {trip:.1} ms away.",
        seen.server.name, seen.server.version
    ))?;
    let rows: Vec<Vec<String>> = seen
        .streams
        .iter()
        .map(|(kind, found)| match found {
            Some(found) => vec![
                kind.word().to_owned(),
                found.state.messages.to_string(),
                format!("{} KiB", found.state.bytes.div_ceil(1024)),
                rfc3339(found.made_at),
                peers(found),
            ],
            None => {
                let mut row = vec![kind.word().to_owned(), "missing".to_owned()];
                row.resize(5, String::new());
                row
            }
        })
        .collect();
    out.table(&["STREAM", "MESSAGES", "SIZE", "MADE", "SERVERS"], &rows)
}

fn tell(context: &Context, cluster: &str, seen: &Seen) -> Result<(), CommandError> {
    tell_streams(context, cluster, seen)?;
    let out = context.output;
    if let Some(schema) = seen.schema {
        out.line(format!("The schema {schema} is in force."))?;
    }
    let is_missing =
        |kind: StreamKind| seen.streams.iter().any(|(one, found)| *one == kind && found.is_none());
    if StreamKind::ALL.into_iter().any(is_missing) {
        out.advice(
            "Streams are missing; agentd cluster doctor --create, with the keeper's key, makes them.",
        )?;
    }
    // Nothing is known of nodes and issues without their cells.
    if is_missing(StreamKind::Cells) {
        return Ok(());
    }
    if seen.nodes.is_empty() {
        out.line("No node has held anything yet.")?;
    } else {
        let rows: Vec<Vec<String>> = seen
            .nodes
            .iter()
            .map(|one| {
                let says = word(&serde_json::to_value(one.cell.state).unwrap_or_default());
                vec![
                    one.node.clone(),
                    if seen.is_silent(one) { format!("{says}, silent") } else { says },
                    one.cell.session.to_string(),
                    format!("{} (pid {})", one.cell.host, one.cell.pid),
                    one.cell.version.clone(),
                    one.cell.schemas.iter().max().map(u32::to_string).unwrap_or_default(),
                    ago(seen.as_of, one.written),
                ]
            })
            .collect();
        out.table(&["NODE", "SAYS", "SESSION", "HOST", "VERSION", "SCHEMAS TO", "LAST SIGN"], &rows)?;
        for told in others(&configured_nodes(&seen.nodes)) {
            out.line(format!("{told}."))?;
        }
    }
    let polled = seen.pollers.iter().filter_map(|(repo, cell)| Some((repo, cell.poller.as_ref()?)));
    let rows: Vec<Vec<String>> =
        polled.map(|(repo, poller)| vec![repo.to_string(), poller.node.clone()]).collect();
    if !rows.is_empty() {
        out.table(&["REPOSITORY", "POLLER"], &rows)?;
    }
    let held = seen.issues.iter().filter_map(|(repo, key, cell)| match &cell.hold {
        Hold::Free => None,
        Hold::Offered { .. } => {
            Some(vec![format!("{repo}#{key}"), "nobody yet".to_owned(), cell.term.to_string()])
        }
        Hold::Leased { by, .. } => {
            Some(vec![format!("{repo}#{key}"), by.node.clone(), cell.term.to_string()])
        }
    });
    let rows: Vec<Vec<String>> = held.collect();
    match rows.is_empty() {
        true => out.line("Nobody holds an issue."),
        false => out.table(&["ISSUE", "HELD BY", "TERM"], &rows),
    }
}

fn word(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The leader first; what a server lacks is said.
fn peers(found: &FoundStream) -> String {
    if found.peers.is_empty() {
        return "one".to_owned();
    }
    let each = found.peers.iter().map(|(name, current)| match current {
        true => name.clone(),
        false => format!("{name} (behind or away)"),
    });
    each.collect::<Vec<_>>().join(", ")
}

/// By the servers' clock alone.
fn ago(now: Option<DateTime<Utc>>, then: DateTime<Utc>) -> String {
    match now {
        Some(now) => format!("{} s ago", (now - then).num_seconds().max(0)),
        None => rfc3339(then),
    }
}
