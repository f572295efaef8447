//! What the launches of a visit use: noted while they work, charged and kept in the ledger at their end.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use super::abort::Abort;
use super::agent_output::{AgentOutput, Used};
use super::agent_tools::TURN;
use super::agent_visit::AgentVisit;
use super::model_orders::{DearestCase, Ordered};
use super::session_trace::LedgerLine;
use super::shared_caps::Reservations;
use crate::domain::event::Event;
use crate::domain::ledger_entry::{AccountingEntry, AccountingKind};
use crate::domain::message::TokenUsage;
use crate::domain::money::Money;
use crate::domain::reply_limit::NotPaid;

/// What the journal has last of a launch that works; `None` = nothing yet.
pub(super) type Noted = Option<(bool, Option<TokenUsage>, Option<Money>, TokenUsage)>;

/// A launch as its ledger lines name it: the fingerprint of its prompt, when it began, and the same by the clock.
pub(super) type Began<'a> = (&'a str, Instant, i64);

impl AgentVisit<'_> {
    /// What a launch used, as far as anybody says.
    pub(super) fn used(&self, said: &AgentOutput) -> Vec<Used> {
        said.used(&self.plan.settings.targets, self.agent.model.as_deref())
    }

    /// The same, where one that was started and of which nobody says anything may have paid as well.
    fn used_or_untold(&self, said: &AgentOutput) -> Vec<Used> {
        let mut used = self.used(said);
        if used.is_empty() && said.was_started && !self.agent.seen_whole {
            used.push(Used::untold(self.agent.model.clone()));
        }
        used
    }

    /// The ledger lines of what a launch has used.
    fn lines(
        &self,
        used: Vec<Used>,
        (fingerprint, started, timestamp): Began<'_>,
        error: Option<&str>,
    ) -> Vec<(Used, Box<AccountingEntry>)> {
        let line = |used: Used| {
            let entry = self.record.ledger_entry(LedgerLine {
                what: AccountingKind::Llm {
                    provider: self.agent.name.clone(),
                    model: used.model.clone().unwrap_or_else(|| "unknown".to_owned()),
                    actual_provider: None,
                    actual_model: None,
                    tokens: used.tokens,
                    estimated: used.estimated,
                    cost_usd: used.cost,
                    estimated_cost_usd: Some(used.estimate()).filter(|estimate| *estimate > Money::ZERO),
                    cost_source: used.source,
                    stop_reason: None,
                    http_status: None,
                    broke_off: error.is_some() && (used.estimated.is_some() || used.tokens.is_none()),
                    fingerprint: fingerprint.to_owned(),
                },
                turn: TURN,
                attempt: Some(self.launches),
                timestamp,
                latency: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
                error: error.map(str::to_owned),
            });
            (used, entry)
        };
        used.into_iter().map(line).collect()
    }

    /// Keeps what a launch has used so far, if that is new: a killed process cannot say it any more. One that may have paid before
    /// it tells anything is kept from its start. Gives what of it counts against caps.
    pub(super) fn note_so_far(
        &self,
        so_far: &AgentOutput,
        noted: &mut Noted,
        began: Began<'_>,
    ) -> Result<Money, Abort> {
        let used = self.lines(self.used_or_untold(so_far), began, None);
        let counts = used.iter().map(|(used, _)| used.counts()).sum();
        let told = Some((so_far.was_started, so_far.tokens(), so_far.cost, so_far.seen.estimated()));
        if told != *noted && (noted.is_some() || !used.is_empty()) {
            *noted = told;
            let entries = used.into_iter().map(|(_, entry)| *entry).collect();
            self.record.note(Event::AgentSpent { entries })?;
        }
        Ok(counts)
    }

    /// Has the requests sent that wait for their money, the first one first, as far as it is there. What does not fit beside the requests
    /// under way waits for them. Gives why the program has to end, if it has.
    pub(super) async fn pay(
        &self,
        ordered: &mut Ordered,
        shared: &Arc<Reservations>,
        heard: &watch::Receiver<AgentOutput>,
    ) -> Result<Option<Abort>, Abort> {
        let (world, settings) = (&self.world.0, &self.plan.settings);
        while let Some((asked, since)) = ordered.first() {
            let case = DearestCase::of(&settings.targets, &asked);
            // In this order: a reply is counted before its money is given back.
            let under_way = ordered.under_way();
            let so_far: Money = self.used(&heard.borrow()).iter().map(Used::counts).sum();
            let least = case.least();
            if let Some(paid) = world.pay(shared, (so_far, under_way), case).await? {
                ordered.answer(Ok(paid));
                continue;
            }
            let waits = since.elapsed() < settings.llm_timeout;
            match under_way.is_zero() {
                true => return world.not_paid(shared, (so_far, least), waits).await,
                false if waits => return Ok(None),
                false => ordered.answer(Err(NotPaid::SetAside)),
            }
        }
        Ok(None)
    }

    /// Charges what the program's own models used, and keeps it in the ledger. Gives what of it counts against caps. `noted` = the
    /// journal has something of the launch.
    pub(super) fn account(
        &mut self,
        said: &AgentOutput,
        noted: bool,
        began: Began<'_>,
        error: Option<&str>,
    ) -> Result<Money, Abort> {
        self.turns += said.turns;
        let mut counts = Money::ZERO;
        let lines = self.lines(self.used_or_untold(said), began, error);
        if noted || !lines.is_empty() {
            // Whoever finds some of the lines then knows which ones they all are.
            let entries = lines.iter().map(|(_, entry)| (**entry).clone()).collect();
            self.record.note(Event::AgentSpent { entries })?;
        }
        for (used, entry) in lines {
            let estimate = used.estimate();
            self.record.note(Event::LlmAttempted { entry })?;
            self.usage = self.usage.plus(used.tokens.unwrap_or_default());
            self.cost += used.cost.unwrap_or_default();
            self.cost_unknown |= used.cost.is_none();
            counts += used.counts();
            let meter = &self.world.0.meter;
            meter.charge_estimate(estimate);
            if meter.charge(used.cost) {
                let counted = match estimate {
                    Money::ZERO => "; no budget counts it",
                    _ => "; the dearest price of a target counts against the budgets",
                };
                let why = why_unknown(&used, said.seen.left > 0);
                let text = format!("What {} costs is unknown: {why}{counted}.", self.agent.name);
                self.record.warn("cost_unknown", &text)?;
            }
        }
        Ok(counts)
    }
}

/// Why nobody knows what was used costs.
fn why_unknown(used: &Used, left: bool) -> &'static str {
    match (used.tokens, used.estimated) {
        (Some(_), _) => "it does not say so, and no target has a price for its model",
        (None, Some(_)) if left => "a reply of its model was left before its end",
        (None, Some(_)) => "a reply of its model reports no tokens",
        (None, None) => {
            "it tells neither tokens nor money, and may reach a model where agentd does not see it"
        }
    }
}
