//! Reads what git prints. Names of files, branches and addresses in it can be anything.

use std::collections::BTreeSet;

use crate::domain::name::{BranchName, CommitId};

/// A submodule as `.gitmodules` has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Its name there.
    pub name: String,
    /// Its address, as written.
    pub url: String,
}

/// `config --list -z`: key, line feed, value, NUL.
pub fn declared(listing: &[u8]) -> Vec<Declared> {
    let text = String::from_utf8_lossy(listing);
    let entry = |entry: &str| {
        let (key, url) = entry.split_once('\n')?;
        let name = key.strip_prefix("submodule.")?.strip_suffix(".url")?;
        Some(Declared { name: name.to_owned(), url: url.to_owned() })
    };
    text.split('\0').filter_map(entry).collect()
}

/// `config --list --name-only -z`: the submodules that it has a key for.
pub fn submodules(listing: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(listing);
    let named = |key: &str| Some(key.strip_prefix("submodule.")?.rsplit_once('.')?.0.to_owned());
    text.split('\0').filter_map(named).collect()
}

/// `ls-remote`: names of refs with their commits.
pub fn heads(text: &str) -> Vec<(String, CommitId)> {
    let parse = |line: &str| {
        let (id, name) = line.split_once('\t')?;
        Some((name.to_owned(), CommitId::parse(id).ok()?))
    };
    text.lines().filter_map(parse).collect()
}

/// `push --porcelain`: the sign and the line of a branch.
pub fn pushed<'a>(text: &'a str, branch: &BranchName) -> Option<(char, &'a str)> {
    let line = text.lines().find(|line| line.contains(&format!(":{}\t", branch.full())))?;
    Some((line.chars().next()?, line))
}

/// `check-attr -z … filter`: the paths that are under Git LFS.
pub fn under_lfs(text: &str) -> BTreeSet<&str> {
    let fields: Vec<&str> = text.split('\0').collect();
    let path = |one: &[&'_ str]| matches!(one, [_, "filter", "lfs"]);
    fields.chunks(3).filter(|one| path(one)).map(|one| one[0]).collect()
}

/// `check-attr -z … filter`: the paths whose content goes through a filter as git stores it.
pub fn filtered(text: &str) -> Vec<&str> {
    let fields: Vec<&str> = text.split('\0').collect();
    let path = |one: &&[&str]| matches!(one, [_, "filter", value] if !matches!(*value, "unspecified" | "unset" | "set" | ""));
    fields.chunks(3).filter(path).map(|one| one[0]).collect()
}

/// `ls-files --others -z`: repositories and files that are not tracked.
pub fn others(text: &str) -> (Vec<String>, Vec<String>) {
    let (repositories, files): (Vec<&str>, Vec<&str>) =
        text.split('\0').filter(|path| !path.is_empty()).partition(|path| path.ends_with('/'));
    let owned = |paths: Vec<&str>| paths.into_iter().map(str::to_owned).collect();
    (owned(repositories.into_iter().filter_map(|path| path.strip_suffix('/')).collect()), owned(files))
}

/// `ls-files --unmerged -z`: files in conflict, each once.
pub fn unmerged(text: &str) -> Vec<String> {
    let mut files: Vec<String> =
        text.split('\0').filter_map(|line| Some(line.split_once('\t')?.1.to_owned())).collect();
    files.dedup();
    files
}

/// `ls-files --stage -z`: the submodules, each with its commit.
pub fn submodule_entries(text: &str) -> Vec<(String, String)> {
    let entry = |line: &str| {
        let (start, path) = line.strip_prefix("160000 ")?.split_once('\t')?;
        Some((path.to_owned(), start.split(' ').next()?.to_owned()))
    };
    text.split('\0').filter_map(entry).collect()
}
