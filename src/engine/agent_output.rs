//! What a launch reports while it works, and what it used: the program's own words, and what agentd saw of its requests
//! to models.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::sync::watch;

use crate::domain::ledger_entry::CostSource;
use crate::domain::message::TokenUsage;
use crate::domain::model_target::ModelTarget;
use crate::domain::model_traffic::ModelTraffic;
use crate::domain::money::Money;

/// Results of one launch that are kept.
const MOST_RESULTS: usize = 16;

/// What a program said so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AgentOutput {
    /// Whether it was started. One that never ran has cost nothing.
    pub was_started: bool,
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
    /// The tokens that this money is of; `None` = of all.
    paid: Option<TokenUsage>,
    /// What it said each time that it said that it is done, the last one last.
    results: Vec<Arc<Words>>,
    /// Turns of its own.
    pub turns: u32,
    /// What it asked of models where agentd sees it.
    pub seen: ModelTraffic,
}

/// Words that may be a report.
#[derive(Debug, PartialEq)]
pub(super) struct Words {
    /// As text.
    pub(super) text: String,
    /// As an object, where it gave one apart from the text.
    pub(super) structured: Option<Map<String, Value>>,
}

impl AgentOutput {
    /// Hears what the program says that all of the launch has used. It may say so again with less; a sum does not shrink. No tokens at
    /// all say nothing: whoever worked has used some, and a figure that is missing is read as none.
    pub fn has_used(&mut self, tokens: TokenUsage) {
        if tokens.total_tokens > 0 {
            self.usage = Some(self.usage.unwrap_or_default().max_of(tokens));
        }
    }

    /// Hears what it says that all of the launch has cost, in the same way.
    pub fn has_cost(&mut self, cost: Money) {
        self.cost = self.cost.max(Some(cost));
    }

    /// Hears what the tokens that it has told of by now have cost. What it uses after that is not in it.
    pub fn has_paid(&mut self, cost: Money) {
        if self.cost < Some(cost) {
            self.cost = Some(cost);
            self.paid = Some(self.usage.unwrap_or_default());
        }
    }

    /// Hears that it is done with what it said last. Some go on all the same.
    pub fn is_done(&mut self) {
        let words = Words { text: self.text.clone(), structured: self.structured.clone() };
        if self.results.last().is_none_or(|last| **last != words) {
            self.results.push(Arc::new(words));
        }
        if self.results.len() > MOST_RESULTS {
            self.results.remove(0);
        }
    }

    /// What may be its report, the likeliest first: what it said since it was last done, where only a certain form is a report; then
    /// what it was done with each time. The number of the first one of the latter comes along.
    pub(super) fn answers(&self, has_form: bool) -> (Vec<Arc<Words>>, usize) {
        let last = Words { text: self.text.clone(), structured: self.structured.clone() };
        let Some(result) = self.results.last() else { return (vec![Arc::new(last)], 0) };
        let later =
            (has_form && result.text != self.text).then(|| Arc::new(Words { structured: None, ..last }));
        let is_later = usize::from(later.is_some());
        (later.into_iter().chain(self.results.iter().rev().cloned()).collect(), is_later)
    }

    /// What agentd saw itself, or the program's own figure if that is larger, since some requests may have gone another
    /// way. Never the sum: the program's figure includes what agentd saw.
    pub fn tokens(&self) -> Option<TokenUsage> {
        let seen = Some(self.seen.usage()).filter(|_| self.was_seen());
        seen.or(self.usage)
    }

