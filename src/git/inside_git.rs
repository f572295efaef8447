//! What changed in a worktree while a program works there: git looks from inside of the program's own sandbox. From outside, the program could
//! put a link in git's way meanwhile, and read by git what it cannot reach itself.

use std::ffi::OsString;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::error::GitError;
use super::worktree::{ChangeKind, ChangedFile, PatchText};
use crate::sys::paths::AbsPath;
use crate::sys::process::{self, Captured, ProcessSpec};
use crate::sys::sandbox::ProcessSandbox;

/// Bytes of a list of changed files that are read.
const LONGEST_LIST: usize = 4 * 1024 * 1024;
/// Files that are left out of one patch at most: they stand in a command line.
const MOST_LEFT_OUT: usize = 1_000;

/// Keeps an index and objects of its own, which go with `forget`. `$1` = their folder's name, `$2` = what is compared with.
const LOOK: &str = r#"set -eu
look="${TMPDIR:-/tmp}/$1" base="$2"; shift 2
own=$(git rev-parse --absolute-git-dir)
mkdir -p "$look/objects"
export GIT_INDEX_FILE="$look/index" GIT_OBJECT_DIRECTORY="$look/objects" GIT_ALTERNATE_OBJECT_DIRECTORIES="$own/objects"
"#;
/// What is there, as an index says it: the program's own one knows the times of files.
const LIST: &str = r#"cp "$own/index" "$look/index" 2>/dev/null || git read-tree HEAD
git add --all --sparse 2>/dev/null || git add --all
git diff --cached --raw --numstat -z --no-abbrev --no-ext-diff --no-textconv --find-renames "$base" --
"#;
const PATCH: &str = r#"git diff --cached --patch --no-color --no-ext-diff --no-textconv --find-renames "$base" -- "$@"
"#;
const FORGET: &str = r#"rm -rf "$look"
"#;

/// git inside of a program's sandbox.
#[derive(Debug, Clone)]
pub struct InsideGit {
    /// The worktree's folder.
    pub root: AbsPath,
    /// The program's.
    pub sandbox: ProcessSandbox,
    /// The program's.
    pub environment: Vec<(OsString, OsString)>,
}

/// A look that is kept until its patch is read.
pub(super) struct InsideLook<'a> {
    git: &'a InsideGit,
    name: String,
    base: &'a str,
    timeout: Duration,
    /// What differs from the base.
    pub changes: Vec<ChangedFile>,
}

impl InsideGit {
    /// What differs from `base`: a commit, or HEAD.
    pub(super) async fn look<'a>(
        &'a self,
        base: &'a str,
        timeout: Duration,
    ) -> Result<InsideLook<'a>, GitError> {
        let name = format!("agentd-look-{}", uuid::Uuid::new_v4().simple());
        let listed = self.run(&[LOOK, LIST], (&name, base), &[], timeout, LONGEST_LIST).await?;
        if listed.truncated {
            return Err(GitError::Lost("too many changed files".to_owned()));
        }
        let changes = changes(&listed.into_text());
        Ok(InsideLook { git: self, name, base, timeout, changes })
    }

    async fn run(
        &self,
        script: &[&str],
        (name, base): (&str, &str),
        pathspecs: &[String],
        timeout: Duration,
        cap: usize,
    ) -> Result<Captured, GitError> {
        let mut args =
            vec!["-c".to_owned(), script.concat(), "sh".to_owned(), name.to_owned(), base.to_owned()];
        args.extend_from_slice(pathspecs);
        let spec = ProcessSpec::new("sh", &self.root)
            .args(args)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .timeout(timeout)
            .output_cap(cap);
        let exit = process::run(self.sandbox.wrap(spec), &CancellationToken::new()).await;
        match exit {
            Ok(exit) if exit.success() => Ok(exit.stdout),
            Ok(exit) => Err(GitError::Lost(exit.stderr.into_text())),
            Err(error) => Err(GitError::Lost(error.to_string())),
        }
    }
}

