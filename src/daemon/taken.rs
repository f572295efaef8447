//! Work that people take over and give back: by a command in a comment, and looked after until a run goes on with it.

use super::main_loop::Daemon;
use super::parked::NotHeeded;
use super::snapshot::IssueRef;
use super::state_format::AskedBy;
use crate::conversation::parked::parked_format::{GivingBack, Over, Parked, ParkedIssue, Taken, WaitsFor};
use crate::domain::issue::IssueKey;
use crate::domain::issue_state::IssueState;
use crate::domain::mapping::branch_of;
use crate::domain::policy::ActorPermission;
use crate::domain::refusal::Refusal;
use crate::domain::remark::RemarkId;
use crate::domain::stop::StopDetail;
use crate::domain::taken::TakenOver;
use crate::domain::text_revision::AskedHow;
use crate::issue::{shown_lease, status_comment};
use crate::lifecycle::give_back::GaveBack;
use crate::lifecycle::taken::Took;

/// What of `/agentd give-back` ends the work instead.
const ENDS: &str = "--end";
/// When the work on a closed issue goes on.
const ONCE_OPEN: &str = "The issue is closed: open it again, and the work goes on.";

/// Why work is not given back.
enum NotGiven {
    /// The run that was asked for it works yet.
    NotHandedOver,
    /// Nobody has it.
    NotTaken,
    /// Somebody has done so before.
    Already(String),
}

impl Daemon {
    /// Whether a person has the work of an issue, or asked its run for it: then nothing starts on it.
    pub(super) fn is_taken(&self, issue: &IssueRef) -> bool {
        let mut watches = self.watches.iter().filter(|watch| watch.watched.name == issue.repo);
        watches.any(|watch| watch.state.issues.get(&issue.number).is_some_and(|memory| memory.taken))
    }

    /// Whether a person has the work since the issue was last looked after, as of one that a sweep has only just listed.
    pub(super) async fn is_taken_meanwhile(&mut self, issue: &IssueRef) -> bool {
        let Ok(known) = self.parked_cell(issue).read().await else { return false };
        let Some((parked, _)) = known.taken() else { return false };
        self.note_taken(issue, true);
        let Some(watch) = self.watch_of(&issue.repo) else { return true };
        watch.parked.insert(issue.number, parked.clone()).is_none()
    }

