//! Between two turns of a session: tools that servers changed are put on the record, and offered from the next turn on.

use std::sync::Arc;

use super::abort::Abort;
use super::interrupt::Interrupt;
use super::session::{Session, SessionMode};
use super::tool::Tool;
use super::tool_list::{ToolList, ToolProvider};
use crate::domain::event::Event;
use crate::domain::message::ToolSpec;
use crate::domain::stop::StopDetail;
use crate::domain::trace::ToolsChanged;

impl Session<'_> {
    /// What servers changed of their tools since the last turn: on the record before a request shows it. A turn for the report
    /// alone has no use for it.
    pub(super) async fn take_tool_changes(&mut self) -> Result<(), Abort> {
        let ToolProvider::Changing(source) = &self.request.tools else { return Ok(()) };
        if self.is_final() {
            return Ok(());
        }
        let list = source.list(self.request.ids.session, self.turn);
        let list = match self.interrupts.watch(None, list).await {
            Ok(list) => list?,
            Err(Interrupt::End(abort)) => return Err(abort),
            Err(Interrupt::GraceOver) => return Ok(()),
        };
        if Arc::ptr_eq(&list, &self.list) {
            return Ok(());
        }
        Box::pin(self.change_tools(list)).await
    }

    async fn change_tools(&mut self, list: Arc<ToolList>) -> Result<(), Abort> {
        let behind: Vec<Arc<dyn Tool>> = list.all().chain([&self.reader]).cloned().collect();
        let unfit = self.gate.change_tools(&behind, &self.world.queues, &self.world.schemas);
        let mut usable = ToolList::clone(&list);
        for (name, error) in &unfit {
            usable.first.retain(|tool| tool.spec().name != *name);
            usable.later.retain(|tool| tool.spec().name != *name);
            usable.problems.push(format!("{error}; the tool is left out"));
        }
        for problem in &usable.problems {
            self.record.warn("mcp_tools_changed", problem)?;
        }
        let report = (self.request.mode == SessionMode::Task).then(|| self.request.report.tool());
        let offered = self
            .world
            .tool_catalogs
            .of(&usable, report, self.request.settings.read_page_lines, &self.world.redactor)
            .map_err(|error| Abort::internal(error.to_string()))?;
        let before = std::mem::replace(&mut self.tools, offered).open;
        let now = &self.tools.open;
        self.list = list;
        let lost = self.list.lost.as_ref().map(|why| self.record.redact(why));
        let in_before =
            |tool: &&ToolSpec| before.specs.iter().find(|before| before.name == tool.name).cloned();
        let named = |tools: Vec<&ToolSpec>| tools.into_iter().map(|tool| tool.name.clone()).collect();
        let changed = |tool: &&ToolSpec| in_before(tool).is_some_and(|before| before != **tool);
        let gone = |tool: &&ToolSpec| !now.specs.iter().any(|now| now.name == tool.name);
        self.record.note_with_next(Event::ToolsChanged(Box::new(ToolsChanged {
            session: self.request.ids.session,
            visit: self.request.ids.visit,
            turn: self.turn,
            added: named(now.specs.iter().filter(|tool| in_before(tool).is_none()).collect()),
            changed: named(now.specs.iter().filter(changed).collect()),
            gone: named(before.specs.iter().filter(gone).collect()),
            tools: named(now.specs.iter().collect()),
            tools_sha256: now.hashed.sha256().to_owned(),
            tools_file: self.list.file.clone(),
            problems: usable.problems.iter().map(|problem| self.record.redact(problem)).collect(),
            lost: lost.clone(),
        })))?;
        lost.map_or(Ok(()), |why| {
            Err(Abort::new(StopDetail::McpUnavailable, "McpUnavailable", &format!("{why}."), why))
        })
    }
}
