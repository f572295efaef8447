//! `agentd cluster doctor`: tries what a node needs of its servers, names a remedy for each problem, and with `--create` makes and
//! extends the streams. What it cannot find out it calls not verified.

use std::time::Duration;

use serde::Deserialize as _;
use serde_json::{Value, json};
use url::Url;

use super::configured_nodes;
use crate::cli::cluster_access::{access, configured, names};
use crate::cli::context::Context;
use crate::cli::doctor::{Finding, counted_states, tell};
use crate::cli::error::CommandError;
use crate::config::Config;
use crate::domain::cluster::clock_skew::too_far;
use crate::domain::cluster::configuration::others;
use crate::domain::cluster::names::{BESIDE, StreamKind, node_of};
use crate::domain::cluster::rights::{Role, rights};
use crate::store::nats::streams::{self, LESS, Wanted};
use crate::store::nats::{AccountSeen, NatsStore, NodeSeen};
use crate::store::port::StoreError;
use crate::sys::clock::Clock;
use crate::sys::host::Host;
use crate::sys::process_tree;
use crate::sys::tls;

/// The first server that commits several cells at once.
const OLDEST_SERVER: (u64, u64) = (2, 12);
/// Shorter leases are warned of.
const SHORT_LEASE: Duration = Duration::from_secs(15);
/// A longer way to the servers and back is warned of: each flush of a journal takes it.
const LONG_WAY: Duration = Duration::from_millis(100);
const OWN_KEY: &str = "give this node the key that was made for its name, or write that name in cluster.node";
/// Longest wait for a monitoring address.
const MONITOR: Duration = Duration::from_secs(5);

/// Looks at everything; exit 1 if there is a problem.
pub fn run(context: &Context, create: bool) -> Result<u8, CommandError> {
    let config = configured(context)?;
    let access = access(context, &config)?;
    let mut findings = settings(&config);
    match NatsStore::connect(&access) {
        Err(error) => findings.push(Finding::problem(
            "servers",
            error.to_string(),
            "see that a server listens there, with JetStream, and knows these credentials",
        )),
        Ok(store) => {
            let seen = store.account();
            if let Some(error) = seen.as_ref().err().filter(|_| store.is_deaf()) {
                // Nothing else can be found out.
                findings.push(Finding::problem("key", error.to_string(), OWN_KEY));
                return told(context, &findings);
            }
            findings.extend(server(&store));
            findings.extend(seen.map_or_else(|_| Vec::new(), |seen| account(&seen)));
            findings.extend(streams_of(&config, &store, create));
            findings.push(clock(&config, &store));
            // Who makes streams has a keeper's key, which is no node's.
            if !create {
                let role = store.role();
                findings.extend(rights_of(&config, &store, (&access.node, role)));
                let own = (role == Some(Role::Node)).then_some((&*access.node, &*access.place));
                findings.extend(nodes(&store, own));
                findings.extend(configurations(&store));
            }
        }
    }
    findings.extend(context.block_on(disks(&config))?);
    told(context, &findings)
}

fn told(context: &Context, findings: &[Finding]) -> Result<u8, CommandError> {
    let (problems, warnings) = counted_states(findings);
    if context.output.json() {
        let documents: Vec<Value> = findings.iter().map(Finding::document).collect();
        context.output.document(
            &json!({ "ok": problems == 0, "problems": problems, "warnings": warnings, "findings": documents }),
        )?;
    } else {
        tell(context.output, findings, problems, warnings)?;
    }
    Ok(u8::from(problems > 0))
}

/// What the configuration alone tells.
fn settings(config: &Config) -> Vec<Finding> {
    let table = &config.cluster;
    let mut findings = Vec::new();
    let open: Vec<&str> =
        table.urls.iter().filter(|url| url.starts_with("nats://")).map(String::as_str).collect();
    findings.push(match (open.is_empty(), table.plaintext) {
        (true, _) => Finding::ok("encryption", "every server is reached by TLS"),
        (false, false) => Finding::ok("encryption", format!("{} stays on this host", open.join(", "))),
        (false, true) => Finding::warning(
            "encryption",
            format!("{} goes over the network in the open, journals and all", open.join(", ")),
            "write tls:// and leave cluster.plaintext out, or see that the network is encrypted by itself",
        ),
    });
    if table.lease.0 < SHORT_LEASE {
        findings.push(Finding::warning(
            "lease",
            format!("{} is short: a slow disk or a new leader may cost a node what it holds", table.lease),
            "take 15s or more",
        ));
    }
    if table.replicas == 1 {
        findings.push(Finding::warning(
            "replicas",
            "each message is on one server: if that one is lost, so is what is not on a node's disk",
            "take three servers, and cluster.replicas = 3",
        ));
    }
    findings
}

