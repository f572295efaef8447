//! The runs and the status of a cluster, as `agentd runs` and `agentd status` show them on any host.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use super::args::ListArgs;
use super::cluster_access::{access, node};
use super::context::Context;
use super::error::CommandError;
use super::output::Tone;
use super::parked_issues;
use crate::config::Config;
use crate::config::cluster_file::StoreKind;
use crate::daemon::DaemonFiles;
use crate::daemon::cluster::status::{NodeWord, of_all};
use crate::daemon::status_format::{IssueStatus, RunningStatus, Status};
use crate::domain::cluster::run_row::RunRow;
use crate::domain::issue::IssueKey;
use crate::domain::money::Money;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::domain::run_output::{rfc3339, rfc3339_of_ms};
use crate::domain::stop::{Stop, StopDetail};
use crate::http::{OtherNodes, word};
use crate::record::mirror::mirror_format::{KnownRow, KnownStatus};
use crate::record::mirror::{Mirror, NotShown, Shown, what_is_wrong};
use crate::record::rendering;
use crate::store::nats::{Access, Caps, NatsStore};
use crate::store::run_dir::{RunDir, StateDir};

impl Context {
    /// What this host shows of its cluster; `None` = there is none. It connects once.
    pub fn mirror(&self) -> Result<Option<Arc<Mirror>>, CommandError> {
        if let Some(known) = self.mirror.get() {
            return Ok(known.clone());
        }
        let config = match self.config() {
            Ok(config) => config,
            // Runs are shown without a readable configuration as well.
            Err(error) => {
                tracing::warn!(
                    "only what is in this state directory is shown, because the configuration cannot be read: {error}"
                );
                return Ok(None);
            }
        };
        let mirror = match config.cluster.store {
            StoreKind::Files => None,
            StoreKind::Nats => {
                let state = self.state_dir()?.as_path().to_owned();
                Some(Arc::new(Mirror::open(&access(self, &config)?, state)))
            }
        };
        Ok(self.mirror.get_or_init(|| mirror).clone())
    }
}

/// What to do where a key may not do what is asked.
const OTHER_KEY: &str = "`agentd cluster doctor` says what this key may";

/// How long the store is waited for when a command begins.
const AT_START: Duration = Duration::from_secs(15);
/// The same for a daemon, which asks again.
const AT_EACH_TRY: Duration = Duration::from_secs(5);

/// The state directory of this host as that of a node: what a run of this process writes is published. It connects once. Blocks.
pub fn node_state(context: &Context, config: &Config) -> Result<StateDir, CommandError> {
    if let Some((known, _)) = context.node.get() {
        return Ok(known.clone());
    }
    let state = context.state_dir()?.as_path().to_owned();
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let caps = Caps {
        in_all: count(config.cluster.max_runs),
        in_a_repository: count(config.daemon.max_runs_per_repository),
    };
    let access = Access { beside: !context.is_daemon, caps, ..access(context, config)? };
    let patience = if context.is_daemon { AT_EACH_TRY } else { AT_START };
    let store = NatsStore::connect(&access).and_then(|store| store.answers_within(patience).map(|()| store));
    let store = store.map_err(|error| match error.is_for_want_of_a_right() {
        true => CommandError::of_store(&error).hint(OTHER_KEY),
        false => CommandError {
            detail: Some(StopDetail::StoreUnavailable),
            transient: true,
            ..CommandError::failed(format!("The cluster's store cannot be used (store_unavailable): {error}"))
                .hint("`agentd cluster doctor` says what the cluster needs")
        },
    })?;
    Ok(context.node.get_or_init(|| (StateDir::of_node(state, &store), store)).0.clone())
}

/// The other nodes, for the front of this one's daemon; `None` = there is no cluster.
pub fn other_nodes(context: &Context) -> Result<Option<Arc<OtherNodes>>, CommandError> {
    let Some((_, store)) = context.node.get() else { return Ok(None) };
    let mirror = Mirror::on(store.clone(), context.state_dir()?.as_path().to_owned());
    Ok(Some(Arc::new(OtherNodes::new(mirror, &node(&context.config()?)))))
}

/// A run that was found, and from when that is.
pub struct FoundRun {
    /// Its directory here.
    pub dir: RunDir,
    /// Its node, and the age of what is known of it: `node`, `as_of`, `age_ms`, and `stale`, `stale_since` without the store.
    pub seen: Map<String, Value>,
}

