//! Requests of an agent program to models, which wait until the money that they may cost is set aside.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, oneshot};

use crate::domain::message::TokenUsage;
use crate::domain::model_target::ModelTarget;
use crate::domain::money::Money;

/// Bytes of a token, where nobody has counted them.
const BYTES_PER_TOKEN: u64 = 4;
/// Tokens of the shortest reply that is worth its request.
const SHORTEST_REPLY: u64 = 1_024;
/// Orders that may wait.
const WAITING: usize = 64;

/// Where the requests of a program ask; cheap to clone.
#[derive(Debug, Clone)]
pub struct ModelOrders(mpsc::Sender<ModelOrder>);

/// A request that is to be sent.
#[derive(Debug)]
pub(super) struct ModelOrder {
    /// Its length in bytes; `None` = it does not say so.
    pub bytes: Option<u64>,
    /// `None` = the money does not cover it.
    pub reply: oneshot::Sender<Option<SetAside>>,
}

/// Money that is set aside for a request. Dropped once its reply is counted, or does not come.
#[derive(Debug)]
pub struct SetAside {
    of: Arc<AtomicU64>,
    amount: Money,
}

impl Drop for SetAside {
    fn drop(&mut self) {
        self.of.fetch_sub(self.amount.micros(), Ordering::Relaxed);
    }
}

impl ModelOrders {
    /// And where the orders come.
    pub(super) fn new() -> (Self, mpsc::Receiver<ModelOrder>) {
        let (orders, received) = mpsc::channel(WAITING);
        (Self(orders), received)
    }

    /// Sets aside what a request of so many bytes may cost. `None`: the money does not cover it, or the visit is over.
    pub async fn set_aside(&self, bytes: Option<u64>) -> Option<SetAside> {
        let (reply, answer) = oneshot::channel();
        self.0.send(ModelOrder { bytes, reply }).await.ok()?;
        answer.await.ok().flatten()
    }
}

/// What is set aside for the requests under way.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Arc<AtomicU64>);

impl UnderWay {
    /// The sum.
    pub fn sum(&self) -> Money {
        Money::from_micros(self.0.load(Ordering::Relaxed))
    }

    /// One more.
    pub fn add(&self, amount: Money) -> SetAside {
        self.0.fetch_add(amount.micros(), Ordering::Relaxed);
        SetAside { of: Arc::clone(&self.0), amount }
    }
}

/// What a request may cost by the dearest target with a price: as many tokens of input as its bytes may be, at most what the target
/// takes, and a short reply. Nothing where no target has a price.
pub(super) fn worst_case(targets: &[ModelTarget], bytes: Option<u64>) -> Money {
    let of = |target: &ModelTarget| {
        let input = bytes.map_or(target.context_window, |bytes| bytes.div_ceil(BYTES_PER_TOKEN));
        let output = SHORTEST_REPLY.min(target.max_output_tokens);
        Some(target.price?.cost(&TokenUsage::new(input.min(target.context_window), output, 0, 0)))
    };
    targets.iter().filter_map(of).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_aside_is_there_again_when_its_request_is_over() {
        let under_way = UnderWay::default();
        let (one, other) = (under_way.add(Money::from_micros(5)), under_way.add(Money::from_micros(7)));
        assert_eq!(under_way.sum(), Money::from_micros(12));
        drop(one);
        assert_eq!(under_way.sum(), Money::from_micros(7));
        drop(other);
        assert_eq!(under_way.sum(), Money::ZERO);
    }
}