fn server(store: &NatsStore) -> Vec<Finding> {
    let seen = match store.server() {
        Ok(seen) => seen,
        Err(error) => {
            let remedy = "enable JetStream for this account, and let its users ask $JS.API.INFO";
            return vec![Finding::problem("servers", error.to_string(), remedy)];
        }
    };
    let told = format!("{} has nats-server {}", seen.name, seen.version);
    let mut numbers = seen.version.split(['.', '-']).map(|part| part.parse::<u64>().unwrap_or_default());
    let version = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let (major, minor) = OLDEST_SERVER;
    let mut findings = vec![match version >= OLDEST_SERVER {
        true => Finding::ok("servers", told),
        false => Finding::problem(
            "servers",
            format!("{told}, which cannot commit several cells at once"),
            format!("take {major}.{minor} or later on every server"),
        ),
    }];
    let way = format!("{:.1} ms to the servers and back", seen.round_trip.as_secs_f64() * 1000.0);
    findings.push(match seen.round_trip <= LONG_WAY {
        true => Finding::ok("round trip", way),
        false => Finding::warning(
            "round trip",
            way,
            "each flush of a journal takes as long; take servers that are nearer",
        ),
    });
    findings
}

fn account(seen: &AccountSeen) -> Vec<Finding> {
    let mut findings = Vec::new();
    let needed = StreamKind::ALL.len() as u64;
    if let Some(most) = seen.most_streams.filter(|most| *most < needed) {
        findings.push(Finding::problem(
            "account",
            format!("may have {most} streams, and a cluster has {needed}"),
            "raise the account's limit of streams",
        ));
    }
    if let Some(most) =
        seen.most_storage.filter(|most| seen.storage.saturating_mul(5) > most.saturating_mul(4))
    {
        findings.push(Finding::warning(
            "account",
            format!("has {} of {} MiB on disk", seen.storage >> 20, most >> 20),
            "raise the account's limit of storage, or shorten cluster.retention: without room runs wait",
        ));
    }
    if seen.sizes_required {
        findings.push(Finding::problem(
            "account",
            "takes only streams that say how large they may become",
            "lift max_bytes_required, or make the streams with a max_bytes of your own; agentd leaves it as it is",
        ));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("account", format!("has {} streams and room", seen.streams)));
    }
    findings
}

/// What to do where a stream could be neither made nor extended.
fn not_made(error: &StoreError) -> &'static str {
    let told = error.to_string();
    if error.is_for_want_of_a_right() {
        "use a keeper's key (`agentd cluster account`)"
    } else if told.contains(LESS) {
        "take the configuration back, or change the stream yourself: what is in it beyond that is lost"
    } else if told.contains("non-clustered") {
        "set cluster.replicas = 1 for one server, or start the servers as a cluster"
    } else if told.contains("no suitable peers") {
        "start more servers of the cluster, or take a smaller cluster.replicas"
    } else {
        "see what the server says, and change the stream yourself"
    }
}

fn streams_of(config: &Config, store: &NatsStore, create: bool) -> Vec<Finding> {
    let table = &config.cluster;
    let wanted = Wanted { replicas: table.replicas as usize, retention: table.retention.0 };
    let mut findings = Vec::new();
    let Ok(names) = names(config) else { return findings };
    for kind in StreamKind::ALL {
        let name = names.stream(kind);
        if create {
            match store.make_stream(kind, wanted) {
                Ok(true) => findings.push(Finding::ok("stream", format!("{name} was made or extended"))),
                Ok(false) => {}
                Err(error) => {
                    findings.push(Finding::problem("stream", error.to_string(), not_made(&error)));
                    continue;
                }
            }
        }
        let found = match store.stream(kind) {
            Ok(Some(found)) => found,
            Ok(None) => {
                let remedy = "`agentd cluster doctor --create` with a keeper's key makes it";
                findings.push(Finding::problem("stream", format!("{name} is missing"), remedy));
                continue;
            }
            Err(error) => {
                findings.push(Finding::problem(
                    "stream",
                    error.to_string(),
                    "give this user the right to ask",
                ));
                continue;
            }
        };
        let differ = streams::differences(&streams::config(&names, kind, wanted), &found.config);
        if differ.is_empty() {
            findings.push(Finding::ok("stream", format!("{name} is set as it has to be")));
        } else {
            let each = differ
                .iter()
                .map(|(setting, wanted, found)| format!("{setting} is {found} and has to be {wanted}"));
            findings.push(Finding::problem(
                "stream",
                format!("{name}: {}", each.collect::<Vec<_>>().join("; ")),
                "`agentd cluster doctor --create` extends it; what would get less is changed by hand",
            ));
        }
        let away: Vec<&str> =
            found.peers.iter().filter(|(_, current)| !current).map(|(peer, _)| peer.as_str()).collect();
        if !away.is_empty() {
            findings.push(Finding::problem(
                "peers",
                format!("{name} is not whole on {}", away.join(", ")),
                "see that the server runs and is connected with the others",
            ));
        }
    }
    findings
}

