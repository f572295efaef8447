//! The runs of a state directory: its folders that have something in them.

use std::io;
use std::path::Path;

use uuid::Uuid;

use super::FileStore;
use crate::domain::name::RepoName;
use crate::domain::run::RunId;
use crate::store::run_dir::FindError;

impl FileStore {
    pub(super) fn list(&self, only: Option<&RepoName>) -> Result<Vec<(RepoName, RunId)>, FindError> {
        let mut found = Vec::new();
        for repo in self.repositories()? {
            if only.is_some_and(|only| *only != repo) {
                continue;
            }
            let folder = self.repo(&repo).join("runs");
            for name in entries(&folder)? {
                if let Ok(id) = Uuid::parse_str(&name)
                    && has_begun(&folder.join(&name))
                {
                    found.push((repo.clone(), RunId(id)));
                }
            }
        }
        Ok(found)
    }

    pub(super) fn repositories(&self) -> Result<Vec<RepoName>, FindError> {
        let root = self.root.join("repos");
        let mut names = Vec::new();
        for owner in entries(&root)? {
            for name in entries(&root.join(&owner))? {
                names.extend(RepoName::parse(&format!("{owner}/{name}")));
            }
        }
        Ok(names)
    }
}

fn has_begun(run: &Path) -> bool {
    let events = std::fs::metadata(run.join("events.jsonl"));
    events.is_ok_and(|events| events.len() > 0) || run.join("result.json").exists()
}

/// Names in a folder; a folder that is not there is empty.
pub(super) fn entries(path: &Path) -> Result<Vec<String>, FindError> {
    let unreadable = |source| FindError::Unreadable { path: path.to_owned(), source };
    let read = match std::fs::read_dir(path) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut names = Vec::new();
    for entry in read {
        names.extend(entry.map_err(unreadable)?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}
