//! `check` and `iterations` of a step as the oldest registries write them.

use serde_json::Value;

use super::position::child;
use super::source::Findings;
use crate::domain::flow::{Iterations, StepAddress};
use crate::domain::step_check::{CheckPrompt, StepCheck};

/// Tries of a step whose `onFail` says `retry` without a number.
const DEFAULT_RETRIES: u32 = 3;

/// Reads `{prompt, responseFormat, onPass, onFail}`. `None` = it is broken, which is reported.
pub fn read(check: &Value, at: &str, findings: &mut Findings<'_>) -> Option<StepCheck> {
    let at = child(at, "check");
    let mut wrong = |key: &str, message: &str, fix: &str| {
        let at = if key.is_empty() { at.clone() } else { child(&at, key) };
        findings.schema_error("SR-VALID-004", &at, message.to_owned(), fix.to_owned());
    };
    let prompt = prompt(check.get("prompt"));
    if prompt.is_none() {
        wrong("prompt", "the check has no question", "write {\"c2\": …, \"c3\": …}, or {\"path\": …}");
    }
    let answer = check.get("responseFormat");
    if answer.is_some_and(|format| format.get("result").is_none()) {
        wrong(
            "responseFormat",
            "a check is answered with {\"result\": \"ok\" or \"ng\"}",
            "write that, or leave it out",
        );
    }
    let on_pass = match check.get("onPass") {
        None => Some(None),
        Some(Value::String(word)) => Some((word != "complete").then(|| word.clone())),
        Some(rule) if rule.get("complete") == Some(&Value::Bool(true)) => Some(None),
        Some(rule) => {
            rule.get("next").and_then(Value::as_str).map(|word| (word != "complete").then(|| word.to_owned()))
        }
    };
    if on_pass.is_none() {
        wrong("onPass", "nothing says where ok leads", "write {\"next\": step}, or {\"complete\": true}");
    }
    let on_fail = check.get("onFail");
    let said = |key: &str| on_fail.and_then(|rule| rule.get(key));
    let retries =
        said("maxRetries").map(|number| number.as_u64().and_then(|number| u32::try_from(number).ok()));
    if retries == Some(None) {
        wrong("onFail", "maxRetries is no whole number", "correct the number");
    }
    let retry = said("retry") != Some(&Value::Bool(false));
    let fallback = said("fallback").and_then(Value::as_str).map(str::to_owned);
    let max_retries = match (retries.flatten(), said("retry"), &fallback) {
        (Some(number), ..) if retry => number,
        // A fallback alone is taken at once.
        (None, None, Some(_)) => 0,
        (None, ..) if retry => DEFAULT_RETRIES,
        _ => 0,
    };
    Some(StepCheck { prompt: prompt?, on_pass: on_pass?, max_retries, fallback })
}

/// Reads `{min, max}`; what is wrong in it is told and left out.
pub fn iterations(written: &Value, at: &str, findings: &mut Findings<'_>) -> Iterations {
    let at = child(at, "iterations");
    let Some(bounds) = written.as_object() else {
        let fix = "write {\"min\": 1, \"max\": 3}";
        findings.schema_error("SR-VALID-004", &at, "iterations is no object", fix);
        return Iterations::default();
    };
    let mut bound = |key: &str| {
        let value = bounds.get(key)?;
        let number =
            value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
        if number.is_none() {
            let message = format!("{key} is no whole number from 1 on");
            findings.schema_error("SR-VALID-004", &child(&at, key), message, "correct the number");
        }
        number
    };
    let (min, max) = (bound("min").unwrap_or(1), bound("max"));
    if max.is_some_and(|max| max < min) {
        findings.schema_error("SR-VALID-004", &at, "max is smaller than min", "raise max, or lower min");
        return Iterations::default();
    }
    Iterations { min, max }
}

fn prompt(prompt: Option<&Value>) -> Option<CheckPrompt> {
    let prompt = prompt?;
    let text = |key: &str| prompt.get(key).and_then(Value::as_str).map(str::to_owned);
    if let Some(path) = prompt.as_str().map(str::to_owned).or_else(|| text("path")) {
        return Some(CheckPrompt::Path(path));
    }
    Some(CheckPrompt::Address(StepAddress {
        c2: text("c2")?,
        c3: text("c3")?,
        edition: text("edition").unwrap_or_else(|| "default".into()),
        adaptation: text("adaptation"),
    }))
}
