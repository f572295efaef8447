//! What a run knows of its status comment while it works.

/// How often a status comment that people delete is made again by a run.
const MADE_AGAIN: u32 = 1;

/// The status comment of a run.
#[derive(Debug, Default)]
pub struct StatusComment {
    /// The run has begun to write its end there.
    pub ends: bool,
    /// How often it was made anew because somebody had deleted it.
    made_again: u32,
    /// Whether people deleted it again.
    unwanted: bool,
}

impl StatusComment {
    /// Whether it may be written, now that it was looked for.
    pub fn may_write(&mut self, is_there: bool) -> bool {
        if !is_there && !self.unwanted {
            self.unwanted = self.made_again >= MADE_AGAIN;
            self.made_again += 1;
        }
        !self.unwanted
    }
}
