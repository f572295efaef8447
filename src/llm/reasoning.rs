//! Reasoning kept from a reply, to be sent back unchanged to the model that gave it.
//!
//! The value is opaque to the engine: `{wire, model, blocks}`. Blocks are the provider's own, in reply order; text and
//! calls stand between them as markers, because their content lives in the message. Signed reasoning is worth nothing
//! to another wire or model, so it is left out there.

use serde_json::{Value, json};

/// Wraps the blocks of a reply; `None` when there are none.
pub(super) fn keep(wire: &str, model: &str, blocks: Vec<Value>) -> Option<Value> {
    (!blocks.is_empty()).then(|| json!({ "wire": wire, "model": model, "blocks": blocks }))
}

/// The blocks, if this wire and model gave them.
pub(super) fn recall<'a>(kept: Option<&'a Value>, wire: &str, model: &str) -> Option<&'a [Value]> {
    let kept = kept?;
    let ours = kept.get("wire")?.as_str() == Some(wire) && kept.get("model")?.as_str() == Some(model);
    let blocks = kept.get("blocks")?.as_array()?;
    ours.then_some(blocks.as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_044_reasoning_goes_back_to_the_model_that_gave_it_and_to_no_other() {
        let kept = keep("anthropic", "m", vec![json!({ "type": "thinking" })]);
        assert_eq!(recall(kept.as_ref(), "anthropic", "m").unwrap().len(), 1);
        assert!(recall(kept.as_ref(), "openai", "m").is_none());
        assert!(recall(kept.as_ref(), "anthropic", "n").is_none());
        assert!(recall(None, "anthropic", "m").is_none());
        assert_eq!(keep("anthropic", "m", vec![]), None);
    }
}