fn clock(config: &Config, store: &NatsStore) -> Finding {
    let what = "clock";
    match store.servers_time() {
        Ok(Some((theirs, under_way))) => {
            let most = config.cluster.max_clock_skew;
            let own = Clock::system().now();
            let off = (own - theirs).abs().to_std().unwrap_or_default();
            let told = format!("{:.1} s off the servers'", off.as_secs_f64());
            match too_far(own, theirs, under_way, most.0) {
                None => Finding::ok(what, told),
                Some(_) => Finding::problem(
                    what,
                    format!("{told}, and {most} is the most (cluster.max_clock_skew)"),
                    "set both by NTP; until then this node starts nothing",
                ),
            }
        }
        Ok(None) => Finding::warning(
            what,
            "not verified: without streams the servers do not tell the time",
            "make the streams",
        ),
        Err(error) => Finding::warning(what, format!("not verified: {error}"), "see what is told above"),
    }
}

/// What the key's role needs is tried, message by message; nothing of it is kept.
fn rights_of(config: &Config, store: &NatsStore, (user, role): (&str, Option<Role>)) -> Vec<Finding> {
    let what = "rights";
    let Ok(names) = names(config) else { return Vec::new() };
    let Some(role) = role else {
        return vec![Finding::problem(
            what,
            "this key may nothing of what a node, an operator, a reader or a keeper may",
            "`agentd cluster account` writes the rights of each, and cluster.node has to be the user's name",
        )];
    };
    let (mut missing, mut open) = (Vec::new(), Vec::new());
    let mut note = |subject: String, may: Result<bool, _>| match may {
        Ok(true) => {}
        Ok(false) => missing.push(subject),
        Err(error) => open.push(format!("{error}")),
    };
    for kind in StreamKind::ALL {
        if role == Role::Keeper || !matches!(store.stream(kind), Ok(Some(_))) {
            continue;
        }
        note(format!("$JS.API.STREAM.MSG.GET.{}", names.stream(kind)), store.may_read(kind));
    }
    for subject in rights(&names, role, user).publish {
        let makes =
            ["CREATE", "UPDATE"].iter().any(|api| subject.starts_with(&format!("$JS.API.STREAM.{api}.")));
        if !subject.starts_with("$JS.") || makes {
            let may = store.may(&subject);
            let heard = if subject == names.wake() { " (and hear it)" } else { "" };
            note(format!("{subject}{heard}"), may);
        }
    }
    let mut findings = Vec::new();
    if !missing.is_empty() {
        findings.push(Finding::problem(
            what,
            format!("this key is {}, and may not send to {}", role.owner(), missing.join(", ")),
            format!(
                "add it to what its user may publish; `agentd cluster account` writes all rights of a {role}"
            ),
        ));
    }
    if !open.is_empty() {
        let remedy = "make the streams first, then look again";
        findings.push(Finding::warning(what, format!("not verified: {}", open.join("; ")), remedy));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(what, format!("this key is {}: {}", role.owner(), role.may())));
    }
    findings
}

