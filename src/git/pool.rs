//! Warm worktrees: checked out before an issue needs one. Each becomes the worktree of one issue, by a rename, and none was
//! another's before. What is not exactly as git made it is not taken.

use std::fs;
use std::time::Duration;

use git2::{ObjectType, Oid};

use super::checkout::Checkout;
use super::differences::{ReadIndex, as_path, differences, mode_of};
use super::error::GitError;
use super::prepare::{WorktreeError, holds_only_link};
use super::requirements::Population;
use super::worktree::Worktree;
use super::worktree_plan::WorktreePlan;
use super::worktree_state::{Entry, Head, MEMBER, POOL_FOLDER, PREPARING, entries, is_member, resolved};
use crate::domain::name::{BranchName, CommitId};
use crate::sys::files;
use crate::sys::lock::Turn;
use crate::sys::paths::AbsPath;

/// Begins the names of members that go.
const GOING: &str = "gone-";
/// The longest step of the clocks by which file systems tell times.
const TICK: Duration = Duration::from_millis(20);
/// The step of the times that git compares.
const SECOND: Duration = Duration::from_secs(1);
/// Bytes of an index whose files take a while to be read: some thousand files.
const LARGE_INDEX: u64 = 128 * 1024;
/// Stands in the administrative directory of a member that can be taken. It says how the member was checked out.
const READY: &str = "agentd-pool-ready";

/// What a pool is to be.
#[derive(Debug, Clone)]
pub struct PoolPlan {
    /// Directory that holds the worktrees.
    pub root: AbsPath,
    /// How many members there are to be (`worktree.pool`).
    pub members: usize,
    /// How they are checked out.
    pub population: Population,
}

/// What was done to a pool.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Filled {
    /// Members that can be taken now.
    pub ready: usize,
    /// Members that were made.
    pub made: usize,
    /// Members that went, because they were not finished, too many, or of another kind.
    pub removed: usize,
    /// Folders of members in which somebody has been. They are neither taken nor removed.
    pub left_alone: Vec<AbsPath>,
}

/// How a member is.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// It can be taken; it was checked out like this.
    Ready(String),
    /// Whoever made it or took it was killed.
    Unfinished,
    /// Somebody has been in it.
    LeftAlone,
}

/// How a member is checked out. One of another kind does not fit. A new worktree inherits what the main checkout leaves out.
fn kind_of(checkout: &Checkout, population: &Population) -> String {
    let text =
        |file: &str| fs::read_to_string(checkout.common_dir().join(file).as_path()).unwrap_or_default();
    let inherited = [text("info/sparse-checkout"), text("config.worktree")];
    format!("lfs {}\nsparse {:?}\ninherited {inherited:?}\n", population.lfs, population.sparse)
}

fn state_of(entry: &Entry, place: &AbsPath) -> State {
    let unfinished = entry.dir.join(PREPARING).as_path().exists();
    if unfinished || entry.half_made() || !place.as_path().exists() || holds_only_link(place) {
        return State::Unfinished;
    }
    match fs::read_to_string(entry.dir.join(READY).as_path()) {
        Ok(kind) => State::Ready(kind),
        Err(_) => State::LeftAlone,
    }
}

impl Checkout {
    /// Brings the pool to what is wanted: what is unfinished, too many or of another kind goes, and what is missing is made,
    /// at the commit of the main checkout. Does nothing while another process does this.
    pub async fn fill_pool(&self, plan: &PoolPlan) -> Result<Filled, WorktreeError> {
        let mut filled = Filled::default();
        self.check_root(&plan.root).await?;
        let lock = self.common_dir().join("agentd").join("pool.lock");
        let Some(_alone) = Turn::wait(lock.as_path(), Duration::ZERO)? else { return Ok(filled) };
        let kind = kind_of(self, &plan.population);
        for (entry, place) in self.members(&plan.root)? {
            match state_of(&entry, &place) {
                State::Ready(known) if known == kind && filled.ready < plan.members => filled.ready += 1,
                State::Ready(_) if !is_pristine(&entry, &place).await? => filled.left_alone.push(place),
                State::LeftAlone => filled.left_alone.push(place),
                State::Ready(_) | State::Unfinished => {
                    filled.removed += usize::from(self.remove_member(&plan.root, &place).await?);
                }
            }
        }
        self.remove_going(&plan.root).await?;
        while filled.ready < plan.members && self.make_member(plan, &kind).await? {
            filled.ready += 1;
            filled.made += 1;
        }
        Ok(filled)
    }

