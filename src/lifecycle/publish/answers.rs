//! Answers on the pull request: what came of each thread and remark, told once, after the push.

use std::collections::BTreeSet;

use crate::config::config_file::Publish;
use crate::config::conversation_file::Resolve;
use crate::conversation::answers::{self, Wanted};
use crate::conversation::standing::People;
use crate::domain::answer::Outcome;
use crate::domain::briefing::{BriefedThread, Briefing};
use crate::domain::event::Event;
use crate::domain::name::CommitId;
use crate::domain::remark::{Remark, RemarkId, ReviewState, Standing, ThreadOutcome};
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::journal::JournalError;
use crate::github::{Client, Error, ErrorKind, ReviewThread};
use crate::lifecycle::instance::briefing;
use crate::lifecycle::new_remarks;
use crate::lifecycle::run::Run;
use crate::lifecycle::stage::Workspace;
use crate::lifecycle::steps::outcomes;

/// How often a reply of which it is not known whether it arrived is looked for and sent again.
const TRIES: u32 = 3;

/// Compares the outcomes with what was pushed, and records what will be told. A thread without an outcome was not worked
/// on.
pub async fn prove(
    run: &Run<'_>,
    (workspace, pushed): (Option<&Workspace>, bool),
    stop: &Stop,
) -> Result<(), JournalError> {
    let Some(briefing) = briefing::recorded(run).await.filter(|_| is_over(run, stop)) else { return Ok(()) };
    let known = outcomes::outcomes(&run.journal.facts());
    let wanted = outcomes::wanted(run, &briefing);
    let shown = shown_to_a_model(run).await;
    let mut threads = briefing.threads.clone();
    threads.extend(
        meanwhile(run, &briefing, wanted.ids())
            .await
            .into_iter()
            .map(|(id, thread)| BriefedThread { id, ..thread }),
    );
    for id in wanted.ids().iter().cloned() {
        let before = known.iter().find(|outcome| outcome.thread == id);
        // It may be told already: it stays as it is.
        if before.is_some_and(|outcome| outcome.proven) {
            continue;
        }
        let path = threads.iter().find(|thread| thread.id == id).map(|thread| thread.path.as_str());
        let workspace = workspace.filter(|_| pushed);
        let mut outcome = match before {
            Some(before) => before.clone(),
            // No model was told of it: the next run answers.
            None if shown.as_ref().is_some_and(|shown| !shown.contains(&id)) => continue,
            None => unanswered(run, workspace, (&id, path), stop).await,
        };
        if outcome.outcome == ThreadOutcome::Changed {
            outcome.commit = match workspace {
                Some(workspace) => commit_of(run, workspace, (path, &outcome)).await,
                None => None,
            };
            if outcome.commit.is_none() {
                outcome.outcome = ThreadOutcome::Answered;
                outcome.limitation = Some(format!(
                    "The report says that {id} was changed, but no pushed commit of the run touches {}.",
                    path.unwrap_or("a file that it names")
                ));
            }
        }
        outcome.proven = true;
        run.journal.record(Event::ThreadOutcome(Box::new(outcome)))?;
    }
    run.journal.flush().await
}

/// What wants an answer and a model was told of, where this run made no visit of its own and only publishes what the one before made.
/// `None` = all of it, or it is not known.
async fn shown_to_a_model(run: &Run<'_>) -> Option<BTreeSet<String>> {
    let facts = run.journal.facts();
    if facts.unfinished.is_some() || facts.visits.len() > facts.imported {
        return None;
    }
    let before = run.lease.predecessor.as_ref()?;
    let briefing = briefing::before(run).await?;
    let meanwhile: Vec<_> = answers::told_meanwhile(&briefing, &before.facts).collect();
    Some(Wanted::of(&briefing, &meanwhile).ids().iter().cloned().collect())
}

/// The threads of comments that were told while the run worked, by the comment's name.
async fn meanwhile(run: &Run<'_>, briefing: &Briefing, wanted: &[String]) -> Vec<(String, BriefedThread)> {
    let (Some(github), Some(pull)) = (&run.context.github, briefing.pull_request) else { return Vec::new() };
    let commented = |id: &String| matches!(RemarkId::parse(id), Some(RemarkId::ReviewComment(_)));
    if !wanted.iter().any(commented) {
        return Vec::new();
    }
    let pages = run.context.config.conversation.max_pages;
    match github.review_threads(&run.context.repo, pull, pages).await {
        Ok(threads) => of_comments(&threads.items, pull, wanted),
        Err(error) => {
            warn(run, &error, &format!("Which lines people wrote about meanwhile is not known: {error}."));
            Vec::new()
        }
    }
}

