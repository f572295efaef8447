//! In a cluster: what people ask who may change nothing themselves. Every node hears it; the one that polls the repository carries it out,
//! and says so, so that no other one does.

use std::sync::Arc;

use crate::daemon::draining::Draining;
use crate::daemon::hints::woken;
use crate::daemon::main_loop::{AbortOnDrop, Daemon};
use crate::daemon::snapshot::IssueRef;
use crate::domain::cluster::person_request::PersonRequest;
use crate::lifecycle::carry_out::{self, NotCarriedOut};
use crate::lifecycle::decisions::Plans;
use crate::store::requests::Requests;

impl Daemon {
    /// In a cluster: hears what operators ask of this node and of runs, and has the runs hear of a stop as that needs.
    pub(in crate::daemon) fn hear_operators(&mut self) -> Option<[AbortOnDrop; 3]> {
        let assignments = self.cluster.assignments.clone()?;
        self.draining = Draining::new(&self.deps.shutdown, Some(self.deps.drain_timeout));
        let serves = self.deps.repositories.iter().map(|watched| watched.name.clone()).collect();
        let passing_on = self.draining.clone().pass_on(Arc::clone(&assignments), serves);
        let woken = woken(Arc::clone(&assignments), self.hints());
        let requests = self.cluster.requests.clone();
        let listening = self.cluster.moves.clone().listen(assignments, self.draining.clone(), requests);
        let passing_on = tokio::spawn(async move { match passing_on.await {} });
        let tasks = [passing_on.abort_handle(), tokio::spawn(listening).abort_handle()];
        let [passing_on, listening] = tasks.map(AbortOnDrop);
        Some([passing_on, listening, AbortOnDrop(tokio::spawn(woken).abort_handle())])
    }

    /// Carries out what people ask of the repositories that this node polls. It may be left at any moment: a request stays open until it is
    /// said that it was heard, and carried out once more it changes nothing.
    pub(in crate::daemon) async fn heed_requests(&mut self) {
        let due = self
            .cluster
            .requests
            .of(|request| self.watches.iter().any(|watch| watch.watched.name == request.repository));
        let Some(port) = self.deps.state.store().requests().filter(|_| !due.is_empty()) else { return };
        if !self.may_poll() {
            return;
        }
        let mut something = false;
        for request in due {
            let client = self.quick_client();
            let plans = Plans { github: Some(&client), most_rejected: self.deps.plan.max_rounds };
            let done = carry_out::hear(&self.deps.state, &request, plans, self.deps.clock.now()).await;
            let what = format!("request {} of {}#{}", request.id, request.repository, request.issue);
            let refused = match done {
                Ok(_) => None,
                Err(NotCarriedOut::CutOff) if self.is_gone_on_with(&request) => continue,
                Err(NotCarriedOut::CutOff) => Some("the run has ended already".to_owned()),
                Err(error) if error.is_transient() => {
                    if self.troubles.again(what.clone(), &error.to_string()) {
                        tracing::warn!("{what} cannot be carried out yet; it is tried again: {error}");
                    }
                    continue;
                }
                Err(error) => Some(error.to_string()),
            };
            self.troubles.over(&what);
            something |= refused.is_none();
            tracing::info!(by = request.by.user, ?refused, "{what} was heard");
            self.say_heard(&port, request, refused).await;
        }
        if something {
            // Nobody waits for the next look then.
            self.heed_approvals().await;
            self.heed_money().await;
            self.hints.look_now();
        }
    }

    /// Whether another run goes on with one that was cut off.
    fn is_gone_on_with(&self, request: &PersonRequest) -> bool {
        let Some(number) = request.issue.number() else { return false };
        let issue = IssueRef { repo: request.repository.clone(), number };
        self.supervisor.get(&issue).is_some() || self.unfinished.iter().any(|left| left.issue == issue)
    }

    async fn say_heard(&mut self, port: &Arc<dyn Requests>, request: PersonRequest, refused: Option<String>) {
        let (port, id) = (Arc::clone(port), request.id);
        let said = tokio::task::spawn_blocking(move || port.say_heard(&request, refused)).await;
        match said {
            Ok(Ok(())) => self.cluster.requests.forget(id),
            Ok(Err(error)) => tracing::warn!("it is not said yet that a request was heard: {error}"),
            Err(panic) => tracing::error!(%panic, "it is not said yet that a request was heard"),
        }
    }
}
