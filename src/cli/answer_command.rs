//! `agentd answer N TEXT`: the answer to an agent's question, by whoever is at agentd's machine.

use super::context::Context;
use super::daemon_command::{daemon_files, daemon_lives, open_options};
use super::error::CommandError;
use super::issue_arg::IssueArg;
use super::repositories::{self, OpenOptions};
use crate::conversation::parked::ParkedCell;
use crate::conversation::parked::parked_format::{Answer, ParkedIssue, WaitsFor};
use crate::domain::issue::IssueKey;
use crate::sys::host::Host;
use crate::sys::shutdown::Shutdown;

/// Answers the question for which the issue waits, and says what goes on.
pub fn answer(context: &Context, issue: &IssueArg, text: &str) -> Result<(), CommandError> {
    let context = &context.for_issue(issue)?;
    let text = text.trim().to_owned();
    if text.is_empty() {
        return Err(CommandError::invalid("there is no answer").hint("agentd answer N TEXT"));
    }
    context.block_on(async {
        let shutdown = Shutdown::new();
        let options = OpenOptions { fresh: false, needs_github: false, ..open_options(&shutdown) };
        let site = repositories::one(context, &options).await?;
        repositories::check_host(issue, &site)?;
        let cell = ParkedCell::new(&site.state, &site.repo, &IssueKey::Number(issue.number));
        let by = format!("local:{}", Host::current().uid);
        let at = site.clock.now();
        let put = move |issue: &mut ParkedIssue| {
            issue.now()?;
            let parked = issue.parked.as_mut()?;
            let WaitsFor::Answer { question, .. } = &parked.waits_for else { return None };
            if parked.answer.is_some() {
                return Some(None);
            }
            let text = question.chosen(&text).map_or_else(|| text.clone(), str::to_owned);
            parked.answer = Some(Answer { text, by: by.clone(), permission: None, at, plan: None });
            Some(Some(parked.run_id))
        };
        let (_, put) = cell.update(put).await.map_err(|error| CommandError::failed(error.to_string()))?;
        let number = issue.number;
        let run_id = match put {
            None => {
                let error = format!("nothing waits for an answer on issue {number}");
                return Err(CommandError::invalid(error).hint(format!("agentd why {number}")));
            }
            Some(None) => {
                return Err(CommandError::invalid(format!(
                    "the question of issue {number} is answered already"
                )));
            }
            Some(Some(run_id)) => run_id,
        };
        let files = daemon_files(context)?;
        let known = files.load().ok().and_then(|state| {
            let memory = state.repositories.get(&site.repo)?.issues.get(&number)?;
            Some(memory.parked.as_ref()?.waits_for_person())
        });
        let goes_on = known == Some(true) && daemon_lives(&files);
        if context.output.json() {
            return context.output.document(&serde_json::json!({
                "issue": number, "run_id": run_id, "goes_on": goes_on,
            }));
        }
        context.output.line(match goes_on {
            true => "Answered. The daemon goes on with it at its next look.".to_owned(),
            false => format!("Answered. Go on: agentd runs resume {run_id}"),
        })
    })?
}
