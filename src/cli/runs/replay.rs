//! `agentd runs replay`: a recorded run again, in a scratch repository of its own that cannot publish anything.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;

use super::inspection::{differences, open_checkout};
use super::{finished, output, read};
use crate::cli::context::Context;
use crate::cli::error::CommandError;
use crate::cli::repositories::{self, OpenOptions};
use crate::cli::run_command;
use crate::cli::stopping::listen;
use crate::config::config_file::Publish;
use crate::domain::comparison;
use crate::domain::event::LeaseTaken;
use crate::domain::facts::RunFacts;
use crate::domain::money::Money;
use crate::domain::name::{BranchName, CommitId};
use crate::domain::other_definition::OtherDefinition;
use crate::domain::run_output::RunOutput;
use crate::domain::run_record::RunRecord;
use crate::domain::shell_words;
use crate::git::checkout::Checkout;
use crate::git::error::GitError;
use crate::issue::reference::IssueSource;
use crate::lifecycle::request::RunRequest;
use crate::record::summary_text;
use crate::replay::recorded_run::{RecordedRun, ReplayMode};
use crate::repository::context::RepositoryContext;
use crate::repository::open::{Opening, open};
use crate::store::run_dir::{RunDir, StateDir};
use crate::sys::files;
use crate::sys::paths::AbsPath;

/// Exit code 0: the replay equals the run; 1: it differs, or the record lacks something.
pub(super) fn replay(
    context: &Context,
    dir: &RunDir,
    mode: &str,
    with_agents: Option<&Path>,
) -> Result<u8, CommandError> {
    let invalid = |message: String| CommandError::invalid(message);
    let mode =
        ReplayMode::parse(mode).ok_or_else(|| invalid(format!("there is no replay mode \"{mode}\"")))?;
    let ended = output(dir)?;
    let recorded = (read::<RunRecord>(&dir.record())?, ended);
    let (facts, _) = finished(dir)?;
    let (Some(lease), Some(started)) = (&facts.lease, &facts.started) else {
        return Err(invalid(format!(
            "run {} ended before it began to work: there is nothing to replay",
            dir.run_id
        )));
    };
    if let (true, Some(before)) = (facts.imported > 0, lease.previous_run) {
        return Err(invalid(format!("run {} goes on with run {before}", dir.run_id))
            .hint(format!("agentd runs replay {before}")));
    }
    let recorded_run = Arc::new(RecordedRun::read(dir, &facts, mode).map_err(CommandError::failed)?);
    let base = repositories::checkout_of(context, lease)?;
    let flags = run_command::flags_of(&started.asked.flags, |_| true);
    let options =
        OpenOptions { agent: started.asked.agent.as_deref(), flags: &flags, ..OpenOptions::default() };
    let site = context.block_on(repositories::of_run(context, &dir.repo, base.as_ref(), &options))??;
    let mut config = site.config.as_ref().clone();
    // A replay feeds no sinks and sets up nothing.
    config.record.sinks.clear();
    config.worktree.setup.clear();
    let permission = config.github.min_permission;
    let scratch = tempfile::Builder::new()
        .prefix("agentd-replay-")
        .tempdir()
        .map_err(|error| CommandError::failed(format!("a scratch directory cannot be made: {error}")))?;
    let place = |name: &str| {
        AbsPath::new(scratch.path().join(name)).map_err(|error| CommandError::failed(error.to_string()))
    };
    let (root, state) = (place("repository")?, StateDir::new(scratch.path().join("state")));
    files::create_private_dir(root.as_path()).map_err(|error| CommandError::failed(error.to_string()))?;
    let request = RunRequest {
        issue: IssueSource::Recorded(Box::new(lease.issue.clone())),
        source: lease.source,
        principal: lease.principal.clone(),
        permission: Some(permission),
        asked: None,
        origin: Some(lease.origin.branch.to_string()),
        agent: Some(started.asked.agent.clone().unwrap_or_else(|| started.agent.clone())),
        publish: Some(Publish::None),
        format: started.asked.format,
        parameters: started.asked.parameters.clone(),
        metadata: started.metadata.clone(),
        answers: None,
        resume: None,
        follow_up: None,
        new_remarks: Vec::new(),
        check_reruns: Vec::new(),
        catches_up: false,
        completes: false,
        other_definition: OtherDefinition::default(),
        dry_run: false,
    };
    let mut begins = vec![(&lease.origin.branch, &lease.origin.commit)];
    let head = facts.first_head.as_ref().filter(|head| **head != lease.origin.commit);
    begins.extend(head.map(|head| (&lease.branch, head)));
    let refs: Vec<_> = begins.iter().map(|(branch, commit)| (branch.full(), (*commit).clone())).collect();
    let agent = started.asked.agent.as_deref().unwrap_or(&started.agent);
    let agents = agents_of(context, site.checkout.root(), with_agents, agent)?;
    let (place, money) = (site.checkout.root().to_string(), site.state.clone());
    let ended = context.block_on(async {
        let checkout = open_checkout(context, &place).await.map_err(CommandError::failed)?;
        bring_beginning(&site, dir, &begins).await?;
        let scratch = checkout.scratch(&root, &refs).await.map_err(git_failed)?;
        bring_states(&site, &scratch, dir, (&facts, lease)).await?;
        copy_tree(&agents, &root.as_path().join(".agent"))?;
        let shutdown = listen()?;
        let opening = Opening {
            config: Arc::new(config),
            base: &root,
            repo: Some(&dir.repo),
            state: &state,
            needs_github: false,
            github: None,
            env: &context.env,
            cancel: shutdown.abort_token().clone(),
        };
        let mut site = open(opening).await?;
        site.github = None;
        // Its state is thrown away; what it spends is not.
        site.money = money;
        site.replay = Some(Arc::clone(&recorded_run));
        let walked = run_command::walked(context, false, request, &site, &shutdown).await;
        match walked.refusal {
            Some(refusal) => Err(CommandError::from(refusal)),
            None => Ok(walked.output),
        }
    })??;
    let replayed = state.run(&dir.repo, crate::domain::run::RunId(ended.run_id));
    let replayed = (read::<RunRecord>(&replayed.record())?, ended);
    tell(context, &recorded, &replayed, &recorded_run)
}

