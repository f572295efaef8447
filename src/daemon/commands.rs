//! What is made of what was heard: how its authors stand, what permitted people command, and a sign that it was heard.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};

use super::admission::Admission;
use super::main_loop::Daemon;
use super::plans::Decides;
use super::snapshot::IssueRef;
use super::state_format::{AskedBy, OwedAnswer};
use crate::conversation::inbox::inbox_format::{Fate, Heard, Inbox};
use crate::conversation::inbox::{InboxCell, Inboxes};
use crate::conversation::standing::People;
use crate::domain::call_text::one_line;
use crate::domain::command::{Command, Extension, KNOWN};
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::policy::ActorPermission;
use crate::domain::remark::{RemarkId, Standing};
use crate::domain::text_revision::AskedHow;
use crate::github::Error;
use crate::issue::approval::{self, NewApproval};
use crate::lifecycle::beside::BesideRequest;
use crate::record::rendering;
use crate::store::port::StoreError;

/// How many strangers are looked up in a tick, a repository. Others wait for the next tick.
const STRANGERS: usize = 3;
/// How many signs are put on in a tick, a repository.
const SIGNS: usize = 5;
/// So much of a command's first line is repeated in its answer.
const LONGEST_LINE: usize = 100;
/// So much of a word that is none is.
const LONGEST_WORD: usize = 40;
/// What people do where a command could not be carried out now.
pub(super) const ASK_AGAIN: &str = "please write it again";

/// What a repository's people have cost in a tick.
#[derive(Debug, Default)]
struct Spent {
    /// Signs that were put on what they wrote.
    signs: usize,
    /// How many strangers were looked up.
    strangers: usize,
    /// A stranger was told that they may not command.
    refused: bool,
}

/// How an author stands.
#[derive(Debug, Clone, Copy)]
struct Judged {
    standing: Standing,
    permission: Option<ActorPermission>,
}

impl Daemon {
    /// The inbox of an issue.
    pub(super) fn inbox(&self, issue: &IssueRef) -> InboxCell {
        Inboxes::new(&self.deps.state, &issue.repo).of(issue.number)
    }

    /// Makes what is to be made of everything that was heard.
    pub(super) async fn attend(&mut self, looked: &BTreeSet<RepoName>) {
        // How far was read is noted before anything is done.
        self.save();
        let mut due = Vec::new();
        for watch in self.watches.iter().filter(|watch| looked.contains(&watch.watched.name)) {
            let repo = &watch.watched.name;
            due.extend(
                watch.state.attend.iter().map(|number| IssueRef { repo: repo.clone(), number: *number }),
            );
        }
        self.answer_again(looked).await;
        let mut spent = BTreeMap::<RepoName, Spent>::new();
        for issue in due {
            let spent = spent.entry(issue.repo.clone()).or_default();
            match self.attend_to(&issue, spent).await {
                Ok(left) => {
                    if let Some(watch) = self.watch_of(&issue.repo) {
                        watch.unheard.remove(&issue.number);
                        if !left {
                            watch.state.attend.remove(&issue.number);
                        }
                    }
                }
                Err(error) => {
                    let known = self
                        .watch_of(&issue.repo)
                        .and_then(|watch| watch.unheard.insert(issue.number, error.to_string()));
                    if known.is_none() {
                        tracing::error!(%issue, %error, "what was heard cannot be kept; it is tried again");
                    }
                }
            }
        }
    }

    /// Makes what is to be made of what was heard on one issue.
    pub(super) async fn attend_now(&mut self, issue: &IssueRef) {
        if let Err(error) = self.attend_to(issue, &mut Spent::default()).await {
            tracing::error!(%issue, %error, "what was heard cannot be kept");
        }
    }

    /// One inbox. False = nothing is left to be made of it.
    async fn attend_to(&mut self, issue: &IssueRef, spent: &mut Spent) -> Result<bool, StoreError> {
        let cell = self.inbox(issue);
        let works = self.supervisor.get(issue).is_some();
        let inbox = match self.freed.insert(issue.clone()) && !works {
            // A run of an earlier daemon that was started with some of it is no more.
            true => cell.update(|inbox| inbox.give_back(false)).await?.0,
            false => cell.read().await?,
        };
        let mut left = self.judge(issue, &cell, &inbox, spent).await?;
        let inbox = cell.read().await?;
        let pending =
            |heard: &&Heard| heard.fate == Fate::Command && !heard.acknowledged && heard.standing.is_some();
        let mut commands: Vec<Heard> = inbox.remarks.values().filter(pending).cloned().collect();
        commands.sort_by_key(|heard| (heard.remark.created, heard.remark.id));
        for heard in commands {
            left |= !self.heed(issue, &cell, heard, spent).await?;
        }
        left |= self.show_heard(issue, &cell, &inbox, spent).await?;
        left |= self.rules().due(&inbox).is_some();
        Ok(left)
    }

