//! `agentd daemon` and `status`: many issues over time.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::Notify;

use super::concealed;
use super::configuration_watch::ConfigurationWatch;
use super::context::Context;
use super::daemon_front::DaemonFront;
#[cfg(feature = "nats")]
use super::elsewhere;
use super::error::CommandError;
use super::output::Tone;
use super::parked_issues;
use super::repositories::{self, OpenOptions};
use super::run_command;
use super::stopping::listen;
use super::store_wait;
use crate::config::Config;
use crate::config::cluster_file::StoreKind;
use crate::daemon::status_format::{IssueStatus, Status};
use crate::daemon::{
    Daemon, DaemonFiles, DaemonReport, Dependencies, Limits, OpenWith, Progress, Reload, StartRequest,
    Watched, abandons, approved, approves, besides, clean_ups, denies, ends_calls, extends, finds_left,
    give_backs, runs_of_others, starts, takes, takes_as_asked, unfinished,
};
use crate::domain::cluster::session::renewal;
use crate::domain::event::{LeaseTaken, RequestOptions};
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::run_output::rfc3339;
use crate::domain::stop::{Stop, StopDetail};
use crate::lifecycle::plan::check_definitions;
use crate::lifecycle::run_observer::RunObserver;
use crate::record::finish;
use crate::repository::context::RepositoryContext;
use crate::repository::resources::{self, ProgramGone};
use crate::sys::clock::Clock;
use crate::sys::descriptors;
use crate::sys::holder_format::Holder;
use crate::sys::host::Host;
use crate::sys::memory;
use crate::sys::shutdown::Shutdown;

/// `agentd daemon [--once]`.
pub fn daemon(context: &Context, once: bool) -> Result<u8, CommandError> {
    memory::share_one_arena();
    let context = &context.as_daemon();
    context.block_on(async {
        let shutdown = listen()?;
        descriptors::raise();
        // Before anything is listened to or opened: whatever is to be said of a second daemon is that there is one.
        let lease = daemon_files(context)?.take()?;
        let front = if once { DaemonFront::closed(context) } else { DaemonFront::begin(context).await? };
        if !once && !store_wait::wait(context, &shutdown, &front).await? {
            tell(context, &DaemonReport::default())?;
            return Ok(0);
        }
        let (mut parts, _watching) = parts(context, &shutdown, &front, once).await?;
        parts.listen = front.address().await;
        let watching: Vec<String> = parts
            .repositories
            .iter()
            .map(|watched| format!("watching {} for the label \"{}\"", watched.name, parts.labels.trigger))
            .collect();
        let mut daemon = Daemon::open_with(parts, lease)?;
        for told in watching {
            context.output.note(told);
        }
        front.answer_for(&daemon).await?;
        let report = if once { daemon.once().await } else { daemon.run().await };
        front.close().await;
        if let Some(why) = daemon.refused() {
            return Err(CommandError::invalid(why.to_owned()));
        }
        tell(context, &report)?;
        // A poll that failed is never "no issues" (I50).
        Ok(u8::from(once && !report.failed_polls.is_empty()))
    })?
}

