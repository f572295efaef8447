//! Who polls a repository: of the living nodes that have it, the one that comes first by a hash of both names. So nodes that
//! come and go move few repositories, and all nodes agree without asking each other.

use super::cells::{RepoCell, SessionId};
use crate::domain::canonical::sha256_hex;

/// The node that polls a repository, of those that live and have it.
pub fn first<'a>(repo: &str, nodes: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    nodes.max_by_key(|node| sha256_hex(format!("{node}\n{repo}").as_bytes()))
}

/// The repository's cell with this session as its poller: where no living one polls it and this one comes first. It is written
/// together with the taker's own cell, so that a session that has expired takes nothing.
pub fn taken(cell: &RepoCell, poller_lives: bool, comes_first: bool, own: &SessionId) -> Option<RepoCell> {
    let has = cell.poller.as_ref().is_some_and(|poller| poller_lives || poller == own);
    (!has && comes_first).then(|| RepoCell { poller: Some(own.clone()), ..cell.clone() })
}

/// The repository's cell without a poller, where this session polls it and another comes first now.
pub fn handed_over(cell: &RepoCell, comes_first: bool, own: &SessionId) -> Option<RepoCell> {
    let own_one = cell.poller.as_ref() == Some(own);
    (own_one && !comes_first).then(|| RepoCell { poller: None, ..cell.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_goes_moves_only_its_own_repositories() {
        let nodes = ["a", "b", "c", "d"];
        let repos: Vec<String> = (0..400).map(|number| format!("o/n{number}")).collect();
        let all: Vec<&str> = repos.iter().map(|repo| first(repo, nodes.into_iter()).unwrap()).collect();
        let without: Vec<&str> = repos
            .iter()
            .map(|repo| first(repo, nodes.into_iter().filter(|node| *node != "c")).unwrap())
            .collect();
        for (before, after) in all.iter().zip(&without) {
            assert!(before == after || *before == "c", "{before} → {after}");
        }
        for node in nodes {
            let count = all.iter().filter(|first| **first == node).count();
            assert!((60..=140).contains(&count), "{node} has {count} of 400");
        }
    }

    #[test]
    fn a_repository_has_one_poller_for_as_long_as_its_session() {
        let own = SessionId { node: "a".into(), session: 1 };
        let other = SessionId { node: "b".into(), session: 1 };
        let cell = taken(&RepoCell::default(), false, true, &own).unwrap();
        assert_eq!(taken(&RepoCell::default(), false, false, &own), None, "another comes first");
        assert_eq!(taken(&cell, true, true, &other), None);
        assert_eq!(taken(&cell, false, true, &other).unwrap().poller, Some(other));
        assert_eq!(handed_over(&cell, true, &own), None);
        assert_eq!(handed_over(&cell, false, &own).unwrap().poller, None);
    }
}
