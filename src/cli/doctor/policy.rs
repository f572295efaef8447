//! The policy: whether it can be read, and which of its rules decide nothing or less than they say.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Finding;
use crate::cli::context::Context;
use crate::cli::repositories;
use crate::config::Config;
use crate::definition;
use crate::definition::policy_file::{PolicyFileError, PolicySource, read_policies};
use crate::domain::policy::WORKTREE_TOOLS;
use crate::domain::rules::{RuleSet, Surroundings};

pub fn look(context: &Context, config: &Config) -> Finding {
    if config.policy.files.is_empty() && config.policy.program.is_empty() {
        return Finding::problem(
            "policy",
            "there is none, so that every tool call is denied",
            "name rule files in policy.files (docs/policy.md); `agentd init` in a checkout writes one",
        );
    }
    let rules = match rules(context, config) {
        Ok(rules) => rules,
        Err(error) => {
            return Finding::problem("policy", error.to_string(), "correct the rule where the message says");
        }
    };
    let told = idle(context, config, &rules);
    match told.is_empty() {
        true => Finding::ok("policy", format!("{} rules, examples included", rules.rules().len())),
        false => Finding::warning(
            "policy",
            format!("rules that decide nothing, or less than they say: {}", told.join("; ")),
            "put such a rule before the one that decides, correct what it names, or remove it",
        ),
    }
}

/// Rules that decide nothing, or less than they say; of a policy that can be read.
pub fn idle_rules(context: &Context, config: &Config) -> Vec<String> {
    rules(context, config).map(|rules| idle(context, config, &rules)).unwrap_or_default()
}

fn rules(context: &Context, config: &Config) -> Result<RuleSet, PolicyFileError> {
    let start = config.paths_start("policy.files", &context.config_base());
    let sources: Result<Vec<_>, _> =
        config.policy.files.iter().map(|file| PolicySource::read(&start.join(file))).collect();
    read_policies(&sources?)
}

fn idle(context: &Context, config: &Config, rules: &RuleSet) -> Vec<String> {
    let flows = flows(context, config);
    let around = Surroundings {
        is_tool: &|tool| is_tool(config, tool),
        agents: flows.as_ref().map(|flows| &flows.agents),
        steps: flows.as_ref().map(|flows| &flows.steps),
        is_folder: &|path| context.base.join(path).is_dir(),
    };
    rules.idle(&around).into_iter().map(|(id, why)| format!("\"{id}\": {why}")).collect()
}

/// Whether calls of a tool of this name are possible. Which tools a server has is known when it runs.
fn is_tool(config: &Config, name: &str) -> bool {
    match name.split_once("__") {
        Some(("rest", tool)) => config.rest_tools.contains_key(tool),
        Some((server, _)) => server == "exec_agent" || config.mcp_servers.contains_key(server),
        None => WORKTREE_TOOLS.contains(&name),
    }
}

/// The agents of all checkouts that the rules are for, and their steps.
struct Flows {
    agents: BTreeSet<String>,
    steps: BTreeSet<String>,
}

/// `None` where one of them cannot be read, or a clone is not here: then nobody can tell what they have.
fn flows(context: &Context, config: &Config) -> Option<Flows> {
    let mut flows = Flows { agents: BTreeSet::new(), steps: BTreeSet::new() };
    let mut places = repositories::each(context, &Arc::new(config.clone())).ok()?;
    places.push(context.clone());
    for place in places {
        for name in definition::agents_of(&place.base) {
            let folder = place.base.join(".agent").join(&name);
            let loaded = definition::load(&place.base, &folder, &BTreeSet::new()).ok()?;
            flows.steps.extend(loaded.definition.flow.steps.iter().map(|step| step.id.to_string()));
            flows.agents.insert(name);
        }
        if !place.base.is_dir() {
            return None;
        }
    }
    (!flows.agents.is_empty()).then_some(flows)
}
