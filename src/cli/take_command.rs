//! `agentd take · give-back`: a person at agentd's machine works on an issue in agentd's place.

use std::time::Duration;

use super::context::Context;
use super::daemon_command::open_options;
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::known_daemon::KnownDaemon;
use super::repositories::{self, OpenOptions};
use super::run_command;
use super::runs;
use crate::conversation::parked::ParkedCell;
use crate::conversation::parked::parked_format::GivingBack;
use crate::domain::issue::IssueKey;
use crate::domain::mapping::branch_of;
use crate::domain::run::RunId;
use crate::domain::taken::TakenOver;
use crate::lifecycle::give_back::{self, GaveBack};
use crate::lifecycle::request::RunRequest;
use crate::lifecycle::taken::{self, Took};
use crate::repository::context::RepositoryContext;
use crate::repository::mapping_format::mapping_of;
use crate::sys::host::Host;
use crate::sys::shutdown::Shutdown;

const PAUSE: Duration = Duration::from_millis(200);

async fn open(context: &Context, issue: &IssueArg) -> Result<RepositoryContext, CommandError> {
    let shutdown = Shutdown::new();
    let options = OpenOptions { fresh: false, needs_github: false, ..open_options(&shutdown) };
    let site = repositories::one(context, &options).await?;
    repositories::check_host(issue, &site)?;
    Ok(site)
}

fn local() -> String {
    format!("local:{}", Host::current().uid)
}

/// Takes the work over, waits until the run that works has handed it over, and prints where it is.
pub fn take(context: &Context, issue: &IssueArg) -> Result<(), CommandError> {
    let context = &context.for_issue(issue)?;
    let key = issue.key.clone();
    context.block_on(async {
        let site = open(context, issue).await?;
        let over = TakenOver { by: local(), pushes: false };
        let has = loop {
            match taken::take(&site, &key, &over).await? {
                Took::Has(has) => break has,
                Took::Busy => tokio::time::sleep(PAUSE).await,
                Took::Asked(run_id) => {
                    context.output.note(format!(
                        "run {run_id} hands the work over at the end of its turn (an agent program has ten seconds to end); Ctrl-C \
                         does not take that back"
                    ));
                    while holds(&site, &key, run_id).await? {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        };
        if context.output.json() {
            return context.output.document(&serde_json::json!({
                "issue": key, "run_id": has.run_id, "by": has.by, "branch": has.branch,
                "worktree": has.worktree.as_path(), "is_pushed": has.is_pushed,
            }));
        }
        context.output.whole_line(&has.worktree.to_string())?;
        context.output.note(format!(
            "It is yours, on the branch {}: nothing starts on issue {key} meanwhile. agentd give-back {key} -m TEXT \
             lets agentd go on.",
            has.branch
        ));
        Ok(())
    })?
}

/// Whether this run still has the issue.
async fn holds(site: &RepositoryContext, key: &IssueKey, run_id: RunId) -> Result<bool, CommandError> {
    let lease = site.look(site.lease(key)).await?.filter(|lease| lease.holder.is_some());
    let mapping = lease.and_then(|lease| lease.record).as_ref().and_then(mapping_of);
    Ok(mapping.is_some_and(|mapping| mapping.run_id == run_id))
}

/// Gives the work back, and has it gone on with: by the daemon, or here. Gives the exit code.
pub fn give_back(
    context: &Context,
    issue: &IssueArg,
    message: Option<&str>,
    (ends, elsewhere): (bool, bool),
) -> Result<u8, CommandError> {
    let context = &context.for_issue(issue)?;
    let key = issue.key.clone();
    let done = context.block_on(async {
        let site = open(context, issue).await?;
        let giving = GivingBack {
            by: local(),
            by_id: 0,
            permission: None,
            at: site.clock.now(),
            text: message.unwrap_or_default().trim().to_owned(),
            ends,
            on: None,
            remark: None,
        };
        let goes_on = !ends && daemon_goes_on(context, &site, &key).await;
        let back = give_back::give_back(&site, &key, &giving, elsewhere).await?;
        Ok::<_, CommandError>((site, back, goes_on))
    })?;
    let (site, back, goes_on) = done?;
    let here = !ends && !goes_on;
    tell(context, &key, &back, (ends, goes_on))?;
    if !here {
        return Ok(0);
    }
    begin(context, &site, (&key, &back)).map_err(|error| match is_left(&site, &key) {
        true => error.hint(format!(
            "the work is given back: agentd give-back {key} goes on with it once a run can begin"
        )),
        false => error,
    })
}

/// Has a run go on with it here.
fn begin(
    context: &Context,
    site: &RepositoryContext,
    (key, back): (&IssueKey, &GaveBack),
) -> Result<u8, CommandError> {
    let dir = site.state.run(&site.repo, back.run_id);
    if !back.is_done {
        return runs::go_on(context, &dir);
    }
    let next = RunRequest { issue: runs::worked_on(&dir, key)?, ..run_command::plain(0) };
    run_command::resume(context, |_| Vec::new(), &site.repo, Some(site.checkout.root()), next)
}

/// Whether no run has taken up what was given back. Blocks.
fn is_left(site: &RepositoryContext, key: &IssueKey) -> bool {
    let known = ParkedCell::new(&site.state, &site.repo, key).read_now();
    known.is_ok_and(|known| known.in_hands().is_some())
}

/// Whether a daemon, here or of the cluster, sees the issue: its trigger label is on.
async fn daemon_goes_on(context: &Context, site: &RepositoryContext, key: &IssueKey) -> bool {
    let Some(number) = key.number() else { return false };
    let (asks, of) = (context.clone(), site.clone());
    let known = tokio::task::spawn_blocking(move || KnownDaemon::of(&asks, &of, number)).await;
    let goes_on = known.is_ok_and(|known| known.is_ok_and(|known| known.goes_on_in(&site.repo)));
    let (true, Some(github)) = (goes_on, &site.github) else { return false };
    let trigger = &site.config.github.labels.trigger;
    github.issue(&site.repo, number).await.is_ok_and(|issue| issue.issue.open && issue.has_label(trigger))
}

fn tell(
    context: &Context,
    key: &IssueKey,
    back: &GaveBack,
    (ends, goes_on): (bool, bool),
) -> Result<(), CommandError> {
    let out = context.output;
    if out.json() {
        // Of work that is gone on with here, the run's own output is the document.
        return match ends || goes_on {
            true => out.document(&serde_json::json!({
                "issue": key, "run_id": back.run_id, "commit": back.commit, "head": back.head,
                "changed": back.changed, "kept_out": back.kept_out, "stays_on": back.stays_on, "goes_on": goes_on,
            })),
            false => Ok(()),
        };
    }
    if let Some(commit) = &back.commit {
        out.line(format!("Committed in your name: {}", commit.short()))?;
    }
    for line in &back.changed {
        out.whole_line(&format!("  {line}"))?;
    }
    if let Some(left_out) = back.left_out(&branch_of(key)) {
        out.whole_line(&left_out)?;
    }
    match (ends, goes_on) {
        (true, _) => {
            out.line(format!("Nothing goes on with issue {key}; the branch is at {}.", back.head.short()))
        }
        (false, true) => out.line("The daemon goes on with it at its next look."),
        (false, false) => Ok(()),
    }
}