pub(super) fn refused(error: NotShown) -> CommandError {
    let told = CommandError::failed(error.to_string());
    match error {
        NotShown::NotPermitted(words) => CommandError::invalid(words).hint(OTHER_KEY),
        NotShown::NothingKnown(_) | NotShown::OutOfReach { .. } => {
            told.hint("`agentd cluster doctor` says what the cluster needs")
        }
        NotShown::Expired { .. } => told.hint("cluster.retention says how long runs are kept"),
        NotShown::Broken { run, .. } => told.hint(format!("agentd runs verify {run}, on its node")),
    }
}

/// When something was so, by the store's clock, and how long ago that is.
fn age<T>(node: &str, as_of: DateTime<Utc>, shown: &Shown<T>) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("node".into(), json!(node));
    members.insert("as_of".into(), json!(rfc3339(as_of)));
    members.insert("age_ms".into(), json!((shown.now - as_of).num_milliseconds().max(0)));
    if let Some((since, _)) = &shown.stale {
        members.insert("stale".into(), json!(true));
        members.insert("stale_since".into(), json!(rfc3339(*since)));
    }
    members
}

fn tell_stale<T>(context: &Context, shown: &Shown<T>) {
    if let Some((since, why)) = &shown.stale {
        let since = rfc3339(*since);
        context
            .output
            .note(format!("The cluster's store {}; this was known at {since}. ({why})", what_is_wrong(why)));
    }
}

/// How a run ended, once everything that it leaves is written.
pub fn stop_of(row: &RunRow) -> Option<Stop> {
    let detail = row.stop_detail.filter(|_| row.sealed)?;
    Some(Stop::new(detail, row.message.clone().unwrap_or_default()))
}

/// The rows that were asked for, of the repository that was.
fn of_repository(context: &Context, mirror: &Mirror) -> Result<Shown<KnownRow>, CommandError> {
    let mut shown = mirror.runs().map_err(refused)?;
    if let Some(repo) = &context.global.repo {
        let name = repo.to_string();
        shown.items.retain(|known| known.row.repo.eq_ignore_ascii_case(&name));
    }
    Ok(shown)
}

/// `agentd runs list`.
pub fn list(context: &Context, args: &ListArgs, mirror: &Mirror) -> Result<(), CommandError> {
    let mut shown = of_repository(context, mirror)?;
    tell_stale(context, &shown);
    if let Some(cursor) = &args.cursor {
        let last = chosen(&shown, cursor)?.row.run_id;
        let seen = shown.items.iter().position(|known| known.row.run_id == last);
        shown.items.drain(..seen.map_or(0, |place| place + 1));
    }
    let now = shown.now.timestamp_millis();
    shown.items.retain(|known| args.takes_row(&known.row, now));
    let most = if args.limit == 0 { usize::MAX } else { args.limit };
    let more = shown.items.len() > most;
    shown.items.truncate(most);
    if let Some(last) = shown.items.last().filter(|_| more) {
        let last = RunId(last.row.run_id);
        context.output.note(format!("There are older ones: add --cursor {last} (or --limit 0 for all)."));
    }
    if context.output.json() {
        let told: Vec<Value> = shown.items.iter().map(|known| summary(known, &shown)).collect();
        return context.output.document(&told);
    }
    if shown.items.is_empty() && !(args.takes_all() && args.cursor.is_none()) {
        return context.output.line("No such runs.");
    }
    if shown.items.is_empty() {
        return context.output.line("No runs in the cluster yet.");
    }
    let rows: Vec<Vec<String>> = shown
        .items
        .iter()
        .map(|KnownRow { row, .. }| {
            let end = match stop_of(row) {
                Some(stop) => format!("{} ({})", stop.reason(), stop.detail),
                None => "running".to_owned(),
            };
            let started = rfc3339_of_ms(row.started_at);
            vec![
                RunId(row.run_id).to_string(),
                row.repo.clone(),
                row.issue.as_ref().map(ToString::to_string).unwrap_or_default(),
                end,
                rendering::amount(row.cost_usd, row.cost_unknown),
                started.get(..19).unwrap_or(&started).replace('T', " "),
                row.node.clone(),
                row.title.clone(),
            ]
        })
        .collect();
    context
        .output
        .table(&["RUN", "REPOSITORY", "ISSUE", "END", "COST", "STARTED (UTC)", "NODE", "TITLE"], &rows)
}

