//! `bind_mcp_tools` and `execute_tool_call`: the tools of the service for hosts with a model of their own.

use std::sync::Arc;

use serde_json::Value;
use uuid::Uuid;

use super::error_text::ErrorClass;
use super::host::{self, Service};
use super::tool_format::{FunctionDefinition, FunctionTool, ToolCallResult};
use crate::domain::message::ToolCall;
use crate::domain::policy::ToolResultEnvelope;
use crate::domain::run::Principal;
use crate::engine::abort::Abort;
use crate::engine::single_call::{SingleCall, call_tool};
use crate::engine::tool::{CallLimits, Tool};

/// The tools as function definitions: those that the MCP servers export, by server and name, then the REST tools; the
/// same order each time (S-018…S-022). Tools that `allow` and `deny` exclude are not listed.
pub fn bind_mcp_tools(service: &Service) -> Vec<FunctionTool> {
    let definition = |tool: &Arc<dyn Tool>| {
        let spec = tool.spec().clone();
        let (name, description, parameters) = (spec.name, spec.description, spec.parameters);
        let function = FunctionDefinition { name, description, parameters };
        FunctionTool { kind: "function".to_owned(), function }
    };
    service.tools.known().all().map(definition).collect()
}

/// Runs one call for a user through the same gate as a session's: arguments are checked, `user_id` is set to the user
/// whatever it says (S-030, S-031), the policy decides. Every end is a result, none is an error (S-025).
pub async fn execute_tool_call(
    service: &Service,
    tool_name: &str,
    tool_arguments: &Value,
    user: &Principal,
) -> ToolCallResult {
    let opened = match service.begin(user).await {
        Ok(opened) => opened,
        Err(error) => return failed(&Abort::from(error)),
    };
    let call = ToolCall {
        id: format!("call-{}", Uuid::now_v7()),
        name: tool_name.to_owned(),
        arguments: tool_arguments.to_string(),
    };
    // A host takes the whole result: nobody would ask for the rest of it.
    let limits = CallLimits { timeout: service.config.tool_timeout(), max_inline_bytes: u64::MAX };
    let ids = host::ids(opened.run, "call");
    let tools: Vec<Arc<dyn Tool>> = service.tools.now().await.all().cloned().collect();
    let called = call_tool(ids, host::scope(user), call, &tools, limits, &opened.world).await;
    if let Err(error) = opened.journal.flush().await {
        tracing::error!(%error, "the call's record is not on disk");
    }
    match called {
        Ok(SingleCall::Ran(answer)) => ran(answer.envelope()),
        Ok(SingleCall::Refused(answer)) => refused(answer.envelope()),
        Ok(SingleCall::Denied(answer)) => {
            let (reason, public) = words(answer.envelope());
            ToolCallResult::error("PolicyDenied", reason, public)
        }
        Err(abort) => failed(&abort),
    }
}

/// What a call that ran gave: objects and lists as such, everything else as text.
fn ran(envelope: &ToolResultEnvelope) -> ToolCallResult {
    let data = envelope.data.clone().unwrap_or_default();
    if let Ok(error @ ToolCallResult::Error { .. }) = serde_json::from_value(data.clone()) {
        return error;
    }
    let result = data.get("result").cloned().unwrap_or_default();
    let structured = result.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    let result = structured.filter(|value| value.is_object() || value.is_array()).unwrap_or(result);
    ToolCallResult::Success { result }
}

/// A call that could not run as proposed.
fn refused(envelope: &ToolResultEnvelope) -> ToolCallResult {
    let (code, reason) = words(envelope);
    let error_type = match code.as_str() {
        "unknown_tool" => "ToolNotFound",
        "invalid_arguments" => "Validation",
        "path_outside_worktree" => "UnauthorizedAccess",
        _ => "Refused",
    };
    ToolCallResult::error(error_type, code, reason)
}

fn words(envelope: &ToolResultEnvelope) -> (String, String) {
    (envelope.code.clone().unwrap_or_default(), envelope.public_reason.clone().unwrap_or_default())
}

/// The call could not be made: a fixed text for people; the detail is in the log and the journal.
fn failed(abort: &Abort) -> ToolCallResult {
    let failure = abort.failure();
    tracing::error!("{}: {}", failure.error_name, failure.error_message);
    let text = ErrorClass::of(failure).text();
    ToolCallResult::error(&failure.error_name, failure.stop.message.clone(), text)
}