/// `own`: name and place of the node that this is; `None` = a person's key, which is no node's.
fn nodes(store: &NatsStore, own: Option<(&str, &str)>) -> Vec<Finding> {
    let what = "nodes";
    let Ok(seen) = store.nodes() else { return Vec::new() };
    let host = Host::current();
    let here = |one: &NodeSeen| one.cell.host == host.name && one.cell.boot_id == host.boot_id;
    // Of a process of this host it is known whether it lives; a dead one is nobody's rival.
    let gone = |one: &NodeSeen| here(one) && process_tree::start_time(one.cell.pid) != Some(one.cell.started);
    let live: Vec<_> = seen.iter().filter(|one| one.cell.state.lives() && !gone(one)).collect();
    let is_other = |one: &NodeSeen, place: &str| !here(one) || one.cell.place != place;
    if let Some((own, place)) = own
        && let Some(one) = live.iter().find(|one| one.node == own && is_other(one, place))
    {
        return vec![Finding::problem(
            what,
            format!("\"{own}\" is pid {} on {}, by its last sign of life", one.cell.pid, one.cell.host),
            "give each node a cluster.node of its own; who starts second is refused",
        )];
    }
    if let Some((own, place)) = own
        && let Some(one) = live.iter().find(|one| node_of(&one.node) != own && one.cell.place == place)
    {
        return vec![Finding::problem(
            what,
            format!("\"{}\" has this state directory, by its last sign of life", one.node),
            "give each node a state directory of its own (--state-dir)",
        )];
    }
    let names: Vec<&str> = live.iter().map(|one| one.node.as_str()).collect();
    vec![Finding::ok(
        what,
        match names.is_empty() {
            true => "none has held anything yet".to_owned(),
            false => format!("by their last sign of life there are {}", names.join(", ")),
        },
    )]
}

/// Whether the living nodes are configured alike, as far as they say.
fn configurations(store: &NatsStore) -> Vec<Finding> {
    let what = "configuration";
    let Ok(seen) = store.nodes() else { return Vec::new() };
    let daemons: Vec<&NodeSeen> =
        seen.iter().filter(|one| one.cell.state.lives() && !one.node.contains(BESIDE)).collect();
    let said = |one: &&NodeSeen| one.cell.configuration.is_none();
    let silent: Vec<&str> = daemons.iter().copied().filter(said).map(|one| one.node.as_str()).collect();
    let mut findings = Vec::new();
    if !silent.is_empty() {
        findings.push(Finding::warning(
            what,
            format!(
                "not verified: {} of another version does not say how it is configured",
                silent.join(", ")
            ),
            "install this version there",
        ));
    }
    let others = others(&configured_nodes(&seen));
    let remedy = "`agentd config explain` on each shows every value and where it is from: set them alike; [cluster] counts from a node's \
                  next start on";
    findings.extend(others.into_iter().map(|told| Finding::warning(what, told, remedy)));
    if findings.is_empty() && !daemons.is_empty() {
        findings.push(Finding::ok(what, "the nodes that live are configured alike"));
    }
    findings
}

/// How the servers keep data: without `sync_interval: always` they acknowledge before their disks have it.
async fn disks(config: &Config) -> Vec<Finding> {
    let what = "disk sync";
    let remedy = "set `sync_interval: always` under jetstream of every server: else power loss on several servers can lose what \
                  they acknowledged";
    if config.cluster.monitor.is_empty() {
        let told = "not verified: no monitoring address is configured";
        return vec![Finding::warning(what, told, format!("name them in cluster.monitor; {remedy}"))];
    }
    let mut findings = Vec::new();
    for address in &config.cluster.monitor {
        findings.push(match monitored(address).await {
            Ok(seen) => match always(&seen) {
                Some(true) => Finding::ok(what, format!("{address} has what it acknowledges on its disk")),
                Some(false) => {
                    Finding::warning(what, format!("{address} acknowledges before its disk has it"), remedy)
                }
                None => Finding::warning(
                    what,
                    format!("not verified: {address} does not say how it syncs"),
                    remedy,
                ),
            },
            Err(error) => Finding::warning(
                what,
                format!("not verified: {address}: {error}"),
                "see that it listens there",
            ),
        });
    }
    findings
}

async fn monitored(address: &str) -> Result<Value, String> {
    let url = Url::parse(address).and_then(|url| url.join("varz")).map_err(|error| error.to_string())?;
    let client = tls::http_client().timeout(MONITOR).build().map_err(|error| error.to_string())?;
    let answer = client.get(url).send().await.and_then(reqwest::Response::error_for_status);
    let bytes =
        answer.map_err(|error| error.to_string())?.bytes().await.map_err(|error| error.to_string())?;
    Value::deserialize(&mut serde_json::Deserializer::from_slice(&bytes)).map_err(|error| error.to_string())
}

fn always(seen: &Value) -> Option<bool> {
    let jetstream = seen.pointer("/jetstream/config")?;
    // The member is left out where it is false.
    Some(jetstream.get("sync_always").and_then(Value::as_bool).unwrap_or_default())
}
