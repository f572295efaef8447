//! What people say about an issue while its run works: from the inbox to the model, each remark once, whatever is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::DateTime;
use futures::FutureExt as _;
use tokio::sync::Mutex;

use super::run::Run;
use crate::config::conversation_file::ConversationTable;
use crate::conversation::briefing::{fenced_alone, standing_at, written_on};
use crate::conversation::inbox::inbox_format::{Fate, Heard, Inbox};
use crate::conversation::inbox::{BriefedWords, InboxCell, Inboxes};
use crate::conversation::issue_text;
use crate::conversation::standing::People;
use crate::domain::event::Event;
use crate::domain::facts::RunFacts;
use crate::domain::issue::ObjectiveSource;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;
use crate::domain::redaction::Redactor;
use crate::domain::remark::{Remark, RemarkId, RemarkKind, ReviewState};
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::text_revision::AskedHow;
use crate::engine::new_remarks::{NewRemark, RemarksSince};
use crate::engine::session_trace::WITHHELD;
use crate::engine::shortage::is_of_the_day;
use crate::github::{Client, ReviewThread};
use crate::issue::reference::Asked;
use crate::record::run_journal::RunJournal;

/// What is told of a remark beside its text, in characters, roughly.
const FRAME: usize = 400;

/// The inbox of a run's issue; `None` = its number is a file's, and in the tracker it is another one's, or the run is a replay.
fn inbox(run: &Run<'_>) -> Option<InboxCell> {
    let key = &run.plan.issue.key;
    let is_own = run.tracked_issue().is_some() || key.number().is_none();
    let inboxes = Inboxes::new(&run.context.state, &run.context.repo);
    (is_own && run.context.replay.is_none()).then(|| inboxes.of(key.clone()))
}

/// What a run that this one continues was told in a visit that is kept is not told again; what waits is told by a run that a person
/// starts, with the rest of the issue.
pub async fn open(run: &Run<'_>) {
    let Some(cell) = inbox(run) else { return };
    let told: BTreeSet<RemarkId> = kept(run).into_keys().collect();
    let by_hand = run.plan.request.source == ObjectiveSource::Cli;
    let note = move |inbox: &mut Inbox| {
        inbox.keep_told(&told);
        inbox.release_said();
        if by_hand {
            inbox.take();
        }
    };
    if let Err(error) = cell.update(note).await {
        run.journal.warn("inbox_unreadable", format!("What was said of the issue cannot be read: {error}."));
    }
}

/// Gives what is said from now on to the sessions of the run.
pub fn since(run: &Run<'_>) -> Option<RemarksSince> {
    if let Some(recorded) = &run.context.replay {
        let recorded = Arc::clone(recorded);
        return Some(Arc::new(move |visit, turn| {
            let said = recorded.new_remarks(visit, turn);
            async move { said }.boxed()
        }));
    }
    let config = &run.context.config;
    let trusted = config.conversation.trusted_from(config.github.min_permission);
    let listener = Arc::new(Listener {
        cell: inbox(run)?,
        rules: (config.conversation.clone(), trusted),
        repo: run.context.repo.clone(),
        pages: run.context.config.conversation.max_pages,
        github: run.context.github.clone(),
        redactor: Arc::clone(&run.plan.redactor),
        journal: run.journal.clone(),
        most: run.context.config.conversation.max_chars_each,
        given: Mutex::default(),
    });
    Some(Arc::new(move |_, _| {
        let listener = Arc::clone(&listener);
        async move { listener.take().await }.boxed()
    }))
}

/// How many remarks wait for a turn or for another run.
pub async fn waiting(run: &Run<'_>) -> usize {
    let Some(cell) = inbox(run) else { return 0 };
    cell.read().await.map_or(0, |inbox| inbox.waiting().len())
}

/// What was told and changed afterwards is named in the report; nothing is undone.
pub async fn note_changes(run: &Run<'_>) {
    note_changed_text(run).await;
    let Some(cell) = inbox(run) else { return };
    let found = cell
        .update(|inbox| {
            let mut changed = Vec::new();
            for heard in inbox.remarks.values_mut().filter(|heard| heard.changed) {
                heard.changed = false;
                changed.push((heard.remark.id, heard.remark.login.clone()));
            }
            changed
        })
        .await;
    for (id, login) in found.map(|(_, changed)| changed).unwrap_or_default() {
        let by = login.unwrap_or_else(|| "somebody".to_owned());
        run.journal.warn(
            "remark_changed",
            format!("{id} of {by} was changed after it was told; nothing was undone."),
        );
    }
}

