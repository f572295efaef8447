//! The lease as other hosts see it: a line of the issue's status comment that says who works there, and until when (D75).
//!
//! A file holds the lease among the processes of one checkout. A process with another clone of the repository cannot
//! see that file, but reads the same issue. The status comment at the end of a run replaces the line and so ends the
//! lease.

use super::{refusal_comment, spending, status_comment};
use crate::domain::issue::IssueKey;
use crate::domain::issue_state::IssueState;
use crate::domain::mapping::{InstanceId, branch_of};
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::domain::stop::StopDetail;
use crate::github::{self, Client, Comment, Ensured};
use crate::record::rendering;
use crate::repository::context::RepositoryContext;
use crate::store::run_dir::StateDir;
use crate::sys::holder_format::Holder;

const BEGIN: &str = "<!-- agentd:lease ";
const END: &str = " -->";
const PARKED: &str = "<!-- agentd:parked ";

/// An issue, and its number where it is in the tracker.
#[derive(Debug, Clone, Copy)]
pub struct Tracked<'a> {
    /// Its key.
    pub key: &'a IssueKey,
    /// Its number; `None` = it is from a file.
    pub number: Option<u64>,
}

/// Shows on the issue that `mine` holds it. Gives another holder, if there is one: another host whose lease has not
/// expired, or a living process of this host with another checkout. A comment that cannot be written does not stop the
/// run.
pub async fn show(
    issue: Tracked<'_>,
    context: &RepositoryContext,
    mine: &Holder,
) -> Result<Option<Holder>, github::Error> {
    let Some((client, number)) = tracked(issue, context) else { return Ok(None) };
    let marker = rendering::marker(issue.key);
    let found = client.find_comment(&context.repo, number, &marker).await?;
    if let Some(other) = other_holder(found.as_ref(), context, mine) {
        return Ok(Some(other));
    }
    if let Some(comment) = &found {
        adopt_spending(issue.key, (context, client), comment).await;
    }
    let of = (&context.repo, number);
    let written = status_comment::ensure(client, context.state.store(), of, &text(issue.key, mine)).await;
    let (comment, change) = match written {
        Ok(written) => written,
        Err(error) => {
            tracing::warn!(%error, "other hosts cannot see that the issue is being worked on");
            return Ok(None);
        }
    };
    // Two processes may have looked before either wrote. What the comment says now decides; of two comments the older
    // one counts.
    let found = client.find_comment(&context.repo, number, &marker).await?;
    let other = other_holder(found.as_ref(), context, mine);
    if other.is_some() && change == Ensured::Created {
        client.delete_comment(&context.repo, comment.id).await?;
    }
    if other.is_none()
        && let Err(error) = refusal_comment::is_over(client, of).await
    {
        tracing::warn!(%error, "what was said of an earlier start stands on the issue still");
    }
    Ok(other)
}

/// What the issue has cost in another state directory counts here, too.
async fn adopt_spending(key: &IssueKey, (context, client): (&RepositoryContext, &Client), comment: &Comment) {
    let (store, repo, key) = (context.state.store().clone(), context.repo.clone(), key.clone());
    let body = comment.body.clone();
    let (known, of, about, text) = (store.clone(), repo.clone(), key.clone(), body.clone());
    let gives_more =
        tokio::task::spawn_blocking(move || spending::gives_more(&known, &of, &about, &text)).await;
    let with_given = gives_more.unwrap_or(false) && is_as_written(client, comment).await;
    let adopted =
        tokio::task::spawn_blocking(move || spending::adopt(&store, &repo, &key, (&body, with_given))).await;
    if let Ok(Err(error)) = adopted {
        tracing::warn!(%error, "what the issue has cost elsewhere could not be taken over");
    }
}

/// Whether a comment is as agentd wrote it. What others made of it counts for nothing that costs money.
async fn is_as_written(client: &Client, comment: &Comment) -> bool {
    match client.is_edited_by_others(comment).await {
        Ok(false) => true,
        Ok(true) => {
            tracing::warn!(
                "somebody edited the status comment: what it says that people gave the issue does not count"
            );
            false
        }
        Err(error) => {
            tracing::warn!(%error, "whether somebody edited the status comment is not known: what it says that people gave does not count");
            false
        }
    }
}

/// The line of a status comment that says that this state directory waits for a person on the issue.
pub fn parked_line(state: &StateDir) -> String {
    format!("\n{}\n", parked_mark(&state.state_name()))
}

