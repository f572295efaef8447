//! The tokens that model services report in their replies: Anthropic's messages, OpenAI's chat completions and
//! responses, Gemini's contents, whole or as events.

use http::Method;
use serde_json::Value;

use crate::domain::message::TokenUsage;

/// Ends of the paths by which models are asked.
const MODEL_PATHS: [&str; 5] =
    ["/messages", "/chat/completions", "/responses", ":generateContent", ":streamGenerateContent"];
/// More tokens than any request uses. Larger figures of a service would overflow sums.
const MOST_TOKENS: u64 = 1 << 40;

/// Whether a request asks a model for words.
pub(super) fn asks_a_model(method: &Method, path: &str) -> bool {
    method == Method::POST && MODEL_PATHS.iter().any(|end| path.ends_with(end))
}

/// The model that a path names, as Gemini's do: `…/models/NAME:generateContent`.
pub(super) fn model_of_path(path: &str) -> Option<&str> {
    let (_, named) = path.rsplit_once("/models/")?;
    named.split(':').next().filter(|name| !name.is_empty())
}

/// The model that a reply, or a piece of it, says has answered.
pub(super) fn model(reply: &Value) -> Option<&str> {
    let places = ["/model", "/message/model", "/response/model", "/modelVersion", "/response/modelVersion"];
    places.into_iter().find_map(|place| reply.pointer(place)?.as_str())
}

/// The tokens that a reply, or a piece of it, reports. A piece reports the number so far.
pub(super) fn tokens(reply: &Value) -> Option<TokenUsage> {
    let places = ["/usage", "/message/usage", "/response/usage", "/usageMetadata", "/response/usageMetadata"];
    let usage =
        places.into_iter().find_map(|place| reply.pointer(place).filter(|usage| usage.is_object()))?;
    let count = |place: &str| usage.pointer(place).and_then(Value::as_u64).unwrap_or(0).min(MOST_TOKENS);
    let has = |key: &str| usage.get(key).is_some();
    let told = if has("promptTokenCount") || has("candidatesTokenCount") {
        let cached = count("/cachedContentTokenCount");
        let input = count("/promptTokenCount").saturating_add(count("/toolUsePromptTokenCount"));
        let output = count("/candidatesTokenCount").saturating_add(count("/thoughtsTokenCount"));
        TokenUsage::new(input.saturating_sub(cached), output, cached, 0)
    } else if has("prompt_tokens") {
        let cached = count("/prompt_tokens_details/cached_tokens");
        TokenUsage::new(
            count("/prompt_tokens").saturating_sub(cached),
            count("/completion_tokens"),
            cached,
            0,
        )
    } else if has("input_tokens_details") || has("total_tokens") {
        let cached = count("/input_tokens_details/cached_tokens");
        TokenUsage::new(count("/input_tokens").saturating_sub(cached), count("/output_tokens"), cached, 0)
    } else {
        TokenUsage::new(
            count("/input_tokens"),
            count("/output_tokens"),
            count("/cache_read_input_tokens"),
            count("/cache_creation_input_tokens"),
        )
    };
    (told.total_tokens > 0).then_some(told)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_services_words_are_understood_and_cached_input_is_counted_once() {
        let anthropic = json!({"type": "message_start", "message": {"model": "m", "usage":
            {"input_tokens": 9, "output_tokens": 1, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5}}});
        assert_eq!(tokens(&anthropic), Some(TokenUsage::new(9, 1, 40, 5)));
        assert_eq!(model(&anthropic), Some("m"));
        let chat = json!({"model": "m", "choices": [], "usage":
            {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}});
        assert_eq!(tokens(&chat), Some(TokenUsage::new(40, 7, 60, 0)));
        let responses = json!({"type": "response.completed", "response": {"model": "m", "usage":
            {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 7, "total_tokens": 107}}});
        assert_eq!(tokens(&responses), Some(TokenUsage::new(40, 7, 60, 0)));
        assert_eq!(model(&responses), Some("m"));
        let gemini = json!({"modelVersion": "m", "usageMetadata":
            {"promptTokenCount": 100, "cachedContentTokenCount": 60, "candidatesTokenCount": 5, "thoughtsTokenCount": 2}});
        assert_eq!(tokens(&gemini), Some(TokenUsage::new(40, 7, 60, 0)));
        for nothing in [json!({"usage": null}), json!({"input_tokens": 5}), json!([1]), json!({"usage": {}})]
        {
            assert_eq!(tokens(&nothing), None, "{nothing}");
        }
    }

    #[test]
    fn only_requests_for_words_ask_a_model() {
        let post = |path: &str| asks_a_model(&Method::POST, path);
        assert!(
            post("/v1/messages") && post("/v1/responses") && post("/v1beta/models/g:streamGenerateContent")
        );
        assert!(!post("/v1/messages/count_tokens") && !asks_a_model(&Method::GET, "/v1/messages"));
        assert_eq!(model_of_path("/v1beta/models/gemini-2.5-pro:generateContent"), Some("gemini-2.5-pro"));
        assert_eq!(model_of_path("/v1/messages"), None);
    }
}
