//! Reserves the worst case of each model request before it is sent, from what is left of the run, the day and
//! the issue.
//!
//! A request that does not fit is sent with a lower limit on its output. If it still does not fit beside the reserve
//! for the last report, the cap is reached: the last report is asked for, and the run ends. With known prices no ledger
//! exceeds its cap (D98).

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::abort::Abort;
use super::budget::{Meter, ReservedMoney};
use super::interrupt::Interrupt;
use super::journal::Journal;
use super::model_orders::DearestCase;
use super::session::{Session, SessionWorld};
use super::shared_caps::Reservations;
use super::shortage::{SharedCapError, Shortage, WAITS_FOR_MONEY, Wanted};
use crate::domain::budget::{IssueBudget, IssueBudgetState};
use crate::domain::event::Event;
use crate::domain::message::Message;
use crate::domain::model_target::{ModelTarget, Price};
use crate::domain::money::Money;
use crate::domain::run::ForcedFinal;
use crate::domain::stop::{Stop, StopDetail};

/// The least limit of output tokens that a request is sent with, if its target allows as many.
pub const FEWEST_OUTPUT: u64 = 1024;
/// Tokens that a provider may add to a request: chat templates, its own text about tools.
const PROVIDER_OVERHEAD: u64 = 2048;
/// How many bytes the request for a last report is longer than the conversation. It has the notice that it is the last.
const LAST_NOTICE: u64 = 512;

/// What the journal says of a wait, during it and behind it.
const HAD_TO_WAIT: &str = "A request had to wait for money that others have set aside.";
/// How often it is looked whether others gave money back.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The most that a request can cost, by the length of its reply. It assumes one token for each byte that is sent, at
/// most the size of the window, all at the highest input price.
#[derive(Debug, Clone, Copy)]
pub struct WorstCase {
    /// Micro-dollars.
    input: f64,
    /// Micro-dollars a token.
    output: f64,
    most: u64,
}

impl WorstCase {
    /// Of a request of so many bytes.
    pub fn of(bytes: u64, target: &ModelTarget, price: &Price) -> Self {
        let input = bytes.saturating_add(PROVIDER_OVERHEAD).min(target.context_window) as f64;
        let dearest = price.input.max(price.cache_write).max(price.cache_read);
        Self { input: input * dearest, output: price.output, most: target.max_output_tokens }
    }

    /// With a reply of so many tokens.
    pub fn with(&self, output: u64) -> Money {
        Money::from_micros((self.input + output as f64 * self.output).ceil().max(0.0) as u64)
    }

    /// With the shortest reply that is worth a request.
    pub fn least(&self) -> Money {
        self.with(self.fewest())
    }

    fn fewest(&self) -> u64 {
        self.most.min(FEWEST_OUTPUT)
    }

    /// The longest reply that this money covers. `None` = it does not cover the shortest one.
    pub fn longest_within(&self, left: Money) -> Option<u64> {
        if self.with(self.most) <= left {
            return Some(self.most);
        }
        if self.least() > left {
            return None;
        }
        let (mut fits, mut too_long) = (self.fewest(), self.most);
        while too_long - fits > 1 {
            let middle = fits + (too_long - fits) / 2;
            if self.with(middle) <= left { fits = middle } else { too_long = middle }
        }
        Some(fits)
    }
}

/// Leave to send one request.
pub(super) struct Allowance {
    /// Limit on the reply.
    pub(super) max_output_tokens: u64,
    /// Set aside of the run's money until the reply is charged; `None` = the target has no price.
    pub(super) run: Option<ReservedMoney>,
    /// Set aside of the money that the run shares with others.
    pub(super) shared: Reservations,
}

/// The money does not cover the shortest reply.
struct Short {
    /// What is left of the run's.
    left: Money,
    /// What is left of what the run shares with others; `None` = nothing is shared.
    shared: Option<Money>,
}