    /// Finds out how authors stand. True = some of them are looked up in a later tick: also those of whom GitHub did not say.
    async fn judge(
        &mut self,
        issue: &IssueRef,
        cell: &InboxCell,
        inbox: &Inbox,
        spent: &mut Spent,
    ) -> Result<bool, StoreError> {
        let open = |heard: &&Heard| match heard.fate {
            Fate::Waiting => true,
            Fate::Command => !heard.acknowledged,
            // A run was told it before it was heard, and it was changed since.
            Fate::Told => heard.changed,
            Fate::Dropped => false,
        };
        let mut unknown: Vec<&Heard> =
            inbox.remarks.values().filter(open).filter(|heard| heard.standing.is_none()).collect();
        // Members of the repository come first; otherwise the order of writing counts.
        unknown.sort_by_key(|heard| (!heard.member, heard.remark.created, heard.remark.id));
        let client = self.quick_client();
        let rules = (&self.deps.conversation, self.deps.conversation.trusted_from(self.deps.min_permission));
        let mut people = People::under(&client, &issue.repo, rules, None);
        let mut known = Vec::new();
        for heard in &unknown {
            if !heard.member {
                if spent.strangers >= STRANGERS {
                    continue;
                }
                spent.strangers += 1;
            }
            match people.account(heard.remark.login.as_deref(), heard.remark.bot).await {
                Ok(judged) => known.push((heard.remark.id, judged.standing)),
                // Nothing becomes of what they wrote until it is known.
                Err(error) => {
                    tracing::warn!(%issue, id = %heard.remark.id, %error, "how an author stands could not be read; it is asked again");
                }
            }
        }
        let left = known.len() < unknown.len();
        let trusted = known.iter().any(|(_, standing)| *standing == Standing::Trusted);
        if trusted && let Some(watch) = self.watch_of(&issue.repo) {
            // A person has seen what came of it: bots and checks have their follow-up runs again.
            if let Some(followed) =
                watch.state.issues.get_mut(&issue.number).and_then(|memory| memory.followed.as_mut())
            {
                (followed.rounds, followed.bots) = (0, 0);
                (followed.held_back, followed.held_back_words) = (None, None);
            }
        }
        if !known.is_empty() {
            let stand = move |inbox: &mut Inbox| {
                for (id, standing) in &known {
                    if let Some(heard) = inbox.remarks.get_mut(id) {
                        heard.stands(*standing);
                    }
                }
            };
            cell.update(stand).await?;
        }
        Ok(left)
    }

    /// Puts a sign on what trusted people wrote, once. True = some of them have theirs in a later tick: a sign is the least of what is
    /// written, and GitHub takes so many writes a minute.
    async fn show_heard(
        &self,
        issue: &IssueRef,
        cell: &InboxCell,
        inbox: &Inbox,
        spent: &mut Spent,
    ) -> Result<bool, StoreError> {
        let unseen = |heard: &&Heard| {
            heard.fate == Fate::Waiting && heard.standing == Some(Standing::Trusted) && !heard.acknowledged
        };
        let client = self.quick_client();
        let mut shown = BTreeSet::new();
        let wait = inbox.remarks.values().filter(unseen).count();
        let room = SIGNS.saturating_sub(spent.signs);
        spent.signs += wait.min(room);
        for heard in inbox.remarks.values().filter(unseen).take(room) {
            let id = heard.remark.id;
            match client.show_heard(&issue.repo, id).await {
                Err(error) if error.is_transient() => {}
                Err(error) => {
                    tracing::debug!(%issue, %id, %error, "no sign can be put on a remark");
                    shown.insert(id);
                }
                Ok(()) => drop(shown.insert(id)),
            }
        }
        if shown.is_empty() {
            return Ok(wait > room);
        }
        let note = move |inbox: &mut Inbox| {
            let seen = inbox.remarks.values_mut().filter(|heard| shown.contains(&heard.remark.id));
            seen.for_each(|heard| heard.acknowledged = true);
        };
        cell.update(note).await?;
        Ok(wait > room)
    }

