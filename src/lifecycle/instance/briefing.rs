//! The briefing of a run: frozen, recorded, and given to prompts, tools and programs.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::conversation::answers::Wanted;
use crate::conversation::briefing::{self, Source};
use crate::domain::artifact::Artifact;
use crate::domain::briefing::{BRIEFING_FILE, Block, BriefedImage, Briefing, BriefingFrozen, Fate, UNTOLD};
use crate::domain::event::Event;
use crate::domain::image::Image;
use crate::domain::name::CommitId;
use crate::domain::remark::{Remark, RemarkId, RemarkKind};
use crate::domain::run::RunId;
use crate::domain::run_output::FailureRecord;
use crate::domain::stop::{Stop, StopDetail};
use crate::domain::untrusted::{LONGEST_INCOMING, fence, plain};
use crate::engine::journal::Journal as _;
use crate::engine::nearest_rules::Background;
use crate::engine::task_text::TaskText;
use crate::lifecycle::commit::others::OTHERS_COMMITS;
use crate::lifecycle::new_remarks;
use crate::lifecycle::parked;
use crate::lifecycle::run::Run;
use crate::lifecycle::stage::StageError;
use crate::record::run_facts;
use crate::sandbox::run_sandbox::RunSandbox;
use crate::sys::files;

/// File of the run directory with what is not told of trusted texts.
const UNTOLD_FILE: &str = "briefing/untold.md";
/// What an agent program reads.
const FOR_PROGRAMS: &str = "briefing.md";
/// The folder beside it with the images.
const IMAGES: &str = "images";

/// A run's briefing, and what it keeps beside.
pub struct Briefed {
    /// The briefing.
    pub briefing: Briefing,
    /// For all sessions of the run.
    pub background: Arc<Background>,
}

/// Freezes the briefing and records it. A replay has the recorded one.
pub async fn freeze(
    run: &Run<'_>,
    first_visit: u32,
    answered: Option<String>,
) -> Result<Briefed, StageError> {
    let recorded = run.context.replay.as_ref().and_then(|recorded_run| recorded_run.briefing().cloned());
    let briefing = match recorded {
        Some(recorded) => recorded,
        None => read(run, answered).await?,
    };
    let bytes = serde_json::to_vec_pretty(&briefing).map_err(|error| {
        Stop::new(StopDetail::Internal, format!("The briefing cannot be written: {error}."))
    })?;
    let file = run.journal.keep(BRIEFING_FILE, bytes).await?;
    let mut stored: Vec<(String, Artifact)> =
        briefing.check_logs.iter().map(|log| (log.handle.clone(), log.file.clone())).collect();
    if !briefing.untold.is_empty() {
        let kept = run.journal.keep(UNTOLD_FILE, briefing.untold.clone().into_bytes()).await?;
        stored.push((UNTOLD.to_owned(), kept));
    }
    record(run, &briefing, file, first_visit).await?;
    let images = images(run, &briefing).await?.into();
    run.journal.flush().await?;
    let folder_rules = briefing.folder_rules.clone().into();
    Ok(Briefed { background: Arc::new(Background { stored, folder_rules, images }), briefing })
}

/// The images that models are handed, as they are kept. A replay keeps those of the recorded run once more.
async fn images(run: &Run<'_>, briefing: &Briefing) -> Result<Vec<Image>, StageError> {
    let mut images = Vec::new();
    for image in &briefing.images {
        let lost = |error: String| {
            Stop::new(StopDetail::Internal, format!("The image {} cannot be read: {error}.", image.id))
        };
        let bytes = match &run.context.replay {
            Some(recorded_run) => {
                let (recorded_run, file) = (Arc::clone(recorded_run), image.file.clone());
                let read = tokio::task::spawn_blocking(move || recorded_run.file(&file)).await;
                let bytes = read.map_err(|panic| lost(panic.to_string()))?.map_err(lost)?;
                run.journal.keep(&image.file.path, bytes.clone()).await?;
                bytes
            }
            None => run.journal.file().kept(&image.file).await.map_err(|error| lost(error.to_string()))?,
        };
        images.extend(Image::new(&bytes));
    }
    Ok(images)
}

