//! The task that an agent program gets, and how it is given a visit.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::agent_output::{AgentOutput, AgentProgress};
use super::agent_tools::AgentTools;
use super::model_orders::ModelOrders;
use super::tool::Tool;
use crate::domain::flow::StepId;

/// A program that visits are given to.
#[derive(Clone)]
pub struct AgentBackend {
    /// Its word, as accounting names the provider.
    pub name: String,
    /// Whether a visit may go on where an earlier one ended.
    pub resumes: bool,
    /// Whether it can be asked again for a report that does not fit.
    pub asks_again: bool,
    /// Whether agentd's tools are served to it.
    pub serves_tools: bool,
    /// Longest time of one visit; `None` = the run's.
    pub time_limit: Option<Duration>,
    /// The model that is asked for, where the definition names one.
    pub model: Option<String>,
    /// Whether it reaches models through agentd only, so that one that nobody saw ask has cost nothing.
    pub seen_whole: bool,
    /// Where the last visit of a step ended, for a visit that continues it (D4).
    pub conversations: Conversations,
    /// Tools of the run's that are others while the program works.
    pub stand_ins: Vec<Arc<dyn Tool>>,
    /// Makes the tool of one launch.
    pub launch: Arc<dyn Fn(AgentTask) -> Arc<dyn Tool> + Send + Sync>,
}

/// The ids of a program's own conversations, by step.
pub type Conversations = Arc<Mutex<BTreeMap<StepId, String>>>;

/// What launches of one visit used before another one: the limits of the program are those of the visit.
#[derive(Debug, Clone, Copy, Default)]
pub struct EarlierLaunches {
    /// How long they took.
    pub time: Duration,
    /// Requests to models that agentd saw.
    pub requests: u32,
    /// Tokens.
    pub tokens: u64,
}

impl EarlierLaunches {
    /// One more launch.
    pub(super) fn add(&mut self, time: Duration, said: &AgentOutput) {
        self.time += time;
        self.requests = self.requests.saturating_add(said.seen.requests);
        let tokens = said.tokens().map_or(0, |used| used.total_tokens);
        self.tokens = self.tokens.saturating_add(tokens);
    }
}

/// What a program is asked in one launch.
#[derive(Clone)]
pub struct AgentTask {
    /// Instructions, prompt, issue.
    pub prompt: String,
    /// The conversation of the program's own that it goes on from.
    pub resume: Option<String>,
    /// The prompt for one that was to go on and cannot.
    pub anew: Option<String>,
    /// Schema of the output, where the step has one.
    pub schema: Option<Value>,
    /// Whether the step only plans. Then nothing in the worktree may change.
    pub read_only: bool,
    /// What the visit used before.
    pub earlier: EarlierLaunches,
    /// Where the launch tells how far it is.
    pub progress: AgentProgress,
    /// Where it calls agentd's tools and asks for permission.
    pub tools: AgentTools,
    /// Where its requests to models ask for their money; `None` = nobody counts it.
    pub orders: Option<ModelOrders>,
    /// Ends it.
    pub cancel: CancellationToken,
}
