//! One issue from label to pull request: seven rooms, walked in one direction. Start with [`walk`].

pub mod request;
pub mod refusal;
pub mod site;
pub mod open;
pub mod issue_file;
pub mod mapping_format;
pub mod watch;
pub mod plan;
pub mod origin;
pub mod lease;
pub mod run;
pub mod worktree;
pub mod task;
pub mod toolbox;
pub mod instance;
pub mod steps;
pub mod commit;
pub mod testimony;
pub mod evidence;
pub mod page;
pub mod record;
pub mod report;
pub mod recovery;
pub mod publish;
pub mod walk;