/// `agentd status`: the status of the daemon of this state directory, and the runs of other processes.
pub fn status(context: &Context) -> Result<(), CommandError> {
    #[cfg(feature = "nats")]
    if let Some(mirror) = context.mirror()? {
        return elsewhere::status(context, &mirror);
    }
    let files = daemon_files(context)?;
    let status = files.load_status().map_err(|error| CommandError::failed(error.to_string()))?;
    let mut status = status.map(|status| status.of_repository(context.global.repo.as_ref()));
    let holder = files.holder_here();
    // A daemon that cannot write leaves the words of the one before it.
    let speaks = |holder: &Holder| status.as_ref().is_none_or(|status| status.pid == holder.pid);
    let silent = holder.as_ref().filter(|holder| !speaks(holder)).map(|holder| holder.pid);
    let running = holder.is_some() && silent.is_none();
    let parked = parked_issues::kept(context)?;
    if let Some(status) = &mut status {
        parked_issues::told_with(status, running, &parked);
    }
    let others = in_foreground(context, status.as_ref())?;
    if context.output.json() {
        let others: Vec<_> = others
            .iter()
            .map(|(repo, lease)| {
                serde_json::json!({
                    "repo": repo, "issue": lease.issue.key, "run_id": lease.run_id, "instance": lease.instance,
                })
            })
            .collect();
        return context.output.document(
            &serde_json::json!({
                "daemon_running": holder.is_some(), "daemon_pid": holder.as_ref().map(|holder| holder.pid), "status": status, "foreground": others, "parked": parked,
            }),
        );
    }
    for (repo, lease) in &others {
        context
            .output
            .line(format!("{repo}#{}  running in the foreground: {}", lease.issue.key, lease.instance))?;
    }
    if let Some(pid) = silent {
        context.output.line(format!(
            "A daemon runs (pid {pid}) and has not written its status yet: what follows is the last word of the one before it. If this lasts, \
             read its log: the disk of its state directory may be full."
        ))?;
    }
    match status {
        Some(status) => show_status(context, &status, (running, !others.is_empty())),
        None if !parked.is_empty() => {
            context.output.table(&["ISSUE", "STATE", "WHY"], &parked.iter().map(row).collect::<Vec<_>>())
        }
        None if others.is_empty() => {
            context.output.advice("No daemon has used this state directory yet: agentd daemon starts one.")
        }
        None => Ok(()),
    }
}

fn row(issue: &IssueStatus) -> Vec<String> {
    vec![format!("{}#{}", issue.repo, issue.issue), issue.code.clone(), parked_issues::why_in_one_line(issue)]
}

pub(super) fn daemon_files(context: &Context) -> Result<DaemonFiles, CommandError> {
    Ok(DaemonFiles::of(&context.state()?))
}

/// Live runs of this state directory without a daemon: those of `agentd run` and `agentd sweep`.
fn in_foreground(
    context: &Context,
    status: Option<&Status>,
) -> Result<Vec<(RepoName, LeaseTaken)>, CommandError> {
    let state = context.state()?;
    let runs =
        state.runs(context.global.repo.as_ref()).map_err(|error| CommandError::failed(error.to_string()))?;
    let known = |repo: &RepoName, issue: &IssueKey| {
        let running = status.into_iter().flat_map(|status| &status.running);
        running.into_iter().any(|run| run.repo == *repo && Some(run.issue) == issue.number())
    };
    let living = runs.iter().filter_map(|dir| Some((dir.repo.clone(), finish::living(dir)?)));
    Ok(living.filter(|(repo, lease)| !known(repo, &lease.issue.key)).collect())
}

fn show_status(
    context: &Context,
    status: &Status,
    (running, others): (bool, bool),
) -> Result<(), CommandError> {
    let out = context.output;
    let (word, tone) = if running { ("running", Tone::Good) } else { ("not running", Tone::Warn) };
    out.line(format!(
        "daemon {} (pid {}, agentd {}), last word {}",
        out.toned(word, tone),
        status.pid,
        status.version,
        rfc3339(status.at)
    ))?;
    if let Some(silence) = status.silence(Clock::system().now()).filter(|_| running) {
        out.line(out.toned(&silence, Tone::Bad))?;
    }
    for of in &status.repositories {
        let polled = of.polled_at.map_or_else(|| "never".to_owned(), rfc3339);
        let line = match &of.error {
            Some(error) => format!("{}  {} (polled {polled})", of.repo, out.toned(error, Tone::Bad)),
            None => match &of.unread {
                Some(unread) => format!("{}  polled {polled}; {}", of.repo, out.toned(unread, Tone::Bad)),
                None => format!("{}  polled {polled}", of.repo),
            },
        };
        out.line(line)?;
    }
    let mut rows: Vec<Vec<String>> = status
        .running
        .iter()
        .map(|run| {
            let issue = format!("{}#{}", run.repo, run.issue);
            let since = rfc3339(run.since);
            if !running {
                let told = format!("begun at {since}; its daemon has ended, and the next one looks after it");
                return vec![issue, "cut off".to_owned(), told];
            }
            let doing = run.progress.as_ref().map(|progress| progress.doing.clone());
            let doing = run.stopping.clone().or(doing).filter(|doing| !doing.is_empty());
            let doing = doing.map(|doing| format!(", {doing}")).unwrap_or_default();
            vec![issue, "running".to_owned(), format!("since {since}{doing}")]
        })
        .collect();
    let waits = status.waiting.iter().chain(&status.parked);
    rows.extend(waits.map(row));
    if let Some(address) = status.listen.as_deref().filter(|_| running) {
        out.line(format!("status page: http://{address}/"))?;
    }
    if let Some(away) = status.store_unavailable.as_ref().filter(|_| running) {
        let told = format!("store_unavailable since {}: {}", rfc3339(away.since), away.error);
        out.line(out.toned(&told, Tone::Bad))?;
    }
    if let Some(error) = &status.reload_error {
        out.line(out.toned(&format!("the configuration on disk is not in force: {error}"), Tone::Bad))?;
    }
    if rows.is_empty() {
        return if others { Ok(()) } else { out.line("Nothing runs and nothing waits.") };
    }
    out.table(&["ISSUE", "STATE", "WHY"], &rows)
}

