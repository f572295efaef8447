//! What a launch reports while it works, and what it used: the program's own words, and what agentd saw of its requests
//! to models.

use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::domain::ledger_entry::CostSource;
use crate::domain::message::TokenUsage;
use crate::domain::model_target::{ModelTarget, SessionSettings};
use crate::domain::model_traffic::ModelTraffic;
use crate::domain::money::Money;

/// What a program said so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentOutput {
    /// Its last words.
    pub text: String,
    /// Its output, where it gives one apart from the words.
    pub structured: Option<Map<String, Value>>,
    /// A report that it gave through agentd's own tool.
    pub report: Option<Map<String, Value>>,
    /// Id of its conversation.
    pub conversation: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Tokens of this launch.
    pub usage: Option<TokenUsage>,
    /// Money of this launch, as it says.
    pub cost: Option<Money>,
    /// Turns of its own.
    pub turns: u32,
    /// What it asked of models where agentd sees it.
    pub seen: ModelTraffic,
}

impl AgentOutput {
    /// What agentd saw itself, or the program's own figure if that is larger, since some requests may have gone another
    /// way. Never the sum: the program's figure includes what agentd saw.
    pub fn tokens(&self) -> Option<TokenUsage> {
        let seen = Some(self.seen.usage()).filter(|_| self.was_seen());
        seen.or(self.usage)
    }

    /// Tokens, money, and the source of the figures. What agentd saw costs the configured price, for each model.
    /// Without a price, or if agentd saw nothing, the program's own figure counts.
    pub(super) fn used(&self, settings: &SessionSettings, asked: Option<&str>) -> Vec<Used> {
        let said = self;
        let asked = said.model.clone().or_else(|| asked.map(str::to_owned));
        if said.was_seen() {
            let of_model = |(model, tokens): (&String, &TokenUsage)| {
                let cost = price(settings, model, tokens).or_else(|| {
                    price(settings, asked.as_deref().filter(|_| said.seen.by_model.len() == 1)?, tokens)
                });
                let source = if cost.is_some() { CostSource::Table } else { CostSource::Unknown };
                Used {
                    model: Some(model.clone()),
                    tokens: Some(*tokens),
                    estimated: None,
                    cost,
                    source,
                    most: dearest(settings, tokens),
                }
            };
            let mut seen: Vec<Used> = said.seen.by_model.iter().map(of_model).collect();
            seen.extend(said.untold(settings));
            if said.cost.is_none() || seen.iter().all(|used| used.cost.is_some()) {
                return seen;
            }
        }
        let tokens = said.tokens().or_else(|| said.cost.map(|_| TokenUsage::default()));
        let Some(tokens) = tokens else { return said.untold(settings).collect() };
        // Programs say zero for a model whose price they do not know.
        let told = said.cost.filter(|cost| *cost > Money::ZERO || tokens.total_tokens == 0);
        let (cost, source) = match told {
            Some(cost) => (Some(cost), CostSource::Reported),
            None => match asked.as_deref().and_then(|model| price(settings, model, &tokens)) {
                Some(cost) => (Some(cost), CostSource::Table),
                None => (None, CostSource::Unknown),
            },
        };
        vec![Used { model: asked, tokens: Some(tokens), estimated: None, cost, source, most: Money::ZERO }]
    }

    /// Replies that reported no tokens. What they cost is unknown.
    fn untold(&self, settings: &SessionSettings) -> impl Iterator<Item = Used> {
        self.seen.untold.iter().map(|(model, tokens)| Used {
            model: Some(model.clone()),
            tokens: None,
            estimated: Some(*tokens),
            cost: None,
            source: CostSource::Unknown,
            most: dearest(settings, tokens),
        })
    }

    /// Whether agentd saw at least what the program says.
    fn was_seen(&self) -> bool {
        let seen = self.seen.usage().total_tokens;
        seen > 0 && self.usage.is_none_or(|told| seen >= told.total_tokens)
    }
}

/// One figure of what a launch used.
pub(super) struct Used {
    pub(super) model: Option<String>,
    pub(super) tokens: Option<TokenUsage>,
    /// agentd's estimate, of replies that reported no tokens.
    pub(super) estimated: Option<TokenUsage>,
    pub(super) cost: Option<Money>,
    pub(super) source: CostSource,
    /// What it costs by the dearest price of a target; nothing where none has a price, or where only the program tells of it,
    /// which may be paid otherwise.
    most: Money,
}

impl Used {
    /// What a program used that says nothing of it, and reaches models where agentd does not see it.
    pub(super) fn untold(model: Option<String>) -> Self {
        Self {
            model,
            tokens: None,
            estimated: None,
            cost: None,
            source: CostSource::Unknown,
            most: Money::ZERO,
        }
    }

    /// What of it counts against a cap: what it costs, or at most may have cost where that is unknown.
    pub(super) fn counts(&self) -> Money {
        self.cost.unwrap_or(self.most)
    }
}

/// How a launch tells what it hears; cheap to clone.
#[derive(Debug, Clone)]
pub struct AgentProgress(watch::Sender<AgentOutput>);

impl Default for AgentProgress {
    fn default() -> Self {
        Self(watch::Sender::new(AgentOutput::default()))
    }
}

impl AgentProgress {
    /// Adds to what is known.
    pub fn tell(&self, change: impl FnOnce(&mut AgentOutput)) {
        self.0.send_modify(change);
    }

    /// Hears of each change.
    pub fn changes(&self) -> watch::Receiver<AgentOutput> {
        self.0.subscribe()
    }

    /// What is known.
    pub fn so_far(&self) -> AgentOutput {
        self.0.borrow().clone()
    }
}

/// What a configured target would charge for that model. The names are equal, or equal without the date.
fn price(settings: &SessionSettings, model: &str, usage: &TokenUsage) -> Option<Money> {
    let dated = |target: &&ModelTarget| {
        let rest = model.strip_prefix(&target.model);
        rest.is_some_and(|rest| rest.starts_with('-') && rest.chars().all(|c| c == '-' || c.is_ascii_digit()))
    };
    let mut targets = settings.targets.iter();
    let named = targets.clone().find(|target| target.model == model).or_else(|| targets.find(dated));
    Some(named?.price?.cost(usage))
}

/// What the dearest of the targets would charge.
fn dearest(settings: &SessionSettings, usage: &TokenUsage) -> Money {
    let prices = settings.targets.iter().filter_map(|target| target.price);
    prices.map(|price| price.cost(usage)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn said(seen: u64, told: Option<u64>) -> AgentOutput {
        let by_model = BTreeMap::from([("m".to_owned(), TokenUsage::new(seen, 0, 0, 0))]);
        AgentOutput {
            usage: told.map(|told| TokenUsage::new(told, 0, 0, 0)),
            seen: ModelTraffic { by_model, ..ModelTraffic::default() },
            ..AgentOutput::default()
        }
    }

    #[test]
    fn of_the_programs_figure_and_agentds_own_the_larger_counts_and_never_both() {
        let counted = |seen, told| said(seen, told).tokens().map(|used| used.total_tokens);
        assert_eq!(counted(100, Some(90)), Some(100));
        assert_eq!(counted(100, Some(100)), Some(100));
        assert_eq!(counted(100, Some(250)), Some(250));
        assert_eq!(counted(100, None), Some(100));
        assert_eq!(counted(0, Some(7)), Some(7));
        assert_eq!(counted(0, None), None);
    }
}
