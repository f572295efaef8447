//! What a clone has of the contents of files.

use serde::Serialize;

use super::words::{words, words_of_a_format};

words! {
    /// What a clone has of the contents of files.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum CloneContents {
        /// Every content there ever was.
        #[default]
        Full = "full",
        /// All commits, and the contents of those that are worked with.
        Blobless = "blobless",
    }
}
words_of_a_format!(CloneContents, "CloneContents", "What a clone has of the contents of files.");