    /// Follows a command or refuses it, at most once: that it is done is on disk before. False = its turn is in a later
    /// tick: one refusal is written in each, and a run that ends is waited for.
    async fn heed(
        &mut self,
        issue: &IssueRef,
        cell: &InboxCell,
        heard: Heard,
        spent: &mut Spent,
    ) -> Result<bool, StoreError> {
        let Heard { remark, author_id, standing, .. } = heard;
        let (Some(command), Some(login)) = (Command::of(&remark.text), remark.login.clone()) else {
            return Ok(true);
        };
        if spent.refused && standing != Some(Standing::Trusted) {
            return Ok(false);
        }
        let (id, now) = (remark.id, self.deps.clock.now());
        let (client, needs) = (self.quick_client(), self.deps.min_permission);
        let permission = match client.permission(&issue.repo, &login).await {
            Ok(permission) => Some(permission),
            Err(error) if error.is_transient() => return Ok(false),
            Err(error) => {
                tracing::warn!(%issue, %error, "what the author of a command may do could not be read");
                None
            }
        };
        // A run that has shown its end is over in a moment. What starts another one waits for that, and so does what gives back what it
        // hands over.
        if matches!(command, Command::Run | Command::Extend(Extension::Again) | Command::GiveBack(_))
            && self.supervisor.get(issue).is_some()
            && let Ok(seen) = client.issue(&issue.repo, issue.number).await
            && !seen.has_label(&self.deps.labels.running)
        {
            return Ok(false);
        }
        // A run that has only just begun cannot be asked yet.
        if command == Command::Take
            && self.supervisor.get(issue).is_some()
            && self.deps.progress.run_of(issue).is_none()
        {
            return Ok(false);
        }
        let judged = Judged { standing: standing.unwrap_or(Standing::Outsider), permission };
        let may = match &command {
            // Any trusted person approves a plan, as by a reaction.
            Command::Approve(hash) if self.is_of_plan(issue, hash).await => {
                judged.standing == Standing::Trusted
            }
            command => judged.may(command, needs),
        };
        let (_, refuses) = cell
            .update(move |inbox| {
                if let Some(heard) = inbox.remarks.get_mut(&id) {
                    heard.acknowledged = true;
                }
                !may && standing != Some(Standing::Bot) && inbox.may_refuse(now)
            })
            .await?;
        if may {
            let by = AskedBy { login, id: author_id, at: Some(remark.created), how: AskedHow::Comment };
            let said = said_by(&remark.text);
            let Some(text) = self.follow(command, issue, (id, remark.number), by, permission).await else {
                // Nothing of it is done yet, and doing it twice is the same as once.
                let again = move |inbox: &mut Inbox| {
                    if let Some(heard) = inbox.remarks.get_mut(&id) {
                        heard.acknowledged = false;
                    }
                };
                cell.update(again).await?;
                return Ok(false);
            };
            self.answer(issue, (Some(id), remark.number, Some(remark.created)), &format!("{said}{text}"))
                .await;
        } else if refuses {
            let takes = needs.max(self.deps.conversation.trusted_from(needs));
            spent.refused = true;
            self.answer(
                issue,
                (Some(id), remark.number, Some(remark.created)),
                &refused(&login, judged, takes),
            )
            .await;
        } else {
            tracing::debug!(%issue, by = login, "a command of somebody who may not is passed over");
        }
        Ok(true)
    }

    /// Gives what its author is told. `None` = GitHub did not answer, and nothing was done.
    async fn follow(
        &mut self,
        command: Command,
        issue: &IssueRef,
        (id, on): (RemarkId, u64),
        by: AskedBy,
        permission: Option<ActorPermission>,
    ) -> Option<String> {
        tracing::info!(%issue, command = command.name(), by = by.login, "a command in a comment");
        Some(match command {
            Command::Run => self.run_for(issue, by).await?,
            Command::Extend(Extension::Again) => match self.extend(issue, &by.login) {
                Some(text) => text,
                None => self.run_for(issue, by).await?,
            },
            Command::Extend(Extension::By(amount)) => self.extend_by(issue, amount, by, id).await,
            Command::Extend(Extension::Unreadable(said)) => format!(
                "`{}` is no amount of US dollars, and nothing was changed. Write digits, with at most two behind a point: \
                 `/agentd extend 5`. `/agentd extend` alone gives as much again of each budget.",
                one_line(&said, LONGEST_WORD).replace('`', "'")
            ),
            Command::Stop => self.stop_for(issue, &by).await,
            Command::Approve(hash) if self.is_of_plan(issue, &hash).await => {
                self.told_of_plan(issue, Decides::Approves).await
            }
            Command::Approve(proposal) => self.approve_for(issue, proposal, by).await,
            Command::Answer(text) => self.answer_for(issue, id, &text).await,
            Command::Reject(why) => self.told_of_plan(issue, Decides::Rejects(why.trim())).await,
            Command::Say(text) => self.say_for(issue, id, text).await,
            Command::Take => self.take_for(issue, &by.login).await,
            Command::GiveBack(text) => self.give_back_for(issue, &by, permission, (id, on), &text).await,
            Command::Unknown(word) if word.is_empty() || word == "help" => {
                format!("These are the commands, each on the first line of a comment of its own:\n\n{KNOWN}")
            }
            Command::Unknown(word) => {
                let word = one_line(&word, LONGEST_WORD).replace('`', "'");
                format!("`{word}` is no command, and nothing was done. These are:\n\n{KNOWN}")
            }
        })
    }