/// A run in a few words, with the members that one of this state directory has.
fn summary(known: &KnownRow, shown: &Shown<KnownRow>) -> Value {
    let row = &known.row;
    let stop = stop_of(row);
    let mut told = json!({
        "run_id": RunId(row.run_id),
        "repo": row.repo,
        "issue": row.issue,
        "instance": row.instance,
        "started_at": rfc3339_of_ms(row.started_at),
        "stop_reason": stop.as_ref().map(Stop::reason),
        "stop_detail": stop.as_ref().map(|stop| stop.detail),
        "visits": row.visits,
        "cost_usd": (!row.cost_unknown || row.cost_usd > Money::ZERO).then_some(row.cost_usd),
        "cost_unknown": row.cost_unknown,
    });
    if let Value::Object(members) = &mut told {
        members.extend(age(&row.node, known.as_of, shown));
    }
    told
}

/// RUN = run id, unique prefix, instance or `latest`.
fn chosen<'s>(shown: &'s Shown<KnownRow>, asked: &str) -> Result<&'s KnownRow, CommandError> {
    let hint = "`agentd runs list` lists them";
    // What was last known says nothing of what has begun since, or elsewhere.
    let none = || {
        match &shown.stale {
        Some(_) => CommandError::failed(format!(
            "whether there is a run \"{asked}\" is not known without the store, and none of those that are known here is it"
        ))
        .hint("`agentd cluster doctor` says what the cluster needs"),
        None => CommandError::invalid(format!("there is no run \"{asked}\" in the cluster")).hint(hint),
    }
    };
    if asked.is_empty() {
        let what = "a run is named by its id, its beginning, its instance, or \"latest\"";
        return Err(CommandError::invalid(what).hint(hint));
    }
    if asked == "latest" {
        return shown.items.first().ok_or_else(none);
    }
    let named = |known: &&KnownRow| RunId(known.row.run_id).to_string().starts_with(asked);
    let mut by_id = shown.items.iter().filter(named);
    match (by_id.next(), by_id.count()) {
        (Some(only), 0) => Ok(only),
        (Some(_), others) => {
            Err(CommandError::invalid(format!("{} runs begin with \"{asked}\"", others + 1))
                .hint("write more of the run id"))
        }
        (None, _) => shown.items.iter().find(|known| known.row.instance == asked).ok_or_else(none),
    }
}

/// Finds a run and has its directory brought here.
pub fn find(context: &Context, mirror: &Mirror, asked: &str) -> Result<FoundRun, CommandError> {
    let shown = of_repository(context, mirror)?;
    tell_stale(context, &shown);
    let known = chosen(&shown, asked)?;
    let dir = mirror.directory(&known.row).map_err(refused)?;
    Ok(FoundRun { dir, seen: age(&known.row.node, known.as_of, &shown) })
}

/// Every run of the cluster that can be brought here, newest first.
pub fn all(context: &Context, mirror: &Mirror) -> Result<Vec<RunDir>, CommandError> {
    let shown = of_repository(context, mirror)?;
    tell_stale(context, &shown);
    let mut dirs = Vec::new();
    for known in &shown.items {
        match mirror.directory(&known.row) {
            Ok(dir) => dirs.push(dir),
            Err(error) => context.output.note(format!("left out: {error}")),
        }
    }
    Ok(dirs)
}

/// Brings what was written of a run since, for whoever follows it.
pub fn follow(mirror: &Mirror, dir: &RunDir) -> Result<(), CommandError> {
    mirror.follow(dir).map_err(refused)
}

/// Where people's approvals of a run's proposals are.
pub fn approvals(mirror: &Mirror, dir: &RunDir) -> StateDir {
    mirror.shared().unwrap_or_else(|| dir.state().clone())
}

/// The state that the nodes share, for what is to be changed in it.
pub fn shared(mirror: &Mirror) -> Result<StateDir, CommandError> {
    mirror.shared().ok_or_else(|| {
        let why = mirror.store().err().map(ToString::to_string).unwrap_or_default();
        CommandError::failed(format!("the cluster's store {}: {why}", what_is_wrong(&why)))
            .hint("`agentd cluster doctor` says what the cluster needs")
    })
}

