//! The host-facing library calls: [`run_agent`], [`bind_mcp_tools`], [`execute_tool_call`] (S-001…S-055).
//!
//! A host opens a [`Service`] once, from a directory with an `agentd.toml`, and calls it for any number of users at a
//! time. The same gate, record and budgets stand behind it as behind a run; `examples/` shows each call.

mod agent;
mod chat_format;
mod chat_record;
mod chat_settings;
mod conversation_format;
mod conversations;
mod converse;
mod error_text;
mod event_log;
mod history;
mod host;
mod tool_calls;
mod tool_format;
mod turn_costs;

pub use agent::{run_agent, unopened};
pub use chat_format::{AgentResponse, AgentStatus, ChatMessage, ChatRole, ResponseMeta, ShownMessage};
pub use chat_settings::AgentConfig;
pub use conversation_format::{ConversationLine, Reply, Said};
pub use conversations::{Conversation, ConversationError, Conversations};
pub use converse::{LONGEST_MESSAGE, Unanswered, converse};
pub use error_text::ErrorClass;
pub use history::{InvalidRequest, messages_of, user};
pub use host::{Service, Setup};
pub use tool_calls::{bind_mcp_tools, execute_tool_call};
pub use tool_format::{FunctionDefinition, FunctionTool, ToolCallResult};
pub use turn_costs::TurnCosts;