    /// Keeps what somebody says to the run; gives where it stands.
    async fn say_for(&mut self, issue: &IssueRef, id: RemarkId, text: String) -> String {
        if text.is_empty() {
            return "There is nothing to tell: write `/agentd say TEXT`.".to_owned();
        }
        let said = move |inbox: &mut Inbox| inbox.say(id, &text);
        if let Err(error) = self.inbox(issue).update(said).await {
            tracing::error!(%issue, %error, "what was said cannot be kept");
            return "It could not be kept; say it again.".to_owned();
        }
        match self.deps.progress.run_of(issue) {
            Some(run) => format!("Queued for run {run}."),
            None if self.supervisor.get(issue).is_some() => {
                "Queued for the run that has just begun.".to_owned()
            }
            None => match (self.deps.beside)(issue.clone(), BesideRequest::Know).await {
                Ok(Some(run)) => format!("Queued for run {run}."),
                Ok(None) => "It waits for the next run.".to_owned(),
                Err(refusal) => format!("It waits for the next run here. {}", refusal.stop.message),
            },
        }
    }

    /// Gives the working run more budget. Gives the answer for people. `None` = no run works.
    fn extend(&self, issue: &IssueRef, by: &str) -> Option<String> {
        let live = self.supervisor.get(issue)?;
        if let Some(node) = live.control.extend_elsewhere(by) {
            return Some(format!(
                "{by} gives the run as much again of each budget; it works on {node}, and its log says when it has heard."
            ));
        }
        Some(match live.control.extender.extend(by) {
            Ok(Some(budgets)) => {
                format!("{by} gave the run as much again of each budget: it may take {} now.", budgets.all_shown())
            }
            Ok(None) => "The run has not begun to work on it yet, or does not any more. When it has ended, `/agentd extend` \
                         starts another one on the same branch, with a fresh budget."
                .to_owned(),
            Err(error) => format!("The run could not be given more: {error}."),
        })
    }

    /// Queues a run; gives what is to be told. `None` = GitHub did not answer, and none is queued yet.
    async fn run_for(&mut self, issue: &IssueRef, by: AskedBy) -> Option<String> {
        if self.supervisor.get(issue).is_some() {
            let text = "A run works on it already. When it has ended, `/agentd extend` starts another one on the same \
                        branch, with a fresh budget.";
            return Some(text.to_owned());
        }
        if self.is_taken(issue) {
            let text = "A person has the work on this issue; `/agentd give-back TEXT` lets agentd go on.";
            return Some(text.to_owned());
        }
        let waits = self.waits_for(issue).await;
        if let Some(waits) = waits.as_ref().filter(|_| self.is_waited_for(issue)) {
            return Some(format!("No run was queued. {waits}"));
        }
        let login = by.login.clone();
        Some(match self.queue(issue, by).await {
            Ok(true) => match (waits, self.money_gone(issue).await) {
                (Some(waits), _) => waits,
                (None, Some((spent, cap))) => format!(
                    "A run is queued for {login}, but none starts yet: the budget of this issue is used up ({spent} of {cap} is \
                     spent). `/agentd extend 5` gives it 5 USD more."
                ),
                (None, None) => match self.begins_later(issue) {
                    Some(later) => format!("A run is queued for {login}. {later}"),
                    None => format!("A run is queued for {login}; the status comment says how it goes."),
                },
            },
            Ok(false) => "The issue is closed; open it again first.".to_owned(),
            Err(error) if error.is_transient() => {
                tracing::warn!(%issue, %error, "a command could not be followed yet; it is tried again");
                return None;
            }
            Err(error) => {
                tracing::warn!(%issue, %error, "a command could not be followed");
                format!("The run that {login} asked for could not be queued: {error}.")
            }
        })
    }