/// The folder of agents that counts, which has this one.
fn agents_of(
    context: &Context,
    checkout: &AbsPath,
    with_agents: Option<&Path>,
    agent: &str,
) -> Result<PathBuf, CommandError> {
    let (dir, hint) = match with_agents {
        Some(dir) => (
            context.env.working_dir().join(dir),
            "name the folder that holds the agents' folders, such as .agent",
        ),
        None => (
            checkout.as_path().join(".agent"),
            "--with-agents DIR names another folder that has it, for example of an earlier commit",
        ),
    };
    if dir.join(agent).is_dir() {
        return Ok(dir);
    }
    let words = format!("there is no agent \"{agent}\" in {}", dir.display());
    Err(CommandError::invalid(words).hint(hint))
}

fn git_failed(error: GitError) -> CommandError {
    CommandError::failed(error.to_string())
}

/// The commits that the run began from, where another clone worked on it.
async fn bring_beginning(
    site: &RepositoryContext,
    dir: &RunDir,
    begins: &[(&BranchName, &CommitId)],
) -> Result<(), CommandError> {
    for (branch, commit) in begins {
        if site.checkout.has_commit(commit).await.map_err(git_failed)? {
            continue;
        }
        site.origin_tip(branch, true).await?;
        if !site.checkout.has_commit(commit).await.map_err(git_failed)? {
            let (root, short) = (site.checkout.root().to_string(), commit.short());
            return Err(CommandError::failed(format!(
                "run {} began from the commit {short} of {branch}, which neither {root} nor its remote has",
                dir.run_id
            ))
            .hint(format!(
                "where another remote has it: {}",
                shell_words::line(&["git", "-C", &root, "fetch", "--all"])
            )));
        }
    }
    Ok(())
}

