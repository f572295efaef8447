//! Parked issues: the first answer of somebody who may lets the work go on; reminders, time that is over, and issues that nobody
//! wants any more.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};

use super::main_loop::Daemon;
use super::poll::Watch;
use super::snapshot::IssueRef;
use super::state_format::ParkedLabel;
use crate::config::questions_file::OnTimeout;
use crate::conversation::inbox::inbox_format::{Fate, Heard, Inbox};
use crate::conversation::parked::parked_format::{
    Over, Parked, ParkedAnswer, ParkedIssue, PostedComment, WaitsFor,
};
use crate::conversation::parked::{self, ParkedCell};
use crate::conversation::standing::People;
use crate::domain::command::Command;
use crate::domain::issue::IssueKey;
use crate::domain::issue_state::IssueState;
use crate::domain::name::RepoName;
use crate::domain::plan::PlanVerdict;
use crate::domain::question::Question;
use crate::domain::remark::{Remark, RemarkId, RemarkKind, Standing};
use crate::domain::run::RunId;
use crate::domain::stop::StopDetail;
use crate::github::{Error, Fetched};
use crate::issue::approval::PULL_REQUEST_OVER;
use crate::issue::{shown_lease, status_comment, unwanted};
use crate::record::rendering;
use crate::store::port::StoreError;

/// Why a parked issue could not be looked after now.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotHeeded {
    /// GitHub.
    #[error(transparent)]
    GitHub(#[from] Error),
    /// The disk.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Watch {
    /// What is decided is gone on with; what is not holds its issue.
    fn note_parked(&mut self, issue: u64, parked: Parked) {
        if parked.answer.is_some() {
            let memory = self.state.issues.entry(issue).or_default();
            memory.resume = Some(parked.run_id);
            memory.back_off = None;
        } else if parked.over.is_none() {
            self.parked.insert(issue, parked);
        }
    }
}

impl Daemon {
    /// What is kept of a parked issue.
    pub(super) fn parked_cell(&self, issue: &IssueRef) -> ParkedCell {
        ParkedCell::new(&self.deps.state, &issue.repo, &IssueKey::Number(issue.number))
    }

    /// Looks after every issue that waits for a person: those that are asked for, and those that this daemon knows.
    pub(super) async fn heed_parked(&mut self) {
        let mut numbers: Vec<IssueRef> = Vec::new();
        for watch in &self.watches {
            let repo = &watch.watched.name;
            let asked = watch.candidates().filter_map(|(issue, _)| issue.issue.key.number());
            // People take work over also where nothing waits.
            let of = watch.state.issues.keys().copied().chain(asked);
            numbers.extend(of.map(|number| IssueRef { repo: repo.clone(), number }));
        }
        numbers.sort();
        numbers.dedup();
        for watch in &mut self.watches {
            watch.parked.clear();
        }
        for issue in numbers {
            if self.supervisor.get(&issue).is_some() {
                continue;
            }
            if let Err(error) = self.look_after(&issue).await {
                tracing::warn!(%issue, %error, "a parked issue could not be looked after; it is tried again");
            }
        }
    }

    /// What other processes of this state asked people, such as a run by hand, is looked after here as well: people were told that the
    /// work goes on once they answer. Before what they wrote is read, so that no answer is passed over.
    pub(super) async fn adopt_parked(&mut self, looked: &BTreeSet<RepoName>) {
        let mut known = BTreeSet::new();
        for watch in self.watches.iter().filter(|watch| looked.contains(&watch.watched.name)) {
            let repo = &watch.watched.name;
            let of = watch.state.issues.iter().filter(|(_, memory)| memory.parked.is_some());
            known.extend(of.map(|(number, _)| IssueRef { repo: repo.clone(), number: *number }));
        }
        let (state, looked) = (self.deps.state.clone(), looked.clone());
        let look = move || {
            let parked = state.store().parked().unwrap_or_else(|error| {
                tracing::warn!(%error, "which issues are parked cannot be told");
                Vec::new()
            });
            let asked = |(repo, key): (RepoName, IssueKey)| {
                let issue = IssueRef { number: key.number()?, repo };
                if !looked.contains(&issue.repo) || known.contains(&issue) {
                    return None;
                }
                let kept = ParkedCell::new(&state, &issue.repo, &key).read_now().ok()?;
                let parked = kept.now().filter(|parked| parked.comment.is_some())?;
                let code = match parked.waits_for {
                    WaitsFor::Answer { .. } => StopDetail::QuestionPending,
                    WaitsFor::Plan { .. } => StopDetail::PlanPending,
                    WaitsFor::GiveBack(_) => return None,
                };
                let (code, text) = (code.as_str().to_owned(), parked.waits_for.told());
                Some((issue, ParkedLabel { code, text, at: parked.since, requester: None }))
            };
            parked.into_iter().filter_map(asked).collect::<Vec<_>>()
        };
        for (issue, label) in tokio::task::spawn_blocking(look).await.unwrap_or_default() {
            if self.supervisor.get(&issue).is_none()
                && let Some(watch) = self.watch_of(&issue.repo)
            {
                watch.state.issues.entry(issue.number).or_default().parked = Some(label);
            }
        }
    }

