//! `[conversation]` as people write it: whose words count, and how much of them a run is told.

use std::time::Duration;

use serde::Serialize;

use super::duration::Span;
use super::table_file::table;
use crate::domain::policy::ActorPermission;
use crate::domain::words::{words, words_of_a_format};

table! {
    /// `[conversation]`.
    #[derive(PartialEq, Eq)]
    pub struct ConversationTable {
        /// Least permission of people whose words are part of the task: `read`, `triage`, `write`, `maintain` or `admin`;
        /// empty = `github.min_permission`.
        pub trusted: String = String::new(),
        /// Logins whose words are part of the task whatever they may do in the repository.
        pub trusted_logins: Vec<String> = Vec::new(),
        /// Logins of machine accounts whose remarks are told; other bots are not.
        pub bots: Vec<String> = Vec::new(),
        /// What is told of the remarks of people who are not trusted. `author`: Those of the author. `quote`: All of
        /// them, as information. `omit`: None.
        pub outsiders: Outsiders = Outsiders::Author,
        /// Name whose mention (`@NAME`) starts a follow-up run; empty = agentd's own account.
        pub mention: String = String::new(),
        /// What trusted people do on an open pull request that starts a follow-up run. What starts none is told by the next run.
        /// `changes_requested`: A review that asks for changes. `review_comments`: A comment on lines, and a reply to one.
        /// `approval`: An approving review. `mention`: A mention of agentd. `comment`: Any other comment.
        pub start_on: Vec<StartOn> = vec![StartOn::ChangesRequested, StartOn::ReviewComments, StartOn::Mention],
        /// How long nothing more may have come before a follow-up run takes all that waits, by GitHub's clock.
        pub quiet_period: Span = Span(Duration::from_secs(90)),
        /// Longest time from the first remark that waits to the start of its follow-up run.
        pub max_wait: Span = Span(Duration::from_secs(600)),
        /// Follow-up runs of one pull request, whatever starts them; then a person is asked.
        pub max_rounds: u32 = 20,
        /// Follow-up runs that bots in `bots` start until a trusted person writes again.
        pub max_bot_rounds: u32 = 1,
        /// Most characters of all remarks together that are told.
        pub max_chars: usize = 60_000,
        /// Most characters of one remark that are told.
        pub max_chars_each: usize = 8_000,
        /// Most pages of a hundred remarks that are read: the first and the last ones.
        pub max_pages: u32 = 10,
        /// Most issues of the same repository, named in trusted text, that are told.
        pub max_links: usize = 5,
        /// Most images that models are handed, of `session.targets` with `images`.
        pub max_images: usize = 8,
        /// Most bytes of one of them.
        pub max_image_bytes: u64 = 5_242_880,
        /// Names of the files with the repository's rules, read at the origin commit.
        pub rules: Vec<String> = ["AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md"].map(str::to_owned).to_vec(),
        /// Most characters of rules that are told at the start.
        pub max_rules_chars: usize = 20_000,
        /// Path of the pull request template, where there are several; empty = GitHub's default one.
        pub pull_request_template: String = String::new(),
        /// Which answered threads are resolved. `never`: None. `bots`: Those of bots that led to a change. `changed`: All that led
        /// to a change.
        pub resolve: Resolve = Resolve::Never,
        /// Shortest time from one edit of the status comment of a working run to the next.
        pub progress_interval: Span = Span(Duration::from_secs(60)),
        /// Whether people who asked for changes are asked for another review, once a follow-up run.
        pub rerequest_review: bool = true,
    }
}

words! {
    /// What is told of the remarks of people who are not trusted. The body is told whoever wrote it.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Outsiders {
        /// Those of the author.
        #[default]
        Author = "author",
        /// All of them, as information.
        Quote = "quote",
        /// None.
        Omit = "omit",
    }
}
words_of_a_format!(Outsiders, "Outsiders", "What is told of the remarks of people who are not trusted.");

words! {
    /// Which answered threads are resolved: only where the verify commands pass and nobody wrote after the answer.
    #[derive(Default, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Resolve {
        /// None.
        #[default]
        Never = "never",
        /// Those of bots that led to a change.
        Bots = "bots",
        /// All that led to a change.
        Changed = "changed",
    }
}
words_of_a_format!(Resolve, "Resolve", "Which answered threads are resolved.");

words! {
    /// What somebody does on an open pull request.
    #[derive(PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum StartOn {
        /// A review that asks for changes.
        ChangesRequested = "changes_requested",
        /// A comment on lines, in a review or by itself, and a reply to one.
        ReviewComments = "review_comments",
        /// An approving review, with its comments.
        Approval = "approval",
        /// A mention of agentd.
        Mention = "mention",
        /// Any other comment.
        Comment = "comment",
    }
}
words_of_a_format!(
    StartOn,
    "StartOn",
    "What trusted people do on an open pull request that starts a follow-up run."
);

impl ConversationTable {
    /// Least permission of trusted people; `least` is the permission that starting a run takes.
    pub fn trusted_from(&self, least: ActorPermission) -> ActorPermission {
        ActorPermission::parse(self.trusted.trim()).unwrap_or(least)
    }

    /// Whether a person is named as trusted.
    pub fn trusts(&self, login: &str) -> bool {
        named(&self.trusted_logins, login)
    }

    /// Whether a machine account's remarks are told.
    pub fn tells_bot(&self, login: &str) -> bool {
        named(&self.bots, login)
    }
}

/// GitHub's logins differ by more than their case.
fn named(list: &[String], login: &str) -> bool {
    list.iter().any(|name| name.trim().trim_start_matches('@').eq_ignore_ascii_case(login))
}
