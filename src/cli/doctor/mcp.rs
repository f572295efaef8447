//! What the configured MCP servers offer, and which of their tools a run could not use. They are started as in a run,
//! asked for their tools, and ended.

use std::collections::BTreeMap;

use futures::future::join_all;

use super::Finding;
use crate::lifecycle::toolbox;
use crate::mcp::{McpError, McpServers, ServerConfig};
use crate::record::summary_text::counted;
use crate::repository::context::RepositoryContext;

const WHAT: &str = "mcp";

/// Asks each server by itself: what is wrong with one hides nothing of the others.
pub async fn look(site: &RepositoryContext) -> Vec<Finding> {
    match toolbox::servers(&site.config) {
        Ok(servers) => {
            let asked = servers.into_iter().map(|(name, config)| ask(site, name, config));
            join_all(asked).await.into_iter().flatten().collect()
        }
        Err(error) => {
            vec![Finding::problem(WHAT, error.to_string(), "set the variable or the key that is named")]
        }
    }
}

async fn ask(site: &RepositoryContext, name: String, config: ServerConfig) -> Vec<Finding> {
    let alone = BTreeMap::from([(name.clone(), config)]);
    let servers = match McpServers::connect(alone, site.checkout.root(), &site.child_environment()).await {
        Ok(servers) => servers,
        Err(error) => return vec![broken(&name, &error)],
    };
    servers.close().await;
    let warnings = servers.warnings().iter().map(|warning| {
        Finding::warning(WHAT, warning.message.clone(), format!("look at what [mcp.servers.{name}] starts"))
    });
    let mut findings: Vec<Finding> = warnings.collect();
    let tools = servers.tools().len();
    if tools > 0 || findings.is_empty() {
        findings.push(Finding::ok(WHAT, format!("{name}: {}", counted(tools, "tool"))));
    }
    findings
}

/// A server that a run could not begin with.
fn broken(name: &str, error: &McpError) -> Finding {
    Finding::problem(WHAT, error.to_string(), format!("see [mcp.servers.{name}] in agentd.toml"))
}