    /// Has an issue worked on again for somebody. False = it is closed.
    pub(super) async fn queue(&mut self, issue: &IssueRef, by: AskedBy) -> Result<bool, Error> {
        let client = self.quick_client();
        let trigger = self.deps.labels.trigger.clone();
        if !client.issue(&issue.repo, issue.number).await?.issue.open {
            return Ok(false);
        }
        client.add_labels(&issue.repo, issue.number, &[&trigger]).await?;
        let now = self.deps.clock.now();
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.queued.insert(issue.number, now);
            let memory = watch.state.issues.entry(issue.number).or_default();
            memory.asked_by = Some(by);
            memory.back_off = None;
            memory.parked = None;
        }
        // The list in hand does not show it yet.
        self.hints.look_now();
        Ok(true)
    }

    /// Grants the approval, and starts the issue again if no run works on it. Only a run that makes the same proposal
    /// uses the grant. Gives the answer for people.
    async fn approve_for(&mut self, issue: &IssueRef, proposal: String, by: AskedBy) -> String {
        let approver = Admission::principal_of(&by.login, by.id);
        let approval = NewApproval { proposal, approver, holds: approval::HOLDS };
        match (self.deps.approve)(issue.clone(), approval).await {
            Err(refused) => match self.waits_for(issue).await {
                Some(waits) => format!("Nothing was approved. {waits}"),
                None => refused,
            },
            Ok(told) if self.supervisor.get(issue).is_some() => {
                format!("{told} The run that works now may use it.")
            }
            Ok(told) => match self.run_for(issue, by).await {
                Some(queued) => format!("{told} {queued}"),
                None => {
                    format!("{told} GitHub did not answer, so no run is queued yet: write `/agentd run`.")
                }
            },
        }
    }

    /// One comment for each command: whoever wrote it is told, and no answer takes the place of another one's. While GitHub does not
    /// answer, it is owed.
    pub(super) async fn answer(
        &mut self,
        issue: &IssueRef,
        (to, on, at): (Option<RemarkId>, u64, Option<DateTime<Utc>>),
        text: &str,
    ) {
        let what = to.map_or_else(|| "command".to_owned(), |id| format!("command-{id}"));
        let marker = rendering::request_marker(&IssueKey::Number(issue.number), &what);
        // It has what somebody wrote in it.
        let text = &(self.deps.conceal)(text);
        let told = self.quick_client().ensure_answer(&issue.repo, on, &marker, (text, at)).await;
        let Err(error) = told else { return };
        tracing::warn!(%issue, %error, "a command could not be answered");
        if error.is_transient()
            && let Some(watch) = self.watch_of(&issue.repo)
        {
            watch.state.owed.retain(|owed| owed.marker != marker);
            watch.state.owed.push(OwedAnswer { on, marker, text: text.to_owned() });
        }
    }

    /// Tries once more to tell what is owed.
    async fn answer_again(&mut self, looked: &BTreeSet<RepoName>) {
        let client = self.quick_client();
        for watch in self.watches.iter_mut().filter(|watch| looked.contains(&watch.watched.name)) {
            let (repo, mut told) = (&watch.watched.name, BTreeSet::new());
            for owed in &watch.state.owed {
                let tried = client.ensure_comment(repo, owed.on, &owed.marker, &owed.text).await;
                if !tried.is_err_and(|error| error.is_transient()) {
                    told.insert(owed.marker.clone());
                }
            }
            watch.state.owed.retain(|owed| !told.contains(&owed.marker));
        }
    }
}

/// The first line of a command, as it stands above its answer: there may be several answers, and threads have no place of their own
/// for them.
fn said_by(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    format!("> `{}`\n\n", one_line(line, LONGEST_LINE).replace('`', "'"))
}

/// What somebody is told who may not command.
fn refused(login: &str, judged: Judged, takes: ActorPermission) -> String {
    let has = judged.permission.unwrap_or(ActorPermission::None);
    if has >= takes {
        return format!("When {login} wrote this, it did not count yet. Write it again, please.");
    }
    format!(
        "{login} has the permission \"{}\" in this repository, and commands take \"{}\". Somebody who has it can write the same.",
        has.as_str(),
        takes.as_str()
    )
}

impl Judged {
    /// Whether a command of somebody who stands so is followed. What starts or allows something takes the permission
    /// that starting a run takes, whoever else is trusted.
    fn may(self, command: &Command, needs: ActorPermission) -> bool {
        let permitted = self.permission.is_some_and(|permission| permission >= needs);
        match command {
            Command::Run | Command::Extend(_) | Command::Approve(_) | Command::GiveBack(_) => {
                permitted && self.standing == Standing::Trusted
            }
            _ => self.standing == Standing::Trusted,
        }
    }
}
