//! A recorded run played again: its model's replies and its tools' answers come from its record.

pub mod changing_tools;
mod offered_tool;
pub mod offered_tools_format;
pub mod recorded_model;
mod recorded_programs;
pub mod recorded_run;
