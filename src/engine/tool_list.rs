//! The tools that a session may call: the same all the time, or a list that servers change between turns.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use uuid::Uuid;

use super::journal::JournalError;
use super::tool::Tool;

/// The tools at one moment.
#[derive(Clone, Default)]
pub struct ToolList {
    /// Those that were there from the beginning, in their fixed order.
    pub first: Vec<Arc<dyn Tool>>,
    /// Those that came later, in the order in which they came. A session offers them behind the protocol tools, so that its
    /// requests begin as they did before.
    pub later: Vec<Arc<dyn Tool>>,
    /// Those of them that servers may change, as the servers list them.
    pub served: Vec<Arc<dyn Tool>>,
    /// File of the run directory that says what `served` is; `None` = the one that the run began with, or there is none.
    pub file: Option<String>,
    /// What could not be used of the last change, in words for people.
    pub problems: Vec<String>,
    /// Why a server that has to be there is not; the run ends for it.
    pub lost: Option<String>,
}

impl ToolList {
    /// A list that nothing changes.
    pub fn fixed(tools: Vec<Arc<dyn Tool>>) -> Self {
        Self { first: tools, ..Self::default() }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.first.iter().chain(&self.later)
    }

    /// The list with another `served`: what is known keeps its place, what is gone leaves it, what is new comes last.
    #[must_use]
    pub fn with_served(&self, served: Vec<Arc<dyn Tool>>) -> Self {
        let before = names(&self.served);
        let known = names(self.all());
        let now = |tool: &Arc<dyn Tool>| -> Option<Arc<dyn Tool>> {
            if !before.contains(&tool.spec().name) {
                return Some(Arc::clone(tool));
            }
            served.iter().find(|served| served.spec().name == tool.spec().name).cloned()
        };
        let first = self.first.iter().filter_map(now).collect();
        let new = served.iter().filter(|tool| !known.contains(&tool.spec().name)).cloned();
        let later = self.later.iter().filter_map(now).chain(new).collect();
        Self { first, later, served, file: None, problems: Vec::new(), lost: None }
    }
}

fn names<'a>(tools: impl IntoIterator<Item = &'a Arc<dyn Tool>>) -> BTreeSet<String> {
    tools.into_iter().map(|tool| tool.spec().name.clone()).collect()
}

/// Says what the tools are at a place of the run.
pub trait ToolSource: Send + Sync {
    /// The tools before the turn of a session, 0 = before it begins. The same list where nothing changed.
    fn list(&self, session: Uuid, turn: u32) -> BoxFuture<'_, Result<Arc<ToolList>, JournalError>>;
}

/// Where a session has its tools from.
#[derive(Clone)]
pub enum ToolProvider {
    /// They stay as they are.
    Fixed(Arc<ToolList>),
    /// They are asked for before each turn.
    Changing(Arc<dyn ToolSource>),
}

impl ToolProvider {
    /// See [`ToolSource::list`].
    pub async fn list(&self, session: Uuid, turn: u32) -> Result<Arc<ToolList>, JournalError> {
        match self {
            Self::Fixed(list) => Ok(Arc::clone(list)),
            Self::Changing(source) => source.list(session, turn).await,
        }
    }
}

impl From<Vec<Arc<dyn Tool>>> for ToolProvider {
    fn from(tools: Vec<Arc<dyn Tool>>) -> Self {
        Self::Fixed(Arc::new(ToolList::fixed(tools)))
    }
}
