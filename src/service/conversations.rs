//! Conversations that the service keeps for its users: `<state>/users/<user>/conversations/<id>.jsonl`, one line for
//! each message. Only their user reaches them (S-045).

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::conversation_format::{ConversationLine, Said};
use crate::domain::run::Principal;
use crate::store::run_dir::StateDir;
use crate::sys::files::{self, FileError};
use crate::sys::lock::Turn;

/// Why a conversation is not given.
#[derive(Debug, thiserror::Error)]
pub enum ConversationError {
    /// There is none of this id.
    #[error("there is no conversation {0}")]
    Missing(Uuid),
    /// It is another user's (S-028).
    #[error("the conversation {0} is another user's")]
    Foreign(Uuid),
    /// A request is being answered in it.
    #[error("a request is being answered in this conversation; wait for its answer")]
    Busy,
    /// The disk.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The conversations of one user.
#[derive(Debug, Clone)]
pub struct Conversations {
    users: PathBuf,
    user: Uuid,
}

/// A conversation that nobody else writes to while this is held.
#[derive(Debug)]
pub struct Conversation {
    /// Which one.
    pub id: Uuid,
    /// What was said, in order.
    pub said: Vec<Said>,
    path: PathBuf,
    _turn: Turn,
}

impl Conversations {
    /// Those of a user.
    pub fn of(state: &StateDir, user: &Principal) -> Self {
        Self { users: state.users(), user: user.id }
    }

    /// Begins one; nothing is said in it yet. Blocks.
    pub fn begin(&self) -> Result<Conversation, ConversationError> {
        files::create_private_dir(&self.folder())?;
        let id = Uuid::now_v7();
        let path = self.path(id);
        drop(files::create_private_file(&path)?);
        Conversation::open(id, path)
    }

    /// Opens one for the next message: the named one, else the newest, else a new one. Blocks.
    pub fn open(&self, id: Option<Uuid>) -> Result<Conversation, ConversationError> {
        match id.or_else(|| self.ids().into_iter().next_back()) {
            Some(id) => Conversation::open(id, self.find(id)?),
            None => self.begin(),
        }
    }

    /// What was said in one. Blocks.
    pub fn read(&self, id: Uuid) -> Result<Vec<Said>, ConversationError> {
        Ok(read(&self.find(id)?)?)
    }

    /// Every one, newest first. Blocks.
    pub fn list(&self) -> Result<Vec<ConversationLine>, ConversationError> {
        let line = |id| {
            let said = read(&self.path(id))?;
            Ok(ConversationLine {
                conversation_id: id,
                messages: said.len(),
                started_ts: said.first().map(|said| said.ts),
                updated_ts: said.last().map(|said| said.ts),
            })
        };
        self.ids().into_iter().rev().map(line).collect()
    }

    /// Removes one; what the runs in it recorded stays. Blocks.
    pub fn remove(&self, id: Uuid) -> Result<(), ConversationError> {
        let held = Conversation::open(id, self.find(id)?)?;
        files::remove_file(&held.path)?;
        Ok(())
    }

    /// Ids in the order in which the conversations were begun: they are UUIDv7.
    fn ids(&self) -> Vec<Uuid> {
        let entries = std::fs::read_dir(self.folder()).into_iter().flatten().flatten();
        let id = |name: &str| Uuid::parse_str(name.strip_suffix(".jsonl")?).ok();
        let mut ids: Vec<Uuid> = entries.filter_map(|entry| id(entry.file_name().to_str()?)).collect();
        ids.sort_unstable();
        ids
    }

    /// The file of one that is there and this user's.
    fn find(&self, id: Uuid) -> Result<PathBuf, ConversationError> {
        let path = self.path(id);
        if path.is_file() {
            return Ok(path);
        }
        let users = std::fs::read_dir(&self.users).into_iter().flatten().flatten();
        let foreign = users.into_iter().any(|user| place(&user.path(), id).is_file());
        Err(if foreign { ConversationError::Foreign(id) } else { ConversationError::Missing(id) })
    }

    fn folder(&self) -> PathBuf {
        self.users.join(self.user.to_string()).join("conversations")
    }