    /// Tokens, money, and the source of the figures. What agentd saw costs the configured price, for each model. The program's own
    /// figure of money is told where it has more tokens or agentd knows no price, and never if it is less than what was seen costs by
    /// the prices that are known. Against the caps no figure counts less than what was seen, at the dearest price where none is known.
    /// Tokens that only the program tells of count at that price as well, where neither it nor a target says what they cost.
    pub(super) fn used(&self, targets: &[ModelTarget], asked: Option<&str>) -> Vec<Used> {
        let asked = self.model.as_deref().or(asked);
        let seen = self.seen(targets, asked);
        let is_known = self.cost.is_none() || seen.iter().all(|used| used.cost.is_some());
        if self.was_seen() && is_known {
            return seen;
        }
        let tokens = self.tokens().or_else(|| self.cost.map(|_| TokenUsage::default()));
        let Some(tokens) = tokens else { return seen };
        let is_priced = |used: &&Used| {
            used.model.as_deref().is_some_and(|model| price(targets, model, &tokens).is_some())
        };
        let least: Money =
            seen.iter().filter(|used| used.cost.is_some() || is_priced(used)).map(Used::told).sum();
        // Programs say zero for a model whose price they do not know.
        let told = self.cost.filter(|cost| *cost > Money::ZERO || tokens.total_tokens == 0);
        let table = || asked.and_then(|model| price(targets, model, &tokens));
        let mut most: Money = seen.iter().map(Used::counts).sum();
        // What it used since it told what all of it costs.
        let since =
            self.paid.map_or(TokenUsage::default(), |paid| self.usage.unwrap_or_default().beyond(paid));
        let of_since = asked.and_then(|model| price(targets, model, &since));
        let (cost, source) = match (told.filter(|told| *told >= least), table()) {
            (Some(cost), _) if since.total_tokens == 0 => (Some(cost), CostSource::Reported),
            (Some(cost), _) => {
                most = most.max(cost + of_since.unwrap_or_else(|| dearest(targets, &since)));
                (Some(cost + of_since.unwrap_or_default()), CostSource::Table)
            }
            (None, Some(cost)) => (Some(cost.max(least)), CostSource::Table),
            (None, None) => {
                most += dearest(targets, &tokens.beyond(self.seen.usage()));
                match least {
                    Money::ZERO => (None, CostSource::Unknown),
                    least => (Some(least), CostSource::Table),
                }
            }
        };
        vec![Used {
            model: asked.map(str::to_owned),
            tokens: Some(tokens),
            estimated: None,
            cost,
            source,
            most,
            least: most,
        }]
    }

    /// What agentd saw of each model, and of replies that reported no tokens.
    fn seen(&self, targets: &[ModelTarget], asked: Option<&str>) -> Vec<Used> {
        let of_model = |(model, tokens): (&String, &TokenUsage)| {
            let of_answer = price(targets, model, tokens);
            // Services have other names for a model than who asks for it; they may also have asked another one.
            let by_request = || price(targets, self.seen.asked_as.get(model)?, tokens);
            let by_program = || price(targets, asked.filter(|_| self.seen.by_model.len() == 1)?, tokens);
            let cost = of_answer.or_else(by_request).or_else(by_program);
            let most = dearest(targets, tokens);
            Used {
                model: Some(model.clone()),
                tokens: Some(*tokens),
                estimated: None,
                cost,
                source: if cost.is_some() { CostSource::Table } else { CostSource::Unknown },
                most,
                least: if of_answer.is_some() { Money::ZERO } else { most },
            }
        };
        let seen = self.seen.by_model.iter().filter(|(_, tokens)| tokens.total_tokens > 0).map(of_model);
        seen.chain(self.untold(targets)).collect()
    }

