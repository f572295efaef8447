//! Submodules: which addresses they may have, and which ones they have.

use std::collections::BTreeSet;

use super::checkout::Checkout;
use super::error::GitError;
use super::output::{self, Declared, declared};
use super::program::{Protocols, protocol_of};
use super::remote::Remote;
use super::worktree::Worktree;
use crate::domain::name::CommitId;

/// Why an address is not allowed for a submodule. `base` = the address of the remote, for relative addresses.
pub(super) fn refused(url: &str, base: Option<&str>) -> Option<&'static str> {
    let url = url.trim();
    if url.starts_with("./") || url.starts_with("../") || url == "." || url == ".." {
        return match base.map(protocol_of) {
            Some("file") => Some("it is relative to a remote that is a path on this machine"),
            None => Some("it is relative, and there is no remote that it could be relative to"),
            Some(_) => None,
        };
    }
    match protocol_of(url) {
        "file" => Some("it is a path on this machine"),
        "ext" => Some("it would run a program"),
        _ => None,
    }
}

impl Checkout {
    /// The address of the remote that git takes relative addresses of submodules for relative to; in a scratch repository, that
    /// of the repository that it borrows from.
    pub(super) async fn relative_base(&self) -> Result<Option<String>, GitError> {
        let names = self.call(["remote"]).await?.text().await?;
        let names: Vec<&str> = names.lines().collect();
        let name = match names.as_slice() {
            [] => return self.scratch_base().await,
            [only] => only,
            _ => "origin",
        };
        self.remote_url(name).await
    }

    /// The addresses in a `.gitmodules` file (its blob) that no submodule may have, in words.
    pub async fn refused_submodules(&self, blob: &str) -> Result<Vec<String>, GitError> {
        let exit = self.call(["config", "--blob", blob, "--list", "-z"]).await?.exit().await?;
        if !exit.success() {
            return Ok(vec!["git cannot read it".to_owned()]);
        }
        self.refused_among(declared(&exit.stdout.head)).await
    }

    async fn refused_among(&self, all: Vec<Declared>) -> Result<Vec<String>, GitError> {
        let base = self.relative_base().await?;
        let told = |one: &Declared| {
            let why = refused(&one.url, base.as_deref())?;
            Some(format!("the submodule \"{}\" has the address {}: {why}", one.name, one.url))
        };
        Ok(all.iter().filter_map(told).collect())
    }
}

impl Worktree {
    /// Settings by which git leaves the folders of all submodules alone, whatever `.gitmodules` says: as it is in the worktree,
    /// in the index, in HEAD, and in `commit`.
    pub(super) async fn submodules_left_alone(
        &self,
        commit: &CommitId,
    ) -> Result<Vec<(String, String)>, GitError> {
        let file = self.path().join(".gitmodules").to_string();
        let theirs = format!("{commit}:.gitmodules");
        let mut names = BTreeSet::new();
        for (way, place) in [
            ("--file", file.as_str()),
            ("--blob", ":.gitmodules"),
            ("--blob", "HEAD:.gitmodules"),
            ("--blob", &theirs),
        ] {
            let list = ["config", way, place, "--no-includes", "--list", "--name-only", "-z"];
            let exit = self.call(list).await?.exit().await?;
            names.extend(output::submodules(&exit.stdout.head));
        }
        Ok(names.into_iter().map(|name| (format!("submodule.{name}.ignore"), "all".to_owned())).collect())
    }

    /// Whether `.gitmodules` names the submodule at a path: in a commit, or as it is in the worktree.
    pub async fn declares(&self, path: &str, commit: Option<&CommitId>) -> Result<bool, GitError> {
        let (way, place) = match commit {
            Some(commit) => ("--blob", format!("{commit}:.gitmodules")),
            None => ("--file", self.path().join(".gitmodules").to_string()),
        };
        let list =
            ["config", way, place.as_str(), "--no-includes", "--get-regexp", "-z", r"^submodule\..*\.path$"];
        // Without such a file git fails, as where nothing is found.
        let exit = self.call(list).await?.exit().await?;
        let said = String::from_utf8_lossy(&exit.stdout.head).into_owned();
        Ok(said.split('\0').any(|entry| entry.split_once('\n').is_some_and(|(_, value)| value == path)))
    }

    /// Registers submodules under the lock, because that writes the shared configuration, and then fetches them without
    /// it. Only over a network, since a path could bring any file of this machine onto the branch.
    pub(super) async fn fill_submodules(&self, remote: Option<&Remote>) -> Result<(), GitError> {
        let file = self.path().join(".gitmodules").to_string();
        let list = ["config", "--file", file.as_str(), "--no-includes", "--list", "-z"];
        let found = declared(&self.call(list).await?.bytes().await?);
        if let Some(what) = self.checkout().refused_among(found).await?.into_iter().next() {
            return Err(GitError::SubmoduleAddress { what });
        }
        let base = self.checkout().scratch_base().await?;
        {
            let _turn = self.checkout().turn().await?;
            let as_remote = base.iter().map(|url| ("remote.origin.url".to_owned(), url.clone()));
            self.call(["submodule", "--quiet", "init"]).await?.config(as_remote).done().await?;
        }
        let update = [
            "submodule",
            "--quiet",
            "update",
            "--init",
            "--checkout",
            "--recursive",
            "--no-recommend-shallow",
        ];
        let of_remote = remote.map(Remote::url).or(base.as_deref());
        let protocols = of_remote.map_or_else(Protocols::usual, |url| Protocols::usual().and_of(url));
        let filled = self.call(update).await?.network("a submodule's remote", protocols.remote_only()).done();
        filled.await.map_err(|error| match error {
            GitError::Network { detail, .. } => GitError::SubmoduleAway { detail },
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submodules_address_is_one_of_another_machine() {
        let far = Some("https://github.com/o/n.git");
        for url in ["https://h/l.git", "ssh://h/l", "git@h:o/l.git", "git://h/l", "../l.git", "./l"] {
            assert_eq!(refused(url, far), None, "{url}");
        }
        for url in [
            "/srv/l",
            "file:///srv/l",
            "FILE:///srv/l",
            "srv/l",
            "ext::sh -c id",
            "fd::3",
            " /srv/l",
            "~/l",
            "foo://h/l",
        ] {
            assert!(refused(url, far).is_some(), "{url}");
        }
        for base in [Some("/srv/n.git"), Some("file:///srv/n.git"), None] {
            assert!(refused("../l", base).is_some(), "{base:?}");
        }
    }
}
