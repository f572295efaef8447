//! Estimates of tokens before a provider has counted them, calibrated by what it counted (D93).

use serde_json::Value;

use crate::domain::message::{Message, ToolSpec};

/// The bytes of an average token, as a rule of thumb before calibration.
const BYTES_PER_TOKEN: u64 = 4;
/// Roles, separators and ids around a message.
const PER_MESSAGE: u64 = 4;
/// A provider that counts more than this many times our estimate is not believed further.
const HIGHEST_RATIO: u64 = 4;

/// The estimates of one session. They are corrected upwards only, since a high estimate is safe.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenEstimate {
    observed: u64,
    estimated: u64,
}

impl TokenEstimate {
    /// Tokens of a text.
    pub fn text(&self, text: &str) -> u64 {
        self.calibrated(bytes(text.len()))
    }

    /// Tokens of one message.
    pub fn message(&self, message: &Message) -> u64 {
        self.calibrated(uncalibrated(message))
    }

    /// Tokens of messages.
    pub fn messages<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) -> u64 {
        messages.into_iter().map(|message| self.message(message)).sum()
    }

    /// The tokens of the schemas that are sent, exactly as they are sent.
    pub fn tools(&self, tools: &ToolSizes) -> u64 {
        tools.0.iter().map(|tokens| self.calibrated(*tokens)).sum()
    }

    /// The most tokens that `bytes` bytes of text can have by this estimate.
    pub fn bytes(&self, bytes_of_text: u64) -> u64 {
        self.calibrated(bytes_of_text.div_ceil(BYTES_PER_TOKEN))
    }

    /// Learns from an accepted reply how many tokens the provider counted for a request of messages of this size and these
    /// tools.
    pub fn observe(&mut self, messages: MessageSize, tools: &ToolSizes, counted: u64) {
        let sent: u64 = tools.0.iter().fold(messages.0, |sum, tool| sum.saturating_add(*tool));
        self.observed = self.observed.saturating_add(counted);
        self.estimated = self.estimated.saturating_add(sent);
    }

    fn calibrated(&self, tokens: u64) -> u64 {
        if self.observed <= self.estimated {
            return tokens;
        }
        let scaled =
            (u128::from(tokens) * u128::from(self.observed)).div_ceil(u128::from(self.estimated.max(1)));
        u64::try_from(scaled).unwrap_or(u64::MAX).min(tokens.saturating_mul(HIGHEST_RATIO))
    }
}

/// Tokens of so many bytes that a model wrote, as a rule of thumb.
pub fn tokens_of_bytes(len: usize) -> u64 {
    bytes(len)
}

fn bytes(len: usize) -> u64 {
    (len as u64).div_ceil(BYTES_PER_TOKEN)
}

fn uncalibrated(message: &Message) -> u64 {
    PER_MESSAGE
        + match message {
            Message::System { content } | Message::User { content } | Message::Tool { content, .. } => {
                bytes(content.len())
            }
            Message::Assistant { content, reasoning, tool_calls } => {
                let calls: u64 = tool_calls
                    .iter()
                    .map(|call| PER_MESSAGE + bytes(call.name.len() + call.arguments.len()))
                    .sum();
                bytes(content.len()) + reasoning.as_ref().map_or(0, json_bytes) + calls
            }
        }
}

/// Uncalibrated tokens of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageSize(u64);

impl MessageSize {
    /// With one more.
    #[must_use]
    pub fn and(self, message: &Message) -> Self {
        Self(self.0.saturating_add(uncalibrated(message)))
    }

    /// Measures.
    pub fn of<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Self {
        messages.into_iter().fold(Self::default(), Self::and)
    }
}

/// Uncalibrated tokens of each tool offered; measured once, as the tools of a session stay the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolSizes(Vec<u64>);

impl ToolSizes {
    /// Measures.
    pub fn of(tools: &[ToolSpec]) -> Self {
        Self(tools.iter().map(tool_bytes).collect())
    }
}

fn tool_bytes(tool: &ToolSpec) -> u64 {
    PER_MESSAGE + bytes(tool.name.len() + tool.description.len()) + json_bytes(&tool.parameters)
}

fn json_bytes(value: &Value) -> u64 {
    bytes(value.to_string().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(text: &str) -> Message {
        Message::User { content: text.to_owned() }
    }

    #[test]
    fn a_016_a_text_of_400_bytes_is_about_a_hundred_tokens() {
        assert_eq!(TokenEstimate::default().message(&user(&"x".repeat(400))), 104);
    }

    #[test]
    fn d93_what_a_provider_counted_raises_later_estimates_and_never_lowers_them() {
        let messages = [user(&"x".repeat(4000))];
        let none = ToolSizes::default();
        let mut estimate = TokenEstimate::default();
        let before = estimate.messages(&messages);
        estimate.observe(MessageSize::of(&messages), &none, before * 2);
        assert_eq!(estimate.messages(&messages), before * 2);
        let mut low = TokenEstimate::default();
        low.observe(MessageSize::of(&messages), &none, 1);
        assert_eq!(low.messages(&messages), before);
        let mut absurd = TokenEstimate::default();
        absurd.observe(MessageSize::of(&messages), &none, u64::MAX);
        assert_eq!(absurd.messages(&messages), before * 4);
    }
}
