//! The limit that a request to a model sets on its reply, on every wire: what the request may cost depends on it.

use serde_json::Value;

/// Where requests say how many tokens a reply may have.
const LIMITS: [&str; 6] = [
    "/max_tokens",
    "/max_completion_tokens",
    "/max_output_tokens",
    "/generationConfig/maxOutputTokens",
    "/generationConfig/max_output_tokens",
    "/generation_config/max_output_tokens",
];
/// Where they ask for several replies at once.
const REPLIES: [&str; 4] =
    ["/n", "/best_of", "/generationConfig/candidateCount", "/generation_config/candidate_count"];
/// Tokens of thinking, which the limit has to be larger than.
const THINKING: &str = "/thinking/budget_tokens";
/// Tokens of the shortest reply that is worth its request.
pub const SHORTEST_REPLY: u64 = 1_024;

/// What a request to a model asks for, as far as its price depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    /// Its length.
    pub bytes: u64,
    /// Most tokens of its replies; `None` = it does not say so.
    pub longest: Option<u64>,
    /// The fewest for which it is sent.
    pub shortest: u64,
}

/// Why a request is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotPaid {
    /// The money does not cover it.
    NotCovered,
    /// The money that it would need is set aside for requests under way.
    SetAside,
}

impl Asked {
    /// What a request of so many bytes asks for.
    pub fn of(question: &Value, bytes: usize) -> Self {
        let thinking = question.pointer(THINKING).and_then(figure).unwrap_or_default();
        Self {
            bytes: bytes as u64,
            longest: longest_of(question),
            shortest: SHORTEST_REPLY.saturating_add(thinking).saturating_mul(replies_of(question)),
        }
    }
}

/// Most tokens of all replies to a request together; `None` = it does not say so.
pub fn longest_of(question: &Value) -> Option<u64> {
    let told = LIMITS.iter().filter_map(|place| question.pointer(place).and_then(figure));
    Some(told.max()?.saturating_mul(replies_of(question)))
}

/// Lowers the limits that a request sets, so that its replies have so many tokens together.
pub fn lower(question: &mut Value, longest: u64) {
    let each = longest / replies_of(question);
    for place in LIMITS {
        if let Some(told) =
            question.pointer_mut(place).filter(|told| figure(told).is_some_and(|told| told > each))
        {
            *told = each.into();
        }
    }
}

fn replies_of(question: &Value) -> u64 {
    REPLIES.iter().filter_map(|place| question.pointer(place).and_then(figure)).max().unwrap_or(1).max(1)
}

/// A figure, also one that is written with a fraction or an exponent.
fn figure(told: &Value) -> Option<u64> {
    told.as_u64().or_else(|| told.as_f64().filter(|told| *told >= 0.0).map(|told| told.ceil() as u64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_is_read_and_lowered_on_every_wire_for_all_replies_together() {
        for (mut question, longest, shortest, lowered) in [
            (json!({"max_tokens": 9000}), Some(9000), 1024, json!({"max_tokens": 2000})),
            (json!({"max_tokens": 9e3}), Some(9000), 1024, json!({"max_tokens": 2000})),
            (json!({"max_output_tokens": 100}), Some(100), 1024, json!({"max_output_tokens": 100})),
            (
                json!({"n": 4, "max_completion_tokens": 9000}),
                Some(36_000),
                4096,
                json!({"n": 4, "max_completion_tokens": 500}),
            ),
            (
                json!({"generationConfig": {"maxOutputTokens": 9000, "candidateCount": 2}}),
                Some(18_000),
                2048,
                json!({"generationConfig": {"maxOutputTokens": 1000, "candidateCount": 2}}),
            ),
            (
                json!({"max_tokens": 9000, "thinking": {"budget_tokens": 4000}}),
                Some(9000),
                5024,
                json!({"max_tokens": 2000, "thinking": {"budget_tokens": 4000}}),
            ),
            (json!({"input": "x"}), None, 1024, json!({"input": "x"})),
            (Value::Null, None, 1024, Value::Null),
        ] {
            assert_eq!(Asked::of(&question, 7), Asked { bytes: 7, longest, shortest }, "{question}");
            lower(&mut question, 2000);
            assert_eq!(question, lowered);
        }
    }
}
