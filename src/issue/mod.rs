//! An issue as agentd meets it: where its text is from, and what people and other hosts are told on it.

pub mod reference;
pub mod file;
mod carried_format;
pub mod spending;
pub mod status_comment;
pub mod refusal_comment;
pub mod shown_lease;
mod ended_leases_format;
mod ended_leases;
mod begun_format;
pub mod cut_off_runs;
pub mod unwanted;
pub mod approval;
