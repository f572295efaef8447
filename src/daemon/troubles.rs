//! Reports a repeated problem when it begins and when it ends, however often it occurs in between.

use std::collections::BTreeMap;

/// The troubles that have begun and not ended, by what they are about.
#[derive(Debug, Default)]
pub(super) struct Troubles(BTreeMap<String, Trouble>);

#[derive(Debug)]
struct Trouble {
    words: String,
    times: u64,
}

impl Troubles {
    /// Something failed. True = say so: it begins, or fails in another way.
    pub fn again(&mut self, about: impl Into<String>, words: &str) -> bool {
        let trouble =
            self.0.entry(about.into()).or_insert_with(|| Trouble { words: String::new(), times: 0 });
        trouble.times += 1;
        let new = trouble.words != words;
        words.clone_into(&mut trouble.words);
        new
    }

    /// It succeeded: how often it had failed, if it had.
    pub fn over(&mut self, about: &str) -> Option<u64> {
        self.0.remove(about).map(|trouble| trouble.times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