/// Whether a daemon works here that goes on with a run's issue once what the run left to a person is approved.
pub(super) fn goes_on_when_approved(context: &Context, repo: &RepoName, facts: &RunFacts) -> bool {
    let end = facts.end.as_ref().or(facts.flow_end.as_ref().map(|end| &end.stop));
    let begun = facts.lease.as_ref().and_then(|lease| Some((lease.issue.key.number()?, lease.principal.id)));
    let (Some((number, whose)), Some(StopDetail::ApprovalPending), Ok(files)) =
        (begun, end.map(|stop| stop.detail), daemon_files(context))
    else {
        return false;
    };
    let stopping = files.load_status().ok().flatten().is_none_or(|status| status.stopping);
    let goes_on = files.look().ok().and_then(|state| {
        Some(state.repositories.get(repo)?.issues.get(&number)?.goes_on_when_approved(whose))
    });
    goes_on == Some(true) && !stopping && files.daemon_lives()
}

pub(super) fn open_options(shutdown: &Shutdown) -> OpenOptions<'static> {
    OpenOptions {
        needs_github: true,
        fresh: true,
        cancel: shutdown.abort_token().clone(),
        ..OpenOptions::default()
    }
}

/// Opens every repository that the configuration names; without any entry, the checkout of the working directory. `once`: what is made
/// of it ends by itself, so that nobody mends meanwhile what its runs lack.
pub(super) async fn parts(
    context: &Context,
    shutdown: &Shutdown,
    front: &Arc<DaemonFront>,
    once: bool,
) -> Result<(Dependencies, Arc<ConfigurationWatch>), CommandError> {
    let sites = repositories::all(context, &open_options(shutdown)).await?;
    if once {
        has_servers(&sites.open)?;
    }
    if let Err(error) = usable(&sites.open).await {
        context.output.note(format!("not usable yet: {error}"));
    }
    for (repo, error) in &sites.later {
        context.output.note(format!("{repo} cannot be opened yet, and is tried again: {error}"));
    }
    let unfinished = unfinished(&sites.open).await;
    let progress = Progress::default();
    let changed = Arc::new(Notify::new());
    let watching = ConfigurationWatch::new(context, Arc::clone(&changed));
    watching.follow(&sites.open);
    let parts = parts_of(context, shutdown, sites, (progress.clone(), observed(&progress))).await?;
    let again = Again {
        context: context.clone(),
        shutdown: shutdown.clone(),
        progress,
        front: Arc::clone(front),
        watching: Arc::clone(&watching),
    };
    let open = open_again(again.clone());
    let reload = (reload(again), changed);
    Ok((Dependencies { unfinished, reload: Some(reload), open_again: Some(open), ..parts }, watching))
}

/// What everything is opened again with.
#[derive(Clone)]
struct Again {
    context: Context,
    shutdown: Shutdown,
    progress: Progress,
    front: Arc<DaemonFront>,
    watching: Arc<ConfigurationWatch>,
}

impl Again {
    async fn opened(&self) -> Result<repositories::Repositories, String> {
        self.watching.renew();
        let options = open_options(&self.shutdown);
        let sites = repositories::all(&self.context, &options).await.map_err(|error| error.message)?;
        self.watching.follow(&sites.open);
        Ok(sites)
    }

    async fn parts(&self, sites: repositories::Repositories) -> Result<Dependencies, String> {
        let seen = observed(&self.progress);
        let parts = parts_of(&self.context, &self.shutdown, sites, (self.progress.clone(), seen)).await;
        let parts = parts.map_err(|error| error.message)?;
        Ok(Dependencies { listen: self.front.address().await, ..parts })
    }
}