/// What the visits of another node's run left, from the bundles that it kept for others. This repository does not get them.
async fn bring_states(
    site: &RepositoryContext,
    scratch: &Checkout,
    dir: &RunDir,
    (facts, lease): (&RunFacts, &LeaseTaken),
) -> Result<(), CommandError> {
    for (visit, commit) in &facts.checkpoints {
        if scratch.has_commit(commit).await.map_err(git_failed)? {
            continue;
        }
        let Some((_, bundle)) = facts.bundles.iter().find(|(of, _)| of == commit) else {
            let node = lease.held.as_ref().map_or("its node", |held| held.by.node.as_str());
            return Err(CommandError::failed(format!(
                "what visit {visit} of run {} left is not in this checkout, and was not kept for other nodes",
                dir.run_id
            ))
            .hint(format!("agentd runs replay {}, on {node}", dir.run_id)));
        };
        bring_beginning(site, dir, &[(&lease.origin.branch, &bundle.prerequisite)]).await?;
        if let Some(remote) = site.authorised_remote().await? {
            site.checkout.bring_contents(&remote, &bundle.prerequisite).await.map_err(git_failed)?;
        }
        let reference = format!("refs/agentd/checkpoints/{}/{visit}", dir.run_id);
        let file = dir.path.join(&bundle.file.path);
        let taken = scratch.take_bundle(&file, (&bundle.prerequisite, None), (&reference, commit)).await;
        taken.map_err(git_failed)?;
    }
    Ok(())
}

fn tell(
    context: &Context,
    recorded: &(RunRecord, RunOutput),
    replayed: &(RunRecord, RunOutput),
    recorded_run: &RecordedRun,
) -> Result<u8, CommandError> {
    let found = comparison::compare((&recorded.0, &recorded.1), (&replayed.0, &replayed.1), 20);
    let missing = recorded_run.missing();
    let (tools, models) = recorded_run.effects();
    let programs = recorded_run.programs_run();
    let equal = found.is_empty() && missing.is_none();
    let end = &replayed.1;
    let why = end.error.as_ref().map(|error| error.message.as_str());
    // What came from the record cost nothing; beside it nobody counts apart what did.
    let cost = match models {
        0 => Some(Money::ZERO),
        _ => end.totals.cost_usd.filter(|_| recorded_run.asks_anew()),
    };
    if context.output.json() {
        context.output.document(&json!({
            "equal": equal, "run_id": recorded.1.run_id, "missing": missing,
            "stop_reason": end.stop_reason, "stop_detail": end.stop_detail, "error": why,
            "tools_run": tools, "programs_run": programs, "model_requests": models,
            "cost_usd": cost, "differences": differences(&found),
        }))?;
        return Ok(u8::from(!equal));
    }
    if let Some(missing) = missing {
        context.output.line(format!("missing  {missing}"))?;
    }
    for line in super::inspection::difference_lines(&found) {
        context.output.line(line)?;
    }
    if let Some(why) = why.filter(|_| !equal) {
        context.output.line(format!("the replay ends with: {why}"))?;
    }
    // Programs of steps and checks; a run of an earlier version did not record them.
    let ran = if programs > 0 {
        format!(", {} of the agent run", summary_text::counted(programs as usize, "program"))
    } else {
        String::new()
    };
    let spent = match (models, cost) {
        (0, _) => String::new(),
        (_, Some(cost)) => format!(" for {cost}"),
        (_, None) => " at an unknown cost".to_owned(),
    };
    context.output.line(format!(
        "{} ({} / {}; {tools} tools run{ran}, {models} model requests made{spent})",
        if equal { "equal" } else { "different" },
        end.stop_reason,
        end.stop_detail
    ))?;
    Ok(u8::from(!equal))
}

/// Copies definitions and policies; links are not followed.
fn copy_tree(from: &Path, to: &Path) -> Result<(), CommandError> {
    let failed = |error: std::io::Error| CommandError::invalid(format!("{}: {error}", from.display()));
    files::create_dir(to).map_err(|error| CommandError::failed(error.to_string()))?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (kind, target) = (entry.file_type().map_err(failed)?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_file() {
            files::copy_with_time(&entry.path(), &target)
                .map_err(|error| CommandError::failed(error.to_string()))?;
            // Programs stay programs, for this user alone.
            let mode = entry.metadata().map_err(failed)?.permissions().mode();
            let own = std::fs::Permissions::from_mode(mode & 0o700 | 0o600);
            std::fs::set_permissions(&target, own).map_err(failed)?;
        }
    }
    Ok(())
}