impl Session<'_> {
    /// Reserves the worst case of the next request, with the longest reply that the money covers (D87, D98). If it
    /// covers none, only the last report may still be asked for.
    pub(super) async fn allow(&mut self, target: usize, tail: &[Message]) -> Result<Allowance, Abort> {
        let target = self.request.settings.targets[target].clone();
        let now = self.world.clock.now();
        let Some(price) = target.price else {
            self.world.heed_caps().await?;
            // Without a price there is no worst case. A cap that somebody set is refused where there is no price.
            if self.world.meter.budgets().max_cost == Money::ZERO {
                return Err(self.not_covered(None).into());
            }
            if let Some(refused) = self.world.caps.refusal(Money::from_micros(1).into(), now).await? {
                self.world.heed_caps().await?;
                return Err(refused.into());
            }
            let shared = self.world.caps.reserve(Money::ZERO, now).await?;
            return Ok(Allowance { max_output_tokens: target.max_output_tokens, run: None, shared });
        };
        let mut waited = None;
        loop {
            let said = self.composed(tail)?.json();
            let tools = self.offered()?.json;
            let worst = WorstCase::of(said.saturating_add(tools), &target, &price);
            let kept_back = if self.is_final() {
                Money::ZERO
            } else {
                let tools = self.tools.on(true)?.json;
                let bytes = said.saturating_add(tools).saturating_add(LAST_NOTICE);
                WorstCase::of(bytes, &target, &price).least()
            };
            let (held, shared) = self.world.hold(worst, kept_back).await?;
            let Short { left, shared: shared_left } = match held {
                Ok((max_output_tokens, run)) => {
                    return Ok(Allowance { max_output_tokens, run: Some(run), shared });
                }
                Err(short) => short,
            };
            let is_shared = shared_left.is_some_and(|shared| shared < left);
            let wanted = Wanted { request: worst.least(), kept_back };
            if is_shared && self.others_give_back(wanted.total(), &mut waited).await? {
                continue;
            }
            let by_others = match shared_left.filter(|shared| *shared < left) {
                Some(_) => self.world.caps.refusal(wanted, now).await?,
                None => None,
            };
            let refused: Abort = match by_others {
                Some(refused) => refused.into(),
                // It is there again: others spent less than they had reserved.
                None if is_shared => continue,
                None => self.not_covered(Some((left, worst.least(), kept_back))).into(),
            };
            self.world.heed_caps().await?;
            if self.is_final() {
                return Err(refused);
            }
            self.last_report_for_want_of_money(refused)?;
        }
    }

    /// Waits a moment where what others have set aside for requests under way would cover this one: most of it comes back. False = they
    /// have nothing aside that would, or for as long as a request may take none of it came; then it may be of a process that died.
    async fn others_give_back(&mut self, wanted: Money, waited: &mut Option<Instant>) -> Result<bool, Abort> {
        if !self.world.caps.may_come_back(wanted, self.world.clock.now()).await? {
            return Ok(false);
        }
        // In a chat somebody waits for the answer.
        let at_most = self.request.settings.llm_timeout;
        let at_most = self.request.turn_timeout.map_or(at_most, |turn| turn.min(at_most));
        if waited.is_none() {
            self.record.warn(WAITS_FOR_MONEY, HAD_TO_WAIT)?;
            tracing::warn!(%wanted, ?at_most, "waiting for money that other requests have set aside; what a killed process had \
                set aside does not come back");
        }
        if waited.get_or_insert_with(Instant::now).elapsed() > at_most {
            return Ok(false);
        }
        if let Some(stop) = self.world.stop.asked() {
            return Err(stop.into());
        }
        self.world.meter.check_wait(LOOK_AGAIN)?;
        match self.interrupts.watch(Some(Duration::ZERO), tokio::time::sleep(LOOK_AGAIN)).await {
            Ok(()) => Ok(true),
            Err(Interrupt::GraceOver) => match self.world.stop.asked() {
                Some(stop) => Err(stop.into()),
                None => Ok(false),
            },
            Err(Interrupt::End(abort)) => Err(abort),
        }
    }

    /// From here on only the report is accepted, and the run ends with it.
    fn last_report_for_want_of_money(&mut self, refused: Abort) -> Result<(), Abort> {
        self.world.meter.end_by_cost();
        self.out_of_money = Some(refused);
        self.force(ForcedFinal::MaxCost, self.turn)?;
        self.ceiling = self.turn;
        self.guard.set_tools(&self.tools.on(true)?.sizes);
        Ok(())
    }

    fn not_covered(&self, request: Option<(Money, Money, Money)>) -> Stop {
        self.world.meter.end_by_cost();
        let cap = self.world.meter.budgets().max_cost;
        let message = match request {
            Some((left, wanted, kept_back)) => {
                short_of(cap, left, wanted, kept_back) + &self.world.meter.told_estimate()
            }
            None => format!("The budget of {cap} lets no request be sent."),
        };
        Stop::new(StopDetail::MaxCost, message)
    }
}

