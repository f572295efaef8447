//! `[session]`, ready for use. The targets are checked here, because only a session needs them.

use std::collections::BTreeMap;

use super::config_file::{PriceTable, SessionTable, TargetTable};
use super::error::ConfigError;
use super::settings::{Config, Session};
use super::source_format::Source;
use crate::domain::model_target::{LoopLimits, ModelTarget, Price, SessionSettings};

/// Name of the queue that always exists.
pub const DEFAULT_QUEUE: &str = "default";

impl Config {
    /// Limits and targets of a session.
    ///
    /// # Errors
    /// No target; a target without provider, without room for context, or without a price where someone set a
    /// cap on costs (D87).
    pub fn session(&self) -> Result<Session, ConfigError> {
        if self.file.session.targets.is_empty() {
            return Err(self.invalid(
                "session.targets",
                "no model is configured; add [[session.targets]] with provider and model, and [providers.NAME]",
            ));
        }
        self.session_of_programs()
    }

    /// Like [`Config::session`], for runs in which agentd itself asks no model and needs no target.
    ///
    /// # Errors
    /// As there, for the targets that there are.
    pub fn session_of_programs(&self) -> Result<Session, ConfigError> {
        let table = &self.file.session;
        let mut found = Vec::new();
        let mut targets = Vec::new();
        for (index, target) in table.targets.iter().enumerate() {
            match self.target(table, target, &format!("session.targets[{index}]")) {
                Ok(target) => targets.push(target),
                Err(error) => found.push(error),
            }
        }
        ConfigError::all(found)?;
        Ok(Session {
            settings: SessionSettings {
                max_turns: table.max_turns,
                max_tool_calls_per_turn: table.max_tool_calls_per_turn,
                max_retries: table.max_retries,
                llm_timeout: table.llm_timeout.0,
                tool_timeout: table.tool_timeout.0,
                tool_response_max_bytes: table.tool_response_max_bytes,
                targets,
                stream: table.stream,
                on_auth_error: table.on_auth_error,
                on_quota: table.on_quota,
                loop_guard: LoopLimits {
                    window: table.loop_guard.window,
                    threshold: table.loop_guard.threshold,
                    overrides: table.loop_guard.overrides,
                },
                schema_repair_attempts: table.schema_repair_attempts,
                read_page_lines: table.read_page_lines,
            },
            retry_backoff: table.retry_backoff.0,
            retry_backoff_max: table.retry_backoff_max.0,
        })
    }

    /// The tool queues and how many calls run in each at a time; holds `default` always.
    pub fn queues(&self) -> BTreeMap<String, u32> {
        queues(&self.file.session)
    }

    /// Longest time of one tool call.
    pub fn tool_timeout(&self) -> std::time::Duration {
        self.file.session.tool_timeout.0
    }

    /// Longest text that stands inline in a record, in bytes.
    pub fn longest_inline(&self) -> usize {
        usize::try_from(self.file.session.inline_payload_max_bytes).unwrap_or(usize::MAX)
    }

    /// Most lines of one page that a tool reads.
    pub fn page_lines(&self) -> u32 {
        self.file.session.read_page_lines
    }

    fn target(
        &self,
        session: &SessionTable,
        table: &TargetTable,
        key: &str,
    ) -> Result<ModelTarget, ConfigError> {
        if !self.file.providers.contains_key(&table.provider) {
            let message = format!(
                "is \"{0}\", but there is no [providers.{0}]; add it with kind and api_key",
                table.provider
            );
            return Err(self.invalid(&format!("{key}.provider"), &message));
        }
        let target = ModelTarget {
            provider: table.provider.clone(),
            model: table.model.clone(),
            context_window: table.context_window,
            context_window_buffer: table.context_window_buffer,
            max_output_tokens: table.max_output_tokens.unwrap_or(session.max_output_tokens),
            temperature: table.temperature.or(session.temperature),
            images: table.images,
            price: table.price.map(price),
        };
        if target.context_limit().is_none() {
            let message = format!(
                "{} tokens leave no room for a conversation after the buffer ({}) and the reply ({}); raise \
                 context_window or lower max_output_tokens",
                target.context_window, target.context_window_buffer, target.max_output_tokens
            );
            return Err(self.invalid(&format!("{key}.context_window"), &message));
        }
        let caps = [
            ("budgets.max_cost", true),
            ("budgets.max_cost_per_day", self.budgets.max_cost_per_day.is_some()),
            ("budgets.max_cost_per_issue", self.budgets.max_cost_per_issue.is_some()),
        ];
        let set = |(cap, is_cap): &(&str, bool)| *is_cap && self.source(cap) != Source::Default;
        let cap = caps.into_iter().find(set).map(|(cap, _)| cap);
        match cap {
            Some(cap) if target.price.is_none() => {
                let message = format!(
                    "`{cap}` is set ({}), but what {} costs is unknown; add price = {{ input = …, output = … }} in US \
                     dollars per million tokens",
                    self.source(cap),
                    target.model
                );
                Err(self.invalid(&format!("{key}.price"), &message))
            }
            _ => Ok(target),
        }
    }
}

fn price(table: PriceTable) -> Price {
    Price {
        input: table.input,
        output: table.output,
        cache_read: table.cache_read.unwrap_or(table.input),
        cache_write: table.cache_write.unwrap_or(table.input),
    }
}

fn queues(table: &SessionTable) -> BTreeMap<String, u32> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let default = u32::try_from(2 * cores).unwrap_or(u32::MAX).min(64);
    let mut queues: BTreeMap<_, _> =
        table.queues.iter().map(|(name, queue)| (name.clone(), queue.concurrent)).collect();
    queues.entry(DEFAULT_QUEUE.to_owned()).or_insert(default);
    queues
}
