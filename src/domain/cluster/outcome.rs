//! What became of a write without an answer: it is read from what stands there now, and sent again only where nothing does.

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is there, at this place.
    There(u64),
    /// Another write is in its place: it is not there, and never will be.
    Overtaken,
    /// Nothing has changed: it may be sent again, with the same id.
    Open,
}

/// Of an append behind `after`. `next`: place of the first message behind it, and whether that has the append's own id; `last`: where
/// the subject ends.
pub fn of_append(after: u64, next: Option<(u64, bool)>, last: u64) -> WriteOutcome {
    match next {
        Some((place, true)) => WriteOutcome::There(place),
        Some((_, false)) => WriteOutcome::Overtaken,
        // A subject that ends before the place was never as the writer believes.
        None if last != after => WriteOutcome::Overtaken,
        None => WriteOutcome::Open,
    }
}

/// Of a commit of several cells. Of each: its revision now, the one that the change follows, and whether the commit's own id is on it.
pub fn of_commit(cells: impl Iterator<Item = (u64, u64, bool)>) -> WriteOutcome {
    let (mut own, mut moved) = (None, false);
    for (now, after, is_own) in cells {
        moved |= now != after;
        if is_own {
            own = own.max(Some(now));
        }
    }
    // If another write followed on every one of them, the commit's own values tell, as for any commit with an error.
    match (own, moved) {
        (Some(revision), _) => WriteOutcome::There(revision),
        (None, true) => WriteOutcome::Overtaken,
        (None, false) => WriteOutcome::Open,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_there_tells_what_became_of_a_write() {
        assert_eq!(of_append(4, Some((9, true)), 9), WriteOutcome::There(9));
        assert_eq!(
            of_append(4, Some((9, true)), 12),
            WriteOutcome::There(9),
            "others may have gone on behind it"
        );
        assert_eq!(of_append(4, Some((9, false)), 9), WriteOutcome::Overtaken);
        assert_eq!(of_append(4, None, 4), WriteOutcome::Open);
        assert_eq!(of_append(4, None, 3), WriteOutcome::Overtaken, "an older copy");
        let commit = |cells: &[(u64, u64, bool)]| of_commit(cells.iter().copied());
        assert_eq!(commit(&[(5, 5, false), (6, 6, false)]), WriteOutcome::Open);
        assert_eq!(commit(&[(7, 5, true), (8, 6, true)]), WriteOutcome::There(8));
        assert_eq!(
            commit(&[(9, 5, false), (8, 6, true)]),
            WriteOutcome::There(8),
            "one of them was changed again"
        );
        assert_eq!(commit(&[(9, 5, false), (6, 6, false)]), WriteOutcome::Overtaken);
    }
}
