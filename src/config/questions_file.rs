//! `[questions]` as people write it: what becomes of an agent's questions.

use std::time::Duration;

use serde::Serialize;

use super::duration::Span;
use super::table_file::table;
use crate::domain::words::{words, words_of_a_format};

const DAY: u64 = 24 * 3600;

table! {
    /// `[questions]`.
    #[derive(PartialEq, Eq)]
    pub struct QuestionsTable {
        /// Questions that the runs of one issue may ask, all together; 0 = none.
        pub max: u32 = 3,
        /// Whether whoever asked for the run is assigned to the issue while it waits.
        pub assign: bool = true,
        /// How long until people are reminded, once.
        pub remind: Span = Span(Duration::from_secs(2 * DAY)),
        /// How long an answer is waited for.
        pub timeout: Span = Span(Duration::from_secs(7 * DAY)),
        /// What follows where nobody answers in time. `end`: The issue is a person's again. `default`: The agent goes on with the
        /// answer that it named itself; without one, as with `end`.
        pub on_timeout: OnTimeout = OnTimeout::End,
    }
}

words! {
    /// What follows where nobody answers a question in time.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum OnTimeout {
        /// The issue is a person's again.
        #[default]
        End = "end",
        /// The agent goes on with the answer that it named itself; without one, as with `end`.
        Default = "default",
    }
}
words_of_a_format!(OnTimeout, "OnTimeout", "What follows where nobody answers a question in time.");
