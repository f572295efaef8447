//! The money of issues: whose budget is used up, `/agentd extend 5`, and runs that go on once somebody gave more.

use super::main_loop::Daemon;
use super::snapshot::IssueRef;
use super::state_format::{AskedBy, OutOfMoney};
use super::supervise::{Gift, MoneyGiven};
use crate::domain::issue::IssueKey;
use crate::domain::money::Money;
use crate::domain::remark::RemarkId;
use crate::engine::shared_cap;
use crate::engine::shared_cap_format::Extension;

/// What was read of an issue's spending.
struct Read {
    issue: IssueRef,
    used_up: Option<(Money, Money)>,
    given: Money,
}

impl Daemon {
    /// Reads what the issues have cost that are asked for or that money ended, and goes on with those that were given more.
    pub(super) async fn heed_money(&mut self) {
        let mut wanted: Vec<(IssueRef, Option<Money>)> = Vec::new();
        for watch in &self.watches {
            let (repo, cap) = (&watch.watched.name, watch.watched.issue_cap);
            let ended = watch.state.issues.iter().filter(|(_, memory)| memory.out_of_money.is_some());
            let asked = watch.candidates().filter_map(|(issue, _)| issue.issue.key.number());
            let numbers = asked.chain(ended.map(|(number, _)| *number));
            wanted.extend(numbers.map(|number| (IssueRef { repo: repo.clone(), number }, cap)));
        }
        let store = self.deps.state.store().clone();
        let work = move || {
            let read = |(issue, cap): (IssueRef, Option<Money>)| {
                let key = IssueKey::Number(issue.number);
                let spending = shared_cap::issue_spending(&store, &issue.repo, &key);
                let spending =
                    spending.inspect_err(|error| tracing::warn!(%issue, %error, "not read")).ok()?;
                let used_up = cap.and_then(|cap| shared_cap::used_up(&spending, cap));
                Some(Read { issue, used_up, given: spending.given() })
            };
            wanted.into_iter().filter_map(read).collect::<Vec<_>>()
        };
        let Ok(read) = tokio::task::spawn_blocking(work).await else { return };
        self.watches.iter_mut().for_each(|watch| watch.money_used_up.clear());
        for Read { issue, used_up, given } in read {
            let Some(watch) = self.watch_of(&issue.repo) else { continue };
            if let Some(used_up) = used_up {
                watch.money_used_up.insert(issue.number, used_up);
            }
            let memory = watch.state.issues.get(&issue.number);
            let ended = memory.filter(|memory| memory.pending_outcome.is_none());
            let ended = ended.and_then(|memory| memory.out_of_money.clone());
            if let Some(ended) = ended.filter(|ended| given > ended.given) {
                self.go_on_with(&issue, ended).await;
            }
        }
    }

    /// What an issue has cost and may cost, where that is used up.
    pub(super) async fn money_gone(&self, issue: &IssueRef) -> Option<(Money, Money)> {
        let cap = self.watches.iter().find(|watch| watch.watched.name == issue.repo)?.watched.issue_cap?;
        let (store, repo, key) =
            (self.deps.state.store().clone(), issue.repo.clone(), IssueKey::Number(issue.number));
        let work = move || shared_cap::used_up(&shared_cap::issue_spending(&store, &repo, &key).ok()?, cap);
        tokio::task::spawn_blocking(work).await.ok()?
    }

    /// Queues the run that goes on with one that money ended.
    async fn go_on_with(&mut self, issue: &IssueRef, ended: OutOfMoney) {
        if self.supervisor.get(issue).is_some() {
            return;
        }
        let queued = match self.queue(issue, ended.by).await {
            Ok(queued) => queued,
            Err(error) if error.is_absent() => false,
            Err(error) => {
                tracing::warn!(%issue, %error, "a run that was given more could not be gone on with yet; it is tried again");
                return;
            }
        };
        tracing::info!(%issue, queued, "the issue was given more money");
        if let Some(watch) = self.watch_of(&issue.repo) {
            let memory = watch.state.issues.entry(issue.number).or_default();
            memory.out_of_money = None;
            memory.resume = queued.then_some(ended.run_id);
        }
        self.save();
    }

    /// `/agentd extend 5`: so much more for the issue, and for the run that works. A run that money ended is gone on with.
    /// Gives the answer for people.
    pub(super) async fn extend_by(
        &mut self,
        issue: &IssueRef,
        amount: Money,
        by: AskedBy,
        comment: RemarkId,
    ) -> String {
        let login = by.login.clone();
        let at = by.at.unwrap_or_else(|| self.deps.clock.now());
        let extension = Extension { by: login.clone(), amount, at, by_comment: true };
        let gift = Gift { asked: comment.to_string(), extension };
        let MoneyGiven { stands, ended } = match (self.deps.extend)(issue.clone(), gift).await {
            Ok(given) => given,
            Err(refused) => return refused,
        };
        let may = stands.in_words().map_or_else(String::new, |may| format!(": {may}"));
        let then = if self.supervisor.get(issue).is_some() {
            "The run that works may cost as much more, too.".to_owned()
        } else if let Some((run_id, given)) = ended {
            if let Some(watch) = self.watch_of(&issue.repo) {
                let memory = watch.state.issues.entry(issue.number).or_default();
                memory.out_of_money.get_or_insert(OutOfMoney { run_id, given, by });
            }
            // At this very tick, or at the next one where GitHub does not answer.
            self.heed_money().await;
            match self.begins_later(issue) {
                Some(later) => format!("The work goes on where it stopped, but not yet. {later}"),
                None => "The work goes on where it stopped.".to_owned(),
            }
        } else {
            "No run waits for it.".to_owned()
        };
        format!("{login} gave this issue {amount} (USD) more{may}. {then}")
    }
}
