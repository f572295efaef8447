//! Texts for people, rendered from a run's output and facts by the templates: report, pull request, status comment.

use std::fmt::Write as _;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};

use super::proven::{self, Proven};
use super::summary_text::{self, counted, pending, short_hash};
use crate::domain::call_text::shown_arguments;
use crate::domain::confined;
use crate::domain::event::{Change, Effect};
use crate::domain::facts::RunFacts;
use crate::domain::issue::IssueKey;
use crate::domain::money::Money;
use crate::domain::name::CommitId;
use crate::domain::outgoing::{LONGEST_BODY, cut, defused};
use crate::domain::policy::{FALLBACK_PUBLIC_REASON, ProposalKind};
use crate::domain::report::{ClaimKind, ProposedStatus};
use crate::domain::run::Warning;
use crate::domain::run_output::RunOutput;
use crate::domain::stop::{StopDetail, StopReason};
use crate::domain::untrusted::visible;
use crate::domain::verify_command::NOT_PUT_BACK;

/// Most characters of a proposal's arguments that a comment shows.
const LONGEST_PROPOSAL: usize = 2_000;
/// Most files that a list names.
const LONGEST_LIST: usize = 20;

/// Code of the warning that the change removes tests.
pub const TESTS_REMOVED: &str = "tests_removed";
/// Code of the warning that the verify commands could use files which the commit does not have.
pub const VERIFIED_BESIDE: &str = "verified_beside_ignored";

/// A template that does not render: a defect of agentd, caught by its tests.
#[derive(Debug, thiserror::Error)]
#[error("cannot render {template}: {message}")]
pub struct RenderError {
    template: &'static str,
    message: String,
}

/// First line of the one status comment of an issue (D84).
pub fn marker(issue: &IssueKey) -> String {
    format!("<!-- agentd:issue-{issue} -->")
}

/// First line of the one comment of an issue that asks people for `what` (D84).
pub fn request_marker(issue: &IssueKey, what: &str) -> String {
    format!("<!-- agentd:issue-{issue}:{what} -->")
}

/// What the renderings show beside the run's output.
#[derive(Debug, Clone, Default)]
pub struct Links {
    /// The pull request, once it is there.
    pub pull_request: Option<String>,
    /// Why the pull request is a draft, if it is.
    pub draft_reason: Option<String>,
    /// The label that starts a run.
    pub trigger_label: String,
    /// Whether merging closes the issue: the closure that the definition allows (D81).
    pub closes_issue: bool,
    /// The repository's form of pull requests, filled. It stands before agentd's own words.
    pub frame: Option<String>,
}

/// `report.md`.
pub fn report(run: &RunOutput, facts: &RunFacts, links: &Links) -> Result<String, RenderError> {
    render("report.md", include_str!("../../templates/report.md.j2"), run, facts, links)
}

/// Body of the pull request (D14).
pub fn pull_request(run: &RunOutput, facts: &RunFacts, links: &Links) -> Result<String, RenderError> {
    render("pull-request.md", include_str!("../../templates/pull-request.md.j2"), run, facts, links)
}

/// The issue's status comment, without its marker (D84).
pub fn status_comment(run: &RunOutput, facts: &RunFacts, links: &Links) -> Result<String, RenderError> {
    render("status-comment.md", include_str!("../../templates/status-comment.md.j2"), run, facts, links)
}

