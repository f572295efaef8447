//! Facts of a run in sentences for people: who or what intervened, how a claim was proven, how to go on.

use crate::domain::budget::{IssueBudget, IssueBudgetState};
use crate::domain::constraint::ConstraintKind;
pub use crate::domain::count::counted;
use crate::domain::event::{Change, Effect, Event, VerifyCommand};
use crate::domain::evidence::{EvidenceRecord, Provenance};
use crate::domain::facts::{EffectState, RunFacts};
use crate::domain::policy::Decision;
use crate::domain::run::ForcedFinal;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::{StopDetail, StopReason};
use crate::domain::trace::SuspendedProposal;
use crate::domain::untrusted::visible;
use crate::engine::shortage::{is_of_the_day, is_of_the_issue};
use crate::engine::turn::{NO_SUCH_MODEL, REQUEST_REFUSED};
use std::collections::BTreeMap;

/// What becomes of an end that says nothing of the issue.
const BY_ITSELF: &str = "A daemon that made this run goes on with it by itself after a pause.";
/// Lines of a red verify command's output that people are shown at once.
const RED_LINES: usize = 10;
/// What is said of a file that a step changed which only plans.
pub const ONLY_PLANS: &str = "(the step only plans)";
/// The limits of an agent program of its own, as the sentence names them that says that it was ended at one.
const OWN_LIMITS: [&str; 4] =
    ["program.timeLimit", "program.stallLimit", "program.maxTokens", "program.maxRequests"];
/// Most characters of a command that stand in a sentence.
const LONGEST_COMMAND: usize = 160;

/// Everything that the agent did not do itself: people, limits, the policy, the host.
pub fn interventions(run: &RunOutput, facts: &RunFacts) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(before) = facts.lease.as_ref().and_then(|lease| lease.previous_run) {
        let visits = counted(facts.imported, "finished step visit");
        told.push(format!("The run goes on with run `{before}`: {visits} taken over, what it spent counts."));
    }
    let mut denied: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut sent_back: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, event) in &facts.other {
        match event {
            Event::PolicyDecided(made) if made.decision == Decision::Deny => {
                *denied.entry((made.resource.name.clone(), made.reason.clone())).or_default() += 1;
            }
            Event::PolicyDecided(made) if made.reason == "approved" => {
                let told_by = made.metadata.as_ref().and_then(|metadata| metadata.get("approver")?.as_str());
                let approver = told_by.unwrap_or("a person");
                told.push(format!("`{}` was approved by {approver}.", plain(&made.resource.name)));
            }
            Event::ReplyRejected { reason, .. } => *sent_back.entry(reason).or_default() += 1,
            Event::FinalTurnForced { turn, reason } => {
                told.push(format!("Turn {turn} was made the last of its session: {}.", why_last(*reason)));
            }
            Event::ConstraintSet { constraint } => {
                let ConstraintKind::RefuseAction { action } = &constraint.kind;
                told.push(format!(
                    "The loop guard refused an action that changed nothing (`{}`), from turn {} on for {} turns.",
                    short_hash(action),
                    constraint.turn,
                    constraint.ttl
                ));
            }
            Event::ToolsChanged(changed) => {
                told.push(format!(
                    "MCP servers changed their tools before turn {}: {}.",
                    changed.turn,
                    plain(&changed.words())
                ));
            }
            Event::TargetSkipped { target, reason } => {
                told.push(format!("`{}` was not asked: {reason}.", plain(target)));
            }
            _ => {}
        }
    }
    for ((name, reason), count) in denied {
        let times = counted(count, "time");
        told.push(format!("The policy refused `{}` {times}: `{}`.", plain(&name), plain(&reason)));
    }
    for (reason, count) in sent_back {
        told.push(format!("{} sent back to the model: `{reason}`.", counted(count, "reply")));
    }
    for proposal in pending(facts) {
        let (call, hash) = (plain(&proposal.call_text()), &proposal.proposal_hash);
        told.push(match run.stop_reason {
            StopReason::ObjectiveAchieved => format!(
                "`{call}` needed an approval and was not made; the run reached its objective without it. `agentd runs approve {} {hash}` \
                 lets a run that makes it again make it once.",
                run.run_id
            ),
            _ => format!("`{call}` waits for an approval (`{}`).", short_hash(hash)),
        });
    }
    for (kind, used, cap) in &facts.soft_limits {
        let share = if *cap > 0.0 { used / cap * 100.0 } else { 100.0 };
        told.push(format!("`{}` passed {share:.0} % of its cap; the run went on.", kind.as_str()));
    }
    for (by, budgets) in &facts.extensions {
        told.push(format!("{} raised the budgets: {}.", plain(by), budgets.all_shown()));
    }
    if run.stop_reason == StopReason::HumanRequested
        && !matches!(
            run.stop_detail,
            StopDetail::ApprovalPending
                | StopDetail::GuidanceNeeded
                | StopDetail::QuestionPending
                | StopDetail::PlanPending
        )
        && let Some(error) = &run.error
    {
        told.push(error.message.clone());
    }
    told.extend(run.warnings.iter().map(|warning| format!("`{}`: {}", warning.code, warning.text)));
    told
}