    /// Members with their places, in the order of their names.
    fn members(&self, root: &AbsPath) -> Result<Vec<(Entry, AbsPath)>, GitError> {
        let folder = resolved(root).join(POOL_FOLDER);
        let member = |entry: Entry| match entry.path.clone() {
            Some(place) => is_member(root, &place).then_some((entry, place)),
            // A git that was killed before it wrote the place.
            None => {
                let name = entry.dir.as_path().file_name()?.to_string_lossy().into_owned();
                name.starts_with(MEMBER).then(|| (entry, folder.join(name)))
            }
        };
        Ok(entries(self)?.into_iter().filter_map(member).collect())
    }

    /// Makes a member. False: this repository has none, because submodules belong to a checkout of it, or it has no commit.
    async fn make_member(&self, plan: &PoolPlan, kind: &str) -> Result<bool, GitError> {
        let Some(base) = self.reference("HEAD").await? else { return Ok(false) };
        let name = format!("{MEMBER}{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
        let place = resolved(&plan.root).join(POOL_FOLDER).join(&name);
        let git_dir = {
            let _turn = self.turn().await?;
            self.keep_out_of_git(&resolved(&plan.root))?;
            files::create_dir(resolved(&plan.root).join(POOL_FOLDER).as_path())?;
            let to = place.to_string();
            let add = ["worktree", "add", "--quiet", "--no-checkout", "--detach", "--", &to, base.as_str()];
            self.call(add).await?.done().await?;
            let made = self.members(&plan.root)?.into_iter().find(|(_, found)| *found == place);
            let missing = || GitError::Missing { what: format!("git's entry of the worktree {place}") };
            let (entry, _) = made.ok_or_else(missing)?;
            files::write_private(entry.dir.join(PREPARING).as_path(), b"")?;
            // The place will move: the way back to the repository must not depend on it.
            files::write_public(place.join(".git").as_path(), format!("gitdir: {}\n", entry.dir).as_bytes())?;
            entry.dir
        };
        let lfs = plan.population.lfs && self.has_lfs().await?;
        let branch = BranchName::parse(&name).map_err(|error| GitError::Lost(error.to_string()))?;
        let worktree = Worktree::new(self, place.clone(), git_dir.clone(), branch, lfs);
        worktree.narrow(&plan.population.sparse).await?;
        worktree.call(["reset", "--hard", "--quiet"]).await?.done().await?;
        worktree.note_pointers().await?;
        if place.join(".gitmodules").as_path().exists() {
            self.remove_member(&plan.root, &place).await?;
            return Ok(false);
        }
        if files::measure(git_dir.as_path()).bytes > LARGE_INDEX {
            // git may compare whole seconds, and reads each file that is as new as the index. It does so here, not for the issue.
            tokio::time::sleep(SECOND).await;
            let refresh = ["update-index", "-q", "--refresh", "--force-write-index"];
            worktree.call(refresh).await?.done().await?;
        }
        // No file is from the same moment as what says that all are whole.
        tokio::time::sleep(TICK).await;
        files::write_private(git_dir.join(READY).as_path(), kind.as_bytes())?;
        files::remove_file(git_dir.join(PREPARING).as_path())?;
        let made = self.members(&plan.root)?.into_iter().find(|(_, found)| *found == place);
        match made {
            // It would not be taken, so there is no pool for this repository.
            Some((entry, _)) if !is_pristine(&entry, &place).await? => {
                tracing::warn!(%place, "only git can compare the files of this repository; it has no pool of worktrees");
                self.remove_member(&plan.root, &place).await?;
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    /// Makes a member the worktree of an issue. The caller has the lock of the repository, and found the place free.
    /// `start`: where the branch begins, if it has to be made. Files are not brought to the branch yet. Gives git's entry; `None`:
    /// there is no member that fits.
    pub(super) async fn take_member(
        &self,
        plan: &WorktreePlan,
        path: &AbsPath,
        start: Option<&CommitId>,
    ) -> Result<Option<AbsPath>, WorktreeError> {
        let kind = kind_of(self, &plan.population);
        for (entry, place) in self.members(&plan.root)? {
            // Hooks of the repository would have run in another place.
            if self.hooks() || state_of(&entry, &place) != State::Ready(kind.clone()) {
                continue;
            }
            if !is_pristine(&entry, &place).await? {
                files::remove_file(entry.dir.join(READY).as_path())?;
                tracing::warn!(%place, "somebody has been in a worktree of the pool; it is left alone");
                continue;
            }
            // From here on it is nobody's but this issue's. What is killed before the place has moved is removed later,
            // and what is killed afterwards is a worktree of the issue whose files are to be checked out.
            files::rename(entry.dir.join(READY).as_path(), entry.dir.join(PREPARING).as_path())?;
            let head = format!("ref: {}\n", plan.branch.full());
            files::write_public(entry.dir.join("HEAD").as_path(), head.as_bytes())?;
            if let Some(start) = start {
                self.update_ref(&plan.branch.full(), None, start).await?;
            }
            files::rename(place.as_path(), path.as_path())?;
            files::write_public(entry.dir.join("gitdir").as_path(), format!("{path}/.git\n").as_bytes())?;
            return Ok(Some(entry.dir));
        }
        Ok(None)
    }

    /// Removes members that a killed process was about to take. The caller has the lock of the repository, so whoever took
    /// them is gone.
    pub(super) async fn remove_half_taken(&self, root: &AbsPath) -> Result<(), GitError> {
        for (entry, place) in self.members(root)? {
            if state_of(&entry, &place) == State::Unfinished && matches!(entry.head, Head::Branch(_)) {
                remove(&entry, &place).await?;
            }
        }
        Ok(())
    }

    /// Removes a member, unless somebody took it meanwhile.
    async fn remove_member(&self, root: &AbsPath, place: &AbsPath) -> Result<bool, GitError> {
        let _turn = self.turn().await?;
        let found = self.members(root)?.into_iter().find(|(_, known)| known == place);
        match found {
            Some((entry, place)) => remove(&entry, &place).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// Removes what a killed process was removing. A worktree that git knows by such a name is a person's.
    async fn remove_going(&self, root: &AbsPath) -> Result<(), GitError> {
        let folder = resolved(root).join(POOL_FOLDER);
        let known = entries(self)?;
        for entry in fs::read_dir(folder.as_path()).into_iter().flatten().flatten() {
            let is_known = known.iter().any(|one| one.path == Some(folder.join(entry.file_name())));
            if entry.file_name().to_string_lossy().starts_with(GOING) && !is_known {
                gone(folder.join(entry.file_name())).await?;
            }
        }
        Ok(())
    }
}

/// Removes a member and git's entry of it. Its files first leave the place, so that nothing half removed is taken for one.
async fn remove(entry: &Entry, place: &AbsPath) -> Result<(), GitError> {
    let going = place.parent().map(|folder| folder.join(format!("{GOING}{}", uuid::Uuid::new_v4().simple())));
    let moved = going.filter(|_| place.as_path().symlink_metadata().is_ok());
    if let Some(going) = &moved {
        files::rename(place.as_path(), going.as_path())?;
    }
    for folder in [Some(entry.dir.clone()), moved].into_iter().flatten() {
        gone(folder).await?;
    }
    Ok(())
}

async fn gone(folder: AbsPath) -> Result<(), GitError> {
    let remove = move || files::remove_dir(folder.as_path());
    tokio::task::spawn_blocking(remove).await.map_err(|error| GitError::Lost(error.to_string()))??;
    Ok(())
}

/// Whether a member is exactly as git checked it out, and nothing else is there, ignored or not.
async fn is_pristine(entry: &Entry, place: &AbsPath) -> Result<bool, GitError> {
    let (dir, place) = (entry.dir.clone(), place.clone());
    let look = move || {
        let found = ReadIndex::read(&dir.join("index"))
            .and_then(|index| differences(&place, &index, &dir.join(READY)));
        let Some(found) = found else { return false };
        let same = |(path, (id, mode)): &(Vec<u8>, (Oid, u32))| {
            let file = place.join(as_path(path));
            let meta = file.as_path().symlink_metadata();
            meta.is_ok_and(|meta| meta.is_file() && mode_of(&meta) == *mode)
                && Oid::hash_file(ObjectType::Blob, file.as_path()).is_ok_and(|found| found == *id)
        };
        found.gone.is_empty() && found.untracked.is_empty() && found.changed.iter().all(same)
    };
    tokio::task::spawn_blocking(look).await.map_err(|error| GitError::Lost(error.to_string()))
}
