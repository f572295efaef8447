//! One look at repositories: which of them, what is read of each, and what follows from it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::time::Instant;

use super::activity::{are_few, asked_in_a_poll, idle_pause, is_new, question_pause};
use super::hints::Hinted;
use super::listen::Ears;
use super::main_loop::Daemon;
use super::poll::{Watch, quiet};
use crate::conversation::inbox::Inboxes;
use crate::domain::name::RepoName;
use crate::github::Client;

/// So many repositories that were never looked at are looked at in one tick: what was asked for in the first of them does not
/// wait for the last.
const FIRST_LOOKS: usize = 16;
/// Repositories polled at the same time.
pub(super) const POLLED_AT_ONCE: usize = 8;

impl Daemon {
    /// Reconcile, poll, sweep, dispatch (S33). A repository whose poll fails starts nothing and stops nothing (S29). True: there are
    /// repositories left that were never looked at, or issues about which nothing was asked, for a tick that follows at once.
    pub(super) async fn tick(&mut self) -> bool {
        self.asks_more = false;
        let later = self.looked_at_later().await;
        let idle = self.watches.iter().filter(|watch| watch.is_idle());
        let requests: u32 = idle.map(|watch| watch.activity.requests).sum();
        // All nodes together look as often as one would that polls all repositories.
        let (own, all) = (self.watches.len().max(1), self.watches.len() + self.cluster.resting.len());
        let parts = u32::try_from(all.div_ceil(own)).unwrap_or(u32::MAX);
        let pause = idle_pause(requests.saturating_mul(parts));
        let new = is_new(all, self.began.elapsed());
        let (busy, quiet) = (self.busy(), self.quiet());
        let is_due = |watch: &Watch| {
            if later.contains(&watch.watched.name) {
                return false;
            }
            new || watch.is_rung(quiet)
                || !watch.is_idle()
                || busy.contains_key(&watch.watched.name)
                || watch.activity.has_rested(pause)
        };
        let changed = match are_few(all) {
            true => BTreeSet::new(),
            false => self.ask_the_others(&is_due, own as f64 / all as f64).await,
        };
        let changed = |name: &RepoName| changed.contains(name) && !later.contains(name);
        self.look(|watch| is_due(watch) || changed(&watch.watched.name)).await;
        !later.is_empty() || self.asks_more
    }

    /// Of many repositories that were never looked at, as after a start, those whose turn is not now. Where something changed last is
    /// looked at first.
    async fn looked_at_later(&mut self) -> BTreeSet<RepoName> {
        let new = |watch: &Watch| watch.activity.seen_at.is_none();
        let count = self.watches.iter().filter(|watch| new(watch) && self.is_configured(watch)).count();
        if count <= FIRST_LOOKS || !self.may_poll() {
            return BTreeSet::new();
        }
        let client = self.quick_client();
        let unasked = self.watches.iter_mut().filter(|watch| new(watch) && !watch.activity.was_asked());
        let asked = unasked.map(async |watch| watch.activity.begin(&client, &watch.watched.name).await);
        futures::stream::iter(asked).buffer_unordered(POLLED_AT_ONCE).collect::<Vec<()>>().await;
        let mut waiting: Vec<&Watch> =
            self.watches.iter().filter(|watch| new(watch) && self.is_configured(watch)).collect();
        waiting.sort_by_key(|watch| std::cmp::Reverse(watch.activity.newest_at()));
        waiting.into_iter().skip(FIRST_LOOKS).map(|watch| watch.watched.name.clone()).collect()
    }

    /// Asks repositories that are not due whether anything changed, those first that have waited longest. Gives those to look at.
    async fn ask_the_others(&mut self, is_due: impl Fn(&Watch) -> bool, part: f64) -> BTreeSet<RepoName> {
        if !self.may_poll() {
            return BTreeSet::new();
        }
        let (client, now, interval) = (self.quick_client(), self.deps.clock.now(), self.deps.poll_interval);
        let pace = client.requests_per_minute();
        let pause = question_pause(pace, interval);
        let mut others: Vec<&mut Watch> = self
            .watches
            .iter_mut()
            .filter(|watch| watch.activity.may_be_asked(pause) && !is_due(watch))
            .collect();
        others.sort_by_key(|watch| watch.activity.last());
        others.truncate(asked_in_a_poll(pace, interval, part));
        let asked = others
            .into_iter()
            .map(async |watch| watch.has_news(&client, now).await.then(|| watch.watched.name.clone()));
        futures::stream::iter(asked)
            .buffer_unordered(POLLED_AT_ONCE)
            .filter_map(std::future::ready)
            .collect()
            .await
    }