    /// Whether the daemon goes on with what an issue waits for: somebody asks for it, or a run of this state asked people.
    pub(super) fn is_waited_for(&self, issue: &IssueRef) -> bool {
        let mut watches = self.watches.iter().filter(|watch| watch.watched.name == issue.repo);
        watches.any(|watch| {
            let parked = watch.state.issues.get(&issue.number).and_then(|memory| memory.parked.as_ref());
            let known = parked.is_some_and(ParkedLabel::waits_for_person);
            known || watch.candidate(issue.number).is_some()
        })
    }

    async fn look_after(&mut self, issue: &IssueRef) -> Result<(), NotHeeded> {
        let cell = self.parked_cell(issue);
        let known = cell.read().await?;
        self.show_moved(issue, &known, &cell).await?;
        if self.heed_taken(issue, &known).await? {
            return Ok(());
        }
        if !self.is_waited_for(issue) {
            return Ok(());
        }
        let Some(mut parked) = known.now().cloned() else {
            self.forget_parked(issue);
            return Ok(());
        };
        let waits = matches!(parked.waits_for, WaitsFor::Answer { .. } | WaitsFor::Plan { .. });
        if waits && self.is_unwanted(issue, &parked, &cell).await? {
            return Ok(());
        }
        // An approval may become void until a run goes on with it.
        let approved = parked.answer.as_ref().and_then(|answer| answer.plan);
        let open =
            parked.answer.is_none() || approved.is_some_and(|verdict| verdict != PlanVerdict::Rejected);
        if open && waits {
            let now = self.deps.client.now().unwrap_or_else(|| self.deps.clock.now());
            let heard = match &parked.waits_for {
                WaitsFor::Plan { .. } => self.plan_decision(issue, &parked, now, &cell).await?,
                _ => self.heard_answer(issue, &parked, now).await?,
            };
            let answer = match heard {
                Some(answer) => Some(answer),
                None => self.after_time(issue, &mut parked, now, &cell).await?,
            };
            if answer != parked.answer {
                parked.answer = self.decide(issue, &mut parked, answer, &cell).await?;
            }
        }
        if parked.answer.is_some() && parked.unlabelled {
            self.list_unlabelled(issue, &cell).await?;
        }
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.note_parked(issue.number, parked);
        }
        Ok(())
    }

    /// Reads for what an issue waits, if for anything, and does nothing about it.
    pub(super) async fn note_parked(&mut self, issue: &IssueRef) -> Result<(), StoreError> {
        let known = self.parked_cell(issue).read().await?;
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(()) };
        watch.parked.remove(&issue.number);
        if let Some(parked) = known.now().cloned() {
            watch.note_parked(issue.number, parked);
        }
        Ok(())
    }

    /// What was moved here with its state is waited for here, and its issue says so.
    async fn show_moved(
        &mut self,
        issue: &IssueRef,
        known: &ParkedIssue,
        cell: &ParkedCell,
    ) -> Result<(), NotHeeded> {
        let own = self.deps.state.state_name();
        if !known.now().is_some_and(|parked| parked.is_posted) || known.shown_by() == Some(own.as_str()) {
            return Ok(());
        }
        let client = self.quick_client();
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(()) };
        if watch.shown_elsewhere.contains(&issue.number) {
            return Ok(());
        }
        let (state, of) = (self.deps.state.clone(), (&issue.repo, issue.number));
        if shown_lease::show_moved(&client, &state, of, known.shown_by()).await? {
            cell.update(move |issue| {
                issue.parked.iter_mut().for_each(|parked| parked.shown_by = Some(own.clone()));
            })
            .await?;
        } else if let Some(watch) = self.watch_of(&issue.repo) {
            watch.shown_elsewhere.insert(issue.number);
        }
        Ok(())
    }

    /// Nothing waits there any more: another process has gone on with it.
    fn forget_parked(&mut self, issue: &IssueRef) {
        let asked = [StopDetail::QuestionPending, StopDetail::PlanPending];
        let memory = self.watch_of(&issue.repo).and_then(|watch| watch.state.issues.get_mut(&issue.number));
        if let Some(memory) = memory
            && memory
                .parked
                .as_ref()
                .is_some_and(|parked| asked.iter().any(|one| one.as_str() == parked.code))
        {
            memory.parked = None;
        }
    }

    /// Makes an issue a candidate that no list of labelled ones has. One that is closed is not gone on with.
    async fn list_unlabelled(&mut self, issue: &IssueRef, cell: &ParkedCell) -> Result<(), NotHeeded> {
        let client = self.quick_client();
        if self.watch_of(&issue.repo).is_none_or(|watch| watch.candidate(issue.number).is_some()) {
            return Ok(());
        }
        let fresh = client.issue(&issue.repo, issue.number).await?;
        if !fresh.issue.open {
            cell.update(|issue| end(issue, "issue_closed")).await?;
        } else if let Some(watch) = self.watch_of(&issue.repo) {
            watch.recover(fresh);
        }
        Ok(())
    }

    /// Keeps what lets the issue go on, or that nothing does any more. A plan that was rejected too often is given up.
    async fn decide(
        &mut self,
        issue: &IssueRef,
        parked: &mut Parked,
        answer: Option<ParkedAnswer>,
        cell: &ParkedCell,
    ) -> Result<Option<ParkedAnswer>, NotHeeded> {
        let rejects = answer.as_ref().is_some_and(|answer| answer.plan == Some(PlanVerdict::Rejected));
        let most = self.deps.plan.max_rounds;
        if rejects && cell.read().await?.rejected >= most {
            let text = format!("The plan was rejected once more than {most} times, and is not made again.");
            self.wait_no_more(issue, parked, &text, cell).await?;
            return Ok(None);
        }
        if let Some(answer) = &answer {
            tracing::info!(%issue, by = answer.by, "what a parked issue waits for is decided");
        } else if let Some(watch) = self.watch_of(&issue.repo) {
            watch.state.issues.entry(issue.number).or_default().resume = None;
        }
        let kept = answer.clone();
        cell.update(move |issue| take_answer(issue, kept.as_ref(), rejects)).await?;
        Ok(answer)
    }

    /// The pull request is over, and with it what a follow-up run asked or planned.
    pub(super) async fn end_round_parked(&mut self, issue: &IssueRef) -> Result<(), NotHeeded> {
        let cell = self.parked_cell(issue);
        let Some(parked) = round_parked(&cell).await? else { return Ok(()) };
        if let Err(error) = self.tell_over(issue, &parked, PULL_REQUEST_OVER).await {
            tracing::warn!(%issue, %error, "that nothing is waited for any more could not be told");
        }
        cell.update(|issue| end(issue, "pull_request_over")).await?;
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.parked.remove(&issue.number);
        }
        Ok(())
    }

    /// A person stops what a follow-up run asked or planned; that of another run ends with its label. False = nothing of the kind waits.
    pub(super) async fn stop_round_parked(
        &mut self,
        issue: &IssueRef,
        login: &str,
    ) -> Result<bool, NotHeeded> {
        let cell = self.parked_cell(issue);
        let Some(parked) = round_parked(&cell).await? else { return Ok(false) };
        let needs_input = self.deps.labels.needs_input.clone();
        match self.quick_client().remove_label(&issue.repo, issue.number, &needs_input).await {
            Err(error) if !error.is_absent() => return Err(error.into()),
            _ => {}
        }
        self.tell_over(issue, &parked, &format!("{login} stopped it")).await?;
        self.wait_is_over((issue, &cell), "stopped").await?;
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.parked.remove(&issue.number);
        }
        Ok(true)
    }

    /// Whether the issue was closed, or its trigger label taken off: then nothing is waited for any more.
    async fn is_unwanted(
        &mut self,
        issue: &IssueRef,
        parked: &Parked,
        cell: &ParkedCell,
    ) -> Result<bool, NotHeeded> {
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(false) };
        if watch.candidate(issue.number).is_some() || !watch.is_fresh() {
            return Ok(false);
        }
        let known = watch.unlisted.get(&issue.number).cloned();
        let client = self.quick_client();
        let labels = self.deps.labels.clone();
        // What did not change costs nothing.
        let why = match client.issue_if_changed(&issue.repo, issue.number, known.as_deref()).await {
            Ok(Fetched::Unchanged) => return Ok(false),
            Ok(Fetched::Fresh(fresh, _)) if !fresh.issue.open => "issue_closed",
            // What is decided is kept for the run that goes on with it: a refused start takes the label off as well, and says so by another
            // label.
            Ok(Fetched::Fresh(fresh, _))
                if !parked.unlabelled
                    && (parked.answer.is_none() || fresh.has_label(&labels.needs_input))
                    && !fresh.has_label(&labels.trigger)
                    && !self.has_outcome_to_write(issue) =>
            {
                "label_removed"
            }
            Ok(Fetched::Fresh(_, etag)) => {
                if let (Some(watch), Some(etag)) = (self.watch_of(&issue.repo), etag) {
                    watch.unlisted.insert(issue.number, etag);
                }
                return Ok(false);
            }
            // Nobody reads there what would be written. Its repository is seen, so that what is not found is gone.
            Err(error) if unwanted::not_here(&error).is_some() => {
                self.wait_is_over((issue, cell), "issue_closed").await?;
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        match client.remove_label(&issue.repo, issue.number, &labels.needs_input).await {
            Err(error) if !error.is_absent() => return Err(error.into()),
            _ => {}
        }
        let words = match why {
            "label_removed" => format!("the label `{}` was taken off", labels.trigger),
            _ => "the issue was closed".to_owned(),
        };
        self.tell_over(issue, parked, &words).await?;
        self.wait_is_over((issue, cell), why).await?;
        Ok(true)
    }

    fn has_outcome_to_write(&self, issue: &IssueRef) -> bool {
        let mut watches = self.watches.iter().filter(|watch| watch.watched.name == issue.repo);
        watches.any(|watch| {
            watch.state.issues.get(&issue.number).is_some_and(|memory| memory.pending_outcome.is_some())
        })
    }

    async fn wait_is_over(
        &mut self,
        (issue, cell): (&IssueRef, &ParkedCell),
        why: &'static str,
    ) -> Result<(), NotHeeded> {
        tracing::info!(%issue, why, "nothing is waited for any more");
        cell.update(move |issue| end(issue, why)).await?;
        if let Some(memory) =
            self.watch_of(&issue.repo).and_then(|watch| watch.state.issues.get_mut(&issue.number))
        {
            memory.parked = None;
        }
        Ok(())
    }

    /// The first answer of somebody who may, once it holds: nobody may edit it any more then.
    async fn heard_answer(
        &self,
        issue: &IssueRef,
        parked: &Parked,
        now: DateTime<Utc>,
    ) -> Result<Option<ParkedAnswer>, NotHeeded> {
        let (WaitsFor::Answer { question, .. }, Some(told)) = (&parked.waits_for, &parked.comment) else {
            return Ok(None);
        };
        let inbox = self.inbox(issue).read().await?;
        let quiet = TimeDelta::from_std(self.deps.conversation.quiet_period.0).unwrap_or(TimeDelta::MAX);
        let client = self.quick_client();
        let rules = (&self.deps.conversation, self.deps.conversation.trusted_from(self.deps.min_permission));
        let mut people = People::under(&client, &issue.repo, rules, None);
        for heard in written_since(&inbox, told) {
            let remark = &heard.remark;
            if answer_in(&remark.text, heard, question, parked.asked.as_deref()).is_none() {
                continue;
            }
            if remark.created + quiet > now {
                return Ok(None);
            }
            // As it is now: edited, hidden or deleted meanwhile.
            let remark = match &remark.node_id {
                None => remark.clone(),
                Some(node) => {
                    let found = client.remarks_now(std::slice::from_ref(node)).await?;
                    let Some(present) = found.get(node).filter(|present| !present.minimized) else {
                        continue;
                    };
                    Remark {
                        text: present.text.clone(),
                        edited: present.edited,
                        editor: present.editor.clone(),
                        edited_by_bot: present.edited_by_bot,
                        ..remark.clone()
                    }
                }
            };
            let judged = people.remark(&remark).await?;
            let Some(text) = answer_in(&remark.text, heard, question, parked.asked.as_deref()) else {
                continue;
            };
            if judged.standing != Standing::Trusted {
                continue;
            }
            let by = remark.login.clone().unwrap_or_default();
            return Ok(Some(ParkedAnswer {
                text,
                by,
                permission: judged.permission,
                at: remark.created,
                plan: None,
            }));
        }
        Ok(None)
    }

    /// Reminds people once; when the time is over, the agent's default is taken, or the issue is a person's again.
    async fn after_time(
        &mut self,
        issue: &IssueRef,
        parked: &mut Parked,
        now: DateTime<Utc>,
        cell: &ParkedCell,
    ) -> Result<Option<ParkedAnswer>, NotHeeded> {
        let key = parked.waits_for.key();
        let table = self.deps.questions.clone();
        let remind = TimeDelta::from_std(table.remind.0).unwrap_or(TimeDelta::MAX);
        let over = parked.deadline.is_some_and(|deadline| now >= deadline);
        if !over && !parked.reminded && now.signed_duration_since(parked.since) >= remind {
            let marker =
                rendering::request_marker(&IssueKey::Number(issue.number), &format!("{key}-reminder"));
            let text = reminder(parked);
            self.quick_client().ensure_comment(&issue.repo, issue.number, &marker, &text).await?;
            cell.update(|issue| issue.parked.iter_mut().for_each(|parked| parked.reminded = true)).await?;
        }
        if !over {
            return Ok(None);
        }
        let text = match (&parked.waits_for, table.on_timeout) {
            (
                WaitsFor::Answer { question: Question { default: Some(default), .. }, .. },
                OnTimeout::Default,
            ) => {
                let (text, by) = (default.clone(), "agentd".to_owned());
                return Ok(Some(ParkedAnswer { text, by, permission: None, at: now, plan: None }));
            }
            (WaitsFor::Plan { .. }, _) => {
                "Nobody decided on the agent's plan in time; it is not waited for any more."
            }
            _ => "Nobody answered the agent's question in time; it is not waited for any more.",
        };
        self.wait_no_more(issue, parked, text, cell).await?;
        Ok(None)
    }

    /// Nothing is waited for any more: the issue is a person's again, and is told why.
    async fn wait_no_more(
        &mut self,
        issue: &IssueRef,
        parked: &mut Parked,
        why: &str,
        cell: &ParkedCell,
    ) -> Result<(), NotHeeded> {
        let trigger = self.deps.labels.trigger.clone();
        let key = parked.waits_for.key();
        let marker = rendering::request_marker(&IssueKey::Number(issue.number), &format!("{key}-given-up"));
        let told =
            format!("**{why}** For another run on the same branch, put the label `{trigger}` on again.\n");
        self.quick_client().ensure_comment(&issue.repo, issue.number, &marker, &told).await?;
        self.tell_over(issue, parked, "its time is over, or it was given up").await?;
        cell.update(|issue| end(issue, "guidance_needed")).await?;
        parked.over = Some(Over::Ended("guidance_needed".to_owned()));
        parked.answer = None;
        self.plan_outcome(issue, IssueState::Attention, "guidance_needed", None);
        Ok(())
    }

    /// The comment that asked and the issue's status comment say that nothing is waited for any more, and why.
    async fn tell_over(&self, issue: &IssueRef, parked: &Parked, why: &str) -> Result<(), Error> {
        let (client, key) = (self.quick_client(), IssueKey::Number(issue.number));
        parked::ask_no_more(&client, (&issue.repo, issue.number), &parked.waits_for, why).await?;
        let status = rendering::marker(&key);
        let found = client.find_comment(&issue.repo, issue.number, &status).await?;
        match found.filter(|found| shown_lease::shows_parked(&found.body)) {
            Some(found) => self.tell_status_over(issue, (parked.run_id, &found.body), why).await,
            None => Ok(()),
        }
    }

    /// The issue's status comment, which reads so, says that a run waits for nobody any more, and why.
    pub(super) async fn tell_status_over(
        &self,
        issue: &IssueRef,
        (run, body): (RunId, &str),
        why: &str,
    ) -> Result<(), Error> {
        let trigger = &self.deps.labels.trigger;
        let pull = body.lines().find(|line| line.starts_with("Pull request: "));
        let pull = pull.map_or_else(String::new, |line| format!("\n{line}\n"));
        let text = format!(
            "**A person was waited for, and is no more:** {why}.\n{pull}\nFor another run on the same branch, put the label \
             `{trigger}` on again.\n\nrun `{run}`\n"
        );
        let of = (&issue.repo, issue.number);
        status_comment::ensure(&self.quick_client(), self.deps.state.store(), of, &text).await?;
        Ok(())
    }

    /// `/agentd answer TEXT`: the answer is read where it stands, as every other one. Gives what people are told.
    pub(super) async fn answer_for(&self, issue: &IssueRef, id: RemarkId, text: &str) -> String {
        if text.trim().is_empty() {
            return "There is no answer in it: write `/agentd answer TEXT`.".to_owned();
        }
        match self.parked_cell(issue).read().await {
            Ok(known)
                if known.now().is_some_and(|parked| matches!(parked.waits_for, WaitsFor::Answer { .. })) =>
            {
                let parked = known.now();
                if let Some(answer) = parked.and_then(|parked| parked.answer.as_ref()) {
                    return format!(
                        "The question was answered already, by {}; this does not count.",
                        answer.by
                    );
                }
                let inbox = self.inbox(issue).read().await.unwrap_or_default();
                let asked = parked.and_then(|parked| parked.comment.as_ref());
                if asked.is_some_and(|asked| {
                    written_since(&inbox, asked).iter().all(|heard| heard.remark.id != id)
                }) {
                    return "It was written before the question that waits now, and does not count for that one. Answer it there: \
                            `/agentd answer TEXT`."
                        .to_owned();
                }
                let quiet = self.deps.conversation.quiet_period;
                if let Some(first) =
                    parked.and_then(|parked| first_answer(&inbox, parked)).filter(|first| first.id != id)
                {
                    let by = first.login.as_deref().unwrap_or_default();
                    let link = first.url.as_deref().map(|url| format!(" ({url})")).unwrap_or_default();
                    return format!(
                        "{by} answered before{link}, and the first answer counts, {quiet} after it was written. Yours counts if that one is \
                         deleted, or edited to say something else, before then."
                    );
                }
                format!(
                    "Taken as an answer: the first one counts, {quiet} after it was written; until then it may be edited."
                )
            }
            Ok(_) => {
                let waits = self.waits_for(issue).await.map_or_else(String::new, |waits| format!(" {waits}"));
                format!("No question waits for an answer on this issue.{waits}")
            }
            Err(error) => format!("It cannot be told whether something waits for an answer: {error}."),
        }
    }

    /// For what an issue waits, and what to write about it, where a command asked for something else.
    pub(super) async fn waits_for(&self, issue: &IssueRef) -> Option<String> {
        let kept = self.parked_cell(issue).read().await.ok()?;
        let parked = kept.now()?;
        let link = parked.comment.as_ref().and_then(|comment| comment.url.as_ref());
        let (what, then) = match &parked.waits_for {
            WaitsFor::Answer { .. } => {
                ("The agent's question", "`/agentd answer TEXT` answers it".to_owned())
            }
            WaitsFor::Plan { plan, .. } => (
                "The agent's plan",
                format!(
                    "`/agentd approve {}` has it carried out, `/agentd reject TEXT` has it made again",
                    plan.short()
                ),
            ),
            WaitsFor::GiveBack(taken) => {
                return Some(match parked.answer {
                    Some(_) => "The work was given back, and goes on in a moment.".to_owned(),
                    None => {
                        format!("{} has the work: `/agentd give-back TEXT` gives it back.", taken.by)
                    }
                });
            }
        };
        let what = link.map_or_else(|| what.to_owned(), |url| format!("[{what}]({url})"));
        Some(match parked.answer {
            Some(_) => format!("{what} was answered, and the work goes on in a moment."),
            None => format!("{what} waits for a person: {then}, and the work goes on by itself."),
        })
    }
}