/// Opens everything again, for the repositories that could not be opened yet.
fn open_again(again: Again) -> Reload {
    Arc::new(move || {
        let again = again.clone();
        async move {
            let sites = again.opened().await?;
            let unfinished = unfinished(&sites.open).await;
            Ok(Dependencies { unfinished, ..again.parts(sites).await? })
        }
        .boxed()
    })
}

/// Reads everything again as at the start; what cannot be used is the error.
fn reload(again: Again) -> Reload {
    Arc::new(move || {
        let again = again.clone();
        async move {
            let sites = again.opened().await?;
            usable(&sites.open).await?;
            again.front.renew().await.map_err(|error| error.message)?;
            again.parts(sites).await
        }
        .boxed()
    })
}

/// Opens a repository as it is, with what an earlier run was given on the command line.
fn opened_with(context: &Context, shutdown: &Shutdown) -> OpenWith {
    let (context, shutdown) = (context.clone(), shutdown.clone());
    Arc::new(move |site: Arc<RepositoryContext>, asked: RequestOptions| {
        let (context, shutdown) = (context.clone(), shutdown.clone());
        async move {
            let flags = run_command::flags_of(&asked.flags, |_| true);
            let options = OpenOptions {
                agent: asked.agent.as_deref(),
                flags: &flags,
                fresh: false,
                github: site.github.clone(),
                ..open_options(&shutdown)
            };
            let opened =
                repositories::of_run(&context, &site.repo, Some(site.checkout.root()), &options).await;
            let opened = opened.map_err(|error| Stop::new(StopDetail::ConfigInvalid, error.message))?;
            Ok(RepositoryContext { last_known_good: site.last_known_good.clone(), ..opened })
        }
        .boxed()
    })
}

/// Refuses a start whose runs would all lack a server that they need.
fn has_servers(sites: &[RepositoryContext]) -> Result<(), CommandError> {
    for site in sites {
        let gone = resources::programs_of_the_work_gone(&site.config, site.checkout.root(), &site.env);
        let server = |gone: &ProgramGone| site.config.mcp_servers.get(gone.key.strip_prefix("mcp.servers.")?);
        let required = gone.into_iter().find(|gone| server(gone).is_some_and(|server| server.required));
        if let Some(gone) = required {
            let told = CommandError::invalid(format!("{}: {gone}, and its runs need that server", site.repo));
            return Err(CommandError { exit_code: 3, detail: Some(StopDetail::McpUnavailable), ..told }
                .hint(
                    "install the program, or correct `command`; `required = false` lets runs work without it",
                ));
        }
    }
    Ok(())
}

/// Whether definitions and policies can be used.
async fn usable(sites: &[RepositoryContext]) -> Result<(), String> {
    for site in sites {
        check_definitions(site).await.map_err(|refusal| format!("{}: {refusal}", site.repo))?;
    }
    Ok(())
}

/// Gives each run that starts its observer.
pub(super) type Observe = Box<dyn Fn(&StartRequest) -> RunObserver + Send + Sync>;

/// Each run's progress, for `status` and the page.
fn observed(progress: &Progress) -> Observe {
    let progress = progress.clone();
    Box::new(move |request| progress.watch(request.issue.clone(), &request.title))
}

/// How often a daemon of a cluster looks who polls what: as often as a node shows that it lives.
fn look_at_pollers(config: &Config) -> Option<Duration> {
    (config.cluster.store == StoreKind::Nats).then(|| renewal(config.cluster.lease.0))
}

