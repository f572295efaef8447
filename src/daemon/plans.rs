//! Plans that wait for approval: what trusted people decided on them, by a reaction, a command or a label.

use chrono::{DateTime, TimeDelta, Utc};

use super::main_loop::Daemon;
use super::parked::{NotHeeded, written_since};
use super::plan_reactions::Reactions;
use super::snapshot::IssueRef;
use crate::conversation::inbox::inbox_format::{Fate, Heard};
use crate::conversation::parked::parked_format::{
    Parked, ParkedAnswer, ParkedIssue, PostedComment, WaitsFor,
};
use crate::conversation::parked::{ParkedCell, plan_in, plan_shown};
use crate::conversation::standing::{JudgedStanding, People};
use crate::domain::command::Command;
use crate::domain::issue::IssueKey;
use crate::domain::plan::{PlanVerdict, ProposedPlan};
use crate::domain::remark::Standing;
use crate::domain::taken::is_local;
use crate::github::{Comment, Fetched, Reaction};
use crate::record::rendering;

/// What somebody decided. Whether they may is asked afterwards.
struct Said {
    at: DateTime<Utc>,
    login: String,
    bot: bool,
    /// Why it is rejected; `None` = it is approved.
    rejects: Option<String>,
}

/// An approval that an edit made void.
struct Void {
    by: String,
    edited: DateTime<Utc>,
}

/// What became of the decisions.
enum Decided {
    Nothing,
    Void(Void),
    Holds(ParkedAnswer),
}

impl Daemon {
    /// The first decision that holds, of whoever may decide. An approval that an edit made void is told, once an edit.
    pub(super) async fn plan_decision(
        &mut self,
        issue: &IssueRef,
        parked: &Parked,
        now: DateTime<Utc>,
        cell: &ParkedCell,
    ) -> Result<Option<ParkedAnswer>, NotHeeded> {
        let (WaitsFor::Plan { plan, void_told, .. }, Some(told)) = (&parked.waits_for, &parked.comment)
        else {
            return Ok(None);
        };
        let mut said = self.said_of_plan(issue, plan, told, now).await?;
        said.extend(parked.answer.as_ref().and_then(by_local_user));
        said.sort_by_key(|one| one.at);
        match self.first_to_hold(issue, plan, told, said, now).await? {
            // What this machine's user approved is not read again from anywhere.
            Decided::Nothing => Ok(parked.answer.clone().filter(|answer| is_local(&answer.by))),
            Decided::Holds(answer) => Ok(Some(answer)),
            Decided::Void(void) => {
                if *void_told != Some(void.edited) {
                    self.tell_void(issue, parked, &void, cell).await?;
                }
                Ok(None)
            }
        }
    }

    /// Everything that was decided since the plan was posted, the first one first.
    async fn said_of_plan(
        &mut self,
        issue: &IssueRef,
        plan: &ProposedPlan,
        told: &PostedComment,
        now: DateTime<Utc>,
    ) -> Result<Vec<Said>, NotHeeded> {
        let inbox = self.inbox(issue).read().await?;
        let quiet = TimeDelta::from_std(self.deps.conversation.quiet_period.0).unwrap_or(TimeDelta::MAX);
        let several = self.approval_waits(issue);
        let written = written_since(&inbox, told);
        let mut said: Vec<Said> =
            written.iter().filter_map(|heard| by_command(heard, plan, several)).collect();
        for Reaction { by, content, at } in self.reactions(issue, told.id).await? {
            let sign = |rejects, at| Said { at, login: by.login.clone(), bot: by.bot, rejects };
            match content.as_str() {
                "+1" => said.push(sign(None, at)),
                // It says no only with the reason beside it, which may be edited for a while.
                "-1" => said.extend(
                    why_not(&written, &by.login)
                        .into_iter()
                        .filter(|why| why.remark.created + quiet <= now)
                        .map(|why| sign(Some(why.remark.text.trim().to_owned()), at.max(why.remark.created))),
                ),
                _ => {}
            }
        }
        let label = self.deps.plan.approved_label.clone();
        let labelled = self
            .watch_of(&issue.repo)
            .and_then(|watch| watch.candidate(issue.number))
            .is_some_and(|(candidate, _)| candidate.has_label(&label));
        if labelled
            && let Some(put) = self.quick_client().last_labelling(&issue.repo, issue.number, &label).await?
            && let (Some(at), Some(by)) = (put.at, put.by)
        {
            said.push(Said { at, login: by.login, bot: by.bot, rejects: None });
        }
        said.retain(|one| one.at >= told.at);
        said.sort_by_key(|one| one.at);
        Ok(said)
    }

