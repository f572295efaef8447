//! No entry of the journal is swallowed: who reads it is declared beside it, and each reader reads what is declared.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The file of each reader.
const FILES: &[(&str, &str)] = &[
    ("Facts", "domain/facts.rs"),
    ("Failures", "domain/failures.rs"),
    ("Record", "record/run_record.rs"),
    ("Summary", "record/summary_text.rs"),
    ("Sources", "record/cited_sources.rs"),
    ("RecordedRun", "replay/recorded_run.rs"),
    ("RecordedModel", "replay/recorded_model.rs"),
    ("Progress", "cli/transcript.rs"),
    ("DaemonProgress", "daemon/run_progress.rs"),
    ("HostLog", "service/event_log.rs"),
];

fn source(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(path)).unwrap()
}

fn words_after(text: &str, mark: &str) -> BTreeSet<String> {
    let word = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric()).collect();
    text.match_indices(mark).map(|(at, _)| word(&text[at + mark.len()..])).collect()
}

/// Entries by reader, as `Event::readers` declares them.
fn declared(text: &str) -> BTreeMap<&str, BTreeSet<String>> {
    let table = text.split_once("pub fn readers(").unwrap().1;
    let table = &table[..table.find("\n    }\n").unwrap()];
    let mut declared: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    // An arm may take several lines.
    for arm in table.split("Self::").skip(1) {
        let entry: String = arm.chars().take_while(|c| c.is_alphanumeric()).collect();
        let list = arm.split_once("&[").unwrap().1.split(']').next().unwrap();
        for reader in list.split(',').map(str::trim).filter(|reader| !reader.is_empty()) {
            declared.entry(reader).or_default().insert(entry.clone());
        }
    }
    declared
}

#[test]
fn who_reads_an_entry_of_the_journal_is_declared_beside_it_and_true() {
    let text = source("domain/event.rs");
    let declared = declared(&text);
    let known: BTreeSet<&str> = FILES.iter().map(|(reader, _)| *reader).collect();
    assert_eq!(declared.keys().copied().collect::<BTreeSet<_>>(), known);
    for (reader, file) in FILES {
        let text = source(file);
        let code = text.split("#[cfg(test)]").next().unwrap();
        let read = words_after(code, " Event::");
        assert_eq!(read, declared[reader], "{file} and what Event::readers says of {reader}");
    }
}