fn take_answer(issue: &mut ParkedIssue, answer: Option<&ParkedAnswer>, rejects: bool) {
    let Some(parked) = issue.parked.as_mut().filter(|parked| parked.over.is_none()) else { return };
    // What the machine's user answered meanwhile stays.
    if parked.answer.is_none() || parked.answer.as_ref().is_some_and(|known| known.plan.is_some()) {
        parked.answer = answer.cloned();
        issue.rejected += u32::from(rejects);
    }
}

fn end(issue: &mut ParkedIssue, why: &str) {
    if let Some(parked) = issue.parked.as_mut().filter(|parked| parked.over.is_none()) {
        parked.over = Some(Over::Ended(why.to_owned()));
    }
}

/// What trusted people wrote since people were told, in the order of writing.
pub(super) fn written_since<'a>(inbox: &'a Inbox, told: &PostedComment) -> Vec<&'a Heard> {
    let open = |heard: &&Heard| matches!(heard.fate, Fate::Waiting | Fate::Command);
    let mut since: Vec<&Heard> = inbox
        .remarks
        .values()
        .filter(open)
        .filter(|heard| heard.remark.created >= told.at && heard.standing == Some(Standing::Trusted))
        .collect();
    since.sort_by_key(|heard| (heard.remark.created, heard.remark.id));
    since
}