impl InsideLook<'_> {
    /// The patch of these changes, of `path` alone where one is given, without the files that are left out.
    pub(super) async fn into_patch(
        self,
        path: Option<&str>,
        left_out: &[String],
        cap: usize,
    ) -> Result<PatchText, GitError> {
        if left_out.len() > MOST_LEFT_OUT {
            return Err(GitError::Lost("too many changed files may not be shown".to_owned()));
        }
        let mut pathspecs: Vec<String> = path.iter().map(|path| format!(":(top,literal){path}")).collect();
        pathspecs.extend(left_out.iter().map(|path| format!(":(exclude,top,literal){path}")));
        let script = [LOOK, PATCH, FORGET];
        let patch = self.git.run(&script, (&self.name, self.base), &pathspecs, self.timeout, cap).await?;
        let text = String::from_utf8_lossy(&patch.head);
        // What is cut off ends with a line.
        let end = if patch.truncated { text.rfind('\n').map_or(0, |end| end + 1) } else { text.len() };
        Ok(PatchText { text: text[..end].to_owned(), truncated: patch.truncated })
    }

    /// What differs, without a patch.
    pub(super) async fn into_changes(self) -> Result<Vec<ChangedFile>, GitError> {
        self.git.run(&[LOOK, FORGET], (&self.name, self.base), &[], self.timeout, LONGEST_LIST).await?;
        Ok(self.changes)
    }
}

/// Reads `--raw --numstat -z`: kinds first, then the lines, each file once in both.
fn changes(listing: &str) -> Vec<ChangedFile> {
    let mut fields = listing.split('\0');
    let mut found: Vec<ChangedFile> = Vec::new();
    while let Some(field) = fields.next() {
        if let Some(raw) = field.strip_prefix(':') {
            let parts: Vec<&str> = raw.split(' ').collect();
            let [_, _, old, new, status] = parts[..] else { continue };
            let kind = match status.as_bytes().first() {
                Some(b'A' | b'C') => ChangeKind::Added,
                Some(b'D') => ChangeKind::Deleted,
                Some(b'R') => ChangeKind::Renamed,
                Some(b'T') => ChangeKind::TypeChanged,
                _ if old == new => ChangeKind::TypeChanged,
                _ => ChangeKind::Modified,
            };
            let first = fields.next().unwrap_or_default().to_owned();
            let second = status.starts_with(['R', 'C']).then(|| fields.next().unwrap_or_default().to_owned());
            let (path, from) = match second {
                Some(path) => (path, Some(first).filter(|_| kind == ChangeKind::Renamed)),
                None => (first, None),
            };
            found.push(ChangedFile { path, from, added: 0, removed: 0, kind, binary: false });
            continue;
        }
        let mut parts = field.splitn(3, '\t');
        let (Some(added), Some(removed), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let path = if path.is_empty() { fields.nth(1).unwrap_or_default() } else { path };
        if let Some(file) = found.iter_mut().find(|file| file.path == path) {
            file.binary = added == "-";
            (file.added, file.removed) = (added.parse().unwrap_or(0), removed.parse().unwrap_or(0));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_lines_of_each_file_come_together() {
        let listing = ":100644 100644 aa bb M\0m\0:000000 100644 00 bb A\0a b\0:100644 100644 aa aa R100\0old\0new\0:100644 100755 aa aa \
                       M\0x\0:100644 000000 aa 00 D\0d\0:100644 120000 aa bb T\0t\0\
                       1\t2\tm\0-\t-\ta b\x003\t0\t\0old\0new\x000\t0\tx\x000\t4\td\x001\t1\tt\0";
        let told: Vec<_> = changes(listing)
            .into_iter()
            .map(|file| {
                let from = file.from.unwrap_or_default();
                format!(
                    "{} {} {from} +{} -{} {}",
                    file.kind.letter(),
                    file.path,
                    file.added,
                    file.removed,
                    file.binary
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "M m  +1 -2 false",
                "A a b  +0 -0 true",
                "R new old +3 -0 false",
                "T x  +0 -0 false",
                "D d  +0 -4 false",
                "T t  +1 -1 false"
            ]
        );
    }
}