/// What a record of evidence is, in a few words.
pub fn proof(record: &EvidenceRecord) -> String {
    let lines = || match (record.span.start, record.span.end) {
        (start, end) if start == end => format!("line {start}"),
        (start, end) => format!("lines {start}–{end}"),
    };
    match &record.provenance {
        Provenance::FileSpan(file) => format!("`{}`, {}", plain(&file.path), lines()),
        Provenance::Command(command) => {
            let end = match (command.exit_code, &command.signal) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => signal.clone(),
                (None, None) => "no exit code".to_owned(),
            };
            let ran = format!("agentd ran `{}`: {end}", plain(&command.argv.join(" ")));
            match command.changed_by_run.as_slice() {
                [] => ran,
                changed => format!("{ran}; {}", changed_script(changed)),
            }
        }
        Provenance::Git(git) => {
            format!("commit `{}`, {}", short_hash(&git.commit), counted(git.files.len(), "file"))
        }
        Provenance::ToolResult(tool) => format!("answer of `{}`, {}", plain(&tool.command), lines()),
        Provenance::IssueText(_) => "the issue's text".to_owned(),
        Provenance::Http(http) => format!("<{}>", http.url),
    }
}

/// That a command executed what the run had changed.
pub fn changed_script(paths: &[String]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| format!("`{}`", plain(path))).collect();
    format!("it executes {}, which this run changed", paths.join(", "))
}

/// That the run removed what a command would execute.
pub fn removed_script(paths: &[String]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| format!("`{}`", plain(path))).collect();
    format!("this run removed {}", paths.join(", "))
}