    /// One conditional request: what did not change costs nothing.
    async fn reactions(&mut self, issue: &IssueRef, comment: u64) -> Result<Vec<Reaction>, NotHeeded> {
        let client = self.quick_client();
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(Vec::new()) };
        let kept = watch.plan_reactions.entry(issue.number).or_default();
        if kept.comment != comment {
            *kept = Reactions { comment, ..Reactions::default() };
        }
        match client.reactions(&issue.repo, comment, kept.etag.as_deref()).await {
            Ok(Fetched::Unchanged) => {}
            Ok(Fetched::Fresh(known, etag)) => (kept.known, kept.etag) = (known, etag),
            // Somebody deleted the comment: commands and time still count.
            Err(error) if error.is_absent() => (kept.known, kept.etag) = (Vec::new(), None),
            Err(error) => return Err(error.into()),
        }
        Ok(kept.known.clone())
    }

    async fn first_to_hold(
        &mut self,
        issue: &IssueRef,
        plan: &ProposedPlan,
        told: &PostedComment,
        said: Vec<Said>,
        now: DateTime<Utc>,
    ) -> Result<Decided, NotHeeded> {
        let client = self.quick_client();
        let rules = (&self.deps.conversation, self.deps.conversation.trusted_from(self.deps.min_permission));
        let mut people = People::under(&client, &issue.repo, rules, None);
        let mut comment: Option<Comment> = None;
        let mut void = None;
        for Said { at, login, bot, rejects } in said {
            // The user of this machine counts.
            let judged = match is_local(&login) {
                true => JudgedStanding { standing: Standing::Trusted, permission: None },
                false => people.account(Some(&login), bot).await?,
            };
            if judged.standing != Standing::Trusted {
                continue;
            }
            let answer = |text, verdict| {
                let (by, permission) = (login.clone(), judged.permission);
                Decided::Holds(ParkedAnswer { text, by, permission, at, plan: Some(verdict) })
            };
            if let Some(why) = rejects {
                return Ok(answer(why, PlanVerdict::Rejected));
            }
            // GitHub's times are whole seconds: only when the second is over is it known that nobody edited in it.
            if now < at + TimeDelta::seconds(1) {
                break;
            }
            if comment.is_none() {
                comment = client.comment(&issue.repo, told.id).await?;
            }
            // Nobody can see what would be approved.
            let Some(present) = &comment else { continue };
            let text = plan_in(&present.body);
            let is_same = text == plan_shown(plan, &IssueKey::Number(issue.number));
            let changed = present.updated_at.filter(|at| Some(*at) > present.created_at || !is_same);
            let Some(edited) = changed else {
                return Ok(answer(plan.text.clone(), PlanVerdict::Approved));
            };
            if edited < at && is_same {
                return Ok(answer(plan.text.clone(), PlanVerdict::Approved));
            }
            if edited < at && !text.is_empty() {
                return Ok(answer(text, PlanVerdict::Edited));
            }
            void = Some(Void { by: login, edited });
        }
        Ok(void.map_or(Decided::Nothing, Decided::Void))
    }

    async fn tell_void(
        &self,
        issue: &IssueRef,
        parked: &Parked,
        void: &Void,
        cell: &ParkedCell,
    ) -> Result<(), NotHeeded> {
        let key = parked.waits_for.key();
        let edited = void.edited;
        let what = format!("{key}-void-{}", edited.timestamp());
        let marker = rendering::request_marker(&IssueKey::Number(issue.number), &what);
        let text = format!(
            "**The approval of {} does not count**: the plan was edited at {} UTC, not before it, or has no text any more. \
             Read it as it is now and approve it again (a new 👍, or `/agentd approve`).\n",
            void.by,
            edited.format("%Y-%m-%d %H:%M:%S")
        );
        self.quick_client().ensure_comment(&issue.repo, issue.number, &marker, &text).await?;
        let note = move |issue: &mut ParkedIssue| {
            if let Some(WaitsFor::Plan { void_told, .. }) =
                issue.parked.as_mut().map(|parked| &mut parked.waits_for)
            {
                *void_told = Some(edited);
            }
        };
        cell.update(note).await?;
        Ok(())
    }

    /// Whether the issue also waits for the approval of a call.
    fn approval_waits(&self, issue: &IssueRef) -> bool {
        let watch = self.watches.iter().find(|watch| watch.watched.name == issue.repo);
        let memory = watch.and_then(|watch| watch.state.issues.get(&issue.number));
        memory.and_then(|memory| memory.parked.as_ref()).is_some_and(|parked| parked.requester.is_some())
    }

    /// Whether an approval by command is one of the issue's plan.
    pub(super) async fn is_of_plan(&self, issue: &IssueRef, hash: &str) -> bool {
        let Ok(kept) = self.parked_cell(issue).read().await else { return false };
        match kept.now().map(|parked| &parked.waits_for) {
            Some(WaitsFor::Plan { plan, .. }) => approves(hash, plan, self.approval_waits(issue)),
            _ => false,
        }
    }

    /// What people are told who approve or reject by command; the command itself is read where it stands.
    pub(super) async fn told_of_plan(&self, issue: &IssueRef, decides: Decides<'_>) -> String {
        let kept = self.parked_cell(issue).read().await.ok();
        let parked = kept.as_ref().and_then(ParkedIssue::now);
        let waiting = parked.and_then(|parked| match (&parked.waits_for, &parked.comment) {
            (WaitsFor::Plan { .. }, Some(told)) => Some(told),
            _ => None,
        });
        let Some(told) = waiting else {
            return self.no_plan_waits(issue).await;
        };
        match decides {
            Decides::Rejects("") => "There is no reason in it: write `/agentd reject TEXT`.".to_owned(),
            Decides::Rejects(_) => format!(
                "Heard: if nobody decided on the plan before, it is made again for this reason, at most {} times in a row.",
                self.deps.plan.max_rounds
            ),
            Decides::Approves => match self.quick_client().comment(&issue.repo, told.id).await {
                Ok(None) => "The comment with the plan is gone, so nobody can see what would be approved, and nothing was. \
                             `/agentd reject TEXT` has the plan made again."
                    .to_owned(),
                _ => "Heard: if nobody decided on the plan before, it counts as it read then, and is carried out unless it was \
                      edited since."
                    .to_owned(),
            },
        }
    }

    /// What people are told who decide on a plan where none waits.
    async fn no_plan_waits(&self, issue: &IssueRef) -> String {
        if self.approval_waits(issue) {
            return "No plan waits for approval on this issue, but a call does: `/agentd approve` with its hash lets it run once; \
                    without that it does not run."
                .to_owned();
        }
        let waits = self.waits_for(issue).await.map_or_else(String::new, |waits| format!(" {waits}"));
        format!("Nothing waits for an approval on this issue.{waits}")
    }
}

