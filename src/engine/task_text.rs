//! What stands around the prompt of a step: the briefing's blocks and the facts of the day.

use std::collections::BTreeSet;

use crate::domain::untrusted::FENCE_NOTE;

/// The parts of every visit's prompt beside the step's own words.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskText {
    /// Blocks that are not empty, by the variable that places them, in the order in which they are appended.
    pub blocks: Vec<(&'static str, String)>,
    /// Date, repository, branch, and what went wrong before.
    pub facts: String,
    /// Whether the report has to say what came of threads or remarks.
    pub asks_outcomes: bool,
}

impl TaskText {
    /// The user message: the prompt, and after it every block that the prompt's template does not place by itself. What
    /// fenced text means is said once, before the first of it.
    pub fn around(&self, prompt: &str, placed: &BTreeSet<String>) -> String {
        let places_one = self.blocks.iter().any(|(name, _)| placed.contains(*name));
        let mut text = String::new();
        if places_one {
            text.push_str(&format!("{FENCE_NOTE}\n\n"));
        }
        text.push_str(prompt.trim());
        text.push_str("\n\n---\n");
        if !places_one {
            text.push_str(&format!("{FENCE_NOTE}\n\n"));
        }
        for (_, block) in self.blocks.iter().filter(|(name, _)| !placed.contains(*name)) {
            text.push_str(&format!("{block}\n\n"));
        }
        text.push_str(&self.facts);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_the_template_places_is_not_appended_as_well_and_the_note_comes_first() {
        let task = TaskText {
            blocks: vec![("issue_body", "BODY".to_owned()), ("issue_remarks", "REMARKS".to_owned())],
            facts: "FACTS".to_owned(),
            asks_outcomes: false,
        };
        let placed = BTreeSet::from(["issue_remarks".to_owned(), "issue".to_owned()]);
        let text = task.around("Look at REMARKS.\n", &placed);
        let places = [FENCE_NOTE, "Look at REMARKS.", "BODY", "FACTS"].map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{text}");
        assert_eq!(text.matches("REMARKS").count(), 1, "{text}");
        let text = task.around("Look.", &BTreeSet::new());
        let places = ["Look.", FENCE_NOTE, "BODY", "REMARKS", "FACTS"].map(|part| text.find(part).unwrap());
        assert!(places.is_sorted(), "{text}");
        assert_eq!(text.matches(FENCE_NOTE).count(), 1, "{text}");
    }
}