async fn record(run: &Run<'_>, briefing: &Briefing, file: Artifact, visit: u32) -> Result<(), StageError> {
    run.journal.record(Event::BriefingFrozen(Box::new(BriefingFrozen {
        asked: briefing.asked.clone(),
        file,
        texts: briefing.texts.clone(),
    })))?;
    for rerun in &run.plan.request.check_reruns {
        run.journal.record(Event::CheckRerun(Box::new(rerun.clone())))?;
    }
    for check in &briefing.checks {
        run.journal.record(Event::CheckRead(Box::new(check.clone())))?;
    }
    let only_ends = run.lease.predecessor.as_ref().is_some_and(|before| before.facts.flow_end.is_some());
    if only_ends {
        // It asks no model: what was said since waits on.
        return Ok(());
    }
    let told = briefing
        .texts
        .iter()
        .filter(|text| text.fate != Fate::LeftOut && text.standing.is_some())
        .filter_map(|text| RemarkId::parse(&text.id));
    for id in told.collect::<BTreeSet<RemarkId>>() {
        run.journal.record(Event::RemarkTold { id, visit, turn: 1, text: None, thread: None })?;
    }
    new_remarks::are_told(run, briefing.words.clone()).await;
    Ok(())
}

async fn read(run: &Run<'_>, answer: Option<String>) -> Result<Briefing, StageError> {
    let (plan, mapping) = (run.plan, &run.lease.mapping);
    let mut about: Vec<RemarkId> = plan.request.new_remarks.iter().map(|remark| remark.id).collect();
    let (untold, mut known) = new_remarks::to_be_told(run).await;
    let last = plan.lease_record.as_ref().map(|last| last.run_id);
    let last = match last {
        Some(last) => of_run(run, last).await,
        None => None,
    };
    if let Some(last) = &last {
        // What a run was about that this one goes on with is not answered yet.
        let goes_on = run.lease.predecessor.is_some();
        let told = last.texts.iter().filter_map(|text| RemarkId::parse(&text.id));
        known.extend(told.filter(|id| !(goes_on && last.about.contains(id))));
    }
    let unanswered = match before(run).await {
        Some(before) => before.about,
        // What a run was about whose call waits for an approval is answered by whichever run comes after it.
        None => match &last {
            Some(last) if !last.about.is_empty() && waits_for_approval(run).await => last.about.clone(),
            _ => Vec::new(),
        },
    };
    for id in unanswered {
        if !about.contains(&id) {
            about.push(id);
        }
    }
    let (said, written): (Vec<Remark>, Vec<Remark>) =
        untold.into_iter().partition(|remark| remark.kind == RemarkKind::Said);
    let waiting: Vec<RemarkId> = written.iter().map(|remark| remark.id).collect();
    let head: Option<CommitId> = run.journal.facts().first_head.clone();
    let answer = match answer {
        Some(answer) => Some(answer),
        None => answered_before(run, last.as_ref()).await,
    };
    let source = Source {
        issue: &plan.issue,
        tracked: run.tracked_issue(),
        opened: plan.snapshot.as_ref().and_then(|snapshot| snapshot.created_at),
        text: plan.text.as_ref(),
        asked: plan.request.asked.as_ref(),
        now: run.context.clock.now(),
        origin: &mapping.origin,
        branch: &mapping.branch,
        head,
        // A follow-up run has a pull request, also on a machine that knows nothing of an earlier run.
        worked_on: plan.lease_record.is_some() || plan.request.follow_up.is_some(),
        failed_checks: plan.request.follow_up.as_deref(),
        about: &about,
        waiting: &waiting,
        known,
        last_asked: last.as_ref().and_then(|last| last.asked.at.parse().ok()),
        said,
        redactor: Arc::clone(&plan.redactor),
        images: run.context.config.image_kinds(&plan.session.settings.targets),
        blobs: Some(run.journal.dir().store().blobs(run.journal.dir())),
        answer: answer.as_deref(),
    };
    briefing::freeze(source, run.context, &plan.redactor).await.map_err(|refusal| refusal.stop.into())
}

