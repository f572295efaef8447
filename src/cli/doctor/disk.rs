//! What a repository takes of the disk, by what it is for.

use std::path::Path;

use super::Finding;
use crate::daemon::DiskRoom;
use crate::record::rendering::amount_of_bytes as size;
use crate::record::summary_text::counted;
use crate::repository::context::RepositoryContext;
use crate::sys::files::{self, Removed};

/// What is measured.
#[derive(Default)]
struct Used {
    git: Removed,
    worktrees: (usize, Removed),
    pool: (usize, Removed),
    records: Removed,
}

/// What the repository takes; a warning where one more worktree may not fit.
pub async fn used(site: &RepositoryContext) -> Finding {
    let (git, root) = (site.checkout.common_dir().clone(), site.worktree_root());
    let records = site.state.repo(&site.repo).join("runs");
    let place = Some((site.checkout.root().as_path().to_owned(), site.checkout.tracked_bytes().await));
    let state = site.state.path().to_owned();
    let look = move || {
        let (worktrees, pool) = (below(root.as_path(), true), below(&root.as_path().join(".pool"), false));
        let (git, records) = (files::measure(git.as_path()), files::measure(&records));
        (Used { git, worktrees, pool, records }, DiskRoom::look(place.as_ref(), &state))
    };
    let Ok((used, room)) = tokio::task::spawn_blocking(look).await else {
        return Finding::warning("disk", "it could not be measured", "look at it with du");
    };
    let several = |(count, taken): (usize, Removed), what: &str| {
        (count > 0).then(|| format!(", {} in {}", size(taken.bytes), counted(count, what)))
    };
    let mut told = format!("{}: {} in .git", site.repo, size(used.git.bytes));
    told.extend(several(used.worktrees, "worktree"));
    told.extend(several(used.pool, "worktree").map(|of| format!("{of} of the pool")));
    if used.records.files > 0 {
        told.push_str(&format!(", {} of runs", size(used.records.bytes)));
    }
    match room {
        Some(room) if room.is_full() => Finding::warning("disk", format!("{told}; {room}"), room.remedy()),
        Some(room) => Finding::ok("disk", format!("{told}; {} MiB are free", room.free >> 20)),
        None => Finding::ok("disk", told),
    }
}

/// Whether the disks have room for a run.
pub async fn room(site: &RepositoryContext) -> Option<DiskRoom> {
    let place = Some((site.checkout.root().as_path().to_owned(), site.checkout.tracked_bytes().await));
    let state = site.state.path().to_owned();
    let looked = tokio::task::spawn_blocking(move || DiskRoom::look(place.as_ref(), &state)).await;
    looked.ok().flatten()
}

/// The folders of a folder and what is in them, without those whose names begin with a dot where these are `skipped`.
fn below(folder: &Path, skipped: bool) -> (usize, Removed) {
    let mut all = (0, Removed::default());
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let hidden = skipped && entry.file_name().as_encoded_bytes().starts_with(b".");
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && !hidden {
            let one = files::measure(&entry.path());
            all = (all.0 + 1, Removed { files: all.1.files + one.files, bytes: all.1.bytes + one.bytes });
        }
    }
    all
}