fn parked_mark(state: &str) -> String {
    format!("{PARKED}{state}{END}")
}

/// Whether a status comment says that a person is waited for.
pub fn shows_parked(body: &str) -> bool {
    parked_by(body).is_some()
}

/// Whether a status comment says that somebody works on the issue.
pub fn shows_work(body: &str) -> bool {
    holder_of(body).is_some()
}

/// The name of the state directory that waits for a person, if a status comment says that one does.
fn parked_by(body: &str) -> Option<&str> {
    rendering::own_lines(body).find_map(|line| line.strip_prefix(PARKED)?.strip_suffix(END))
}

/// The name of another state directory or cluster that waits for a person on the issue, as its status comment says. That one goes on with
/// it, and nobody else, unless what waits was moved from there.
pub async fn parked_elsewhere(
    issue: Tracked<'_>,
    context: &RepositoryContext,
) -> Result<Option<String>, github::Error> {
    let Some((client, number)) = tracked(issue, context) else { return Ok(None) };
    let found = client.find_comment(&context.repo, number, &rendering::marker(issue.key)).await?;
    let by = found.as_ref().and_then(|comment| parked_by(&comment.body));
    Ok(by.filter(|by| *by != context.state.state_name()).map(str::to_owned))
}

/// Who works on the issue with another checkout or cluster, as its status comment says; `None` also where the tracker has no such issue.
pub async fn working_elsewhere(
    issue: Tracked<'_>,
    context: &RepositoryContext,
) -> Result<Option<Holder>, github::Error> {
    let Some((client, number)) = tracked(issue, context) else { return Ok(None) };
    let found = client.find_comment(&context.repo, number, &rendering::marker(issue.key)).await?;
    let Some(holder) = found.and_then(|comment| holder_of(&comment.body)) else { return Ok(None) };
    let (store, own) = (context.state.store().clone(), context.state.store().cluster());
    // Whether a node of the own cluster has it, the store says, and not the comment.
    let is_own = own.is_some() && holder.held.as_ref().map(|held| &held.cluster) == own.as_ref();
    let asked = holder.clone();
    let lives = tokio::task::spawn_blocking(move || store.lives(&asked)).await.unwrap_or(true);
    Ok(Some(holder).filter(|_| lives && !is_own))
}

/// What waits for a person and was moved here from the state directory or cluster `from` is waited for here from now on: its issue
/// says so, and nobody who works with the old state goes on with it. Whether the issue says now that it is waited for here.
pub async fn show_moved(
    client: &Client,
    state: &StateDir,
    (repo, number): (&RepoName, u64),
    from: Option<&str>,
) -> Result<bool, github::Error> {
    let marker = rendering::marker(&IssueKey::Number(number));
    let found = client.find_comment(repo, number, &marker).await?;
    let Some((by, body)) = found.as_ref().and_then(|found| Some((parked_by(&found.body)?, &found.body)))
    else {
        return Ok(false);
    };
    let own = state.state_name();
    if by == own {
        return Ok(true);
    }
    if from != Some(by) {
        return Ok(false);
    }
    let text = body.trim_start().strip_prefix(&marker).unwrap_or(body).trim_start();
    let text = text.replace(&parked_mark(by), &parked_mark(&own));
    client.ensure_comment(repo, number, &marker, &text).await?;
    Ok(true)
}

/// Shows a lease that is held already, with its present time and how far the work is.
pub async fn renew(issue: Tracked<'_>, context: &RepositoryContext, mine: &Holder, progress: &str) {
    let Some((client, number)) = tracked(issue, context) else { return };
    let text = format!("{}{progress}", text(issue.key, mine));
    let of = (&context.repo, number);
    if let Err(error) = status_comment::ensure(client, context.state.store(), of, &text).await {
        tracing::warn!(%error, "the status comment of a working run could not be written");
    }
}