/// Of these threads those in which a wanted comment stands, by the comment's name.
fn of_comments(threads: &[ReviewThread], pull: u64, wanted: &[String]) -> Vec<(String, BriefedThread)> {
    let of = |id: &String| {
        let comment = RemarkId::parse(id).filter(|id| matches!(id, RemarkId::ReviewComment(_)))?;
        let thread = threads.iter().find(|thread| thread.has(comment))?;
        let briefed = BriefedThread {
            id: thread.id.clone(),
            first_comment: thread.comments.first()?.id.number(),
            last_comment: comment.number(),
            pull,
            path: thread.path.clone(),
            by_bot: false,
            may_resolve: thread.may_resolve,
            resolved: thread.resolved,
        };
        Some((id.clone(), briefed))
    };
    wanted.iter().filter_map(of).collect()
}

/// Whether this run has the last word. One that is to be continued leaves it to the one that goes on.
fn is_over(run: &Run<'_>, stop: &Stop) -> bool {
    let facts = run.journal.facts();
    let goes_on = stop.parks()
        || matches!(stop.detail, StopDetail::Shutdown | StopDetail::ApprovalPending)
        || new_remarks::are_untold(&facts, stop)
        || new_remarks::is_unread(&facts, stop)
        || facts.is_unpublished_for_now(stop);
    run.plan.publish != Publish::None && !goes_on
}

/// The outcome of what the agent said nothing about.
async fn unanswered(
    run: &Run<'_>,
    workspace: Option<&Workspace>,
    (id, path): (&str, Option<&str>),
    stop: &Stop,
) -> Outcome {
    let commit = match (workspace, &run.journal.facts().first_head) {
        (Some(workspace), Some(base)) if stop.success() => {
            let mut commits = workspace.worktree.commits_with_paths(base).await.unwrap_or_default();
            let touches = |paths: &[String]| paths.iter().any(|changed| path == Some(changed));
            if let Some(newest) = commits.iter().rposition(|(_, paths)| touches(paths)) {
                commits.truncate(newest + 1);
            }
            commits.pop().map(|(commit, _)| commit)
        }
        _ => None,
    };
    Outcome {
        thread: id.to_owned(),
        outcome: ThreadOutcome::Declined,
        text: answers::no_answer(stop, commit.as_ref()),
        run: run.lease.run_id,
        base: None,
        commit: None,
        limitation: None,
        proven: false,
    }
}

/// The newest commit of the run that touches the thread's file, or one that the text names.
async fn commit_of(
    run: &Run<'_>,
    workspace: &Workspace,
    (path, outcome): (Option<&str>, &Outcome),
) -> Option<CommitId> {
    let facts = run.journal.facts();
    let base = outcome.base.as_ref().or(facts.first_head.as_ref())?;
    let commits = workspace.worktree.commits_with_paths(base).await.ok()?;
    let touches = |changed: &str| {
        path == Some(changed)
            || outcome.text.split(|c: char| c.is_whitespace() || "`'\"(),;".contains(c)).any(|word| {
                let word = word.trim_end_matches(['.', ':']);
                word == changed || word.split_once(':').is_some_and(|(file, _)| file == changed)
            })
    };
    commits.into_iter().rev().find(|(_, paths)| paths.iter().any(|path| touches(path))).map(|(id, _)| id)
}

/// Tells everything that was proven. What cannot be told is a warning: the work is there.
pub async fn tell(run: &Run<'_>, stop: &Stop) -> Result<(), JournalError> {
    let (Some(github), Some(briefing)) = (&run.context.github, briefing::recorded(run).await) else {
        return Ok(());
    };
    let Some(pull) = briefing.pull_request.filter(|_| is_over(run, stop)) else { return Ok(()) };
    let outcomes: Vec<Outcome> =
        outcomes::outcomes(&run.journal.facts()).into_iter().filter(|outcome| outcome.proven).collect();
    if outcomes.is_empty() {
        return Ok(());
    }
    let answering = Answering { run, github, pull, briefing: &briefing, outcomes: &outcomes };
    if let Err(error) = answering.all(stop).await {
        warn(run, &error, &format!("Not everything could be answered on the pull request: {error}."));
    }
    Ok(())
}

