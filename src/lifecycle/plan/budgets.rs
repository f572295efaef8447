//! The caps of one run: flags over the issue's fields, over the definition, over the configuration (X-002…X-005).

use std::collections::BTreeMap;

use crate::config::duration::Span;
use crate::config::source_format::Source;
use crate::domain::budget::{BudgetKind, Budgets, WantedBudgets};
use crate::domain::money::Money;
use crate::domain::policy::ActorPermission;
use crate::domain::refusal::Refusal;
use crate::domain::run::Warning;
use crate::domain::stop::StopDetail;
use crate::github::{FieldValue, IssueSnapshot};
use crate::lifecycle::request::RunRequest;
use crate::repository::context::RepositoryContext;

/// Whose issues may raise a budget.
const MAY_RAISE: ActorPermission = ActorPermission::Maintain;

/// The caps in force, where each is from, and what is to be said about them.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// The caps.
    pub budgets: Budgets,
    /// By key, for people.
    pub sources: BTreeMap<&'static str, String>,
    /// Wishes that were not followed.
    pub warnings: Vec<Warning>,
}

impl Effective {
    fn of(context: &RepositoryContext) -> Self {
        let kinds = BudgetKind::ALL.into_iter();
        let source =
            |kind: BudgetKind| context.config.source(&format!("budgets.{}", kind.as_str())).to_string();
        Self {
            budgets: context.config.budgets.clone(),
            sources: kinds.map(|kind| (kind.as_str(), source(kind))).collect(),
            warnings: Vec::new(),
        }
    }

    fn take(&mut self, wanted: &WantedBudgets, from: &str) {
        for kind in BudgetKind::ALL {
            if self.budgets.follow(wanted, kind) {
                self.sources.insert(kind.as_str(), from.to_owned());
            }
        }
    }
}

/// Combines the caps. A definition from a managed clone, and an issue whose author is not a maintainer, may only lower
/// them. Flags are the operator's and win.
pub async fn effective(
    request: &RunRequest,
    definition: &WantedBudgets,
    snapshot: Option<&IssueSnapshot>,
    context: &RepositoryContext,
) -> Result<Effective, Refusal> {
    let mut effective = Effective::of(context);
    if let Some(recorded) = context.replay.as_ref().and_then(|recorded_run| recorded_run.budgets()) {
        effective.budgets = recorded.clone();
        return Ok(effective);
    }
    let by_flag = |kind: BudgetKind| {
        matches!(context.config.source(&format!("budgets.{}", kind.as_str())), Source::Flag { .. })
    };
    let mut definition = definition.clone();
    definition
        .keep(|wanted, kind| !(by_flag(kind) || context.managed && wanted.raises(&effective.budgets, kind)));
    effective.take(&definition, "the agent's definition");
    let Some(snapshot) = snapshot else { return Ok(effective) };
    let mut issue = wanted_by_fields(snapshot.fields.as_deref().unwrap_or_default())?;
    issue.keep(|_, kind| !by_flag(kind));
    let raising: Vec<BudgetKind> =
        BudgetKind::ALL.into_iter().filter(|kind| issue.raises(&effective.budgets, *kind)).collect();
    if !raising.is_empty() && !author_may_raise(request, snapshot, context).await? {
        for kind in raising {
            effective.warnings.push(Warning {
                code: "budget_not_raised".to_owned(),
                at: context.clock.now_ms(),
                text: format!(
                    "The issue's field \"{}\" asks for more than {}; an issue may only lower a budget unless its author \
                     has the permission \"{}\"",
                    kind.as_str(),
                    effective.budgets.shown(kind),
                    MAY_RAISE.as_str()
                ),
            });
            issue.keep(|_, other| other != kind);
        }
    }
    effective.take(&issue, "the issue's field");
    Ok(effective)
}

/// One more request to GitHub, and only where an issue asks for more.
async fn author_may_raise(
    request: &RunRequest,
    snapshot: &IssueSnapshot,
    context: &RepositoryContext,
) -> Result<bool, Refusal> {
    let (Some(github), Some(author)) = (&context.github, &snapshot.issue.author) else { return Ok(false) };
    // Who asked is often who wrote it, and what they may is known already.
    if request.principal.login.as_ref() == Some(author)
        && let Some(known) = request.permission
    {
        return Ok(known >= MAY_RAISE);
    }
    Ok(github.permission(&context.repo, author).await? >= MAY_RAISE)
}

/// What the fields `max_steps`, `max_wall_time` and `max_cost` of an issue say.
fn wanted_by_fields(fields: &[FieldValue]) -> Result<WantedBudgets, Refusal> {
    let mut wanted = WantedBudgets::default();
    for kind in BudgetKind::ALL {
        let Some(text) = crate::github::field_named(fields, kind.as_str()) else { continue };
        let unreadable = |what: &str| {
            let message =
                format!("The issue's field \"{}\" says \"{text}\", which is not {what}.", kind.as_str());
            Refusal::new(StopDetail::InvalidInput, message).hint("change the field, or empty it")
        };
        match kind {
            BudgetKind::MaxSteps => {
                let steps = text.parse::<f64>().ok().filter(|n| n.fract() == 0.0 && (1.0..=1e6).contains(n));
                wanted.max_steps = Some(steps.ok_or_else(|| unreadable("a number of step visits"))? as u32);
            }
            BudgetKind::MaxWallTime => {
                let span = text.parse::<Span>().ok().filter(|span| !span.0.is_zero());
                let span = span.ok_or_else(|| unreadable("a time such as 90s, 15m or 1h"))?;
                wanted.max_wall_time = Some(span.0);
            }
            BudgetKind::MaxCost => {
                let plain = text.trim_start_matches("USD").trim().trim_start_matches('$').trim();
                let cost = plain.parse::<f64>().ok().filter(|n| *n >= 0.0).and_then(Money::from_dollars);
                wanted.max_cost = Some(cost.ok_or_else(|| unreadable("an amount of US dollars"))?);
            }
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn field(name: &str, value: &str) -> FieldValue {
        FieldValue { name: name.into(), kind: "text".into(), value: value.into() }
    }

    #[test]
    fn x_002_an_issue_s_fields_are_read_in_their_units_and_refused_otherwise() {
        let fields = [field("Max steps", "4"), field("max_wall_time", " 90s "), field("max_cost", "$2.50")];
        let read = wanted_by_fields(&fields).unwrap();
        assert_eq!(
            read,
            WantedBudgets {
                max_steps: Some(4),
                max_wall_time: Some(Duration::from_secs(90)),
                max_cost: Money::from_dollars(2.5)
            }
        );
        assert_eq!(
            wanted_by_fields(&[field("max_cost", " "), field("other", "x")]).unwrap(),
            WantedBudgets::default()
        );
        for (name, value) in [
            ("max_steps", "0"),
            ("max_steps", "1.5"),
            ("max_wall_time", "-5m"),
            ("max_cost", "-1"),
            ("max_cost", "much"),
        ] {
            let refused = wanted_by_fields(&[field(name, value)]).unwrap_err();
            assert_eq!(refused.stop.detail, StopDetail::InvalidInput, "{name} {value}");
            assert!(refused.stop.message.contains(name) && refused.stop.message.contains(value));
        }
    }
}