/// What of a command the run changed or removed, in words; `None` = nothing.
pub fn changed_by_run(command: &VerifyCommand, change: Option<&Change>) -> Option<String> {
    let (changed, removed) = (command.changed_by_run(change), command.removed_by_run(change));
    let changed = (!changed.is_empty()).then(|| changed_script(&changed));
    let removed = (!removed.is_empty()).then(|| removed_script(&removed));
    let said: Vec<String> = changed.into_iter().chain(removed).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// What people are told first of a run whose verify commands do not pass.
pub struct RedVerify {
    /// What happened, and which command says that it does not hold.
    pub headline: String,
    /// What else is known of it.
    pub sentence: String,
    /// The last lines of the command's output.
    pub output: String,
}

impl RedVerify {
    /// Headline and sentence in one.
    pub fn message(&self) -> String {
        format!("{} {}", self.headline, self.sentence).trim_end().to_owned()
    }

    /// The same with what the command printed last.
    pub fn with_output(&self) -> String {
        format!("{}\n{}", self.message(), self.output).trim_end().to_owned()
    }
}

/// The agent's own account: the last visit's summary that says something.
pub fn of_agent(facts: &RunFacts) -> Option<&str> {
    facts.visits.iter().rev().map(|visit| visit.summary.trim()).find(|summary| !summary.is_empty())
}

/// That a verify command does not pass; `None` = all do.
pub fn red_verify(facts: &RunFacts) -> Option<RedVerify> {
    let red = facts.red()?;
    let line = command_line(&red.argv);
    let changed = facts.committed.as_ref().is_some_and(|done| !done.change.is_empty());
    let change = if changed { "Changed" } else { "Nothing was changed" };
    let headline = format!("{change}, but `{line}` {}.", red.outcome());
    let mut sentences = Vec::new();
    let origin = facts.lease.as_ref().map(|lease| &lease.origin);
    match (red.also_red_on_base, origin) {
        (Some(true), Some(origin)) if changed => sentences.push(format!(
            "It fails on {} at {} as well, without the change.",
            origin.branch,
            origin.commit.short()
        )),
        (Some(false), Some(origin)) => {
            sentences.push(format!("It passes on {} at {}.", origin.branch, origin.commit.short()));
        }
        _ => {}
    }
    let removed = red.removed_by_run(facts.committed.as_ref().map(|done| &done.change));
    if !removed.is_empty() {
        sentences.push(format!("{}.", capitalised(&removed_script(&removed))));
    }
    let further = facts.verification.iter().filter(|other| !other.passed()).skip(1);
    sentences
        .extend(further.map(|other| format!("`{}` {}, too.", command_line(&other.argv), other.outcome())));
    Some(RedVerify { headline, sentence: sentences.join(" "), output: red.last_lines(RED_LINES) })
}

/// The files that a command would execute and that the run removed.
fn removed_of(facts: &RunFacts, argv: &[String]) -> Vec<String> {
    facts.committed.as_ref().map(|done| done.change.removed_of(argv)).unwrap_or_default()
}

/// A command on one line, inside a code span.
pub fn command_line(argv: &[String]) -> String {
    let line = plain(&argv.join(" "));
    if line.chars().count() <= LONGEST_COMMAND {
        return line;
    }
    line.chars().take(LONGEST_COMMAND - 1).chain(['…']).collect()
}

/// What a person can do next, by how the run ended.
pub fn next_steps(run: &RunOutput, facts: &RunFacts) -> Vec<String> {
    let mut steps = failed_effects(run, facts);
    let again = again(run);
    let resume = resume(run);
    let step = match run.stop_detail {
        StopDetail::Completed | StopDetail::CompletedForcedFinal => match &run.artifacts.pr_url {
            Some(url) => format!("Review the pull request: {url}"),
            None if facts.committed.as_ref().is_some_and(|done| !done.change.is_empty()) => {
                format!("Look at the change: `agentd runs diff {}`.", run.run_id)
            }
            None => format!("If something is missing, say so on the issue and run again: {again}."),
        },
        StopDetail::MaxCost if facts.end.as_ref().is_some_and(is_of_the_day) => format!(
            "Nothing has to be done where a daemon runs: it goes on by itself when the next day begins, at 00:00 UTC. To go on before, raise \
             `budgets.max_cost_per_day` in agentd.toml; where no daemon runs: {resume}."
        ),
        StopDetail::MaxCost if facts.end.as_ref().is_some_and(is_of_the_issue) => format!(
            "Give the issue more money: `agentd extend {} 5`, or the comment `/agentd extend 5` (USD), and go on: {resume}. `budgets.max_cost_per_issue` in agentd.toml is the limit.",
            facts.lease.as_ref().map_or_else(|| "N".to_owned(), |lease| lease.issue.key.to_string())
        ),
        StopDetail::MaxSteps | StopDetail::MaxWallTime | StopDetail::MaxCost | StopDetail::MaxIterations => {
            let (keys, flag) = limit_keys(run.stop_detail);
            let with = flag.map(|flag| format!(" with `{flag}`")).unwrap_or_default();
            format!(
                "Raise the limit ({keys}) and go on: {resume}; or run again{with}: {again}. The branch is continued."
            )
        }
        StopDetail::MaxTurnsExhausted => {
            format!("Raise `session.max_turns` (`--max-turns`), or split the step, and run again: {again}.")
        }
        StopDetail::ApprovalPending => {
            for proposal in pending(facts) {
                steps.push(format!(
                    "Decide on `{}`: `agentd approvals approve {hash}` lets it run once, `agentd approvals deny {hash}` does \
                     not. A daemon that made this run goes on by itself then; else {resume}.",
                    plain(&proposal.call_text()),
                    hash = proposal.proposal_hash
                ));
            }
            return steps;
        }
        StopDetail::QuestionPending => format!(
            "Answer the agent's question on the issue, or `agentd answer {} TEXT` on agentd's machine. A daemon there goes on by \
             itself then; where none runs: {resume}.",
            facts.lease.as_ref().map_or_else(|| "N".to_owned(), |lease| lease.issue.key.to_string())
        ),
        StopDetail::PlanPending => format!(
            "Approve the plan on the issue (a 👍 on its comment, or `/agentd approve`), or have it made again with `/agentd reject \
             TEXT`; on agentd's machine with `agentd approve {key}` or `agentd reject {key} TEXT`. A daemon there goes on by itself \
             then; where none runs: {resume}.",
            key = facts.lease.as_ref().map_or_else(|| "N".to_owned(), |lease| lease.issue.key.to_string())
        ),
        StopDetail::GuidanceNeeded => format!("Answer on the issue, then run again: {again}."),
        StopDetail::VerifyFailed => after_red(run, facts),
        StopDetail::ClaimsRejected | StopDetail::RequiredClaimMissing => format!(
            "Read what could not be proven under \"Not verified\"; if the work is right, take it as it is, else say on \
             the issue what is missing and run again: {again}."
        ),
        StopDetail::ModelAbstained | StopDetail::SearchEmpty => {
            format!(
                "Add to the issue what the agent could not find (files, steps, examples) and run again: {again}."
            )
        }
        StopDetail::UserStop | StopDetail::UserAbort | StopDetail::Shutdown | StopDetail::Interrupted => {
            format!("Go on where it stopped: {resume}; or begin another run on the branch: {again}.")
        }
        StopDetail::Taken => {
            let key =
                facts.lease.as_ref().map_or_else(|| "N".to_owned(), |lease| lease.issue.key.to_string());
            format!(
                "Give the work back when it is agentd's turn again: `agentd give-back {key} -m TEXT` on agentd's machine, or the comment \
                 `/agentd give-back TEXT`. Nothing starts on it meanwhile."
            )
        }
        StopDetail::Overtaken => {
            "Another node has the issue and goes on with it: `agentd runs list` shows its run.".to_owned()
        }
        StopDetail::IssueClosed => format!(
            "{}Where the issue is still here, reopen it to have it worked on again, then {again}.",
            match facts.committed.as_ref().is_some_and(|committed| !committed.change.is_empty()) {
                true => "What was made is on the branch. ",
                false => "",
            }
        ),
        StopDetail::LabelRemoved => {
            format!("Put the label back to have the issue worked on again, or {again}.")
        }
        StopDetail::BranchMoved => format!(
            "Run again: {again}; it begins with what the branch has on the remote now. What this run made stays on the ref named above."
        ),
        _ => after_fault(run, facts),
    };
    steps.push(step);
    steps
}

/// What people are told of why the run ended.
fn said(run: &RunOutput) -> &str {
    run.error.as_ref().map_or("", |error| &error.message)
}

/// The limit of its own at which an agent program was ended.
fn own_limit(said: &str) -> Option<&'static str> {
    OWN_LIMITS.into_iter().find(|limit| said.contains(limit)).filter(|_| said.contains("was ended"))
}

