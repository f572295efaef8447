//! How many files and connections this process may have open, and how they are shared out.

/// The most that the soft limit is raised to. It is enough for agentd, and small enough for programs that inherit it
/// and loop over all numbers.
const ENOUGH: u64 = 65_536;
/// What counts where the system does not say.
const USUAL: u64 = 1024;

/// Raises the soft limit towards the hard one, and says what it is now.
#[cfg(unix)]
pub fn raise() -> u64 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return USUAL };
    let wanted = hard.min(ENOUGH);
    if soft < wanted && setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).is_ok() {
        return wanted;
    }
    soft
}

/// The same where there is no such limit.
#[cfg(not(unix))]
pub fn raise() -> u64 {
    USUAL
}

/// The soft limit.
pub fn limit() -> u64 {
    #[cfg(unix)]
    {
        use nix::sys::resource::{Resource, getrlimit};
        getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(soft, _)| soft)
    }
    #[cfg(not(unix))]
    USUAL
}

/// A part of the limit, between a least and a most.
pub fn share(part: u64, most: usize) -> usize {
    let share = limit() / part.max(1);
    usize::try_from(share).unwrap_or(most).clamp(4, most.max(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_leave_room_for_work_and_never_end_at_nothing() {
        assert!(share(4, usize::MAX) as u64 <= limit() / 4);
        assert_eq!(share(u64::MAX, 100), 4);
        assert_eq!(share(1, 7), 7);
    }
}
