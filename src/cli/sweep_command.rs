//! `agentd sweep`: one sweep now. If it takes issues without a label, it first shows them and the most that they may
//! cost.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use serde_json::json;

use super::args::SweepArgs;
use super::asking::needs_nodes_key;
use super::context::Context;
use super::daemon_command::{parts, tell};
use super::daemon_front::DaemonFront;
use super::error::CommandError;
use super::stopping::{listen, unless_stopped};
use crate::config::config_file::SweepSelect;
use crate::daemon::{Daemon, DaemonReport, Dependencies, Previewed, WouldBeTaken};
use crate::domain::money::Money;

/// Characters of a title that the list shows.
const LONGEST_TITLE: usize = 60;

/// Sweeps.
pub fn sweep(context: &Context, args: &SweepArgs) -> Result<u8, CommandError> {
    context.block_on(async {
        let shutdown = listen()?;
        let front = DaemonFront::closed(context);
        let (mut parts, _) = unless_stopped(&shutdown, parts(context, &shutdown, &front, true)).await?;
        if args.all {
            parts.repositories.iter_mut().for_each(|watched| watched.sweep.select = SweepSelect::All);
        }
        let takes_all = parts.repositories.iter().any(|watched| watched.sweep.select == SweepSelect::All);
        if args.dry_run || (takes_all && !args.yes) {
            let preview = async { Ok(Daemon::sweep_preview(parts.clone()).await?) };
            let previewed = unless_stopped(&shutdown, preview).await?;
            let most = most_cost(&previewed);
            if args.dry_run {
                return show(context, &previewed, most, &parts);
            }
            if !agreed(context, &previewed, most, &parts)? {
                return Ok(0);
            }
        }
        let (state, cluster) = (parts.state.clone(), context.config()?.cluster.name);
        let asked = tokio::task::spawn_blocking(move || needs_nodes_key(&state, &cluster)).await;
        asked.map_err(|panic| CommandError::failed(panic.to_string()))??;
        let report = Daemon::sweep_now(parts).await?;
        if shutdown.stopping() && report.ended.is_empty() {
            return Err(CommandError::failed("told to stop; nothing was begun"));
        }
        tell(context, &report)?;
        Ok(u8::from(!report.failed_polls.is_empty()))
    })?
}

/// What all that begins may cost at most: each its run's cap, and together the largest cap of a day.
fn most_cost(previewed: &[Previewed]) -> Money {
    let of = |of: &Previewed| (of.runs(), of.run_caps);
    most(&previewed.iter().map(of).collect::<Vec<_>>())
}

/// `all`: issues of each repository, with its caps of a run and of a day.
fn most(all: &[(usize, (Money, Option<Money>))]) -> Money {
    let runs: Money = all.iter().flat_map(|(issues, (run, _))| std::iter::repeat_n(*run, *issues)).sum();
    let days: Option<Vec<Money>> = all.iter().map(|(_, (_, day))| *day).collect();
    let day = days.and_then(|days| days.into_iter().max());
    day.map_or(runs, |day| runs.min(day))
}

fn cost_line(most: Money, runs: usize) -> String {
    let issues = if runs == 1 { "1 issue".to_owned() } else { format!("{runs} issues") };
    format!("{issues}, at most {most} by the caps of [budgets].")
}

fn lines(previewed: &[Previewed], most: Money, parts: &Dependencies) -> Vec<String> {
    let mut told = Vec::new();
    let runs = previewed.iter().map(Previewed::runs).sum();
    for Previewed { repo, listed, .. } in previewed {
        match listed {
            Ok(issues) => {
                for WouldBeTaken { issue: one, waits } in issues {
                    let asked = one.has_label(&parts.labels.trigger);
                    let author = one.issue.author.as_deref().unwrap_or("unknown");
                    let why =
                        if asked { "labelled".to_owned() } else { format!("not labelled, by {author}") };
                    let title = crate::domain::untrusted::visible(&one.issue.title);
                    let title: String = title.chars().take(LONGEST_TITLE).collect();
                    let waits = if *waits { "  (waits)" } else { "" };
                    told.push(format!("{repo}#{}  {title}  ({why}){waits}", one.issue.key));
                }
            }
            Err(why) => told.push(format!("{repo}: the issues could not be listed: {why}")),
        }
    }
    told.push(cost_line(most, runs));
    told
}

