//! Webhook deliveries that were taken: each is heeded once, however often GitHub sends it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Deliveries that are remembered.
const REMEMBERED: usize = 2048;

/// Ids of deliveries that were taken.
#[derive(Debug, Default)]
pub(super) struct Deliveries(Mutex<(VecDeque<String>, BTreeSet<String>)>);

impl Deliveries {
    /// Whether it is the first time that this one comes.
    pub fn is_new(&self, id: &str) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (order, ids) = &mut *known;
        if !ids.insert(id.to_owned()) {
            return false;
        }
        order.push_back(id.to_owned());
        if order.len() > REMEMBERED
            && let Some(oldest) = order.pop_front()
        {
            ids.remove(&oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_new_once_and_old_ones_are_forgotten() {
        let deliveries = Deliveries::default();
        assert!(deliveries.is_new("a") && !deliveries.is_new("a"));
        for id in 0..REMEMBERED {
            assert!(deliveries.is_new(&id.to_string()));
        }
        assert!(deliveries.is_new("a"), "it was forgotten");
    }
}
