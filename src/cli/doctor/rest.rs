//! The declared REST tools: whether a run could offer each, and whether its host answers. None is called.

use std::collections::BTreeMap;

use futures::future::join_all;

use super::Finding;
use crate::config::{Config, RestTool};
use crate::tools::rest::{answers, rest_tools};

const WHAT: &str = "rest";

/// Looks at each tool by itself: what is wrong with one hides nothing of the others.
pub async fn look(config: &Config) -> Vec<Finding> {
    join_all(config.rest_tools.iter().map(|(name, tool)| of_tool(name, tool))).await
}

async fn of_tool(name: &str, tool: &RestTool) -> Finding {
    let alone = BTreeMap::from([(name.to_owned(), tool.clone())]);
    if let Err(error) = rest_tools(&alone) {
        let remedy = format!("correct [rest.tools.{name}] in agentd.toml, or take it out");
        return Finding::problem(WHAT, format!("{error}: no run starts"), remedy);
    }
    match answers(tool).await {
        Some((host, false)) => Finding::warning(
            WHAT,
            format!("{name}: {host} does not answer"),
            format!("check the network and rest.tools.{name}.url"),
        ),
        Some((host, true)) => Finding::ok(WHAT, format!("{name}: {host} answers; the tool was not called")),
        None => Finding::ok(WHAT, format!("{name}: not tried")),
    }
}