    /// `/agentd take`. Gives what people are told.
    pub(super) async fn take_for(&mut self, issue: &IssueRef, login: &str) -> String {
        let over = TakenOver { by: login.to_owned(), pushes: true };
        let branch = branch_of(&IssueKey::Number(issue.number));
        let back = "`/agentd give-back TEXT` gives it back";
        let text = match (self.deps.take)(issue.clone(), over).await {
            Err(refusal) => return told(&refusal),
            Ok(Took::Busy) => {
                return "Something else uses the issue at this moment. Write it again, please.".to_owned();
            }
            Ok(Took::Asked(run)) => format!(
                "{login} takes the work over: run {run} ends with its present turn (an agent program has ten seconds to end), and \
                 its work goes to the branch `{branch}` on GitHub, as far as it may leave agentd's machine. The status comment says when; {back}."
            ),
            Ok(Took::Has(has)) => {
                let place = match has.is_pushed {
                    true => format!("the branch `{branch}` on GitHub has all of it"),
                    false => format!(
                        "the branch `{branch}` stands on agentd's machine and is not pushed as it stands there, because its \
                         last run ended before that"
                    ),
                };
                format!("{login} has the work now: {place}. Nothing starts here meanwhile; {back}.")
            }
        };
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.state.issues.entry(issue.number).or_default().taken = true;
        }
        text
    }

    /// `/agentd give-back TEXT`: kept first, then carried out. Gives what people are told.
    pub(super) async fn give_back_for(
        &mut self,
        issue: &IssueRef,
        by: &AskedBy,
        permission: Option<ActorPermission>,
        (id, on): (RemarkId, u64),
        text: &str,
    ) -> String {
        let (ends, text) = match text.strip_prefix(ENDS) {
            Some(rest) if rest.is_empty() || rest.starts_with(char::is_whitespace) => (true, rest.trim()),
            _ => (false, text),
        };
        let giving = GivingBack {
            by: by.login.clone(),
            by_id: by.id,
            permission,
            at: by.at.unwrap_or_else(|| self.deps.clock.now()),
            text: text.to_owned(),
            ends,
            on: Some(on),
            remark: Some(id),
        };
        let kept = giving.clone();
        let keep = move |issue: &mut ParkedIssue| {
            let is_asked = issue.asked.is_some();
            let answered = issue.in_hands().and_then(|(parked, _)| Some(parked.answer.as_ref()?.by.clone()));
            let other = answered.filter(|by| *by != kept.by);
            let Some(taken) = issue.in_hands_mut() else {
                return Err(if is_asked { NotGiven::NotHandedOver } else { NotGiven::NotTaken });
            };
            let given = taken.giving_back.as_ref().filter(|giving| giving.remark != kept.remark);
            if let Some(giving) = given {
                return Err(NotGiven::Already(giving.by.clone()));
            }
            // What was given back on this machine goes on for whoever says so by a comment. And the same one may come once more, after a kill.
            if let (Some(by), true) = (other, taken.given.as_ref().is_some_and(|given| given.by_id > 0)) {
                return Err(NotGiven::Already(by));
            }
            taken.giving_back = Some(kept.clone());
            Ok(())
        };
        match self.parked_cell(issue).update(keep).await {
            Err(error) => format!("It could not be kept: {error}. Write it again, please."),
            Ok((_, Err(NotGiven::NotHandedOver))) => {
                "The run has not handed the work over yet; the status comment says when. Give it back then."
                    .to_owned()
            }
            Ok((_, Err(NotGiven::NotTaken))) => "Nobody has taken the work on this issue over.".to_owned(),
            Ok((_, Err(NotGiven::Already(by)))) => format!(
                "{by} has given the work back already, and this changes nothing. `/agentd say TEXT` tells its run something, \
                 `/agentd stop` stops it."
            ),
            Ok((_, Ok(()))) => match self.carry_out(issue, &giving).await {
                Ok(text) => text,
                Err(later) => format!("It is tried again: {later}."),
            },
        }
    }

    /// Gives work back as it was asked. Gives what people are told; `Err` = why it has to be tried again.
    async fn carry_out(&mut self, issue: &IssueRef, giving: &GivingBack) -> Result<String, String> {
        match (self.deps.give_back)(issue.clone(), giving.clone()).await {
            Ok(back) => {
                self.hints.look_now();
                if !giving.ends {
                    // So that it is looked after also where nothing else of the issue is known here.
                    self.note_taken(issue, true);
                } else if let Some(watch) = self.watch_of(&issue.repo) {
                    watch.drop_candidate(issue.number);
                }
                let then = if giving.ends {
                    "Nothing goes on."
                } else if self.is_closed(issue).await {
                    let text = format!("**{} gave the work back.** {ONCE_OPEN}", giving.by);
                    self.show_given(issue, &text).await;
                    ONCE_OPEN
                } else {
                    "The work goes on."
                };
                Ok(given(issue, (giving, then), &back))
            }
            Err(refusal) if refusal.transient => Err(refusal.stop.message),
            Err(refusal) => {
                let text = told(&refusal);
                let forget = |issue: &mut ParkedIssue| {
                    if let Some(taken) = issue.in_hands_mut() {
                        taken.giving_back = None;
                    }
                };
                match self.parked_cell(issue).update(forget).await {
                    Ok(_) => Ok(text),
                    Err(error) => Err(error.to_string()),
                }
            }
        }
    }

    async fn is_closed(&self, issue: &IssueRef) -> bool {
        let fresh = self.quick_client().issue(&issue.repo, issue.number).await;
        fresh.is_ok_and(|fresh| !fresh.issue.open)
    }

    /// No run writes the status comment anew for a while, and it says that somebody has the work.
    async fn show_given(&self, issue: &IssueRef, text: &str) {
        let text = format!("{text}\n{}", shown_lease::parked_line(&self.deps.state));
        let of = (&issue.repo, issue.number);
        let shown = status_comment::ensure(&self.quick_client(), self.deps.state.store(), of, &text).await;
        if let Err(error) = shown {
            tracing::warn!(%issue, %error, "the status comment does not say that the work was given back");
        }
    }

    /// Looks after work that a person has, wants, or gave back. False = it is none of these.
    pub(super) async fn heed_taken(
        &mut self,
        issue: &IssueRef,
        known: &ParkedIssue,
    ) -> Result<bool, NotHeeded> {
        if let (Some(asked), None) = (&known.asked, known.taken()) {
            // The run that was asked has ended otherwise.
            let over = asked.over.clone();
            return match (self.deps.take_as_asked)(issue.clone(), asked.clone()).await {
                Ok(took) => {
                    tracing::info!(%issue, by = over.by, ?took, "the work was asked for");
                    self.note_taken(issue, took.is_some());
                    Ok(took.is_some())
                }
                Err(refusal) => {
                    tracing::warn!(%issue, by = over.by, %refusal, "the work could not be handed over");
                    Ok(false)
                }
            };
        }
        let is_asked = |taken: &Taken| taken.giving_back.is_some();
        if let Some((parked, taken)) = known.taken().or(known.in_hands().filter(|(_, taken)| is_asked(taken)))
        {
            self.note_taken(issue, true);
            self.tend(issue, parked, taken).await;
            return Ok(true);
        }
        let was = self.is_taken(issue);
        self.note_taken(issue, false);
        // Whoever has gone on with it, this one does not once more.
        if let Some(over) = known.parked.as_ref().filter(|parked| parked.over.is_some())
            && let Some(watch) = self.watch_of(&issue.repo)
            && let Some(memory) = watch.state.issues.get_mut(&issue.number)
        {
            memory.resume.take_if(|run_id| *run_id == over.run_id);
        }
        let Some(parked) = known.now().filter(|parked| parked.answer.is_some()) else { return Ok(was) };
        let WaitsFor::GiveBack(taken) = &parked.waits_for else { return Ok(false) };
        self.go_on(issue, parked, taken).await?;
        Ok(true)
    }

    /// Work that a person has: what they asked for and a killed process did not finish is done now.
    async fn tend(&mut self, issue: &IssueRef, parked: &Parked, taken: &Taken) {
        if let Some(giving) = &taken.giving_back {
            match self.carry_out(issue, giving).await {
                Ok(text) => {
                    self.answer(issue, (giving.remark, giving.on.unwrap_or(issue.number), None), &text).await;
                }
                Err(why) => {
                    tracing::warn!(%issue, why, "work could not be given back yet; it is tried again");
                }
            }
        } else if !parked.is_posted {
            let again = TakenOver { by: taken.by.clone(), pushes: !taken.is_in_worktree() };
            if let Err(refusal) = (self.deps.take)(issue.clone(), again).await {
                tracing::warn!(%issue, %refusal, "the issue does not say yet who has its work");
            }
        }
        let parked = parked.clone();
        if let Some(watch) = self.watch_of(&issue.repo) {
            watch.parked.insert(issue.number, parked);
        }
    }

    /// Work that was given back: a run goes on with it.
    async fn go_on(&mut self, issue: &IssueRef, parked: &Parked, taken: &Taken) -> Result<(), NotHeeded> {
        let client = self.quick_client();
        let by_id = taken.given.as_ref().map_or(0, |given| given.by_id);
        let answer = parked.answer.clone();
        let Some(watch) = self.watch_of(&issue.repo) else { return Ok(()) };
        let memory = watch.state.issues.entry(issue.number).or_default();
        memory.resume = (!taken.is_done).then_some(parked.run_id);
        memory.back_off = None;
        // Where the trigger is off, whoever gave it back by a comment asks for the run. On this machine the command starts it.
        let Some(answer) = answer.filter(|_| by_id > 0 && watch.candidate(issue.number).is_none()) else {
            return Ok(());
        };
        let fresh = client.issue(&issue.repo, issue.number).await?;
        let Some(watch) = self.watch_of(&issue.repo).filter(|_| fresh.issue.open) else { return Ok(()) };
        watch.state.issues.entry(issue.number).or_default().asked_by =
            Some(AskedBy { login: answer.by, id: by_id, at: Some(answer.at), how: AskedHow::Comment });
        watch.recover(fresh);
        Ok(())
    }

    /// A person stops what was given back, before a run has gone on with it. Gives what people are told; `None` = nothing was.
    pub(super) async fn stop_given_back(
        &mut self,
        issue: &IssueRef,
        login: &str,
    ) -> Result<Option<String>, NotHeeded> {
        let stop = |issue: &mut ParkedIssue| {
            if let Some(taken) = issue.taken_mut() {
                return taken.giving_back.take().map(|_| false);
            }
            issue.in_hands()?;
            issue.parked.as_mut()?.over = Some(Over::Ended(StopDetail::UserStop.as_str().to_owned()));
            Some(true)
        };
        let Some(is_given) = self.parked_cell(issue).update(stop).await?.1 else { return Ok(None) };
        if !is_given {
            return Ok(Some(format!("{login} stopped it: the work is not given back.")));
        }
        self.note_taken(issue, false);
        let state = IssueState::after(StopDetail::UserStop).unwrap_or(IssueState::Attention);
        self.plan_outcome(issue, state, StopDetail::UserStop.as_str(), None);
        let mut watches = self.watches.iter_mut().filter(|watch| watch.watched.name == issue.repo);
        let memory = watches.find_map(|watch| watch.state.issues.get_mut(&issue.number));
        if let Some(parked) = memory.and_then(|memory| memory.parked.as_mut()) {
            parked.text = format!("{login} stopped it after the work was given back");
        }
        Ok(Some(format!("{login} stopped it: no run goes on with the work that was given back.")))
    }

    fn note_taken(&mut self, issue: &IssueRef, taken: bool) {
        let Some(watch) = self.watch_of(&issue.repo) else { return };
        if taken {
            watch.state.issues.entry(issue.number).or_default().taken = true;
        } else if let Some(memory) = watch.state.issues.get_mut(&issue.number).filter(|memory| memory.taken) {
            memory.taken = false;
            if memory.parked.as_ref().is_some_and(|parked| parked.code == "taken") {
                memory.parked = None;
            }
        }
    }
}

/// What stands in the way, and what to do.
pub(super) fn told(refusal: &Refusal) -> String {
    let mut text = refusal.stop.message.clone();
    for hint in &refusal.hints {
        text.push_str(&format!("\n- {hint}"));
    }
    text
}

/// What became of work that was given back.
fn given(issue: &IssueRef, (giving, then): (&GivingBack, &str), back: &GaveBack) -> String {
    let files = match back.changed.len() {
        0 => "nothing was changed".to_owned(),
        1 => "one file was changed".to_owned(),
        files => format!("{files} files were changed"),
    };
    let left_out = back.left_out(&branch_of(&IssueKey::Number(issue.number)));
    let left_out = left_out.map(|told| format!(" {told}")).unwrap_or_default();
    format!("{} gave the work back at {}; {files}. {then}{left_out}", giving.by, back.head.short())
}
