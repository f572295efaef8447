//! Follow-up runs that people and listed bots ask for: when what waits is due, it is read once more and told to one run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::main_loop::Daemon;
use super::pulls::{Cause, Wanted};
use super::snapshot::IssueRef;
use super::state_format::{AskedBy, TriedRound};
use crate::conversation::inbox::inbox_format::{Heard, Inbox};
use crate::conversation::inbox::rounds::{Due, Rules, Starter};
use crate::conversation::standing::People;
use crate::domain::canonical::sha256_hex;
use crate::domain::issue::IssueKey;
use crate::domain::issue_state::IssueState;
use crate::domain::name::RepoName;
use crate::domain::remark::{Remark, RemarkId, RemarkKind, Standing};
use crate::domain::text_revision::AskedHow;
use crate::github::{Error, Pull};
use crate::record::rendering;
use crate::store::port::StoreError;

/// What was read so shortly ago is not read again.
const JUST_NOW: Duration = Duration::from_secs(5);

/// How people are told that there were enough runs.
pub(super) const NEEDS_WORK: &str = "still needs work after";

/// A follow-up run that people asked for, and that is not begun.
struct RefusedRound<'a> {
    /// Where they asked.
    pull: u64,
    /// What asked for it.
    asked: RemarkId,
    /// What they can do instead, as a sentence.
    instead: &'a str,
}

