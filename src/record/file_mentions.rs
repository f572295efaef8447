//! Which files a run speaks of: what its tools were told to write, and what its reports name.

use std::collections::BTreeSet;

use serde_json::Value;

use super::report;
use crate::domain::agent_program::AgentProgram;
use crate::domain::call_text::told_arguments;
use crate::domain::event::Event;
use crate::domain::exclude::names;
use crate::domain::facts::RunFacts;
use crate::domain::report::FinalReport;
use crate::domain::trace::Item;
use crate::store::run_dir::RunDir;
use crate::sys::paths::AbsPath;

/// Tools that only look, and the one whose files are those of a command.
const NO_WRITERS: &[&str] = &["read_file", "list_files", "search", "git_status", "git_diff", "run_command"];
/// Keys of arguments that hold a command.
const COMMANDS: &[&str] = &["command", "cmd", "argv", "args", "script"];
/// Which files a run speaks of.
pub struct FileMentions {
    /// What tools that write were told: paths, as far as can be told.
    pub written: BTreeSet<String>,
    reported: Vec<String>,
    /// Whether an agent program worked, whose own tools nobody saw.
    pub opaque: bool,
}

impl FileMentions {
    /// Reads calls and reports from the facts of a run, with those of the runs that it continues.
    pub fn of(facts: &RunFacts, dir: &RunDir) -> Self {
        let mut mentions = Self { written: BTreeSet::new(), reported: Vec::new(), opaque: false };
        for (_, event) in &facts.other {
            match event {
                Event::ItemRecorded { item, .. } => mentions.item(item),
                Event::ReportCaptured(captured) => {
                    captured.report.iter().for_each(|report| mentions.report(report));
                }
                _ => {}
            }
        }
        report::long_report(facts, dir).iter().for_each(|report| mentions.report(report));
        mentions.reported.extend(facts.visits.iter().map(|visit| visit.summary.clone()));
        mentions
    }

    fn report(&mut self, report: &FinalReport) {
        self.reported.extend(report.content.clone());
        for value in report.content_json.iter().flat_map(|json| json.values()) {
            texts(value, &mut |text| self.reported.push(text.to_owned()));
        }
    }

    fn item(&mut self, item: &Item) {
        let Item::ToolCallItem { name, arguments, .. } = item else { return };
        self.opaque |= AgentProgram::is_tool(name);
        if NO_WRITERS.contains(&name.as_str()) {
            return;
        }
        let Value::Object(arguments) = told_arguments(arguments) else { return };
        for (_, value) in arguments.iter().filter(|(key, _)| !COMMANDS.contains(&key.as_str())) {
            texts(value, &mut |text| self.written.extend(paths_in(text).map(str::to_owned)));
        }
    }

    /// Whether the report names a file.
    pub fn report_names(&self, path: &str) -> bool {
        self.reported.iter().any(|text| names(text, path))
    }

    /// Whether a tool that writes was told of a file.
    pub fn is_written(&self, root: &AbsPath, path: &str) -> bool {
        let whole = root.join(path).to_string();
        let told = |text: &str| text == path || text == whole || text.strip_prefix("./") == Some(path);
        self.written.iter().any(|text| told(text))
    }
}

/// What may be a path: a line alone, or what the head of a patch names.
fn paths_in(text: &str) -> impl Iterator<Item = &str> {
    let alone = (!text.contains('\n') && text.len() < 4_096).then_some(text);
    let heads = ["+++ b/", "*** Add File: ", "*** Update File: ", "*** Move to: "];
    let head = move |line| heads.iter().find_map(|head| str::strip_prefix(line, head));
    alone.into_iter().chain(text.lines().filter_map(head).map(str::trim_end))
}

/// Each text in a value.
fn texts(value: &Value, take: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => take(text),
        Value::Array(all) => all.iter().for_each(|one| texts(one, take)),
        Value::Object(all) => all.values().for_each(|one| texts(one, take)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
