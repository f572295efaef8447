//! The wires by which models are asked: one entry each, with all that has to be known of a wire without speaking it.

use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::image::ImageKind;
use super::message::TokenUsage;

/// More tokens than any request uses. Larger figures of a service would overflow sums.
const MOST_TOKENS: u64 = 1 << 40;

/// What is known of a wire.
#[derive(Debug)]
pub struct ModelWire {
    /// Where its service is, if the configuration does not say (D51).
    pub base_url: &'static str,
    /// Header that carries the key, in lower case.
    pub key_header: &'static str,
    /// What stands before the key in it.
    pub key_prefix: &'static str,
    /// Further headers of each request.
    pub headers: &'static [(&'static str, &'static str)],
    /// Variable by which programs know the address.
    pub url_variable: &'static str,
    /// Variable by which programs know the key.
    pub key_variable: &'static str,
    /// Path below the base URL that lists the models.
    pub models_path: &'static str,
    /// Ends of the paths by which a model is asked for words.
    pub asking_paths: &'static [&'static str],
    /// Ends of the paths that only count tokens, which costs nothing.
    pub counting_paths: &'static [&'static str],
    /// Places of the answering model's name in a reply, or a piece of one.
    pub model_at: &'static [&'static str],
    /// Places of the token counts in a reply, or a piece of one.
    pub usage_at: &'static [&'static str],
    /// How the counts are written.
    pub usage: UsageShape,
    /// Kinds of images that its models take.
    pub image_kinds: &'static [ImageKind],
}

/// How a wire writes token counts; all places are JSON pointers.
#[derive(Debug)]
pub struct UsageShape {
    /// Keys of which each is this wire's alone; none = what no other wire knows is of this one.
    pub known_by: &'static [&'static str],
    /// Counts of input tokens, to be added up.
    pub input: &'static [&'static str],
    /// Counts of output tokens, to be added up.
    pub output: &'static [&'static str],
    /// Input that was read from the cache.
    pub cache_read: &'static str,
    /// Input that was written to the cache, where it is told.
    pub cache_write: Option<&'static str>,
    /// Whether the input counts what was read from the cache as well.
    pub input_holds_cached: bool,
}

macro_rules! model_wires {
    ($($(#[$doc:meta])* $kind:ident = $word:literal $wire:tt)+) => {
        /// The wires that agentd speaks.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum ProviderKind {
            $($(#[$doc])* #[serde(rename = $word)] $kind,)+
        }

        impl ProviderKind {
            /// Every wire.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)+];

            /// The word in a configuration.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $word,)+ }
            }

            /// What is known of it.
            pub fn wire(self) -> &'static ModelWire {
                match self { $(Self::$kind => &ModelWire $wire,)+ }
            }
        }
    };
}

model_wires! {
    /// Anthropic Messages.
    Anthropic = "anthropic" {
        base_url: "https://api.anthropic.com",
        key_header: "x-api-key",
        key_prefix: "",
        headers: &[("anthropic-version", "2023-06-01")],
        url_variable: "ANTHROPIC_BASE_URL",
        key_variable: "ANTHROPIC_API_KEY",
        models_path: "/v1/models?limit=1000",
        asking_paths: &["/messages"],
        counting_paths: &["/messages/count_tokens"],
        model_at: &["/model", "/message/model"],
        usage_at: &["/usage", "/message/usage"],
        usage: UsageShape {
            known_by: &[],
            input: &["/input_tokens"],
            output: &["/output_tokens"],
            cache_read: "/cache_read_input_tokens",
            cache_write: Some("/cache_creation_input_tokens"),
            input_holds_cached: false,
        },
        image_kinds: &ImageKind::ALL,
    }
    /// OpenAI chat completions, and every server compatible with it.
    Openai = "openai" {
        base_url: "https://api.openai.com/v1",
        key_header: "authorization",
        key_prefix: "Bearer ",
        headers: &[],
        url_variable: "OPENAI_BASE_URL",
        key_variable: "OPENAI_API_KEY",
        models_path: "/models",
        asking_paths: &["/chat/completions"],
        counting_paths: &[],
        model_at: &["/model"],
        usage_at: &["/usage"],
        usage: UsageShape {
            known_by: &["prompt_tokens"],
            input: &["/prompt_tokens"],
            output: &["/completion_tokens"],
            cache_read: "/prompt_tokens_details/cached_tokens",
            cache_write: None,
            input_holds_cached: true,
        },
        image_kinds: &ImageKind::ALL,
    }
    /// OpenAI Responses.
    OpenaiResponses = "openai-responses" {
        base_url: "https://api.openai.com/v1",
        key_header: "authorization",
        key_prefix: "Bearer ",
        headers: &[],
        url_variable: "OPENAI_BASE_URL",
        key_variable: "OPENAI_API_KEY",
        models_path: "/models",
        asking_paths: &["/responses", "/responses/compact"],
        counting_paths: &["/responses/input_tokens"],
        model_at: &["/model", "/response/model"],
        usage_at: &["/usage", "/response/usage"],
        usage: UsageShape {
            known_by: &["input_tokens_details", "total_tokens"],
            input: &["/input_tokens"],
            output: &["/output_tokens"],
            cache_read: "/input_tokens_details/cached_tokens",
            cache_write: None,
            input_holds_cached: true,
        },
        image_kinds: &ImageKind::ALL,
    }
    /// Gemini.
    Gemini = "gemini" {
        base_url: "https://generativelanguage.googleapis.com",
        key_header: "x-goog-api-key",
        key_prefix: "",
        headers: &[],
        url_variable: "GOOGLE_GEMINI_BASE_URL",
        key_variable: "GEMINI_API_KEY",
        models_path: "/v1beta/models?pageSize=1000",
        asking_paths: &[":generateContent", ":streamGenerateContent"],
        counting_paths: &[":countTokens"],
        model_at: &["/modelVersion", "/response/modelVersion"],
        usage_at: &["/usageMetadata", "/response/usageMetadata"],
        usage: UsageShape {
            known_by: &["promptTokenCount", "candidatesTokenCount"],
            input: &["/promptTokenCount", "/toolUsePromptTokenCount"],
            output: &["/candidatesTokenCount", "/thoughtsTokenCount"],
            cache_read: "/cachedContentTokenCount",
            cache_write: None,
            input_holds_cached: true,
        },
        image_kinds: &[ImageKind::Png, ImageKind::Jpeg, ImageKind::Webp],
    }
}

impl ProviderKind {
    /// The wire of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == word)
    }

    /// Whether a path asks a model of any wire for words, however it is spelled.
    pub fn asks(path: &str) -> bool {
        let path = as_read(path);
        wires().flat_map(|wire| wire.asking_paths).any(|end| path.ends_with(&end.to_lowercase()))
    }

    /// Whether a path of any wire only counts tokens.
    pub fn counts_tokens(path: &str) -> bool {
        let path = as_read(path);
        wires().flat_map(|wire| wire.counting_paths).any(|end| path.ends_with(&end.to_lowercase()))
    }

    /// The model that a reply of any wire, or a piece of it, says has answered.
    pub fn model_of(reply: &Value) -> Option<&str> {
        wires().flat_map(|wire| wire.model_at).find_map(|place| reply.pointer(place)?.as_str())
    }

    /// The tokens that a reply of any wire, or a piece of it, counts. Pieces count how many it is so far.
    pub fn tokens_of(reply: &Value) -> Option<TokenUsage> {
        let counts = wires()
            .flat_map(|wire| wire.usage_at)
            .find_map(|place| reply.pointer(place).filter(|counts| counts.is_object()))?;
        let shapes = || wires().map(|wire| &wire.usage);
        let shape = shapes()
            .find(|shape| shape.known_by.iter().any(|key| counts.get(key).is_some()))
            .or_else(|| shapes().find(|shape| shape.known_by.is_empty()))?;
        Some(shape.read(counts)).filter(|usage| usage.total_tokens > 0)
    }
}