fn render(
    template: &'static str,
    source: &str,
    run: &RunOutput,
    facts: &RunFacts,
    links: &Links,
) -> Result<String, RenderError> {
    let failed = |error: minijinja::Error| RenderError { template, message: error.to_string() };
    let mut environment = Environment::new();
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::SemiStrict);
    environment.add_filter("plain", |name: String| summary_text::plain(&name));
    environment.add_filter("line", |text: String| confined::line(&text));
    environment.add_template(template, source).map_err(failed)?;
    let no_change = Change::default();
    let change = facts.committed.as_ref().map_or(&no_change, |committed| &committed.change);
    let (headline, sentence) = headline(run, facts);
    let totals = facts.totals();
    let inherited = facts.started.as_ref().map(|started| started.inherited).unwrap_or_default();
    // What a model wrote is made harmless for GitHub (D36). The report on disk has the original words.
    let public = template != "report.md";
    // If merging must not close the issue, the model's words must not either.
    let own = run.objective.issue.as_ref().filter(|_| links.closes_issue).map(|issue| issue.number);
    let plainly = |text: String| if public { defused(&text, own) } else { text };
    // And it stays in its place, beside agentd's own words.
    let said = |text: &str| plainly(confined::block(text));
    let said_line = |text: &str| plainly(confined::line(text));
    let shown = |all: Vec<Proven>| {
        let shown = all.into_iter().map(|one| {
            context! {
                statement => said_line(&one.statement), evidence_ids => one.evidence_ids,
                proofs => one.proofs.iter().map(|proof| said_line(proof)).collect::<Vec<_>>(),
            }
        });
        shown.collect::<Vec<_>>()
    };
    let told = |code: &str| {
        let of = run.warnings.iter().filter(|warning| warning.code == code);
        of.map(|warning| said(&warning.text)).collect::<Vec<_>>()
    };
    let values = context! {
        run => Value::from(Serde(run)),
        headline, sentence => said(&sentence),
        frame => links.frame.as_deref().map(said),
        notices => [told("rules_changed"), told(TESTS_REMOVED)].concat(),
        doubts => [told(TESTS_REMOVED), told(VERIFIED_BESIDE)].concat(),
        beside => told(VERIFIED_BESIDE),
        // What a program prints stands there like what a model writes.
        red => red(run, facts).map(|red| plainly(fenced(&red.output))),
        summary => said(summary_text::of_agent(facts).unwrap_or(run.summary.trim())),
        title => said_line(&run.objective.title),
        objective_body => confined::block(run.objective.body.trim()),
        change => Value::from(Serde(change)),
        change_line => if facts.committed.is_some() { change_line(change) } else { "nothing committed".to_owned() },
        committed => facts.committed.is_some(),
        by_commands => by_commands(change),
        not_committed => not_committed(run).map(|warning| said(&sentence_of(&warning.text))).collect::<Vec<_>>(),
        found_edits => run.warnings.iter().filter(|warning| ["found_edits", "other_authors", "approved_script_changed", "commits_left"].contains(&warning.code.as_str()))
            .map(|warning| said(&sentence_of(&warning.text))).collect::<Vec<_>>(),
        changed_by_people => run.warnings.iter().filter(|warning| ["origin_changed", "found_edits", "other_authors", "approved_script_changed", "commits_left"].contains(&warning.code.as_str()))
            // How it ended says it already.
            .filter(|warning| !run.error.as_ref().is_some_and(|error| error.message.contains(&warning.text)))
            .map(|warning| said(&sentence_of(&warning.text))).collect::<Vec<_>>(),
        merged_meanwhile => run.warnings.iter().filter(|warning| warning.code == "merged_meanwhile")
            .map(|warning| said(&sentence_of(&warning.text))).next_back(),
        pinned => told("pinned_commits").pop(),
        cost_line => cost_of_work(facts),
        cost_used => amount(inherited.cost + totals.cost, inherited.cost_unknown || totals.cost_unknown),
        cost_cap => facts.started.as_ref().map_or(Money::ZERO, |started| started.budgets.max_cost).to_string(),
        time_line => duration(own_time(run, facts)),
        wall_used => duration(run.budgets.wall_time_used_ms),
        wall_cap => duration(run.budgets.max_wall_time_ms),
        on_final_tree => facts.committed.as_ref().is_some_and(|committed| facts.verification.iter()
            .all(|command| command.tree_before == committed.tree && command.tree_after == committed.tree)),
        verification => facts.verification.iter().map(|command| context! {
            line => summary_text::plain(&command.argv.join(" ")),
            changed => summary_text::changed_by_run(command, Some(change)).map(|said| format!("; {said}")).unwrap_or_default(),
            tree => match &facts.committed {
                Some(committed) if command.tree_before != committed.tree => "; it ran on another tree than the final one",
                _ if !command.changed_tree() => "",
                _ if run.warnings.iter().any(|warning| warning.code == NOT_PUT_BACK) => "; it changed the tree that it ran on",
                _ => "; it changed the tree that it ran on, and that was put back",
            },
            passed => command.passed(),
            outcome => command.outcome(),
            duration => duration(command.duration_ms),
        }).collect::<Vec<_>>(),
        verified => shown(proven::known(run)),
        cited => shown(proven::cited(run)),
        unverified => run.claims.iter().any(|claim| !claim.is_verified()),
        limitations => run.limitations.iter().map(|line| said_line(line)).collect::<Vec<_>>(),
        next_steps => summary_text::next_steps(run, facts).iter().map(|step| said_line(step)).collect::<Vec<_>>(),
        interventions => summary_text::interventions(run, facts).iter().map(|line| said_line(line)).collect::<Vec<_>>(),
        message => run.error.as_ref().map(|error| said(&error.message)),
        pr_url => links.pull_request.clone(),
        pushed_branch => pushed_branch(run, facts),
        draft_reason => links.draft_reason.as_deref().map(said),
        trigger_label => links.trigger_label.clone(),
        closes => own,
        issue_number => run.objective.issue.as_ref().map(|issue| issue.number),
        version => env!("CARGO_PKG_VERSION"),
    };
    let page = environment.get_template(template).and_then(|page| page.render(values)).map_err(failed)?;
    // What breaks words where GitHub reads them is invisible itself.
    let page = squeeze(&if public { page } else { visible(&page) });
    let rest = format!("The rest is in the run's report: `agentd runs report {}`.", run.run_id);
    Ok(if public { cut(&page, LONGEST_BODY, &rest) } else { page })
}