fn warn(run: &Run<'_>, error: &Error, text: &str) {
    match error.is_locked() {
        true => run.note_locked(error),
        false => run.journal.warn("not_answered", text),
    }
}

struct Answering<'a> {
    run: &'a Run<'a>,
    github: &'a Client,
    pull: u64,
    briefing: &'a Briefing,
    outcomes: &'a [Outcome],
}

impl Answering<'_> {
    async fn all(&self, stop: &Stop) -> Result<(), Error> {
        let mut now = self.threads().await?;
        for thread in &self.briefing.threads {
            let Some(outcome) = self.outcomes.iter().find(|outcome| outcome.thread == thread.id) else {
                continue;
            };
            if let Err(error) = self.reply(&now, thread, outcome).await {
                warn(self.run, &error, &format!("The thread {} could not be answered: {error}.", thread.id));
            }
        }
        for (id, thread) in of_comments(&now, self.pull, &self.told_meanwhile()) {
            let Some(outcome) = self.outcomes.iter().find(|outcome| outcome.thread == id) else { continue };
            if let Err(error) = self.reply(&now, &thread, outcome).await {
                warn(self.run, &error, &format!("The thread of {id} could not be answered: {error}."));
            }
        }
        self.round().await?;
        if self.run.context.config.conversation.resolve != Resolve::Never {
            now = self.threads().await?;
            self.resolve(&now).await?;
        }
        if stop.success() && self.run.context.config.conversation.rerequest_review {
            self.ask_again().await?;
        }
        Ok(())
    }

    /// What has an outcome and stands neither in a thread of the briefing nor in what the run was begun for.
    fn told_meanwhile(&self) -> Vec<String> {
        let begun = Wanted::of(self.briefing, &[]);
        let all = self.outcomes.iter().map(|outcome| outcome.thread.clone());
        all.filter(|id| !begun.ids().contains(id)).collect()
    }

    async fn threads(&self) -> Result<Vec<ReviewThread>, Error> {
        let pages = self.run.context.config.conversation.max_pages;
        Ok(self.github.review_threads(&self.run.context.repo, self.pull, pages).await?.items)
    }

    async fn is_own(&self, remark: &Remark) -> bool {
        match self.github.viewer().await {
            Ok(viewer) if !viewer.actor.login.is_empty() => {
                remark.login.as_deref().is_some_and(|login| login.eq_ignore_ascii_case(&viewer.actor.login))
            }
            _ => true,
        }
    }

    /// Whether the reply is in the thread.
    async fn is_told(&self, thread: &ReviewThread, marker: &str) -> bool {
        for comment in thread.comments.iter().filter(|comment| comment.text.starts_with(marker)) {
            if self.is_own(comment).await {
                return true;
            }
        }
        false
    }

    /// One reply in a thread, if it is not there and people still wait for it.
    async fn reply(
        &self,
        now: &[ReviewThread],
        thread: &BriefedThread,
        outcome: &Outcome,
    ) -> Result<(), Error> {
        let marker = answers::marker(&thread.id, outcome.run);
        let text = self.run.without_secrets(&format!("{marker}\n{}", answers::reply(outcome)));
        let mut now = now.to_vec();
        for attempt in 0..TRIES {
            let open = |one: &&ReviewThread| one.id == thread.id && (thread.resolved || !one.resolved);
            let Some(found) = now.iter().find(open) else {
                return Ok(());
            };
            if self.is_told(found, &marker).await {
                return Ok(());
            }
            let sent = self
                .github
                .reply_in_thread(&self.run.context.repo, (self.pull, thread.first_comment), &text)
                .await;
            match sent {
                Ok(_) => return Ok(()),
                Err(error) if error.is_ambiguous() && attempt + 1 < TRIES => {
                    now = self.threads().await?;
                }
                // Somebody deleted it a moment ago.
                Err(error) if error.is_absent() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// One comment about what has no thread; those of earlier runs are hidden.
    async fn round(&self) -> Result<(), Error> {
        let mut about: BTreeSet<String> = self.briefing.about.iter().map(ToString::to_string).collect();
        // What stands in a thread was answered there.
        let in_thread = |id: &String| matches!(RemarkId::parse(id), Some(RemarkId::ReviewComment(_)));
        about.extend(self.told_meanwhile().into_iter().filter(|id| !in_thread(id)));
        let addresses = new_remarks::addresses(self.run).await;
        let own: Vec<(Outcome, Option<String>)> = self
            .outcomes
            .iter()
            .filter(|outcome| about.contains(&outcome.thread))
            .map(|outcome| {
                let text = self.briefing.texts.iter().find(|text| text.id == outcome.thread);
                let url = text.and_then(|text| text.url.clone());
                (outcome.clone(), url.or_else(|| addresses.get(&outcome.thread).cloned()))
            })
            .collect();
        let Some((first, _)) = own.first() else { return Ok(()) };
        let (repo, key) = (&self.run.context.repo, &self.run.plan.issue.key);
        let marker = answers::round_marker(key, first.run);
        let text = self.run.without_secrets(&answers::round(&own));
        self.github.ensure_comment(repo, self.pull, &marker, &text).await?;
        let pages = self.run.context.config.conversation.max_pages;
        let prefix = answers::round_prefix(key);
        for comment in self.github.pull_remarks(repo, self.pull, pages).await?.items {
            let earlier = comment.text.starts_with(&prefix) && !comment.text.starts_with(&marker);
            if earlier
                && !comment.minimized
                && self.is_own(&comment).await
                && let Some(node_id) = &comment.node_id
            {
                self.github.minimize(node_id).await?;
            }
        }
        Ok(())
    }

    /// Resolves what was changed, where the configuration wants it, the commands pass and nobody wrote after the reply.
    async fn resolve(&self, now: &[ReviewThread]) -> Result<(), Error> {
        let mode = self.run.context.config.conversation.resolve;
        if self.run.journal.facts().red().is_some() {
            return Ok(());
        }
        for thread in &self.briefing.threads {
            let outcome = self.outcomes.iter().find(|outcome| outcome.thread == thread.id);
            let Some(outcome) = outcome.filter(|outcome| outcome.outcome == ThreadOutcome::Changed) else {
                continue;
            };
            if mode == Resolve::Bots && !thread.by_bot {
                continue;
            }
            let marker = answers::marker(&thread.id, outcome.run);
            let Some(found) = now.iter().find(|one| one.id == thread.id && !one.resolved) else { continue };
            if !found.comments.last().is_some_and(|last| last.text.starts_with(&marker)) {
                continue;
            }
            // Nor before it, where the run was not told.
            let mut others = Vec::new();
            for comment in found.comments.iter().filter(|one| one.id.number() > thread.last_comment) {
                if !self.is_own(comment).await {
                    others.push(comment.id);
                }
            }
            if !others.is_empty() {
                continue;
            }
            let may = match found.may_resolve {
                true => self.github.resolve_thread(&thread.id).await,
                false => Ok(()),
            };
            match may {
                Ok(()) if found.may_resolve => {}
                Err(error) if !matches!(error.kind, ErrorKind::Forbidden { .. }) => return Err(error),
                _ => {
                    let text =
                        "Threads could not be resolved: GitHub wants the permission contents: write for it.";
                    self.run.journal.warn("not_resolved", text);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Asks those again who asked for changes and have not said otherwise since.
    async fn ask_again(&self) -> Result<(), Error> {
        let pages = self.run.context.config.conversation.max_pages;
        let reviews = self.github.reviews(&self.run.context.repo, self.pull, pages).await?;
        let mut wanting: Vec<String> = Vec::new();
        for review in reviews.items {
            let Some(login) = review.login.filter(|_| !review.bot) else { continue };
            match review.state {
                Some(ReviewState::ChangesRequested) if !wanting.contains(&login) => wanting.push(login),
                Some(ReviewState::Approved | ReviewState::Dismissed) => {
                    wanting.retain(|other| *other != login);
                }
                _ => {}
            }
        }
        // An outsider cannot be asked, and whoever cannot be asked would keep the others from being asked.
        let mut people = People::new(self.github, self.run.context, self.run.plan.issue.author.as_deref());
        let mut trusted = Vec::new();
        for login in wanting {
            if people.account(Some(&login), false).await?.standing == Standing::Trusted {
                trusted.push(login);
            }
        }
        let wanting = trusted;
        if wanting.is_empty() {
            return Ok(());
        }
        match self.github.request_reviews(&self.run.context.repo, self.pull, &wanting).await {
            // One of them may no longer be asked.
            Err(error) if error.kind == ErrorKind::Validation => {
                let text = format!("Nobody could be asked for another review: {error}.");
                self.run.journal.warn("review_not_requested", text);
                Ok(())
            }
            other => other,
        }
    }
}