/// The same where something failed.
fn after_fault(run: &RunOutput, facts: &RunFacts) -> String {
    let again = again(run);
    let resume = resume(run);
    match run.stop_detail {
        StopDetail::AuthError => {
            format!("Check the provider's key (`agentd doctor`), then go on: {resume}. {BY_ITSELF}")
        }
        StopDetail::QuotaExceeded => {
            format!(
                "Raise the provider's quota, or add another target to `session.targets`, then go on: {resume}. {BY_ITSELF}"
            )
        }
        // No wait helps.
        StopDetail::LlmUnavailable if said(run) == NO_SUCH_MODEL => format!(
            "Mend the target's `model` or the provider's `base_url` (`agentd doctor` asks the model), then go on: {resume}. {BY_ITSELF}"
        ),
        StopDetail::LlmUnavailable if said(run) == REQUEST_REFUSED => format!(
            "Mend the target's `model` or its settings (`agentd doctor` asks the model), then go on: {resume}."
        ),
        StopDetail::LlmUnavailable => {
            format!(
                "Wait until the provider answers again, or add another target, then go on: {resume}. {BY_ITSELF}"
            )
        }
        StopDetail::PolicyDenied if facts.flow_end.as_ref().is_some_and(|ended| ended.stop.success()) => {
            format!(
                "Take out of the worktree what is named above, or allow it (`[commit]`, rules of `write_file` in the policy), then run \
             again: {again}. The agent works on it anew, from what is there."
            )
        }
        StopDetail::PolicyDenied if said(run).contains(ONLY_PLANS) => format!(
            "No rule of the policy lets a step that only plans change files: say in its prompt that it is to change none, or give it \
             another `permissionMode` in the agent's definition, then run again: {again}."
        ),
        StopDetail::PolicyDenied => format!(
            "See the refused call in `agentd runs events {}`; allow it in the policy if it should be, then go on: {resume}.",
            run.run_id
        ),
        StopDetail::OutputWriteFailed => format!(
            "Make room where nothing could be written, or make it writable (`agentd doctor` looks at both), then run again: {again}. It goes on \
             with what is kept."
        ),
        StopDetail::McpUnavailable => {
            format!("Start or mend the MCP server, or set `required = false` for it, then go on: {resume}.")
        }
        _ if facts.is_refused() => format!(
            "Say on the issue what has to be different, or leave it to the agent, and run again: {again}. The agent is told what the \
             remote said, and its work is committed anew."
        ),
        _ if facts.is_unpublished() => {
            let (is, does) = match facts.committed {
                None => ("done and not committed", "commits and publishes"),
                Some(_) => ("committed and not published", "publishes"),
            };
            // Of what passes it is said above that the daemon tries it by itself.
            let daemon = match facts.end.as_ref().is_some_and(|end| facts.is_unpublished_for_now(end)) {
                true => "",
                false => " A daemon that made this run does so when its label is put on again.",
            };
            format!("The work is {is}: {resume} {does} it without asking the model.{daemon}")
        }
        StopDetail::ConfigInvalid => {
            format!(
                "Mend what is named above (`agentd doctor` tries it, `worktree.setup` too), then run again: {again}."
            )
        }
        StopDetail::AgentCliFailed if let Some(limit) = own_limit(said(run)) => format!(
            "Raise `{limit}` of the program in the agent's definition, or give the step less to do, then run again: {again}. The branch \
             is continued."
        ),
        StopDetail::AgentCliFailed => {
            format!(
                "Mend the agent program (`agentd doctor` says whether it is found), then run again: {again}."
            )
        }
        StopDetail::AgentAborted => {
            format!("Say on the issue what the agent could not find or decide, then run again: {again}.")
        }
        StopDetail::SchemaInvalid | StopDetail::LoopDetected | StopDetail::InvalidModelOutput => format!(
            "See in `agentd runs log {}` what the agent tried; say more on the issue, or take another model or other prompts, \
             then run again: {again}. The branch is continued.",
            run.run_id
        ),
        _ => format!("Run again: {again}; the branch is continued."),
    }
}

