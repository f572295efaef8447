//! agentd's tools as a server of the Model Context Protocol: what a program calls goes to the tool handler of its run.

use rmcp::ErrorData;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult,
    ErrorCode, Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Map, Value, json};

use super::claude_code;
use super::permission_request::{PERMISSION, SERVER};
use crate::domain::message::ToolSpec;
use crate::engine::agent_tools::AgentTools;
use crate::engine::ruling::Permission;

/// One connection of a program.
#[derive(Debug, Clone)]
pub(super) struct ToolServer {
    pub(super) tools: AgentTools,
    /// Whether the permission tool is offered.
    pub(super) permissions: bool,
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(SERVER, env!("CARGO_PKG_VERSION")))
            .with_instructions(
                "Tools of the run that you work in. Every call is judged by the run's policy and stands in its record.",
            )
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let permission = self.permissions.then(permission_spec);
        let specs = self.tools.tools().iter().cloned().chain(permission);
        Ok(ListToolsResult::with_all_items(specs.map(offered).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        if self.permissions && request.name == PERMISSION {
            let text = self.permission(&arguments).await.to_string();
            return Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into());
        }
        let answer = tokio::select! {
            biased;
            answer = self.tools.call(request.name.into_owned(), arguments) => answer,
            // The program took it back or left: nobody reads what is said here.
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the call was given up", None)),
        };
        let mut content = vec![ContentBlock::text(answer.text)];
        if !answer.call_id.is_empty() {
            // What a claim of the report may cite.
            content.push(ContentBlock::text(format!("[call id: {}]", answer.call_id)));
        }
        let result =
            if answer.failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
        Ok(result.into())
    }

    /// A request that fits no method: of one that is served here its parameters are wrong.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let served = ["initialize", "ping", "tools/call", "tools/list"].contains(&request.method.as_str());
        Err(if served {
            ErrorData::invalid_params(
                format!("the parameters of {} are not of its form", request.method),
                None,
            )
        } else {
            ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None)
        })
    }
}

impl ToolServer {
    /// The answer in Claude Code's words.
    async fn permission(&self, arguments: &Map<String, Value>) -> Value {
        let input = arguments.get("input").cloned().unwrap_or_else(|| json!({}));
        let Some(tool) = arguments.get("tool_name").and_then(Value::as_str) else {
            return json!({"behavior": "deny", "message": "tool_name is missing"});
        };
        let allowed = match claude_code::request_of(tool, &input) {
            // Its calls are judged when they come.
            None => Permission::Allowed,
            Some(request) => self.tools.permit(request).await,
        };
        match allowed {
            Permission::Allowed => json!({"behavior": "allow", "updatedInput": input}),
            Permission::Denied(why) => json!({
                "behavior": "deny",
                "message": format!("The policy of this repository does not allow it: {why}"),
            }),
            Permission::NotMentioned => json!({
                "behavior": "deny",
                "message": "No rule of this repository's policy allows it.",
            }),
        }
    }
}

fn offered(spec: ToolSpec) -> Tool {
    let schema = match spec.parameters {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    Tool::new(spec.name, spec.description, schema)
}

fn permission_spec() -> ToolSpec {
    ToolSpec {
        name: PERMISSION.to_owned(),
        description: "Asks the policy whether a tool may be used. For the program, not for its model."
            .to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "tool_name": {"type": "string"},
                "input": {"type": "object"},
                "tool_use_id": {"type": "string"},
            },
            "required": ["tool_name", "input"],
        }),
    }
}
