//! Reports a repeated problem when it begins and when it ends, however often it occurs in between.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// So often what fails is tried without a pause.
const AT_ONCE: u64 = 4;
/// The longest pause between two tries of what goes on failing.
const LONGEST: Duration = Duration::from_secs(60);

/// The troubles that have begun and not ended, by what they are about.
#[derive(Debug, Default)]
pub(super) struct Troubles(BTreeMap<String, Trouble>);

#[derive(Debug)]
struct Trouble {
    words: String,
    times: u64,
    /// When it was last met.
    at: Instant,
}

impl Troubles {
    /// Something failed. True = say so: it begins, or fails in another way.
    pub fn again(&mut self, about: impl Into<String>, words: &str) -> bool {
        let trouble = self.0.entry(about.into()).or_insert_with(|| Trouble {
            words: String::new(),
            times: 0,
            at: Instant::now(),
        });
        trouble.times += 1;
        trouble.at = Instant::now();
        let new = trouble.words != words;
        words.clone_into(&mut trouble.words);
        new
    }

    /// Whether it failed so short ago that it is not tried again yet: a few times at once, then after 1, 2, 4 … 60 seconds.
    pub fn rests(&self, about: &str) -> bool {
        self.0.get(about).is_some_and(|trouble| {
            let Some(more) = trouble.times.checked_sub(AT_ONCE) else { return false };
            trouble.at.elapsed() < Duration::from_secs(1 << more.min(6)).min(LONGEST)
        })
    }

    /// It succeeded: how often it had failed, if it had.
    pub fn over(&mut self, about: &str) -> Option<u64> {
        self.0.remove(about).map(|trouble| trouble.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_goes_on_failing_is_tried_again_after_longer_and_longer_pauses() {
        let (mut troubles, mut pauses) = (Troubles::default(), Vec::new());
        assert!(!troubles.rests("labels"));
        for _ in 1..AT_ONCE {
            troubles.again("labels", "refused");
            assert!(!troubles.rests("labels"));
        }
        for _ in 0..8 {
            troubles.again("labels", "refused");
            let since = Instant::now();
            while troubles.rests("labels") {
                tokio::time::advance(Duration::from_secs(1)).await;
            }
            pauses.push(since.elapsed().as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        troubles.over("labels");
        assert!(!troubles.rests("labels"));
    }

    #[test]
    fn a_trouble_is_said_when_it_begins_when_it_changes_and_when_it_ends() {
        let mut troubles = Troubles::default();
        let said: Vec<bool> =
            ["full", "full", "full", "denied", "denied"].map(|words| troubles.again("state", words)).into();
        assert_eq!(said, [true, false, false, true, false]);
        assert_eq!((troubles.over("state"), troubles.over("state")), (Some(5), None));
        assert!(troubles.again("state", "full"), "and it may begin anew");
    }
}
