//! What people write about an issue and its pull request: whose words count, what a run is told of them, what is answered.

pub mod checks;
pub mod standing;
pub mod inbox;
pub mod answers;
pub mod parked;
pub mod briefing;
pub mod issue_text;
