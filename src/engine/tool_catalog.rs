//! The tools that a session offers. They are the same in every turn, so they are prepared once for sending, measuring
//! and hashing.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use serde_json::json;

use super::abort::Abort;
use super::conversation::json_bytes;
use super::question;
use super::session_trace::WITHHELD;
use super::task_status;
use super::token_estimate::ToolSizes;
use super::tool::Tool;
use super::tool_list::ToolList;
use super::tool_output;
use crate::domain::canonical::NotCanonical;
use crate::domain::fingerprint::HashedTools;
use crate::domain::message::ToolSpec;
use crate::domain::redaction::Redactor;

/// The number of lists that are kept: one for each step of the running flow.
const MOST_KEPT: usize = 64;

/// A fixed list of tools.
#[derive(Debug)]
pub struct ToolCatalog {
    /// As models see them, in a fixed order.
    pub specs: Arc<[ToolSpec]>,
    /// For the context guard.
    pub sizes: ToolSizes,
    /// For fingerprints.
    pub hashed: HashedTools,
    /// Bytes of the specs as JSON, for the worst case of what a request costs.
    pub json: u64,
}

impl ToolCatalog {
    fn new(specs: Vec<ToolSpec>) -> Result<Self, NotCanonical> {
        Ok(Self {
            sizes: ToolSizes::of(&specs),
            hashed: HashedTools::of(&specs)?,
            json: json_bytes(&specs),
            specs: specs.into(),
        })
    }
}

/// What a session offers: on open turns, and on the final one.
#[derive(Debug, Clone)]
pub struct SessionTools {
    /// Tools and protocol tools.
    pub open: Arc<ToolCatalog>,
    /// The reader of stored outputs, as it stands in the open one.
    pub reader: Arc<ToolSpec>,
    report: Option<Arc<ToolSpec>>,
    /// See [`SessionTools::on`]; few sessions come so far.
    last: Arc<OnceLock<ToolCatalog>>,
}

impl SessionTools {
    /// What is offered in an open turn, and in a final one: only the report, if there is one.
    pub fn on(&self, is_final: bool) -> Result<&ToolCatalog, Abort> {
        if !is_final {
            return Ok(&self.open);
        }
        if let Some(made) = self.last.get() {
            return Ok(made);
        }
        let report = self.report.iter().map(|report| ToolSpec::clone(report));
        let made = ToolCatalog::new(report.collect()).map_err(|error| Abort::internal(error.to_string()))?;
        Ok(self.last.get_or_init(|| made))
    }
}

/// A tool as models are told of it. Its name stays, as it is called by it.
fn told(tool: &dyn Tool, redactor: &Redactor) -> ToolSpec {
    let spec = tool.spec();
    if tool.source() == "agentd" || redactor.is_clean(spec) {
        return spec.clone();
    }
    ToolSpec {
        name: spec.name.clone(),
        description: redactor.redact(&spec.description).map_or_else(|_| WITHHELD.to_owned(), Cow::into_owned),
        parameters: redactor.redact_json(&spec.parameters).unwrap_or_else(|_| json!({ "type": "object" })),
    }
}

/// What sessions have offered so far. The next session with the same tools offers the same.
#[derive(Clone, Default)]
pub struct ToolCatalogs {
    kept: Arc<Mutex<Vec<Kept>>>,
    asks: bool,
}

struct Kept {
    /// Their addresses are not reused as long as these are kept.
    first: Vec<Weak<dyn Tool>>,
    later: Vec<Weak<dyn Tool>>,
    page_lines: u32,
    offered: SessionTools,
}

impl Kept {
    fn is_of(&self, tools: &ToolList, report: Option<&Arc<ToolSpec>>) -> bool {
        let same_report = match (&self.offered.report, report) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        let same = |kept: &[Weak<dyn Tool>], tools: &[Arc<dyn Tool>]| {
            kept.len() == tools.len()
                && kept
                    .iter()
                    .zip(tools)
                    .all(|(kept, tool)| std::ptr::addr_eq(kept.as_ptr(), Arc::as_ptr(tool)))
        };
        same_report && same(&self.first, &tools.first) && same(&self.later, &tools.later)
    }
}

impl ToolCatalogs {
    /// Nothing was offered yet. `asks` = sessions that report may ask people as well.
    pub fn asking(asks: bool) -> Self {
        Self { kept: Arc::default(), asks }
    }

    /// Whether sessions may ask people.
    pub fn asks(&self) -> bool {
        self.asks
    }

    /// The lists of a session with these tools. `report` is the tool for its report, `None` in a chat. `page_lines` is
    /// the length of a page that is read back (D77). The protocol tools come after the others, and tools that were added
    /// later come after these. What servers say of their tools is told without secrets.
    pub fn of(
        &self,
        tools: &ToolList,
        report: Option<&Arc<ToolSpec>>,
        page_lines: u32,
        redactor: &Redactor,
    ) -> Result<SessionTools, NotCanonical> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) =
            kept.iter().find(|kept| kept.page_lines == page_lines && kept.is_of(tools, report))
        {
            return Ok(known.offered.clone());
        }
        let reader = Arc::new(tool_output::spec(page_lines));
        let told = |tool: &Arc<dyn Tool>| told(tool.as_ref(), redactor);
        let own = tools.first.iter().map(told).chain([ToolSpec::clone(&reader)]);
        let ask = self.asks.then(question::spec).into_iter();
        let protocol = report.iter().flat_map(|report| {
            [task_status::spec()].into_iter().chain(ask.clone()).chain([ToolSpec::clone(report)])
        });
        let later = tools.later.iter().map(told);
        let offered = SessionTools {
            open: Arc::new(ToolCatalog::new(own.chain(protocol).chain(later).collect())?),
            reader,
            report: report.cloned(),
            last: Arc::default(),
        };
        if kept.len() == MOST_KEPT {
            kept.remove(0);
        }
        let weak = |tools: &[Arc<dyn Tool>]| tools.iter().map(Arc::downgrade).collect();
        let (first, later) = (weak(&tools.first), weak(&tools.later));
        kept.push(Kept { first, later, page_lines, offered: offered.clone() });
        Ok(offered)
    }
}
