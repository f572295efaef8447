//! The context guard: four counters, one projection, one limit per target (A-013…A-025).

use super::token_estimate::{MessageSize, TokenEstimate, ToolSizes};
use crate::domain::image::IMAGE_TOKENS;
use crate::domain::message::{Message, TokenUsage};
use crate::domain::model_target::ModelTarget;

/// The token counters of one session. The fourth counter, the capacity, belongs to the target.
///
/// The provider's count of the input includes the tool schemas. They are counted a second time, because of the rule
/// `expected = ctx + new + schema`. So the projection is too high by the schemas, which is the safe side.
#[derive(Debug, Clone, Default)]
pub struct ContextGuard {
    current: u64,
    pending: u64,
    schema: u64,
    /// What is estimated for images: it says nothing of how well texts are estimated.
    images: u64,
    estimate: TokenEstimate,
}

/// The addends of one evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Projection {
    /// Committed conversation.
    pub current: u64,
    /// Appended, not yet committed.
    pub pending: u64,
    /// Tokens of the running tool phase, or of guidance that is sent but not kept.
    pub new: u64,
    /// Schemas of the tools offered.
    pub schema: u64,
}

impl Projection {
    /// `current + pending + new + schema`.
    pub fn total(&self) -> u64 {
        self.current.saturating_add(self.pending).saturating_add(self.new).saturating_add(self.schema)
    }

    /// Everything appended since the last request.
    pub fn new_tokens(&self) -> u64 {
        self.pending.saturating_add(self.new)
    }

    /// `projected > limit`; equality fits.
    pub fn overflows(&self, limit: u64) -> bool {
        self.total() > limit
    }
}

impl ContextGuard {
    /// The session's estimates.
    pub fn estimate(&self) -> &TokenEstimate {
        &self.estimate
    }

    /// Messages were appended to the conversation; they are pending until a reply is accepted.
    pub fn append<'a>(&mut self, messages: impl IntoIterator<Item = &'a Message>) {
        self.pending = self.pending.saturating_add(self.estimate.messages(messages));
    }

    /// Tokens of a finished tool's output were appended.
    pub fn append_tokens(&mut self, tokens: u64) {
        self.pending = self.pending.saturating_add(tokens);
    }

    /// Images were put before the conversation.
    pub fn append_images(&mut self, count: usize) {
        self.images = IMAGE_TOKENS.saturating_mul(count as u64);
        self.append_tokens(self.images);
    }

    /// These tools will be offered. The count is made from exactly what is sent.
    pub fn set_tools(&mut self, tools: &ToolSizes) {
        self.schema = self.estimate.tools(tools);
    }

    /// What a request would have, with `new` tokens more.
    pub fn project(&self, new: u64) -> Projection {
        Projection { current: self.current, pending: self.pending, new, schema: self.schema }
    }

    /// A reply was accepted, so pending tokens become committed. The provider's count replaces the estimates.
    pub fn commit(
        &mut self,
        sent: MessageSize,
        tools: &ToolSizes,
        usage: Option<&TokenUsage>,
        reply: &Message,
    ) {
        match usage {
            Some(usage) => {
                let counted = usage
                    .input_tokens
                    .saturating_add(usage.cache_read_input_tokens)
                    .saturating_add(usage.cache_write_input_tokens);
                self.estimate.observe(sent, tools, counted.saturating_sub(self.images));
                self.current = counted.saturating_add(usage.output_tokens);
            }
            None => {
                self.current =
                    self.current.saturating_add(self.pending).saturating_add(self.estimate.message(reply));
            }
        }
        self.pending = 0;
    }
}

/// The most that fits into some target; 0 when there is none.
pub fn widest_limit<'a>(targets: impl IntoIterator<Item = &'a ModelTarget>) -> u64 {
    targets.into_iter().filter_map(ModelTarget::context_limit).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(bytes: usize) -> Message {
        Message::User { content: "x".repeat(bytes) }
    }

    #[test]
    fn a_015_the_first_request_has_no_context_and_the_next_has_what_the_provider_counted() {
        let mut guard = ContextGuard::default();
        guard.append([&user(400)]);
        let first = guard.project(0);
        assert_eq!((first.current, first.pending), (0, 104));
        let usage = TokenUsage::new(100, 20, 30, 10);
        guard.commit(MessageSize::of([&user(400)]), &ToolSizes::default(), Some(&usage), &user(0));
        let second = guard.project(0);
        assert_eq!((second.current, second.pending), (160, 0));
    }

    #[test]
    fn a_016_two_results_are_pending_once_each() {
        let mut guard = ContextGuard::default();
        guard.append_tokens(100);
        guard.append_tokens(50);
        assert_eq!(guard.project(0).new_tokens(), 150);
        guard.commit(MessageSize::default(), &ToolSizes::default(), None, &user(0));
        assert_eq!(guard.project(0).new_tokens(), 0);
        assert_eq!(guard.project(0).current, 154, "no usage: the estimates are committed");
    }

    #[test]
    fn a_019_equality_fits_and_one_more_does_not() {
        let projection = Projection { current: 1, pending: 2, new: 3, schema: 4 };
        assert!(!projection.overflows(10));
        assert!(projection.overflows(9));
    }
}
