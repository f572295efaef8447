//! `[checks]` as people write it: which failed checks start a follow-up run, and how much of them is told.

use std::time::Duration;

use serde::Serialize;

use super::duration::Span;
use super::table_file::table;
use crate::domain::words::{words, words_of_a_format};

table! {
    /// `[checks]`.
    #[derive(PartialEq, Eq)]
    pub struct ChecksTable {
        /// Which failed checks start a follow-up run; the others are still told. `required`: Those that the base branch requires;
        /// all where it requires none. `all`: All. `none`: None.
        pub follow: Follow = Follow::Required,
        /// Longest wait, from the first failure, for the checks that still run.
        #[serde(rename = "settle")]
        pub longest_wait: Span = Span(Duration::from_secs(600)),
        /// Which failed jobs of GitHub Actions are run again, once a head, before a model is asked. `infrastructure`: Those that
        /// time, the start or the runner failed. `all`: All. `never`: None.
        pub rerun: Rerun = Rerun::Infrastructure,
        /// Most annotations of one check that are told, failures first.
        pub max_annotations: usize = 50,
        /// Bytes of one job's log that are told.
        pub log_bytes: usize = 16_384,
        /// Bytes of all logs that are told.
        pub log_bytes_total: usize = 49_152,
        /// Bytes of one log that are read; of a longer one, its end.
        pub log_download_max: u64 = 33_554_432,
    }
}

words! {
    /// Which failed checks start a follow-up run.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Follow {
        /// Those that the base branch requires; all of them where it requires none.
        #[default]
        Required = "required",
        /// All.
        All = "all",
        /// None.
        None = "none",
    }
}
words_of_a_format!(Follow, "Follow", "Which failed checks start a follow-up run.");

words! {
    /// Which failed jobs are run again.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Rerun {
        /// Those that time, the start or the runner failed.
        #[default]
        Infrastructure = "infrastructure",
        /// All.
        All = "all",
        /// None.
        Never = "never",
    }
}
words_of_a_format!(Rerun, "Rerun", "Which failed jobs are run again.");