/// Why a follow-up run could not be prepared.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotPrepared {
    /// GitHub.
    #[error(transparent)]
    GitHub(#[from] Error),
    /// The disk.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Daemon {
    /// When what waits starts a follow-up run.
    pub(super) fn rules(&self) -> Rules<'_> {
        let name = match self.deps.conversation.mention.trim() {
            "" => &self.name,
            name => name,
        };
        Rules { table: &self.deps.conversation, name }
    }

    /// Starts the follow-up runs whose time has come. True = something is to be started.
    pub(super) async fn start_rounds(&mut self, looked: &BTreeSet<RepoName>) -> bool {
        let now = self.deps.client.now().unwrap_or_else(|| self.deps.clock.now());
        let mut starts = false;
        for watch in self.watches.iter_mut().filter(|watch| looked.contains(&watch.watched.name)) {
            watch.pulls.quiet.clear();
        }
        for (issue, pull) in self.open_pulls(looked) {
            match self.start_round(&issue, &pull, now).await {
                Ok(started) => starts |= started,
                Err(error) => {
                    tracing::warn!(%issue, %error, "a follow-up run could not be prepared; it is tried again");
                }
            }
        }
        self.empty_outbox().await;
        starts
    }

    /// The open pull requests for which something waits and whose issues are free.
    fn open_pulls(&self, looked: &BTreeSet<RepoName>) -> Vec<(IssueRef, Pull)> {
        let mut found = Vec::new();
        for watch in
            self.watches.iter().filter(|watch| looked.contains(&watch.watched.name) && watch.is_fresh())
        {
            for (number, pull) in watch.pulls.followed() {
                let issue = IssueRef { repo: watch.watched.name.clone(), number };
                let memory = watch.state.issues.get(&number);
                let is_written = memory.is_none_or(|memory| memory.pending_outcome.is_none());
                let waits = memory
                    .and_then(|memory| memory.parked.as_ref())
                    .is_some_and(|parked| parked.waits_for_person())
                    || memory.is_some_and(|memory| memory.taken);
                let free = is_written
                    && !waits
                    && watch.candidate(number).is_none()
                    && self.supervisor.get(&issue).is_none();
                if free && watch.state.attend.contains(&number) {
                    found.push((issue, pull.clone()));
                }
            }
        }
        found
    }

    async fn start_round(
        &mut self,
        issue: &IssueRef,
        pull: &Pull,
        now: chrono::DateTime<chrono::Utc>,
    ) -> Result<bool, NotPrepared> {
        // Turned off altogether.
        if self.deps.max_follow_ups == 0 {
            return Ok(false);
        }
        let cell = self.inbox(issue);
        let Some(due) = self.rules().due(&cell.read().await?) else { return Ok(false) };
        if self.is_refused(issue, &TriedRound::of(Some(due.asked.remark.id), pull), now) {
            return Ok(false);
        }
        // Who was told so is not told again, and while the list says the same, nobody has to be asked.
        if self
            .why_held_back(issue, pull, due.by)
            .is_some_and(|(code, text)| self.was_held_back(issue, code, &text))
        {
            return Ok(false);
        }
        if now < due.at {
            if let Some(watch) = self.watch_of(&issue.repo) {
                watch.pulls.quiet.insert(issue.number, due.at);
            }
            return Ok(false);
        }
        // What a person did to it since it was listed counts.
        let pull = &self.quick_client().pull(&issue.repo, pull.number).await?;
        if !pull.open {
            return Ok(false);
        }
        if let Some((code, text)) = self.why_held_back(issue, pull, due.by) {
            self.hold_back(issue, code, text);
            return Ok(false);
        }
        let inbox = self.read_again(issue, pull).await?;
        // Whoever's words are left.
        let Some(Due { by, asked, .. }) = self.rules().due(&inbox) else { return Ok(false) };
        let tried = TriedRound::of(Some(asked.remark.id), pull);
        let client = self.quick_client();
        let fresh = match client.issue(&issue.repo, issue.number).await {
            Ok(fresh) => fresh,
            Err(error) => match self.what_became(issue, &error) {
                Some(became) => {
                    let instead = "For more work on this branch, write a new issue, or go on by hand.";
                    let refused = RefusedRound { pull: pull.number, asked: asked.remark.id, instead };
                    self.refuse_round(issue, refused, &of_no_issue(issue, &became)).await?;
                    return Ok(false);
                }
                None => return Err(error.into()),
            },
        };
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.pulls.not_found.remove(&issue.number);
        }
        if !fresh.issue.open {
            let instead = "Open it again and write here again, or go on by hand.";
            let refused = RefusedRound { pull: pull.number, asked: asked.remark.id, instead };
            self.refuse_round(issue, refused, &of_no_issue(issue, "is closed")).await?;
            return Ok(false);
        }
        let findings = self.findings(pull, issue, &[]);
        let remarks: Vec<Remark> = inbox.to_be_told().into_iter().map(|heard| heard.remark.clone()).collect();
        tracing::info!(%issue, pull = pull.number, remarks = remarks.len(), "a follow-up run for what people wrote");
        let cause = if by == Starter::Bot { Cause::Bot } else { Cause::Person };
        let needs = self.deps.min_permission;
        let admitted = by == Starter::Person
            && client.permission(&issue.repo, asked.remark.login.as_deref().unwrap_or_default()).await?
                >= needs;
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(false) };
        if admitted {
            watch.state.issues.entry(issue.number).or_default().asked_by = Some(AskedBy {
                login: asked.remark.login.unwrap_or_default(),
                id: asked.author_id,
                at: Some(asked.remark.created),
                how: AskedHow::Comment,
            });
        }
        watch.recover(fresh);
        let wanted = Wanted {
            fingerprint: findings.fingerprint(),
            // What people wrote stands in the briefing.
            told: findings.told,
            conflicts: findings.conflicts,
            cause,
            remarks,
            tried,
            mends: BTreeMap::new(),
            since: Instant::now(),
        };
        watch.pulls.wanted.insert(issue.number, wanted);
        if by == Starter::Person {
            self.tell_later(issue, (pull.number, asked.remark.id)).await?;
        }
        Ok(true)
    }

    /// Whoever asks for a follow-up run for which there is no money now is told so, once. What they wrote is kept for it.
    async fn tell_later(&self, issue: &IssueRef, (pull, asked): (u64, RemarkId)) -> Result<(), Error> {
        let why = match (self.money_gone(issue).await, self.waits_for_the_day(issue)) {
            (Some((spent, cap)), _) => format!(
                "the budget of issue #{} is used up ({spent} of {cap} (USD) is spent). It begins when `/agentd extend 5` gives the issue \
                 5 USD more.",
                issue.number
            ),
            (None, Some(until)) => {
                format!("the money of this day is used up. It begins by itself after {until}.")
            }
            (None, None) => return Ok(()),
        };
        let text = format!("This was heard, and no run begins for it yet: {why}");
        let marker = rendering::request_marker(&IssueKey::Number(issue.number), &format!("command-{asked}"));
        self.quick_client().ensure_comment(&issue.repo, pull, &marker, &text).await.map(drop)
    }

    /// What became of an issue that could not be read, as the rest of a sentence. `None`: it may be read yet.
    fn what_became(&mut self, issue: &IssueRef, error: &Error) -> Option<String> {
        self.watch_of(&issue.repo)?.pulls.what_became(issue.number, error)
    }

    /// Whoever wrote what starts no follow-up run is told so, once; what waits there waits no more.
    async fn refuse_round(
        &mut self,
        issue: &IssueRef,
        RefusedRound { pull, asked, instead }: RefusedRound<'_>,
        why: &str,
    ) -> Result<(), NotPrepared> {
        let number = issue.number;
        let text = format!("Nothing is done about this: {why}. {instead}");
        let marker = rendering::request_marker(&IssueKey::Number(number), &format!("command-{asked}"));
        self.quick_client().ensure_comment(&issue.repo, pull, &marker, &text).await?;
        tracing::info!(%issue, pull, why, "what people wrote starts no follow-up run");
        let why = why.to_owned();
        self.inbox(issue).update(move |inbox| inbox.leave_all_out(&why)).await?;
        Ok(())
    }

    /// Whoever asked for a follow-up run that had not begun when the pull request was merged or closed is told so.
    pub(super) async fn refuse_over(&mut self, issue: &IssueRef, merged: bool) -> Result<(), NotPrepared> {
        let inbox = self.inbox(issue).read().await?;
        let memory = self.memory(issue);
        let tried =
            memory.and_then(|memory| memory.followed.as_ref()).and_then(|followed| followed.tried.as_ref());
        let due = self.rules().due(&inbox).filter(|due| {
            let asked = Some(due.asked.remark.id);
            // Who was refused it before was told so.
            due.by == Starter::Person && !tried.is_some_and(|tried| tried.is_refused && tried.remark == asked)
        });
        let (Some(due), Some(pull)) = (due, memory.and_then(|memory| memory.pull)) else { return Ok(()) };
        if self.deps.max_follow_ups == 0 {
            return Ok(());
        }
        let (why, instead) = match merged {
            true => (
                "the pull request was merged before a run began",
                "For more work, write a new issue, or open this one again and put the label on.",
            ),
            false => (
                "the pull request was closed before a run began",
                "Open it again and write here again, or write a new issue.",
            ),
        };
        let refused = RefusedRound { pull, asked: due.asked.remark.id, instead };
        self.refuse_round(issue, refused, why).await
    }

    /// Whether the same start was refused before, so that people have to do something first.
    fn is_refused(&self, issue: &IssueRef, start: &TriedRound, now: chrono::DateTime<chrono::Utc>) -> bool {
        self.memory(issue)
            .and_then(|memory| memory.followed.as_ref())
            .is_some_and(|followed| followed.is_refused_for(start, now))
    }

    /// A follow-up run that is due cannot be had, since nobody who asks for it may: it waits for something new, and what others
    /// write meanwhile is heard. False = none is due.
    pub(super) fn refuse_follow_up(&mut self, issue: &IssueRef) -> bool {
        let Some(watch) = self.watch_of(&issue.repo) else { return false };
        let Some(wanted) = watch.pulls.wanted.remove(&issue.number) else { return false };
        watch.drop_candidate(issue.number);
        let memory = watch.state.issues.entry(issue.number).or_default();
        memory.followed.get_or_insert_default().refuse(wanted.fingerprint, wanted.tried);
        self.save();
        true
    }

    /// The follow-up run that what waits in the inbox asks for is not begun, until somebody writes again. False = there is none.
    pub(super) async fn refuse_due(&mut self, issue: &IssueRef) -> bool {
        let Ok(inbox) = self.inbox(issue).read().await else { return false };
        let Some(due) = self.rules().due(&inbox) else { return false };
        let Some(watch) = self.watch_of(&issue.repo) else { return false };
        let pull = watch.pulls.followed().find(|(number, _)| *number == issue.number);
        let Some(tried) = pull.map(|(_, pull)| TriedRound::of(Some(due.asked.remark.id), pull)) else {
            return false;
        };
        let followed = watch.state.issues.entry(issue.number).or_default().followed.get_or_insert_default();
        followed.refuse(followed.fingerprint.clone(), tried);
        self.save();
        true
    }

    /// Whether a follow-up run that waited is still to be begun: its pull request and what people wrote are read once more. One that is not
    /// is prepared anew where anything asks for it.
    pub(super) async fn is_still_due(&mut self, issue: &IssueRef) -> bool {
        self.look_once_more(issue).await.unwrap_or_else(|error| {
            tracing::warn!(%issue, %error, "a follow-up run that waited could not be looked at; it is tried again");
            false
        })
    }

    async fn look_once_more(&mut self, issue: &IssueRef) -> Result<bool, NotPrepared> {
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(false) };
        let Some(wanted) = watch.pulls.wanted.get(&issue.number) else { return Ok(true) };
        if wanted.since.elapsed() < JUST_NOW {
            return Ok(true);
        }
        let (cause, head) = (wanted.cause, wanted.tried.head.clone());
        let listed = watch.pulls.followed().find(|(number, _)| *number == issue.number);
        let listed = listed.map(|(_, pull)| pull.number);
        let due = match listed {
            None => false,
            Some(number) => {
                let pull = self.quick_client().pull(&issue.repo, number).await?;
                let base = self.memory(issue).and_then(|memory| memory.base.as_deref());
                let goes_there = base.is_none_or(|base| base == pull.base);
                pull.open
                    && goes_there
                    && match cause {
                        Cause::Checks => pull.head_sha == head,
                        Cause::Person | Cause::Bot => {
                            let inbox = self.read_again(issue, &pull).await?;
                            self.rules().due(&inbox).is_some()
                        }
                    }
            }
        };
        if let Some(watch) = self.watch_of(&issue.repo).filter(|_| !due) {
            tracing::info!(%issue, "a follow-up run that waited is not begun: what it was for has changed");
            watch.pulls.wanted.remove(&issue.number);
            watch.drop_candidate(issue.number);
            if let Some(looked) = listed.and_then(|pull| watch.pulls.looked_mut(pull)) {
                looked.answered = false;
            }
        }
        Ok(due)
    }

    /// Why a person has to go on first, as a code and in words: there were enough runs, or the pull request goes elsewhere now.
    fn why_held_back(&self, issue: &IssueRef, pull: &Pull, by: Starter) -> Option<(&'static str, String)> {
        let (most, most_bots) = (self.deps.conversation.max_rounds, self.deps.conversation.max_bot_rounds);
        let memory = self.memory(issue);
        let base = memory.and_then(|memory| memory.base.as_deref());
        let (all, bots) =
            memory.and_then(|memory| memory.followed.as_ref()).map_or((0, 0), |runs| (runs.all, runs.bots));
        if let Some(base) = base.filter(|base| *base != pull.base) {
            Some(("base_changed", base_changed(pull, base)))
        } else if all >= most {
            let text = format!("The pull request {} {NEEDS_WORK} {most} follow-up runs.", pull.url);
            Some(("follow_up_cap", text))
        } else if by == Starter::Bot && bots >= most_bots {
            let text = format!(
                "A bot goes on writing to the pull request {}. A person has to say something first.",
                pull.url
            );
            Some(("bot_cap", text))
        } else {
            None
        }
    }

    /// Whether a person was asked to go on for this reason, in these words.
    fn was_held_back(&self, issue: &IssueRef, code: &str, text: &str) -> bool {
        let followed = self.memory(issue).and_then(|memory| memory.followed.as_ref());
        followed.is_some_and(|followed| {
            let said = followed.held_back_words.as_deref();
            followed.held_back.as_deref() == Some(code) && said.is_none_or(|said| said == digest(text))
        })
    }

    /// Asks a person to go on, once for each reason: another check, commit or base branch is another one.
    pub(super) fn hold_back(&mut self, issue: &IssueRef, code: &'static str, text: String) {
        if self.was_held_back(issue, code, &text) {
            return;
        }
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        let memory = watch.state.issues.entry(issue.number).or_default();
        let followed = memory.followed.get_or_insert_default();
        (followed.held_back, followed.held_back_words) = (Some(code.to_owned()), Some(digest(&text)));
        self.plan_outcome(issue, IssueState::Attention, code, Some(text));
    }

    /// Reads what waits once more: as it is now, or not at all if it is gone, hidden or resolved.
    async fn read_again(&self, issue: &IssueRef, pull: &Pull) -> Result<Inbox, NotPrepared> {
        let (client, cell) = (self.quick_client(), self.inbox(issue));
        let inbox = cell.read().await?;
        let waiting: Vec<&Heard> = inbox.to_be_told().into_iter().filter(|heard| !heard.said).collect();
        let ids: Vec<String> = waiting.iter().filter_map(|heard| heard.remark.node_id.clone()).collect();
        if ids.is_empty() {
            return Ok(inbox);
        }
        let found = client.remarks_now(&ids).await?;
        let resolved = self.resolved(issue, pull, &inbox).await?;
        let rules = (&self.deps.conversation, self.deps.conversation.trusted_from(self.deps.min_permission));
        let mut people = People::under(&client, &issue.repo, rules, None);
        let mut now: BTreeMap<RemarkId, Result<(Remark, Standing), &'static str>> = BTreeMap::new();
        for heard in waiting {
            let Some(node) = &heard.remark.node_id else { continue };
            let present = found.get(node).filter(|present| !present.minimized);
            now.insert(
                heard.remark.id,
                match present {
                    None => Err("deleted or hidden"),
                    Some(_) if resolved.contains(&heard.remark.id) => Err("resolved"),
                    Some(present) => {
                        let remark = present.of(&heard.remark);
                        let standing = people.remark(&remark).await?.standing;
                        Ok((remark, standing))
                    }
                },
            );
        }
        let (inbox, ()) = cell
            .update(move |inbox| {
                for (id, present) in &now {
                    match present {
                        Err(why) => drop(inbox.leave_out(*id, why)),
                        Ok((remark, standing)) => inbox.refresh(remark.clone(), *standing),
                    }
                }
            })
            .await?;
        Ok(inbox)
    }

    /// What waits in threads of which no run was told yet and which are resolved now. A reply in a thread that is known already
    /// may be younger than that, and counts.
    async fn resolved(
        &self,
        issue: &IssueRef,
        pull: &Pull,
        inbox: &Inbox,
    ) -> Result<BTreeSet<RemarkId>, Error> {
        let waiting: BTreeMap<RemarkId, &Remark> =
            inbox.waiting().into_iter().map(|heard| (heard.remark.id, &heard.remark)).collect();
        let opening = |remark: &Remark| match (remark.kind, remark.in_reply_to) {
            (RemarkKind::ReviewComment, Some(first)) => Some(RemarkId::ReviewComment(first)),
            (RemarkKind::ReviewComment, None) => Some(remark.id),
            _ => None,
        };
        let new: Vec<(RemarkId, RemarkId)> = waiting
            .iter()
            .filter_map(|(id, remark)| Some((*id, opening(remark)?)))
            .filter(|(_, first)| waiting.contains_key(first))
            .collect();
        if new.is_empty() {
            return Ok(BTreeSet::new());
        }
        let pages = self.deps.conversation.max_pages;
        let threads = self.quick_client().review_threads(&issue.repo, pull.number, pages).await?;
        let resolved = threads.items.iter().filter(|thread| thread.resolved);
        let resolved: BTreeSet<RemarkId> =
            resolved.filter_map(|thread| Some(thread.comments.first()?.id)).collect();
        Ok(new.into_iter().filter(|(_, first)| resolved.contains(first)).map(|(id, _)| id).collect())
    }
}

/// Why nothing is done on the pull request of an issue that is not open here any more.
fn of_no_issue(issue: &IssueRef, became: &str) -> String {
    format!("issue #{} {became}, and agentd works on issues", issue.number)
}

/// Tells what was said to a person from what is said another time.
fn digest(text: &str) -> String {
    sha256_hex(text.as_bytes())[..16].to_owned()
}

/// What people are told where the pull request goes to another branch now.
pub(super) fn base_changed(pull: &Pull, base: &str) -> String {
    format!(
        "The pull request {} goes to `{}` now, and was made for `{base}`. No further run starts on it by itself. Change the \
         base branch back, or put the label on again for one more run on this branch: then `{}` counts.",
        pull.url, pull.base, pull.base
    )
}