/// A daemon for these repositories.
pub(super) async fn parts_of(
    context: &Context,
    shutdown: &Shutdown,
    sites: repositories::Repositories,
    (progress, observe): (Progress, Observe),
) -> Result<Dependencies, CommandError> {
    let config = context.config()?;
    let mut repositories = Vec::new();
    let repositories::Repositories { open: sites, later, client } = sites;
    for site in &sites {
        repositories.push(watched(site).await);
    }
    let places: Vec<_> =
        sites.iter().map(|site| (site.config.clone(), site.checkout.root().clone())).collect();
    let rules = resources::blocking(move || {
        resources::policy_hash(places.iter().map(|(config, root)| (&**config, root)))
    });
    let rules = rules.await.map_err(CommandError::from)?;
    Ok(Dependencies {
        client,
        repositories,
        unopened: later,
        open_again: None,
        labels: config.github.labels.clone(),
        min_permission: config.github.min_permission,
        conversation: config.conversation.clone(),
        checks: config.checks.clone(),
        configuration: config.said(rules),
        conceal: Arc::new(|text| concealed::text(text).into_owned()),
        limits: Limits::from(&config.daemon),
        max_follow_ups: config.daemon.max_follow_ups,
        poll_interval: config.daemon.poll_interval,
        state: repositories::state(context, &config).await?,
        look_at_pollers: look_at_pollers(&config),
        drain_timeout: config.cluster.drain_timeout.0,
        max_clock_skew: look_at_pollers(&config).map(|_| config.cluster.max_clock_skew.0),
        find_left: finds_left(&sites),
        others_runs: runs_of_others(&sites),
        clock: Clock::system(),
        host: Host::current(),
        shutdown: shutdown.clone(),
        unfinished: Vec::new(),
        clean_up: Some(clean_ups(&sites)),
        abandon: abandons(&sites),
        approve: approves(&sites),
        deny: denies(&sites),
        end_calls: ends_calls(&sites),
        approved: approved(&sites),
        questions: config.questions.clone(),
        plan: config.plan.clone(),
        extend: extends(&sites),
        beside: besides(&sites),
        take: takes(&sites),
        take_as_asked: takes_as_asked(&sites),
        give_back: give_backs(&sites),
        listen: None,
        reload: None,
        start: starts(sites, observe, opened_with(context, shutdown)),
        progress,
    })
}

pub(super) async fn watched(site: &RepositoryContext) -> Watched {
    let root = site.worktree_root();
    // It may be on a disk of its own, or be made only with the first worktree.
    let there = root.as_path().ancestors().find(|folder| folder.exists()).unwrap_or(root.as_path());
    let place = (there.to_owned(), site.checkout.tracked_bytes().await);
    let budgets = &site.config.budgets;
    let (issue_cap, run_caps) = (budgets.max_cost_per_issue, (budgets.max_cost, budgets.max_cost_per_day));
    Watched { place: Some(place), issue_cap, run_caps, ..Watched::of(site.repo.clone(), &site.repository) }
}

pub(super) fn tell(context: &Context, report: &DaemonReport) -> Result<(), CommandError> {
    if context.output.json() {
        let ended: Vec<_> = report
            .ended
            .iter()
            .map(|(issue, run)| {
                serde_json::json!({
                    "issue": issue.to_string(), "run_id": run.run_id, "stop_reason": run.stop.reason(),
                    "stop_detail": run.stop.detail, "message": run.stop.message, "pr_url": run.pull_request,
                })
            })
            .collect();
        let waiting: Vec<_> = report
            .waiting
            .iter()
            .map(|(issue, reason)| serde_json::json!({ "issue": issue.to_string(), "code": reason.code(), "text": reason.to_string() }))
            .collect();
        let failed: Vec<_> = report
            .failed_polls
            .iter()
            .map(|(repo, error)| serde_json::json!({ "repository": repo, "error": error }))
            .collect();
        return context
            .output
            .document(&serde_json::json!({ "ended": ended, "waiting": waiting, "failed_polls": failed }));
    }
    for (issue, run) in &report.ended {
        let tone = if run.stop.success() { Tone::Good } else { Tone::Bad };
        // Where nothing was begun, why not.
        let why = run.run_id.is_none().then_some(run.stop.message.as_str());
        let link = run.pull_request.as_deref().or(why).unwrap_or_default();
        context
            .output
            .line(format!("{issue}  {}  {link}", context.output.toned(run.stop.detail.as_str(), tone)))?;
    }
    for (issue, reason) in &report.waiting {
        context.output.line(format!("{issue}  {}: {reason}", reason.code()))?;
    }
    for (repo, error) in &report.failed_polls {
        context.output.line(format!("{repo}  {}", context.output.toned(error, Tone::Bad)))?;
    }
    if report.ended.is_empty() && report.waiting.is_empty() && report.failed_polls.is_empty() {
        context.output.note("nothing to do");
    }
    Ok(())
}