/// What somebody decides on a plan by a command.
#[derive(Debug, Clone, Copy)]
pub(super) enum Decides<'a> {
    /// It may be carried out.
    Approves,
    /// It is to be made again, for this reason.
    Rejects(&'a str),
}

/// An approval by the user of this machine, which an edit may still make void.
fn by_local_user(answer: &ParkedAnswer) -> Option<Said> {
    let approves = matches!(answer.plan, Some(PlanVerdict::Approved | PlanVerdict::Edited));
    let local = approves && is_local(&answer.by);
    local.then(|| Said { at: answer.at, login: answer.by.clone(), bot: false, rejects: None })
}

/// What a command decides on the plan; `None` = it is another one.
fn by_command(heard: &Heard, plan: &ProposedPlan, several: bool) -> Option<Said> {
    let remark = &heard.remark;
    let rejects = match Command::of(&remark.text).filter(|_| heard.fate == Fate::Command)? {
        Command::Approve(hash) if approves(&hash, plan, several) => None,
        Command::Reject(why) if !why.trim().is_empty() => Some(why),
        _ => return None,
    };
    Some(Said { at: remark.created, login: remark.login.clone()?, bot: remark.bot, rejects })
}

fn approves(hash: &str, plan: &ProposedPlan, several: bool) -> bool {
    (hash.is_empty() && !several) || plan.is_named(hash)
}

/// The last comment of somebody since the plan was posted.
fn why_not<'a>(written: &[&'a Heard], login: &str) -> Option<&'a Heard> {
    let of_them = |heard: &&&Heard| {
        let by = heard.remark.login.as_deref().is_some_and(|by| by.eq_ignore_ascii_case(login));
        by && heard.fate == Fate::Waiting && !heard.remark.text.trim().is_empty()
    };
    written.iter().rev().find(of_them).copied()
}
