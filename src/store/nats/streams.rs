//! The streams of a cluster: what each has to be set to, what is there, and making what is missing.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, State, StorageType};
use chrono::{DateTime, Utc};

use super::connection::Link;
use super::shared::NatsStore;
use crate::domain::causes::with_causes;
use crate::domain::cluster::names::{Names, StreamKind};
use crate::store::port::StoreError;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// What the streams depend on beside their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// On how many servers each message is.
    pub replicas: usize,
    /// How long journals, rows and blobs are kept.
    pub retention: Duration,
}

/// What a stream has to be set to.
pub fn config(names: &Names, kind: StreamKind, wanted: Wanted) -> Config {
    let one_a_subject = matches!(kind, StreamKind::Cells | StreamKind::Runs | StreamKind::Status);
    Config {
        name: names.stream(kind),
        description: Some(format!("agentd, cluster {}", names.cluster())),
        subjects: names.subjects(kind),
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        num_replicas: wanted.replicas,
        max_messages_per_subject: if one_a_subject { 1 } else { -1 },
        max_messages: -1,
        max_bytes: -1,
        max_consumers: -1,
        max_message_size: match kind {
            // The longest value, its headers, and what fills it up.
            StreamKind::Cells => 68 * 1024,
            StreamKind::Runs => 8 * 1024,
            StreamKind::Ctl => 20 * 1024,
            StreamKind::Status => 260 * 1024,
            StreamKind::Log | StreamKind::Blobs => -1,
        },
        max_age: match kind {
            // A cell has to stay for as long as its issue may come again.
            StreamKind::Cells => Duration::ZERO,
            StreamKind::Log | StreamKind::Runs | StreamKind::Blobs => wanted.retention,
            StreamKind::Ctl => 7 * DAY,
            StreamKind::Status => Duration::from_secs(60 * 60),
        },
        deny_delete: true,
        // Nothing rests on the server's memory of what it has seen: this is the least that it takes.
        duplicate_window: Duration::from_millis(100),
        allow_atomic_publish: kind == StreamKind::Cells,
        allow_message_ttl: kind == StreamKind::Cells,
        // A name of an object replaces the one before.
        allow_rollup: kind == StreamKind::Blobs,
        // A follower's answer may be old.
        allow_direct: false,
        ..Config::default()
    }
}

/// How a stream differs from what it has to be: setting, what it has to be, what it is.
pub fn differences(wanted: &Config, found: &Config) -> Vec<(&'static str, String, String)> {
    let mut differ = Vec::new();
    let mut compare = |setting, wanted: String, found: String| {
        if wanted != found {
            differ.push((setting, wanted, found));
        }
    };
    let sorted = |subjects: &[String]| {
        let mut subjects = subjects.to_vec();
        subjects.sort();
        subjects.join(" ")
    };
    // A server writes "no limit" as -1, and a client as 0.
    let limit = |limit: i64| if limit <= 0 { "none".to_owned() } else { limit.to_string() };
    compare("subjects", sorted(&wanted.subjects), sorted(&found.subjects));
    compare("storage", format!("{:?}", wanted.storage), format!("{:?}", found.storage));
    compare("retention", format!("{:?}", wanted.retention), format!("{:?}", found.retention));
    compare("discard", format!("{:?}", wanted.discard), format!("{:?}", found.discard));
    compare("replicas", wanted.num_replicas.to_string(), found.num_replicas.to_string());
    compare(
        "max_msgs_per_subject",
        limit(wanted.max_messages_per_subject),
        limit(found.max_messages_per_subject),
    );
    compare("max_age", format!("{:?}", wanted.max_age), format!("{:?}", found.max_age));
    compare("max_msg_size", limit(wanted.max_message_size.into()), limit(found.max_message_size.into()));
    compare("deny_delete", wanted.deny_delete.to_string(), found.deny_delete.to_string());
    compare("allow_atomic", wanted.allow_atomic_publish.to_string(), found.allow_atomic_publish.to_string());
    compare("allow_msg_ttl", wanted.allow_message_ttl.to_string(), found.allow_message_ttl.to_string());
    compare("allow_rollup_hdrs", wanted.allow_rollup.to_string(), found.allow_rollup.to_string());
    compare("allow_direct", wanted.allow_direct.to_string(), found.allow_direct.to_string());
    differ
}

/// A stream as it was found.
#[derive(Debug, Clone)]
pub struct FoundStream {
    /// How it is set.
    pub config: Config,
    /// What is in it.
    pub state: State,
    /// When it was made, by the servers' clock.
    pub made_at: DateTime<Utc>,
    /// The servers that have it, the leader first, and whether each has all of it. Empty where a server is alone.
    pub peers: Vec<(String, bool)>,
}

async fn find(link: &Link, name: &str) -> Result<Option<FoundStream>, String> {
    let api = format!("$JS.API.STREAM.INFO.{name}");
    match link.permitted(&api, link.context.get_stream(name)).await? {
        Ok(stream) => {
            let info = stream.cached_info();
            let mut peers = Vec::new();
            if let Some(cluster) = &info.cluster {
                peers.extend(cluster.leader.clone().map(|leader| (leader, true)));
                peers.extend(
                    cluster.replicas.iter().map(|peer| (peer.name.clone(), peer.current && !peer.offline)),
                );
            }
            let made_at = DateTime::from_timestamp(info.created.unix_timestamp(), 0).unwrap_or_default();
            Ok(Some(FoundStream { config: info.config.clone(), state: info.state.clone(), made_at, peers }))
        }
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(refusal) if refusal.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                Ok(None)
            }
            _ => Err(with_causes(&error)),
        },
    }
}

