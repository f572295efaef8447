//! The runs of this node, whoever polls their repositories.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// At no moment are more taken than the node may have.
#[derive(Debug, Clone, Default)]
pub(in crate::daemon) struct OwnSlots(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    most: AtomicUsize,
    taken: AtomicUsize,
}

/// One of them. Dropped, it is free again.
#[derive(Debug)]
pub(in crate::daemon) struct OwnSlot(Arc<Counts>);

impl OwnSlots {
    /// So many there may be; those that are taken stay.
    pub fn allow(&self, most: usize) {
        self.0.most.store(most, Ordering::Release);
    }

    /// A slot for one more run, if one is free.
    pub fn take(&self) -> Option<OwnSlot> {
        let most = self.0.most.load(Ordering::Acquire);
        let more = |taken: usize| (taken < most).then_some(taken + 1);
        let taken = self.0.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        taken.ok().map(|_| OwnSlot(Arc::clone(&self.0)))
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Acquire)
    }
}

impl Drop for OwnSlot {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_is_dropped_is_free_again_and_there_are_never_more_than_may_be() {
        let slots = OwnSlots::default();
        assert!(slots.take().is_none());
        slots.allow(2);
        let taken = (slots.take().unwrap(), slots.clone().take().unwrap());
        assert!(slots.take().is_none());
        drop(taken.0);
        slots.allow(1);
        assert!(slots.take().is_none(), "fewer may be now");
        drop(taken.1);
        assert!(slots.take().is_some());
    }
}
