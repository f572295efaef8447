//! Cells as files, changed under one lock. A commit of several is written down as a whole before it is in their files, so
//! that it is finished by whoever comes next if its process dies.
//!
//! What money was spent changes twice with each request. From the second change on a process makes these in place
//! (`sys/in_place.rs`).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use uuid::Uuid;

use super::FileStore;
use super::redo_format::{REDO_SCHEMA, Redo};
use super::runs::entries;
use crate::domain::issue::IssueKey;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::store::port::{Cell, CellChange, Cells, CommitOutcome, MOST_CHANGES, Revision, StoreError};
use crate::store::run_dir::FindError;
use crate::store::seal_key::SEAL_KEYS;
use crate::sys::clock::Stopwatch;
use crate::sys::files::{self, FileError};
use crate::sys::in_place::{self, InPlace, OnDisk};
use crate::sys::lock::Turn;

/// Longest wait for another process that changes cells.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often a reader looks whether a commit has ended.
const MOMENT: Duration = Duration::from_millis(1);
/// How often a watched cell is looked at.
const PAUSE: Duration = Duration::from_millis(150);

impl FileStore {
    fn redo(&self) -> PathBuf {
        self.root.join("cells.redo")
    }

    fn lock(&self, path: &Path) -> Result<Turn, StoreError> {
        let folder = path.parent().unwrap_or(path);
        if !folder.is_dir() {
            files::create_private_dir(folder)?;
        }
        Turn::wait(path, PATIENCE)?.ok_or_else(|| StoreError::Locked { place: folder.display().to_string() })
    }

    /// The one lock of all cells, and that of the day's spending, which is an older agentd's as well.
    fn lock_all(&self, spending: bool) -> Result<(Turn, Option<Turn>), StoreError> {
        let all = self.lock(&self.root.join("cells.lock"))?;
        let spend = spending.then(|| self.lock(&self.root.join("spend/lock"))).transpose()?;
        Ok((all, spend))
    }

    /// Waits for the end of a commit of several cells. If its process died in the middle of it, it is finished here.
    fn wait_until_whole(&self) -> Result<(), StoreError> {
        let watch = Stopwatch::start();
        while self.redo().exists() {
            // Whoever commits again and again has the lock nearly always: that one of its commits has ended is enough.
            if let Some(_all) = Turn::wait(&self.root.join("cells.lock"), Duration::ZERO)? {
                let _spend = self.lock(&self.root.join("spend/lock"))?;
                return self.finish();
            }
            if watch.elapsed() > PATIENCE {
                return Err(StoreError::Locked { place: self.root.display().to_string() });
            }
            std::thread::sleep(MOMENT);
        }
        Ok(())
    }