/// Why a stream is not extended.
pub const LESS: &str = "it would have to get less";

/// What of the differences can be made right without losing anything: more servers, longer times, more subjects, larger
/// messages, and switches that only allow or protect more. `None`: something would get less.
fn extended(wanted: &Config, found: &Config) -> Option<Config> {
    let at_least = |wanted: i64, found: i64| wanted <= 0 || (found > 0 && wanted >= found);
    let grows = wanted.storage == found.storage
        && wanted.retention == found.retention
        && wanted.num_replicas >= found.num_replicas
        && found.subjects.iter().all(|subject| wanted.subjects.contains(subject))
        && at_least(wanted.max_messages_per_subject, found.max_messages_per_subject)
        && at_least(wanted.max_message_size.into(), found.max_message_size.into())
        && (wanted.max_age.is_zero() || (!found.max_age.is_zero() && wanted.max_age >= found.max_age))
        && (wanted.deny_delete || !found.deny_delete);
    grows.then(|| Config {
        num_replicas: wanted.num_replicas,
        subjects: wanted.subjects.clone(),
        max_messages_per_subject: wanted.max_messages_per_subject,
        max_message_size: wanted.max_message_size,
        max_age: wanted.max_age,
        discard: wanted.discard,
        deny_delete: wanted.deny_delete,
        allow_atomic_publish: wanted.allow_atomic_publish,
        allow_message_ttl: wanted.allow_message_ttl,
        allow_rollup: wanted.allow_rollup,
        allow_direct: wanted.allow_direct,
        // What an operator added, such as a limit of bytes or a placement, stays.
        ..found.clone()
    })
}

impl NatsStore {
    /// What there is of a stream. Blocks.
    ///
    /// # Errors
    /// The store does not answer, or this user may not ask.
    pub fn stream(&self, kind: StreamKind) -> Result<Option<FoundStream>, StoreError> {
        let (link, name) = (self.shared.connection.link(), self.names().stream(kind));
        let place = name.clone();
        let found = self.shared.connection.call(async move { find(&link, &name).await })?;
        found.map_err(|words| StoreError::Failed { action: "look at", place, words })
    }

    /// Makes a stream that is missing, and extends one that is smaller than it has to be. Gives whether something was changed.
    /// Blocks.
    ///
    /// # Errors
    /// It would have to get less, or the server refuses.
    pub fn make_stream(&self, kind: StreamKind, wanted: Wanted) -> Result<bool, StoreError> {
        let link = self.shared.connection.link();
        let wanted = config(self.names(), kind, wanted);
        let place = wanted.name.clone();
        let made = self.shared.connection.call(async move {
            let (api, next) = match find(&link, &wanted.name).await? {
                None => ("CREATE", wanted),
                Some(found) if differences(&wanted, &found.config).is_empty() => return Ok(false),
                Some(found) => match extended(&wanted, &found.config) {
                    Some(next) => ("UPDATE", next),
                    None => {
                        let differ = differences(&wanted, &found.config);
                        let differ: Vec<String> = differ
                            .into_iter()
                            .map(|(setting, wanted, found)| format!("{setting} {found}, to be {wanted}"))
                            .collect();
                        return Err(format!("{LESS}, which is for a person to do ({})", differ.join("; ")));
                    }
                },
            };
            let subject = format!("$JS.API.STREAM.{api}.{}", next.name);
            let done = match api {
                "CREATE" => link
                    .permitted(&subject, link.context.create_stream(next))
                    .await?
                    .map(|_| ())
                    .map_err(|error| with_causes(&error)),
                _ => link
                    .permitted(&subject, link.context.update_stream(next))
                    .await?
                    .map(|_| ())
                    .map_err(|error| with_causes(&error)),
            };
            done.map(|()| true)
        })?;
        made.map_err(|words| StoreError::Failed { action: "make", place, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_extended_and_never_made_less() {
        let names = Names::of("main").unwrap();
        let wanted = |replicas, days| Wanted { replicas, retention: DAY * days };
        let log = |replicas, days| config(&names, StreamKind::Log, wanted(replicas, days));
        assert_eq!(differences(&log(3, 90), &log(3, 90)), []);
        assert_eq!(differences(&log(3, 90), &log(1, 90)), [("replicas", "3".to_owned(), "1".to_owned())]);
        let own = Config { max_bytes: 1 << 30, ..log(1, 30) };
        let next = extended(&log(3, 90), &own).unwrap();
        assert_eq!((next.num_replicas, next.max_age, next.max_bytes), (3, DAY * 90, 1 << 30));
        assert_eq!(extended(&log(1, 90), &log(3, 90)), None, "fewer servers");
        assert_eq!(extended(&log(3, 30), &log(3, 90)), None, "a shorter time");
        let more = Config { subjects: vec!["other".into()], ..log(3, 90) };
        assert_eq!(extended(&log(3, 90), &more), None, "a subject less");
    }
}
