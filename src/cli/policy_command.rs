//! `agentd policy eval`: the verdict on one call, with the rule that gave it (D45).

use std::io::Read as _;
use std::path::Path;

use serde_json::{Value, json};

use super::args::PolicyCommand;
use super::context::Context;
use super::error::CommandError;
use super::output::Tone;
use crate::config::Config;
use crate::definition::policy_file::{PolicySource, read_policies, read_question};
use crate::domain::policy::Decision;
use crate::engine::arguments;
use crate::engine::policy::Policy;
use crate::engine::policy_program::{PolicyProgram, TIME_LIMIT};

/// Does what was asked.
pub fn run(context: &Context, command: &PolicyCommand) -> Result<(), CommandError> {
    let PolicyCommand::Eval { input } = command;
    let config = context.config()?;
    let question = read_question(&read_json(context, input)?).map_err(|error| {
        CommandError::invalid(format!("{}: {error}", input.display()))
            .hint("`agentd config schema policy-input` has its form")
    })?;
    let policy = policy(context, &config)?;
    let verdict = context.block_on(policy.decide(&question))?;
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

/// The policy of the configuration, outside of any worktree.
fn policy(context: &Context, config: &Config) -> Result<Policy, CommandError> {
    let sources = config.policy.files.iter().map(|file| PolicySource::read(&context.base.join(file)));
    let sources =
        sources.collect::<Result<Vec<_>, _>>().map_err(|error| CommandError::invalid(error.to_string()))?;
    let rules = read_policies(&sources).map_err(|error| CommandError::invalid(error.to_string()))?;
    let cwd = context.base_path()?;
    let program = (!config.policy.program.is_empty()).then(|| PolicyProgram {
        argv: config.policy.program.clone(),
        cwd,
        env: context.env.for_tools(),
        timeout: TIME_LIMIT,
    });
    Ok(Policy::new(rules, program))
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