/// The first remark that answers the question for which an issue waits.
fn first_answer<'a>(inbox: &'a Inbox, parked: &Parked) -> Option<&'a Remark> {
    let (WaitsFor::Answer { question, .. }, Some(told)) = (&parked.waits_for, &parked.comment) else {
        return None;
    };
    let answers =
        |heard: &&Heard| answer_in(&heard.remark.text, heard, question, parked.asked.as_deref()).is_some();
    written_since(inbox, told).into_iter().find(answers).map(|heard| &heard.remark)
}

/// The answer that a text gives: by the command, by an option, or as any words of whoever was asked.
fn answer_in(text: &str, heard: &Heard, question: &Question, asked: Option<&str>) -> Option<String> {
    match Command::of(text) {
        Some(Command::Answer(said)) if heard.fate == Fate::Command && !said.is_empty() => {
            return Some(question.answer_in(&said));
        }
        Some(_) => return None,
        None => {}
    }
    // What stands at a line or in a review is about that.
    if !matches!(heard.remark.kind, RemarkKind::IssueComment | RemarkKind::PullRequestComment) {
        return None;
    }
    let is_asked = asked.is_some()
        && heard.remark.login.as_deref().map(str::to_lowercase) == asked.map(str::to_lowercase);
    let counts = question.chosen(text).is_some() || (is_asked && !text.trim().is_empty());
    counts.then(|| question.answer_in(text))
}

fn reminder(parked: &Parked) -> String {
    let asked = parked.asked.as_ref().map_or_else(String::new, |login| format!("@{login} "));
    let place = parked.comment.as_ref().and_then(|comment| comment.url.clone());
    let link = place.map_or_else(String::new, |url| format!(": {url}"));
    let until = parked.deadline.map_or_else(String::new, |deadline| {
        format!(" It is waited for until {} UTC.", deadline.format("%Y-%m-%d %H:%M"))
    });
    let what = match parked.waits_for {
        WaitsFor::Plan { .. } => "The agent's plan still waits for approval",
        WaitsFor::Answer { .. } => "The agent still waits for an answer",
        WaitsFor::GiveBack(_) => "A person still has the work",
    };
    format!("**{asked}{what}**{link}.{until}\n")
}

/// What a follow-up run asked or planned, if that is waited for.
async fn round_parked(cell: &ParkedCell) -> Result<Option<Parked>, NotHeeded> {
    let asks = |parked: &&Parked| {
        parked.unlabelled && matches!(parked.waits_for, WaitsFor::Answer { .. } | WaitsFor::Plan { .. })
    };
    Ok(cell.read().await?.now().filter(asks).cloned())
}
