//! What the events of all programs have in common: what they say about the launch, and how they are read.

use serde_json::Value;

use crate::domain::money::Money;

/// What an event says of the launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signal {
    /// It goes on.
    More,
    /// The program says that it is done. It may go on all the same, and what it says then counts as well.
    Done,
    /// It met an error, and which. Some go on after it.
    Failed(String),
}

/// More tokens than any launch uses. A larger figure counts as so many: it is over every cap, and sums of it do not overflow.
const MOST_TOKENS: u64 = 1 << 40;

/// A count at `at`, also one that is written with a fraction or an exponent; 0 where it is none.
pub(super) fn count(event: &Value, at: &str) -> u64 {
    let Some(told) = event.pointer(at) else { return 0 };
    // A figure that no integer holds is read as a fraction. The cast keeps to the bounds of the type.
    let told = told.as_u64().or_else(|| told.as_f64().map(|figure| figure.ceil() as u64));
    told.unwrap_or(0).min(MOST_TOKENS)
}

/// More dollars than any cap. A larger figure counts as so many: it is over every cap, and sums of it are still written and read.
const MOST_DOLLARS: f64 = 1e9;

/// US dollars at `at`, a number or a text that is one; `None` where it says no amount.
pub(super) fn dollars(event: &Value, at: &str) -> Option<Money> {
    let told = event.pointer(at)?;
    let dollars = told.as_f64().or_else(|| told.as_str()?.trim().parse().ok())?;
    Money::from_dollars(if dollars > MOST_DOLLARS { MOST_DOLLARS } else { dollars })
}

/// A text at `at`.
pub(super) fn text(event: &Value, at: &str) -> Option<String> {
    event.pointer(at).and_then(Value::as_str).map(str::to_owned)
}

/// The kind of an event.
pub(super) fn kind(event: &Value) -> &str {
    event.get("type").and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_count_that_is_too_large_is_over_every_cap_and_not_left_out() {
        let of = |told: Value| count(&json!({ "tokens": told }), "/tokens");
        assert_eq!((of(json!(7)), of(json!(1e9)), of(json!(6.5))), (7, 1_000_000_000, 7));
        let read = serde_json::from_str::<Value>("10000000000000000000000").unwrap();
        for large in [json!(u64::MAX), json!(1e22), read] {
            assert_eq!(of(large), MOST_TOKENS);
        }
        for none in [json!(-3), json!(-1e22), json!("much"), Value::Null] {
            assert_eq!(of(none.clone()), 0, "{none}");
        }
    }

    #[test]
    fn an_amount_that_is_too_large_is_over_every_cap_and_not_left_out() {
        let of = |told: Value| dollars(&json!({ "cost": told }), "/cost").map(Money::dollars);
        assert_eq!(of(json!(0.25)), Some(0.25));
        assert_eq!(of(json!("7.5")), Some(7.5));
        for large in [json!(2e12), json!(1e300), json!("2e12"), json!("inf")] {
            assert_eq!(of(large), Some(1e9));
        }
        for none in [json!(-3), json!("-3"), json!("NaN"), json!("much"), json!("-inf"), Value::Null] {
            assert_eq!(of(none.clone()), None, "{none}");
        }
    }
}
