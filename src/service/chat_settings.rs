//! What a host may set for one conversation; the rest is the configuration's `[chat]` (S-006, S-038…S-040).

use std::time::Duration;

use super::history::InvalidRequest;
use crate::config::Config;
use crate::domain::model_target::SessionSettings;

/// Most iterations that a conversation may have.
const MOST_ITERATIONS: u32 = 50;

/// Settings of one conversation. [`AgentConfig::of`] gives the configuration's; each setter checks its range.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentConfig {
    model: Option<String>,
    temperature: Option<f64>,
    max_output_tokens: u64,
    max_iterations: u32,
    turn_timeout: Duration,
    history_warning: usize,
    instructions: Option<String>,
}

impl AgentConfig {
    /// What `[chat]` says: 15 iterations, 1000 tokens, 30 seconds unless it says otherwise.
    pub fn of(config: &Config) -> Self {
        let chat = &config.chat;
        Self {
            model: None,
            temperature: None,
            max_output_tokens: chat.max_output_tokens,
            max_iterations: chat.max_iterations,
            turn_timeout: chat.turn_timeout.0,
            history_warning: chat.history_warning as usize,
            instructions: None,
        }
    }

    /// Asks only this one of the configured targets, by its model's name.
    #[must_use]
    pub fn model(self, model: impl Into<String>) -> Self {
        Self { model: Some(model.into()), ..self }
    }

    /// Sampling temperature, 0 to 2.
    pub fn temperature(self, temperature: f64) -> Result<Self, InvalidRequest> {
        in_range((0.0..=2.0).contains(&temperature), "temperature is not between 0 and 2")?;
        Ok(Self { temperature: Some(temperature), ..self })
    }

    /// Most tokens of one reply.
    pub fn max_output_tokens(self, tokens: u64) -> Result<Self, InvalidRequest> {
        in_range(tokens > 0, "max_output_tokens is 0")?;
        Ok(Self { max_output_tokens: tokens, ..self })
    }

    /// Turns with tools, 1 to 50; one more is for the summary (C-07).
    pub fn max_iterations(self, iterations: u32) -> Result<Self, InvalidRequest> {
        in_range((1..=MOST_ITERATIONS).contains(&iterations), "max_iterations is not between 1 and 50")?;
        Ok(Self { max_iterations: iterations, ..self })
    }

    /// Longest time of one turn: its request and, with what that leaves, its tools.
    pub fn turn_timeout(self, timeout: Duration) -> Result<Self, InvalidRequest> {
        in_range(!timeout.is_zero(), "turn_timeout is 0")?;
        Ok(Self { turn_timeout: timeout, ..self })
    }

    /// The host's own instructions, behind agentd's.
    #[must_use]
    pub fn instructions(self, text: impl Into<String>) -> Self {
        Self { instructions: Some(text.into()), ..self }
    }

    pub(super) fn iterations(&self) -> u32 {
        self.max_iterations
    }

    pub(super) fn timeout(&self) -> Duration {
        self.turn_timeout
    }

    pub(super) fn own_instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// The warning about a history of `messages` messages, if it is too long to be sure of (S-041).
    pub(super) fn history_warning(&self, messages: usize) -> Option<String> {
        let most = self.history_warning;
        (messages > most).then(|| {
            format!(
                "The history has {messages} messages, more than {most}. All of them were sent; shorten it before it no longer fits the model."
            )
        })
    }

    /// The session's settings with this conversation's limits.
    pub(super) fn apply(&self, session: &SessionSettings) -> Result<SessionSettings, InvalidRequest> {
        let mut settings = session.clone();
        settings.max_turns = self.max_iterations.saturating_add(1);
        if let Some(model) = &self.model {
            settings.targets.retain(|target| target.model == *model);
            in_range(!settings.targets.is_empty(), "model is none of the configured targets")?;
        }
        for target in &mut settings.targets {
            target.max_output_tokens = self.max_output_tokens;
            target.temperature = self.temperature.or(target.temperature);
            in_range(
                target.context_limit().is_some(),
                "max_output_tokens leave no room in the model's context window",
            )?;
        }
        Ok(settings)
    }
}

fn in_range(fits: bool, wrong: &str) -> Result<(), InvalidRequest> {
    if fits { Ok(()) } else { Err(InvalidRequest(wrong.to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> AgentConfig {
        AgentConfig {
            model: None,
            temperature: None,
            max_output_tokens: 1000,
            max_iterations: 15,
            turn_timeout: Duration::from_secs(30),
            history_warning: 50,
            instructions: None,
        }
    }

    #[test]
    fn s_006_ranges_are_checked_where_a_value_is_set() {
        assert!(config().temperature(2.1).is_err() && config().temperature(0.0).is_ok());
        assert!(config().max_iterations(0).is_err() && config().max_iterations(51).is_err());
        assert!(config().max_output_tokens(0).is_err());
        assert!(config().turn_timeout(Duration::ZERO).is_err());
    }

    #[test]
    fn s_041_more_than_fifty_messages_are_warned_about() {
        assert_eq!(config().history_warning(50), None);
        assert!(config().history_warning(51).unwrap().contains("51 messages"));
    }
}