/// The same of the issue itself.
async fn note_changed_text(run: &Run<'_>) {
    // Who is told to end at once, as where another node has the issue, asks nothing more.
    if run.aborted().is_some() {
        return;
    }
    let (plan, context) = (run.plan, run.context);
    let Some(github) = context.github.as_ref().filter(|_| inbox(run).is_some()) else { return };
    let asked = match plan.request.asked.clone() {
        Some(asked) => asked,
        None => {
            let Some(number) = plan.issue.key.number() else { return };
            // The operator's text is the one that was read. When that was by GitHub's clock is not known: only what differs was changed.
            match github.issue(&context.repo, number).await {
                Ok(now) if (&now.issue.title, &now.issue.body) != (&plan.issue.title, &plan.issue.body) => {}
                _ => return,
            }
            let started = DateTime::from_timestamp_millis(run.journal.facts().started_at);
            let Some(at) = started else { return };
            Asked { by: None, how: AskedHow::Operator, at }
        }
    };
    match issue_text::changed_since(&plan.issue, &asked, github, context).await {
        Ok(Some(told)) => run.journal.warn("issue_text_changed", told),
        Ok(None) => {}
        Err(error) => {
            tracing::debug!(%error, "it is not known whether the issue's text was changed meanwhile");
        }
    }
}

/// Whether nobody read what the run was to tell, because no model answers or the day's money is used up: that says nothing of what
/// people wrote, and another run tells it.
pub fn are_untold(facts: &RunFacts, end: &Stop) -> bool {
    // Of what came in a model's place, and of waiting for one, as well.
    let unanswered = matches!(end.detail, StopDetail::InvalidModelOutput | StopDetail::MaxWallTime);
    (end.detail.is_for_want_of_a_model() || unanswered || is_of_the_day(end))
        && facts.totals().nobody_answered()
}

/// Whether an agent program failed before a model answered: it may have read nothing of what the run was to tell. What becomes of the run is
/// the program's matter, and what people wrote waits for another one.
pub fn is_unread(facts: &RunFacts, end: &Stop) -> bool {
    end.detail == StopDetail::AgentCliFailed && facts.totals().nobody_answered()
}

/// What the run was started with was told, if it made a visit of its own and nobody goes on with it.
pub async fn close(run: &Run<'_>) {
    let Some(cell) = inbox(run) else { return };
    let facts = run.journal.facts();
    let begun = facts.unfinished.is_some() || facts.visits.len() > facts.imported;
    let goes_on =
        facts.end.as_ref().is_some_and(|end| end.detail == StopDetail::Shutdown || are_untold(&facts, end));
    let is_unread = facts.end.as_ref().is_some_and(|end| is_unread(&facts, end));
    let mut told = told(&facts, usize::MAX);
    told.extend(kept(run));
    let note = move |inbox: &mut Inbox| {
        if is_unread {
            // The agent program may have read nothing, and what was said to the run alone stands nowhere else.
            told.retain(|id, _| inbox.remarks.get(id).is_none_or(|heard| !heard.said));
        }
        // The run that goes on with it knows from its journal what was told. Until then all of it waits: that asks for that run.
        if !goes_on {
            inbox.tell(&told);
        }
        inbox.give_back(begun && !goes_on);
    };
    if let Err(error) = cell.update(note).await {
        tracing::error!(%error, "what was told cannot be noted");
    }
}

/// What the run that this one continues was told in the visits that are kept. What was told in a visit that is made again is told again.
fn kept(run: &Run<'_>) -> BTreeMap<RemarkId, Option<String>> {
    let before = run.lease.predecessor.as_ref();
    before.map(|before| told(&before.facts, before.facts.visits.len())).unwrap_or_default()
}

/// The remarks that a run was told in its first visits, so many of them.
fn told(facts: &RunFacts, visits: usize) -> BTreeMap<RemarkId, Option<String>> {
    let told = facts.other.iter().filter_map(|(_, event)| match event {
        Event::RemarkTold { id, visit, .. } if *visit as usize <= visits => Some((*id, None)),
        _ => None,
    });
    told.collect()
}