/// Why the money does not cover the next request. What the last report may cost is not there for it.
fn short_of(cap: Money, left: Money, wanted: Money, kept_back: Money) -> String {
    let short = match kept_back {
        Money::ZERO => format!("and it may cost up to {wanted}"),
        kept_back => format!("the last report may cost up to {kept_back}, and the request up to {wanted}"),
    };
    format!("The budget of {cap} does not cover the next request: {left} is left, {short}.")
}

/// The end of a program that a budget ended in the middle of its work: nobody asked for a next request.
fn while_it_worked(stop: Stop, program: &str) -> Stop {
    let message = stop.message.replacen(" is used up", &format!(" was used up while {program} worked"), 1);
    Stop { message, ..stop }
}

impl SessionWorld {
    /// Sets the longest reply aside that the money covers beside `kept_back`, of the run's money and of what it shares with
    /// others, in one look at that.
    async fn hold(
        &self,
        worst: WorstCase,
        kept_back: Money,
    ) -> Result<(Result<(u64, ReservedMoney), Short>, Reservations), Abort> {
        self.wait_confirmed().await?;
        let heeds = self.heeds();
        let decide = move |shared: Option<Money>, news| {
            heeds.heed(news)?;
            let held = heeds.meter.hold(|left| {
                let left = shared.map_or(left, |shared| left.min(shared));
                let longest = worst.longest_within(left.saturating_sub(kept_back))?;
                // Without prices nothing is needed. With prices the reserve has to be there.
                (left >= kept_back).then(|| (longest, worst.with(longest)))
            });
            let wanted = held.as_ref().ok().map(|(_, run)| run.amount());
            Ok((held.map_err(|left| Short { left, shared }), wanted))
        };
        self.caps.reserve_of_left(self.clock.now(), decide).await
    }

    /// Why an agent program has to end that has cost so much so far, if it has: its run's money does not cover it, or what others spend
    /// of the same money meanwhile. What is `under_way` stays set aside beside it.
    pub(super) async fn used_up(
        &self,
        shared: &Arc<Reservations>,
        (cost, under_way): (Money, Money),
        program: &str,
    ) -> Result<Option<Abort>, Abort> {
        let held = self.caps.hold(shared, (cost, under_way), self.clock.now()).await;
        self.heed_caps().await?;
        if let Err(stop) = self.meter.check_with(cost) {
            return Ok(Some(while_it_worked(stop, program).into()));
        }
        match held {
            Err(SharedCapError::NotCovered(Shortage { cap, of, left, wanted, .. })) => {
                let message = format!("The budget of {cap} {of} is used up.");
                let stop = while_it_worked(Stop::new(StopDetail::MaxCost, message), program);
                let technical = format!(
                    "{left} of {cap} {of} was left, and {program} has cost {} so far",
                    wanted.total()
                );
                let message = stop.message;
                Ok(Some(Abort::new(stop.detail, "BudgetExceeded", &message, technical)))
            }
            Err(error) => Err(error.into()),
            Ok(()) => Ok(None),
        }
    }

    /// Sets aside what one more request of an agent program may cost, beside the cost of its launch so far and of its requests under
    /// way, and gives the longest reply that this covers. A shorter one than it asks for only where none is under way.
    pub(super) async fn pay(
        &self,
        shared: &Arc<Reservations>,
        (so_far, under_way): (Money, Money),
        case: DearestCase,
    ) -> Result<Option<(u64, Money)>, Abort> {
        self.heed_caps().await?;
        let (meter, used) = (Arc::clone(&self.meter), so_far + under_way);
        let decide = move |shared: Option<Money>| {
            let left = shared.map_or(meter.left(), |shared| shared.min(meter.left()));
            let beside = (used <= left).then(|| left.saturating_sub(used))?;
            let (longest, amount) = case.within(beside, !under_way.is_zero())?;
            Some(((longest, amount), used + amount))
        };
        Ok(self.caps.hold_of_left(shared, decide).await?)
    }