/// `agentd status`: what the nodes say, as one document.
pub fn status(context: &Context, mirror: &Mirror) -> Result<(), CommandError> {
    let only = context.global.repo.as_ref();
    let here = own_daemon(context)?.map(|status| status.of_repository(only));
    let known =
        mirror.statuses().map_err(refused).and_then(|nodes| Ok((nodes, of_repository(context, mirror)?)));
    let (nodes, runs) = match (known, &here) {
        (Ok(known), _) => known,
        (Err(_), Some(status)) if context.output.json() => {
            return context.output.document(&json!({
                "daemon_running": true, "status": status, "foreground": [], "parked": [], "nodes": [],
                "stale": true, "stale_since": null, "store_unavailable": status.store_unavailable,
            }));
        }
        (Err(error), Some(status)) => return tell_alone(context, status, &error),
        (Err(error), None) => return Err(error),
    };
    tell_stale(context, &nodes);
    let words: Vec<NodeWord> = nodes.items.iter().map(word).collect();
    let newest = words.iter().filter(|word| word.status.is_some()).max_by_key(|word| word.as_of);
    let mut all =
        newest.and_then(|word| word.status.clone()).map(|status| of_all(status, &words).of_repository(only));
    let parked = parked(context, mirror, &runs);
    let lives = nodes.items.iter().any(|known| known.lives);
    all.iter_mut().for_each(|all| parked_issues::told_with(all, lives, &parked));
    let works: Vec<&KnownRow> = runs.items.iter().filter(|known| !known.row.ended()).collect();
    if context.output.json() {
        let mut document = status_document(all.as_ref(), &nodes, &runs, &works);
        document["store_unavailable"] = json!(here.and_then(|status| status.store_unavailable));
        document["parked"] = json!(parked);
        return context.output.document(&document);
    }
    let out = context.output;
    if let Some(status) = &here {
        tell_without_store(context, status)?;
    }
    for (known, word) in nodes.items.iter().zip(&words) {
        let (said, tone) = if known.lives { ("running", Tone::Good) } else { ("not running", Tone::Warn) };
        let ago = (nodes.now - known.as_of).num_seconds().max(0);
        let version = known.status["version"].as_str().unwrap_or_default();
        let said = out.toned(said, tone);
        out.line(format!("node {} {said} (agentd {version}), last word {ago} s ago", known.node))?;
        for told in word.troubles() {
            out.line(out.toned(&format!("node {}: {told}", word.node), Tone::Bad))?;
        }
    }
    let untold_of = if all.is_none() { parked.as_slice() } else { &[] };
    rows_of(context, all.as_ref(), untold_of, &works)
}

/// What waits and what runs, as a table: what the daemons say, and what none of them tells of.
fn rows_of(
    context: &Context,
    all: Option<&Status>,
    untold_of: &[IssueStatus],
    works: &[&KnownRow],
) -> Result<(), CommandError> {
    let (out, mut rows) = (context.output, Vec::new());
    let shows =
        |repo: &RepoName| context.global.repo.as_ref().is_none_or(|only| is_same(only, &repo.to_string()));
    let waits = all.into_iter().flat_map(|all| all.waiting.iter().chain(&all.parked)).chain(untold_of);
    for issue in waits.filter(|issue| shows(&issue.repo)) {
        let place = format!("{}#{}", issue.repo, issue.issue);
        let node = issue.node.clone().unwrap_or_default();
        rows.push(vec![place, issue.code.clone(), node, parked_issues::why_in_one_line(issue)]);
    }
    for run in all.into_iter().flat_map(|all| &all.running).filter(|run| shows(&run.repo)) {
        let id = run.progress.as_ref().map(|progress| progress.run_id.as_str());
        let known = works.iter().find(|known| Some(RunId(known.row.run_id).to_string().as_str()) == id);
        rows.push(known.map_or_else(|| without_row(run), |known| shown_run(&known.row)));
    }
    rows.extend(untold(works, all).map(|known| shown_run(&known.row)));
    if rows.is_empty() {
        return out.line("Nothing runs and nothing waits.");
    }
    out.table(&["ISSUE", "STATE", "NODE", "WHY"], &rows)
}

/// Issues that wait for a person, whichever process parked them; none where the store cannot be asked.
fn parked(context: &Context, mirror: &Mirror, runs: &Shown<KnownRow>) -> Vec<IssueStatus> {
    let Some(shared) = mirror.shared().filter(|_| runs.stale.is_none()) else { return Vec::new() };
    let mut found = parked_issues::asked(context, &shared).unwrap_or_else(|error| {
        context.output.note(format!("for what issues wait cannot be read: {error}"));
        Vec::new()
    });
    let mut seen = BTreeSet::new();
    for known in &runs.items {
        let Some(issue) = &known.row.issue else { continue };
        let is_newest = seen.insert((known.row.repo.to_ascii_lowercase(), issue.to_string()));
        let detail = stop_of(&known.row).map(|stop| stop.detail);
        if is_newest && detail == Some(StopDetail::ApprovalPending) {
            match mirror.directory(&known.row) {
                Ok(dir) => found.extend(parked_issues::left_calls(&shared, &dir, issue)),
                Err(error) => context.output.note(format!("left out: {error}")),
            }
        }
    }
    found
}