fn show(
    context: &Context,
    previewed: &[Previewed],
    most: Money,
    parts: &Dependencies,
) -> Result<u8, CommandError> {
    let failed = previewed.iter().any(|of| of.listed.is_err());
    if context.output.json() {
        let issues = previewed.iter().flat_map(|of| of.listed.iter().flatten().map(move |one| (of, one)));
        let issues: Vec<_> = issues
            .map(|(of, WouldBeTaken { issue: one, waits })| {
                json!({
                    "repo": of.repo, "issue": one.issue.key, "title": one.issue.title,
                    "author": one.issue.author, "labelled": one.has_label(&parts.labels.trigger),
                    "waits": waits,
                })
            })
            .collect();
        let failed: Vec<_> = previewed
            .iter()
            .filter_map(|of| Some(json!({ "repo": of.repo, "error": of.listed.as_ref().err()? })))
            .collect();
        let document = json!({ "dry_run": true, "issues": issues, "max_cost_usd": most, "failed": failed });
        context.output.document(&document)?;
    } else {
        for line in lines(previewed, most, parts) {
            context.output.line(line)?;
        }
        context.output.line("Nothing was started: --dry-run.")?;
    }
    Ok(u8::from(failed))
}

/// Shows what would begin, and asks. Without somebody to ask, it is refused.
fn agreed(
    context: &Context,
    previewed: &[Previewed],
    most: Money,
    parts: &Dependencies,
) -> Result<bool, CommandError> {
    let told = lines(previewed, most, parts).join("\n");
    let nobody = previewed.iter().all(|of| of.listed.as_ref().is_ok_and(Vec::is_empty));
    if nobody {
        match context.output.json() {
            true => tell(context, &DaemonReport::default())?,
            false => context.output.line("No open issue is to be taken.")?,
        }
        return Ok(false);
    }
    if context.output.json() || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        let label = &parts.labels.trigger;
        let unlabelled = previewed.iter().flat_map(|of| of.listed.iter().flatten());
        let takes = match unlabelled.into_iter().any(|one| !one.issue.has_label(label)) {
            true => "would take issues that nobody labelled",
            false => "takes issues whether they are labelled or not, also those that come until it begins",
        };
        return Err(CommandError::invalid(format!(
            "this sweep {takes}, and there is no terminal to ask at:\n{told}"
        ))
        .hint("--yes begins without asking; --dry-run only shows them")
        .hint("without --all, and with sweep_select = \"labelled\", labelled issues alone are taken"));
    }
    let failed = |error: io::Error| CommandError::failed(format!("the question could not be asked: {error}"));
    let mut terminal = io::stderr();
    write!(terminal, "{told}\nBegin? [y/N] ").and_then(|()| terminal.flush()).map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    let yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if !yes {
        context.output.line("Nothing was started.")?;
    }
    Ok(yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repository_has_its_own_cap_of_a_run_and_the_largest_cap_of_a_day_holds_for_all() {
        let dollars = |dollars| Money::from_dollars(dollars).unwrap();
        let (small, large) = (dollars(5.0), dollars(50.0));
        assert_eq!(most(&[(2, (small, None)), (1, (large, Some(small)))]), dollars(60.0));
        assert_eq!(most(&[(2, (small, Some(small))), (1, (large, Some(dollars(20.0))))]), dollars(20.0));
        assert_eq!(most(&[(0, (large, Some(small))), (1, (small, None))]), small);
    }
}
