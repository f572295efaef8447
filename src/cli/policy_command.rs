//! `agentd policy eval`: the verdict on one call, with the rule that gave it (D45).

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::args::PolicyCommand;
use super::clones;
use super::context::Context;
use super::error::CommandError;
use super::output::Tone;
use crate::definition::policy_file::read_question;
use crate::domain::call_scope::{CallScope, ScopePath};
use crate::domain::policy::{Decision, DenyMode, FILE_TOOLS, PolicyInput, PolicyResult};
use crate::engine::arguments;
use crate::engine::policy::{BUILTIN_VERSION, Policy};
use crate::repository::resources;
use crate::sys::paths::AbsPath;

/// Does what was asked.
pub fn run(context: &Context, command: &PolicyCommand) -> Result<(), CommandError> {
    let PolicyCommand::Eval { input } = command;
    let question = read_question(&read_json(context, input)?).map_err(|error| {
        CommandError::invalid(format!("{}: {error}", input.display()))
            .hint("`agentd config schema policy-input` has its form")
    })?;
    let policy = policy(context)?;
    let mut verdict = context.block_on(policy.decide(&question))?;
    if verdict.result.decision == Decision::Allow && leads_out(&question) {
        // The rules allow it but the tool would refuse it. The answer here is the same as for the real call.
        verdict.result = PolicyResult {
            policy_version: Some(BUILTIN_VERSION.to_owned()),
            public_reason: Some("The path leads out of the worktree.".to_owned()),
            ..PolicyResult::deny("outside_worktree", DenyMode::ToolResult)
        };
        verdict.rule_id = None;
    }
    let output = context.output;
    if output.json() {
        let mut told = serde_json::to_value(&verdict.result).unwrap_or_default();
        if let (Some(told), Some(rule)) = (told.as_object_mut(), &verdict.rule_id) {
            told.insert("ruleId".to_owned(), json!(rule));
        }
        return output.document(&told);
    }
    let (word, tone) = match verdict.result.decision {
        Decision::Allow => ("allow", Tone::Good),
        Decision::Deny => ("deny", Tone::Bad),
    };
    let by = verdict.rule_id.map_or_else(|| "no rule".to_owned(), |rule| format!("rule {rule}"));
    output.line(format!("{} by {by}: {}", output.toned(word, tone), verdict.result.reason))?;
    if let Some(public) = &verdict.result.public_reason {
        output.line(format!("the model reads: {public}"))?;
    }
    Ok(())
}

/// The policy of the configuration, outside of any worktree. For `--repo` of a managed clone, the policy of its runs.
fn policy(context: &Context) -> Result<Policy, CommandError> {
    let config = context.config()?;
    let place = |path: PathBuf| AbsPath::new(path).map_err(|error| CommandError::invalid(error.to_string()));
    let children = context.env.for_tools();
    let (config, base) = match clones::of(context, &config, context.global.repo.as_ref())?.pop() {
        Some(clone) if context.global.repo.is_some() => (clone.config, place(clone.dir)?),
        _ => (config, place(context.config_base())?),
    };
    Ok(context.block_on(resources::policy(&config, &base, children))??)
}

/// Whether a built-in tool is to reach what is no plain path of the worktree.
fn leads_out(question: &PolicyInput) -> bool {
    let tool = question.tool.as_deref().unwrap_or_default();
    FILE_TOOLS.contains(&tool) && CallScope::of(question, None).paths.contains(&ScopePath::Unclear)
}

fn read_json(context: &Context, path: &Path) -> Result<Value, CommandError> {
    let told = |error: String| {
        CommandError::invalid(format!("{}: {error}", path.display()))
            .hint("--input names one JSON document, or - for stdin: `agentd config schema policy-input` has its form")
    };
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(|error| told(error.to_string()))?;
        text
    } else {
        std::fs::read_to_string(context.env.working_dir().join(path))
            .map_err(|error| told(error.to_string()))?
    };
    arguments::parse(&text).map(Value::Object).map_err(told)
}