/// A run, with what its row says.
fn shown_run(row: &RunRow) -> Vec<String> {
    let issue = row.issue.as_ref().map(ToString::to_string).unwrap_or_default();
    let (at, since) = (row.step.clone().unwrap_or_default(), rfc3339_of_ms(row.started_at));
    let told = format!("{} since {since}, term {} {at}", RunId(row.run_id), row.term);
    vec![format!("{}#{issue}", row.repo), "running".to_owned(), row.node.clone(), told]
}

/// A run that a daemon tells of and whose row is not there yet, or not known.
fn without_row(run: &RunningStatus) -> Vec<String> {
    let since = rfc3339(run.since);
    let own = || run.node.clone().unwrap_or_default();
    let (node, told) = match (&run.placed_on, &run.progress) {
        (Some(node), _) => (node.clone(), format!("given to {node} at {since}, and not begun there yet")),
        (None, None) => (own(), format!("since {since}, and not begun yet")),
        (None, Some(at)) => (own(), format!("{} since {since} {}", at.run_id, at.step)),
    };
    vec![format!("{}#{}", run.repo, run.issue), "running".to_owned(), node, told]
}

fn is_same(repo: &RepoName, name: &str) -> bool {
    repo.to_string().eq_ignore_ascii_case(name)
}

/// Runs that no daemon tells of. An issue has one run at a time: what a daemon says of it counts.
fn untold<'r>(works: &'r [&KnownRow], all: Option<&'r Status>) -> impl Iterator<Item = &'r KnownRow> {
    works.iter().copied().filter(move |known| {
        let number = known.row.issue.as_ref().and_then(IssueKey::number);
        let mut running = all.into_iter().flat_map(|all| &all.running);
        !running.any(|run| Some(run.issue) == number && is_same(&run.repo, &known.row.repo))
    })
}

/// What a living daemon of this state directory says; `None` = there is none.
fn own_daemon(context: &Context) -> Result<Option<Status>, CommandError> {
    let files = DaemonFiles::of(&context.state()?);
    files.load_status_of_living().map_err(|error| CommandError::failed(error.to_string()))
}

/// Without the store, where nothing was ever read of it: what the daemon here says.
fn tell_alone(context: &Context, status: &Status, why: &CommandError) -> Result<(), CommandError> {
    let away = status.store_unavailable.is_some();
    context.output.note(format!("Of other nodes nothing is known: {}", why.message));
    match away {
        true => tell_without_store(context, status)?,
        false => context.output.line(format!("daemon here (pid {}) runs", status.pid))?,
    }
    rows_of(context, Some(status), &[], &[])
}

fn tell_without_store(context: &Context, status: &Status) -> Result<(), CommandError> {
    let Some(away) = &status.store_unavailable else { return Ok(()) };
    let since = rfc3339(away.since);
    context
        .output
        .line(format!("daemon here (pid {}): store_unavailable since {since}: {}", status.pid, away.error))
}

/// What the daemons say, each item with its node; runs without a daemon that tells of them are in the foreground.
fn status_document(
    all: Option<&Status>,
    nodes: &Shown<KnownStatus>,
    runs: &Shown<KnownRow>,
    works: &[&KnownRow],
) -> Value {
    let mut status = json!(all);
    if let Value::Object(members) = &mut status {
        // They stand beside it.
        members.remove("nodes");
    }
    let foreground = untold(works, all).map(|known| {
        let row = &known.row;
        let mut item = json!({
            "repo": row.repo, "issue": row.issue, "run_id": RunId(row.run_id), "instance": row.instance,
        });
        if let Value::Object(members) = &mut item {
            members.extend(age(&row.node, known.as_of, runs));
        }
        item
    });
    let foreground: Vec<Value> = foreground.collect();
    let each = nodes.items.iter().map(|known| {
        let mut members = age(&known.node, known.as_of, nodes);
        members.insert("lives".into(), json!(known.lives));
        members.insert("status".into(), known.status.clone());
        Value::Object(members)
    });
    let each: Vec<Value> = each.collect();
    json!({
        "daemon_running": nodes.items.iter().any(|known| known.lives),
        "status": status, "foreground": foreground, "nodes": each,
        "stale": nodes.stale.is_some(), "stale_since": nodes.stale.as_ref().map(|(since, _)| rfc3339(*since)),
    })
}
