//! Nouns and rules, each with one home; no I/O, no async, no logging.
