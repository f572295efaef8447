//! Removes paths of this machine from texts that leave it. Files are named relative to the checkout, other places by
//! their kind.

use std::borrow::Cow;

/// What stands in the place of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shown {
    /// The rest of it: the folder is where the reader is.
    Inside,
    /// The rest of the path without its first folder. Each folder of it is such a place.
    Folders,
    /// This, and the rest.
    As(&'static str),
}

/// Known places, longest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostPaths(Vec<(String, Shown)>);

impl HostPaths {
    /// Of absolute paths; the root is no place.
    pub fn new(places: impl IntoIterator<Item = (String, Shown)>) -> Self {
        let mut known = Self::default();
        known.extend(places);
        known
    }

    /// Learns further ones.
    pub fn extend(&mut self, places: impl IntoIterator<Item = (String, Shown)>) {
        let plain = |(path, shown): (String, Shown)| (path.trim_end_matches('/').to_owned(), shown);
        self.0.extend(places.into_iter().map(plain).filter(|(path, _)| path.starts_with('/')));
        self.0.sort_by(|a, b| b.0.len().cmp(&a.0.len()).then_with(|| a.cmp(b)));
        self.0.dedup();
    }

    /// Learns those of another.
    pub fn learn(&mut self, other: &Self) {
        self.extend(other.0.iter().cloned());
    }

    /// The text without the places. A second pass changes nothing.
    pub fn told<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut out = String::new();
        let mut done = 0;
        for (at, _) in text.match_indices('/') {
            if at < done {
                continue;
            }
            let Some((length, shown)) = self.0.iter().find_map(|place| replaced(text, at, place)) else {
                continue;
            };
            out.push_str(&text[done..at]);
            out.push_str(&shown);
            done = at + length;
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }
}

/// Whether a character goes on with a name.
fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

/// How many bytes at `at` belong to the place, and what replaces them.
fn replaced(text: &str, at: usize, (path, shown): &(String, Shown)) -> Option<(usize, String)> {
    let rest = text[at..].strip_prefix(path.as_str())?;
    if rest.chars().next().is_some_and(is_part) {
        return None;
    }
    // A short name is part of other paths as well. Before a long one there may be a compiler flag.
    let short = !path[1..].contains('/');
    if short && text[..at].chars().next_back().is_some_and(|c| is_part(c) || c == '.') {
        return None;
    }
    let below =
        rest.strip_prefix('/').filter(|below| below.chars().next().is_some_and(|c| is_part(c) || c == '.'));
    match (shown, below) {
        (Shown::As(name), _) => Some((path.len(), (*name).to_owned())),
        (Shown::Inside, Some(_)) => Some((path.len() + 1, String::new())),
        (Shown::Inside, None) => Some((path.len(), ".".to_owned())),
        (Shown::Folders, Some(below)) => {
            let folder = below.find(|c: char| !is_part(c) && c != '.').unwrap_or(below.len());
            let inner = below[folder..].strip_prefix('/')?;
            inner.chars().next().filter(|c| is_part(*c) || *c == '.')?;
            Some((path.len() + 1 + folder + 1, String::new()))
        }
        (Shown::Folders, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> HostPaths {
        HostPaths::new([
            ("/home/mia".to_owned(), Shown::As("~")),
            ("/root".to_owned(), Shown::As("~")),
            ("/home/mia/shop".to_owned(), Shown::Inside),
            ("/home/mia/shop/.worktrees".to_owned(), Shown::Folders),
            ("/home/mia/.local/state/agentd/".to_owned(), Shown::As("STATE")),
            ("/".to_owned(), Shown::As("nothing")),
        ])
    }

    #[test]
    fn places_are_told_relative_to_the_checkout_or_by_what_they_are() {
        for (text, told) in [
            ("in /home/mia/shop/lib/a.py:3", "in lib/a.py:3"),
            ("File \"/home/mia/shop/.worktrees/issue-7/lib/a.py\", line 3", "File \"lib/a.py\", line 3"),
            ("the worktree /home/mia/shop/.worktrees/issue-7.", "the worktree .worktrees/issue-7."),
            ("/home/mia/shop/.worktrees/issue-7/ is", ".worktrees/issue-7/ is"),
            ("cd /home/mia/shop && ls", "cd . && ls"),
            ("/home/mia/shopping/list", "~/shopping/list"),
            ("-I/home/mia/include", "-I~/include"),
            ("file:///home/mia/shop/a.html", "file://a.html"),
            ("/home/mia/.local/state/agentd/repos/x", "STATE/repos/x"),
            ("/root/.pyenv/shims/python", "~/.pyenv/shims/python"),
            ("/srv/root/x and /rootfs/x", "/srv/root/x and /rootfs/x"),
            ("/usr/bin/python3 / x", "/usr/bin/python3 / x"),
            ("/home/miau/x", "/home/miau/x"),
        ] {
            assert_eq!(known().told(text), told);
            assert_eq!(known().told(told), told, "twice");
        }
    }
}