    async fn look(&mut self, at: impl Fn(&Watch) -> bool) {
        if !self.may_poll() {
            return;
        }
        self.open_rest().await;
        self.empty_outbox().await;
        self.tell_ends().await;
        self.leave_repositories();
        let now = self.deps.clock.now();
        let (client, interval) = (self.quick_client(), self.deps.poll_interval);
        let trigger = self.deps.labels.trigger.clone();
        self.recover().await;
        let wanted = |watch: &&Watch| at(watch) && self.is_configured(watch);
        let looked: BTreeSet<RepoName> =
            self.watches.iter().filter(wanted).map(|watch| watch.watched.name.clone()).collect();
        self.learn_name(&client).await;
        self.adopt_parked(&looked).await;
        let few = are_few(self.watches.len() + self.cluster.resting.len());
        let (busy, nobody) = (self.busy(), BTreeMap::new());
        let (state, table) = (&self.deps.state, &self.deps.conversation);
        let has_nodes = self.cluster.assignments.is_some();
        let polls =
            self.watches.iter_mut().filter(|watch| looked.contains(&watch.watched.name)).map(async |watch| {
                let hinted = std::mem::take(&mut watch.hinted);
                if hinted {
                    watch.looked_at = Some(Instant::now());
                    watch.pulls.ring();
                    // Something came from it: it is worth a try.
                    watch.health.end_pause();
                }
                if !few && !watch.activity.is_known() {
                    watch.activity.begin(&client, &watch.watched.name).await;
                }
                let fresh = watch.poll(&client, &trigger, interval, now).await;
                // What was delivered is not seen before a look succeeds.
                watch.hinted |= hinted && !fresh;
                watch.read_pulls(&client).await;
                let inboxes = Inboxes::new(state, &watch.watched.name);
                let busy = busy.get(&watch.watched.name).unwrap_or(&nobody);
                watch.hear(Ears { client: &client, table, inboxes: &inboxes, busy, now, has_nodes }).await;
                watch.activity.seen_at = Some(Instant::now());
            });
        futures::stream::iter(polls).buffer_unordered(POLLED_AT_ONCE).collect::<Vec<()>>().await;
        self.answer_labelled_pulls(&looked).await;
        self.attend(&looked).await;
        self.heed_requests().await;
        self.heed_approvals().await;
        self.heed_money().await;
        self.go_on_after_pauses().await;
        self.heed_parked().await;
        self.unqueue().await;
        self.start_due_sweeps(now).await;
        self.gone = self.find_gone(&looked).await;
        self.dispatch().await;
        // After what was asked for: nobody waits for these.
        let follows = self.follow_pulls(now, &looked).await;
        if self.start_rounds(&looked).await || follows {
            // They are asked for only now, and one that there is no money for waits.
            self.heed_money().await;
            self.dispatch().await;
        }
    }

    /// Who agentd is, for mentions.
    async fn learn_name(&mut self, client: &Client) {
        if !self.name.is_empty() || !self.deps.conversation.mention.trim().is_empty() {
            return;
        }
        match client.viewer().await {
            Ok(viewer) => self.name.clone_from(&viewer.actor.login),
            Err(error) => tracing::debug!(%error, "GitHub does not say who agentd is"),
        }
    }

    /// Repositories that deliveries name are looked at soon, and those that people name at once.
    pub(super) fn note(&mut self, hinted: &Hinted) {
        for watch in &mut self.watches {
            let name = watch.watched.name.to_string().to_ascii_lowercase();
            if hinted.names(&name) {
                watch.hint(hinted.wants_now(&name));
            }
        }
        self.wake_pollers(hinted);
    }

    /// A tick that looks only where a delivery says that something happened, and where it is time to heed that.
    pub(super) async fn tick_where_rung(&mut self) {
        let quiet = self.quiet();
        self.look(|watch| watch.is_rung(quiet)).await;
    }

    /// How long a repository is left alone after a delivery was looked_at.
    pub(super) fn quiet(&self) -> Duration {
        quiet(self.watches.iter().filter(|watch| watch.is_named()).count())
    }
}