/// What people wrote and said on this machine, and that waits: the run is told it from the start. With it, what else was heard.
pub async fn to_be_told(run: &Run<'_>) -> (Vec<Remark>, BTreeSet<RemarkId>) {
    let Some(cell) = inbox(run) else { return Default::default() };
    let inbox = cell.read().await.unwrap_or_default();
    let untold = inbox.untold().into_iter().map(|heard| heard.remark.clone()).collect();
    (untold, inbox.remarks.into_keys().collect())
}

/// Where remarks of the issue stand on GitHub, by name.
pub async fn addresses(run: &Run<'_>) -> BTreeMap<String, String> {
    let Some(cell) = inbox(run) else { return BTreeMap::new() };
    let inbox = cell.read().await.unwrap_or_default();
    let address = |heard: &Heard| Some((heard.remark.id.to_string(), heard.remark.url.clone()?));
    inbox.remarks.values().filter_map(address).collect()
}

/// The run was told these from the start; no turn tells them again.
pub async fn are_told(run: &Run<'_>, told: BriefedWords) {
    let Some(cell) = inbox(run) else { return };
    if let Err(error) = cell.update(move |inbox| inbox.hold(&told)).await {
        run.journal.warn(
            "inbox_unreadable",
            format!("What was said of the issue cannot be noted as told: {error}."),
        );
    }
}

/// Listens for one run.
struct Listener {
    cell: InboxCell,
    repo: RepoName,
    /// Most pages of a pull request's threads.
    pages: u32,
    /// Who is trusted.
    rules: (ConversationTable, ActorPermission),
    github: Option<Client>,
    redactor: Arc<Redactor>,
    journal: RunJournal,
    /// Most characters of one message.
    most: usize,
    /// What was given, with its versions. It is on the record when more is asked for.
    given: Mutex<BTreeMap<RemarkId, Option<String>>>,
}

impl Listener {
    /// What came since the last time. What does not fit into one message comes the next time.
    async fn take(&self) -> Vec<NewRemark> {
        let mut given = self.given.lock().await;
        match self.waiting(&given).await {
            Ok(waiting) => {
                let mut said = Vec::new();
                let mut left = self.most;
                let threads = self.threads(&waiting).await;
                for heard in waiting {
                    // The first one is told whatever its length.
                    if !said.is_empty() && left < FRAME + heard.remark.text.chars().count() {
                        break;
                    }
                    let thread = threads.iter().find(|thread| thread.has(heard.remark.id));
                    let text = self.told((&heard, thread), left.saturating_sub(FRAME).max(FRAME));
                    left = left.saturating_sub(text.chars().count());
                    self.note(Event::RemarkHeard { id: heard.remark.id });
                    given.insert(heard.remark.id, Some(heard.version.clone()));
                    let thread = thread.map(|thread| thread.id.clone());
                    said.push(NewRemark { id: heard.remark.id, text, thread });
                }
                said
            }
            Err(error) => {
                self.journal
                    .warn("inbox_unreadable", format!("What was said of the issue cannot be read: {error}."));
                Vec::new()
            }
        }
    }