fn after_red(run: &RunOutput, facts: &RunFacts) -> String {
    let again = again(run);
    match facts.red() {
        Some(red) if let [removed, ..] = removed_of(facts, &red.argv).as_slice() => format!(
            "Say on the issue that `{}` has to stay, or name another command in `verify.commands`, then run again: {again}. The branch is \
             continued.",
            plain(removed)
        ),
        Some(red) if !red.could_run() => format!(
            "Make `{}` able to run on agentd's machine (`agentd doctor` tries it), then run again: {again}.",
            command_line(&red.argv)
        ),
        Some(red) if red.also_red_on_base == Some(true) => format!(
            "Mend what makes `{}` fail on the origin branch, or take the work as it is; then run again: {again}.",
            command_line(&red.argv)
        ),
        _ => format!(
            "Read the output above, say on the issue what is wrong, and run again: {again}. The branch is continued."
        ),
    }
}

fn failed_effects(run: &RunOutput, facts: &RunFacts) -> Vec<String> {
    let mut steps = Vec::new();
    let goes_on = facts.end.as_ref().is_some_and(|end| facts.is_unpublished_for_now(end));
    for (effect, state) in &facts.effects {
        let EffectState::Failed { message, transient, of_content } = state else { continue };
        steps.push(format!("{} failed: {message}", capitalised(effect.as_str())));
        if *transient && goes_on {
            steps.push(
                "A daemon that made this run tries that again by itself, without asking the model."
                    .to_owned(),
            );
        }
        if *effect == Effect::Push
            && !of_content
            && let Some(mapping) = &run.mapping
        {
            steps.push(format!("The work is on the local branch `{}`.", mapping.branch));
        }
    }
    steps
}

