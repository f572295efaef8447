//! A briefing under way: its blocks, its manifest, and what is not told.

use std::collections::BTreeMap;

use crate::conversation::inbox::{BriefedWords, words};
use crate::domain::briefing::{Block, BriefedText, Fate};
use crate::domain::canonical::sha256_hex;
use crate::domain::redaction::Redactor;
use crate::domain::remark::Remark;

/// What stands in the place of a text that could not be redacted.
const WITHHELD: &str = "[withheld: this text could not be redacted]";

/// A briefing under way: takes secrets out of each text and notes what became of it.
pub struct Drafting<'a> {
    redactor: &'a Redactor,
    /// The parts so far.
    pub blocks: BTreeMap<Block, String>,
    /// What was looked at so far.
    pub texts: Vec<BriefedText>,
    /// What is not told of trusted texts.
    pub untold: String,
    /// The words of what is told.
    pub words: BriefedWords,
}

/// The longest untold part of all trusted texts together that is kept, in bytes.
const LONGEST_UNTOLD: usize = 8 << 20;

impl<'a> Drafting<'a> {
    /// Nothing is written yet.
    pub fn new(redactor: &'a Redactor) -> Self {
        Self {
            redactor,
            blocks: BTreeMap::new(),
            texts: Vec::new(),
            untold: String::new(),
            words: BriefedWords::new(),
        }
    }

    /// A cleaned text without secrets.
    pub fn redacted(&self, text: &str) -> String {
        self.redactor.redact(text).map_or_else(|_| WITHHELD.to_owned(), std::borrow::Cow::into_owned)
    }

    /// Adds to a block, with an empty line between.
    pub fn add(&mut self, block: Block, text: &str) {
        let whole = self.blocks.entry(block).or_default();
        if !whole.is_empty() {
            whole.push_str("\n\n");
        }
        whole.push_str(text);
    }

    /// Keeps a trusted text that is not told, or not as a whole. False = there is no room for it.
    pub fn keep_untold(&mut self, heading: &str, text: &str) -> bool {
        if self.untold.len() + text.len() + heading.len() > LONGEST_UNTOLD {
            return false;
        }
        self.untold.push_str(&format!("## {heading}\n\n{text}\n\n"));
        true
    }

    /// Notes that a remark is told as it reads here.
    pub fn tells(&mut self, remark: &Remark) {
        self.words.insert(remark.id, (remark.created, words(remark)));
    }

    /// Notes what became of a text.
    pub fn note(&mut self, text: BriefedText) {
        self.texts.push(text);
    }
}

/// A text of the manifest that has no author: a file of the repository.
pub fn of_file(kind: &str, path: &str, text: &str, (fate, why): (Fate, Option<&str>)) -> BriefedText {
    BriefedText {
        kind: kind.to_owned(),
        id: path.to_owned(),
        url: None,
        login: None,
        standing: None,
        permission: None,
        created: None,
        edited: None,
        sha256: sha256_hex(text.as_bytes()),
        characters: text.chars().count(),
        fate,
        why: why.map(str::to_owned),
    }
}
