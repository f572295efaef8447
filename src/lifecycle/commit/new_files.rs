//! New files and who made them. What the agent wrote is its work. What only commands made is committed and named as
//! such; a binary or large file only if the report names it. The rest is kept on a ref, apart from the work.

use std::collections::BTreeSet;

use crate::domain::name::BranchName;
use crate::domain::shell_words;
use crate::git::KeptOutBy;
use crate::git::error::GitError;
use crate::git::worktree::{ChangeKind, Worktree};
use crate::lifecycle::run::Run;
use crate::record::file_mentions::FileMentions;
use crate::record::rendering::amount_of_bytes;
use crate::record::summary_text::{counted, plain};
use crate::sys::files;

/// Files that a warning names.
const LONGEST_LIST: usize = 10;

/// The ref that keeps what is not part of an issue's work, above what it kept before.
pub fn kept_on(worktree: &Worktree) -> String {
    kept_on_of(worktree.branch())
}

/// The same, by the branch.
pub fn kept_on_of(branch: &BranchName) -> String {
    format!("refs/agentd/left/{branch}")
}

/// Sets aside unwanted files that only commands made, and gives the new files that only commands made and that stay.
pub async fn sort(
    run: &Run<'_>,
    (worktree, mentions): (&Worktree, &FileMentions),
) -> Result<BTreeSet<String>, GitError> {
    let (mut made, mut left) = (BTreeSet::new(), Vec::new());
    for change in worktree.status().await?.into_iter().filter(|change| change.kind == ChangeKind::Added) {
        if mentions.is_written(worktree.path(), &change.path) {
            continue;
        }
        let file = worktree.path().join(&change.path);
        let bytes = file.as_path().symlink_metadata().map_or(0, |meta| meta.len());
        let special = change.binary || bytes > run.context.config.commit.max_file;
        if special && !mentions.report_names(&change.path) {
            left.push((change.path, bytes));
        } else if !mentions.opaque {
            made.insert(change.path);
        }
    }
    if !left.is_empty() {
        let paths: Vec<String> = left.iter().map(|(path, _)| path.clone()).collect();
        let reference = kept_on(worktree);
        worktree.set_aside(&paths, &reference).await?;
        tell(
            run,
            &left,
            &format!(
                "kept on {reference} (`{}` brings one back)",
                shell_words::line(&["git", "checkout", &reference, "--", "PATH"])
            ),
        );
    }
    move_large(run, worktree, |path| {
        mentions.is_written(worktree.path(), path) || mentions.report_names(path)
    })
    .await?;
    not_taken(run, worktree, mentions).await?;
    nested(run, worktree).await?;
    Ok(made)
}

