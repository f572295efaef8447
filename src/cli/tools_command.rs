//! `agentd tools`: the service's tools, listed and called (bind_mcp_tools, execute_tool_call).

use std::sync::Arc;

use serde_json::Value;

use super::context::Context;
use super::error::CommandError;
use super::stopping::listen;
use crate::domain::refusal::Refusal;
use crate::domain::run::PrincipalSource;
use crate::domain::stop::StopDetail;
use crate::engine::arguments;
use crate::service::{Service, Setup, ToolCallResult, bind_mcp_tools, execute_tool_call, user};
use crate::sys::clock::Clock;
use crate::sys::paths::AbsPath;

/// What the service of this invocation is made from.
pub(super) fn setup(context: &Context) -> Result<Setup, CommandError> {
    Ok(Setup {
        config: Arc::new(context.config()?),
        base: AbsPath::new(context.config_base())
            .map_err(|error| CommandError::invalid(error.to_string()))?,
        state: context.state_or_file()?,
        env: context.env.clone(),
        clock: Clock::system(),
        model: None,
    })
}

/// Says what optional servers could not give.
pub(super) fn tell_warnings(context: &Context, service: &Service) {
    for warning in service.warnings() {
        context.output.note(format!("warning: {warning}"));
    }
}

/// Lists the tools; as function definitions where asked for.
pub fn list(context: &Context, definitions: bool) -> Result<(), CommandError> {
    let setup = setup(context)?;
    let tools = context.block_on(unless_stopped(async {
        let service = Service::open(setup).await?;
        tell_warnings(context, &service);
        let tools = bind_mcp_tools(&service);
        service.close().await;
        Ok::<_, CommandError>(tools)
    }))??;
    if definitions || context.output.json() {
        return context.output.document(&tools);
    }
    if tools.is_empty() {
        let config = context.config()?;
        context.output.note(if config.mcp_servers.is_empty() && config.rest_tools.is_empty() {
            "No tools: add [mcp.servers.NAME] or [rest.tools.NAME] to agentd.toml."
        } else {
            "No tools: no server of [mcp.servers] that runs offers one."
        });
        return Ok(());
    }
    let row = |tool: &crate::service::FunctionTool| {
        let about = tool.function.description.lines().next().unwrap_or_default();
        vec![tool.function.name.clone(), about.to_owned()]
    };
    context.output.table(&["NAME", "DESCRIPTION"], &tools.iter().map(row).collect::<Vec<_>>())
}

/// Calls a tool. Stdout holds one result object, whatever happened; the exit code is 0 exactly for a success.
pub fn call(context: &Context, name: &str, arguments: &str, user_id: &str) -> Result<u8, CommandError> {
    let (result, code) = match called(context, name, arguments, user_id) {
        Ok(result) => {
            let code = u8::from(!result.is_success());
            (result, code)
        }
        Err(NotCalled { error_type, error }) => {
            let code = error.exit_code;
            context.output.say_only(&error);
            (ToolCallResult::error(error_type, error.message.clone(), error.hints.join("; ")), code)
        }
    };
    context.output.document(&result)?;
    Ok(code)
}

/// Why the service could not even be asked.
struct NotCalled {
    error_type: &'static str,
    error: CommandError,
}

fn called(
    context: &Context,
    name: &str,
    arguments: &str,
    user_id: &str,
) -> Result<ToolCallResult, NotCalled> {
    let user = user(user_id, PrincipalSource::Local)
        .map_err(|error| NotCalled { error_type: "Validation", error: error.into() })?;
    let arguments = match arguments::parse(arguments) {
        Ok(arguments) => Value::Object(arguments),
        Err(error) => {
            let error = CommandError::argument(format!("--args: {error}"))
                .hint("give one JSON object, such as --args '{\"id\": 1}', or --args '{}' where the tool takes nothing");
            return Err(NotCalled { error_type: "Validation", error });
        }
    };
    let setup = setup(context)?;
    context.block_on(unless_stopped(async {
        let service = Service::open(setup).await?;
        tell_warnings(context, &service);
        let result = execute_tool_call(&service, name, &arguments, &user).await;
        service.close().await;
        Ok(result)
    }))?
}

/// Work that the first signal ends; what it started ends with the program.
async fn unless_stopped<T, E: From<CommandError>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let shutdown = listen()?;
    tokio::select! {
        done = work => done,
        () = shutdown.stopped() => {
            Err(CommandError::failed("interrupted; whether a call had an effect is not known").into())
        }
    }
}

impl From<CommandError> for NotCalled {
    fn from(error: CommandError) -> Self {
        let error_type = if error.exit_code == 1 { "ToolExecutionError" } else { "ConfigurationError" };
        Self { error_type, error }
    }
}

impl From<Refusal> for NotCalled {
    fn from(refusal: Refusal) -> Self {
        let error_type = match refusal.stop.detail {
            StopDetail::McpUnavailable => "McpUnavailable",
            StopDetail::SchemaInvalid => "ToolSchemaInvalid",
            _ => "ConfigurationError",
        };
        Self { error_type, error: refusal.into() }
    }
}
