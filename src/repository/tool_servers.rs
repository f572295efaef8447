//! The MCP servers and REST tools that a configuration names, and why one that cannot be used ends a start.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::error::ConfigError;
use crate::config::settings::{Config, McpTransport};
use crate::config::tools_file::BoundParam;
use crate::domain::stop::{Stop, StopDetail};
use crate::engine::tool::BoundParameter;
use crate::mcp::{McpError, ServerConfig, ServerTransport};
use crate::tools::rest::RestError;

/// Why a server that cannot be used ends a start.
pub fn stop_of(error: &McpError) -> Stop {
    let detail = match error {
        McpError::Unavailable { .. } => StopDetail::McpUnavailable,
        McpError::Schema { .. } => StopDetail::SchemaInvalid,
        McpError::Glob { .. } => StopDetail::ConfigInvalid,
    };
    Stop::new(detail, format!("{error}."))
}

/// Why a REST tool that cannot be offered ends a start.
pub fn unfit(error: &RestError) -> Stop {
    let detail = match error {
        RestError::Schema { .. } => StopDetail::SchemaInvalid,
        RestError::Config(_) | RestError::Invalid { .. } => StopDetail::ConfigInvalid,
    };
    Stop::new(detail, format!("{error}."))
}

/// The servers of a configuration. Their placeholders are resolved now and not before.
pub fn servers(config: &Config) -> Result<BTreeMap<String, ServerConfig>, ConfigError> {
    let mut servers = BTreeMap::new();
    for (name, server) in &config.mcp_servers {
        let transport = match &server.transport {
            McpTransport::Stdio { command, args, env } => ServerTransport::Stdio {
                command: command.resolve()?,
                args: args.iter().map(|arg| arg.resolve()).collect::<Result<_, _>>()?,
                env: env.iter().map(|(name, value)| Ok((name.clone(), value.secret()?))).collect::<Result<
                    _,
                    ConfigError,
                >>(
                )?,
            },
            McpTransport::Http { url, headers } => ServerTransport::Http {
                url: url.resolve()?,
                headers: headers
                    .iter()
                    .map(|(name, value)| Ok((name.clone(), value.secret()?)))
                    .collect::<Result<_, ConfigError>>()?,
            },
        };
        let mut configured = ServerConfig::new(transport);
        configured.required = server.required;
        configured.allow.clone_from(&server.allow);
        configured.deny.clone_from(&server.deny);
        configured.reads.clone_from(&server.reads);
        // Whoever names others gives these away to no model.
        let always = [BoundParam::UserId, BoundParam::Issue];
        let bind: BTreeSet<BoundParam> =
            always.into_iter().chain(server.bound_params.iter().copied()).collect();
        configured.bind = bind.into_iter().map(bound).collect();
        configured.hide_bound_params = server.hide_bound_params;
        configured.queue.clone_from(&server.queue);
        servers.insert(name.clone(), configured);
    }
    Ok(servers)
}

fn bound(param: BoundParam) -> BoundParameter {
    match param {
        BoundParam::UserId => BoundParameter::UserId,
        BoundParam::Issue => BoundParameter::Issue,
        BoundParam::Repo => BoundParameter::Repo,
        BoundParam::Branch => BoundParameter::Branch,
        BoundParam::Worktree => BoundParameter::Worktree,
    }
}
