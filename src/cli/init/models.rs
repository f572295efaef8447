//! What `init` writes of models and agent programs: the provider, the model and its price.

use serde_json::{Value, json};

use crate::cli::args::BackendChoice;

/// A provider with a model, as the configuration names them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Model {
    /// Name of the provider's table.
    pub provider: &'static str,
    /// Its wire.
    pub kind: &'static str,
    /// Variable with its key.
    pub variable: &'static str,
    /// The model.
    pub name: &'static str,
    /// Tokens of its window.
    pub window: u32,
    /// Dollars per million tokens, as an inline table.
    pub price: &'static str,
}

const ANTHROPIC: Model = Model {
    provider: "anthropic",
    kind: "anthropic",
    variable: "ANTHROPIC_API_KEY",
    name: "claude-sonnet-4-5",
    window: 200_000,
    price: "{ input = 3.0, output = 15.0, cache_read = 0.3, cache_write = 3.75 }",
};
const OPENAI: Model = Model {
    provider: "openai",
    kind: "openai-responses",
    variable: "OPENAI_API_KEY",
    name: "gpt-5-codex",
    window: 400_000,
    price: "{ input = 1.25, output = 10.0, cache_read = 0.125, cache_write = 0.0 }",
};
const GEMINI: Model = Model {
    provider: "gemini",
    kind: "gemini",
    variable: "GEMINI_API_KEY",
    name: "gemini-2.5-pro",
    window: 1_048_576,
    price: "{ input = 1.25, output = 10.0, cache_read = 0.31, cache_write = 0.0 }",
};

/// The model to write: the program's usual one, else that of agentd's own session.
pub(super) fn model(backend: Option<BackendChoice>) -> Model {
    let usual = backend.and_then(|BackendChoice(backend)| backend.facts().init);
    let known =
        [OPENAI, GEMINI].into_iter().find(|model| usual.is_some_and(|of| of.provider == model.provider));
    known.unwrap_or(ANTHROPIC)
}

/// The program's word in a definition, and the name under which it is started.
pub(super) fn words(BackendChoice(backend): BackendChoice) -> (&'static str, &'static str) {
    (backend.as_str(), backend.facts().program.unwrap_or_default())
}

/// `program` of a definition: its model, in the program's own words, through an endpoint whose key it does not have.
pub(super) fn program(backend: BackendChoice) -> Value {
    let model = model(Some(backend));
    let by_provider = backend.0.facts().init.is_some_and(|init| init.by_provider);
    let name = match by_provider {
        true => format!("{}/{}", model.provider, model.name),
        false => model.name.to_owned(),
    };
    json!({ "model": name, "endpoints": [model.provider], "timeLimit": "20m" })
}