/// What a person answered an earlier run of the issue that came to no good end: whichever run comes next knows it. `last`: that run's
/// briefing, which has what still earlier ones were answered.
async fn answered_before(run: &Run<'_>, last: Option<&Briefing>) -> Option<String> {
    let record = run.plan.lease_record.as_ref()?;
    let (state, repo, run_id) = (run.context.state.clone(), run.context.repo.clone(), record.run_id);
    let look = move || {
        let facts = run_facts::read_anywhere(&state.run(&repo, run_id)).ok()??;
        let is_good = facts.end.as_ref().is_some_and(Stop::success);
        if is_good {
            return None;
        }
        let told = facts.answered.and_then(|answered| {
            let asked = run_facts::read_anywhere(&state.run(&repo, answered.run_id)).ok()??.question?;
            Some(parked::told_answered_before(&asked, &answered))
        });
        Some(told)
    };
    let told = tokio::task::spawn_blocking(look).await.ok().flatten()?;
    let of_last = || {
        let known = last?.block(Block::Answer);
        parked::is_answered_before(known).then(|| known.to_owned())
    };
    told.or_else(of_last)
}

/// The briefing of the run that this one goes on with: what that was about is not answered yet.
pub async fn before(run: &Run<'_>) -> Option<Briefing> {
    of_run(run, run.lease.predecessor.as_ref()?.run_id).await
}

/// Whether the issue's last run ended because a call of it waits for an approval.
async fn waits_for_approval(run: &Run<'_>) -> bool {
    let Some(last) = &run.plan.lease_record else { return false };
    let dir = run.context.state.run(&run.context.repo, last.run_id);
    let read = move || run_facts::read_anywhere(&dir).ok().flatten()?.end;
    let end = tokio::task::spawn_blocking(read).await.ok().flatten();
    end.is_some_and(|end| end.detail == StopDetail::ApprovalPending)
}

/// The briefing of an earlier run; `None` = it is not here.
async fn of_run(run: &Run<'_>, run_id: RunId) -> Option<Briefing> {
    let place = run.context.state.run(&run.context.repo, run_id).path.join(BRIEFING_FILE);
    let read = tokio::task::spawn_blocking(move || std::fs::read(place).ok());
    serde_json::from_slice(&read.await.ok().flatten()?).ok()
}