/// The comment that asks people for approvals, without its marker (P-036, D84). What the model wrote is shown as data.
pub fn approval_comment(run: &RunOutput, facts: &RunFacts) -> String {
    let mut text =
        "**An approval is needed.** The agent wants to do what the policy lets a person decide:\n".to_owned();
    for proposal in pending(facts) {
        let resource = &proposal.resource;
        let what = match resource.kind {
            ProposalKind::Handoff => format!("hand over to the step `{}`", resource.name.replace('`', "'")),
            _ => format!("call `{}`", resource.name.replace('`', "'")),
        };
        let (arguments, is_cut) = shown_arguments(&proposal.canonical_json, LONGEST_PROPOSAL);
        let whole = match is_cut {
            true => "  Not all of it is shown; `agentd approvals list` on agentd's machine shows it.\n\n",
            false => "",
        };
        let longest = arguments.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        let because = proposal.public_reason.as_deref().unwrap_or(FALLBACK_PUBLIC_REASON);
        let own = run.objective.issue.as_ref().map(|issue| issue.number);
        let files =
            proposal.files.iter().flatten().map(|file| format!("`{}`", summary_text::plain(&file.path)));
        let files = match files.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => none,
            files => format!("  An approval is for what these files hold now: {files}\n\n"),
        };
        let _infallible = write!(
            text,
            "\n- It wants to {what} with\n\n  {fence}json\n  {arguments}\n  {fence}\n\n{whole}{files}  {}\n\n  To approve it, comment `/agentd approve {}` (the daemon reads it), or run on agentd's machine: `agentd runs approve {} {}`\n",
            defused(&confined::line(because), own),
            short_hash(&proposal.proposal_hash),
            run.run_id,
            proposal.proposal_hash
        );
    }
    text.push_str("\nAfter the comment the issue is worked on again, and after the command where a daemon made this run; elsewhere start it again (`agentd runs resume`, or the label). An approval holds for 24 hours and for one use.\n");
    text
}

/// What stands there instead once no call waits any more.
pub fn approval_over(run: &str) -> String {
    format!("No approval is needed any more: run `{run}` ended without a call that waits for one.\n")
}

/// What stands there once nobody is asked any more, and why.
pub fn approval_dropped(why: &str) -> String {
    format!("No approval is waited for any more: {why}.\n")
}

/// A status comment that says that calls wait for an approval, once they were decided against; `None` = it does not say so.
pub fn approval_denied(body: &str, why: &str) -> Option<String> {
    let waits = format!("**{}**", asked_for(StopDetail::ApprovalPending));
    let (before, told) = body.split_once(&waits)?;
    let rest = told.split_once('\n').map_or("", |(_, rest)| rest);
    let text = before.lines().filter(|line| !line.starts_with("<!-- agentd:"));
    let text: String = text.map(|line| format!("{line}\n")).collect();
    Some(format!("{text}**It waited for an approval, and does no more:** {why}.\n{rest}"))
}

