//! Who polls a repository: of the living nodes that have it, the one that comes first by a hash of both names. So nodes that
//! come and go move few repositories, and all nodes agree without asking each other.

use super::cells::{RepoCell, SessionId};
use crate::domain::canonical::sha256_hex;

/// The node that polls a repository, of those that live and have it.
pub fn first<'a>(repo: &str, nodes: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    nodes.max_by_key(|node| sha256_hex(format!("{node}\n{repo}").as_bytes()))
}

/// The repository's cell with this session as its poller, where no living one polls it. It is written together with the taker's own cell,
/// so that a session that has expired takes nothing.
pub fn taken(cell: &RepoCell, poller_lives: bool, own: &SessionId) -> Option<RepoCell> {
    let has = cell.poller.as_ref().is_some_and(|poller| poller_lives || poller == own);
    (!has).then(|| RepoCell { poller: Some(own.clone()), ..cell.clone() })
}

/// The repository's cell with another session as its poller; `None` where this one does not poll it.
pub fn handed_over(cell: &RepoCell, to: &SessionId, own: &SessionId) -> Option<RepoCell> {
    let own_one = cell.poller.as_ref() == Some(own);
    own_one.then(|| RepoCell { poller: Some(to.clone()), ..cell.clone() })
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
        let cell = taken(&RepoCell::default(), false, &own).unwrap();
        assert_eq!(taken(&cell, true, &other), None);
        assert_eq!(taken(&cell, false, &other).unwrap().poller, Some(other.clone()));
        assert_eq!(handed_over(&cell, &own, &other), None, "it is not that one's");
        assert_eq!(handed_over(&cell, &other, &own).unwrap().poller, Some(other));
    }
}