    /// What waits, read once more: what was deleted or hidden is dropped.
    async fn waiting(
        &self,
        given: &BTreeMap<RemarkId, Option<String>>,
    ) -> Result<Vec<Heard>, crate::store::port::StoreError> {
        let told = given.clone();
        let inbox = self.cell.read().await?;
        let inbox = match inbox.said_meanwhile().iter().any(|heard| is_given(given, heard)) {
            true => self.cell.update(move |inbox| inbox.tell(&told)).await?.0,
            false => inbox,
        };
        let mut waiting: Vec<Heard> =
            inbox.said_meanwhile().into_iter().filter(|heard| !is_given(given, heard)).cloned().collect();
        let ids: Vec<String> = waiting
            .iter()
            .filter(|heard| !heard.said)
            .filter_map(|heard| heard.remark.node_id.clone())
            .collect();
        let found = match (&self.github, ids.is_empty()) {
            // Where GitHub cannot be asked, what was heard last counts.
            (Some(github), false) => github.remarks_now(&ids).await.ok(),
            _ => None,
        };
        let mut gone: Vec<(RemarkId, &'static str)> = Vec::new();
        waiting.retain(|heard| {
            let is_blank = says_nothing(&heard.remark);
            if is_blank {
                gone.push((heard.remark.id, "only its comments say something"));
            }
            !is_blank
        });
        if let (Some(found), Some(github)) = (found, &self.github) {
            let rules = (&self.rules.0, self.rules.1);
            let mut people = People::under(github, &self.repo, rules, None);
            let (mut told, mut lesser) = (Vec::new(), Vec::new());
            for mut heard in waiting {
                let node = heard.remark.node_id.as_ref().filter(|_| !heard.said);
                let Some(node) = node else {
                    told.push(heard);
                    continue;
                };
                let Some(present) = found.get(node).filter(|present| !present.minimized) else {
                    gone.push((heard.remark.id, "deleted or hidden"));
                    continue;
                };
                let now = present.of(&heard.remark);
                let standing = match (now.edited, &now.editor) == (heard.remark.edited, &heard.remark.editor)
                {
                    true => heard.standing,
                    // Whoever edited it speaks in it as well.
                    false => match people.remark(&now).await {
                        Ok(judged) => Some(judged.standing),
                        Err(error) => {
                            tracing::warn!(%error, id = %now.id, "how an editor stands could not be read; it is told later");
                            continue;
                        }
                    },
                };
                if standing == heard.standing {
                    heard.remark = now;
                    told.push(heard);
                } else if let Some(standing) = standing {
                    lesser.push((now, standing));
                }
            }
            waiting = told;
            if !lesser.is_empty() {
                let judge = move |inbox: &mut Inbox| {
                    for (remark, standing) in &lesser {
                        inbox.refresh(remark.clone(), *standing);
                    }
                };
                self.cell.update(judge).await?;
            }
        }
        if !gone.is_empty() {
            for (id, why) in &gone {
                self.note(Event::RemarkDropped { id: *id, why: (*why).to_owned() });
            }
            let leave_out = move |inbox: &mut Inbox| {
                for (id, why) in &gone {
                    inbox.leave_out(*id, why);
                }
            };
            self.cell.update(leave_out).await?;
        }
        Ok(waiting)
    }

    /// The threads of what waits: a comment on a line means nothing without it. Where GitHub does not say them, it is told as it is.
    async fn threads(&self, waiting: &[Heard]) -> Vec<ReviewThread> {
        let commented = waiting.iter().find(|heard| heard.remark.kind == RemarkKind::ReviewComment);
        let (Some(github), Some(heard)) = (&self.github, commented) else { return Vec::new() };
        match github.review_threads(&self.repo, heard.remark.number, self.pages).await {
            Ok(threads) => threads.items,
            Err(error) => {
                tracing::warn!(%error, "comments on lines are told without their lines");
                Vec::new()
            }
        }
    }

    /// If it cannot be written, the next thing that has to be ends the run.
    fn note(&self, event: Event) {
        if let Err(error) = self.journal.record(event) {
            tracing::error!(%error, "what was heard is not in the journal");
        }
    }

    /// A remark as a model is told it.
    fn told(&self, (heard, thread): (&Heard, Option<&ReviewThread>), most: usize) -> String {
        let remark = &heard.remark;
        let login = remark.login.as_deref().unwrap_or("somebody");
        let at = remark.created.format("%Y-%m-%d %H:%M:%S UTC");
        let standing = heard.standing.map_or("outsider", |standing| standing.as_str());
        let source = format!("{} {} of {login} ({standing}), {at}", remark.kind, remark.id);
        let about = match (heard.fate == Fate::Waiting && !heard.changed, remark.state) {
            (false, _) => "Changed after you were told it: ",
            (_, Some(ReviewState::ChangesRequested)) => "A review that asks for changes: ",
            (_, Some(ReviewState::Approved)) => "An approving review: ",
            _ => "",
        };
        let place = thread.map_or_else(String::new, |thread| {
            format!("In a thread {}:{}\n", standing_at(thread), written_on(thread, str::to_owned))
        });
        let told = format!("{about}{place}{}", fenced_alone(&source, &remark.text, most));
        self.redactor.redact(&told).map_or_else(|_| WITHHELD.to_owned(), std::borrow::Cow::into_owned)
    }
}

/// Whether a review only holds its comments together, as GitHub makes one around each reply in a thread.
fn says_nothing(remark: &Remark) -> bool {
    remark.kind == RemarkKind::Review
        && remark.state != Some(ReviewState::Approved)
        && remark.text.trim().is_empty()
}

fn is_given(given: &BTreeMap<RemarkId, Option<String>>, heard: &Heard) -> bool {
    given.get(&heard.remark.id).is_some_and(|version| version.as_ref() == Some(&heard.version))
}