fn resume(run: &RunOutput) -> String {
    format!("`agentd runs resume {}`", run.run_id)
}

fn again(run: &RunOutput) -> String {
    match run.objective.issue.as_ref() {
        Some(issue) => format!("`agentd run --issue {}`", issue.number),
        None => "`agentd run --issue-file FILE`".to_owned(),
    }
}

fn why_last(reason: ForcedFinal) -> &'static str {
    match reason {
        ForcedFinal::Context => "the context was nearly full",
        ForcedFinal::MaxTurns => "no further turn is allowed",
        ForcedFinal::RetryExhaustion => "too many replies could not be used",
        ForcedFinal::UserStop => "the run was asked to stop",
        ForcedFinal::MaxCost => "the money left covers the last report alone",
        ForcedFinal::TaskStatus => "the agent said that it is done",
    }
}

/// Where a limit stands, and the flag of `agentd run` that sets it. Who resumes a run has no such flag.
fn limit_keys(detail: StopDetail) -> (&'static str, Option<&'static str>) {
    match detail {
        StopDetail::MaxSteps => ("`budgets.max_steps` in agentd.toml", Some("--max-steps")),
        StopDetail::MaxWallTime => ("`budgets.max_wall_time` in agentd.toml", Some("--max-wall-time")),
        StopDetail::MaxCost => ("`budgets.max_cost` in agentd.toml", Some("--max-cost")),
        _ => ("`maxIterations` of the agent's verdict", None),
    }
}

/// What became of the budget that all runs of the issue share.
pub fn issue_budget(news: &IssueBudget) -> String {
    let IssueBudget { state, spent, cap, by, given } = news;
    match state {
        IssueBudgetState::Near if spent < cap => {
            format!("the issue's budget is nearly used up: {spent} of {cap}")
        }
        IssueBudgetState::Near | IssueBudgetState::UsedUp => {
            format!("the issue's budget is used up: {spent} of {cap}")
        }
        IssueBudgetState::Extended => {
            let by = by.as_deref().unwrap_or("somebody");
            format!("{by} gave the issue {given} more: its budget is {cap}")
        }
    }
}

/// A name inside a code span, also one in a table.
pub fn plain(name: &str) -> String {
    visible(&name.replace(['\n', '\r'], " ")).replace('`', "'").replace('|', "\u{2502}")
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().collect::<String>() + letters.as_str())
        .unwrap_or_default()
}

/// What a run proposed and a person has to approve, each once: as it was proposed last, with the files that its command names by then.
pub fn pending(facts: &RunFacts) -> Vec<&SuspendedProposal> {
    let mut pending: Vec<&SuspendedProposal> = Vec::new();
    for (_, event) in &facts.other {
        if let Event::ProposalSuspended(proposal) = event {
            match pending.iter_mut().find(|known| known.proposal_hash == proposal.proposal_hash) {
                Some(known) => *known = proposal,
                None => pending.push(proposal),
            }
        }
    }
    pending
}

/// Enough of a hash to find the rest.
pub fn short_hash(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}
