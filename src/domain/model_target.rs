//! Model targets and session settings: which models a session may ask, and within which limits.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::message::TokenUsage;
use super::money::Money;

/// One entry of `[[session.targets]]`; attempt k of a turn uses target (k−1) mod n.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelTarget {
    /// Key under `[providers]`.
    pub provider: String,
    /// Model name as the provider knows it.
    pub model: String,
    /// Capacity in tokens.
    pub context_window: u64,
    /// Tokens kept free.
    pub context_window_buffer: u64,
    /// Most tokens of one reply.
    pub max_output_tokens: u64,
    /// Sampling temperature; `None` = not sent (D80).
    pub temperature: Option<f64>,
    /// Whether it is handed images.
    #[serde(default)]
    pub images: bool,
    /// Price table; `None` = the provider's own figure or unknown.
    pub price: Option<Price>,
}

impl ModelTarget {
    /// `context_window − buffer − max_output_tokens`; `None` when nothing is left (a configuration error, A-018).
    pub fn context_limit(&self) -> Option<u64> {
        self.context_window
            .checked_sub(self.context_window_buffer)?
            .checked_sub(self.max_output_tokens)
            .filter(|limit| *limit > 0)
    }
}

/// US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Uncached input.
    pub input: f64,
    /// Output, reasoning included.
    pub output: f64,
    /// Input read from the provider's cache.
    pub cache_read: f64,
    /// Input written to the provider's cache.
    pub cache_write: f64,
}

impl Price {
    /// Cost of a request, to the nearest micro-dollar: tokens × dollars per million = micro-dollars.
    pub fn cost(&self, tokens: &TokenUsage) -> Money {
        let micros = tokens.input_tokens as f64 * self.input
            + tokens.output_tokens as f64 * self.output
            + tokens.cache_read_input_tokens as f64 * self.cache_read
            + tokens.cache_write_input_tokens as f64 * self.cache_write;
        Money::from_micros(micros.round().max(0.0) as u64)
    }
}

/// Limits of one session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionSettings {
    /// Absolute ceiling on turns.
    pub max_turns: u32,
    /// Calls of one reply that may run.
    pub max_tool_calls_per_turn: u32,
    /// Total attempts of a turn; 1 = no retry.
    pub max_retries: u32,
    /// One model request, and the longest silence of a stream.
    pub llm_timeout: Duration,
    /// One tool call.
    pub tool_timeout: Duration,
    /// Longest tool response that stays inline, in bytes.
    pub tool_response_max_bytes: u64,
    /// In order; never empty.
    pub targets: Vec<ModelTarget>,
    /// Ask for streamed replies.
    pub stream: bool,
    /// What refused credentials do (C-09).
    pub on_auth_error: OnFatalError,
    /// What a used-up quota does (C-09).
    pub on_quota: OnFatalError,
    /// When the same action again and again is stopped.
    pub loop_guard: LoopLimits,
    /// How often a report that breaks its schema is sent back within a turn.
    pub schema_repair_attempts: u32,
    /// Most lines of one page that a tool reads.
    pub read_page_lines: u32,
}

/// What makes a loop, and how often the model is told before the session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits {
    /// Finished actions that are looked back on.
    pub window: u32,
    /// How often the same action with the same result may be among them.
    pub threshold: u32,
    /// Refusals that tell the model, before the session ends.
    pub overrides: u32,
}

impl Default for LoopLimits {
    fn default() -> Self {
        Self { window: 3, threshold: 3, overrides: 1 }
    }
}

/// What an error does that no retry can mend (C-09).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFatalError {
    /// The session fails at once. This is the default.
    #[default]
    Fail,
    /// The target is not asked again in this session; the others are.
    SkipTarget,
}
