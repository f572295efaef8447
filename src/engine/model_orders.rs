//! Requests of an agent program to models, which wait until the money that they may cost is set aside.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::allowance::WorstCase;
use crate::domain::model_target::ModelTarget;
use crate::domain::money::Money;
use crate::domain::reply_limit::{Asked, NotPaid};

/// Orders that may wait.
const WAITING: usize = 64;
/// How often it is looked whether others gave money back, or people raised a cap.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Where the requests of a program ask; cheap to clone.
#[derive(Debug, Clone)]
pub struct ModelOrders(mpsc::Sender<ModelOrder>);

/// A request that is to be sent.
#[derive(Debug)]
pub(super) struct ModelOrder {
    asked: Asked,
    since: Instant,
    reply: oneshot::Sender<Result<SetAside, NotPaid>>,
}

/// Money that is set aside for a request. Dropped once its reply is counted, or does not come.
#[derive(Debug)]
pub struct SetAside {
    of: watch::Sender<Money>,
    amount: Money,
    /// Most tokens of its replies, where that is less than it asks for.
    pub longest: Option<u64>,
}

impl Drop for SetAside {
    fn drop(&mut self) {
        self.of.send_modify(|sum| *sum = sum.saturating_sub(self.amount));
    }
}

impl ModelOrders {
    /// And where the orders come.
    pub(super) fn new() -> (Self, Ordered) {
        let (orders, new) = mpsc::channel(WAITING);
        let under_way = watch::Sender::default();
        let freed = under_way.subscribe();
        let ordered = Ordered { new, waiting: VecDeque::new(), under_way, freed, look_again: Instant::now() };
        (Self(orders), ordered)
    }

    /// Sets aside what a request may cost, as soon as the money covers it.
    pub async fn set_aside(&self, asked: Asked) -> Result<SetAside, NotPaid> {
        let (reply, answer) = oneshot::channel();
        let order = ModelOrder { asked, since: Instant::now(), reply };
        self.0.send(order).await.map_err(|_| NotPaid::NotCovered)?;
        // A visit that is over answers nobody.
        answer.await.unwrap_or(Err(NotPaid::NotCovered))
    }
}

/// The requests of one launch: those that wait for their money, the first one first, and what is set aside for those under way.
#[derive(Debug)]
pub(super) struct Ordered {
    new: mpsc::Receiver<ModelOrder>,
    waiting: VecDeque<ModelOrder>,
    under_way: watch::Sender<Money>,
    freed: watch::Receiver<Money>,
    look_again: Instant,
}

impl Ordered {
    /// Waits until the first one may be answered: it is new, another one is over, or a moment has passed.
    pub async fn changed(&mut self) {
        let waits = !self.waiting.is_empty();
        tokio::select! {
            Some(order) = self.new.recv() => self.waiting.push_back(order),
            Ok(()) = self.freed.changed(), if waits => {}
            () = tokio::time::sleep_until(self.look_again), if waits => {}
            else => std::future::pending().await,
        }
        self.look_again = Instant::now() + LOOK_AGAIN;
    }

    /// What the first of those asks for that wait, and since when. Nobody waits for one that its program has left.
    pub fn first(&mut self) -> Option<(Asked, Instant)> {
        self.waiting.retain(|order| !order.reply.is_closed());
        self.waiting.front().map(|order| (order.asked, order.since))
    }

    /// Answers the first one: what is set aside for it, and the longest reply that this covers.
    pub fn answer(&mut self, paid: Result<(u64, Money), NotPaid>) {
        let Some(order) = self.waiting.pop_front() else { return };
        let set_aside = paid.map(|(longest, amount)| {
            self.under_way.send_modify(|sum| *sum += amount);
            let is_lower = order.asked.longest.is_some_and(|asked| longest < asked);
            SetAside { of: self.under_way.clone(), amount, longest: is_lower.then_some(longest) }
        });
        drop(order.reply.send(set_aside));
    }

    /// What is set aside for the requests under way.
    pub fn under_way(&self) -> Money {
        *self.under_way.borrow()
    }
}

/// The most that a request may cost by the dearest target with a price. Nothing where no target has one.
#[derive(Debug, Clone)]
pub(super) struct DearestCase {
    of: Arc<[WorstCase]>,
    /// Tokens of the shortest reply for which it is sent.
    shortest: u64,
    longest: u64,
}

