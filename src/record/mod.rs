//! What a run leaves: its record, report, evidence and seal are folds over its journal. Same events, same bytes.

pub mod run_journal;
pub mod run_facts;
pub mod cited_sources;
pub mod evidence;
pub mod summary_text;
pub mod proven;
pub mod rendering;
pub mod run_record;
pub mod report;
pub mod seal;
pub mod seal_check;
pub mod file_mentions;
pub mod sinks;
pub mod in_flight;
pub mod finish;
mod journals;
pub mod bring;
pub mod taking_over;
pub mod audit;
#[cfg(feature = "nats")]
pub mod moving;
#[cfg(feature = "nats")]
pub mod mirror;