    /// Why a program has to end of which no request is under way: the money does not cover its next one, which may cost `wanted` beside
    /// the `so_far` of its launch. `None` = it may be covered a moment later: `waits` = what others have set aside of it counts for that.
    pub(super) async fn not_paid(
        &self,
        shared: &Arc<Reservations>,
        (so_far, wanted): (Money, Money),
        waits: bool,
    ) -> Result<Option<Abort>, Abort> {
        let left = self.meter.left();
        if so_far + wanted > left {
            self.meter.end_by_cost();
            let cap = self.meter.budgets().max_cost;
            let message = short_of(cap, left.saturating_sub(so_far), wanted, Money::ZERO);
            let message = message + &self.meter.told_estimate();
            return Ok(Some(Stop::new(StopDetail::MaxCost, message).into()));
        }
        let now = self.clock.now();
        if waits && self.caps.may_come_back(so_far + wanted, now).await? {
            return Ok(None);
        }
        Ok(self.caps.refusal_of(shared, so_far + wanted, now).await?.map(Abort::from))
    }

    /// Looks at what the run shares with others, and heeds what is new of it. Gives what is left; `None` = nothing is shared.
    pub(super) async fn heed_caps(&self) -> Result<Option<Money>, Abort> {
        self.wait_confirmed().await?;
        let (left, news) = self.caps.look(self.clock.now()).await?;
        self.heed(news)?;
        Ok(left)
    }

    /// Waits until what requests have cost is written where the run shares it, and heeds what is new of that.
    pub(super) async fn wait_confirmed(&self) -> Result<(), Abort> {
        self.heed(self.caps.wait_confirmed().await?)
    }

    pub(super) fn heed(&self, news: Vec<IssueBudget>) -> Result<(), Abort> {
        self.heeds().heed(news)
    }

    fn heeds(&self) -> Heeds {
        Heeds { meter: Arc::clone(&self.meter), journal: Arc::clone(&self.journal) }
    }
}

/// What heeds the news of an issue's cap.
struct Heeds {
    meter: Arc<Meter>,
    journal: Arc<dyn Journal>,
}

impl Heeds {
    /// Journals what is new of the issue's cap, and raises the run's own by what people gave the issue.
    fn heed(&self, news: Vec<IssueBudget>) -> Result<(), Abort> {
        for news in news {
            if news.state == IssueBudgetState::Extended {
                let by = news.by.clone().unwrap_or_default();
                self.meter.give(news.given, |budgets| {
                    self.journal.append(Event::BudgetExtended { by, budgets: budgets.clone() })
                })?;
            }
            self.journal.append(Event::IssueBudget(news))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn d98_what_is_said_of_the_money_adds_up() {
        let money = Money::from_micros;
        let said = short_of(money(1_000_000), money(500_000), money(300_000), money(250_000));
        assert!(said.contains(&format!("the last report may cost up to {},", money(250_000))), "{said}");
        let said = short_of(money(1_000_000), money(200_000), money(300_000), Money::ZERO);
        assert!(!said.contains("last report"), "{said}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(10_000))]
        #[test]
        fn d98_the_longest_reply_that_fits_fits_and_one_token_more_does_not(
            input in 0.0_f64..1e7, output in 0.0_f64..100.0, most in 1_u64..200_000, left in 0_u64..20_000_000,
        ) {
            let worst = WorstCase { input, output, most };
            let left = Money::from_micros(left);
            match worst.longest_within(left) {
                Some(longest) => {
                    prop_assert!(worst.with(longest) <= left);
                    prop_assert!(longest == most || worst.with(longest + 1) > left);
                    prop_assert!(longest >= most.min(FEWEST_OUTPUT));
                }
                None => prop_assert!(worst.with(most.min(FEWEST_OUTPUT)) > left),
            }
        }
    }
}