impl DearestCase {
    /// Of what a program asks for. A request that names no limit is taken to ask for as much as a target gives.
    pub fn of(targets: &[ModelTarget], asked: &Asked) -> Self {
        let most = || targets.iter().map(|target| target.max_output_tokens).max().unwrap_or_default();
        let longest = asked.longest.unwrap_or_else(most);
        let of = targets
            .iter()
            .filter_map(|target| Some(WorstCase::of(asked.bytes, target, target.price.as_ref()?)));
        Self { of: of.collect(), shortest: asked.shortest.min(longest), longest }
    }

    /// With a reply of so many tokens.
    fn with(&self, output: u64) -> Money {
        self.of.iter().map(|case| case.with(output)).max().unwrap_or_default()
    }

    /// With the shortest reply.
    pub fn least(&self) -> Money {
        self.with(self.shortest)
    }

    /// The longest reply that this money covers, and what it may cost. `None` = it does not cover the shortest one, or not the whole of
    /// it where `whole`.
    pub fn within(&self, left: Money, whole: bool) -> Option<(u64, Money)> {
        if self.with(self.longest) <= left {
            return Some((self.longest, self.with(self.longest)));
        }
        if whole || self.least() > left {
            return None;
        }
        let (mut fits, mut too_long) = (self.shortest, self.longest);
        while too_long - fits > 1 {
            let middle = fits + (too_long - fits) / 2;
            if self.with(middle) <= left { fits = middle } else { too_long = middle }
        }
        Some((fits, self.with(fits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::model_target::Price;

    #[tokio::test]
    async fn what_is_set_aside_is_there_again_when_its_request_is_over() {
        let (orders, mut ordered) = ModelOrders::new();
        let asked = Asked { bytes: 1, longest: Some(9), shortest: 9 };
        let ask = async |amount: u64, longest: u64, ordered: &mut Ordered| {
            let (paid, ()) = tokio::join!(orders.set_aside(asked), async {
                ordered.changed().await;
                assert_eq!(ordered.first().map(|(asked, _)| asked), Some(asked));
                ordered.answer(Ok((longest, Money::from_micros(amount))));
            });
            paid.unwrap()
        };
        let one = ask(5, 9, &mut ordered).await;
        let other = ask(7, 3, &mut ordered).await;
        assert_eq!((one.longest, other.longest), (None, Some(3)));
        assert_eq!(ordered.under_way(), Money::from_micros(12));
        drop(one);
        assert_eq!(ordered.under_way(), Money::from_micros(7));
        drop(other);
        assert_eq!((ordered.under_way(), ordered.first()), (Money::ZERO, None));
    }

    #[test]
    fn the_longest_reply_that_fits_fits_by_every_price_and_one_token_more_does_not() {
        let target = |input: f64, output: f64| ModelTarget {
            provider: "p".into(),
            model: "m".into(),
            context_window: 200_000,
            context_window_buffer: 0,
            max_output_tokens: 8_000,
            temperature: None,
            images: false,
            price: Some(Price { input, output, cache_read: 0.3, cache_write: 0.3 }),
        };
        let targets = [target(3.0, 15.0), target(5.0, 1.0)];
        let asked = Asked { bytes: 7_952, longest: Some(100_000), shortest: 1_024 };
        let case = DearestCase::of(&targets, &asked);
        assert_eq!(
            case.within(Money::from_micros(1_530_000), true),
            Some((100_000, Money::from_micros(1_530_000)))
        );
        assert_eq!(case.within(Money::from_micros(1_529_999), true), None, "others are waited for");
        let (longest, amount) = case.within(Money::from_micros(750_000), false).unwrap();
        assert_eq!((longest, amount), (48_000, Money::from_micros(750_000)));
        // The shortest one costs more by the other target.
        assert_eq!(case.least(), Money::from_micros(51_024));
        assert_eq!(case.within(Money::from_micros(51_023), false), None);
        let unnamed = DearestCase::of(&targets, &Asked { longest: None, ..asked });
        assert_eq!(unnamed.within(Money::from_micros(1_000_000), true).unwrap().0, 8_000);
        assert_eq!(DearestCase::of(&[], &asked).within(Money::ZERO, true), Some((100_000, Money::ZERO)));
    }
}