/// The briefing that the run began with; `None` = it has none.
pub async fn recorded(run: &Run<'_>) -> Option<Briefing> {
    let facts = run.journal.facts();
    let file = facts.other.iter().rev().find_map(|(_, event)| match event {
        Event::BriefingFrozen(frozen) => Some(frozen.file.clone()),
        _ => None,
    })?;
    let bytes = run.journal.file().kept(&file).await.ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// The text around each prompt.
pub fn task(run: &Run<'_>, briefing: &Briefing, prior_failures: &[FailureRecord]) -> TaskText {
    let filled = Block::ALL.into_iter().filter(|block| !briefing.block(*block).is_empty());
    let blocks = filled.map(|block| (block.as_str(), headed(block, briefing.block(block)))).collect();
    let mut facts = facts(run, prior_failures);
    facts.push_str(&of_images(briefing));
    TaskText { blocks, facts, asks_outcomes: !Wanted::of(briefing, &[]).ids().is_empty() }
}

/// A block with a line before it that says what it is; empty where there is nothing.
pub fn headed(block: Block, text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let heading = match block {
        Block::IssueBody => return text.to_owned(),
        Block::IssueLinks => "What the issue is linked with:",
        Block::IssueRemarks => "Comments of the issue:",
        Block::PullRequest => "Comments and reviews of its pull request:",
        Block::ReviewThreads => {
            "Unresolved threads of its pull request. Say in the last report what came of each, in `threads`: a list of `thread` \
             (its id), `outcome` (`changed`, `answered`, `declined` or `asks`) and `text` for the person who wrote it:"
        }
        Block::FailedChecks => {
            "The issue has a pull request already; the work is on this branch. What has to be put right now:"
        }
        Block::NewRemarks => {
            "The issue has a pull request already; the work is on this branch. This run is about these remarks. Say of each that \
             is in no thread what came of it in the same `threads` of the last report, with its id as `thread`:"
        }
        Block::Answer | Block::RepositoryRules | Block::PullRequestTemplate => return text.to_owned(),
    };
    format!("{heading}\n\n{text}")
}

/// What is not there is not to be written anew: whoever only sees a part does not know that there is more.
fn of_sparse(folders: &[String]) -> String {
    if folders.is_empty() {
        return String::new();
    }
    let named: Vec<String> =
        folders.iter().map(|folder| format!("`{}/`", folder.trim_matches('/').replace('`', "'"))).collect();
    format!(
        "- Only a part of the repository is in these files (a sparse checkout): {} and the files beside the folders that lead there. \
         The other folders exist, and are not here: what they may have is not missing, and is not to be made anew.\n",
        named.join(", ")
    )
}

fn facts(run: &Run<'_>, prior_failures: &[FailureRecord]) -> String {
    let origin = &run.lease.mapping.origin;
    let mut text = format!(
        "Facts:\n- Date: {}\n- Repository: {}, branch {}, made from {} at {}\n",
        run.context.clock.now().format("%Y-%m-%d (%A)"),
        run.context.repo,
        run.lease.mapping.branch,
        origin.branch,
        origin.commit.short(),
    );
    let commands: Vec<String> =
        run.context.config.verify.commands.iter().map(|argv| format!("`{}`", argv.join(" "))).collect();
    if !commands.is_empty() {
        text.push_str(&format!("- Verify commands, run by the host at the end: {}\n", commands.join(", ")));
    }
    text.push_str(&of_sparse(&run.context.population().sparse));
    let facts = run.journal.facts();
    for warning in facts.warnings.iter().filter(|warning| warning.code == OTHERS_COMMITS) {
        let told = plain(&warning.text, LONGEST_INCOMING);
        text.push_str(&format!(
            "\nOthers pushed to the branch since agentd did; where git can merge them, their commits are in the files:\n\n{}\n",
            fence("commits of others", &told)
        ));
    }
    if !prior_failures.is_empty() {
        let lines: Vec<String> = prior_failures
            .iter()
            .map(|failure| {
                let times =
                    if failure.count == 1 { "once".to_owned() } else { format!("{} times", failure.count) };
                format!(
                    "{} ({times}, last in visit {}): {}",
                    failure.failure_id, failure.last_visit, failure.signal
                )
            })
            .collect();
        let lines = plain(&lines.join("\n"), LONGEST_INCOMING);
        text.push_str(&format!(
            "\nWhat went wrong in earlier runs of this issue; do not run into it again:\n\n{}\n",
            fence("earlier failures", &lines)
        ));
    }
    text
}

/// Which images there are.
fn of_images(briefing: &Briefing) -> String {
    if briefing.images.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\nImages of the texts above. A model that takes them has them before this text, in this order; agent programs find \
         them in the folder {IMAGES} of $AGENTD_BRIEFING:\n"
    );
    for (image, number) in briefing.images.iter().zip(1..) {
        let BriefedImage { id, name, media_type, file } = image;
        text.push_str(&format!("{number}. {name} ({media_type}, {} bytes), {id}\n", file.bytes));
    }
    text
}

/// Puts the whole briefing, untold parts included, where agent programs can read it.
pub fn for_programs(briefing: &Briefing, images: &[Image], sandbox: &RunSandbox) -> Result<(), Stop> {
    let mut text = String::new();
    for block in Block::ALL.into_iter().filter(|block| !briefing.block(*block).is_empty()) {
        text.push_str(&format!(
            "# {}\n\n{}\n\n",
            block.as_str().replace('_', " "),
            headed(block, briefing.block(block))
        ));
    }
    for rules in &briefing.folder_rules {
        text.push_str(&format!("{}\n\n", rules.text));
    }
    if !briefing.untold.is_empty() {
        text.push_str(&format!(
            "# what was left out above\n\n{}",
            fence("what was left out above", &plain(&briefing.untold, usize::MAX))
        ));
    }
    let folder = sandbox.briefing();
    let written = files::create_private_dir(folder.as_path())
        .and_then(|()| files::write_private(folder.join(FOR_PROGRAMS).as_path(), text.as_bytes()));
    let written = written.and_then(|()| {
        let place = folder.join(IMAGES);
        let named = briefing.images.iter().zip(images).zip(1..);
        if !images.is_empty() {
            files::create_private_dir(place.as_path())?;
        }
        named.into_iter().try_for_each(|((of, image), number)| {
            let file = place.join(format!("{number}-{}.{}", of.name, image.kind));
            files::write_private(file.as_path(), &image.bytes)
        })
    });
    written.map_err(|error| {
        Stop::new(StopDetail::OutputWriteFailed, format!("The briefing cannot be written: {error}."))
    })
}
