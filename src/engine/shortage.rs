//! What the money of a cap that several share does not cover, and how that is said.

use super::shared_cap_format::Spending;
use crate::domain::money::Money;
use crate::domain::stop::{Stop, StopDetail};

/// The words for the cap of a day.
pub(super) const A_DAY: &str = "a day (UTC)";
/// The words for the cap of an issue.
pub(super) const AN_ISSUE: &str = "for this issue";

/// Whether a run ended since the money of the day is used up: that meets every other run as well.
pub fn is_of_the_day(stop: &Stop) -> bool {
    stop.detail == StopDetail::MaxCost && stop.message.contains(A_DAY)
}

/// The code of the warning that a request waits for money that others have set aside.
pub const WAITS_FOR_MONEY: &str = "waits_for_money";

/// The words for money that is not spent, and that others may give back.
const SET_ASIDE: &str = "set aside";

/// Whether something ended since others have money set aside: it would be covered if that came back.
pub fn is_set_aside(stop: &Stop) -> bool {
    stop.detail == StopDetail::MaxCost && stop.message.contains(SET_ASIDE)
}

/// Whether a run ended since the money of its issue is used up: no run of the issue begins before there is more.
pub fn is_of_the_issue(stop: &Stop) -> bool {
    stop.detail == StopDetail::MaxCost && stop.message.contains(AN_ISSUE)
}

/// Why nothing was reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SharedCapError {
    /// The money does not cover the request's worst case.
    #[error("{0}")]
    NotCovered(Shortage),
    /// What was spent is not known, so nothing may be.
    #[error(
        "what was spent {0} cannot be told: {1}; mend the file that it names, or move it away: then that counts as not spent"
    )]
    Unknown(&'static str, String),
}

/// What the money of a cap does not cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortage {
    /// The cap: `budgets.max_cost_per_day`, or `budgets.max_cost_per_issue` with what people gave.
    pub cap: Money,
    /// Whose: `a day (UTC)`, or `for this issue`.
    pub of: &'static str,
    /// Not spent and not set aside.
    pub left: Money,
    /// Set aside for other requests.
    pub set_aside: Money,
    /// What is asked for.
    pub wanted: Wanted,
}

/// What a request asks of a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Its worst case.
    pub request: Money,
    /// What has to be left beside it, for the last report.
    pub kept_back: Money,
}

impl Wanted {
    /// Both.
    pub fn total(&self) -> Money {
        self.request + self.kept_back
    }
}

impl From<Money> for Wanted {
    fn from(request: Money) -> Self {
        Self { request, kept_back: Money::ZERO }
    }
}

impl Shortage {
    /// Whether it would be covered if all came back that is set aside.
    pub fn may_come_back(&self) -> bool {
        self.wanted.total() <= self.left + self.set_aside
    }

    /// For people, in one sentence.
    pub fn message(&self) -> String {
        let Self { cap, of, .. } = self;
        let others = match self.may_come_back() {
            true => format!(" beside what is {SET_ASIDE} for other requests"),
            false => String::new(),
        };
        format!("The budget of {cap} {of} does not cover the next request{others}.")
    }
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cap, of, left, set_aside, wanted: Wanted { request, kept_back } } = self;
        write!(f, "the cap of {cap} {of} does not cover the next request: {left} is left")?;
        if !set_aside.is_zero() {
            write!(f, ", {set_aside} is {SET_ASIDE} for other requests")?;
        }
        match kept_back.is_zero() {
            true => write!(f, ", and it may cost up to {request}"),
            false => {
                write!(f, ", the last report may cost up to {kept_back}, and the request up to {request}")
            }
        }
    }
}

/// How the money of a day stands, for people, where something is set aside.
pub fn set_aside_in_words(spending: &Spending, cap: Money) -> Option<String> {
    let (spent, aside) = (spending.spent, spending.set_aside());
    (!aside.is_zero()).then(|| {
        format!(
            "{spent} of {cap} {A_DAY} is spent, and {aside} is {SET_ASIDE} for requests; what a killed process had set aside does \
             not come back"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_the_money_tells_what_is_spent_from_what_is_set_aside_and_adds_up() {
        let money = |dollars| Money::from_dollars(dollars).unwrap();
        let wanted = Wanted { request: money(0.5), kept_back: money(0.25) };
        let short = |left, set_aside| Shortage { cap: money(2.0), of: A_DAY, left, set_aside, wanted };
        let aside = short(money(0.1), money(1.5));
        assert_eq!(
            aside.to_string(),
            "the cap of $2.00 a day (UTC) does not cover the next request: $0.10 is left, $1.50 is set aside for other \
             requests, the last report may cost up to $0.25, and the request up to $0.50"
        );
        let spent = short(money(0.6), Money::ZERO);
        assert!(
            !spent.to_string().contains("set aside") && !spent.to_string().contains("used up"),
            "{spent}"
        );
        for (short, comes_back) in [(aside, true), (spent, false), (short(money(0.6), money(0.1)), false)] {
            let stop = Stop::new(StopDetail::MaxCost, short.message());
            assert!(is_of_the_day(&stop), "{short}");
            assert_eq!((short.may_come_back(), is_set_aside(&stop)), (comes_back, comes_back), "{short}");
        }
    }
}