/// The branch on the remote, where no pull request names it.
pub fn pushed_branch<'a>(run: &'a RunOutput, facts: &RunFacts) -> Option<&'a str> {
    let pushed = facts.outcome(Effect::Push).is_some() && facts.outcome(Effect::PullRequest).is_none();
    run.mapping.as_ref().filter(|_| pushed).map(|mapping| mapping.branch.as_str())
}

/// What of the work is in no commit.
fn not_committed(run: &RunOutput) -> impl Iterator<Item = &Warning> {
    let codes = ["left_out", "kept_out", "nested_repository"];
    run.warnings.iter().filter(move |warning| codes.contains(&warning.code.as_str()))
}

/// What happened, in a word and a sentence.
pub fn headline(run: &RunOutput, facts: &RunFacts) -> (String, String) {
    if let Some(red) = red(run, facts) {
        return (red.headline, red.sentence);
    }
    let (headline, sentence) = usual_headline(run, facts);
    (headline.to_owned(), sentence)
}

/// The verify command that decided how the run ended.
pub fn red(run: &RunOutput, facts: &RunFacts) -> Option<summary_text::RedVerify> {
    summary_text::red_verify(facts).filter(|_| run.stop_detail == StopDetail::VerifyFailed)
}

fn usual_headline(run: &RunOutput, facts: &RunFacts) -> (&'static str, String) {
    let no_change = Change::default();
    let change = facts.committed.as_ref().map_or(&no_change, |committed| &committed.change);
    let message = run.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
    match run.stop_reason {
        StopReason::ObjectiveAchieved if change.is_empty() => {
            let is_claimed = run.claims.iter().any(|claim| {
                claim.kind == ClaimKind::ChangeMade && claim.proposed_status != ProposedStatus::Retracted
            });
            let left: String =
                not_committed(run).map(|warning| format!(" {}", sentence_of(&warning.text))).collect();
            let sentence = match is_claimed {
                true => "The agent reports a change, but there is none.",
                false if left.is_empty() => "The agent reports that it is done; no file was changed.",
                false => "The agent reports that it is done, and nothing of what it made is committed.",
            };
            ("Done, without a change.", format!("{sentence}{left}"))
        }
        StopReason::ObjectiveAchieved => ("Done.", format!("{}.", change_line(change))),
        StopReason::BudgetExceeded => ("Stopped at a limit.", message),
        StopReason::NoEvidence => ("Ended without enough evidence.", message),
        StopReason::HumanRequested if run.stop_detail.parks() => ("Parked: it waits for a person.", message),
        StopReason::HumanRequested => (asked_for(run.stop_detail), message),
        StopReason::SystemError => ("Failed.", message),
    }
}

/// What a person is asked for, or asked for.
fn asked_for(detail: StopDetail) -> &'static str {
    match detail {
        StopDetail::ApprovalPending => "It waits for an approval.",
        StopDetail::GuidanceNeeded => "A person is needed.",
        StopDetail::BranchMoved => "The branch was changed by others.",
        _ => "Stopped on request.",
    }
}

/// `3 files, +20 −4 lines, 2 commits`.
pub fn change_line(change: &Change) -> String {
    if change.is_empty() {
        return "no change".to_owned();
    }
    let (added, removed) = change.lines();
    format!(
        "{}, +{added} −{removed} lines, {}",
        counted(change.files.len(), "file"),
        counted(change.commits as usize, "commit")
    )
}

/// What the branch has where the work was committed, or where nothing was left to commit.
pub fn commit_line(head: &CommitId, made: bool, change: &Change) -> String {
    let (head, changed) = (head.short(), change_line(change));
    match (made, change.is_empty()) {
        (true, _) => format!("committed {head}: {changed}"),
        (false, true) => "nothing to commit: no change".to_owned(),
        (false, false) => format!("nothing more to commit; the branch is at {head}: {changed}"),
    }
}

