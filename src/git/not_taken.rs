//! Why a file is in no snapshot.

use std::fmt;

use super::blob::LARGEST_FILE;

/// A warning of git that is longer was cut off, at 4096 bytes.
const CUT_OFF: usize = 3900;
/// Characters of a path that nobody can read whole.
const SHOWN: usize = 80;

/// Why a file is in no snapshot and in no commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotInSnapshot {
    /// It has this many bytes, more than [`LARGEST_FILE`].
    Large(u64),
    /// On some system its name is that of git's own folder.
    Name,
    /// It is a folder whose path is longer than what git opens.
    Deep,
}

impl fmt::Display for NotInSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Large(bytes) => write!(f, "{bytes} bytes, more than the {LARGEST_FILE} of any file"),
            Self::Name => {
                f.write_str("git refuses its name, which is that of git's own folder on some system")
            }
            Self::Deep => f.write_str(
                "its path is longer than the 4095 bytes that git opens, so that nothing in it can be committed; remove it, or move what is \
                 in it (`rm -rf` reaches it)",
            ),
        }
    }
}

/// The folder that git says it did not open for the length of its path, shortened. git cuts its own warnings off as well.
pub(super) fn too_deep(said: &str) -> Option<String> {
    const WHY: &str = "': File name too long";
    let opened = said.lines().filter_map(|line| line.strip_prefix("warning: could not open directory '"));
    let folder = opened.into_iter().find(|rest| rest.ends_with(WHY) || rest.len() > CUT_OFF)?;
    let folder = folder.trim_end_matches(WHY);
    let shown: String = folder.chars().take(SHOWN).collect();
    Some(if shown.len() < folder.len() { shown + "…" } else { shown })
}

/// Whether git accepts a file or link of that name with `core.protectHFS` and `core.protectNTFS`, which every call
/// sets. After one refusal `git add` adds nothing.
pub(super) fn may_be_named(path: &str, link: bool) -> bool {
    // Most names have nothing of it.
    let near = |three: &[u8]| three.eq_ignore_ascii_case(b"git");
    if path.is_ascii() && !path.contains('~') && !path.as_bytes().windows(3).any(near) {
        return true;
    }
    // What HFS+ does not see in a name.
    let unseen = |c: &char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let seen: String = path.chars().filter(|c| !unseen(c)).collect::<String>().to_ascii_lowercase();
    // NTFS separates at both slashes. It ignores the name of a stream, and dots and spaces at the end.
    let refused = |part: &str| {
        let part = part.split(':').next().unwrap_or_default().trim_end_matches([' ', '.']);
        let modules = part == ".gitmodules" || part.starts_with("gitmod~") || part.starts_with("gi7eba~");
        part == ".git" || part == "git~1" || (link && modules)
    };
    !seen.split(['/', '\\']).any(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_git_s_own_folder_on_some_system_is_not_taken() {
        let refused =
            [".GIT ", "docs/.git", "a/.Git./b", "git~1", ".git::$INDEX_ALLOCATION", ".g\u{200c}it/config"];
        assert_eq!(refused.map(|name| (name, may_be_named(name, false))), refused.map(|name| (name, false)));
        let taken =
            ["git", ".gitignore", ".github/ci.yml", "docs/git~10.md", ".git-blame-ignore-revs", "\u{feff}a"];
        assert_eq!(taken.map(|name| (name, may_be_named(name, false))), taken.map(|name| (name, true)));
        assert_eq!([true, false].map(|link| may_be_named(".gitmodules", link)), [false, true]);
    }
}