/// What a run on the command line left on an issue when its process died: that it is being worked on. Its comment says what
/// became of it, and the labels do, also where nobody's comment says who works. True = it was there.
pub async fn clear(
    context: &RepositoryContext,
    number: u64,
    (instance, run_id): (&InstanceId, RunId),
) -> Result<bool, github::Error> {
    let Some(client) = &context.github else { return Ok(false) };
    let marker = rendering::marker(&IssueKey::Number(number));
    let found = client.find_comment(&context.repo, number, &marker).await?;
    let running = &context.config.github.labels.running;
    let labels = client.issue(&context.repo, number).await?.issue.labels;
    let labelled = labels.iter().any(|label| label.eq_ignore_ascii_case(running));
    match found.and_then(|comment| holder_of(&comment.body)) {
        Some(holder) if holder.instance == instance.as_str() => {}
        // Somebody else works there.
        Some(_) => return Ok(false),
        None if !labelled => return Ok(false),
        None => return show_cut_off(client, context, (number, &labels)).await.map(|()| true),
    }
    // The labels first: the comment is what says that this was done.
    show_cut_off(client, context, (number, &labels)).await?;
    let text = format!(
        "**agentd did not finish its work on this issue.**\n\nThe process of the run `{instance}` ended in the middle of it. What was \
         done is in its worktree and on its branch. To go on with it: `agentd runs resume {run_id}`.\n"
    );
    status_comment::ensure(client, context.state.store(), (&context.repo, number), &text).await?;
    Ok(true)
}

/// The labels of an issue say that its run was cut off. Where the trigger is on, another run goes on with it.
async fn show_cut_off(
    client: &Client,
    context: &RepositoryContext,
    (number, labels): (u64, &[String]),
) -> Result<(), github::Error> {
    let names = &context.config.github.labels;
    let has = |name: &str| labels.iter().any(|label| label.trim().eq_ignore_ascii_case(name.trim()));
    match IssueState::after(StopDetail::Interrupted) {
        Some(state) if !has(&names.trigger) => {
            client.ensure_labels(&context.repo, number, labels, state, names).await
        }
        _ if has(&names.running) => client.remove_label(&context.repo, number, &names.running).await,
        _ => Ok(()),
    }
}

fn tracked<'s>(issue: Tracked<'_>, context: &'s RepositoryContext) -> Option<(&'s Client, u64)> {
    Some((context.github.as_ref()?, issue.number?))
}

fn text(key: &IssueKey, mine: &Holder) -> String {
    let line = serde_json::to_string(mine).unwrap_or_default();
    let branch = branch_of(key);
    let since = mine.since.format("%Y-%m-%d %H:%M");
    format!(
        "{BEGIN}{line}{END}\n**agentd is working on this issue.**\n\nSince {since} UTC, on the branch `{branch}`, as `{}`. \
         What comes of it will stand here.\n",
        mine.instance
    )
}

fn other_holder(comment: Option<&Comment>, context: &RepositoryContext, mine: &Holder) -> Option<Holder> {
    let holder = holder_of(&comment?.body)?;
    let own_process = (&holder.host, holder.pid, holder.started) == (&mine.host, mine.pid, mine.started);
    // Who has the issue among the nodes is later than any other of the same cluster: that one may not reach GitHub to say that it ended.
    let cluster = |holder: &Holder| holder.held.as_ref().map(|held| held.cluster.clone());
    let own_cluster = mine.held.is_some() && cluster(mine) == cluster(&holder);
    (!own_process && !own_cluster && context.state.store().lives(&holder)).then_some(holder)
}

/// Who a status comment names, if it names anybody.
fn holder_of(body: &str) -> Option<Holder> {
    let line = body.lines().nth(1)?.trim();
    serde_json::from_str(line.strip_prefix(BEGIN)?.strip_suffix(END)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock::Clock;
    use crate::sys::host::Host;

    #[test]
    fn d75_the_second_line_of_a_status_comment_names_the_holder_and_a_report_names_nobody() {
        let now = Clock::system().now();
        let mine = Holder::here(&Host::current(), "agent-issue-7-20260102T030405Z", now, now);
        let line = serde_json::to_string(&mine).unwrap();
        assert_eq!(holder_of(&format!("<!-- agentd:issue-7 -->\r\n{BEGIN}{line}{END}\r\nwords")), Some(mine));
        for body in
            ["<!-- agentd:issue-7 -->\n**Done.**", "", "<!-- agentd:issue-7 -->\n<!-- agentd:lease {} -->"]
        {
            assert_eq!(holder_of(body), None, "{body}");
        }
    }

    #[test]
    fn what_a_program_printed_parks_nothing() {
        let line = format!("{PARKED}there{END}");
        assert!(shows_parked(&format!("<!-- agentd:issue-7 -->\nWords.\n\n{line}\n")));
        assert!(shows_parked(&format!("Words.\n{line}\n\n<!-- agentd:spent {{}} -->\n")));
        assert!(!shows_parked(&format!("```text\n{line}\n```\n1 file · run\n")));
    }
}