    /// Replies that reported no tokens. What they cost is unknown.
    fn untold(&self, targets: &[ModelTarget]) -> impl Iterator<Item = Used> {
        self.seen.untold.iter().map(|(model, tokens)| Used {
            model: Some(model.clone()),
            tokens: None,
            estimated: Some(*tokens),
            cost: None,
            source: CostSource::Unknown,
            most: dearest(targets, tokens),
            least: Money::ZERO,
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
    /// What it costs by the dearest price of a target; nothing where none has a price.
    most: Money,
    /// What counts against a cap at the least, also where the cost is said to be less.
    least: Money,
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
            least: Money::ZERO,
        }
    }

    /// What it costs, or at most may have cost where that is unknown.
    fn told(&self) -> Money {
        self.cost.unwrap_or(self.most)
    }

    /// What of it counts against a cap: what it costs, or at most may have cost where that is unknown.
    pub(super) fn counts(&self) -> Money {
        self.told().max(self.least)
    }

    /// What of that is not known to have been spent.
    pub(super) fn estimate(&self) -> Money {
        self.counts().saturating_sub(self.cost.unwrap_or_default())
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

    /// How long its answer is so far: its last words, or its output apart from them.
    pub fn answer_bytes(&self) -> usize {
        let output = self.0.borrow();
        let structured = output.structured.as_ref().and_then(|object| serde_json::to_string(object).ok());
        output.text.len().max(structured.map_or(0, |text| text.len()))
    }

    /// What is known.
    pub fn so_far(&self) -> AgentOutput {
        self.0.borrow().clone()
    }
}

/// What a configured target would charge for that model. The names are equal, or equal without the date or `-latest`.
fn price(targets: &[ModelTarget], model: &str, usage: &TokenUsage) -> Option<Money> {
    let dated = |target: &&ModelTarget| {
        let rest = model.strip_prefix(target.model.strip_suffix("-latest").unwrap_or(&target.model));
        rest.is_some_and(|rest| rest.starts_with('-') && rest.chars().all(|c| c == '-' || c.is_ascii_digit()))
    };
    let mut targets = targets.iter();
    let named = targets.clone().find(|target| target.model == model).or_else(|| targets.find(dated));
    Some(named?.price?.cost(usage))
}

/// What the dearest of the targets would charge.
fn dearest(targets: &[ModelTarget], usage: &TokenUsage) -> Money {
    let prices = targets.iter().filter_map(|target| target.price);
    prices.map(|price| price.cost(usage)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::domain::model_target::Price;

    fn said(seen: u64, told: Option<u64>) -> AgentOutput {
        let by_model = BTreeMap::from([("m".to_owned(), TokenUsage::new(seen, 0, 0, 0))]);
        AgentOutput {
            usage: told.map(|told| TokenUsage::new(told, 0, 0, 0)),
            seen: ModelTraffic { by_model, ..ModelTraffic::default() },
            ..AgentOutput::default()
        }
    }

    /// A target with a price for a million tokens of input.
    fn target(model: &str, input: f64) -> ModelTarget {
        ModelTarget {
            provider: "p".into(),
            model: model.into(),
            context_window: 200_000,
            context_window_buffer: 0,
            max_output_tokens: 8_000,
            temperature: None,
            images: false,
            price: Some(Price { input, output: 15.0, cache_read: 0.3, cache_write: 3.75 }),
        }
    }

    #[test]
    fn no_figure_of_a_program_makes_what_was_seen_cheaper() {
        let price = Price { input: 3.0, output: 15.0, cache_read: 0.3, cache_write: 3.75 };
        let targets = [ModelTarget {
            provider: "p".into(),
            model: "m".into(),
            context_window: 200_000,
            context_window_buffer: 0,
            max_output_tokens: 8_000,
            temperature: None,
            images: false,
            price: Some(price),
        }];
        let counted = |seen, told, dollars: f64| {
            let cost = Money::from_dollars(dollars);
            let used = AgentOutput { cost, model: Some("m".into()), ..said(seen, told) }.used(&targets, None);
            (used.iter().map(Used::counts).sum::<Money>(), used[0].source)
        };
        let dollars = |dollars: f64| Money::from_dollars(dollars).unwrap();
        assert_eq!(counted(1_000_000, Some(1_000_000), 0.01), (dollars(3.0), CostSource::Table));
        assert_eq!(counted(1_000_000, Some(1_000_001), 0.000_001).0, dollars(3.000_003));
        assert_eq!(counted(1_000_000, Some(2_000_000), 7.0), (dollars(7.0), CostSource::Reported));
        assert_eq!(counted(0, Some(100), 0.01), (dollars(0.01), CostSource::Reported), "nothing was seen");
        // A reply that reported no tokens is not made cheap either.
        let untold = vec![("m".to_owned(), TokenUsage::new(1_000_000, 0, 0, 0))];
        let traffic = ModelTraffic { untold: untold.into_iter().collect(), ..ModelTraffic::default() };
        let hidden = AgentOutput { cost: Money::from_dollars(0.000_001), seen: traffic, ..said(0, Some(1)) };
        let used = hidden.used(&targets, Some("m"));
        assert_eq!(used.iter().map(Used::counts).sum::<Money>(), dollars(3.0));
    }

    #[test]
    fn what_a_program_uses_after_it_told_its_cost_costs_the_price_of_a_target_on_top_of_it() {
        let targets = [target("cheap", 1.0), target("dear", 3.0)];
        let dollars = |dollars: f64| Money::from_dollars(dollars).unwrap();
        for (model, cost, counts) in [("cheap", 2.03, 2.03), ("other", 0.03, 6.03)] {
            let mut said = AgentOutput { model: Some(model.into()), ..AgentOutput::default() };
            said.has_used(TokenUsage::new(1_000_000, 0, 0, 0));
            said.has_paid(dollars(0.03));
            let used = |said: &AgentOutput| said.used(&targets, None).remove(0);
            assert_eq!((used(&said).cost, used(&said).source), (Some(dollars(0.03)), CostSource::Reported));
            said.has_used(TokenUsage::new(3_000_000, 0, 0, 0));
            let later = used(&said);
            assert_eq!((later.cost, later.counts()), (Some(dollars(cost)), dollars(counts)), "{model}");
            // The same figure once more does not cover it, and a larger one does.
            said.has_paid(dollars(0.03));
            assert_eq!(used(&said).counts(), dollars(counts), "{model}");
            said.has_paid(dollars(0.5));
            assert_eq!((used(&said).counts(), used(&said).source), (dollars(0.5), CostSource::Reported));
        }
    }

    #[test]
    fn what_it_was_done_with_may_be_its_report_whatever_it_says_later() {
        let texts = |said: &AgentOutput, has_form: bool| {
            let (answers, first) = said.answers(has_form);
            (answers.iter().map(|words| words.text.clone()).collect::<Vec<_>>(), first)
        };
        let mut said = AgentOutput { text: "a".into(), ..AgentOutput::default() };
        assert_eq!(texts(&said, true), (vec!["a".into()], 0));
        said.is_done();
        said.text = "b".into();
        assert_eq!(texts(&said, true), (vec!["b".into(), "a".into()], 1));
        assert_eq!(texts(&said, false), (vec!["a".into()], 0));
        said.is_done();
        assert_eq!(texts(&said, true), (vec!["b".into(), "a".into()], 0));
    }

    #[test]
    fn tokens_that_only_the_program_tells_of_a_model_without_a_price_count_at_the_dearest_one() {
        let targets = [target("cheap", 1.0), target("dear", 3.0)];
        let dollars = |dollars: f64| Money::from_dollars(dollars).unwrap();
        let counted = |said: AgentOutput| {
            let used = said.used(&targets, None);
            (used[0].cost, used.iter().map(Used::counts).sum::<Money>())
        };
        let model = |name: &str, said: AgentOutput| AgentOutput { model: Some(name.into()), ..said };
        assert_eq!(counted(model("other", said(0, Some(2_000_000)))), (None, dollars(6.0)));
        assert_eq!(
            counted(model("cheap", said(0, Some(2_000_000)))),
            (Some(dollars(2.0)), dollars(2.0)),
            "its price is known"
        );
        // What agentd saw has its own price, and only the rest is told by the program alone.
        let by_model = BTreeMap::from([("cheap".to_owned(), TokenUsage::new(1_000_000, 0, 0, 0))]);
        let seen = ModelTraffic { by_model, ..ModelTraffic::default() };
        let mixed = AgentOutput { seen, ..said(0, Some(1_500_000)) };
        assert_eq!(counted(model("other", mixed)), (Some(dollars(1.0)), dollars(1.0 + 1.5)));
        let paid = AgentOutput { cost: Some(dollars(0.5)), ..said(0, Some(2_000_000)) };
        assert_eq!(counted(model("other", paid)), (Some(dollars(0.5)), dollars(0.5)), "it says so");
    }

    #[test]
    fn a_model_that_no_target_names_is_not_made_cheap_by_a_figure_or_by_the_name_in_the_request() {
        let targets = [target("cheap-latest", 1.0), target("dear", 3.0)];
        let seen = |name: &str, asked: Option<&str>| {
            let by_model = BTreeMap::from([(name.to_owned(), TokenUsage::new(1_000_000, 0, 0, 0))]);
            let asked_as = asked.map(|asked| (name.to_owned(), asked.to_owned())).into_iter().collect();
            ModelTraffic { by_model, asked_as, ..ModelTraffic::default() }
        };
        let dollars = |dollars: f64| Money::from_dollars(dollars).unwrap();
        let said =
            AgentOutput { cost: Some(dollars(0.01)), seen: seen("other", None), ..AgentOutput::default() };
        let used = said.used(&targets, None);
        assert_eq!(
            (used[0].cost, used[0].counts(), used[0].estimate()),
            (Some(dollars(0.01)), dollars(3.0), dollars(2.99))
        );
        for (name, asked, told, counts) in [
            ("dear", Some("cheap-latest"), 3.0, 3.0),
            ("cheap-20260101", Some("cheap-latest"), 1.0, 1.0),
            ("other", Some("cheap-latest"), 1.0, 3.0),
        ] {
            let said = AgentOutput { seen: seen(name, asked), ..AgentOutput::default() };
            let used = said.used(&targets, None);
            assert_eq!((used[0].cost, used[0].counts()), (Some(dollars(told)), dollars(counts)), "{name}");
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