/// Restores the worktree to the commit after verify commands ran, so that nothing of theirs is verified in its place, or becomes
/// part of the work later. Their state is kept, because a person may have worked there meanwhile.
pub async fn put_back(run: &Run<'_>, worktree: &Worktree, by: &str) -> Result<(), GitError> {
    move_large(run, worktree, |_| false).await?;
    let changed = worktree.status().await?;
    let reference = kept_on(worktree);
    if worktree.put_back(&reference).await?.is_none() {
        return Ok(());
    }
    let shown: Vec<String> =
        changed.iter().take(LONGEST_LIST).map(|change| format!("`{}`", plain(&change.path))).collect();
    let more = changed.len().saturating_sub(LONGEST_LIST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    run.journal.warn(
        "left_by_verify",
        format!(
            "{by} left or changed {}, no part of the work: {}{more}; the worktree is as it was committed again, and what it held \
             then is kept on {reference}. What .gitignore names is left alone",
            counted(changed.len(), "file"),
            shown.join(", ")
        ),
    );
    Ok(())
}

/// A file that is too large for a snapshot is moved into a folder beside git's own files of the worktree. If that
/// fails, it stays and nothing is committed.
async fn move_large(
    run: &Run<'_>,
    worktree: &Worktree,
    stays: impl Fn(&str) -> bool,
) -> Result<(), GitError> {
    let mut moved = Vec::new();
    for (path, bytes) in worktree.too_large_and_new().await? {
        if stays(&path) {
            continue;
        }
        let folder = worktree.git_dir().join("agentd-left").join(run.lease.run_id.to_string());
        let (from, to) = (worktree.path().join(&path), folder.join(&path));
        let work = move || {
            let parent = to.parent().unwrap_or_else(|| to.clone());
            files::create_private_dir(parent.as_path())?;
            files::rename(from.as_path(), to.as_path())
        };
        let done = tokio::task::spawn_blocking(work).await;
        match done.map_err(|error| GitError::Lost(error.to_string()))? {
            Ok(()) => moved.push((path, bytes)),
            Err(error) => tracing::warn!(%error, "a large file stays in the worktree"),
        }
    }
    if !moved.is_empty() {
        worktree.something_ran();
        tell(run, &moved, "kept beside git's own files of the worktree (agentd-left)");
    }
    Ok(())
}

fn tell(run: &Run<'_>, left: &[(String, u64)], kept: &str) {
    let shown = left.iter().take(LONGEST_LIST);
    let shown: Vec<String> =
        shown.map(|(path, bytes)| format!("`{}` ({})", plain(path), amount_of_bytes(*bytes))).collect();
    let more = left.len().saturating_sub(LONGEST_LIST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let (those, them) = if left.len() == 1 { ("it is", "it") } else { ("they are", "them") };
    run.journal.warn(
        "left_out",
        format!(
            "{} that no tool of the agent wrote and the report does not name, binary or over `commit.max_file`, not \
             committed: {}{more}; {those} {kept}. To have {them} committed, ask for {them} in the issue or the agent's prompts",
            counted(left.len(), "new file"),
            shown.join(", ")
        ),
    );
}

/// If the work has repositories within it that are no submodules, people are told: the verify commands see their files, and
/// nobody who fetches the branch has them.
async fn nested(run: &Run<'_>, worktree: &Worktree) -> Result<(), GitError> {
    let nested = worktree.nested_repositories().await?;
    if nested.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> =
        nested.iter().take(LONGEST_LIST).map(|path| format!("`{}/`", plain(path))).collect();
    let more = nested.len().saturating_sub(LONGEST_LIST);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    run.journal.warn(
        "nested_repository",
        format!(
            "no file of {}{more} is committed or pushed, as it is a git repository of its own; the verify commands ran with \
             it. To have its files committed, remove its `.git`; to leave it out for good, name it in .gitignore",
            shown.join(", ")
        ),
    );
    Ok(())
}

/// If a file that the agent wrote is in no commit because something keeps it out, people are told.
async fn not_taken(run: &Run<'_>, worktree: &Worktree, mentions: &FileMentions) -> Result<(), GitError> {
    let root = worktree.path().to_string();
    let inside = |text: &String| {
        let path = text.strip_prefix(&root).map_or(text.as_str(), |rest| rest.trim_start_matches('/'));
        let path = path.trim_start_matches("./");
        (!path.is_empty() && path.len() < 1_000 && !path.contains(['\n', '\0'])).then(|| path.to_owned())
    };
    let named: Vec<String> = mentions.written.iter().filter_map(inside).collect();
    let kept_out = worktree.kept_out(named).await?;
    let of = |by: KeptOutBy| -> Vec<String> {
        kept_out.iter().filter(|(_, one)| *one == by).map(|(path, _)| path.clone()).collect()
    };
    let told = |files: &[String], why: &str| {
        let shown: Vec<String> =
            files.iter().take(LONGEST_LIST).map(|path| format!("`{}`", plain(path))).collect();
        let more = files.len().saturating_sub(LONGEST_LIST);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "{} that the agent wrote not committed, since {why}: {}{more}",
            counted(files.len(), "file"),
            shown.join(", ")
        )
    };
    let (listed, of_machine, of_repository) =
        (of(KeptOutBy::List), of(KeptOutBy::Machine), of(KeptOutBy::Repository));
    let ours = [listed.as_slice(), of_machine.as_slice()].concat();
    let reference = kept_on(worktree);
    if !ours.is_empty() {
        // A worktree that has nothing else is clean, and goes once its work is merged.
        worktree.keep_excluded(&ours, &reference).await?;
    }
    let back = format!(
        "kept on {reference} (`{}` brings one back); `commit.exclude = [\"!PATTERN\"]` takes a pattern back",
        shell_words::line(&["git", "checkout", &reference, "--", "PATH"])
    );
    if !listed.is_empty() {
        let why = "the built-in list or `commit.exclude` keeps such files out";
        let explain = "(`agentd config explain commit.exclude`)";
        run.journal.warn("kept_out", format!("{}; {back} {explain}", told(&listed, why)));
    }
    if !of_machine.is_empty() {
        let why =
            "the list of ignored files of the user of agentd's machine has them (git's `core.excludesFile`)";
        run.journal.warn("kept_out", format!("{}; {back}", told(&of_machine, why)));
    }
    if !of_repository.is_empty() {
        run.journal.warn("kept_out", told(&of_repository, "the repository ignores them"));
    }
    Ok(())
}
