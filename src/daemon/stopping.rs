//! `/agentd stop`: the run that works is asked to end, or else whatever would begin by itself does not.

use super::admission::Admission;
use super::commands::ASK_AGAIN;
use super::main_loop::Daemon;
use super::parked::NotHeeded;
use super::snapshot::IssueRef;
use super::state_format::AskedBy;
use super::supervise::UnfinishedRun;
use super::taken::told;
use crate::issue::cut_off_runs::BegunBy;
use crate::issue::unwanted;
use crate::lifecycle::beside::BesideRequest;

/// What comes of a run that is told to stop, for people.
const FINISHES: &str = "an agent at work gives one last report (an agent program has ten seconds to end with its own) and the run ends; a \
                        run whose agent is done finishes what is left (verify commands, push, pull request).";

impl Daemon {
    /// Gives what people are told.
    pub(super) async fn stop_for(&mut self, issue: &IssueRef, by: &AskedBy) -> String {
        if let Some(told) = self.stop_live(issue, &by.login).await {
            return told;
        }
        let mut told = match self.stop_what_waits(issue, by).await {
            Ok(told) if told.is_empty() => vec!["Nothing runs and nothing waits for this issue.".to_owned()],
            Ok(told) => told,
            Err(why) => return why,
        };
        if self.is_taken(issue) {
            told.push("A person has the work: what they give back is gone on with.".to_owned());
        }
        told.join(" ")
    }

    /// Tells the run that works on an issue to stop; `None` = none does. Gives the answer for people.
    async fn stop_live(&mut self, issue: &IssueRef, login: &str) -> Option<String> {
        if let Some(live) = self.supervisor.get(issue) {
            live.control.stop(unwanted::by_person());
            match (self.deps.beside)(issue.clone(), BesideRequest::KeepStop).await {
                Ok(Some(_)) => {}
                // It has no record yet that could keep it. Without the label nothing begins anew if this process dies.
                Ok(None) => {
                    let (client, trigger) = (self.quick_client(), self.deps.labels.trigger.clone());
                    if let Err(error) = client.remove_label(&issue.repo, issue.number, &trigger).await
                        && !error.is_absent()
                    {
                        tracing::warn!(%issue, %error, "the label of a run that was told to stop could not be taken off");
                    }
                }
                Err(refusal) => {
                    tracing::warn!(%issue, %refusal, "a stop could not be kept: it is forgotten if this process dies before the run ends");
                }
            }
            return Some(format!("{login} asked the run to stop: {FINISHES}"));
        }
        // Whoever runs it by hand does not read comments: the daemon does it for them.
        match (self.deps.beside)(issue.clone(), BesideRequest::Stop).await {
            Ok(None) => None,
            Ok(Some(run)) => Some(format!("{login} asked run {run} to stop: {FINISHES}")),
            Err(refusal) => Some(told(&refusal)),
        }
    }

    /// Gives what was stopped, a sentence each; `Err` = what people are told instead.
    async fn stop_what_waits(&mut self, issue: &IssueRef, by: &AskedBy) -> Result<Vec<String>, String> {
        let login = &by.login;
        let mut told = Vec::new();
        told.extend(self.stop_calls(issue, by).await?);
        told.extend(self.stop_parked(issue, login).await?);
        told.extend(self.stop_resumption(issue, login));
        told.extend(self.stop_what_begins(issue, login).await?);
        Ok(told)
    }

    /// Decides against the calls that wait for an approval.
    async fn stop_calls(&mut self, issue: &IssueRef, by: &AskedBy) -> Result<Option<String>, String> {
        let login = &by.login;
        let denied = (self.deps.deny)(issue.clone(), Admission::principal_of(login, by.id)).await?;
        let Some(calls) = denied else { return Ok(None) };
        // Else it is told at a later look.
        if self.tell_denied(issue, &format!("{login} decided against its call")).await {
            self.leave_parked(issue);
        }
        Ok(Some(format!(
            "{login} decided against what waited for an approval, {calls}; nothing goes on by itself."
        )))
    }

    /// Ends what a follow-up run asked or planned, and work that was given back and that no run has gone on with.
    async fn stop_parked(&mut self, issue: &IssueRef, login: &str) -> Result<Option<String>, String> {
        let ended = async {
            Ok::<_, NotHeeded>(match self.stop_round_parked(issue, login).await? {
                true => Some(format!(
                    "{login} stopped it: nobody is waited for any more, and nothing goes on by itself."
                )),
                false => self.stop_given_back(issue, login).await?,
            })
        };
        ended.await.map_err(|error| {
            tracing::warn!(%issue, %error, "what is waited for could not be ended");
            format!("What is waited for could not be ended now; {ASK_AGAIN}.")
        })
    }

    /// A run that is to be gone on with after a pause waits as well.
    fn stop_resumption(&mut self, issue: &IssueRef, login: &str) -> Option<String> {
        let memory = self.watch_of(&issue.repo)?.state.issues.get_mut(&issue.number)?;
        memory.resume = None;
        memory.goes_on.take()?;
        self.save();
        Some(format!("{login} stopped it: its last run is not gone on with until the label is put on again."))
    }

    /// Whether something asks for a run: also a label from after the last look, as of `/agentd run` a moment before.
    async fn is_labelled(&mut self, issue: &IssueRef) -> Result<bool, String> {
        if self.watch_of(&issue.repo).is_some_and(|watch| watch.candidate(issue.number).is_some()) {
            return Ok(true);
        }
        match self.quick_client().issue(&issue.repo, issue.number).await {
            Ok(now) => Ok(now.has_label(&self.deps.labels.trigger)),
            Err(error) => {
                tracing::warn!(%issue, %error, "whether the label is on an issue could not be asked");
                Err(format!("Whether something is to begin could not be asked now; {ASK_AGAIN}."))
            }
        }
    }

    /// What waits in the queue does not begin, nor a follow-up run that waits until people have written all, or all checks have ended.
    async fn stop_what_begins(&mut self, issue: &IssueRef, login: &str) -> Result<Option<String>, String> {
        let is_labelled = self.is_labelled(issue).await?;
        let mut follows = self.refuse_follow_up(issue);
        follows |= self.refuse_due(issue).await;
        let checks = self.refuse_checks(issue);
        if is_labelled {
            let (client, labels) = (self.quick_client(), self.deps.labels.clone());
            for label in [&labels.trigger, &labels.queued] {
                if let Err(error) = client.remove_label(&issue.repo, issue.number, label).await {
                    tracing::warn!(%issue, %error, "a label could not be taken off");
                }
            }
            let running = &labels.running;
            let is_cut_off = self.watch_of(&issue.repo).is_some_and(|watch| {
                let known = watch.candidate(issue.number);
                let shows_a_run = known.is_some_and(|(snapshot, _)| snapshot.has_label(running));
                watch.drop_candidate(issue.number);
                shows_a_run
            });
            // A killed run that was to be gone on with is brought to its end.
            if is_cut_off {
                self.unfinished.push(UnfinishedRun { issue: issue.clone(), begun: BegunBy::Labelled });
            }
        }
        let until = match (follows, checks) {
            (false, false) if !is_labelled => return Ok(None),
            (false, false) => "the label is put on again",
            (true, false) => "somebody writes on the pull request again, or the label is put on",
            (_, true) => "somebody writes on the pull request again or pushes to it, or the label is put on",
        };
        let stopped = if is_labelled { "took it out of the queue" } else { "stopped what was to begin" };
        Ok(Some(format!("{login} {stopped}; nothing will run until {until}.")))
    }
}