    /// Finishes a commit whose process died in the middle of it. The caller has the locks.
    fn finish(&self) -> Result<(), StoreError> {
        let path = self.redo();
        let Some(text) = read(&path)? else { return Ok(()) };
        let unreadable = |words: String| FileError::new("read", &path, io::Error::other(words));
        let redo: Redo = serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))?;
        if redo.schema_version != REDO_SCHEMA {
            return Err(unreadable(format!("its version is {}", redo.schema_version)).into());
        }
        for (file, value) in &redo.files {
            write(&self.root.join(file), value.as_deref())?;
        }
        Ok(files::remove_file(&path).map(drop)?)
    }

    fn value(&self, cell: &Cell) -> Result<Option<String>, StoreError> {
        let path = self.place(cell);
        if is_changed_often(cell) { Ok(in_place::read(&path)?) } else { read(&path) }
    }

    /// Changes one cell, and waits for the disk if `wait`. The caller has the locks.
    fn change(&self, change: &CellChange, wait: bool) -> Result<CommitOutcome, StoreError> {
        let path = self.place(&change.cell);
        if is_changed_often(&change.cell)
            && let Some(value) = &change.value
            && self.change_in_place(&path, value, wait)
        {
            return Ok(CommitOutcome::Done);
        }
        let changed = write(&path, change.value.as_deref())?;
        if is_changed_often(&change.cell) {
            self.knows(&path, None);
        }
        // A file that is gone meanwhile was taken by somebody who has no lock; one that was never there was not.
        let empty = change.value.is_none() && change.after == Revision::ABSENT;
        Ok(if changed || empty { CommitOutcome::Done } else { CommitOutcome::Overtaken })
    }

    /// False: the file has to be replaced, which is right whatever failed here.
    fn change_in_place(&self, path: &Path, value: &str, wait: bool) -> bool {
        if value.len() > in_place::MOST {
            return false;
        }
        let known = self.known(path);
        let changed = match (InPlace::open(path), known) {
            (Ok(Some(mut opened)), known) => opened.write(value, known.flatten(), wait).map(Some),
            // Who changes it once does not do so often.
            (Ok(None), Some(_)) => InPlace::make(path, value),
            (Ok(None), None) => Ok(None),
            (Err(error), _) => Err(error),
        };
        match changed {
            Ok(Some(on_disk)) => {
                self.knows(path, Some(on_disk));
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::debug!(%error, "a cell cannot be changed in place");
                false
            }
        }
    }

    /// `None`: this process has not changed it.
    fn known(&self, path: &Path) -> Option<Option<OnDisk>> {
        self.on_disk.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied()
    }

    fn knows(&self, path: &Path, known: Option<OnDisk>) {
        self.on_disk.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), known);
    }

    /// Takes the locks that a change of these needs, and finishes what another process has begun.
    fn locked(&self, changes: &[CellChange]) -> Result<(Turn, Option<Turn>), StoreError> {
        let spending = changes.iter().any(|change| matches!(change.cell, Cell::Spend(_)));
        let locks = self.lock_all(spending || self.redo().exists())?;
        self.finish()?;
        Ok(locks)
    }

    /// Whether each of them has the value that its change comes after.
    fn are_as_expected(&self, changes: &[CellChange]) -> Result<bool, StoreError> {
        for change in changes {
            if Revision::of(self.value(&change.cell)?.as_deref()) != change.after {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Cells for FileStore {
    fn get(&self, cell: &Cell) -> Result<(Revision, Option<String>), StoreError> {
        self.wait_until_whole()?;
        let value = self.value(cell)?;
        Ok((Revision::of(value.as_deref()), value))
    }

    fn commit(&self, changes: &[CellChange]) -> Result<CommitOutcome, StoreError> {
        if changes.len() > MOST_CHANGES {
            let words = format!("{} cells are more than {MOST_CHANGES}", changes.len());
            return Err(StoreError::Failed {
                action: "change",
                place: self.root.display().to_string(),
                words,
            });
        }
        let _locks = self.locked(changes)?;
        if !self.are_as_expected(changes)? {
            return Ok(CommitOutcome::Overtaken);
        }
        if let [change] = changes {
            return self.change(change, true);
        }
        let inside = |change: &CellChange| {
            let file = self.place(&change.cell);
            (file.strip_prefix(&self.root).unwrap_or(&file).to_owned(), change.value.clone())
        };
        let redo =
            Redo { schema_version: REDO_SCHEMA.to_owned(), files: changes.iter().map(inside).collect() };
        let text = serde_json::to_vec(&redo)
            .map_err(|error| FileError::new("write", &self.redo(), io::Error::other(error)))?;
        files::write_private(&self.redo(), &text)?;
        self.finish()?;
        Ok(CommitOutcome::Done)
    }

    fn commit_for_now(&self, change: &CellChange) -> Result<CommitOutcome, StoreError> {
        let changes = std::slice::from_ref(change);
        let _locks = self.locked(changes)?;
        match self.are_as_expected(changes)? {
            true => self.change(change, false),
            false => Ok(CommitOutcome::Overtaken),
        }
    }

    fn sync_cell(&self, cell: &Cell) -> Result<(), StoreError> {
        let path = self.place(cell);
        // What was replaced is on the disk already, and what another process changed is its own matter.
        let known = if is_changed_often(cell) { self.known(&path).flatten() } else { None };
        if let Some(known) = known
            && let Some(opened) = InPlace::open(&path)?
        {
            self.knows(&path, Some(opened.wait(known)?));
        }
        Ok(())
    }

    fn watch(&self, cell: &Cell) -> BoxStream<'static, Option<String>> {
        let seen = (self.clone(), cell.clone(), None);
        stream::unfold(seen, |(store, cell, mut seen)| async move {
            loop {
                if seen.is_some() {
                    tokio::time::sleep(PAUSE).await;
                }
                let (from, of) = (store.clone(), cell.clone());
                let read = tokio::task::spawn_blocking(move || from.get(&of)).await;
                // What cannot be read now is looked at again.
                let (revision, value) = match read {
                    Ok(Ok(read)) => read,
                    _ => (seen.unwrap_or(Revision::ABSENT), None),
                };
                if seen.replace(revision) != Some(revision) {
                    return Some((value, (store, cell, seen)));
                }
            }
        })
        .boxed()
    }

    fn cells(&self) -> Result<Vec<Cell>, StoreError> {
        self.wait_until_whole()?;
        let mut found = Vec::new();
        for repo in self.repositories().map_err(unlisted)? {
            let names = |folder: &str| -> Result<Vec<String>, StoreError> {
                let names = entries(&self.repo(&repo).join(folder)).map_err(unlisted)?;
                let json = |name: String| name.strip_suffix(".json").map(str::to_owned);
                Ok(names.into_iter().filter_map(json).collect())
            };
            let own = || repo.clone();
            let (approvals, denials) = (names("approvals")?, names("denials")?);
            found.extend(
                approvals.into_iter().map(|hash| Cell::Approval { repo: own(), proposal_hash: hash }),
            );
            found.extend(denials.into_iter().map(|hash| Cell::Denial { repo: own(), proposal_hash: hash }));
            let (spend, parked, inbox) = (names("spend")?, names("parked")?, names("inbox")?);
            found.extend(
                spend.iter().map(|key| Cell::IssueSpend { repo: own(), issue: IssueKey::of_text(key) }),
            );
            found
                .extend(parked.iter().map(|key| Cell::Parked { repo: own(), issue: IssueKey::of_text(key) }));
            found.extend(inbox.iter().map(|key| Cell::Inbox { repo: own(), issue: IssueKey::of_text(key) }));
            let stops = entries(&self.repo(&repo).join("stops")).map_err(unlisted)?;
            let runs = stops.iter().filter_map(|name| Uuid::parse_str(name).ok());
            found.extend(runs.map(|run| Cell::Stop { repo: own(), run_id: RunId(run) }));
        }
        let days = entries(&self.root.join("spend")).map_err(unlisted)?;
        let days = days.iter().filter_map(|name| name.strip_suffix(".json")?.parse().ok());
        found.extend(days.map(Cell::Spend));
        let own = [Cell::Daemon, Cell::Status, Cell::SealKeys];
        found.extend(own.into_iter().filter(|cell| self.place(cell).exists()));
        Ok(found)
    }

    fn parked(&self) -> Result<Vec<(RepoName, IssueKey)>, StoreError> {
        self.wait_until_whole()?;
        let mut found = Vec::new();
        for repo in self.repositories().map_err(unlisted)? {
            let names = entries(&self.repo(&repo).join("parked")).map_err(unlisted)?;
            let keys = names.iter().filter_map(|name| name.strip_suffix(".json")).map(IssueKey::of_text);
            found.extend(keys.map(|key| (repo.clone(), key)));
        }
        Ok(found)
    }

    fn place(&self, cell: &Cell) -> PathBuf {
        match cell {
            Cell::Approval { repo, proposal_hash } => {
                self.repo(repo).join("approvals").join(name_of(proposal_hash))
            }
            Cell::Denial { repo, proposal_hash } => {
                self.repo(repo).join("denials").join(name_of(proposal_hash))
            }
            Cell::Spend(day) => self.root.join("spend").join(format!("{day}.json")),
            Cell::IssueSpend { repo, issue } => {
                self.repo(repo).join("spend").join(name_of(&issue.to_string()))
            }
            Cell::Stop { repo, run_id } => self.repo(repo).join("stops").join(run_id.to_string()),
            Cell::Parked { repo, issue } => self.repo(repo).join("parked").join(name_of(&issue.to_string())),
            Cell::Inbox { repo, issue } => self.repo(repo).join("inbox").join(name_of(&issue.to_string())),
            Cell::Daemon => self.root.join("daemon/state.json"),
            Cell::Status => self.root.join("daemon/status.json"),
            Cell::SealKeys => self.root.join(SEAL_KEYS),
            Cell::Quota(credential) => self.root.join("quota").join(name_of(credential)),
        }
    }
}

/// What is spent changes with each request to a model; the others change a few times in a run.
fn is_changed_often(cell: &Cell) -> bool {
    matches!(cell, Cell::Spend(_) | Cell::IssueSpend { .. })
}

fn unlisted(error: FindError) -> StoreError {
    let place = match &error {
        FindError::Unreadable { path, .. } => path.display().to_string(),
        _ => String::new(),
    };
    StoreError::Failed { action: "list", place, words: error.to_string() }
}

fn name_of(proposal_hash: &str) -> String {
    // A hash is hexadecimal, an issue's key has letters and digits; anything else names no file of ours.
    let name: String = proposal_hash.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{name}.json")
}

fn read(path: &Path) -> Result<Option<String>, StoreError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::new("read", path, error).into()),
    }
}

/// False: the file was to go, and was gone.
fn write(path: &Path, value: Option<&str>) -> Result<bool, StoreError> {
    let Some(value) = value else { return Ok(in_place::remove(path)?) };
    if let Some(folder) = path.parent().filter(|folder| !folder.is_dir()) {
        files::create_private_dir(folder)?;
    }
    files::write_private(path, value.as_bytes())?;
    Ok(true)
}