/// New files that only commands made, as a list; empty where there are none.
fn by_commands(change: &Change) -> String {
    let made: Vec<_> = change.files.iter().filter(|file| file.by_command).collect();
    let shown = made.iter().take(LONGEST_LIST).map(|file| format!("`{}`", summary_text::plain(&file.path)));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = made.len().saturating_sub(LONGEST_LIST);
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

fn sentence_of(text: &str) -> String {
    format!("{text}.")
}

/// `$0.0123 (4,300 tokens in, 210 out)`.
pub fn cost_line(cost: Money, unknown: bool, tokens_in: u64, tokens_out: u64) -> String {
    let amount = amount(cost, unknown);
    if unknown && tokens_in + tokens_out == 0 {
        // Nobody has told of any.
        return amount;
    }
    format!("{amount} ({} tokens in, {} out)", thousands(tokens_in), thousands(tokens_out))
}

/// What a run cost. Where it goes on with another one, what their work cost together comes first: that is what people ask for.
pub fn cost_of_work(facts: &RunFacts) -> String {
    let totals = facts.totals();
    let tokens_in = totals.tokens_in + totals.cache_read + totals.cache_write;
    let own = cost_line(totals.cost, totals.cost_unknown, tokens_in, totals.tokens_out);
    let before = facts.started.as_ref().map(|started| started.inherited).unwrap_or_default();
    if before.cost.is_zero() && !before.cost_unknown {
        return own;
    }
    let all = amount(before.cost + totals.cost, before.cost_unknown || totals.cost_unknown);
    format!("{all} with the run that it goes on with; this run {own}")
}

/// How long the run itself worked, in milliseconds, without those before it that it goes on with: its cost is its own, too.
pub fn own_time(run: &RunOutput, facts: &RunFacts) -> u64 {
    let before = facts.started.as_ref().map(|started| started.inherited.wall_time);
    time_beyond(run.budgets.wall_time_used_ms, before.unwrap_or_default())
}

fn time_beyond(used_ms: u64, before: std::time::Duration) -> u64 {
    used_ms.saturating_sub(u64::try_from(before.as_millis()).unwrap_or(u64::MAX))
}

/// An amount of which some may not be known.
pub fn amount(cost: Money, unknown: bool) -> String {
    match (cost, unknown) {
        (Money::ZERO, true) => "unknown cost".to_owned(),
        (cost, true) => format!("at least {cost}"),
        (cost, false) => cost.to_string(),
    }
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Bytes for people: `850 bytes`, `12 KiB`, `3.4 MiB`.
pub fn amount_of_bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes / 1024),
        _ => format!("{}.{} MiB", bytes >> 20, ((bytes % (1 << 20)) * 10) >> 20),
    }
}

/// Milliseconds for people: `850 ms`, `12.4 s`, `3 min 20 s`, `2 h 5 min`.
pub fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match seconds {
        0 => format!("{milliseconds} ms"),
        1..60 => format!("{}.{} s", seconds, milliseconds % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Output in a code block that it cannot end; nothing where there is none.
fn fenced(output: &str) -> String {
    if output.trim().is_empty() {
        return String::new();
    }
    let longest = output.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}text\n{}\n{fence}", visible(output))
}

/// agentd's own lines at the end of a comment, from the last one up. What stands above them are words, whatever they look like.
pub fn own_lines(body: &str) -> impl Iterator<Item = &str> {
    let lines = body.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    lines.take_while(|line| line.starts_with("<!-- agentd:") && line.ends_with("-->"))
}

/// No more than one empty line in a row, one newline at the end.
fn squeeze(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut empty = 0;
    for line in page.lines().map(str::trim_end) {
        empty = if line.is_empty() { empty + 1 } else { 0 };
        if empty < 2 && !(out.is_empty() && line.is_empty()) {
            out.push_str(line);
            out.push('\n');
        }
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_short_and_true() {
        assert_eq!(duration(850), "850 ms");
        assert_eq!(
            time_beyond(9_000, std::time::Duration::from_secs(4)),
            5_000,
            "an earlier run has its own time"
        );
        assert_eq!(duration(12_440), "12.4 s");
        assert_eq!(duration(200_000), "3 min 20 s");
        assert_eq!(duration(7_500_000), "2 h 5 min");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(amount(Money::ZERO, true), "unknown cost");
        assert_eq!(cost_line(Money::ZERO, true, 0, 0), "unknown cost");
        assert_eq!(asked_for(StopDetail::UserStop), "Stopped on request.");
        assert_eq!(asked_for(StopDetail::ApprovalPending), "It waits for an approval.");
    }

    #[test]
    fn pages_have_no_holes() {
        assert_eq!(squeeze("\n\na \n\n\n\nb\n\n"), "a\n\nb\n");
    }
}