    fn path(&self, id: Uuid) -> PathBuf {
        place(&self.users.join(self.user.to_string()), id)
    }
}

fn place(user: &Path, id: Uuid) -> PathBuf {
    user.join("conversations").join(format!("{id}.jsonl"))
}

impl Conversation {
    fn open(id: Uuid, path: PathBuf) -> Result<Self, ConversationError> {
        let turn = Turn::wait(&path, Duration::ZERO)?.ok_or(ConversationError::Busy)?;
        let said = read(&path)?;
        Ok(Self { id, said, path, _turn: turn })
    }

    /// Adds a message; it is on disk when this returns. Blocks.
    pub fn add(&mut self, said: Said) -> Result<(), ConversationError> {
        let failed = |source| FileError::new("write", &self.path, source);
        let mut line = serde_json::to_vec(&said).map_err(|error| failed(error.into()))?;
        // A line that a crash tore stays alone on its line.
        if !ends_whole(&self.path).map_err(failed)? {
            line.insert(0, b'\n');
        }
        line.push(b'\n');
        let mut file = files::open_append(&self.path)?;
        file.write_all(&line).and_then(|()| file.sync_data()).map_err(failed)?;
        self.said.push(said);
        Ok(())
    }
}

/// The messages of a file; a line that a crash tore is left out.
fn read(path: &Path) -> Result<Vec<Said>, FileError> {
    let text = std::fs::read(path).map_err(|source| FileError::new("read", path, source))?;
    Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

fn ends_whole(path: &Path) -> std::io::Result<bool> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = std::fs::File::open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}

#[cfg(test)]
mod tests {
    use super::super::chat_format::ChatRole;
    use super::*;
    use crate::domain::run::PrincipalSource;

    fn of(root: &Path, user: u128) -> Conversations {
        let user = Principal { id: Uuid::from_u128(user), login: None, source: PrincipalSource::Bearer };
        Conversations::of(&StateDir::new(root.to_owned()), &user)
    }

    fn said(content: &str, ts: i64) -> Said {
        Said { role: ChatRole::User, content: content.to_owned(), ts, run_id: None }
    }

    #[test]
    fn s_052_what_is_said_is_kept_in_order_and_the_newest_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let mine = of(root.path(), 1);
        let mut first = mine.open(None).unwrap();
        first.add(said("a", 1)).unwrap();
        first.add(said("b", 2)).unwrap();
        let id = first.id;
        drop(first);
        assert_eq!(mine.open(None).unwrap().said, [said("a", 1), said("b", 2)]);
        let second = mine.begin().unwrap().id;
        assert_eq!(mine.open(None).unwrap().id, second);
        assert_eq!(mine.open(Some(id)).unwrap().said.len(), 2);
        let list = mine.list().unwrap();
        assert_eq!((list[0].conversation_id, list[1].conversation_id), (second, id));
        assert_eq!((list[0].started_ts, list[1].updated_ts, list[1].messages), (None, Some(2), 2));
        mine.remove(second).unwrap();
        assert_eq!(mine.list().unwrap().len(), 1);
    }

    #[test]
    fn s_027_s_028_s_045_another_users_conversation_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let (mine, theirs) = (of(root.path(), 1), of(root.path(), 2));
        let id = mine.begin().unwrap().id;
        assert!(matches!(theirs.open(Some(id)), Err(ConversationError::Foreign(_))));
        assert!(matches!(theirs.read(id), Err(ConversationError::Foreign(_))));
        assert!(matches!(theirs.remove(id), Err(ConversationError::Foreign(_))));
        assert!(theirs.list().unwrap().is_empty());
        assert!(matches!(mine.read(Uuid::from_u128(9)), Err(ConversationError::Missing(_))));
    }

    #[test]
    fn one_request_at_a_time_and_a_torn_line_costs_only_itself() {
        let root = tempfile::tempdir().unwrap();
        let mine = of(root.path(), 1);
        let mut held = mine.open(None).unwrap();
        assert!(matches!(mine.open(Some(held.id)), Err(ConversationError::Busy)));
        held.add(said("a", 1)).unwrap();
        let mut file = files::open_append(&held.path).unwrap();
        file.write_all(b"{\"role\":\"us").unwrap();
        held.add(said("b", 2)).unwrap();
        assert_eq!(read(&held.path).unwrap(), [said("a", 1), said("b", 2)]);
    }
}