/// A path as a server may read it: escapes as what they stand for, case, empty parts, `.` and what follows a `;` left out.
fn as_read(path: &str) -> String {
    let plain = percent_decode_str(path).decode_utf8_lossy().to_lowercase();
    let parts = plain.split('/').map(|part| part.split(';').next().unwrap_or_default().trim());
    parts.filter(|part| !part.is_empty() && *part != ".").fold(String::new(), |path, part| path + "/" + part)
}

fn wires() -> impl Iterator<Item = &'static ModelWire> {
    ProviderKind::ALL.iter().map(|kind| kind.wire())
}

impl UsageShape {
    fn read(&self, counts: &Value) -> TokenUsage {
        let count = |place: &str| counts.pointer(place).and_then(Value::as_u64).unwrap_or(0).min(MOST_TOKENS);
        let sum = |places: &[&str]| places.iter().fold(0, |sum: u64, place| sum.saturating_add(count(place)));
        let cached = count(self.cache_read);
        let among_input = if self.input_holds_cached { cached } else { 0 };
        let written = self.cache_write.map_or(0, count);
        TokenUsage::new(sum(self.input).saturating_sub(among_input), sum(self.output), cached, written)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_services_words_are_understood_and_cached_input_is_counted_once() {
        let anthropic = json!({"type": "message_start", "message": {"model": "m", "usage":
            {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5}}});
        assert_eq!(ProviderKind::tokens_of(&anthropic), Some(TokenUsage::new(9, 1, 40, 5)));
        assert_eq!(ProviderKind::model_of(&anthropic), Some("m"));
        let chat = json!({"model": "m", "choices": [], "usage":
            {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}});
        assert_eq!(ProviderKind::tokens_of(&chat), Some(TokenUsage::new(40, 7, 60, 0)));
        let responses = json!({"type": "response.completed", "response": {"model": "m", "usage":
            {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 7, "total_tokens": 107}}});
        assert_eq!(ProviderKind::tokens_of(&responses), Some(TokenUsage::new(40, 7, 60, 0)));
        assert_eq!(ProviderKind::model_of(&responses), Some("m"));
        let gemini = json!({"modelVersion": "m", "usageMetadata":
            {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}});
        assert_eq!(ProviderKind::tokens_of(&gemini), Some(TokenUsage::new(40, 7, 60, 0)));
        assert_eq!(ProviderKind::model_of(&gemini), Some("m"));
        for nothing in [json!({"usage": null}), json!({"input_tokens": 5}), json!([1]), json!({"usage": {}})]
        {
            assert_eq!(ProviderKind::tokens_of(&nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_wires_word_is_the_same_in_json_and_each_has_a_path_of_its_own() {
        for kind in ProviderKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert_eq!(ProviderKind::parse(kind.as_str()), Some(*kind));
            assert!(kind.wire().asking_paths.iter().all(|path| ProviderKind::asks(path)));
            let counts = |path: &&str| ProviderKind::counts_tokens(path) && !ProviderKind::asks(path);
            assert!(kind.wire().counting_paths.iter().all(counts));
        }
        for spelled in
            ["/v1/%6dessages", "/v1/messages/", "/v1//messages/.", "/v1/Messages;x=1", "/v1/messages/;"]
        {
            assert!(ProviderKind::asks(spelled), "{spelled}");
        }
        assert!(!ProviderKind::asks("/v1/messages/batches") && !ProviderKind::asks("/v1/models"));
    }
}
